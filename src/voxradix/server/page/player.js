/** Plays samples as they come, one piece after the other without a gap. One playback at a time. */

const LEAD = 0.12; // seconds between the first piece's coming and its sounding

export class Player {
  /** @param {(take: import("./take.js").Take, seconds: number | null) => void} onHeard where a take is heard; null: no more */
  constructor(onHeard) {
    this.onHeard = onHeard;
    this.rate = 0;
    /** @type {AudioContext | null} */
    this.context = null;
    /** @type {Playback | null} */
    this.current = null;
    /** @type {import("./take.js").Take | null} */
    this.take = null;
  }

  /**
   * Make the way free for sound; called in a click or a key press, as browsers ask.
   *
   * @param {number} rate samples a second
   * @returns {AudioContext}
   */
  unlock(rate) {
    if (!this.context || this.rate !== rate) {
      this.rate = rate;
      this.context?.close();
      this.context = contextOf(rate);
    }
    if (this.context.state === "suspended") this.context.resume().catch(() => {});
    return this.context;
  }

  /**
   * Begin to play a take in place of what is playing.
   *
   * @param {import("./take.js").Take} take with a sound
   * @param {number} from seconds of it that lie before the first piece
   * @returns {Playback}
   */
  begin(take, from) {
    this.stop();
    const { rate, channels } = /** @type {import("./sound.js").Sound} */ (take.sound);
    const playback = new Playback(this.unlock(rate), rate, channels, from, () => {
      if (this.current !== playback) return;
      this.current = this.take = null;
      this.onHeard(take, null);
    });
    this.current = playback;
    this.take = take;
    this.follow(playback);
    return playback;
  }

  /**
   * Sound of a take has come: if it is the one that is heard, it goes on.
   *
   * @param {import("./take.js").Take} take
   * @param {Int16Array} samples
   */
  push(take, samples) {
    if (this.take === take) this.current?.push(samples);
  }

  /** No more of a take will come. @param {import("./take.js").Take} take */
  finish(take) {
    if (this.take === take) this.current?.finish();
  }

  /**
   * Play what was received of a take, and what is still coming.
   *
   * @param {import("./take.js").Take} take
   * @param {number} from seconds
   */
  play(take, from = 0) {
    if (!take.sound) return;
    const playback = this.begin(take, Math.min(from, take.sound.seconds));
    playback.push(take.sound.from(from));
    if (take.state !== "speaking") playback.finish();
  }

  /** Fall silent. */
  stop() {
    this.current?.stop();
  }

  /** @param {Playback} playback */
  follow(playback) {
    if (this.current !== playback || !this.take) return;
    this.onHeard(this.take, playback.position);
    requestAnimationFrame(() => this.follow(playback));
  }
}

export class Playback {
  /**
   * @param {AudioContext} context
   * @param {number} rate
   * @param {number} channels
   * @param {number} from
   * @param {() => void} onEnd
   */
  constructor(context, rate, channels, from, onEnd) {
    this.context = context;
    this.rate = rate;
    this.channels = channels;
    this.onEnd = onEnd;
    this.heard = from; // seconds of the take scheduled so far
    this.next = 0; // when the next piece sounds, on the context's clock
    /** @type {{at: number, from: number, seconds: number}[]} */
    this.spans = [];
    /** @type {Set<AudioBufferSourceNode>} */
    this.sources = new Set();
    this.complete = false;
    this.over = false;
  }

  /** @param {Int16Array} samples interleaved */
  push(samples) {
    const length = samples.length / this.channels;
    if (this.over || !length) return;
    const { rate } = this;
    const buffer = this.context.createBuffer(this.channels, length, rate);
    for (let channel = 0; channel < this.channels; channel++) {
      const out = buffer.getChannelData(channel);
      for (let i = 0; i < length; i++) out[i] = samples[i * this.channels + channel] / 32768;
    }
    const now = this.context.currentTime;
    if (this.next < now + 0.01) this.next = now + LEAD; // the first piece, or the sound ran dry
    const at = Math.round(this.next * rate) / rate; // on a sample, so that pieces meet
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    source.onended = () => this.ended(source);
    source.start(at);
    this.sources.add(source);
    this.spans.push({ at, from: this.heard, seconds: length / rate });
    this.next = at + length / rate;
    this.heard += length / rate;
  }

  /** No more pieces will come. */
  finish() {
    this.complete = true;
    if (!this.sources.size) this.end();
  }

  /** Fall silent now. */
  stop() {
    for (const source of this.sources) {
      source.onended = null;
      source.stop();
    }
    this.sources.clear();
    this.end();
  }

  /** @returns {number} the second of the take that is heard now */
  get position() {
    const now = this.context.currentTime - (this.context.outputLatency || 0);
    while (this.spans.length > 1 && this.spans[1].at <= now) this.spans.shift();
    const span = this.spans[0];
    return span ? span.from + Math.min(Math.max(now - span.at, 0), span.seconds) : this.heard;
  }

  /** @param {AudioBufferSourceNode} source */
  ended(source) {
    this.sources.delete(source);
    if (this.complete && !this.sources.size) this.end();
  }

  end() {
    if (this.over) return;
    this.over = true;
    this.onEnd();
  }
}

/** A context at the sound's own rate, so that pieces meet sample by sample. @type {(rate: number) => AudioContext} */
function contextOf(rate) {
  try {
    return new AudioContext({ sampleRate: rate });
  } catch {
    return new AudioContext(); // this browser has no such rate: it converts each piece
  }
}
