/** The strip's colours: how a frame came gives the hue, its code the lightness and a little of the hue. */

import { FOUND, KEPT, MADE, RECOMPUTED } from "./take.js";

const SHADES = 64;
const dark = matchMedia("(prefers-color-scheme: dark)");

/** @type {Record<number, {hue: number, spread: number, light: number[], dark: number[]}>} lightness from, to, chroma */
const INKS = {
  [FOUND]: { hue: 240, spread: 30, light: [50, 88, 0.1], dark: [36, 80, 0.1] },
  [KEPT]: { hue: 240, spread: 30, light: [66, 91, 0.035], dark: [32, 64, 0.035] },
  [MADE]: { hue: 62, spread: 28, light: [58, 91, 0.125], dark: [38, 84, 0.115] },
  [RECOMPUTED]: { hue: 345, spread: 22, light: [52, 86, 0.14], dark: [40, 80, 0.14] },
};

/** @typedef {{cells: string[][], bands: string[], ink: string, paper: string, faint: string}} Palette */

/** @type {Palette} */
let current = mix();
/** @type {Set<() => void>} */
const watchers = new Set();

dark.addEventListener("change", () => {
  current = mix();
  for (const watcher of watchers) watcher();
});

/** @returns {Palette} that of the colour scheme the reader has now */
export const palette = () => current;

/** @param {() => void} watcher called when the colour scheme changes */
export const onPalette = (watcher) => watchers.add(watcher);

/** @param {() => void} watcher */
export const offPalette = (watcher) => watchers.delete(watcher);

/**
 * @param {number} code
 * @returns {number} which of the shades is its own
 */
export const shade = (code) => (Math.imul(code + 1, 0x9e3779b1) >>> 16) % SHADES;

/** @returns {Palette} */
function mix() {
  const scheme = dark.matches ? "dark" : "light";
  const cells = [FOUND, KEPT, MADE, RECOMPUTED].map((how) => {
    const { hue, spread, [scheme]: ink } = INKS[how];
    const [from, to, chroma] = /** @type {number[]} */ (ink);
    return Array.from({ length: SHADES }, (_, i) => {
      const turn = hue + (((i * 29) % SHADES) / SHADES - 0.5) * 2 * spread;
      return `oklch(${from + ((to - from) * i) / (SHADES - 1)}% ${chroma} ${turn})`;
    });
  });
  const style = getComputedStyle(document.documentElement);
  const named = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    cells,
    bands: ["--found", "--kept", "--made", "--recomputed"].map(named),
    ink: named("--ink"),
    paper: named("--sheet"),
    faint: named("--muted"),
  };
}
