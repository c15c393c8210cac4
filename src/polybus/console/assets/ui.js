// Small parts that all pages are made of.
import { cloneElement, html, toChildArray, useEffect, useId, useRef, useState } from "./html.js";
import { dismiss, note, notes, useValue } from "./state.js";
import { duration, isoDuration, seconds } from "./format.js";

const ICONS = {
  overview: "M3 12h4l3-8 4 16 3-8h4",
  queue: "M4 6h16M4 12h16M4 18h10",
  topic: "M5 12h6m0 0 6-6m-6 6 6 6M17 6h2m-2 12h2",
  store: "M4 6c0-1.7 3.6-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3zm0 0v12c0 1.700 3.600 3 8 3s8-1.300 8-3V6M4 12c0 1.700 3.600 3 8 3s8-1.300 8-3",
  pipeline: "M4 7h6a4 4 0 0 1 4 4v2a4 4 0 0 0 4 4h2m0 0-3-3m3 3-3 3M4 7l0 0",
  fault: "M13 3 5 14h6l-1 7 8-11h-6z",
  sun: "M12 4V2m0 20v-2M4 12H2m20 0h-2M6 6 4.600 4.600m14.800 14.800L18 18M6 18l-1.400 1.400M19.400 4.600 18 6M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6 6 18",
  plus: "M12 5v14M5 12h14",
  send: "M4 12 20 4l-6 16-3-7z",
  back: "M9 6 3 12l6 6M3 12h18",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zm5 12 5 5",
  out: "M15 4h4v16h-4M10 8l-4 4 4 4M6 12h9",
  more: "M9 6l6 6-6 6",
};

export const Icon = ({ name }) => html`
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${ICONS[name]} /></svg>
`;

export const Page = ({ title, back, actions, children, sub }) => {
  useEffect(() => {
    document.title = `${title} · Polybus`;
  }, [title]);
  return html`
    <header class="page-head">
      <div>
        ${back && html`<nav class="crumbs" aria-label="Breadcrumb">${back}</nav>`}
        <h1 tabindex="-1">${title}</h1>
        ${sub && html`<div class="sub">${sub}</div>`}
      </div>
      <div class="actions">${actions}</div>
    </header>
    ${children}
  `;
};

export const Card = ({ title, aside, children, flush, label }) => html`
  <section class=${`card ${flush ? "flush" : ""}`} aria-label=${label ?? title}>
    ${title && html`<header><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>`}
    <div class="inside">${children}</div>
  </section>
`;

export const Badge = ({ kind = "", children }) => html`<span class=${`badge ${kind}`}>${children}</span>`;

export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong><div>${children}</div></div>`;

/** A line of recent values. What it says in words stands beside it, so it is hidden from screen readers. */
export const Sparkline = ({ values, kind = "" }) => {
  const known = values.filter((each) => each !== null && each !== undefined);
  if (known.length < 2) return html`<svg class=${`spark ${kind}`} viewBox="0 0 100 28" aria-hidden="true" />`;
  const most = Math.max(...known, 1e-9);
  const step = 100 / (known.length - 1);
  const at = known.map((each, n) => `${(n * step).toFixed(2)},${(26 - (each / most) * 24).toFixed(2)}`);
  return html`
    <svg class=${`spark ${kind}`} viewBox="0 0 100 28" preserveAspectRatio="none" aria-hidden="true">
      <polygon points=${`0,28 ${at.join(" ")} 100,28`} />
      <polyline points=${at.join(" ")} />
    </svg>
  `;
};

export const Figure = ({ label, value, unit, values, kind, href }) => html`
  <${href ? "a" : "div"} class=${`figure ${kind ?? ""}`} href=${href}>
    <span class="label">${label}</span>
    <span class="value">${value}${unit && html`<small> ${unit}</small>`}</span>
    ${values && html`<${Sparkline} values=${values} kind=${kind} />`}
  <//>
`;

export const Meter = ({ value, most, label }) => {
  const share = most ? Math.min(1, value / most) : 0;
  const bar = useRef();
  useEffect(() => {
    bar.current.style.width = `${Math.max(share * 100, value > 0 ? 1 : 0)}%`;
  }, [share, value]);
  return html`
    <div class=${`meter ${share > 0.9 ? "bad" : share > 0.7 ? "warn" : ""}`} role="meter" aria-label=${label} aria-valuemin="0"
      aria-valuemax=${most} aria-valuenow=${value}><i ref=${bar}></i></div>
  `;
};

/** Tabs that are links: each has an address of its own. */
export const Tabs = ({ tabs, current, href }) => html`
  <nav class="tabs" aria-label="Sections">
    ${tabs.map(
      ([name, label, badge]) => html`
        <a href=${href(name)} aria-current=${name === current ? "page" : undefined}>
          ${label}${badge ? html` <span class="pill">${badge}</span>` : ""}
        </a>
      `,
    )}
  </nav>
