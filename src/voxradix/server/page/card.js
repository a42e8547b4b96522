/** A take on the page: its strip, what it cost, and what can be done with it. */

import { make, many, touch } from "./dom.js";
import { Strip } from "./strip.js";

/**
 * @typedef {object} Calls what a card asks of the page
 * @property {(take: import("./take.js").Take, frame: number) => void} again
 * @property {(take: import("./take.js").Take, seconds: number) => void} play
 * @property {(take: import("./take.js").Take) => void} silence
 * @property {(take: import("./take.js").Take) => void} goOn
 * @property {(take: import("./take.js").Take) => void} forget
 * @property {(take: import("./take.js").Take) => boolean} playing
 */

export class Card {
  /**
   * @param {import("./take.js").Take} take
   * @param {import("./axis.js").Axis} axis
   * @param {Calls} calls
   */
  constructor(take, axis, calls) {
    this.take = take;
    this.calls = calls;
    this.strip = new Strip(take, axis, {
      again: (frame) => calls.again(take, frame),
      play: (frame) => (this.sounds ? calls.silence(take) : calls.play(take, frame / take.frameRate)),
      point: (frame) => this.point(frame),
    });
    const name = `take-${take.number}`;
    this.meta = make("p", { class: "meta" });
    this.told = make("p", { class: "told", "aria-hidden": "true" });
    this.summary = make("p", { class: "cost" });
    this.trouble = make("p", { class: "trouble" });
    this.toggle = this.button("Play", () => (this.sounds ? calls.silence(take) : calls.play(take, 0)));
    this.goOn = this.button("Go on", () => calls.goOn(take), "from");
    this.save = this.button("Download", () => this.download());
    this.forget = this.button("Forget", () => calls.forget(take));
    this.element = make(
      "article",
      { class: "card", id: name, "aria-labelledby": `${name}-title` },
      make(
        "div",
        { class: "line" },
        make("h4", { id: `${name}-title` }, `Take ${take.number}`),
        this.meta,
        make("div", { class: "buttons" }, this.toggle, this.goOn, this.save, this.forget),
      ),
      ...(take.parent && take.text ? [make("p", { class: "more" }, `… ${take.text}`)] : []),
      this.strip.element,
      make("div", { class: "notes" }, this.summary, this.told),
      this.trouble,
    );
    this.refresh = this.refresh.bind(this);
    this.waiting = 0;
    take.watchers.add(() => {
      this.waiting ||= requestAnimationFrame(this.refresh);
    });
    this.refresh();
  }

  /** Leave the page. */
  remove() {
    cancelAnimationFrame(this.waiting);
    this.strip.remove();
    this.element.remove();
  }

  /** @returns {boolean} whether it is heard */
  get sounds() {
    return this.calls.playing(this.take);
  }

  /** Say anew what has changed. */
  refresh() {
    this.waiting = 0;
    const { take } = this;
    const told = [
      take.seed === null ? "" : `seed ${take.seed}`,
      `${take.seconds.toFixed(2)} s`,
      take.parent ? this.origin : "",
    ];
    text(this.meta, told.filter(Boolean).join(" · "));
    text(this.summary, `${take.counts}. ${take.cost}${take.cost ? "." : ""}`);
    this.name(this.toggle, this.sounds ? "Stop" : "Play");
    able(this.toggle, this.sounds || !!take.sound?.length);
    able(this.save, !!take.sound?.length);
    able(this.goOn, take.known);
    able(this.forget, take.state !== "speaking");
    text(this.trouble, this.remark);
    this.element.dataset.state = take.state;
  }

  /** @returns {string} where it comes from */
  get origin() {
    const { parent, cut } = this.take;
    if (!parent) return "";
    const from = parent.forgotten ? "from a forgotten take" : `from take ${parent.number}`;
    return cut === null ? `goes on ${from}` : `${from} at ${(cut / parent.frameRate).toFixed(2)} s`;
  }

  /** @returns {string} what did not go as usual; "" when all did */
  get remark() {
    const { state, trouble, about, id } = this.take;
    if (state === "stopped") return "Stopped; the server has not kept it, so it cannot be gone on from.";
    if (state === "failed") return `${trouble} What had come by then is here.`;
    if (state === "done" && !id) return "The server has forgotten this take; what is here can still be heard.";
    const remarks = [];
    if (about?.finish === "length") remarks.push("It ended because its frames were spent.");
    if (about?.unsaid?.length) remarks.push(`Not said: “${about.unsaid.join(" ")}”.`);
    if (about?.unknown?.length) remarks.push(`The voice does not know ${about.unknown.join(", ")} and spells it.`);
    return remarks.join(" ");
  }

  /** @param {number | null} frame */
  point(frame) {
    const { take } = this;
    if (frame === null) text(this.told, "");
    else {
      const act = take.known ? ` · ${touch() ? "tap" : "click or Enter"}: again from here` : "";
      text(this.told, this.strip.words(frame) + act);
    }
  }

  download() {
    const { sound, number } = this.take;
    if (!sound) return;
    const url = URL.createObjectURL(sound.wav());
    make("a", { href: url, download: `take-${number}.wav` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  /** @type {(word: string, act: () => void, link?: string) => HTMLElement} */
  button(word, act, link = "") {
    const button = make("button", {
      type: "button",
      click: () => button.getAttribute("aria-disabled") !== "true" && act(),
    });
    button.append(make("span", {}), make("span", { class: "hidden" }, ` ${link} take ${this.take.number}`));
    this.name(button, word);
    return button;
  }

  /** @type {(button: HTMLElement, word: string) => void} */
  name(button, word) {
    text(/** @type {HTMLElement} */ (button.firstChild), word);
  }

  /** @returns {string} for the live region */
  get spoken() {
    const { take } = this;
    const length = `${take.seconds.toFixed(2)} s long, ${many(take.frames, "frame")}`;
    return `Take ${take.number} is ${length}: ${take.counts}. ${this.remark}`.trim();
  }
}

/** @type {(element: HTMLElement, words: string) => void} */
function text(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

/** A button that cannot be used stays where focus finds it. @type {(button: HTMLElement, can: boolean) => void} */
function able(button, can) {
  button.setAttribute("aria-disabled", String(!can));
}
