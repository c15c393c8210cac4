// Breaking things on purpose, in the development profile: stores, throttling, locks, and the clock.
import { html, useState } from "../html.js";
import { json } from "../api.js";
import { moment } from "../format.js";
import { figures } from "../live.js";
import { note, session, useValue } from "../state.js";
import { Badge, Card, DurationInput, Field, Page, Problem, useRead, useWork } from "../ui.js";
import { seconds } from "../format.js";

const CALLS = ["commit", "sync", "get", "scan", "open"];

export function Faults() {
  const { value, error, again } = useRead((signal) => json("GET", "/$polybus/faults", undefined, { signal }), "");
  const work = useWork();
  const turn = (what, body, told) =>
    work.run(async () => {
      await json("POST", `/$polybus/faults/${what}`, body ?? {});
      note(told);
      again();
    });
  return html`
    <${Page} title="Faults and clock" sub="See how your programs take it. Everything here is gone with the process, and absent in production."
      actions=${html`<button type="button" class="primary" onClick=${() => turn("heal", {}, "Everything works again.")}>Heal everything</button>`}>
      <${Problem}>${error || work.error}<//>
      ${value && html`
        <${Card} title="Stores" flush>
          <table>
            <thead><tr><th scope="col">Store</th><th scope="col">State</th><th scope="col" class="wide-only">Switched on</th><th scope="col"><span class="visually-hidden">Switches</span></th></tr></thead>
            <tbody>${value.stores.map((store) => html`<${StoreRow} key=${store.store} store=${store} turn=${turn} busy=${work.busy} />`)}</tbody>
          </table>
        <//>
        <div class="two">
          <${Entity} turn=${turn} throttled=${value.throttled} busy=${work.busy} />
          <${ClockCard} now=${value.clock_ms} turn=${turn} busy=${work.busy} />
        </div>
      `}
    <//>
  `;
}

function switched(faults) {
  const found = Object.entries(faults).filter(([, value]) => value && (typeof value !== "object" || Object.keys(value).length));
  return found.map(([name, value]) => `${name}${value === true ? "" : ` ${JSON.stringify(value)}`}`).join(", ") || "nothing";
}

function StoreRow({ store, turn, busy }) {
  const path = `stores/${store.store}`;
  const down = store.state !== "open";
  return html`
    <tr>
      <td class="name">store ${store.store}</td>
      <td><${Badge} kind=${down ? "bad" : "good"}>${store.state}<//></td>
      <td class="mono wide-only">${switched(store.faults)}</td>
      <td class="right">
        ${down
          ? html`<button type="button" class="small" disabled=${busy} aria-label=${`Bring store ${store.store} back`} onClick=${() => turn(`${path}/up`, {}, `Store ${store.store} is back.`)}>Bring back</button>`
          : html`<button type="button" class="small" disabled=${busy} aria-label=${`Take store ${store.store} down`} onClick=${() => turn(`${path}/down`, {}, `Store ${store.store} is down.`)}>Take down</button>`}${" "}
        <button type="button" class="small" disabled=${busy} aria-label=${`Slow store ${store.store}`} onClick=${() => turn(`${path}/slow`, { seconds: 1, calls: ["commit"] }, `Commits of store ${store.store} take a second.`)}>Slow</button>${" "}
        <button type="button" class="small" disabled=${busy} aria-label=${`Fill store ${store.store}`} onClick=${() => turn(`${path}/full`, { reserve_only: true }, `Store ${store.store} is full.`)}>Full</button>${" "}
        <button type="button" class="small" disabled=${busy} aria-label=${`Fail the next commit of store ${store.store}`} onClick=${() => turn(`${path}/fail`, { nth: 1, calls: [CALLS[0]] }, `The next commit of store ${store.store} fails.`)}>Fail once</button>
      </td>
    </tr>
  `;
}

function Entity({ turn, throttled, busy }) {
  const frame = useValue(figures);
  const [path, setPath] = useState("");
  const paths = frame?.entities.map((each) => each.path) ?? [];
  const target = path || paths[0] || "";
  const whole = target.replace(/\/subscriptions\/.*$/i, "");
  const on = throttled.some((name) => name.toLowerCase() === whole.toLowerCase());
  return html`
    <${Card} title="Entities">
      <${Field} label="Queue, topic or subscription"><select name="entity" value=${target} onChange=${(e) => setPath(e.target.value)}>${paths.map((each) => html`<option value=${each} selected=${each === target}>${each}</option>`)}</select><//>
      <div class="tools after">
        <button type="button" disabled=${busy || !target} onClick=${() => turn(`entities/${encodeURIComponent(whole)}/throttle`, { on: !on }, on ? `${whole} takes sends again.` : `Sends to ${whole} are refused as busy.`)}>${on ? "Stop throttling" : "Throttle sends"}</button>
        <button type="button" disabled=${busy || !target} onClick=${() => turn(`entities/${encodeURIComponent(target)}/lose-lock`, {}, `All locks of ${target} have ended.`)}>Lose all locks</button>
      </div>
    <//>
  `;
}

function ClockCard({ now, turn, busy }) {
  const [step, setStep] = useState("PT1H");
  const movable = session.value.movable_clock;
  return html`
    <${Card} title="Clock">
      <p>The bus's clock shows <strong>${moment(now)}</strong>.</p>
      ${movable
        ? html`<div class="tools after">
            <${DurationInput} label="Step" value=${step} unlimited=${false} onChange=${setStep} />
            <button type="button" disabled=${busy} onClick=${() => turn("clock", { advance_ms: Math.round(seconds(step) * 1000) }, "The clock was moved.")}>Move the clock forward</button>
          </div>`
        : html`<p class="muted">It can be moved where the bus was started with <code>--clock movable</code>.</p>`}
    <//>
  `;
}