`;

/** A choice of one among few, as radio buttons in a row. */
export const Choice = ({ label, options, value, onChange }) => {
  const name = useId();
  return html`
    <div class="choice" role="radiogroup" aria-label=${label}>
      ${options.map(
        ([id, text, badge]) => html`
          <label class=${id === value ? "on" : ""}>
            <input type="radio" name=${name} value=${id} checked=${id === value} onChange=${() => onChange(id)} />
            ${text}${badge === undefined ? "" : html` <span class="pill">${badge}</span>`}
          </label>
        `,
      )}
    </div>
  `;
};

/** A modal dialog: the browser keeps the focus inside and gives it back. */
export const Dialog = ({ title, onClose, children, wide, side }) => {
  const dialog = useRef();
  const heading = useId();
  useEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    element.showModal();
    return () => {
      element.close();
      before?.focus();
    };
  }, []);
  return html`
    <dialog ref=${dialog} class=${`${wide ? "wide" : ""} ${side ? "side" : ""}`} aria-labelledby=${heading}
      onCancel=${(event) => {
        event.preventDefault();
        onClose();
      }}>
      <header>
        <h2 id=${heading}>${title}</h2>
        <button type="button" class="plain square" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
      </header>
      ${children}
    </dialog>
  `;
};

/** A control with its name; the hint describes it and is no part of its name. */
export const Field = ({ label, hint, children, fixed }) => {
  const control = useId();
  const told = useId();
  const [first, ...others] = toChildArray(children);
  return html`
    <div class="field">
      <label class="label" for=${control}>${label}</label>
      ${cloneElement(first, { id: control, "aria-describedby": hint ? told : undefined })}${others}
      ${(hint || fixed) && html`<span class="hint" id=${told}>${fixed && html`<${Badge}>fixed<//> `}${hint}</span>`}
    </div>
  `;
};

export const Check = ({ label, hint, checked, onChange, disabled, fixed, name }) => {
  const told = useId();
  return html`
    <div class="check">
      <label>
        <input type="checkbox" name=${name} checked=${checked} disabled=${disabled || fixed} aria-describedby=${told}
          onChange=${(event) => onChange(event.target.checked)} />
        <span class="label">${label}</span>
      </label>
      <span class="hint" id=${told}>${fixed && html`<${Badge}>fixed<//> `}${hint}</span>
    </div>
  `;
};

const UNITS = [
  ["s", "seconds", 1],
  ["m", "minutes", 60],
  ["h", "hours", 3600],
  ["d", "days", 86400],
];

/** A duration as a number and its unit; in ISO 8601 to the outside. */
export const DurationInput = ({ id, value, onChange, disabled, unlimited = true, label }) => {
  const total = seconds(value);
  const fits = UNITS.filter(([, , size]) => total !== Infinity && total % size === 0);
  const [unit, setUnit] = useState((fits[fits.length - 1] ?? UNITS[3])[0]);
  const size = UNITS.find(([id]) => id === unit)[2];
  const set = (n, by) => onChange(isoDuration(Math.max(0, n) * by));
  return html`
    <span class="duration">
      ${total !== Infinity &&
      html`<input id=${id} type="number" min="0" step="any" aria-label=${label} value=${total === null ? "" : total / size} disabled=${disabled}
        onInput=${(event) => set(Number(event.target.value), size)} />`}
      <select aria-label=${`${label}, unit`} disabled=${disabled} value=${total === Infinity ? "∞" : unit}
        onChange=${(event) => {
          const id = event.target.value;
          if (id === "∞") return onChange(isoDuration(Infinity));
          const next = UNITS.find(([each]) => each === id)[2];
          setUnit(id);
          return set(total === Infinity ? 1 : total / size, next);
        }}>
        ${UNITS.map(([id, text]) => html`<option value=${id}>${text}</option>`)}
        ${unlimited && html`<option value="∞">unlimited</option>`}
      </select>
    </span>
  `;
};

export const durationText = duration;

export const Progress = ({ done, all, label }) => html`
  <div class="progress" role="status">
    <progress max=${all || 1} value=${done} aria-label=${label} />
    <span>${label}</span>
  </div>
`;

export const Notes = () => html`
  <div class="notes" aria-live="polite" role="status">
    ${useValue(notes).map(
      (each) => html`
        <div class=${`note ${each.kind}`} key=${each.number}>
          <span>${each.text}</span>
          <button type="button" class="plain square" aria-label="Dismiss" onClick=${() => dismiss(each.number)}><${Icon} name="close" /></button>
        </div>
      `,
    )}
  </div>
`;

/** Runs work that a button starts: one at a time, and what goes wrong is told. */
export function useWork() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const run = async (work) => {
    setBusy(true);
    setError("");
    try {
      return await work();
    } catch (problem) {
      if (problem.name !== "AbortError") setError(problem.message);
      return undefined;
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, run, setError };
}

export const Problem = ({ children }) => (children ? html`<div class="problem" role="alert">${children}</div>` : null);

/** Asks before something is destroyed; `confirm` must be typed where it cannot be undone. */
export const Confirm = ({ title, text, verb, confirm, onClose, onDone, work }) => {
  const [typed, setTyped] = useState("");
  const { busy, error, run } = useWork();
  const go = (event) => {
    event.preventDefault();
    run(async () => {
      await work();
      onDone();
    });
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <form onSubmit=${go}>
        <p>${text}</p>
        ${confirm &&
        html`<${Field} label=${`Type ${confirm} to confirm`}>
          <input value=${typed} autocomplete="off" onInput=${(event) => setTyped(event.target.value)} />
        <//>`}
        <${Problem}>${error}<//>
        <footer>
          <button type="button" onClick=${onClose}>Cancel</button>
          <button class="danger" disabled=${busy || (confirm && typed !== confirm)}>${verb}</button>
        </footer>
      </form>
    <//>
  `;
};

/** What a request gave, read when `key` changes. */
export function useRead(read, key) {
  const [state, setState] = useState({ loading: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    read(control.signal).then(
      (value) => !control.signal.aborted && setState({ value }),
      (error) => !control.signal.aborted && setState({ error: error.message }),
    );
    return () => control.abort();
  }, [key, turn]);
  return { ...state, again: () => setTurn((n) => n + 1) };
}

export const copy = async (text, what) => {
  await navigator.clipboard.writeText(text);
  note(`Copied ${what}.`);
};
