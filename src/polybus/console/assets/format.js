// How numbers, times and bytes are shown.

const whole = new Intl.NumberFormat("en-US");

export const count = (n) => (n === null || n === undefined ? "–" : whole.format(n));

export function short(n) {
  if (n === null || n === undefined) return "–";
  if (Math.abs(n) < 10_000) return whole.format(Math.round(n));
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(n) >= size) return `${(n / size).toFixed(n / size >= 100 ? 0 : 1)}${unit}`;
  }
}

export function rate(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  if (n === 0) return "0";
  return n < 10 ? n.toFixed(1) : short(n);
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (n >= 1024 && at < units.length - 1) {
    n /= 1024;
    at += 1;
  }
  return `${at === 0 || n >= 100 || Number.isInteger(n) ? Math.round(n) : n.toFixed(1)} ${units[at]}`;
}

export function age(ms) {
  if (ms === null || ms === undefined) return "–";
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60 ? `${s % 60} s` : ""}`.trim();
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60) ? `${Math.floor((s % 3600) / 60)} min` : ""}`.trim();
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600) ? `${Math.floor((s % 86400) / 3600)} h` : ""}`.trim();
}

/** A moment in the user's own time, to the second. */
export function moment(text) {
  if (!text) return "–";
  const date = new Date(text);
  if (Number.isNaN(date.getTime()) || date.getUTCFullYear() < 1900) return "never";
  const two = (n) => String(n).padStart(2, "0");
  return (
    `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
  );
}

// Durations of ISO 8601, as the management API writes them.

const ISO = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/;
export const UNLIMITED = "P10675199DT2H48M5.4775807S";
const UNLIMITED_SECONDS = 10_675_199 * 86_400;

/** Seconds; Infinity for what never ends, null for what is not a duration. */
export function seconds(text) {
  const found = ISO.exec(text ?? "");
  if (!found) return null;
  const [d, hours, m, s] = found.slice(1).map((part) => Number(part ?? 0));
  const total = d * 86_400 + hours * 3600 + m * 60 + s;
  return total >= UNLIMITED_SECONDS ? Infinity : total;
}

export function isoDuration(total) {
  if (total === Infinity) return UNLIMITED;
  const d = Math.floor(total / 86_400);
  const rest = total % 86_400;
  return rest || !d ? `P${d ? `${d}D` : ""}T${rest}S` : `P${d}D`;
}

export function duration(text) {
  const total = seconds(text);
  if (total === null) return text ?? "–";
  return total === Infinity ? "unlimited" : age(total * 1000);
}

// Bodies

export function fromBase64(text) {
  const binary = atob(text ?? "");
  return Uint8Array.from(binary, (c) => c.charCodeAt(0));
}

export function toBase64(data) {
  let binary = "";
  for (let at = 0; at < data.length; at += 0x8000) binary += String.fromCharCode(...data.subarray(at, at + 0x8000));
  return btoa(binary);
}

/** The text of a body; null where it is not UTF-8. */
export function asText(data) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data);
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

export function asHex(data, most = 65_536) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, most); at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const hex = row.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = row.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex}  ${text}`);
  }
  if (data.length > most) lines.push(`… ${count(data.length - most)} bytes more`);
  return lines.join("\n");
}
