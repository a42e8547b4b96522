/** The page: a text goes to the server, takes come back, and each can be taken again from any frame. */

import { Composer } from "./composer.js";
import { byId, calm, many, touch } from "./dom.js";
import { Family } from "./family.js";
import { Metrics } from "./metrics.js";
import { Player } from "./player.js";
import { Run } from "./run.js";
import { Server, ServerError } from "./server.js";
import { Take } from "./take.js";
import { Tree } from "./tree.js";
import { Watch } from "./watch.js";

const server = new Server();
const player = new Player(hear);
const composer = new Composer(send, stopAll);
const watch = new Watch(server, new Metrics(byId("metrics")), new Tree(byId("tree")), () => runs.size > 0);
/** @type {Set<Run>} under way */
const runs = new Set();
/** @type {Family[]} newest first */
const families = [];
/** @type {Map<string, Family>} texts that were sent, and have no take yet */
const awaited = new Map();
/** @type {any} */
let voice = null;
let takes = 0;

const calls = {
  again,
  play: (/** @type {Take} */ take, /** @type {number} */ seconds) => player.play(take, seconds),
  silence,
  goOn: (/** @type {Take} */ take) => composer.goOn(take),
  forget,
  playing: (/** @type {Take} */ take) => player.take === take,
};

/** @type {(words: string, error?: boolean) => void} say it in the live region */
function say(words, error = false) {
  const status = byId("status");
  status.textContent = words;
  status.classList.toggle("error", error);
}

/** @returns {boolean} whether a field holds what cannot be; it is told */
function wrong() {
  const { wrong: field } = composer;
  if (!field) return false;
  byId("options").open = true;
  field.focus();
  say(`${field.labels?.[0]?.textContent}: ${field.validationMessage}`, true);
  return true;
}

/** What the form holds is sent. */
function send() {
  if (wrong()) return;
  const { after, words } = composer;
  if (!words && !after?.unsaid) {
    composer.text.focus();
    return say(composer.missing, true);
  }
  if (after && !after.known) return say("The take to go on from is gone; begin a new text.", true);
  const family = after ? familyOf(after) : familyFor(words);
  const seed = composer.seed ?? family?.freshSeed(composer.takes);
  const what = { ...(words && { input: words }), ...(after && { take: after.id }) };
  speak({ ...composer.options, ...what, seed }, words, after, null);
}

/** A take is taken again from a frame on, with a fresh seed unless one is asked for. @type {(take: Take, frame: number) => void} */
function again(take, frame) {
  if (take.state === "speaking") return say(`Take ${take.number} is still being made; a moment.`);
  if (!take.known) return say(`The server has not kept take ${take.number}, so it cannot be taken again.`, true);
  if (wrong()) return;
  const seed = composer.seed ?? familyOf(take)?.freshSeed(composer.takes);
  speak({ ...composer.options, take: take.id, at_frames: frame, seed }, "", take, frame);
}

/**
 * @param {Record<string, unknown>} request
 * @param {string} words
 * @param {Take | null} parent
 * @param {number | null} cut
 */
async function speak(request, words, parent, cut) {
  if (typeof AudioContext === "function") player.unlock(voice?.sample_rate ?? 24000);
  server.key = composer.key;
  const run = new Run(
    server,
    player,
    request,
    (index) => begin(words, parent, cut, index),
    () => turn(run),
  );
  runs.add(run);
  changed();
  say("Waiting for the first frame …");
  try {
    const trouble = await run.go();
    if (trouble) say(trouble, true);
    else say(run.stopping.signal.aborted ? stopped(run) : done(run));
  } catch (error) {
    refuse(error, parent);
  }
  runs.delete(run);
  changed();
}

/**
 * The server has begun a take. The page goes to the first of a request, which is the one that sounds.
 *
 * @type {(words: string, parent: Take | null, cut: number | null, index: number) => Take}
 */
function begin(words, parent, cut, index) {
  const take = new Take((takes += 1), words, parent, cut);
  const family = (parent && familyOf(parent)) || familyFor(words || "…");
  if (awaited.delete(family.text)) {
    families.unshift(family);
    byId("families").prepend(family.element);
  }
  if (parent && cut === null && parent === composer.after) composer.clear();
  byId("empty").hidden = true;
  byId("legend").hidden = false;
  if (watch.closed) watch.open();
  const card = family.add(take);
  if (index === 0) card.element.scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" });
  changed();
  return take;
}

/** A take of a request has begun or ended. @type {(run: Run) => void} */
function turn(run) {
  const [first] = run.begun;
  if (first.seed !== null) familyOf(first)?.promise(first.seed, run.asked);
  if (run.left) say(now());
}

/** @returns {string} what sounds, and how many takes are being made beside it */
function now() {
  const { take } = player;
  let left = 0;
  for (const run of runs) left += run.left;
  const parts = [];
  if (take?.state === "speaking") {
    const from = take.parent && !take.parent.forgotten ? `, from take ${take.parent.number}` : "";
    parts.push(`Speaking take ${take.number}${from}.`);
    if (left === 1) left = 0;
  } else if (take) parts.push(`Playing take ${take.number}.`);
  if (left) parts.push(`${many(left, "take")} ${left === 1 ? "is" : "are"} being made.`);
  return parts.join(" ");
}

