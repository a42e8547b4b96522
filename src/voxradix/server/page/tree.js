/** The tree of cached rows, drawn small: each run of rows once, as long as it has rows. */

import { draw, make, many } from "./dom.js";

const LANE = 11;
const BAR = 6;
const WIDTH = 260;

/**
 * @typedef {{id: number, parent: number | null, depth: number, rows: number, prompt_rows: number, kind: string,
 *   in_use: boolean, pinned: boolean, hit: boolean}} Node
 */

export class Tree {
  /** @param {HTMLElement} section with a figure and a summary */
  constructor(section) {
    this.section = section;
    this.figure = /** @type {HTMLElement} */ (section.querySelector("figure"));
    this.summary = /** @type {HTMLElement} */ (section.querySelector(".summary"));
    this.shown = "";
  }

  /** @param {{nodes: Node[], truncated: boolean}} tree */
  show(tree) {
    const now = JSON.stringify(tree);
    if (now === this.shown) return;
    this.shown = now;
    this.summary.textContent = summary(tree);
    if (tree.nodes.length) this.figure.replaceChildren(picture(tree.nodes), legend());
    else this.figure.replaceChildren();
  }

  /** @param {string} words what there is instead of a tree */
  say(words) {
    this.shown = "";
    this.figure.replaceChildren();
    this.summary.textContent = words;
  }
}

/** @type {(tree: {nodes: Node[], truncated: boolean}) => string} */
function summary({ nodes, truncated }) {
  if (!nodes.length) return "Nothing is cached yet.";
  const sum = (/** @type {(node: Node) => number} */ of) => nodes.reduce((total, node) => total + of(node), 0);
  const ends = endsBelow(nodes);
  const lines = ends.get(null) ?? 0;
  const shared = sum((node) => ((ends.get(node.id) ?? 0) > 1 ? node.rows : 0));
  const used = sum((node) => (node.in_use ? node.rows : 0));
  const parts = [
    `${many(sum((node) => node.rows), "row")} in ${many(lines, "line")}`,
    `${sum((node) => node.prompt_rows)} of a prompt, ${sum((node) => node.rows - node.prompt_rows)} generated`,
  ];
  if (shared) parts.push(`${shared} shared by several lines and held once`);
  if (used) parts.push(`${used} in use`);
  return `${parts.join("; ")}.${truncated ? " More than is shown." : ""}`;
}

/** How many lines go through each node. @type {(nodes: Node[]) => Map<number | null, number>} */
function endsBelow(nodes) {
  const ends = new Map();
  const above = new Set(nodes.map((node) => node.parent));
  for (const node of [...nodes].reverse()) {
    if (!above.has(node.id)) ends.set(node.id, 1);
    ends.set(node.parent, (ends.get(node.parent) ?? 0) + (ends.get(node.id) ?? 0));
  }
  return ends;
}

/** @type {(nodes: Node[]) => SVGElement} */
function picture(nodes) {
  const lanes = layOut(nodes);
  const deepest = Math.max(...nodes.map((node) => node.depth + node.rows));
  const height = Math.max(...lanes.values()) * LANE + LANE;
  const x = (/** @type {number} */ depth) => (depth / deepest) * (WIDTH - 2) + 1;
  const picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-labelledby": "tree-title" });
  picture.setAttribute("aria-describedby", "tree-summary");
  const places = new Map(nodes.map((node) => [node.id, node]));
  for (const node of nodes) {
    const y = /** @type {number} */ (lanes.get(node.id)) * LANE + LANE / 2;
    const parent = places.get(/** @type {number} */ (node.parent));
    if (parent) {
      const above = /** @type {number} */ (lanes.get(parent.id)) * LANE + LANE / 2;
      if (above !== y) picture.append(draw("path", { class: "limb", d: `M${x(node.depth)} ${above}V${y}` }));
    }
    picture.append(bar(node, x(node.depth), x(node.depth + node.rows), x(node.depth + node.prompt_rows), y));
  }
  return picture;
}

/** @type {(node: Node, from: number, to: number, middle: number, y: number) => SVGElement} */
function bar(node, from, to, middle, y) {
  const width = Math.max(to - from - 1, 1.5);
  const prompt = Math.min(Math.max(middle - from - (node.prompt_rows === node.rows ? 1 : 0), 0), width);
  const kinds = ["node", node.in_use ? "used" : "", node.hit ? "hit" : "", node.pinned ? "pinned" : ""];
  const box = (/** @type {string} */ kind, /** @type {number} */ at, /** @type {number} */ wide) =>
    draw("rect", { class: kind, x: `${at}`, y: `${y - BAR / 2}`, width: `${wide}`, height: `${BAR}`, rx: "1" });
  const group = draw("g", { class: kinds.filter(Boolean).join(" ") }, draw("title", {}, words(node)));
  if (prompt > 0) group.append(box("prompt", from, prompt));
  if (prompt < width) group.append(box("generated", from + prompt, width - prompt));
  if (node.in_use) group.append(box("ring", from - 0.5, width + 1));
  return group;
}

/** @type {(node: Node) => string} */
function words(node) {
  const what = { prompt: "of a prompt", generated: "generated", mixed: "prompt and generated" }[node.kind] ?? node.kind;
  const more = [node.hit ? "has been found" : "", node.in_use ? "in use" : "", node.pinned ? "pinned" : ""];
  return [`${many(node.rows, "row")} ${what}`, `after ${node.depth}`, ...more.filter(Boolean)].join(", ");
}

/** A lane for each end; a node lies in the lane of its first child. @type {(nodes: Node[]) => Map<number, number>} */
function layOut(nodes) {
  /** @type {Map<number | null, Node[]>} */
  const below = new Map();
  const known = new Set(nodes.map((node) => node.id));
  for (const node of nodes) {
    const parent = node.parent !== null && known.has(node.parent) ? node.parent : null;
    below.set(parent, [...(below.get(parent) ?? []), node]);
  }
  const lanes = new Map();
  let free = 0;
  const stack = [...(below.get(null) ?? [])].reverse();
  while (stack.length) {
    const node = /** @type {Node} */ (stack.pop());
    lanes.set(node.id, free);
    const children = below.get(node.id) ?? [];
    if (children.length) stack.push(...[...children].reverse());
    else free += 1;
  }
  return lanes;
}

/** @returns {HTMLElement} */
function legend() {
  const entry = (/** @type {string} */ kind, /** @type {string} */ word) =>
    make("li", {}, make("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), word);
  return make("figcaption", {}, make("ul", {}, entry("prompt", "prompt"), entry("row", "generated"), entry("ring", "in use")));
}
