/** Paints the part of a strip that is seen. */

import { palette, shade } from "./palette.js";
import { FOUND, KEPT, MADE } from "./take.js";

const TOP = 10; // for the cursor's handle
const BAND = 8; // under the cells: how the frame came
const SECONDS = 20; // under the bands: the time

/** @type {(rows: number) => number} */
const cellFor = (rows) => Math.max(3, Math.min(9, Math.floor(150 / rows)));

/**
 * @param {number} rows codes in a frame
 * @returns {number} pixels
 */
export const heightFor = (rows) => TOP + rows * cellFor(rows) + 4 + BAND + SECONDS;

/**
 * @typedef {object} Sight what is seen of a strip
 * @property {import("./take.js").Take} take
 * @property {number} column pixels a frame
 * @property {number} left pixels scrolled
 * @property {number} width
 * @property {number} height
 * @property {number} span pixels from the first column to the end of the axis
 * @property {number | null} cut the frame pointed at
 * @property {number[]} marks frames where other takes branch off
 * @property {(frame: number) => number} alpha
 */

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Sight} sight
 */
export function paint(pen, sight) {
  const { take, column, left, width, height } = sight;
  pen.clearRect(0, 0, width, height);
  pen.save();
  pen.translate(-left, 0);
  const first = Math.max(0, Math.floor(left / column));
  const last = Math.min(take.frames, Math.ceil((left + width) / column));
  const floor = height - SECONDS - BAND;
  time(pen, sight, first, floor + BAND);
  for (let frame = first; frame < last; frame++) cells(pen, sight, frame);
  bands(pen, sight, first, last, floor);
  pen.globalAlpha = 1;
  fork(pen, sight, floor);
  cut(pen, sight, floor);
  pen.restore();
}

/** @type {(pen: CanvasRenderingContext2D, sight: Sight, frame: number) => void} */
function cells(pen, { take, column, alpha }, frame) {
  const codes = take.codes[frame];
  if (!codes) return;
  const inks = palette().cells[take.how[frame]];
  const cell = cellFor(codes.length);
  pen.globalAlpha = alpha(frame);
  for (let row = 0; row < codes.length; row++) {
    pen.fillStyle = inks[shade(codes[row])];
    pen.fillRect(frame * column, TOP + row * cell, column - 1, cell - 1);
  }
}

/**
 * Found: a full bar. Kept: a hollow one. Generated: a dot. Recomputed: slanted strokes.
 *
 * @type {(pen: CanvasRenderingContext2D, sight: Sight, first: number, last: number, y: number) => void}
 */
function bands(pen, { take, column, alpha }, first, last, y) {
  for (let frame = first; frame < last; frame++) {
    const x = frame * column;
    const how = take.how[frame];
    pen.globalAlpha = alpha(frame);
    pen.fillStyle = pen.strokeStyle = palette().bands[how];
    pen.lineWidth = 1.5;
    if (how === FOUND) pen.fillRect(x, y + 1, column, 5);
    else if (how === KEPT) {
      pen.fillRect(x, y + 1, column, 1.5);
      pen.fillRect(x, y + 4.5, column, 1.5);
    } else if (how === MADE) {
      pen.beginPath();
      pen.arc(x + (column - 1) / 2, y + 3.5, 1.75, 0, 2 * Math.PI);
      pen.fill();
    } else {
      pen.beginPath();
      for (let stroke = 0; stroke + 3 < column; stroke += 4) {
        pen.moveTo(x + stroke, y + 7);
        pen.lineTo(x + stroke + 4, y);
      }
      pen.stroke();
    }
  }
}

/** @type {(pen: CanvasRenderingContext2D, sight: Sight, first: number, y: number) => void} */
function time(pen, { take, column, left, width }, first, y) {
  const { faint } = palette();
  const second = column * take.frameRate;
  const stride = second < 40 ? Math.ceil(40 / second) : 1;
  pen.font = "11px ui-sans-serif, system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.fillStyle = faint;
  const from = Math.floor(first / take.frameRate / stride) * stride;
  for (let at = from; at * second < left + width; at += stride) {
    pen.globalAlpha = 0.5;
    pen.fillRect(Math.round(at * second), y + 1, 1, 5);
    pen.globalAlpha = 1;
    pen.fillText(`${at} s`, Math.round(at * second) + 4, y + 6);
  }
}

/** Where this take branches off, and where others do from it. @type {(pen: CanvasRenderingContext2D, sight: Sight, floor: number) => void} */
function fork(pen, { take, column, marks, span }, floor) {
  const { ink } = palette();
  pen.fillStyle = ink;
  const kept = take.parent ? (take.cut ?? take.parent.frames) : 0;
  if (kept) {
    pen.fillRect(kept * column - 1, TOP - 4, 1, floor + BAND - TOP + 4);
  }
  for (const mark of marks) {
    wedge(pen, mark * column - 0.5, 4, floor + BAND + 4, floor + BAND - 2, span);
  }
}

/**
 * A triangle whose tip is at a place; at either end of the axis its base moves inwards, so that it is whole.
 *
 * @type {(pen: CanvasRenderingContext2D, x: number, half: number, base: number, tip: number, span: number) => void}
 */
function wedge(pen, x, half, base, tip, span) {
  const middle = Math.min(Math.max(x, half), span - half);
  pen.beginPath();
  pen.moveTo(middle - half, base);
  pen.lineTo(middle + half, base);
  pen.lineTo(Math.min(Math.max(x, 0), span), tip);
  pen.fill();
}

/** What would be made anew is veiled. @type {(pen: CanvasRenderingContext2D, sight: Sight, floor: number) => void} */
function cut(pen, { take, column, cut: frame, span }, floor) {
  if (frame === null) return;
  const { ink, paper } = palette();
  const x = frame * column;
  pen.globalAlpha = 0.62;
  pen.fillStyle = paper;
  pen.fillRect(x, TOP, (take.frames - frame) * column, floor + BAND - TOP);
  pen.globalAlpha = 1;
  pen.fillStyle = ink;
  pen.fillRect(Math.max(x - 1, 0), TOP - 2, 2, floor + BAND - TOP + 2);
  wedge(pen, x, 6, 1, TOP - 1, span);
}
