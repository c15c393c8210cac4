// The live figures: one stream for the page, followed by whatever shows a figure.
import { ApiError, events, logOut } from "./api.js";
import { Value, session } from "./state.js";

const KEPT = 150;

/** The last figures, or null before the first ones. */
export const figures = new Value(null);
/** Whether the stream is up: "", "connecting" or "lost". */
export const link = new Value("connecting");

let focus = "";
let watching = null;
const past = new Map();
const partitionsPast = new Map();

/** Follows the bus; with `path` also the partitions of one entity. */
export function watch(path = "") {
  if (watching && focus === path && !watching.signal.aborted) return;
  focus = path;
  watching?.abort();
  watching = new AbortController();
  partitionsPast.clear();
  follow(watching.signal, path);
}

export function unwatch() {
  watching?.abort();
  watching = null;
  past.clear();
  figures.set(null);
}

async function follow(signal, path) {
  let wait = 500;
  while (!signal.aborted) {
    try {
      for await (const [name, value] of events(address(path), { signal })) {
        if (name === "refused") return logOut("Your log-in has ended. Log in again to go on.");
        if (signal.aborted) return;
        wait = 500;
        link.set("");
        took(value);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 401) return logOut(error.message);
    }
    if (signal.aborted) return;
    link.set("lost");
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 10_000);
  }
}

function address(path) {
  const query = new URLSearchParams();
  if (session.value?.entity) query.set("entity", session.value.entity);
  if (path) query.set("focus", path);
  return `/$polybus/console/live?${query}`;
}

function took(frame) {
  if (frame.history && !past.has("")) {
    past.set("", frame.history.slice(0, -1).map((each) => ({ ...each })));
  }
  const seconds = frame.time_ms / 1000;
  const total = { in: 0, out: 0, active: 0, dead_letter: 0 };
  frame.byPath = new Map();
  for (const entity of frame.entities) {
    for (const name in total) total[name] += entity[name];
    entity.rates = remember(entity.path, seconds, entity);
    frame.byPath.set(entity.path.toLowerCase(), entity);
  }
  frame.total = { ...total, rates: remember("", seconds, total) };
  frame.node.cpu = processor(frame.node.cpu_s, seconds);
  for (const each of frame.focus?.partitions ?? []) each.rate = partitionRate(each, seconds);
  figures.set(frame);
}

/** Keeps a sample, and gives messages a second since the one before. */
function remember(path, seconds, { in: came, out: went, active, dead_letter }) {
  const list = past.get(path) ?? [];
  past.set(path, list);
  const last = list[list.length - 1];
  const sample = { time_ms: seconds * 1000, in: came, out: went, active, dead_letter };
  if (!last || sample.time_ms > last.time_ms) list.push(sample);
  if (list.length > KEPT) list.shift();
  const before = list.length > 1 ? list[list.length - 2] : null;
  return before ? between(before, list[list.length - 1]) : { in: null, out: null };
}

function between(before, after) {
  const s = (after.time_ms - before.time_ms) / 1000;
  return s > 0 ? { in: Math.max(0, after.in - before.in) / s, out: Math.max(0, after.out - before.out) / s } : { in: 0, out: 0 };
}

let worked = null;

/** The share of one core that the bus has used since the last time, or null. */
function processor(cpu, seconds) {
  const last = worked;
  worked = { cpu, seconds };
  return last && seconds > last.seconds && cpu >= last.cpu ? (cpu - last.cpu) / (seconds - last.seconds) : null;
}

function partitionRate(each, seconds) {
  const last = partitionsPast.get(each.index);
  partitionsPast.set(each.index, each.entered === null ? null : { seconds, entered: each.entered });
  if (!last || each.entered === null || seconds <= last.seconds) return null;
  return Math.max(0, each.entered - last.entered) / (seconds - last.seconds);
}

/** The past of an entity ("" for the whole): `in` and `out` as rates, the others as they were. */
export function history(path, name) {
  const list = past.get(path) ?? [];
  if (name !== "in" && name !== "out") return list.map((sample) => sample[name]);
  return list.slice(1).map((sample, at) => between(list[at], sample)[name]);
}
