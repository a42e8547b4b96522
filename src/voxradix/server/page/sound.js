/** Sound that was received: 16-bit samples in the pieces they came in. */

export class Sound {
  /**
   * @param {number} rate samples a second
   * @param {number} channels
   */
  constructor(rate, channels) {
    this.rate = rate;
    this.channels = channels;
    /** @type {Int16Array[]} interleaved, each of whole sample frames */
    this.pieces = [];
    this.length = 0;
    this.rest = new Int16Array(0);
  }

  /** @returns {number} */
  get seconds() {
    return this.length / this.rate;
  }

  /**
   * @param {string} base64 the next bytes, little-endian
   * @returns {Int16Array} what can be played now
   */
  push(base64) {
    const bytes = atob(base64);
    const view = new DataView(new ArrayBuffer(bytes.length));
    for (let i = 0; i < bytes.length; i++) view.setUint8(i, bytes.charCodeAt(i));
    const count = bytes.length >> 1;
    const samples = new Int16Array(this.rest.length + count);
    samples.set(this.rest);
    for (let i = 0; i < count; i++) samples[this.rest.length + i] = view.getInt16(2 * i, true);
    const whole = samples.length - (samples.length % this.channels);
    this.rest = samples.slice(whole);
    const piece = samples.subarray(0, whole);
    if (whole) this.pieces.push(piece);
    this.length += whole / this.channels;
    return piece;
  }

  /**
   * @param {number} seconds
   * @returns {Int16Array} all from there on
   */
  from(seconds) {
    const all = new Int16Array(this.length * this.channels);
    let at = 0;
    for (const piece of this.pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    return all.subarray(Math.min(Math.round(seconds * this.rate), this.length) * this.channels);
  }

  /** @returns {Blob} a WAV file */
  wav() {
    const samples = this.from(0);
    const header = new DataView(new ArrayBuffer(44));
    const size = samples.length * 2;
    const words = [0x52494646, 36 + size, 0x57415645, 0x666d7420, 16];
    words.forEach((word, i) => header.setUint32(4 * i, word, i === 1 || i === 4));
    header.setUint16(20, 1, true);
    header.setUint16(22, this.channels, true);
    header.setUint32(24, this.rate, true);
    header.setUint32(28, this.rate * this.channels * 2, true);
    header.setUint16(32, this.channels * 2, true);
    header.setUint16(34, 16, true);
    header.setUint32(36, 0x64617461);
    header.setUint32(40, size, true);
    const body = new DataView(new ArrayBuffer(size));
    samples.forEach((sample, i) => body.setInt16(2 * i, sample, true));
    return new Blob([header, body], { type: "audio/wav" });
  }
}
