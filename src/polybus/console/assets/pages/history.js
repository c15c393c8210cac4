// What happened to one message, wherever it went: the events that its entities keep.
import { html } from "../html.js";
import { bulk, json } from "../api.js";
import { moment } from "../format.js";
import { may, note } from "../state.js";
import { Problem, useRead, useWork } from "../ui.js";

/** Newest last, as it happened; the same words as `polybus trace`. */
const Trail = ({ steps, number }) => html`
  <table aria-label="History">
    <thead><tr><th scope="col">Time</th><th scope="col">Entity</th><th scope="col">Change</th><th scope="col">Reason</th><th scope="col" class="right">Deliveries</th></tr></thead>
    <tbody>${steps.map((each) => html`
      <tr class=${String(each.sequence_number) === String(number) ? "" : "muted"}>
        <td class="nowrap">${moment(each.time)}</td>
        <td class="cut">${each.entity}</td>
        <td>${each.change}</td>
        <td class="cut">${each.reason ?? ""}</td>
        <td class="right">${each.delivery_count}</td>
      </tr>`)}
    </tbody>
  </table>
`;

export function History({ path, row }) {
  if (!may("Manage")) return null;
  return html`<section><h3>History</h3><${Found} path=${path} row=${row} /></section>`;
}

function Found({ path, row }) {
  const { value, error, again } = useRead((signal) => json("GET", `/$polybus/trace?message_id=${encodeURIComponent(row.message_id)}`, undefined, { signal }), row.message_id);
  const { busy, error: refused, run } = useWork();
  const keep = () =>
    run(async () => {
      await json("PUT", bulk(path, "events"), { enabled: true });
      note("Events are kept from now on.");
      again();
    });
  const silent = value?.without_events.some((each) => each.toLowerCase() === path.toLowerCase());
  return html`
    <${Problem}>${error || refused}<//>
    ${value?.trail.length > 0 && html`<${Trail} steps=${value.trail} number=${row.sequence_number} />`}
    ${silent && html`<p class="muted">This entity keeps no events, so what happened before is not known.
      <button type="button" class="small" disabled=${busy} onClick=${keep}>Keep events from now on</button></p>`}
    ${value && !silent && !value.trail.length && html`<p class="muted">Nothing has been noted of it: it is older than the events.</p>`}
    ${value?.unreachable.length > 0 && html`<p class="muted">Some partitions could not be asked.</p>`}
  `;
}
