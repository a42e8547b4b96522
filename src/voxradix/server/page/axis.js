/** The time axis that the takes of one text share: one width of columns, one place scrolled to. */

const WIDTHS = [30, 22, 16, 12, 9, 7];

/** @typedef {{take: import("./take.js").Take, place(left: number): void, invalidate(): void}} Line */

export class Axis {
  constructor() {
    /** @type {Set<Line>} */
    this.lines = new Set();
    this.column = WIDTHS[0];
    this.longest = 0;
    this.room = 0; // the width that is seen
    this.left = 0; // how far it is scrolled
    /** @type {Line | null} */
    this.heard = null; // the one that sounds
    this.follows = true; // whether it goes along with what is new, or heard; not when the reader looks elsewhere
  }

  /** @returns {number} pixels from the first column to the end of the longest take */
  get width() {
    return Math.max(this.longest * this.column, this.room);
  }

  /** @param {Line} line */
  join(line) {
    this.lines.add(line);
    this.fit();
  }

  /** @param {Line} line */
  leave(line) {
    this.lines.delete(line);
    this.fit();
  }

  /** @param {number} room */
  measure(room) {
    if (room === this.room) return;
    this.room = room;
    this.fit();
  }

  /** Choose the widest columns with which all is seen, if there are such, and draw all anew where that changes. */
  fit() {
    let longest = 0;
    for (const { take } of this.lines) longest = Math.max(longest, take.frames);
    const column = WIDTHS.find((width) => longest * width <= this.room) ?? WIDTHS[WIDTHS.length - 1];
    if (column === this.column && longest === this.longest) return;
    this.column = column;
    this.longest = longest;
    for (const line of this.lines) line.invalidate();
  }

  /**
   * @param {number} left
   * @param {Line} by who is there already
   */
  scroll(left, by) {
    if (left === this.left) return;
    this.left = left;
    for (const line of this.lines) if (line !== by) line.place(left);
  }
}
