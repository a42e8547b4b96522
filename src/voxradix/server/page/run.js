/** One request for speech and the takes it makes. */

import { sentence, ServerError } from "./server.js";

export class Run {
  /**
   * @param {import("./server.js").Server} server
   * @param {import("./player.js").Player} player
   * @param {Record<string, unknown>} request
   * @param {(index: number) => import("./take.js").Take} newTake called when the server begins one
   * @param {() => void} onTurn called when one has begun, or has ended
   */
  constructor(server, player, request, newTake, onTurn) {
    this.server = server;
    this.player = player;
    this.request = request;
    this.newTake = newTake;
    this.onTurn = onTurn;
    this.stopping = new AbortController();
    /** @type {import("./take.js").Take[]} by the server's index */
    this.takes = [];
    this.asked = Number(request.n ?? 1); // for how many
    this.told = ""; // what the server said went wrong
  }

  /** @returns {import("./take.js").Take[]} those that have begun, in their order */
  get begun() {
    return this.takes.filter(Boolean);
  }

  /** @returns {number} how many are still to be made, or being made */
  get left() {
    return this.asked - this.begun.filter((take) => take.state !== "speaking").length;
  }

  /**
   * Speak to the end.
   *
   * @returns {Promise<string>} what went wrong, in words; "" when nothing did
   */
  async go() {
    let trouble = "";
    try {
      await this.server.speak(this.request, this.stopping.signal, (event) => this.hear(event));
      trouble = this.told;
      if (!trouble && (!this.begun.length || this.begun.some((take) => take.state === "speaking"))) {
        trouble = "The server broke off in the middle.";
      }
    } catch (error) {
      if (!this.stopping.signal.aborted) {
        if (error instanceof ServerError && !this.begun.length) throw error;
        trouble = error instanceof Error ? error.message : String(error);
      }
    }
    const state = this.stopping.signal.aborted ? "stopped" : "failed";
    for (const take of this.begun) {
      take.leave(state, trouble);
      this.player.finish(take);
    }
    return trouble;
  }

  /** End it; the server drops what it was making. */
  stop() {
    if (this.left) this.stopping.abort();
  }

  /** @param {any} event */
  hear(event) {
    const index = event.index ?? 0;
    if (event.type === "voxradix.begin") {
      const take = (this.takes[index] = this.newTake(index));
      take.apply(event);
      if (index === 0) this.player.begin(take, 0);
      this.onTurn();
      return;
    }
    const take = this.takes[index];
    if (event.type === "error") {
      const message = sentence(String(event.error?.message ?? "The server failed in the middle."));
      this.told = message;
      take?.leave("failed", message);
      this.onTurn();
    } else if (take && event.type === "speech.audio.delta") {
      const piece = take.sound?.push(event.audio);
      if (piece) this.player.push(take, piece);
    } else if (take) {
      take.apply(event);
      if (event.type !== "speech.audio.done") return;
      this.player.finish(take);
      this.onTurn();
    }
  }
}
