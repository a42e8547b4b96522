/** Elements made with calls: the page holds no inline script, style or markup in strings. */

/**
 * @param {string} tag
 * @param {Record<string, string | boolean | ((event: any) => void)>} [attributes] functions are listeners
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/**
 * @param {string} tag
 * @param {Record<string, string | boolean | ((event: any) => void)>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function draw(tag, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/**
 * @param {string} id
 * @returns {any} the element, which index.html has
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}

/** @returns {boolean} whether the reader asked for less motion */
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** @returns {boolean} whether the reader points with a finger, and has no mouse and most likely no keys */
export const touch = () => !matchMedia("(any-pointer: fine)").matches && matchMedia("(pointer: coarse)").matches;

/**
 * @param {number} count
 * @param {string} noun
 * @returns {string} "1 frame", "2 frames"
 */
export const many = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** @type {<T extends Element>(element: T, attributes: Record<string, any>, children: (Node | string)[]) => T} */
function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
