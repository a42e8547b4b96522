/** One request for speech and the takes it makes. */

import { ServerError } from "./server.js";

export class Run {
  /**
   * @param {import("./server.js").Server} server
   * @param {import("./player.js").Player} player
   * @param {Record<string, unknown>} request
   * @param {() => import("./take.js").Take} newTake called when the server begins one
   */
  constructor(server, player, request, newTake) {
    this.server = server;
    this.player = player;
    this.request = request;
    this.newTake = newTake;
    this.stopping = new AbortController();
    /** @type {import("./take.js").Take[]} by the server's index */
    this.takes = [];
    /** @type {import("./player.js").Playback | null} */
    this.playback = null;
    this.told = ""; // what the server said went wrong
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
      if (!trouble && (!this.takes.length || this.takes.some((take) => take?.state === "speaking"))) {
        trouble = "The server broke off in the middle.";
      }
    } catch (error) {
      if (!this.stopping.signal.aborted) {
        if (error instanceof ServerError && !this.takes.length) throw error;
        trouble = error instanceof Error ? error.message : String(error);
      }
    }
    const state = this.stopping.signal.aborted ? "stopped" : "failed";
    for (const take of this.takes) take?.leave(state, trouble);
    this.playback?.finish();
    return trouble;
  }

  /** End it; the server drops what it was making. */
  stop() {
    this.stopping.abort();
    this.playback?.stop();
  }

  /** @param {any} event */
  hear(event) {
    const index = event.index ?? 0;
    if (event.type === "voxradix.begin") {
      const take = (this.takes[index] = this.newTake());
      take.apply(event);
      if (index === 0) this.playback = this.player.begin(take, 0);
      return;
    }
    const take = this.takes[index];
    if (event.type === "error") {
      const message = String(event.error?.message ?? "The server failed in the middle.");
      this.told = message;
      take?.leave("failed", message);
    } else if (take && event.type === "speech.audio.delta") {
      const piece = take.sound?.push(event.audio);
      if (piece && index === 0) this.playback?.push(piece);
    } else if (take) {
      take.apply(event);
      if (index === 0 && event.type === "speech.audio.done") this.playback?.finish();
    }
  }
}
