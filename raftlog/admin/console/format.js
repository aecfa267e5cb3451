// Numbers and times for people.

const NUMBER = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));

export const short = (value) => (value === null || value === undefined ? "–" : value < 10 ? String(Math.round(value * 10) / 10) : SHORT.format(value));

/** Bytes, in units of 1,024. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) (value /= 1024), unit++;
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export const milliseconds = (value) => (value === null || value === undefined ? "–" : value < 10 ? `${value.toFixed(1)} ms` : value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`);

const SPANS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"], [1, "ms"]];

/** A length of time in its largest one or two units: 7 d, 1 h 30 min. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const first = Math.max(0, SPANS.findIndex(([unit]) => ms >= unit));
  if (ms < 1) return "0 s";
  const [unit, name] = SPANS[first], [smaller, short_] = SPANS[first + 1] ?? [1, ""];
  const whole = Math.floor(ms / unit), left = Math.floor((ms % unit) / smaller);
  return `${number(whole)} ${name}${left && short_ && name !== "s" ? ` ${left} ${short_}` : ""}`;
}

/** The zone of this browser at a time: +01:00, or Z. */
export function zone(ms) {
  const minutes = -new Date(ms).getTimezoneOffset(), two = (value) => String(value).padStart(2, "0");
  return minutes ? `${minutes < 0 ? "-" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}` : "Z";
}

/** A point in time, local, to the millisecond, with its zone. */
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (value, width = 2) => String(value).padStart(width, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}.${two(at.getMilliseconds(), 3)}${zone(ms)}`;
}

export const clock = (ms) => new Date(ms).toTimeString().slice(0, 8);

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** What numbers of records count. */
export const RECORDS = "Records: end minus first offsets, with markers of transactions and what compaction removed.";

/** A word for a shell. */
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
