// The management API: entities, subscriptions and rules as XML inside of ATOM. The one place that reads markup.
import { call } from "./api.js";

const VERSION = "api-version=2021-05";
const SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
const INSTANCE = "http://www.w3.org/2001/XMLSchema-instance";

// The page's policy lets no text become a document but through this door; what comes out is only ever read.
const door = globalThis.trustedTypes?.createPolicy("polybus-markup", { createHTML: (text) => text });

function parse(text) {
  return new DOMParser().parseFromString(door ? door.createHTML(text) : text, "application/xml");
}

/** A page that a pipeline wrote, to be looked through; it is never shown as it is. */
export const parseHtml = (text) => new DOMParser().parseFromString(door ? door.createHTML(text) : text, "text/html");

const escaped = (text) =>
  String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");

/** An address in the management API; names may have slashes, and keep them. */
export const managed = (path) => `/${path.split("/").map(encodeURIComponent).join("/")}?${VERSION}`;

const child = (element, name) => [...(element?.children ?? [])].find((each) => each.localName === name);
const textOf = (element, name) => child(element, name)?.textContent ?? "";

// Descriptions

/** A queue, topic or subscription: {kind, values by element's name, rules of access, counts}. */
export async function describe(path) {
  const answer = await call("GET", managed(path));
  const entry = parse(await answer.text()).documentElement;
  const described = child(entry, "content")?.firstElementChild;
  if (entry.localName !== "entry" || !described) throw new Error(`There is no '${path}'.`);
  const values = {};
  for (const each of described.children) if (!each.children.length) values[each.localName] = each.textContent;
  return {
    path,
    kind: described.localName.replace("Description", "").toLowerCase(),
    values,
    access: [...(child(described, "AuthorizationRules")?.children ?? [])].map(accessRule),
  };
}

const accessRule = (element) => ({
  name: textOf(element, "KeyName"),
  rights: [...(child(element, "Rights")?.children ?? [])].map((each) => each.textContent),
  primary: textOf(element, "PrimaryKey"),
  secondary: textOf(element, "SecondaryKey"),
});

const accessXml = (rules) =>
  rules
    .map(
      (rule) =>
        `<AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>` +
        `<Rights>${rule.rights.map((right) => `<AccessRights>${right}</AccessRights>`).join("")}</Rights>` +
        `<KeyName>${escaped(rule.name)}</KeyName><PrimaryKey>${escaped(rule.primary)}</PrimaryKey>` +
        `<SecondaryKey>${escaped(rule.secondary)}</SecondaryKey></AuthorizationRule>`,
    )
    .join("");

const entryXml = (name, inside) =>
  `<?xml version="1.0" encoding="utf-8"?><entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">` +
  `<${name} xmlns="${SERVICE_BUS}" xmlns:i="${INSTANCE}">${inside}</${name}></content></entry>`;

async function put(path, body, update) {
  const headers = { "Content-Type": "application/atom+xml;type=entry;charset=utf-8", ...(update ? { "If-Match": "*" } : {}) };
  await call("PUT", managed(path), { headers, body });
}

const NAMES = { queue: "QueueDescription", topic: "TopicDescription", subscription: "SubscriptionDescription" };

/** Creates or changes an entity. `values` are those that the bus lets be set; an empty one is left to the bus. */
export async function putEntity(path, kind, values, { access, update = false } = {}) {
  let inside = "";
  for (const [name, value] of Object.entries(values)) {
    if (value !== "" && value !== undefined && value !== null) inside += `<${name}>${escaped(value)}</${name}>`;
  }
  if (access) inside += `<AuthorizationRules>${accessXml(access)}</AuthorizationRules>`;
  await put(path, entryXml(NAMES[kind], inside), update);
}

export const remove = (path) => call("DELETE", managed(path));

// Rules of subscriptions

const FIELDS = ["CorrelationId", "MessageId", "To", "ReplyTo", "Label", "SessionId", "ReplyToSessionId", "ContentType"];
export { FIELDS as CORRELATION_FIELDS };

const typeOf = (element) => (element?.getAttributeNS(INSTANCE, "type") ?? "").replace(/^.*:/, "");

export async function rules(subscription) {
  const found = [];
  for (;;) {
    const answer = await call("GET", `${managed(`${subscription}/Rules`)}&$skip=${found.length}&$top=100`);
    const feed = parse(await answer.text()).documentElement;
    const part = [...feed.children].filter((each) => each.localName === "entry").map((each) => rule(child(each, "content").firstElementChild));
    found.push(...part);
    if (part.length < 100) return found;
  }
}

function rule(element) {
  const filter = child(element, "Filter");
  const action = child(element, "Action");
  return {
    name: textOf(element, "Name"),
    kind: typeOf(filter),
    sql: textOf(filter, "SqlExpression"),
    fields: Object.fromEntries(FIELDS.map((name) => [name, textOf(filter, name)]).filter(([, text]) => text)),
    properties: [...(child(filter, "Properties")?.children ?? [])].map((pair) => ({
      name: textOf(pair, "Key"),
      value: textOf(pair, "Value"),
      type: typeOf(child(pair, "Value")) || "string",
    })),
    action: typeOf(action) === "SqlRuleAction" ? textOf(action, "SqlExpression") : "",
  };
}

const SCHEMA = "http://www.w3.org/2001/XMLSchema";

function filterXml({ kind, sql, fields, properties }) {
  if (kind !== "CorrelationFilter") {
    const text = kind === "TrueFilter" ? "1=1" : kind === "FalseFilter" ? "1=0" : sql;
    return `<Filter i:type="${kind}"><SqlExpression>${escaped(text)}</SqlExpression><CompatibilityLevel>20</CompatibilityLevel></Filter>`;
  }
  const own = FIELDS.filter((name) => fields[name]).map((name) => `<${name}>${escaped(fields[name])}</${name}>`).join("");
  const pairs = properties
    .filter((each) => each.name)
    .map(
      (each) =>
        `<KeyValueOfstringanyType><Key>${escaped(each.name)}</Key><Value i:type="d6p1:${each.type}" xmlns:d6p1="${SCHEMA}">` +
        `${escaped(each.value)}</Value></KeyValueOfstringanyType>`,
    )
    .join("");
  return `<Filter i:type="CorrelationFilter">${own}${pairs ? `<Properties>${pairs}</Properties>` : ""}</Filter>`;
}

export async function putRule(subscription, described, update) {
  const action = described.action.trim()
    ? `<Action i:type="SqlRuleAction"><SqlExpression>${escaped(described.action)}</SqlExpression><CompatibilityLevel>20</CompatibilityLevel></Action>`
    : '<Action i:type="EmptyRuleAction"></Action>';
  const inside = `${filterXml(described)}${action}<Name>${escaped(described.name)}</Name>`;
  await put(`${subscription}/Rules/${described.name}`, entryXml("RuleDescription", inside), update);
}
