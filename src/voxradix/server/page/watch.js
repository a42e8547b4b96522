/** Asks the server for its figures and its tree: often while something runs, seldom else, never unseen. */

const OFTEN = 500;
const SELDOM = 4000;

export class Watch {
  /**
   * @param {import("./server.js").Server} server
   * @param {import("./metrics.js").Metrics} metrics
   * @param {import("./tree.js").Tree} tree
   * @param {() => boolean} busy
   */
  constructor(server, metrics, tree, busy) {
    this.server = server;
    this.metrics = metrics;
    this.tree = tree;
    this.busy = busy;
    this.timer = 0;
    this.asking = false;
    this.again = false;
    this.closed = true; // nothing is asked for: the server would refuse it
    document.addEventListener("visibilitychange", () => this.look());
  }

  /** The server may answer: ask, and go on asking. */
  open() {
    this.closed = false;
    this.look();
  }

  /** The server wants a key: ask no more until there is another. */
  close() {
    this.closed = true;
    clearTimeout(this.timer);
    for (const room of [this.metrics, this.tree]) room.say("Shown once the API key is given.");
  }

  /** Ask now, and go on asking. */
  async look() {
    clearTimeout(this.timer);
    if (document.hidden || this.closed) return;
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    await Promise.all([this.one("/v1/stats", this.metrics, "figures"), this.one("/v1/tree", this.tree, "tree")]);
    this.asking = false;
    if (this.closed) return;
    const soon = this.again ? 0 : this.busy() ? OFTEN : SELDOM;
    this.again = false;
    this.timer = setTimeout(() => this.look(), soon);
  }

  /** @type {(path: string, room: {show(answer: any): void, say(words: string): void}, noun: string) => Promise<void>} */
  async one(path, room, noun) {
    try {
      room.show(await this.server.json(path));
    } catch (error) {
      const status = error instanceof Object && "status" in error ? error.status : null;
      if (status === 404) room.say(`This server shows no ${noun}.`);
      else if (status === 401) this.close();
      else room.say(status === 0 ? "The server does not answer." : `The ${noun} cannot be shown.`);
    }
  }
}
