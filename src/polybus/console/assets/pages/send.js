// Sending: a form, a file, or a copy of a message.
import { html, useState } from "../html.js";
import { call } from "../api.js";
import { asText, bytes, count, fromBase64, toBase64 } from "../format.js";
import { note } from "../state.js";
import { Dialog, Field, Icon, Problem, Progress, useWork } from "../ui.js";

const TYPE = "application/vnd.microsoft.servicebus.json";
const FIELDS = [
  ["SessionId", "Session id", "session_id"],
  ["Label", "Subject", "subject"],
  ["PartitionKey", "Partition key", "partition_key"],
  ["CorrelationId", "Correlation id", "correlation_id"],
  ["To", "To", "to"],
  ["ReplyTo", "Reply to", "reply_to"],
  ["ReplyToSessionId", "Reply-to session id", "reply_to_session_id"],
];
const OWN = ["DeadLetterReason", "DeadLetterErrorDescription"];

function startOf(row) {
  const data = row.body === undefined ? new Uint8Array() : fromBase64(row.body);
  return {
    text: asText(data) ?? "",
    file: asText(data) === null ? { name: "the copied body", data } : null,
    id: "",
    type: row.content_type ?? (row.body === undefined ? "application/json" : ""),
    fields: Object.fromEntries(FIELDS.map(([name, , column]) => [name, row[column] ?? ""])),
    properties: Object.entries(row.properties ?? {}).filter(([name]) => !OWN.includes(name)).map(([name, value]) => ({ name, value, type: "string" })),
    ttl: "",
    due: "",
    copies: "1",
  };
}

function typed({ value, type, name }) {
  if (type === "boolean") return value === "true";
  if (type !== "number") return value;
  if (value.trim() === "" || !Number.isFinite(Number(value))) throw new Error(`The property ${name} is not a number.`);
  return Number(value);
}

/** A message as the JSON form of the send API has it. */
function messageOf(form, number) {
  const broker = { MessageId: form.id ? (number ? `${form.id}-${number}` : form.id) : crypto.randomUUID() };
  for (const [name] of FIELDS) if (form.fields[name]) broker[name] = form.fields[name];
  if (form.type) broker.ContentType = form.type;
  if (form.ttl) broker.TimeToLive = Number(form.ttl);
  if (form.due) broker.ScheduledEnqueueTimeUtc = new Date(form.due).toUTCString();
  const data = form.file ? form.file.data : new TextEncoder().encode(form.text);
  return {
    Body: toBase64(data),
    IsBodyBase64: true,
    BrokerProperties: broker,
    UserProperties: Object.fromEntries(form.properties.filter((each) => each.name).map((each) => [each.name, typed(each)])),
  };
}

export function PropertyRows({ rows, onChange }) {
  const set = (at, change) => onChange(rows.map((row, n) => (n === at ? { ...row, ...change } : row)));
  return html`
    <div class="properties">
      ${rows.map(
        (row, at) => html`
          <input aria-label=${`Property ${at + 1}, name`} placeholder="name" value=${row.name} onInput=${(e) => set(at, { name: e.target.value })} />
          <input aria-label=${`Property ${at + 1}, value`} placeholder="value" value=${row.value} onInput=${(e) => set(at, { value: e.target.value })} />
          <select aria-label=${`Property ${at + 1}, type`} onChange=${(e) => set(at, { type: e.target.value })}>
            ${["string", "number", "boolean"].map((type) => html`<option value=${type} selected=${type === row.type}>${type}</option>`)}
          </select>
          <button type="button" class="plain square" aria-label=${`Remove property ${at + 1}`} onClick=${() => onChange(rows.filter((_, n) => n !== at))}><${Icon} name="close" /></button>
        `,
      )}
    </div>
    <button type="button" class="small" onClick=${() => onChange([...rows, { name: "", value: "", type: "string" }])}><${Icon} name="plus" />Add property</button>
  `;
}

