// One queue, topic or subscription: what it is, what it holds, and everything that can be done with it.
import { html, useEffect, useState } from "../html.js";
import { describe, putEntity, remove } from "../atom.js";
import { age, bytes, count, moment, rate, short } from "../format.js";
import { propertiesOf } from "../properties.js";
import { figures, history, watch } from "../live.js";
import { may, note, session, useValue } from "../state.js";
import { Badge, Card, Confirm, Empty, Figure, Icon, Meter, Page, Problem, Tabs, durationText, useRead, useWork } from "../ui.js";
import { Access } from "./access.js";
import { PropertyForm } from "./create.js";
import { Cursors } from "./cursors.js";
import { address } from "./entities.js";
import { Messages } from "./messages.js";
import { Partitions } from "./partitions.js";
import { Rules } from "./rules.js";
import { Send } from "./send.js";
import { Sessions } from "./sessions.js";
import { Subscriptions } from "./subscriptions.js";

function parts(path) {
  const found = /^(.*)\/subscriptions\/([^/]+)$/i.exec(path);
  return found ? { topic: found[1], name: found[2] } : { topic: "", name: path };
}

export function EntityPage({ path, tab, rest }) {
  const frame = useValue(figures);
  const [sending, setSending] = useState(null);
  const [deleting, setDeleting] = useState(false);
  const { topic, name } = parts(path);
  useEffect(() => watch(path), [path]);
  const described = useRead(() => (may("Manage") ? describe(path) : Promise.resolve(null)), path);
  const live = frame?.byPath.get(path.toLowerCase());
  if (!frame) return html`<${Page} title=${name}><${Empty} title="Listening to the bus…" /><//>`;
  if (!live && !deleting) {
    return html`<${Page} title=${name}><${Empty} title="There is no such queue, topic or subscription"><a href="#/entities">See all</a><//><//>`;
  }
  if (!live) return null;
  const { kind } = live;
  const values = described.value?.values;
  const tabs = [
    ["overview", "Overview"],
    (kind !== "topic" || may("Listen")) && ["messages", "Messages", live.total ? short(live.total) : ""],
    kind === "topic" && ["subscriptions", "Subscriptions", String(subscriptionsOf(frame, path).length)],
    kind === "subscription" && may("Manage") && ["rules", "Rules"],
    values?.RequiresSession === "true" && may("Listen") && ["sessions", "Sessions"],
    may("Listen") && ["cursors", "Cursors"],
    kind !== "subscription" && may("Manage") && ["access", "Access"],
    may("Manage") && ["properties", "Properties"],
  ].filter(Boolean);
  const body = {
    overview: () => html`<${Summary} live=${live} frame=${frame} path=${path} values=${values} />`,
    messages: () => html`<${Messages} key=${rest[0]} path=${path} kind=${kind} live=${live} start=${rest[0]} onSend=${setSending} />`,
    subscriptions: () => html`<${Subscriptions} topic=${path} frame=${frame} />`,
    rules: () => html`<${Rules} path=${path} topic=${topic} />`,
    sessions: () => html`<${Sessions} path=${path} />`,
    cursors: () => html`<${Cursors} path=${path} kind=${kind} />`,
    access: () => described.value && html`<${Access} described=${described.value} onChanged=${described.again} />`,
    properties: () => described.value && html`<${Properties} key=${values.UpdatedAt} described=${described.value} live=${live} onChanged=${described.again} />`,
  }[tab];
  const target = kind === "subscription" ? topic : path;
  return html`
    <${Page} title=${name}
      back=${topic ? html`<a href="#/entities">Queues and topics</a> / <a href=${address(topic, "subscriptions")}>${topic}</a>` : html`<a href="#/entities">Queues and topics</a>`}
      sub=${html`<${Badge} kind="accent">${kind}<//>
        ${live.partitions > 1 && html`<${Badge}>${live.partitions} partitions<//>`}
        ${live.away ? html`<${Badge} kind="bad">${live.away} partitions away<//>` : ""}
        ${values && values.Status !== "Active" && html`<${Badge} kind="warn">${values.Status}<//>`}
        ${values?.RequiresSession === "true" && html`<${Badge}>sessions<//>`}
        ${values?.RequiresDuplicateDetection === "true" && html`<${Badge}>duplicates detected<//>`}`}
      actions=${html`
        ${may("Manage") && html`<button type="button" onClick=${() => setDeleting(true)}>Delete</button>`}
        ${may("Send") && html`<button type="button" class="primary" onClick=${() => setSending({})}><${Icon} name="send" />Send message</button>`}
      `}>
      <${Tabs} tabs=${tabs} current=${tab} href=${(id) => address(path, id)} />
      <${Problem}>${described.error}<//>
      ${body ? body() : html`<${Empty} title="There is nothing here" />`}
      ${sending && html`<${Send} path=${target} copy=${sending} values=${values} onClose=${() => setSending(null)} />`}
      ${deleting && html`<${Confirm} title=${`Delete ${name}`} verb=${`Delete ${kind}`} confirm=${name}
        text=${`The ${kind} and its ${count(live.total)} messages will be gone.`}
        work=${() => remove(path)} onClose=${() => setDeleting(false)}
        onDone=${() => {
          note(`Deleted ${path}.`);
          location.hash = topic ? address(topic, "subscriptions") : "#/entities";
        }} />`}
    <//>
  `;
}

