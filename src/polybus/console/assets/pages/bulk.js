// Dealing with many messages: a count before, progress during, and what became of them.
import { html, useEffect, useRef, useState } from "../html.js";
import { count } from "../format.js";
import { carryOut, outcome, tally } from "../jobs.js";
import { byNumber } from "../search.js";
import { figures } from "../live.js";
import { may, note, useValue } from "../state.js";
import { Dialog, Field, Problem, Progress, useWork } from "../ui.js";
import { placeOf } from "./messages.js";

/** Verb of the API, what it says on the button, what it says when it is done, and whether it destroys. */
const VERBS = {
  redrive: { label: "Resubmit", done: "Resubmitted", right: "Send" },
  purge: { label: "Purge", done: "Purged", destroys: true, right: "Listen" },
  defer: { label: "Defer", done: "Deferred", right: "Listen" },
  undefer: { label: "Make active", done: "Made active", right: "Listen" },
  "scheduled/cancel": { label: "Cancel", done: "Cancelled", destroys: true, right: "Send" },
  "scheduled/move": { label: "Move in time", done: "Moved", right: "Send" },
};

const OF = {
  active: ["redrive", "defer", "purge"],
  scheduled: ["scheduled/cancel", "scheduled/move"],
  deferred: ["undefer", "purge"],
  "dead-lettered": ["redrive", "purge"],
  transfer: ["redrive", "purge"],
};

/** The verbs that a state has and the user's key allows: [verb, label]. */
export const verbsOf = (state) =>
  OF[state]
    .filter((verb) => may(VERBS[verb].right))
    .map((verb) => [verb, state === "active" && verb === "redrive" ? "Move" : VERBS[verb].label]);

export function BulkDialog({ path, state, verb, numbers, search, onClose }) {
  const place = placeOf(path, state);
  const { done: participle, destroys } = VERBS[verb];
  const label = verbsOf(state).find(([id]) => id === verb)[1];
  const [target, setTarget] = useState(state === "active" ? "" : "source");
  const [other, setOther] = useState("");
  const [time, setTime] = useState("");
  const [rate, setRate] = useState("");
  const [job, setJob] = useState(null);
  const [all, setAll] = useState(numbers ? numbers.length : null);
  const stop = useRef(null);
  const { busy, error, run, setError } = useWork();
  const choices = (numbers ? byNumber(numbers) : [search]).map((choice) => ({ state: place.state, ...choice }));
  useEffect(() => {
    if (numbers) return;
    tally(place.path, verb === "scheduled/move" ? "scheduled/cancel" : verb === "redrive" || verb === "defer" ? "purge" : verb, choices[0]).then(
      (counted) => setAll(counted.chosen),
      (problem) => setError(problem.message),
    );
  }, []);
  const extra = () => {
    const more = {};
    if (verb === "redrive") more.to = target === "other" || state === "active" ? other.trim() : target;
    if (verb === "scheduled/move") more.to = new Date(time).toISOString();
    if (verb === "defer" && !numbers && !Object.keys(search).length) more.limit = all; // whoever means all says how many
    if (rate) more.rate = Number(rate);
    return more;
  };
  const go = (event) => {
    event.preventDefault();
    run(async () => {
      stop.current = new AbortController();
      const sum = { done: 0, missing: 0, locked: 0, unreachable: [] };
      for (const choice of choices) {
        if (stop.current.signal.aborted) break;
        const ended = await carryOut(place.path, verb, { ...choice, ...extra() }, (now) => setJob({ ...now, done: sum.done + now.done }), stop.current.signal);
        sum.done += ended.done;
        sum.missing += ended.missing;
        sum.locked += ended.locked;
        sum.unreachable = ended.unreachable;
        sum.state = ended.state;
      }
      note(outcome(sum, participle));
      onClose(true);
    });
  };
  const what = all === null ? "…" : count(all);
  return html`
    <${Dialog} title=${`${label} messages`} onClose=${() => onClose(job !== null)}>
      <form onSubmit=${go}>
        <p role="status"><strong>${what} ${all === 1 ? "message" : "messages"}</strong>${numbers ? " that you selected" : Object.keys(search).length ? " that fit the search" : ` in ${place.path}`} will be ${participle.toLowerCase()}.
          ${destroys ? " This cannot be undone." : ""}</p>
        ${verb === "redrive" && html`<${Target} state=${state} path=${path} target=${target} setTarget=${setTarget} other=${other} setOther=${setOther} />`}
        ${verb === "scheduled/move" && html`<${Field} label="New time"><input type="datetime-local" step="1" name="time" required value=${time} onInput=${(e) => setTime(e.target.value)} /><//>`}
        ${(verb === "redrive" || verb === "purge") && html`<${Field} label="At most so many in a second" hint="Leave it empty to go as fast as the bus can."><input type="number" min="1" name="rate" value=${rate} onInput=${(e) => setRate(e.target.value)} /><//>`}
        ${job && html`<${Progress} done=${job.done} all=${all ?? job.total ?? 0} label=${`${count(job.done)} of ${what}`} />`}
        <${Problem}>${error}<//>
        <footer>
          ${busy ? html`<button type="button" onClick=${() => stop.current?.abort()}>Stop</button>` : html`<button type="button" onClick=${() => onClose(job !== null)}>Cancel</button>`}
          <button class=${destroys ? "danger" : "primary"} disabled=${busy || all === 0 || all === null}>${label} ${what}</button>
        </footer>
      </form>
    <//>
  `;
}

export function Target({ state, path, target, setTarget, other, setOther }) {
  const frame = useValue(figures);
  const elsewhere = target === "other" || state === "active";
  return html`
    ${state !== "active" && html`<${Field} label="To">
      <select name="target" value=${target} onChange=${(e) => setTarget(e.target.value)}>
        <option value="source">where they came from</option>
        <option value="other">another queue, topic or subscription</option>
      </select>
    <//>`}
    ${elsewhere && html`<${Field} label="Destination">
      <input name="destination" list="destinations" required value=${other} onInput=${(e) => setOther(e.target.value)} />
      <datalist id="destinations">${frame?.entities.filter((each) => each.path !== path).map((each) => html`<option value=${each.path} />`)}</datalist>
    <//>`}
  `;
}
