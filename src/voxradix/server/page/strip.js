/** The strip of a take: a column for each frame, a cell for each code; a slider whose place is where to branch. */

import { calm, make } from "./dom.js";
import { offPalette, onPalette } from "./palette.js";
import { paint, heightFor } from "./brush.js";
import { WORDS } from "./take.js";

const FRESH = 260; // milliseconds in which a new column fades in
const MOST_FRESH = 64; // columns that fade in at once
const EDGE = 24; // pixels from the side at which the page is turned, and where the next begins

export class Strip {
  /**
   * @param {import("./take.js").Take} take
   * @param {import("./axis.js").Axis} axis
   * @param {{again(frame: number): void, play(frame: number): void, point(frame: number | null): void}} calls
   */
  constructor(take, axis, calls) {
    this.take = take;
    this.axis = axis;
    this.calls = calls;
    this.cursor = 0;
    /** @type {number | null} */
    this.hover = null;
    /** @type {number | null} seconds, while it is heard */
    this.head = null;
    /** @type {number[]} frames where other takes branch off */
    this.marks = [];
    /** @type {number[]} when the newest columns came */
    this.born = [];
    this.seen = 0;
    this.drawn = 0;
    this.placed = 0; // where it was scrolled to, not by the reader
    this.drawing = 0;
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas", { "aria-hidden": "true" }));
    this.needle = make("div", { class: "needle", hidden: true });
    this.run = make("div", { class: "run" }, this.canvas, this.needle);
    this.element = make(
      "div",
      {
        class: "strip",
        role: "slider",
        tabindex: "0",
        "aria-label": `Frames of take ${take.number}`,
        "aria-describedby": "keys-help",
        "aria-orientation": "horizontal",
        "aria-valuemin": "1",
        keydown: (event) => this.onKey(event),
        click: (event) => this.onClick(event),
        pointermove: (event) => this.onPoint(this.frameAt(event)),
        pointerleave: () => this.onPoint(null),
        focus: () => this.told(),
        blur: () => this.told(),
        scroll: () => this.onScroll(),
      },
      this.run,
    );
    this.invalidate = this.invalidate.bind(this);
    this.sizes = new ResizeObserver(() => {
      axis.measure(this.element.clientWidth);
      this.invalidate();
    });
    this.sizes.observe(this.element);
    take.watchers.add(this.invalidate);
    onPalette(this.invalidate);
    axis.follows = true;
    axis.join(this);
  }

  /** Leave the page. */
  remove() {
    this.sizes.disconnect();
    this.take.watchers.delete(this.invalidate);
    offPalette(this.invalidate);
    if (this.axis.heard === this) this.axis.heard = null;
    this.axis.leave(this);
    cancelAnimationFrame(this.drawing);
  }

  /** Draw anew with the screen's next image; however often it is asked for, once. */
  invalidate() {
    if (!this.drawing) this.drawing = requestAnimationFrame((now) => this.render(now));
  }

  /** @param {number | null} seconds where it is heard; null when it is not */
  hear(seconds) {
    const { axis } = this;
    if (this.head === null && seconds !== null) {
      axis.heard = this;
      axis.follows = true;
    } else if (seconds === null && axis.heard === this) axis.heard = null;
    this.head = seconds;
    this.needle.hidden = seconds === null;
    if (seconds === null) return;
    const x = seconds * this.take.frameRate * axis.column;
    this.needle.style.transform = `translateX(${x.toFixed(1)}px)`;
    if (!axis.follows) return;
    const left = this.element.scrollLeft;
    if (x < left || x > left + this.element.clientWidth - EDGE) this.scroll(Math.max(0, x - EDGE));
  }

  /** @param {number} left */
  place(left) {
    this.run.style.width = `${this.axis.width}px`;
    this.scroll(left);
    this.invalidate();
  }

  /** @param {number} left */
  scroll(left) {
    this.element.scrollLeft = left;
    this.placed = this.element.scrollLeft;
  }

