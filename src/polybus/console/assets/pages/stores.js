// The messaging stores of this node.
import { html } from "../html.js";
import { age, bytes, count, short } from "../format.js";
import { figures } from "../live.js";
import { session, useValue } from "../state.js";
import { Badge, Card, Empty, Page } from "../ui.js";

export const StoreState = ({ store }) => {
  if (!store.available) return html`<${Badge} kind="bad">${store.state}<//>`;
  if (store.full) return html`<${Badge} kind="bad">full<//>`;
  return html`<${Badge} kind="good">${store.state}<//>${store.unsafe ? html` <${Badge} kind="warn">unsafe<//>` : ""}`;
};

export const StoreTable = ({ stores }) => html`
  <table>
    <thead><tr>
      <th scope="col">Store</th><th scope="col">State</th><th class="right" scope="col">Partitions</th><th class="right wide-only" scope="col">Commits</th>
      <th class="right wide-only" scope="col">Written</th><th class="right wide-only" scope="col">Failed commits</th><th class="right" scope="col">Free</th>
    </tr></thead>
    <tbody>
      ${stores.map(
        (store) => html`
          <tr key=${store.store}>
            <td class="name">${store.store}${store.url && html` <span class="muted mono wide-only">${store.url}</span>`}</td>
            <td><${StoreState} store=${store} />${store.last_error && !store.available ? html`<div class="hint">${store.last_error}</div>` : ""}</td>
            <td class="right">${count(store.partitions)}</td>
            <td class="right wide-only">${short(store.commits)}</td>
            <td class="right wide-only">${bytes(store.committed_bytes)}</td>
            <td class=${`right wide-only ${store.commit_failures ? "bad-text" : ""}`}>${count(store.commit_failures)}</td>
            <td class="right nowrap">${store.free_bytes === null ? "–" : bytes(store.free_bytes)}</td>
          </tr>
        `,
      )}
    </tbody>
  </table>
`;

/** The process that serves the page: one node with all its stores. */
export const NodeFacts = ({ frame }) => {
  const up = frame.stores.filter((each) => each.available).length;
  return html`
    <dl class="facts">
      <div><dt>Health</dt><dd>${up === frame.stores.length ? html`<${Badge} kind="good">healthy<//>` : html`<${Badge} kind=${up ? "warn" : "bad"}>${up ? "degraded" : "down"}<//>`}</dd></div>
      <div><dt>Stores that work</dt><dd>${up} of ${frame.stores.length}</dd></div>
      <div><dt>Running for</dt><dd>${age(frame.node.uptime_s * 1000)}</dd></div>
      <div><dt>Processor</dt><dd>${frame.node.cpu === null ? "–" : `${Math.round(frame.node.cpu * 100)} % of a core`}</dd></div>
      <div><dt>Memory</dt><dd>${bytes(frame.node.resident_bytes)}</dd></div>
      <div><dt>Version</dt><dd>${session.value.version} (${session.value.build})</dd></div>
    </dl>
  `;
};

export function Stores() {
  const frame = useValue(figures);
  if (!frame) return html`<${Page} title="Node and stores"><${Empty} title="Listening to the bus…" /><//>`;
  return html`
    <${Page} title="Node and stores" sub="Every partition lies in one messaging store; what is accepted is synced there first.">
      <${Card} title="Node"><${NodeFacts} frame=${frame} /><//>
      <${Card} title="Messaging stores" flush><${StoreTable} stores=${frame.stores} /><//>
      <div class="figures">
        <div class="figure"><span class="label">Sends taken over by another partition</span><span class="value">${short(frame.rerouted)}</span></div>
        <div class="figure"><span class="label">Sends that no partition could take</span><span class="value">${short(frame.refused)}</span></div>
      </div>
    <//>
  `;
}
