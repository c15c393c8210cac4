// The messages of an entity by state: looked through, searched, and dealt with.
import { html, useEffect, useRef, useState } from "../html.js";
import { bulk, lines } from "../api.js";
import { asText, count, fromBase64, moment, short } from "../format.js";
import { NOTHING, choiceOf } from "../search.js";
import { may } from "../state.js";
import { Card, Choice, Empty, Field, Icon, Problem } from "../ui.js";
import { BulkDialog, verbsOf } from "./bulk.js";
import { address } from "./entities.js";
import { Inspect } from "./inspect.js";
import { Resubmit } from "./resubmit.js";

const PAGE = 50;
const TRANSFER = "transfer";

/** Where a state's messages lie: the path, and the state by its name in the API. */
export const placeOf = (path, state) =>
  state === TRANSFER ? { path: `${path}/$Transfer/$DeadLetterQueue`, state: "active" } : { path, state };

function statesOf(kind, live) {
  const all = [
    kind !== "topic" && ["active", "Active", short(live.active)],
    kind !== "subscription" && ["scheduled", "Scheduled", short(live.scheduled)],
    kind !== "topic" && ["deferred", "Deferred", short(live.deferred)],
    kind !== "topic" && ["dead-lettered", "Dead-lettered", short(live.dead_letter)],
    live.transfer_dead_letter > 0 && [TRANSFER, "Transfer dead letters", short(live.transfer_dead_letter)],
  ];
  return all.filter(Boolean);
}

/** A page of messages: those from `first` on that the search finds. */
async function read(path, state, wanted, first, signal, tell) {
  const place = placeOf(path, state);
  const query = new URLSearchParams({ state: place.state, format: "json", ...choiceOf(wanted) });
  if (first) query.set("first", first);
  const rows = [];
  let end = null;
  for await (const row of lines(`${bulk(place.path, "browse")}?${query}`, { signal })) {
    if (row.end) {
      end = row.end;
    } else {
      rows.push(row);
      if (rows.length % 10 === 0) tell([...rows]);
      if (rows.length > PAGE) break;
    }
  }
  if (end?.error) throw new Error(end.error);
  return { rows: rows.slice(0, PAGE), more: rows.length > PAGE, unreachable: end?.unreachable ?? [] };
}

export function Messages({ path, kind, live, start, onSend }) {
  const states = statesOf(kind, live);
  const state = states.some(([id]) => id === start) ? start : states[0][0];
  const [wanted, setWanted] = useState(NOTHING);
  const [pages, setPages] = useState([""]);
  const [turn, setTurn] = useState(0);
  const [found, setFound] = useState({ rows: [], loading: true });
  const [chosen, setChosen] = useState([]);
  const [open, setOpen] = useState(null);
  const [acting, setActing] = useState(null);
  const first = pages[pages.length - 1];
  const searching = useRef(null);
  useEffect(() => {
    const control = new AbortController();
    searching.current = control;
    setFound((before) => ({ ...before, loading: true, error: "" }));
    setChosen([]);
    read(path, state, wanted, first, control.signal, (rows) => setFound({ rows, loading: true })).then(
      (page) => !control.signal.aborted && setFound({ ...page, loading: false }),
      (error) => !control.signal.aborted && setFound({ rows: [], loading: false, error: error.message }),
    );
    return () => control.abort();
  }, [path, state, wanted, first, turn]);
  if (!may("Listen")) return html`<${Empty} title="Your key may not look at messages">It has no Listen right.<//>`;
  const again = () => {
    setPages([""]);
    setTurn((n) => n + 1);
  };
  const change = (next) => {
    location.hash = address(path, "messages", next);
  };
  const search = (next) => {
    setWanted(next);
    setPages([""]);
  };
  const act = (verb, numbers) => setActing({ verb, numbers });
  const numbers = chosen.length ? chosen : null;
  return html`
    <div class="tools">
      <${Choice} label="State" options=${states} value=${state} onChange=${change} />
      <button type="button" onClick=${again}>Refresh</button>
    </div>
    <${Search} key=${state} wanted=${wanted} onSearch=${search} partitions=${live.partitions} />
    <div class="tools" role="toolbar" aria-label="Actions">
      ${verbsOf(state).map(
        ([verb, label]) => html`<button type="button" disabled=${!found.rows.length} onClick=${() => act(verb, numbers)}>
          ${label} ${numbers ? `${numbers.length} selected` : "all"}…
        </button>`,
      )}
      ${numbers && html`<button type="button" class="plain" onClick=${() => setChosen([])}>Clear selection</button>`}
    </div>
    <${Problem}>${found.error}<//>
    ${found.unreachable?.length > 0 && html`<div class="banner">${found.unreachable.length} partitions cannot be reached: their messages are not shown.</div>`}
    <${Card} flush label="Messages">
      ${found.rows.length
        ? html`<${Table} rows=${found.rows} state=${state} chosen=${chosen} setChosen=${setChosen} onOpen=${setOpen} />`
        : html`<${Empty} title=${found.loading ? "Looking…" : isSearch(wanted) ? "Nothing fits the search" : `No ${state} messages`} />`}
    <//>
    <div class="tools">
      <button type="button" disabled=${pages.length < 2} onClick=${() => setPages(pages.slice(0, -1))}>Back</button>
      <button type="button" disabled=${!found.more} onClick=${() => setPages([...pages, after(found.rows)])}>Next ${PAGE}</button>
      ${found.loading && html`<button type="button" onClick=${() => {
        searching.current.abort();
        setFound((before) => ({ ...before, loading: false }));
      }}>Stop</button>`}
      <span class="muted" role="status">${found.loading ? "Looking…" : `${count(found.rows.length)} shown${found.more ? ", there are more" : ""}`}</span>
    </div>
    ${open && html`<${Inspect} path=${path} row=${open} state=${state} onClose=${() => setOpen(null)}
      onCopy=${(row) => {
        setOpen(null);
        onSend(row);
      }}
      onAct=${(verb) => {
        act(verb, [open.sequence_number]);
        setOpen(null);
      }}
      onEdit=${(row) => {
        setOpen(null);
        setActing({ verb: "edit", row });
      }} />`}
    ${acting?.verb === "edit" && html`<${Resubmit} path=${path} state=${state} row=${acting.row} onClose=${() => setActing(null)} onDone=${() => {
      setActing(null);
      again();
    }} />`}
    ${acting && acting.verb !== "edit" && html`<${BulkDialog} path=${path} state=${state} verb=${acting.verb} numbers=${acting.numbers} search=${choiceOf(wanted)}
      onClose=${(changed) => {
        setActing(null);
        if (changed) again();
      }} />`}
  `;
}

