// The rules of a subscription: which messages it gets, and what is changed of them.
import { html, useState } from "../html.js";
import { CORRELATION_FIELDS, putRule, remove, rules } from "../atom.js";
import { note } from "../state.js";
import { Badge, Card, Choice, Confirm, Dialog, Empty, Field, Icon, Problem, useRead, useWork } from "../ui.js";
import { DryRun, RuleTrial } from "./dryrun.js";
import { PropertyRows } from "./send.js";

const NEW = { name: "", kind: "SqlFilter", sql: "", fields: {}, properties: [], action: "" };
const KINDS = [["SqlFilter", "SQL"], ["CorrelationFilter", "Correlation"], ["TrueFilter", "All"], ["FalseFilter", "None"]];
const TYPES = { string: "string", number: "double", boolean: "boolean" };

function filterText({ kind, sql, fields, properties }) {
  if (kind === "TrueFilter") return "every message";
  if (kind === "FalseFilter") return "no message";
  if (kind === "SqlFilter") return sql;
  return [...Object.entries(fields).map(([name, value]) => `${name} = ${value}`), ...properties.map((each) => `${each.name} = ${each.value}`)].join(" and ");
}

export function Rules({ path, topic }) {
  const { value, error, again } = useRead(() => rules(path), path);
  const [editing, setEditing] = useState(null);
  const [deleting, setDeleting] = useState(null);
  const done = () => {
    setEditing(null);
    setDeleting(null);
    again();
  };
  const name = path.slice(path.lastIndexOf("/") + 1);
  return html`
    <div class="tools"><button type="button" class="primary" onClick=${() => setEditing(NEW)}><${Icon} name="plus" />Create rule</button></div>
    <${Problem}>${error}<//>
    <${Card} flush label="Rules">
      ${value && (value.length
        ? html`<table>
            <thead><tr><th scope="col">Name</th><th scope="col">Filter</th><th scope="col">Action</th><th scope="col"><span class="visually-hidden">Change</span></th></tr></thead>
            <tbody>${value.map((rule) => html`
              <tr key=${rule.name}>
                <td class="name">${rule.name}</td>
                <td><${Badge}>${KINDS.find(([kind]) => kind === rule.kind)?.[1] ?? rule.kind}<//> <code>${filterText(rule)}</code></td>
                <td><code>${rule.action}</code></td>
                <td class="right nowrap">
                  <button type="button" class="small" aria-label=${`Edit ${rule.name}`} onClick=${() => setEditing({ ...rule, update: true })}>Edit</button>${" "}
                  <button type="button" class="small" aria-label=${`Delete ${rule.name}`} onClick=${() => setDeleting(rule)}>Delete</button>
                </td>
              </tr>`)}
            </tbody>
          </table>`
        : html`<${Empty} title="No rules">The subscription gets no messages until it has one.<//>`)}
    <//>
    <${DryRun} topic=${topic} only=${name} />
    ${editing && html`<${RuleForm} path=${path} rule=${editing} onClose=${() => setEditing(null)} onDone=${done} />`}
    ${deleting && html`<${Confirm} title=${`Delete rule ${deleting.name}`} verb="Delete rule" text="Messages that come from now on are no longer matched by it."
      work=${() => remove(`${path}/Rules/${deleting.name}`)} onClose=${() => setDeleting(null)} onDone=${done} />`}
  `;
}

function RuleForm({ path, rule, onClose, onDone }) {
  const [form, setForm] = useState({ ...rule, properties: rule.properties.map((each) => ({ ...each, type: each.type === "boolean" ? "boolean" : each.type === "string" ? "string" : "number" })) });
  const { busy, error, run } = useWork();
  const set = (change) => setForm({ ...form, ...change });
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      const typed = form.properties.map((each) => ({ ...each, type: /^-?\d+$/.test(each.value) && each.type === "number" ? "long" : TYPES[each.type] }));
      await putRule(path, { ...form, properties: typed }, rule.update);
      note(`Saved the rule ${form.name}.`);
      onDone();
    });
  };
  return html`
    <${Dialog} title=${rule.update ? `Rule ${rule.name}` : "Create rule"} wide onClose=${onClose}>
      <form onSubmit=${save} autocomplete="off">
        <${Field} label="Name" fixed=${rule.update}><input name="name" required maxlength="50" disabled=${rule.update} value=${form.name} onInput=${(e) => set({ name: e.target.value })} /><//>
        <${Choice} label="Filter" options=${KINDS} value=${form.kind} onChange=${(kind) => set({ kind })} />
        ${form.kind === "SqlFilter" && html`<${Field} label="Condition" hint="sys.Label = 'urgent' AND quantity > 10">
          <textarea name="sql" rows="3" required spellcheck="false" value=${form.sql} onInput=${(e) => set({ sql: e.target.value })}></textarea>
        <//>`}
        ${form.kind === "CorrelationFilter" && html`
          <div class="grid2">${CORRELATION_FIELDS.map((name) => html`<${Field} label=${name}><input name=${name} value=${form.fields[name] ?? ""} onInput=${(e) => set({ fields: { ...form.fields, [name]: e.target.value } })} /><//>`)}</div>
          <fieldset><legend>Properties that must be equal</legend><${PropertyRows} rows=${form.properties} onChange=${(properties) => set({ properties })} /></fieldset>
        `}
        <${Field} label="Action" hint="SET sys.Label = 'seen'; SET priority = 1; REMOVE draft">
          <textarea name="action" rows="2" spellcheck="false" value=${form.action} onInput=${(e) => set({ action: e.target.value })}></textarea>
        <//>
        ${form.kind === "SqlFilter" && html`<${RuleTrial} path=${path} filter=${form.sql} action=${form.action} />`}
        <${Problem}>${error}<//>
        <footer>
          <button type="button" onClick=${onClose}>Cancel</button>
          <button class="primary" disabled=${busy}>${rule.update ? "Save rule" : "Create rule"}</button>
        </footer>
      </form>
    <//>
  `;
}
