/** The server's figures in a corner. */

import { draw, make } from "./dom.js";

const WIDTH = 260;

export class Metrics {
  /** @param {HTMLElement} section with a list and a figure */
  constructor(section) {
    this.list = /** @type {HTMLElement} */ (section.querySelector("dl"));
    this.figure = /** @type {HTMLElement} */ (section.querySelector("figure"));
    this.shown = "";
  }

  /** @param {any} stats */
  show(stats) {
    const found = stats.reused_prompt_rows + stats.reused_generated_rows;
    const first = stats.first_frame_ms;
    /** @type {[string, string, string][]} */
    const figures = [
      ["running", `${stats.running}`, `of ${stats.max_batch} at once`],
      ["waiting", `${stats.waiting}`, `of ${stats.queue} at most`],
      ["hits", stats.prompt_rows ? `${Math.round((100 * found) / stats.prompt_rows)} %` : "–", "of prompt rows found"],
      ["retractions", `${stats.retractions}`, `${stats.recomputed_rows} rows recomputed`],
      ["first frame", first ? `${Math.round(first.p50)} ms` : "–", "median"],
      ["frames", `${stats.frames}`, "generated"],
    ];
    const now = JSON.stringify([figures, stats.rows, stats.status]);
    if (now === this.shown) return;
    this.shown = now;
    this.list.replaceChildren(
      ...figures.map(([name, value, title]) => make("div", { title }, make("dt", {}, name), make("dd", {}, value))),
    );
    this.figure.replaceChildren(bar(stats.rows), caption(stats.rows));
    if (stats.status !== "ok") this.figure.append(make("p", { class: "trouble" }, `The server is ${stats.status}.`));
  }

  /** @param {string} words what there is instead of figures */
  say(words) {
    this.shown = "";
    this.list.replaceChildren();
    this.figure.replaceChildren(make("p", { class: "summary" }, words));
  }
}

/** @typedef {{free: number, cached: number, held: number, pool: number}} Rows */

/** @type {(rows: Rows) => SVGElement} */
function bar({ cached, held, pool }) {
  const wide = (/** @type {number} */ rows) => (rows ? Math.max((rows / pool) * WIDTH, 2) : 0);
  const box = (/** @type {string} */ kind, /** @type {number} */ x, /** @type {number} */ width) =>
    draw("rect", { class: kind, x: `${x}`, y: "0", width: `${width}`, height: "8" });
  return draw(
    "svg",
    { viewBox: `0 0 ${WIDTH} 8`, "aria-hidden": "true", class: "pool" },
    box("free", 0, WIDTH),
    box("cached", 0, wide(cached)),
    box("held", wide(cached), wide(held)),
  );
}

/** @type {(rows: Rows) => HTMLElement} */
function caption(rows) {
  const entry = (/** @type {"cached" | "held" | "free"} */ kind) =>
    make("li", {}, make("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), `${rows[kind]} ${kind}`);
  return make("figcaption", {}, make("ul", { "aria-label": "Rows" }, entry("cached"), entry("held"), entry("free")));
}
