/** The form: what to say, after which take, and how. */

import { byId } from "./dom.js";

/** The options that go into a request as they are, by the id of their field. */
const NUMBERS = { seed: "seed", temperature: "temperature", frames: "max_frames", takes: "n" };
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
    /** @type {import("./take.js").Take | null} the take to go on from */
    this.after = null;
    this.form.addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      onSend();
    });
    this.stop.addEventListener("click", () => this.stop.getAttribute("aria-disabled") !== "true" && onStop());
    this.anew.addEventListener("click", () => {
      this.goOn(null);
      this.text.focus();
    });
    this.text.addEventListener("input", () => this.fit());
    this.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.form.requestSubmit();
    });
    new ResizeObserver(() => this.fit()).observe(this.form);
  }

  /** @returns {string} */
  get words() {
    return this.text.value.trim();
  }

  /** @returns {string} */
  get key() {
    return byId("key").value.trim();
  }

  /** @returns {number | null} the seed that is asked for */
  get seed() {
    return byId("seed").value === "" ? null : Number(byId("seed").value);
  }

  /** @returns {HTMLInputElement | null} the first field whose value cannot be */
  get wrong() {
    return this.form.querySelector("input:invalid");
  }

  /**
   * @param {boolean} all whether a new text is spoken: then the number of takes counts, and the seed
   * @returns {Record<string, unknown>} the options that were given
   */
  options(all) {
    /** @type {Record<string, unknown>} */
    const options = {};
    for (const [id, name] of Object.entries(NUMBERS)) {
      const { value } = byId(id);
      if (value !== "" && (all || (id !== "seed" && id !== "takes"))) options[name] = Number(value);
    }
    for (const [id, name] of Object.entries(WORDS)) if (byId(id).value) options[name] = byId(id).value;
    return options;
  }

  /** @param {any} voice what the server says about it */
  know(voice) {
    const about = voice.trained_for ? `The voice “${voice.id}” speaks ${voice.trained_for}.` : "";
    byId("knows").textContent = about;
    this.text.placeholder = voice.id === "numbers" ? "four eight one five" : "What shall it say?";
    if (voice.max_input_chars) this.text.maxLength = voice.max_input_chars;
    for (const id of Object.keys(WORDS)) byId(id).parentElement.hidden = !voice.accepts?.[id];
  }

  /** @param {import("./take.js").Take | null} take what comes next goes on from it; null: it stands alone */
  goOn(take) {
    this.after = take;
    byId("text-label").textContent = take ? `Go on from take ${take.number} with` : "Say";
    this.anew.hidden = !take;
    if (take) {
      this.text.value = "";
      this.text.focus();
      this.text.scrollIntoView({ block: "center" });
      this.fit();
    }
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
