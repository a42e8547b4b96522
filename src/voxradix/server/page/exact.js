/** JSON whose seeds are whole numbers of 64 bits: JavaScript's own numbers hold 53. */

export const LEAST_SEED = -(2n ** 63n);
export const MOST_SEED = 2n ** 63n - 1n;

/**
 * @param {string} text JSON
 * @returns {any} what it says; each seed is a bigint
 */
export function read(text) {
  if (!text.includes('"seed"')) return JSON.parse(text);
  // A quote within a string of JSON has a backslash before it, so this finds names alone.
  const quoted = text.replace(/"seed"\s*:\s*(-?\d+)(?![\d.eE])/g, '"seed":"$1"');
  return JSON.parse(quoted, (name, value) => (name === "seed" && typeof value === "string" ? BigInt(value) : value));
}

/**
 * @param {Record<string, unknown>} fields
 * @returns {string} JSON; bigints are numbers in it, exactly
 */
export function write(fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  const pairs = given.map(
    ([name, value]) => `${JSON.stringify(name)}:${typeof value === "bigint" ? value : JSON.stringify(value)}`,
  );
  return `{${pairs.join(",")}}`;
}