  /** @param {number} now */
  render(now) {
    this.drawing = 0;
    const { take, axis, element } = this;
    const fading = this.age(now);
    axis.fit();
    element.setAttribute("aria-valuemax", String(Math.max(take.frames, 1)));
    this.value();
    const room = element.clientWidth;
    this.run.style.width = `${axis.width}px`;
    this.run.dataset.column = String(axis.column);
    if (axis.follows && !axis.heard && take.frames > this.drawn) this.scroll(this.newest);
    this.drawn = take.frames;
    const height = heightFor(take.codes[0]?.length ?? 12);
    const scale = devicePixelRatio || 1;
    const { canvas } = this;
    if (canvas.width !== Math.round(room * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(room * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.width = `${room}px`;
      canvas.style.height = `${height}px`;
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    paint(pen, {
      take,
      column: axis.column,
      left: element.scrollLeft,
      width: room,
      span: axis.width,
      height,
      cut: this.shown,
      marks: this.marks,
      alpha: (frame) => (frame in this.born ? Math.min(1, (now - this.born[frame]) / FRESH) : 1),
    });
    if (fading) this.invalidate();
  }

  /** @type {(now: number) => boolean} whether columns are still fading in */
  age(now) {
    if (calm()) return false;
    this.seen = Math.max(this.seen, this.take.frames - MOST_FRESH);
    for (; this.seen < this.take.frames; this.seen++) this.born[this.seen] = now;
    for (const frame in this.born) if (now - this.born[frame] > FRESH) delete this.born[frame];
    return Object.keys(this.born).length > 0;
  }

  /** @returns {number} the scrolled place at which the newest frame is seen */
  get newest() {
    return Math.max(0, this.take.frames * this.axis.column - this.element.clientWidth);
  }

  /** @returns {number | null} the frame pointed at, by mouse or by key */
  get shown() {
    if (this.hover !== null) return this.hover;
    return this.take.frames && this.element.matches(":focus-visible") ? this.cursor : null;
  }

  /** @type {(frame: number) => string} */
  words(frame) {
    const { take } = this;
    const seconds = (frame / take.frameRate).toFixed(2);
    return `${seconds} s, frame ${frame + 1} of ${take.frames}, ${WORDS[take.how[frame]]}`;
  }

  /** Say where the slider stands. */
  value() {
    const { take, element } = this;
    this.cursor = Math.min(this.cursor, Math.max(take.frames - 1, 0));
    element.setAttribute("aria-valuenow", String(this.cursor + 1));
    element.setAttribute("aria-valuetext", take.frames ? this.words(this.cursor) : "no frames yet");
    element.setAttribute("aria-disabled", String(!take.known));
  }

  told() {
    this.calls.point(this.shown);
    this.invalidate();
  }

  /** @param {number | null} frame */
  onPoint(frame) {
    if (frame === this.hover) return;
    this.hover = frame;
    this.told();
  }

  /** @type {(event: MouseEvent) => number | null} */
  frameAt(event) {
    const { left } = this.element.getBoundingClientRect();
    const x = event.clientX - left - this.element.clientLeft + this.element.scrollLeft;
    const frame = Math.floor(x / this.axis.column);
    return frame >= 0 && frame < this.take.frames ? frame : null;
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const frame = this.frameAt(event);
    if (frame === null) return;
    this.cursor = frame;
    this.value();
    this.calls.again(frame);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !this.take.frames) return;
    const second = Math.max(1, Math.round(this.take.frameRate));
    const stride = event.shiftKey ? second : 1;
    const last = this.take.frames - 1;
    /** @type {Record<string, number>} */
    const places = {
      ArrowRight: this.cursor + stride,
      ArrowUp: this.cursor + stride,
      ArrowLeft: this.cursor - stride,
      ArrowDown: this.cursor - stride,
      PageUp: this.cursor + second,
      PageDown: this.cursor - second,
      Home: 0,
      End: last,
    };
    if (event.key in places) this.move(Math.min(Math.max(places[event.key], 0), last));
    else if (event.key === "Enter") this.calls.again(this.cursor);
    else if (event.key === " ") this.calls.play(this.cursor);
    else return;
    event.preventDefault();
  }

  /** @param {number} frame */
  move(frame) {
    this.cursor = frame;
    this.hover = null;
    this.value();
    const x = frame * this.axis.column;
    const { scrollLeft, clientWidth } = this.element;
    this.axis.follows = false;
    if (x < scrollLeft) this.scroll(Math.max(0, x - clientWidth / 3));
    else if (x + this.axis.column > scrollLeft + clientWidth) this.scroll(x - (2 * clientWidth) / 3);
    this.told();
  }

  onScroll() {
    const left = this.element.scrollLeft;
    if (Math.abs(left - this.placed) > 1) {
      const newest = this.take.state === "speaking" && left > this.newest - 3 * this.axis.column;
      this.axis.follows = newest && !this.axis.heard;
      this.placed = left;
    }
    this.axis.scroll(left, this);
    this.invalidate();
  }
}
