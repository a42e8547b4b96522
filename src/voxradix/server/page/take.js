/** A take as the page knows it: its frames and how each came, its sound, and what the server says about it. */

import { many } from "./dom.js";
import { Sound } from "./sound.js";

/** How a frame came: its row was found in the cache; kept and read anew; generated; generated, lost and computed anew. */
export const FOUND = 0;
export const KEPT = 1;
export const MADE = 2;
export const RECOMPUTED = 3;

export const WORDS = ["found in the cache", "kept, read anew", "generated", "retracted and recomputed"];
const SHORT = ["found", "kept", "generated", "recomputed"];

export class Take {
  /** @type {number} */
  frameRate = 12.5;

  /**
   * @param {number} number its name on the page
   * @param {string} text what it is asked to say; "" when it says the rest of its parent's text
   * @param {Take | null} parent the take it goes on from
   * @param {number | null} cut the frame it branches at; null at the end
   */
  constructor(number, text, parent, cut) {
    this.number = number;
    this.text = text;
    this.parent = parent;
    this.cut = cut;
    if (parent) this.frameRate = parent.frameRate;
    /** @type {"waiting" | "speaking" | "done" | "stopped" | "failed"} */
    this.state = "waiting";
    this.id = "";
    /** @type {bigint | null} */
    this.seed = null;
    /** @type {number | null} */
    this.heard = null; // the second it was last heard at
    this.forgotten = false; // by the reader
    /** @type {number[][]} */
    this.codes = [];
    /** @type {number[]} */
    this.how = [];
    /** @type {Sound | null} */
    this.sound = null;
    this.found = 0; // kept frames whose rows were in the cache
    this.reused = 0; // rows before the first new frame that were in the cache
    this.before = 0; // rows before the first new frame
    /** @type {number | null} */
    this.firstFrameMs = null;
    /** @type {any} */
    this.about = null;
    this.trouble = "";
    /** @type {Set<() => void>} */
    this.watchers = new Set();
  }

  /** @returns {number} */
  get frames() {
    return this.codes.length;
  }

  /** @returns {number} */
  get seconds() {
    return this.frames / this.frameRate;
  }

  /** @returns {boolean} whether the server may still know it */
  get known() {
    return this.state === "done" && !!this.id;
  }

  /** @returns {boolean} whether there is text left that it has not said */
  get unsaid() {
    return !!this.about?.unsaid?.length || this.about?.pieces?.at(-1)?.end === "open";
  }

  /** @returns {string} "6 found, 12 generated" */
  get counts() {
    const sums = [0, 0, 0, 0];
    for (const how of this.how) sums[how] += 1;
    const told = sums.map((sum, how) => (sum ? `${sum} ${SHORT[how]}` : "")).filter(Boolean);
    return told.join(", ") || "no frames";
  }

  /** @returns {string} what it cost, in words; "" before that is known */
  get cost() {
    if (!this.before) return "";
    const wait = this.firstFrameMs === null ? "" : `, which came after ${Math.round(this.firstFrameMs)} ms`;
    return `${this.reused} of ${many(this.before, "row")} before its first new frame reused${wait}`;
  }

  /** @param {any} event one of the server's, for this take */
  apply(event) {
    if (event.type === "voxradix.begin") this.begin(event);
    else if (event.type === "voxradix.frames") this.arrive(event);
    else if (event.type === "voxradix.take") this.about = event.take;
    else if (event.type === "speech.audio.done") {
      this.id = event.take || this.id;
      this.state = "done";
    }
    this.changed();
  }

  /** @param {any} event */
  begin(event) {
    this.state = "speaking";
    this.id = event.take;
    this.seed = BigInt(event.seed);
    this.frameRate = event.frame_rate;
    this.firstFrameMs = event.first_frame_ms;
    this.before = event.prompt_rows;
    this.reused = event.reused_prompt_rows + event.reused_generated_rows;
    this.found = Math.max(0, event.kept_frames - (this.before - this.reused));
    this.sound = new Sound(event.sample_rate, event.channels);
  }

  /** @param {any} event */
  arrive(event) {
    for (let i = 0; i < event.count; i++) {
      const frame = event.first + i;
      if (event.codes) this.codes[frame] = event.codes[i];
      if (event.how === "kept") this.how[frame] = frame < this.found ? FOUND : KEPT;
      else this.how[frame] = event.how === "made" ? MADE : RECOMPUTED;
    }
  }

  /**
   * It ends before its time.
   *
   * @param {"stopped" | "failed"} state
   * @param {string} trouble
   */
  leave(state, trouble) {
    if (this.state === "done") return;
    this.state = state;
    this.trouble = trouble;
    this.changed();
  }

  changed() {
    for (const watcher of this.watchers) watcher();
  }
}
