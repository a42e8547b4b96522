/** Server-sent events read from a fetched body, as EventSource cannot POST. */

import { read } from "./exact.js";

/**
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<any>} the JSON of each event
 */
export async function* eventsOf(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let whole = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = done ? "" : (blocks.pop() ?? "");
      for (const block of blocks) {
        const event = eventOf(block);
        if (event !== undefined) yield event;
      }
      if (done) {
        whole = true;
        return;
      }
    }
  } finally {
    if (!whole) reader.cancel().catch(() => {});
  }
}

/** @type {(block: string) => any} undefined for comments, the end mark, and what was cut */
function eventOf(block) {
  const data = block
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).trimStart())
    .join("\n");
  if (!data || data === "[DONE]") return undefined;
  try {
    return read(data);
  } catch {
    return undefined;
  }
}
