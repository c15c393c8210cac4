// One message, as it is: body, properties, what the broker says of it.
import { html, useState } from "../html.js";
import { save } from "../api.js";
import { asHex, asText, bytes, count, fromBase64, moment } from "../format.js";
import { may } from "../state.js";
import { Choice, Dialog, copy } from "../ui.js";
import { History } from "./history.js";
import { numberText } from "./messages.js";

const SYSTEM = [
  ["message_id", "Message id"],
  ["session_id", "Session id"],
  ["partition_key", "Partition key"],
  ["subject", "Subject"],
  ["correlation_id", "Correlation id"],
  ["content_type", "Content type"],
  ["to", "To"],
  ["reply_to", "Reply to"],
  ["reply_to_session_id", "Reply-to session id"],
];
const BROKER = [
  ["sequence_number", "Sequence number", (value, row) => `${value} (${numberText(row)})`],
  ["partition", "Partition"],
  ["state", "State"],
  ["enqueued_time", "Enqueued", moment],
  ["scheduled_enqueue_time", "Due", moment],
  ["expires_at", "Expires", moment],
  ["delivery_count", "Deliveries"],
  ["dead_letter_source", "Dead-lettered from"],
];

const Facts = ({ row, fields }) => html`
  <dl class="facts">
    ${fields.filter(([name]) => row[name] !== null && row[name] !== undefined && row[name] !== "").map(
      ([name, label, show = String]) => html`<div><dt>${label}</dt><dd>${show(row[name], row)}</dd></div>`,
    )}
  </dl>
`;

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

export function Body({ data }) {
  const text = asText(data);
  const formed = text === null || !/^\s*[[{"]/.test(text) ? null : pretty(text);
  const forms = [formed !== null && ["json", "JSON"], text !== null && ["text", "Text"], ["hex", "Hex"]].filter(Boolean);
  const [form, setForm] = useState(forms[0][0]);
  const shown = { json: () => formed, text: () => text, hex: () => asHex(data) }[form]();
  return html`
    <div class="tools">
      <${Choice} label="Show the body as" options=${forms} value=${form} onChange=${setForm} />
      <span class="muted">${bytes(data.length)}</span>
      <button type="button" class="small" onClick=${() => save(new Blob([data]), "body")}>Download</button>
      ${text !== null && html`<button type="button" class="small" onClick=${() => copy(text, "the body")}>Copy</button>`}
    </div>
    ${data.length ? html`<pre class=${form} tabindex="0" aria-label="Body">${shown}</pre>` : html`<p class="muted">The body is empty.</p>`}
  `;
}

export function Inspect({ path, row, state, onClose, onCopy, onAct, onEdit }) {
  const properties = Object.entries(row.properties ?? {});
  const dead = state === "dead-lettered" || state === "transfer";
  return html`
    <${Dialog} title=${row.message_id} side onClose=${onClose}>
      <div class="inside">
        <div class="tools">
          ${may("Send") && html`<button type="button" onClick=${() => onCopy(row)}>Send a copy…</button>`}
          ${dead && may("Send") && html`<button type="button" class="primary" onClick=${() => onAct("redrive")}>Resubmit…</button>`}
          ${dead && may("Send") && html`<button type="button" onClick=${() => onEdit(row)}>Edit and resubmit…</button>`}
          ${state === "active" && html`<button type="button" onClick=${() => onAct("defer")}>Defer…</button>`}
          ${state === "deferred" && html`<button type="button" class="primary" onClick=${() => onAct("undefer")}>Make active…</button>`}
          ${state === "scheduled" && may("Send") && html`
            <button type="button" onClick=${() => onAct("scheduled/move")}>Move in time…</button>
            <button type="button" onClick=${() => onAct("scheduled/cancel")}>Cancel…</button>
          `}
          ${state !== "scheduled" && html`<button type="button" onClick=${() => onAct("purge")}>Purge…</button>`}
        </div>
        ${row.dead_letter_reason && html`<div class="problem reason"><strong>${row.dead_letter_reason}</strong><br />${row.dead_letter_description ?? ""}</div>`}
        <section><h3>Body</h3><${Body} data=${fromBase64(row.body)} /></section>
        <section><h3>Message</h3><${Facts} row=${row} fields=${SYSTEM} /></section>
        <section>
          <h3>Application properties (${count(properties.length)})</h3>
          ${properties.length > 0 && html`<table><tbody>${properties.map(([name, value]) => html`<tr><th scope="row">${name}</th><td class="mono">${value}</td></tr>`)}</tbody></table>`}
        </section>
        <section><h3>Broker</h3><${Facts} row=${row} fields=${BROKER} /></section>
        <${History} path=${path} row=${row} />
      </div>
    <//>
  `;
}
