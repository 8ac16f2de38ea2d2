// Values as people read them. Frontiers are milliseconds since 1970; all times are shown in UTC, with
// their day if that is not today.

export const NUMERIC = new Set([20, 21, 23, 26, 700, 701, 1700]); // Types, by their oids.

// Good enough to sort by, not to show; NaN is the largest, as in SQL.
export function orderOf(text) {
  const number = Number(text);
  return Number.isNaN(number) ? Infinity : number;
}

export const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));

const COUNT = new Intl.NumberFormat("en");

export const count = (value) => (value === null || value === undefined ? "–" : COUNT.format(value));

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
  return `${Math.floor(ms / 86_400_000)} days`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let size = value;
  while (size >= 1024 && at < units.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${at && size < 100 ? size.toFixed(1) : Math.round(size)} ${units[at]}`;
}

// A frontier: 0 is "nothing yet", null is the empty one.
export function frontier(time) {
  if (time === null || time === undefined) return "ended";
  if (time < 1e11) return String(time); // A counter, not a clock.
  const isToday = moment(time).slice(0, 10) === moment(Date.now()).slice(0, 10);
  return isToday ? new Date(time).toISOString().slice(11, 23) : moment(time);
}

export const moment = (time) => new Date(time).toISOString().replace("T", " ").slice(0, 19);

// What SQL prints of a timestamptz.
export const parsed = (text) => (text === null ? null : Date.parse(text.replace(" ", "T").replace(/([+-]\d\d)$/, "$1:00")));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && value < 10) return `${value.toFixed(1)}/s`;
  return `${count(Math.round(value))}/s`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

// SQL's own words.
export const WORDS = new Set(
  `select from where group by order having join left right full outer inner cross lateral on using as and or not in is null
  true false case when then else end union all except intersect distinct with mutually recursive limit offset over partition rows
  between like ilike exists create replace materialized view table source sink index cluster database schema role connection secret
  insert into values update set delete drop alter show explain plan for subscribe verify copy to stdout begin commit rollback
  load generator tables refresh every at of cast interval timestamp date asc desc if exists default grant revoke comment`.split(/\s+/),
);

export const quoted = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) && !WORDS.has(name) ? name : `"${name.replaceAll('"', '""')}"`);