export function Send({ path, copy, values, onClose }) {
  const [form, setForm] = useState(() => startOf(copy));
  const [sent, setSent] = useState(0);
  const { busy, error, run } = useWork();
  const set = (change) => setForm({ ...form, ...change });
  const copies = Number(form.copies) || 1;
  const attach = async (event) => {
    const file = event.target.files[0];
    if (file) set({ file: { name: file.name, data: new Uint8Array(await file.arrayBuffer()) }, type: file.type });
  };
  const go = (event) => {
    event.preventDefault();
    run(async () => {
      for (let number = 0; number < copies; number += 1) {
        const body = JSON.stringify([messageOf(form, copies > 1 ? number + 1 : 0)]);
        await call("POST", `/${path.split("/").map(encodeURIComponent).join("/")}/messages`, { headers: { "Content-Type": TYPE }, body });
        setSent(number + 1);
      }
      note(form.due ? `Scheduled ${count(copies)} for ${path}.` : `Sent ${count(copies)} to ${path}.`);
      onClose();
    });
  };
  const input = (label, name, type = "text", more = {}) => html`
    <${Field} label=${label} hint=${more.hint}><input name=${name} type=${type} step=${more.step} min=${more.min} max=${more.max} required=${more.required} value=${form[name]} onInput=${(e) => set({ [name]: e.target.value })} /><//>
  `;
  return html`
    <${Dialog} title=${`Send to ${path}`} wide onClose=${onClose}>
      <form onSubmit=${go} autocomplete="off">
        ${form.file
          ? html`<div class="tools"><strong>${form.file.name}</strong><span class="muted">${bytes(form.file.data.length)}</span><button type="button" class="small" onClick=${() => set({ file: null })}>Write a text instead</button></div>`
          : html`<${Field} label="Body"><textarea name="text" rows="8" value=${form.text} onInput=${(e) => set({ text: e.target.value })} spellcheck="false" autofocus></textarea><//>`}
        <div class="grid2">
          <${Field} label="Or a file"><input type="file" name="file" onChange=${attach} /><//>
          ${input("Content type", "type")}
          ${FIELDS.slice(0, 2).map(([name, label]) => html`<${Field} label=${label}>
            <input name=${name} required=${name === "SessionId" && values?.RequiresSession === "true"} value=${form.fields[name]} onInput=${(e) => set({ fields: { ...form.fields, [name]: e.target.value } })} />
          <//>`)}
        </div>
        <fieldset><legend>Application properties</legend><${PropertyRows} rows=${form.properties} onChange=${(properties) => set({ properties })} /></fieldset>
        <details open=${Boolean(form.due || form.ttl)}>
          <summary>More: id, keys, time to live, schedule</summary>
          <div class="grid2">
            ${input("Message id", "id", "text", { hint: "Empty: a new one." })}
            ${FIELDS.slice(2).map(([name, label]) => html`<${Field} label=${label}><input name=${name} value=${form.fields[name]} onInput=${(e) => set({ fields: { ...form.fields, [name]: e.target.value } })} /><//>`)}
            ${input("Time to live, in seconds", "ttl", "number", { min: "0.001", step: "any" })}
            ${input("Deliver at", "due", "datetime-local", { step: "1" })}
          </div>
        </details>
        ${busy && copies > 1 && html`<${Progress} done=${sent} all=${copies} label=${`${count(sent)} of ${count(copies)} sent`} />`}
        <${Problem}>${error}<//>
        <footer>
          <label class="left">Copies <input type="number" name="copies" class="narrow" min="1" max="1000" value=${form.copies} onInput=${(e) => set({ copies: e.target.value })} /></label>
          <button type="button" onClick=${onClose}>Cancel</button>
          <button class="primary" disabled=${busy}><${Icon} name="send" />${form.due ? "Schedule" : "Send"}</button>
        </footer>
      </form>
    <//>
  `;
}
