/** The server's face: JSON, errors in its own words, and speech as a stream of events. */

import { eventsOf } from "./events.js";
import { read, write } from "./exact.js";

export class ServerError extends Error {
  /**
   * @param {string} message
   * @param {string | null} code
   * @param {number} status 0 when the server gave no answer
   */
  constructor(message, code = null, status = 0) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

export class Server {
  /** @type {string} what is sent as the API key, if anything */
  key = "";

  /**
   * @param {string} path
   * @param {RequestInit} [options]
   * @returns {Promise<any>} the JSON of the answer
   */
  async json(path, options = {}) {
    const response = await this.ask(path, options);
    try {
      return read(await response.text());
    } catch {
      throw new ServerError("The server's answer could not be read.", null, response.status);
    }
  }

  /**
   * Speak, telling each event as it comes.
   *
   * @param {Record<string, unknown>} request
   * @param {AbortSignal} signal
   * @param {(event: any) => void} onEvent
   */
  async speak(request, signal, onEvent) {
    const response = await this.ask("/v1/audio/speech", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: write({ ...request, stream_format: "sse", details: true, response_format: "pcm" }),
      signal,
    });
    if (!response.body) throw new ServerError("The server's answer has no sound in it.");
    // Chromium logs a stream that was read to its end as aborted, unless it has been through a tee as in a clone.
    response.clone().body?.cancel().catch(() => {});
    try {
      for await (const event of eventsOf(response.body)) onEvent(event);
    } catch (error) {
      if (signal.aborted || error instanceof ServerError) throw error;
      if (error instanceof TypeError) throw new ServerError("The server broke off in the middle.");
      throw error;
    }
  }

  /**
   * @param {string} path
   * @param {RequestInit} [options]
   * @returns {Promise<Response>} only of a request that went well
   */
  async ask(path, options = {}) {
    const headers = new Headers(options.headers);
    if (this.key) headers.set("Authorization", `Bearer ${this.key}`);
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new ServerError("The server does not answer.");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      const words = this.key ? "The server does not know this API key." : "This server asks for an API key.";
      throw new ServerError(words, "invalid_api_key", 401);
    }
    throw await refusal(response);
  }
}

/**
 * @param {string} words the server's, which may be in the middle of a sentence
 * @returns {string} the same words as a sentence; a name of a field or a take stays as it is
 */
export function sentence(words) {
  const text = words.trim().replace(/^[a-z](?=[a-z]*[\s,;:])/, (letter) => letter.toUpperCase());
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

/** @type {(response: Response) => Promise<ServerError>} */
async function refusal(response) {
  let message = `The server answered ${response.status}.`;
  let code = null;
  try {
    const { error } = await response.json();
    message = sentence(String(error.message || message));
    code = error.code ?? null;
  } catch {
    // not in the shape of an error: the number must do
  }
  const wait = response.headers.get("Retry-After");
  if (wait) message = `${message.replace(/[.\s]*$/, "")}. Try again in ${wait} s.`;
  return new ServerError(message, code, response.status);
}
