// The bus's HTTP API. Every request carries a token that the user's key has signed; the key itself is not kept.
import { session } from "./state.js";

const KEPT = "polybus.login";
const HOURS = 8;

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Logging in

/** The fields of a connection string, in lower case. */
export function connectionString(text) {
  const found = {};
  for (const part of text.split(";")) {
    const at = part.indexOf("=");
    if (at > 0) found[part.slice(0, at).trim().toLowerCase()] = part.slice(at + 1).trim();
  }
  return found;
}

async function signed(name, key, entity) {
  if (!globalThis.crypto?.subtle) {
    throw new ApiError(0, "This browser signs only on pages that come over https or from this machine.");
  }
  const resource = encodeURIComponent(`${location.protocol}//${location.host}/${entity}`);
  const expires = Math.floor(Date.now() / 1000) + HOURS * 3600;
  const encode = new TextEncoder();
  const made = await crypto.subtle.importKey("raw", encode.encode(key), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const signature = await crypto.subtle.sign("HMAC", made, encode.encode(`${resource}\n${expires}`));
  const text = btoa(String.fromCharCode(...new Uint8Array(signature)));
  return (
    `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(text)}` +
    `&se=${expires}&skn=${encodeURIComponent(name)}`
  );
}

let token = "";

/** Logs in with a key, or with a token that was made elsewhere. `entity` is set for the key of one entity. */
export async function logIn({ name, key, signature, entity }) {
  const own = (entity ?? "").replace(/^\/+|\/+$/g, "");
  token = signature || (await signed(name, key, own));
  await enter(own);
  sessionStorage.setItem(KEPT, JSON.stringify({ token, entity: own, name: name ?? "" }));
  session.set({ ...session.value, name: name || "a signature" });
}

/** Takes up what this tab has logged in with before. */
export async function resume() {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  if (!kept) return;
  token = kept.token;
  try {
    await enter(kept.entity);
    session.set({ ...session.value, name: kept.name || "a signature" });
  } catch (error) {
    if (error.status === 401) logOut();
    throw error;
  }
}

async function enter(entity) {
  const query = entity ? `?entity=${encodeURIComponent(entity)}` : "";
  session.set(await json("GET", `/$polybus/console/session${query}`));
}

export function logOut(reason = "") {
  token = "";
  sessionStorage.removeItem(KEPT);
  session.set(null);
  logOut.reason = reason;
}
logOut.reason = "";

// Calling

export async function call(method, path, { headers = {}, body, signal } = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      body,
      signal,
      headers: { Authorization: token, ...headers },
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The bus does not answer.");
  }
  if (!answer.ok) {
    const error = new ApiError(answer.status, explained(await answer.text(), answer.status));
    if (answer.status === 401 && session.value && /ExpiredToken/.test(error.message)) {
      logOut("Your log-in has ended. Log in again to go on.");
    }
    throw error;
  }
  return answer;
}

/** The sentence in an error document, without what is for support desks. */
function explained(text, status) {
  let detail = text;
  try {
    detail = JSON.parse(text).error.detail;
  } catch {
    detail = /<Detail>([^]*?)<\/Detail>/.exec(text)?.[1] ?? "";
    detail = detail.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&quot;/g, '"').replace(/&apos;/g, "'").replace(/&amp;/g, "&");
  }
  detail = detail.replace(/\s*(To know more|TrackingId|Reference:|SystemTracker)[^]*$/i, "").replace(/^SubCode=\d+\.\s*/, "");
  return detail.trim() || `The bus answered ${status}.`;
}

export async function json(method, path, body, options = {}) {
  const sent = body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body);
  const headers = { Accept: "application/json", ...(sent === undefined ? {} : { "Content-Type": "application/json" }) };
  const answer = await call(method, path, { ...options, headers, body: sent });
  return answer.status === 204 ? null : numbered(await answer.text());
}

// Sequence numbers have 64 bits and JavaScript's numbers 53: they are read as text, and written as they were read.
const NUMBERS = /"(sequence_number|numbers|moved|missing|locked|unreachable)": (\d{15,}|\[[\d, ]*\])/g;

export function numbered(text) {
  const safe = text.replace(NUMBERS, (_, name, value) =>
    value[0] === "[" ? `"${name}": [${value.slice(1, -1).replace(/\d+/g, '"$&"')}]` : `"${name}": "${value}"`,
  );
  return JSON.parse(safe);
}

/** The pieces of an answer's text that end with `mark`, as they come. */
async function* pieces(answer, mark) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const found = (kept + value).split(mark);
      kept = found.pop();
      for (const piece of found) yield piece;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Objects of a stream of JSON lines. */
export async function* lines(path, options) {
  const answer = await call("GET", path, { ...options, headers: { Accept: "application/json" } });
  for await (const line of pieces(answer, "\n")) if (line) yield numbered(line);
}

/** Server-sent events: [name, value]. EventSource could not carry the token, so they are read by hand. */
export async function* events(path, options) {
  const answer = await call("GET", path, { ...options, headers: { Accept: "text/event-stream" } });
  for await (const block of pieces(answer, "\n\n")) {
    const name = /^event: (.*)$/m.exec(block)?.[1] ?? "message";
    const data = /^data: (.*)$/m.exec(block)?.[1];
    if (data) yield [name, JSON.parse(data)];
  }
}

/** The path of something of an entity in the bulk API. */
export const bulk = (entity, what) => `/$polybus/entities/${encodeURIComponent(entity)}/${what}`;

export async function download(path, name) {
  const answer = await call("GET", path);
  save(await answer.blob(), name);
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
