/** The form: what to say, after which take, and how. */

import { byId, many, touch } from "./dom.js";
import { LEAST_SEED, MOST_SEED } from "./exact.js";

/** The options that go into a request as they are, by the id of their field. */
const NUMBERS = { temperature: "temperature", frames: "max_frames", takes: "n" };
const IN_SIGHT = 0.8; // of the buttons' room, for them to stay there
const WORDS = { language: "language", instructions: "instructions" };

export class Composer {
  /**
   * @param {() => void} onSend
   * @param {() => void} onStop
   */
  constructor(onSend, onStop) {
    this.form = byId("composer");
    this.text = /** @type {HTMLTextAreaElement} */ (byId("text"));
    this.stop = byId("stop");
    this.anew = byId("anew");
    this.dock = byId("dock");
    this.placeholder = "";
    this.draft = ""; // what was written before a take was to go on
    this.busy = false;
    this.away = false; // whether the buttons are out of sight
    /** @type {import("./take.js").Take | null} the take to go on from */
    this.after = null;
    this.form.addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      onSend();
    });
    this.stop.addEventListener("click", () => this.stop.getAttribute("aria-disabled") !== "true" && onStop());
    this.anew.addEventListener("click", () => this.alone());
    for (const id of ["seed", "takes"]) byId(id).addEventListener("input", () => this.check());
    this.text.addEventListener("input", () => this.fit());
    this.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.form.requestSubmit();
    });
    new ResizeObserver(() => this.fit()).observe(this.form);
    const watch = (/** @type {IntersectionObserverEntry[]} */ entries) => {
      this.away = entries[entries.length - 1].intersectionRatio < IN_SIGHT;
      this.float();
    };
    new IntersectionObserver(watch, { threshold: [0, IN_SIGHT, 1] }).observe(this.dock);
  }

  /** @returns {string} */
  get words() {
    return this.text.value.trim();
  }

  /** @returns {string} */
  get key() {
    return byId("key").value.trim();
  }

  /** @returns {bigint | null} the seed that is asked for; read from the text, as a number would round it */
  get seed() {
    const text = byId("seed").value.trim().replace(/^[−–]/, "-").replace(/^\+/, "");
    return /^-?\d+$/.test(text) ? BigInt(text) : null;
  }

  /** @returns {number} how many takes are asked for */
  get takes() {
    return Number(byId("takes").value || 1);
  }

  /** Mark a seed that cannot be. */
  check() {
    const { seed, takes } = this;
    const field = byId("seed");
    let words = "";
    if (seed === null) words = field.value.trim() && "It must be a whole number, or nothing for the next unused.";
    else if (seed < LEAST_SEED || seed > MOST_SEED) words = `It must be from ${LEAST_SEED} to ${MOST_SEED}.`;
    else if (takes > 1 && seed + BigInt(Math.trunc(takes)) - 1n > MOST_SEED) {
      words = `It is too large for ${many(takes, "take")}, whose seeds go on from it to ${MOST_SEED} at most.`;
    }
    field.setCustomValidity(words);
  }

  /** @returns {HTMLInputElement | null} the first field whose value cannot be */
  get wrong() {
    this.check();
    return this.form.querySelector("input:invalid");
  }

  /** @returns {Record<string, unknown>} the options that were given */
  get options() {
    /** @type {Record<string, unknown>} */
    const options = {};
    for (const [id, name] of Object.entries(NUMBERS)) {
      const { value } = byId(id);
      if (value !== "") options[name] = Number(value);
    }
    if (this.seed !== null) options.seed = this.seed;
    for (const [id, name] of Object.entries(WORDS)) if (byId(id).value) options[name] = byId(id).value;
    return options;
  }

  /** @param {any} voice what the server says about it */
  know(voice) {
    const about = voice.trained_for ? `The voice “${voice.id}” speaks ${voice.trained_for}.` : "";
    byId("knows").textContent = about;
    this.placeholder = voice.id === "numbers" ? "such as: four eight one five" : "What shall it say?";
    this.hint();
    if (voice.max_input_chars) this.text.maxLength = voice.max_input_chars;
    for (const id of Object.keys(WORDS)) byId(id).parentElement.hidden = !voice.accepts?.[id];
  }

  /** @param {import("./take.js").Take | null} take what comes next goes on from it; null: it stands alone */
  goOn(take) {
    if (take && !this.after) this.draft = this.text.value;
    this.after = take;
    this.hint();
    byId("text-label").textContent = take ? `Go on from take ${take.number} with` : "Say";
    this.anew.hidden = !take;
    if (take) {
      this.text.value = "";
      this.text.focus();
      this.text.scrollIntoView({ block: "center" });
      this.fit();
    }
  }

  /** The next text stands alone after all; what was written before comes back. */
  alone() {
    this.goOn(null);
    this.text.value ||= this.draft;
    this.fit();
    this.text.focus();
  }

  /** Say in the empty box what goes there. */
  hint() {
    const { after } = this;
    if (!after) this.text.placeholder = this.placeholder;
    else this.text.placeholder = after.unsaid ? "what comes next; nothing: the rest of its text" : "what comes next";
  }

  /** @returns {string} what to do when nothing is written */
  get missing() {
    const { after } = this;
    if (!after) return "There is nothing to say yet; write a line first.";
    const leave = touch() ? `tap “${this.anew.textContent}”` : "press Escape";
    return `Write what take ${after.number} is to go on with, or ${leave} to begin a new text.`;
  }

  /** What it held is being spoken after a take: the next text stands alone. */
  clear() {
    this.goOn(null);
    this.text.value = "";
    this.fit();
  }

  /** @param {boolean} can whether there is something to stop */
  stoppable(can) {
    this.stop.setAttribute("aria-disabled", String(!can));
    this.busy = can;
    this.float();
  }

  /** While there is something to stop, keep the button in sight. */
  float() {
    const afloat = this.busy && this.away;
    const { dock } = this;
    if (afloat && !dock.style.minHeight) dock.style.minHeight = `${dock.offsetHeight}px`;
    else if (!afloat) dock.style.minHeight = "";
    dock.firstElementChild.classList.toggle("afloat", afloat);
  }

  /** The server wants a key. */
  askKey() {
    byId("options").open = true;
    byId("key").focus();
  }

  /** Let the text box be as high as its text. */
  fit() {
    this.text.classList.toggle("long", this.text.value.length > 72);
    this.text.style.height = "auto";
    this.text.style.height = `${this.text.scrollHeight}px`;
  }
}