export const subscriptionsOf = (frame, topic) =>
  frame.entities.filter((each) => each.kind === "subscription" && each.path.toLowerCase().startsWith(`${topic.toLowerCase()}/subscriptions/`));

function Summary({ live, frame, path, values }) {
  const holds = live.kind !== "topic";
  return html`
    <div class="figures">
      <${Figure} label="Incoming" value=${rate(live.rates.in)} unit="msg/s" values=${history(path, "in")} />
      <${Figure} label="Outgoing" value=${rate(live.rates.out)} unit="msg/s" values=${history(path, "out")} kind="good" />
      ${holds && html`<${Figure} label="Active" value=${short(live.active)} values=${history(path, "active")} href=${address(path, "messages", "active")} />`}
      ${holds && html`<${Figure} label="Dead-lettered" value=${short(live.dead_letter)} kind=${live.dead_letter ? "bad" : ""} values=${history(path, "dead_letter")} href=${address(path, "messages", "dead-lettered")} />`}
      <${Figure} label="Scheduled" value=${short(live.scheduled)} href=${live.kind === "subscription" ? undefined : address(path, "messages", "scheduled")} />
      ${holds && html`<${Figure} label="Deferred" value=${short(live.deferred)} href=${address(path, "messages", "deferred")} />`}
      ${holds && html`<${Figure} label="Oldest message" value=${live.oldest_ms ? age(frame.clock_ms - live.oldest_ms) : "–"} />`}
    </div>
    ${live.kind !== "subscription" && html`<${Space} live=${live} values=${values} />`}
    ${frame.focus && html`<${Partitions} focus=${frame.focus} stores=${frame.stores} live=${live} />`}
    ${values && html`<${Description} kind=${live.kind} values=${values} />`}
  `;
}

function Space({ live, values }) {
  const each = live.max_bytes / live.partitions;
  const chosen = values ? Number(values.MaxSizeInMegabytes) * 1024 * 1024 : live.max_bytes;
  return html`
    <${Card} title="Maximum size" aside=${html`<span>${bytes(live.size_bytes)} used</span>`}>
      <strong class="max-size">${bytes(chosen)}</strong>
      <span class="muted"> ${live.partitions > 1 ? `${live.partitions} partitions of ${bytes(each)}` : "one partition"}</span>
      <${Meter} value=${live.size_bytes} most=${live.max_bytes} label="Space used" />
    <//>
  `;
}

const TIMES = [["CreatedAt", "Created"], ["UpdatedAt", "Changed"], ["AccessedAt", "Last used"]];

function Description({ kind, values }) {
  const shown = propertiesOf(kind).filter((each) => each.group !== "Size" && values[each.name] !== undefined && values[each.name] !== "");
  return html`
    <${Card} title="Description" aside=${html`<span>${TIMES.map(([name, label]) => values[name] && `${label} ${moment(values[name])}`).filter(Boolean).join(" · ")}</span>`}>
      <dl class="facts">
        ${shown.map((each) => html`<div><dt>${each.label}</dt><dd>${valueText(each, values[each.name])}</dd></div>`)}
      </dl>
    <//>
  `;
}

function valueText({ shape }, value) {
  if (shape === "boolean") return value === "true" ? "yes" : "no";
  return shape === "duration" ? durationText(value) : value;
}

function Properties({ described, live, onChanged }) {
  const { tier } = session.value;
  const { kind, path } = described;
  const [values, setValues] = useState(() => editable(described, live));
  const { busy, error, run } = useWork();
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      await putEntity(path, kind, values, { access: kind === "subscription" ? undefined : described.access, update: true });
      note(`Saved ${path}.`);
      onChanged();
    });
  };
  return html`
    <form onSubmit=${save} class="stack">
      <${PropertyForm} kind=${kind} values=${values} setValues=${setValues} tier=${tier} editing />
      <${Problem}>${error}<//>
      <div class="tools"><button class="primary" disabled=${busy}>Save changes</button></div>
    </form>
  `;
}

/** What can be set, from what is there: the size as it was chosen, not as it adds up over the partitions. */
function editable({ kind, values }, live) {
  const own = Object.fromEntries(propertiesOf(kind).map((each) => [each.name, values[each.name] ?? ""]));
  if (kind !== "subscription") {
    const chosen = Number(values.MaxSizeInMegabytes);
    own.MaxSizeInMegabytes = String(session.value.tier.always_partitioned ? chosen : chosen / live.partitions);
  }
  for (const name of ["ForwardTo", "ForwardDeadLetteredMessagesTo"]) {
    if (own[name]) own[name] = own[name].replace(/^[a-z]+:\/\/[^/]+\//i, "");
  }
  return own;
}
