// The subscriptions of a topic, and a message tried on all of them.
import { html, useState } from "../html.js";
import { may, session } from "../state.js";
import { Card, Empty, Icon } from "../ui.js";
import { CreateEntity } from "./create.js";
import { DryRun } from "./dryrun.js";
import { EntityTable, address } from "./entities.js";
import { subscriptionsOf } from "./entity.js";

export function Subscriptions({ topic, frame }) {
  const [creating, setCreating] = useState(false);
  const found = subscriptionsOf(frame, topic);
  return html`
    <div class="tools">
      ${may("Manage") && html`<button type="button" class="primary" onClick=${() => setCreating(true)}><${Icon} name="plus" />Create subscription</button>`}
    </div>
    <${Card} flush label="Subscriptions">
      ${found.length ? html`<${EntityTable} entities=${found} sortable />` : html`<${Empty} title="No subscriptions yet">What is sent to the topic goes nowhere until it has one.<//>`}
    <//>
    ${may("Listen") && found.length > 0 && html`<${DryRun} topic=${topic} />`}
    ${creating && session.value && html`<${CreateEntity} kind="subscription" topic=${topic} onClose=${() => setCreating(false)} onDone=${(path) => {
      setCreating(false);
      location.hash = address(path, "rules");
    }} />`}
  `;
}
