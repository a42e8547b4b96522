/** The page: a text goes to the server, takes come back, and each can be taken again from any frame. */

import { Composer } from "./composer.js";
import { byId, calm } from "./dom.js";
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
/** @type {any} */
let voice = null;
let takes = 0;

const calls = {
  again,
  play: (/** @type {Take} */ take, /** @type {number} */ seconds) => player.play(take, seconds),
  stop,
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

/** What the form holds is sent. */
function send() {
  const { after, words, wrong } = composer;
  if (wrong) {
    byId("options").open = true;
    wrong.focus();
    return say(`${wrong.labels?.[0]?.textContent}: ${wrong.validationMessage}`, true);
  }
  if (!words && !after) {
    composer.text.focus();
    return say("There is nothing to say yet; write a line first.", true);
  }
  if (after && !after.known) return say("The take to go on from is gone; begin a new text.", true);
  /** @type {Record<string, unknown>} */
  const request = { ...composer.options(true), ...(words && { input: words }), ...(after && { take: after.id }) };
  const family = after ? familyOf(after) : families.find((each) => each.text === words);
  if (composer.seed === null && family) request.seed = family.nextSeed;
  speak(request, words, after, null);
}

/** A take is taken again from a frame on, with a seed of its own. @type {(take: Take, frame: number) => void} */
function again(take, frame) {
  if (take.state === "speaking") return say(`Take ${take.number} is still being made; a moment.`);
  if (!take.known) return say(`The server has not kept take ${take.number}, so it cannot be taken again.`, true);
  const seed = familyOf(take)?.nextSeed;
  speak({ ...composer.options(false), take: take.id, at_frames: frame, seed }, "", take, frame);
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
  const run = new Run(server, player, request, () => begin(words, parent, cut));
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

/** The server has begun a take. @type {(words: string, parent: Take | null, cut: number | null) => Take} */
function begin(words, parent, cut) {
  const take = new Take((takes += 1), words, parent, cut);
  let family = parent ? familyOf(parent) : families.find((each) => each.text === words);
  if (!family) {
    family = new Family(words || "…", calls);
    families.unshift(family);
    byId("families").prepend(family.element);
  }
  if (parent && cut === null && parent === composer.after) composer.clear();
  byId("empty").hidden = true;
  byId("legend").hidden = false;
  const card = family.add(take);
  say(parent ? `Speaking take ${take.number}, from take ${parent.number}.` : `Speaking take ${take.number}.`);
  card.element.scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" });
  changed();
  return take;
}

/** @type {(run: Run) => string} */
function done(run) {
  const spoken = run.takes.map((take) => familyOf(take)?.of(take)?.spoken ?? "").filter(Boolean);
  return spoken.length !== 1 ? `${spoken.length} takes are made. ${spoken[0] ?? ""}` : spoken[0];
}

/** @type {(run: Run) => string} */
function stopped(run) {
  const [first] = run.takes;
  return first ? `Stopped after ${first.seconds.toFixed(2)} s.` : "Stopped.";
}

/** The server has not begun. @type {(error: unknown, parent: Take | null) => void} */
function refuse(error, parent) {
  say(error instanceof Error ? error.message : String(error), true);
  if (!(error instanceof ServerError)) throw error;
  if (error.status === 401) composer.askKey();
  if (error.code === "take_not_found" && parent) lose(parent);
}

/** The server does not know a take any more. @type {(take: Take) => void} */
function lose(take) {
  take.id = "";
  take.changed();
  if (composer.after === take) composer.goOn(null);
}

/** @type {(take: Take) => void} */
function stop(take) {
  for (const run of runs) if (run.takes.includes(take)) run.stop();
  if (player.take === take) player.stop();
}

function stopAll() {
  for (const run of runs) run.stop();
  if (player.take) say("Silent.");
  player.stop();
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
  card?.strip.hear(seconds);
  if (!turned) return;
  card?.refresh();
  changed();
}

/** @type {(take: Take) => Family | undefined} */
function familyOf(take) {
  return families.find((family) => family.of(take));
}

function changed() {
  composer.stoppable(runs.size > 0 || player.take !== null);
  watch.look();
}

/** Ask what the voice is. */
async function meet() {
  try {
    voice = (await server.json("/v1/audio/voices")).data[0];
    byId("voice").textContent = `${voice.id}, ${voice.frame_rate} frames a second, ${voice.codebooks} codes a frame`;
    composer.know(voice);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    if (error.status === 401) composer.askKey();
    if (error.status !== 404) say(error.message, true);
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.isComposing) stopAll();
});
byId("key").addEventListener("change", () => {
  server.key = composer.key;
  meet();
  watch.look();
});
meet();
watch.look();
