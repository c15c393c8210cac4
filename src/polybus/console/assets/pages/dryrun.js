// Rules tried without consequences: who would get this message, and what would it become?
import { html, useState } from "../html.js";
import { bulk, json } from "../api.js";
import { count } from "../format.js";
import { Badge, Card, Field, Problem, useWork } from "../ui.js";
import { PropertyRows } from "./send.js";

const TEXTS = [["subject", "Subject"], ["correlation_id", "Correlation id"], ["session_id", "Session id"], ["to", "To"], ["content_type", "Content type"], ["message_id", "Message id"]];

function typed({ value, type }) {
  return type === "number" ? Number(value) : type === "boolean" ? value === "true" : value;
}

/** Tries a message on the rules of a topic; with `only`, what is said of one subscription. */
export function DryRun({ topic, only }) {
  const [form, setForm] = useState({ properties: [{ name: "", value: "", type: "string" }] });
  const [told, setTold] = useState(null);
  const { busy, error, run } = useWork();
  const go = (event) => {
    event.preventDefault();
    run(async () => {
      const message = { body: "", properties: Object.fromEntries(form.properties.filter((each) => each.name).map((each) => [each.name, typed(each)])) };
      for (const [name] of TEXTS) if (form[name]) message[name] = form[name];
      const { subscriptions } = await json("POST", bulk(topic, "dry-run"), { message });
      setTold(subscriptions.filter((each) => !only || each.subscription.toLowerCase() === only.toLowerCase()));
    });
  };
  return html`
    <${Card} title="Would a message match?" aside="Nothing is sent">
      <form onSubmit=${go} class="stack" autocomplete="off">
        <div class="grid2">${TEXTS.map(([name, label]) => html`<${Field} label=${label}><input name=${name} value=${form[name] ?? ""} onInput=${(e) => setForm({ ...form, [name]: e.target.value })} /><//>`)}</div>
        <fieldset><legend>Application properties</legend><${PropertyRows} rows=${form.properties} onChange=${(properties) => setForm({ ...form, properties })} /></fieldset>
        <div class="tools"><button class="primary" disabled=${busy}>Try it</button></div>
      </form>
      <${Problem}>${error}<//>
      ${told && html`<div role="status">${told.map((each) => html`<${Verdict} told=${each} />`)}</div>`}
    <//>
  `;
}

const Verdict = ({ told }) => html`
  <section class="verdict">
    <h3>${told.subscription} <${Badge} kind=${told.matched ? "good" : ""}>${told.matched ? "gets it" : "does not get it"}<//></h3>
    <ul class="problems">
      ${told.rules.map((rule) => html`<li><${Badge} kind=${rule.error ? "bad" : rule.matched ? "good" : ""}>${rule.error ? "fails" : rule.matched ? "matches" : "no match"}<//> <span>${rule.rule} ${rule.error && html`<span class="bad-text">${rule.error}</span>`}</span></li>`)}
    </ul>
    ${told.copies.map((copy) => html`
      <p class="muted">${copy.rule ? `By the rule ${copy.rule}` : "As one copy"} it goes to the ${copy.goes}${copy.becomes ? " as" : "."}</p>
      ${copy.becomes && html`<pre>${JSON.stringify(copy.becomes, null, 2)}</pre>`}
    `)}
  </section>
`;

/** A rule tried on the messages that a subscription holds now. */
export function RuleTrial({ path, filter, action }) {
  const [told, setTold] = useState(null);
  const { busy, error, run } = useWork();
  const go = () => run(async () => setTold(await json("POST", bulk(path, "dry-run"), { filter, ...(action ? { action } : {}), limit: 5 })));
  return html`
    <div class="tools"><button type="button" disabled=${busy || !filter} onClick=${go}>Try on the messages here</button>
      ${told && html`<span role="status">${count(told.matched)} of ${count(told.looked_at)} match${told.failed ? `, ${count(told.failed)} fail` : ""}.</span>`}
    </div>
    <${Problem}>${error}<//>
  `;
}
