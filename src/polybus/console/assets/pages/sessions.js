// The sessions of an entity: what each holds, who has it, and its state.
import { html, useState } from "../html.js";
import { bulk, json } from "../api.js";
import { bytes, count, fromBase64, moment } from "../format.js";
import { Badge, Card, Dialog, Empty, Problem, useRead } from "../ui.js";
import { Body } from "./inspect.js";

/** What the receivers of a session have left in it, as JSON, text or hex. */
function State({ path, session, onClose }) {
  const { value, error } = useRead((signal) => json("GET", bulk(path, `sessions/${encodeURIComponent(session)}/state`), undefined, { signal }), `${path} ${session}`);
  return html`
    <${Dialog} title=${`State of ${session}`} side onClose=${onClose}>
      <div class="inside">
        <${Problem}>${error}<//>
        ${value && (value.state_base64 === null ? html`<p class="muted">It has no state any more.</p>` : html`<${Body} data=${fromBase64(value.state_base64)} />`)}
      </div>
    <//>
  `;
}

export function Sessions({ path }) {
  const [pages, setPages] = useState([""]);
  const [open, setOpen] = useState(null);
  const after = pages[pages.length - 1];
  const query = after ? `?after=${encodeURIComponent(after)}` : "";
  const { value, error, again } = useRead((signal) => json("GET", `${bulk(path, "sessions")}${query}`, undefined, { signal }), `${path} ${after}`);
  return html`
    <div class="tools"><button type="button" onClick=${again}>Refresh</button></div>
    <${Problem}>${error}<//>
    ${value?.unreachable.length > 0 && html`<div class="banner">${value.unreachable.length} partitions cannot be reached: their sessions are not shown.</div>`}
    <${Card} flush label="Sessions">
      ${value && (value.sessions.length
        ? html`<table>
            <thead><tr><th scope="col">Session</th><th scope="col" class="right">Messages</th><th scope="col">Holder</th><th scope="col" class="wide-only">Locked until</th><th scope="col" class="right">State</th><th scope="col" class="wide-only">State changed</th><th scope="col" class="right wide-only">Partition</th></tr></thead>
            <tbody>${value.sessions.map((each) => html`
              <tr key=${each.session_id}>
                <td class="name">${each.session_id}</td>
                <td class="right">${count(each.messages)}</td>
                <td>${each.holder ? html`<${Badge} kind="accent">held<//> ${each.holder}` : each.locked_until ? html`<${Badge} kind="accent">held<//>` : html`<span class="muted">nobody</span>`}</td>
                <td class="wide-only nowrap">${each.locked_until ? moment(each.locked_until) : ""}</td>
                <td class="right">${each.state_bytes ? html`<button type="button" class="link" aria-label=${`State of ${each.session_id}`} onClick=${() => setOpen(each.session_id)}>${bytes(each.state_bytes)}</button>` : "–"}</td>
                <td class="wide-only nowrap">${each.state_updated_at ? moment(each.state_updated_at) : ""}</td>
                <td class="right wide-only">${each.partition}</td>
              </tr>`)}
            </tbody>
          </table>`
        : html`<${Empty} title="No sessions">None has messages, a state or a holder.<//>`)}
    <//>
    <div class="tools">
      <button type="button" disabled=${pages.length < 2} onClick=${() => setPages(pages.slice(0, -1))}>Back</button>
      <button type="button" disabled=${!value?.next} onClick=${() => setPages([...pages, value.next])}>Next</button>
    </div>
    ${open && html`<${State} path=${path} session=${open} onClose=${() => setOpen(null)} />`}
  `;
}
