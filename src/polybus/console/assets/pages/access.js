// The access rules of a queue or topic: keys of its own, with their rights.
import { html, useState } from "../html.js";
import { putEntity } from "../atom.js";
import { propertiesOf } from "../properties.js";
import { note } from "../state.js";
import { Badge, Card, Check, Confirm, Dialog, Empty, Field, Icon, Problem, copy, useWork } from "../ui.js";

const RIGHTS = ["Manage", "Send", "Listen"];

function settable({ kind, values }) {
  return Object.fromEntries(propertiesOf(kind).filter((each) => values[each.name]).map((each) => [each.name, values[each.name]]));
}

export function Access({ described, onChanged }) {
  const [editing, setEditing] = useState(null);
  const [deleting, setDeleting] = useState(null);
  const put = async (access) => {
    await putEntity(described.path, described.kind, settable(described), { access, update: true });
    onChanged();
  };
  const string = (rule) => `Endpoint=sb://${location.host};SharedAccessKeyName=${rule.name};SharedAccessKey=${rule.primary};EntityPath=${described.path}`;
  return html`
    <div class="tools"><button type="button" class="primary" onClick=${() => setEditing({ name: "", rights: ["Listen"], primary: "", secondary: "" })}><${Icon} name="plus" />Create access rule</button></div>
    <${Card} flush label="Access rules">
      ${described.access.length
        ? html`<table>
            <thead><tr><th scope="col">Key name</th><th scope="col">Rights</th><th scope="col"><span class="visually-hidden">Change</span></th></tr></thead>
            <tbody>${described.access.map((rule) => html`
              <tr key=${rule.name}>
                <td class="name">${rule.name}</td>
                <td>${rule.rights.map((right) => html`<${Badge} kind="accent">${right}<//> `)}</td>
                <td class="right">
                  <button type="button" class="small" onClick=${() => copy(string(rule), "the connection string")}>Copy connection string</button>${" "}
                  <button type="button" class="small" aria-label=${`Edit ${rule.name}`} onClick=${() => setEditing({ ...rule, update: true })}>Edit</button>${" "}
                  <button type="button" class="small" aria-label=${`Delete ${rule.name}`} onClick=${() => setDeleting(rule)}>Delete</button>
                </td>
              </tr>`)}
            </tbody>
          </table>`
        : html`<${Empty} title="No keys of its own">The keys of the namespace open it.<//>`}
    <//>
    ${editing && html`<${RuleForm} rule=${editing} taken=${described.access} onClose=${() => setEditing(null)} onSave=${async (rule) => {
      await put([...described.access.filter((each) => each.name !== rule.name), rule]);
      note(`Saved the key ${rule.name}.`);
      setEditing(null);
    }} />`}
    ${deleting && html`<${Confirm} title=${`Delete the key ${deleting.name}`} verb="Delete key" text="Clients that use it are refused from now on."
      work=${() => put(described.access.filter((each) => each.name !== deleting.name))} onClose=${() => setDeleting(null)} onDone=${() => setDeleting(null)} />`}
  `;
}

function RuleForm({ rule, taken, onClose, onSave }) {
  const [name, setName] = useState(rule.name);
  const [rights, setRights] = useState(rule.rights);
  const [renew, setRenew] = useState(false);
  const { busy, error, run } = useWork();
  const toggle = (right, on) => {
    if (right === "Manage" && on) setRights(RIGHTS);
    else setRights(on ? [...rights, right] : rights.filter((each) => each !== right && (each !== "Manage" || right === "Manage")));
  };
  const save = (event) => {
    event.preventDefault();
    run(() => {
      if (!rule.update && taken.some((each) => each.name === name)) throw new Error("There is a key of that name.");
      if (!rights.length) throw new Error("A key needs a right.");
      // The bus makes a key where none is given.
      return onSave({ name, rights, primary: renew ? "" : rule.primary, secondary: renew ? "" : rule.secondary });
    });
  };
  return html`
    <${Dialog} title=${rule.update ? `Key ${rule.name}` : "Create access rule"} onClose=${onClose}>
      <form onSubmit=${save} autocomplete="off">
        <${Field} label="Key name" fixed=${rule.update}><input name="name" required maxlength="256" disabled=${rule.update} value=${name} onInput=${(e) => setName(e.target.value)} /><//>
        <div>${RIGHTS.map((right) => html`<${Check} name=${right} label=${right} checked=${rights.includes(right)} onChange=${(on) => toggle(right, on)} />`)}</div>
        ${rule.update && html`<${Check} name="renew" label="Make new keys" hint="The old ones open nothing any more." checked=${renew} onChange=${setRenew} />`}
        <${Problem}>${error}<//>
        <footer><button type="button" onClick=${onClose}>Cancel</button><button class="primary" disabled=${busy}>${rule.update ? "Save key" : "Create key"}</button></footer>
      </form>
    <//>
  `;
}
