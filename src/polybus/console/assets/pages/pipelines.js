// What reads the bus in bulk: cursors with their lag and holders.
import { html } from "../html.js";
import { bulk, json } from "../api.js";
import { Card, Empty, Page, Problem, useRead } from "../ui.js";
import { CursorTable } from "./cursors.js";

async function allCursors(signal) {
  const { cursors } = await json("GET", "/$polybus/cursors", undefined, { signal });
  const of = [...new Set(cursors.map((each) => each.entity))];
  const found = await Promise.all(of.map((entity) => json("GET", bulk(entity, "cursors"), undefined, { signal })));
  return found.flatMap((each) => each.cursors);
}

export function Pipelines() {
  const { value, error, again } = useRead(allCursors, "");
  return html`
    <${Page} title="Pipelines" sub="Pipelines and Spark queries read through cursors; what they have not read yet is kept for them."
      actions=${html`<button type="button" onClick=${again}>Refresh</button>`}>
      <${Problem}>${error}<//>
      <${Card} title="Cursors" flush>
        ${value && (value.length ? html`<${CursorTable} cursors=${value} withEntity />` : html`<${Empty} title="Nothing reads the bus in bulk">Start a pipeline with <code>polybus pipelines run</code>.<//>`)}
      <//>
    <//>
  `;
}
