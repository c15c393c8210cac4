// One dead letter, edited and sent again in one step: what is not touched stays as its sender wrote it.
import { html, useState } from "../html.js";
import { bulk, json } from "../api.js";
import { asText, fromBase64 } from "../format.js";
import { note } from "../state.js";
import { Dialog, Field, Problem, useWork } from "../ui.js";
import { Target } from "./bulk.js";
import { placeOf } from "./messages.js";
import { PropertyRows } from "./send.js";

const TEXTS = [
  ["message_id", "Message id"],
  ["session_id", "Session id"],
  ["subject", "Subject"],
  ["correlation_id", "Correlation id"],
  ["content_type", "Content type"],
];
const OWN = ["DeadLetterReason", "DeadLetterErrorDescription"];

/** What differs between the message and the form; null takes a property away. */
function editOf(row, before, form) {
  const edit = {};
  for (const [name] of TEXTS) if (form[name] !== (row[name] ?? "")) edit[name] = form[name] || null;
  if (form.text !== before.text) edit.body = form.text;
  const properties = {};
  const kept = new Set(form.properties.map((each) => each.name));
  for (const name of Object.keys(row.properties)) if (!kept.has(name)) properties[name] = null;
  for (const each of form.properties) {
    if (!each.name || (each.type === "string" && row.properties[each.name] === each.value)) continue;
    properties[each.name] = each.type === "number" ? Number(each.value) : each.type === "boolean" ? each.value === "true" : each.value;
  }
  if (Object.keys(properties).length) edit.properties = properties;
  return edit;
}

function startOf(row) {
  const text = asText(fromBase64(row.body));
  return {
    text,
    ...Object.fromEntries(TEXTS.map(([name]) => [name, row[name] ?? ""])),
    properties: Object.entries(row.properties).filter(([name]) => !OWN.includes(name)).map(([name, value]) => ({ name, value, type: "string" })),
  };
}

/** Where a message of this place goes when nothing else is said: back to its queue, or to its one subscription. */
export function Resubmit({ path, state, row, onClose, onDone }) {
  const [before] = useState(() => startOf(row));
  const [form, setForm] = useState(before);
  const [target, setTarget] = useState("source");
  const [other, setOther] = useState("");
  const { busy, error, run } = useWork();
  const set = (change) => setForm({ ...form, ...change });
  const go = (event) => {
    event.preventDefault();
    run(async () => {
      const place = placeOf(path, state);
      const from = state === "dead-lettered" ? `${path}/$DeadLetterQueue` : place.path;
      const to = target === "other" ? other.trim() : path;
      const edits = JSON.stringify({ [row.sequence_number]: editOf(row, before, form) });
      const body = `{"numbers": [${row.sequence_number}], "to": ${JSON.stringify(to)}, "edits": ${edits}}`;
      const told = await json("POST", bulk(from, "move"), body);
      if (!told.moved.length) throw new Error(told.locked.length ? "A receiver holds the message." : "The message is gone, or its partition cannot be reached.");
      note(`Resubmitted to ${to}.`);
      onDone();
    });
  };
  return html`
    <${Dialog} title="Edit and resubmit" wide onClose=${onClose}>
      <form onSubmit=${go} autocomplete="off">
        <${Target} state=${state} path=${path} target=${target} setTarget=${setTarget} other=${other} setOther=${setOther} />
        ${before.text === null
          ? html`<p class="muted">The body is not a text and stays as it is.</p>`
          : html`<${Field} label="Body"><textarea name="text" rows="10" spellcheck="false" value=${form.text} onInput=${(e) => set({ text: e.target.value })}></textarea><//>`}
        <div class="grid2">
          ${TEXTS.map(([name, label]) => html`<${Field} label=${label}><input name=${name} value=${form[name]} onInput=${(e) => set({ [name]: e.target.value })} /><//>`)}
        </div>
        <fieldset><legend>Application properties</legend><${PropertyRows} rows=${form.properties} onChange=${(properties) => set({ properties })} /></fieldset>
        <${Problem}>${error}<//>
        <footer>
          <button type="button" onClick=${onClose}>Cancel</button>
          <button class="primary" disabled=${busy}>Resubmit</button>
        </footer>
      </form>
    <//>
  `;
}
