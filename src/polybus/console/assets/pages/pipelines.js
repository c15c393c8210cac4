// Pipelines: what their runners tell of them, what else reads the bus in bulk, and the reports that they write.
import { html } from "../html.js";
import { bulk, json } from "../api.js";
import { bytes, count, moment, short } from "../format.js";
import { figures } from "../live.js";
import { Report } from "../report.js";
import { useValue } from "../state.js";
import { Badge, Card, Empty, Page, Problem, useRead } from "../ui.js";
import { CursorTable } from "./cursors.js";

const KINDS = { running: "good", waiting: "", done: "good", ended: "", failed: "bad", "given up": "bad" };

export const PipelineState = ({ told }) =>
  told.silent && told.state === "running"
    ? html`<${Badge} kind="warn">silent<//> <span class="muted">since ${moment(told.told_at)}</span>`
    : html`<${Badge} kind=${KINDS[told.state] ?? ""}>${told.state}<//>`;

const place = (told) => `#/pipelines/${encodeURIComponent(told.entity)}/${encodeURIComponent(told.name)}`;

async function allCursors(signal) {
  const { cursors } = await json("GET", "/$polybus/cursors", undefined, { signal });
  const of = [...new Set(cursors.map((each) => each.entity))];
  const found = await Promise.all(of.map((entity) => json("GET", bulk(entity, "cursors"), undefined, { signal })));
  return found.flatMap((each) => each.cursors);
}

export function Pipelines() {
  const frame = useValue(figures);
  const { value, error, again } = useRead(allCursors, "");
  const told = frame?.pipelines ?? [];
  return html`
    <${Page} title="Pipelines" sub="What reads and writes the bus in bulk, as its runners tell."
      actions=${html`<button type="button" onClick=${again}>Refresh cursors</button>`}>
      <${Problem}>${error}<//>
      <${Card} title="Pipelines" flush>
        ${told.length
          ? html`<table>
              <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col" class="wide-only">What</th><th scope="col" class="right">Lag</th><th scope="col" class="right wide-only">Last batch</th><th scope="col" class="right wide-only">Rows</th><th scope="col" class="right wide-only">Restarts</th></tr></thead>
              <tbody>${told.map((each) => html`
                <tr key=${`${each.entity}/${each.name}`}>
                  <td class="name"><a href=${place(each)}>${each.name}</a> <${Badge}>${each.kind}<//></td>
                  <td><${PipelineState} told=${each} />${each.error && html`<div class="hint bad-text">${each.error}</div>`}</td>
                  <td class="wide-only">${each.what}</td>
                  <td class="right">${short(each.lag)}</td>
                  <td class="right wide-only nowrap">${each.batch === null ? "–" : `${count(each.batch)}, ${count(each.ms)} ms`}</td>
                  <td class="right wide-only">${short(each.rows)}</td>
                  <td class="right wide-only">${count(each.restarts)}</td>
                </tr>`)}
              </tbody>
            </table>`
          : html`<${Empty} title="No runner tells of a pipeline">Declare pipelines in a file and start them with <code>polybus pipelines run</code>.<//>`}
      <//>
      <${Card} title="Cursors" flush aside="What each reader has not read yet is kept for it">
        ${value && (value.length ? html`<${CursorTable} cursors=${value} withEntity />` : html`<${Empty} title="Nothing reads the bus in bulk" />`)}
      <//>
    <//>
  `;
}

/** One pipeline: its last runs and its report, read again when its runner has told something new. */
export function Pipeline({ entity, name }) {
  const frame = useValue(figures);
  const latest = frame?.pipelines?.find((each) => each.entity === entity && each.name === name);
  const { value, error } = useRead((signal) => json("GET", `${bulk(entity, "pipelines")}/${encodeURIComponent(name)}`, undefined, { signal }), `${entity}/${name} ${latest?.told_at}`);
  const told = value && { ...value, ...latest };
  return html`
    <${Page} title=${name} back=${html`<a href="#/pipelines">Pipelines</a>`}
      sub=${told && html`<${Badge} kind="accent">${told.kind}<//> <${PipelineState} told=${told} /> <span>${told.what}</span>`}>
      <${Problem}>${error || told?.error}<//>
      ${told && html`
        <div class="figures">
          <div class="figure"><span class="label">Lag</span><span class="value">${short(told.lag)}<small> messages</small></span></div>
          <div class="figure"><span class="label">Last batch</span><span class="value">${told.batch === null ? "–" : count(told.batch)}</span></div>
          <div class="figure"><span class="label">Its rows</span><span class="value">${short(told.rows)}</span></div>
          <div class="figure"><span class="label">Took</span><span class="value">${told.ms === null ? "–" : count(told.ms)}<small> ms</small></span></div>
          <div class="figure"><span class="label">Restarts</span><span class="value">${count(told.restarts)}</span></div>
        </div>
        <${Card} title="Last runs" flush>
          ${told.runs?.length ? html`<${Runs} runs=${told.runs} />` : html`<${Empty} title="It has not run yet" />`}
        <//>
        ${told.report && html`<${Card} label="Report"><${Report} html=${told.report} /><//>`}
      `}
    <//>
  `;
}

const Runs = ({ runs }) => html`
  <table>
    <thead><tr><th scope="col">Began</th><th scope="col">Outcome</th><th scope="col" class="right">Batches</th><th scope="col" class="right">Rows</th><th scope="col" class="right wide-only">Bytes</th><th scope="col" class="right wide-only">Took</th><th scope="col" class="wide-only">Error</th></tr></thead>
    <tbody>${[...runs].reverse().map((run) => html`
      <tr>
        <td class="nowrap">${moment(run.began)}</td>
        <td><${Badge} kind=${run.outcome === "failed" || run.outcome === "died" ? "bad" : "good"}>${run.outcome}<//></td>
        <td class="right">${count(run.batches)}</td>
        <td class="right">${short(run.rows)}</td>
        <td class="right wide-only">${bytes(run.bytes)}</td>
        <td class="right wide-only nowrap">${count(run.ms)} ms</td>
        <td class="wide-only">${run.error ?? ""}</td>
      </tr>`)}
    </tbody>
  </table>
`;
