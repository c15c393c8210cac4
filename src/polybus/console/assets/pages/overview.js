// How the bus is, at a glance: what flows, what lies, what is wrong.
import { html } from "../html.js";
import { age, count, rate, short } from "../format.js";
import { figures, history } from "../live.js";
import { useValue } from "../state.js";
import { Badge, Card, Empty, Figure, Page } from "../ui.js";
import { address, EntityTable } from "./entities.js";
import { NodeFacts, StoreTable } from "./stores.js";

export function Overview() {
  const frame = useValue(figures);
  if (!frame) return html`<${Page} title="Overview"><${Empty} title="Listening to the bus…" /><//>`;
  const { total, entities } = frame;
  const oldest = entities.map((each) => each.oldest_ms).filter(Boolean);
  const oldestAge = oldest.length ? frame.clock_ms - Math.min(...oldest) : null;
  const busiest = [...entities].filter((each) => each.kind !== "topic").sort(byWeight).slice(0, 8);
  return html`
    <${Page} title="Overview">
      <div class="figures">
        <${Figure} label="Incoming" value=${rate(total.rates.in)} unit="msg/s" values=${history("", "in")} />
        <${Figure} label="Outgoing" value=${rate(total.rates.out)} unit="msg/s" values=${history("", "out")} kind="good" />
        <${Figure} label="Backlog" value=${short(total.active)} unit="messages" values=${history("", "active")} />
        <${Figure} label="Dead letters" value=${short(total.dead_letter)} values=${history("", "dead_letter")} kind=${total.dead_letter ? "bad" : ""} />
        <${Figure} label="Oldest message" value=${oldestAge === null ? "–" : age(oldestAge)} />
        <${Figure} label="Connections" value=${count(frame.connections)} unit="AMQP" />
      </div>
      <${Problems} frame=${frame} />
      <${Card} title="Busiest queues and subscriptions" flush aside=${html`<a href="#/entities">All entities</a>`}>
        ${busiest.length ? html`<${EntityTable} entities=${busiest} />` : html`<${Empty} title="No queues or topics yet"><a href="#/entities">Create the first one</a><//>`}
      <//>
      <${Card} title="Node"><${NodeFacts} frame=${frame} /><//>
      <${Card} title="Messaging stores" flush><${StoreTable} stores=${frame.stores} /><//>
    <//>
  `;
}

const byWeight = (a, b) => (b.rates.in ?? 0) + (b.rates.out ?? 0) - (a.rates.in ?? 0) - (a.rates.out ?? 0) || b.active - a.active;

function Problems({ frame }) {
  const found = [];
  for (const store of frame.stores) {
    if (!store.available) found.push(["bad", "store", html`<a href="#/stores">Store ${store.store}</a> is ${store.state}. ${store.last_error ?? ""}`]);
    else if (store.full) found.push(["bad", "store", html`<a href="#/stores">Store ${store.store}</a> is full: it takes no sends.`]);
  }
  for (const each of frame.entities) {
    if (each.away) found.push(["warn", "partitions", html`<a href=${address(each.path)}>${each.path}</a> has ${each.away} of ${each.partitions} partitions away; the others go on.`]);
    if (each.dead_letter) found.push(["warn", "dead letters", html`<a href=${address(each.path, "messages", "dead-lettered")}>${each.path}</a> has ${count(each.dead_letter)} dead ${each.dead_letter === 1 ? "letter" : "letters"}.`]);
  }
  if (!found.length) return null;
  return html`
    <${Card} title="Needs attention" aside=${found.length > 8 ? `${count(found.length)} in all` : ""}>
      <ul class="problems">${found.slice(0, 8).map(([kind, label, text]) => html`<li><${Badge} kind=${kind}>${label}<//> <span>${text}</span></li>`)}</ul>
    <//>
  `;
}
