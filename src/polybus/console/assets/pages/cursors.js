// The cursors on an entity's log: who reads it, and how far behind.
import { html, useState } from "../html.js";
import { bulk, json } from "../api.js";
import { count, moment, short } from "../format.js";
import { may, note } from "../state.js";
import { Badge, Card, Confirm, Empty, Problem, useRead } from "../ui.js";
import { address } from "./entities.js";

export const CursorTable = ({ cursors, onDelete, withEntity }) => html`
  <table>
    <thead><tr>
      <th scope="col">Cursor</th>${withEntity && html`<th scope="col">Entity</th>`}<th scope="col" class="right">Lag</th><th scope="col">Holder</th>
      <th scope="col" class="wide-only">Lost</th><th scope="col" class="wide-only">Since</th>${onDelete && html`<th scope="col"><span class="visually-hidden">Delete</span></th>`}
    </tr></thead>
    <tbody>${cursors.map((each) => html`
      <tr key=${`${each.entity}/${each.name}`}>
        <td class="name">${each.name}</td>
        ${withEntity && html`<td><a href=${address(each.entity, "cursors")}>${each.entity}</a></td>`}
        <td class="right">${each.lag_messages === undefined ? "–" : html`<strong>${short(each.lag_messages)}</strong> messages`}</td>
        <td>${each.lease ? html`<${Badge} kind="good">running<//> ${each.lease.holder}` : html`<span class="muted">nobody</span>`}</td>
        <td class="wide-only">${Object.keys(each.truncated).length ? html`<${Badge} kind="bad">${count(Object.keys(each.truncated).length)} partitions truncated<//>` : "nothing"}</td>
        <td class="wide-only nowrap">${moment(each.created_at)}</td>
        ${onDelete && html`<td class="right"><button type="button" class="small" aria-label=${`Delete ${each.name}`} onClick=${() => onDelete(each)}>Delete</button></td>`}
      </tr>`)}
    </tbody>
  </table>
`;

export function Cursors({ path, kind }) {
  const { value, error, again } = useRead((signal) => json("GET", bulk(path, "cursors"), undefined, { signal }), path);
  const [deleting, setDeleting] = useState(null);
  return html`
    <div class="tools"><button type="button" onClick=${again}>Refresh</button></div>
    <${Problem}>${error}<//>
    <${Card} flush label="Cursors">
      ${value && (value.cursors.length
        ? html`<${CursorTable} cursors=${value.cursors} onDelete=${may("Listen") && setDeleting} />`
        : html`<${Empty} title="No cursors">Pipelines and Spark queries that read this ${kind} have one each; it keeps what they have not read yet.<//>`)}
    <//>
    ${deleting && html`<${Confirm} title=${`Delete the cursor ${deleting.name}`} verb="Delete cursor" confirm=${deleting.name}
      text="What is kept for it alone will be gone, and its reader begins anew."
      work=${() => json("DELETE", `${bulk(path, "cursors")}/${encodeURIComponent(deleting.name)}${deleting.lease ? "?force=true" : ""}`)}
      onClose=${() => setDeleting(null)} onDone=${() => {
        note(`Deleted the cursor ${deleting.name}.`);
        setDeleting(null);
        again();
      }} />`}
  `;
}