const isSearch = (wanted) => Object.values(wanted).some(Boolean);
const after = (rows) => String(BigInt(rows[rows.length - 1].sequence_number) + 1n);

function Search({ wanted, onSearch, partitions }) {
  const [draft, setDraft] = useState(wanted);
  const input = (name, label, type = "text", hint = undefined) => html`
    <${Field} label=${label} hint=${hint}><input name=${name} type=${type} step="1" value=${draft[name]} onInput=${(event) => setDraft({ ...draft, [name]: event.target.value })} /><//>
  `;
  return html`
    <details class="search">
      <summary><${Icon} name="search" /> Search and filter</summary>
      <form onSubmit=${(event) => {
        event.preventDefault();
        onSearch({ ...draft });
      }}>
        <div class="grid2">
          ${input("id", "Message id", "text", "% stands for any text")}
          ${input("session", "Session id")}
          ${input("subject", "Subject")}
          ${input("name", "Property name")}
          ${input("value", "Property value")}
          ${input("from", "Enqueued from", "datetime-local")}
          ${input("before", "Enqueued before", "datetime-local")}
          ${input("condition", "Condition", "text", "As a rule has it: priority > 3 AND sys.Label LIKE 'order%'")}
          ${partitions > 1 && html`<${Field} label="Partition">
            <select name="partition" onChange=${(event) => setDraft({ ...draft, partition: event.target.value })}>
              <option value="">all</option>
              ${Array.from({ length: partitions }, (_, n) => html`<option value=${String(n)} selected=${draft.partition === String(n)}>${n}</option>`)}
            </select>
          <//>`}
        </div>
        <div class="tools">
          <button class="primary">Search</button>
          <button type="button" onClick=${() => {
            setDraft(NOTHING);
            onSearch({ ...NOTHING });
          }}>Clear</button>
        </div>
      </form>
    </details>
  `;
}

function preview(row) {
  const data = fromBase64(row.body);
  const text = asText(data.subarray(0, 200)) ?? (data.length > 200 ? asText(data.subarray(0, 196)) : null);
  return text === null ? `${count(data.length)} bytes` : text.slice(0, 120);
}

function Table({ rows, state, chosen, setChosen, onOpen }) {
  const all = chosen.length === rows.length;
  const has = new Set(chosen);
  const toggle = (number) => setChosen(has.has(number) ? chosen.filter((each) => each !== number) : [...chosen, number]);
  const dead = state === "dead-lettered" || state === TRANSFER;
  return html`
    <table>
      <thead><tr>
        <th scope="col"><input type="checkbox" aria-label="Select all shown" checked=${all} onChange=${() => setChosen(all ? [] : rows.map((row) => row.sequence_number))} /></th>
        <th scope="col">Message id</th>
        <th scope="col" class="wide-only">Number</th>
        <th scope="col">${state === "scheduled" ? "Due" : "Enqueued"}</th>
        <th scope="col" class="wide-only">Session</th>
        <th scope="col" class="wide-only">Subject</th>
        ${dead && html`<th scope="col">Reason</th>`}
        <th scope="col" class="right wide-only">Deliveries</th>
        <th scope="col">Body</th>
      </tr></thead>
      <tbody>
        ${rows.map(
          (row) => html`
            <tr key=${row.sequence_number}>
              <td><input type="checkbox" aria-label=${`Select ${row.message_id}`} checked=${has.has(row.sequence_number)} onChange=${() => toggle(row.sequence_number)} /></td>
              <td class="cut id"><button type="button" class="link" onClick=${() => onOpen(row)}>${row.message_id}</button></td>
              <td class="mono wide-only nowrap">${numberText(row)}</td>
              <td class="nowrap">${moment(state === "scheduled" ? row.scheduled_enqueue_time : row.enqueued_time)}</td>
              <td class="cut wide-only">${row.session_id ?? ""}</td>
              <td class="cut wide-only">${row.subject ?? ""}</td>
              ${dead && html`<td class="cut">${row.dead_letter_reason ?? ""}</td>`}
              <td class="right wide-only">${row.delivery_count}</td>
              <td class="cut mono">${preview(row)}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

/** Partition and number within it, which is how people speak of them. */
export const numberText = (row) => `${row.partition}:${BigInt(row.sequence_number) & ((1n << 48n) - 1n)}`;
