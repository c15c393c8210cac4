// The page: logs in, shows the frame, and finds the page that an address names.
import { html, render, useEffect, useState } from "./html.js";
import { logOut, resume } from "./api.js";
import { figures, link, unwatch, watch } from "./live.js";
import { may, session, useValue } from "./state.js";
import { Icon, Notes } from "./ui.js";
import { Login, mark } from "./pages/login.js";
import { Overview } from "./pages/overview.js";
import { Entities } from "./pages/entities.js";
import { EntityPage } from "./pages/entity.js";
import { Pipeline, Pipelines } from "./pages/pipelines.js";
import { Stores } from "./pages/stores.js";
import { Faults } from "./pages/faults.js";

/** The address behind the #, as its parts. No secret ever stands in it. */
function useRoute() {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

function pageOf([name, ...rest]) {
  if (!name && session.value.entity) return html`<${Entities} />`;
  if (!name) return html`<${Overview} />`;
  if (name === "entities") return html`<${Entities} />`;
  if (name === "entity") return html`<${EntityPage} key=${rest[0]} path=${rest[0]} tab=${rest[1] ?? "overview"} rest=${rest.slice(2)} />`;
  if (name === "pipelines" && rest.length === 2) return html`<${Pipeline} key=${rest.join("/")} entity=${rest[0]} name=${rest[1]} />`;
  if (name === "pipelines") return html`<${Pipelines} />`;
  if (name === "stores") return html`<${Stores} />`;
  if (name === "faults" && session.value.faults && may("Manage")) return html`<${Faults} />`;
  return html`<div class="empty"><strong>There is nothing here</strong><a href="#/">Go to the overview</a></div>`;
}

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const dark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  const toggle = () => {
    const next = dark ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("polybus.theme", next);
    setTheme(next);
  };
  return html`<button type="button" class="plain square" aria-label=${dark ? "Use light colours" : "Use dark colours"} onClick=${toggle}>
    <${Icon} name=${dark ? "sun" : "moon"} />
  </button>`;
}

function links() {
  const { entity, faults } = session.value;
  return [
    !entity && ["", "overview", "Overview"],
    ["entities", "queue", "Queues and topics"],
    !entity && may("Manage") && ["pipelines", "pipeline", "Pipelines"],
    !entity && ["stores", "store", "Node and stores"],
    !entity && faults && may("Manage") && ["faults", "fault", "Faults and clock"],
  ].filter(Boolean);
}

function Frame() {
  const route = useRoute();
  const who = useValue(session);
  const lost = useValue(link) === "lost";
  const [open, setOpen] = useState(false);
  const here = route[0] === "entity" ? "entities" : (route[0] ?? (who.entity ? "entities" : ""));
  useEffect(() => {
    setOpen(false);
    scrollTo(0, 0);
    if (route[0] !== "entity") watch();
  }, [route.join("/")]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.querySelector("main").focus();
    }}>Skip to content</a>
    <div class="frame">
      <header class="top">
        <button type="button" class="plain square" aria-label="Menu" aria-expanded=${open} onClick=${() => setOpen(!open)}><${Icon} name="menu" /></button>
        <a class="brand" href="#/"><img src=${mark} alt="" />${who.namespace}</a>
        <${Theme} />
      </header>
      ${open && html`<button type="button" class="veil" aria-label="Close the menu" onClick=${() => setOpen(false)} />`}
      <aside class=${`side-bar ${open ? "open" : ""}`} aria-label="Polybus">
        <a class="brand" href="#/"><img src=${mark} alt="" />Polybus</a>
        <nav aria-label="Main">
          ${links().map(([path, icon, text]) => html`
            <a href=${`#/${path}`} aria-current=${here === path ? "page" : undefined}><${Icon} name=${icon} />${text}</a>
          `)}
        </nav>
        <div class="foot">
          <div><strong>${who.namespace}</strong><br />${who.tier.name} tier · ${who.version}</div>
          <div class="who">
            <span title=${who.name}>${who.name}<br /><small>${who.rights.includes("Manage") ? "Manage" : who.rights.join(", ")}</small></span>
            <span class="nowrap">
              <${Theme} />
              <button type="button" class="plain square" aria-label="Log out" onClick=${() => logOut()}><${Icon} name="out" /></button>
            </span>
          </div>
        </div>
      </aside>
      <main id="main" tabindex="-1">
        ${lost && html`<div class="banner" role="status">The bus does not answer. Trying again…</div>`}
        ${pageOf(route)}
      </main>
    </div>
  `;
}

function App() {
  const who = useValue(session);
  const [ready, setReady] = useState(false);
  useEffect(() => {
    resume().catch(() => {}).finally(() => setReady(true));
  }, []);
  const inside = who?.name !== undefined;
  useEffect(() => {
    if (inside) watch();
    else unwatch();
  }, [inside]);
  if (!ready) return null;
  return html`${inside ? html`<${Frame} />` : html`<${Login} />`}<${Notes} />`;
}

render(html`<${App} />`, document.getElementById("app"));
