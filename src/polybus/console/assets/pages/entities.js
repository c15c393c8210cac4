// All queues and topics, and the way to new ones.
import { html, useState } from "../html.js";
import { download } from "../api.js";
import { age, bytes, rate, short } from "../format.js";
import { figures, history } from "../live.js";
import { may, note, session, useValue } from "../state.js";
import { Badge, Card, Choice, Empty, Icon, Meter, Page, Sparkline } from "../ui.js";
import { CreateEntity } from "./create.js";

/** The address of an entity's page, of one of its tabs, and of what is open there. */
export const address = (path, ...rest) => `#/entity/${[path, ...rest].map(encodeURIComponent).join("/")}`;

const COLUMNS = [
  ["path", "Name", ""],
  ["active", "Active", "right"],
  ["dead_letter", "Dead", "right"],
  ["scheduled", "Scheduled", "right wide-only"],
  ["deferred", "Deferred", "right wide-only"],
  ["in", "In /s", "right"],
  ["out", "Out /s", "right"],
  ["oldest_ms", "Oldest", "right wide-only"],
];

function valueOf(entity, column) {
  if (column === "in" || column === "out") return entity.rates[column] ?? 0;
  if (column === "oldest_ms") return entity.oldest_ms ? -entity.oldest_ms : -Infinity;
  return column === "path" ? entity.path.toLowerCase() : entity[column];
}

export function EntityTable({ entities, sortable }) {
  const [sort, setSort] = useState(["path", 1]);
  const frame = useValue(figures);
  const shown = sortable
    ? [...entities].sort((a, b) => {
        const [x, y] = [valueOf(a, sort[0]), valueOf(b, sort[0])];
        return (x < y ? -1 : x > y ? 1 : 0) * sort[1];
      })
    : entities;
  const turn = (column) => setSort(sort[0] === column ? [column, -sort[1]] : [column, column === "path" ? 1 : -1]);
  const head = ([column, text, kind]) => html`
    <th class=${kind} scope="col" aria-sort=${sortable && sort[0] === column ? (sort[1] > 0 ? "ascending" : "descending") : undefined}>
      ${sortable ? html`<button type="button" class="sort" onClick=${() => turn(column)}>${text}${sort[0] === column ? (sort[1] > 0 ? " ↑" : " ↓") : ""}</button>` : text}
    </th>
  `;
  return html`
    <table>
      <thead><tr>${COLUMNS.map(head)}<th class="wide-only" scope="col">Backlog</th><th class="wide-only" scope="col">Size</th></tr></thead>
      <tbody>
        ${shown.map(
          (each) => html`
            <tr key=${each.path}>
              <td class="name"><a href=${address(each.path)}>${each.path}</a> <${Kind} entity=${each} /></td>
              <td class="right">${each.kind === "topic" ? "–" : short(each.active)}</td>
              <td class=${`right ${each.dead_letter ? "bad-text" : ""}`}>${each.kind === "topic" ? "–" : short(each.dead_letter)}</td>
              <td class="right wide-only">${short(each.scheduled)}</td>
              <td class="right wide-only">${each.kind === "topic" ? "–" : short(each.deferred)}</td>
              <td class="right">${rate(each.rates.in)}</td>
              <td class="right">${rate(each.rates.out)}</td>
              <td class="right wide-only nowrap">${each.oldest_ms ? age(frame.clock_ms - each.oldest_ms) : "–"}</td>
              <td class="wide-only">${each.kind !== "topic" && html`<${Sparkline} values=${history(each.path, "active")} />`}</td>
              <td class="wide-only">${each.max_bytes && html`<small class="muted nowrap">${bytes(each.size_bytes)} of ${bytes(each.max_bytes)}</small><${Meter} value=${each.size_bytes} most=${each.max_bytes} label=${`Space used by ${each.path}`} />`}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

const Kind = ({ entity }) => html`
  ${entity.kind !== "queue" && html`<${Badge} kind=${entity.kind === "topic" ? "accent" : ""}>${entity.kind}<//>`}
  ${entity.partitions > 1 && html` <${Badge}>${entity.partitions} partitions<//>`}
  ${entity.away ? html` <${Badge} kind="bad">${entity.away} away<//>` : ""}
`;

export function Entities() {
  const frame = useValue(figures);
  const { tier, entity: only } = useValue(session);
  const [kind, setKind] = useState("all");
  const [wanted, setWanted] = useState("");
  const [creating, setCreating] = useState("");
  if (!frame) return html`<${Page} title="Queues and topics"><${Empty} title="Listening to the bus…" /><//>`;
  const of = (name) => frame.entities.filter((each) => each.kind === name);
  const text = wanted.trim().toLowerCase();
  const shown = frame.entities.filter((each) => (kind === "all" || each.kind === kind) && each.path.toLowerCase().includes(text));
  const manages = may("Manage") && !only;
  return html`
    <${Page} title="Queues and topics" actions=${manages && html`
      <${Export} />
      ${tier.has_topics && html`<button type="button" onClick=${() => setCreating("topic")}><${Icon} name="plus" />Create topic</button>`}
      <button type="button" class="primary" onClick=${() => setCreating("queue")}><${Icon} name="plus" />Create queue</button>
    `}>
      <div class="tools">
        <${Choice} label="Show" value=${kind} onChange=${setKind} options=${[
          ["all", "All", frame.entities.length],
          ["queue", "Queues", of("queue").length],
          ["topic", "Topics", of("topic").length],
          ["subscription", "Subscriptions", of("subscription").length],
        ]} />
        <input type="search" class="grow" placeholder="Find by name" aria-label="Find by name" value=${wanted} onInput=${(e) => setWanted(e.target.value)} />
      </div>
      <${Card} flush label="Entities">
        ${shown.length
          ? html`<${EntityTable} entities=${shown} sortable />`
          : frame.entities.length
            ? html`<${Empty} title="Nothing has that name" />`
            : html`<${Empty} title="There are no queues or topics yet">${manages ? "Create the first queue with the button above." : ""}<//>`}
      <//>
      ${creating && html`<${CreateEntity} kind=${creating} onClose=${() => setCreating("")} onDone=${(path) => {
        setCreating("");
        location.hash = address(path);
      }} />`}
    <//>
  `;
}

function Export() {
  const take = async (path, name) => {
    try {
      await download(path, name);
      note(`Saved ${name}.`);
    } catch (error) {
      note(error.message, "error");
    }
  };
  const files = [["config.json", "config.json"], ["template.json", "template"]];
  return files.map(([name, text]) => html`<button type="button" onClick=${() => take(`/$polybus/console/${name}`, name)}>Export ${text}</button>`);
}
