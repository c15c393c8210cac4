// The partitions of an entity over the messaging stores, coloured by what they hold or by what comes in.
import { html, useState } from "../html.js";
import { bytes, count, rate, short } from "../format.js";
import { Badge, Card, Choice } from "../ui.js";
import { StoreState } from "./stores.js";

const MEASURES = {
  messages: [(each) => each.counts.total, short, "messages"],
  rate: [(each) => each.rate ?? 0, rate, "msg/s"],
  size: [(each) => each.counts.size_bytes, bytes, "used"],
};

/** How far the fullest partition is above the average: 1 is perfectly even. */
function skewOf(values) {
  const sum = values.reduce((a, b) => a + b, 0);
  return sum ? (Math.max(...values) * values.length) / sum : null;
}

/** How a partition stands to the average: colours say what is hot, not how much there is in all. */
function heatOf(value, average) {
  if (!value) return "h0";
  const share = value / average;
  return share < 0.6 ? "h1" : share < 1.3 ? "h2" : share < 2 ? "h3" : "h4";
}

export function Partitions({ focus, stores, live }) {
  const [by, setBy] = useState("messages");
  const [value, text, unit] = MEASURES[by];
  const here = focus.partitions.filter((each) => each.available);
  const average = here.reduce((sum, each) => sum + value(each), 0) / (here.length || 1);
  const skew = skewOf(here.map(value));
  const rows = stores.map((store) => [store, focus.partitions.filter((each) => each.store_number === store.store)]).filter(([, list]) => list.length);
  const lost = focus.partitions.filter((each) => each.store_number === null);
  const heat = (each) => (each.available ? heatOf(value(each), average) : "away");
  const cell = (each) => html`
    <div class=${`cell ${heat(each)}`} key=${each.index} title=${`Partition ${each.index}: ${count(each.counts.active)} active, ${count(each.counts.dead_letter)} dead, ${count(each.counts.scheduled)} scheduled`}>
      <span class="muted">p${each.index}</span>
      <b>${each.available ? text(value(each)) : "away"}</b>
    </div>
  `;
  const aside = html`
    ${live.partitions > 1 && skew !== null && html`<span>skew <strong>${skew.toFixed(2)}</strong></span>`}
    <${Choice} label="Colour by" value=${by} onChange=${setBy} options=${[["messages", "Messages"], ["rate", "Rate"], ["size", "Size"]]} />
  `;
  return html`
    <${Card} title=${live.partitions > 1 ? "Partitions over stores" : "Partition"} aside=${aside}>
      <div class="heat">
        ${rows.map(
          ([store, list]) => html`
            <div class="row" key=${store.store}>
              <div class="store-name" title=${store.url ?? ""}>store ${store.store} <${StoreState} store=${store} /></div>
              <div class="cells">${list.map(cell)}</div>
            </div>
          `,
        )}
        ${lost.length > 0 && html`<div class="row"><div class="store-name">no store <${Badge} kind="bad">missing<//></div><div class="cells">${lost.map(cell)}</div></div>`}
      </div>
      <div class="legend">
        <span>Darker: more than the average, in ${unit}.</span>
        <span>${here.length} of ${focus.partitions.length} partitions can be reached.</span>
        ${live.partitions > 1 && html`<span>Skew is the fullest partition over the average; 1 is even.</span>`}
      </div>
    <//>
  `;
}
