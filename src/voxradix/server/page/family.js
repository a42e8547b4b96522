/** The takes of one text, one under the other on one time axis, each branch below what it branches from. */

import { Axis } from "./axis.js";
import { Card } from "./card.js";
import { make, many } from "./dom.js";
import { MOST_SEED } from "./exact.js";

let families = 0;

export class Family {
  /**
   * @param {string} text
   * @param {import("./card.js").Calls} calls
   */
  constructor(text, calls) {
    this.text = text;
    this.calls = calls;
    this.axis = new Axis();
    /** @type {Card[]} in the order they stand */
    this.cards = [];
    /** @type {Set<bigint>} those its takes have had, and those promised */
    this.seeds = new Set();
    const name = `family-${(families += 1)}`;
    this.count = make("p", { class: "meta" });
    this.element = make(
      "section",
      { class: "family", "aria-labelledby": name },
      make("div", { class: "line" }, make("h3", { id: name }, `“${text}”`), this.count),
    );
  }

  /**
   * @param {number} takes
   * @returns {bigint} a seed that, as those after it, none of its takes has had or been promised
   */
  freshSeed(takes) {
    let seed = 0n;
    for (const each of this.seeds) if (each >= seed) seed = each + 1n;
    if (seed + BigInt(takes) - 1n > MOST_SEED) {
      for (seed = 0n; this.any(seed, takes); ) seed += 1n;
    }
    this.promise(seed, takes);
    return seed;
  }

  /** @type {(from: bigint, count: number) => boolean} whether one of so many seeds is had */
  any(from, count) {
    return Array.from({ length: count }, (_, i) => from + BigInt(i)).some((seed) => this.seeds.has(seed));
  }

  /**
   * Takes with these seeds are to come.
   *
   * @param {bigint} seed
   * @param {number} takes
   */
  promise(seed, takes) {
    for (let i = 0; i < takes; i++) this.seeds.add(seed + BigInt(i));
  }

  /**
   * @param {import("./take.js").Take} take
   * @returns {Card}
   */
  add(take) {
    const card = new Card(take, this.axis, this.calls);
    const at = take.parent ? this.after(take.parent) : this.cards.length;
    const before = this.cards[at];
    this.cards.splice(at, 0, card);
    this.element.insertBefore(card.element, before ? before.element : null);
    this.mark();
    return card;
  }

  /** @param {import("./take.js").Take} take */
  remove(take) {
    const card = this.of(take);
    if (!card) return;
    card.remove();
    this.cards.splice(this.cards.indexOf(card), 1);
    this.mark();
    for (const each of this.cards) if (each.take.parent === take) each.refresh();
  }

  /**
   * @param {import("./take.js").Take} take
   * @returns {Card | undefined}
   */
  of(take) {
    return this.cards.find((card) => card.take === take);
  }

  /** @type {(take: import("./take.js").Take) => number} the place below a take and all that comes from it */
  after(take) {
    let last = this.cards.findIndex((card) => card.take === take);
    this.cards.forEach((card, i) => {
      for (let each = card.take.parent; each; each = each.parent) if (each === take) last = Math.max(last, i);
    });
    return last + 1;
  }

  /** Say how many there are, and where each has branches. */
  mark() {
    this.count.textContent = many(this.cards.length, "take");
    for (const { take, strip } of this.cards) {
      const branches = this.cards.filter((card) => card.take.parent === take);
      strip.marks = branches.map((card) => card.take.cut ?? take.frames);
      strip.invalidate();
    }
  }
}
