// The forms that create and change queues, topics and subscriptions.
import { html, useState } from "../html.js";
import { putEntity } from "../atom.js";
import { bytes } from "../format.js";
import { GROUPS, STATUSES, propertiesOf, startOf } from "../properties.js";
import { note, session } from "../state.js";
import { Check, Dialog, DurationInput, Field, Problem, useWork } from "../ui.js";

/** What partitioning comes to in this namespace. */
export function partitioning(tier, ticked) {
  if (tier.always_partitioned) return { on: true, locked: true, hint: `Every entity of this premium namespace has ${tier.partitions} partitions.` };
  if (!tier.may_partition) return { on: ticked, locked: false, none: true, hint: "Has no effect in a premium namespace: a plain entity results." };
  return { on: ticked, locked: false, hint: `${tier.partitions} partitions over the messaging stores. It cannot be changed later.` };
}

/** How much an entity holds in all, in megabytes, and how that comes about (A8, A9). */
export function wholeSize(tier, megabytes, partitioned) {
  const many = partitioned && !tier.always_partitioned && tier.may_partition ? tier.partitions : 1;
  const whole = bytes(megabytes * many * 1024 * 1024);
  return many > 1 ? `${whole} in all: ${many} partitions of ${bytes(megabytes * 1024 * 1024)}` : `${whole} in all`;
}

function Property({ property, value, onChange, tier, values, editing }) {
  const { name, label, shape, hint, fixed: once, limited } = property;
  const fixed = once && editing;
  if (name === "EnablePartitioning" && !editing) {
    const { on, locked, hint: told } = partitioning(tier, value === "true");
    return html`<${Check} name=${name} label=${label} hint=${told} checked=${on} disabled=${locked} onChange=${(ticked) => onChange(String(ticked))} />`;
  }
  if (shape === "boolean") {
    return html`<${Check} name=${name} label=${label} hint=${hint} fixed=${fixed} checked=${value === "true"} onChange=${(ticked) => onChange(String(ticked))} />`;
  }
  if (shape === "size") {
    const partitioned = partitioning(tier, values.EnablePartitioning === "true").on;
    return html`
      <${Field} label=${label} hint=${wholeSize(tier, Number(value), partitioned)}>
        <select name=${name} value=${value} onChange=${(event) => onChange(event.target.value)}>
          ${tier.sizes_mb.map((size) => html`<option value=${String(size)} selected=${String(size) === value}>${size / 1024} GB</option>`)}
        </select>
      <//>
    `;
  }
  if (shape === "duration") {
    return html`<${Field} label=${label} hint=${hint}><${DurationInput} label=${label} value=${value} unlimited=${!limited} onChange=${onChange} /><//>`;
  }
  if (shape === "status") {
    return html`<${Field} label=${label}>
      <select name=${name} value=${value} onChange=${(event) => onChange(event.target.value)}>
        ${STATUSES.map((each) => html`<option value=${each} selected=${each === value}>${each}</option>`)}
      </select>
    <//>`;
  }
  return html`<${Field} label=${label} hint=${hint}>
    <input name=${name} type=${shape === "number" ? "number" : "text"} min="1" value=${value} onInput=${(event) => onChange(event.target.value)} />
  <//>`;
}

export function PropertyForm({ kind, values, setValues, tier, editing }) {
  const groups = GROUPS.map((group) => [group, propertiesOf(kind).filter((each) => each.group === group)]).filter(([, list]) => list.length);
  return groups.map(
    ([group, list]) => html`
      <fieldset>
        <legend>${group}</legend>
        <div class="grid2">
          ${list.map(
            (property) => html`<${Property} key=${property.name} property=${property} tier=${tier} values=${values} editing=${editing}
              value=${values[property.name] ?? ""} onChange=${(value) => setValues({ ...values, [property.name]: value })} />`,
          )}
        </div>
      </fieldset>
    `,
  );
}

/** What is sent of a form: in Premium the box for partitioning has no effect, so nothing is said about it. */
export function sentOf(values, tier) {
  const sent = { ...values };
  if (tier.always_partitioned) sent.EnablePartitioning = "true";
  else if (!tier.may_partition) delete sent.EnablePartitioning;
  return sent;
}

export function CreateEntity({ kind, topic, onClose, onDone }) {
  const { tier } = session.value;
  const [name, setName] = useState("");
  const [values, setValues] = useState(startOf(kind));
  const { busy, error, run } = useWork();
  const create = (event) => {
    event.preventDefault();
    run(async () => {
      const path = topic ? `${topic}/Subscriptions/${name.trim()}` : name.trim();
      await putEntity(path, kind, topic ? values : sentOf(values, tier));
      note(`Created the ${kind} ${name.trim()}.`);
      onDone(path);
    });
  };
  return html`
    <${Dialog} title=${`Create ${kind}`} wide onClose=${onClose}>
      <form onSubmit=${create} autocomplete="off">
        <${Field} label="Name"><input name="path" required maxlength="260" autofocus value=${name} onInput=${(event) => setName(event.target.value)} /><//>
        <${PropertyForm} kind=${kind} values=${values} setValues=${setValues} tier=${tier} />
        <${Problem}>${error}<//>
        <footer>
          <button type="button" onClick=${onClose}>Cancel</button>
          <button class="primary" disabled=${busy}>Create ${kind}</button>
        </footer>
      </form>
    <//>
  `;
}