/** @type {(run: Run) => string} */
function done(run) {
  const [first, ...others] = run.begun;
  const words = familyOf(first)?.of(first)?.spoken ?? "";
  if (!others.length) return words;
  const spent = others.filter((take) => take.about?.finish === "length").length;
  const whose = spent === 1 ? "its" : "their";
  const more = spent ? ` Of the others, ${spent} ended because ${whose} frames were spent.` : "";
  return `${run.begun.length} takes are made. ${words}${more}`;
}

/** @type {(run: Run) => string} */
function stopped(run) {
  const { begun, asked } = run;
  if (!begun.length) return "Stopped before the first frame.";
  const whole = begun.filter((take) => take.state === "done").length;
  const all = asked > 1 ? `${whole} of ${many(asked, "take")} ${whole === 1 ? "is" : "are"} whole. ` : "";
  return `Stopped. ${all}${heard(begun.find((take) => take.heard) ?? begun[0])}`;
}

/** @type {(take: Take) => string} how much of it was made, and how much was heard */
function heard({ number, state, seconds, heard }) {
  const made = state === "done" ? `is ${seconds.toFixed(2)} s long` : `was made to ${seconds.toFixed(2)} s`;
  const to = heard ? `heard to ${Math.min(heard, seconds).toFixed(2)} s` : "not heard";
  return `Take ${number} ${made} and ${state === "done" ? "was " : ""}${to}.`;
}

/** The server has not begun. @type {(error: unknown, parent: Take | null) => void} */
function refuse(error, parent) {
  say(error instanceof Error ? error.message : String(error), true);
  if (!(error instanceof ServerError)) throw error;
  if (error.status === 401) lock();
  if (error.code === "take_not_found" && parent) lose(parent);
}

/** The server does not know a take any more. @type {(take: Take) => void} */
function lose(take) {
  take.id = "";
  take.changed();
  if (composer.after === take) composer.goOn(null);
}

/** The sound of a take ends; what is being made goes on. @type {(take: Take) => void} */
function silence(take) {
  if (player.take !== take) return;
  player.stop();
  say(`${heard(take)} ${now()}`.trim());
}

/** The sound ends, and all that is being made. */
function stopAll() {
  const { take } = player;
  for (const run of runs) run.stop();
  player.stop();
  if (take) say(`Stopped. ${heard(take)}`);
}

/** @type {(take: Take) => Promise<void>} */
async function forget(take) {
  if (take.known) {
    try {
      await server.json(`/v1/takes/${take.id}`, { method: "DELETE" });
    } catch (error) {
      const gone = error instanceof ServerError && error.code === "take_not_found";
      if (!gone) return say(error instanceof Error ? error.message : String(error), true);
    }
  }
  if (player.take === take) player.stop();
  lose(take);
  drop(take);
  say(`Take ${take.number} is forgotten.`);
  watch.look();
}

/** Take a card off the page; focus goes to its neighbour. @type {(take: Take) => void} */
function drop(take) {
  const family = familyOf(take);
  const at = family?.cards.findIndex((card) => card.take === take) ?? -1;
  if (!family || at < 0) return;
  take.forgotten = true;
  family.remove(take);
  const next = family.cards[Math.min(at, family.cards.length - 1)];
  if (next) next.strip.element.focus();
  else {
    family.element.remove();
    families.splice(families.indexOf(family), 1);
    composer.text.focus();
  }
  byId("empty").hidden = families.length > 0;
  byId("legend").hidden = families.length === 0;
}

/** @type {(take: Take, seconds: number | null) => void} */
function hear(take, seconds) {
  const card = familyOf(take)?.of(take);
  const turned = (seconds === null) !== (card?.strip.head === null);
  if (seconds !== null) take.heard = seconds;
  card?.strip.hear(seconds);
  if (!turned) return;
  card?.refresh();
  const playing = `Playing take ${take.number}.`;
  if (runs.size) say(now());
  else if (seconds !== null) say(playing);
  else if (byId("status").textContent === playing) say(card?.spoken ?? "");
  changed();
}

/** @type {(take: Take) => Family | undefined} */
function familyOf(take) {
  return families.find((family) => family.of(take));
}

/** @type {(words: string) => Family} that of a text; a new one waits for its first take */
function familyFor(words) {
  const family = families.find((each) => each.text === words) ?? awaited.get(words) ?? new Family(words, calls);
  if (!families.includes(family)) awaited.set(words, family);
  return family;
}

function changed() {
  composer.stoppable(runs.size > 0 || player.take !== null);
  watch.look();
}

/** The server wants a key, or another. */
function lock() {
  watch.close();
  composer.askKey();
}

/** Ask what the voice is, and then for the figures. */
async function meet() {
  server.key = composer.key;
  try {
    voice = (await server.json("/v1/audio/voices")).data[0];
    byId("voice").textContent = `${voice.id}, ${voice.frame_rate} frames a second, ${voice.codebooks} codes a frame`;
    composer.know(voice);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    if (error.status !== 404) say(error.message, true);
    if (error.status === 401) return lock();
  }
  watch.open();
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing) return;
  if (runs.size || player.take) stopAll();
  else if (composer.after) {
    composer.alone();
    say("The next text stands alone.");
  }
});
/** A key was given: try it, once. */
function unlock() {
  if (composer.key !== server.key) meet();
}

byId("key").addEventListener("change", unlock);
byId("key").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "Enter") return;
  event.preventDefault(); // the text is not sent
  unlock();
});
if (touch()) byId("act").textContent = "Tap";
if (matchMedia("(pointer: fine)").matches) composer.text.focus({ preventScroll: true });
meet();
