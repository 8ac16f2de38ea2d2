// A text as the statements in it, each with where it begins: errors tell positions within one.

const QUIET = /(?:\s+|--[^\n]*|;)/y;
const PIECE = /(?:[eE]'(?:[^'\\]|\\[\s\S]|'')*'?|'(?:[^']|'')*'?|"(?:[^"]|"")*"?|--[^\n]*|(\$(?:[A-Za-z_]\w*)?\$)[\s\S]*?(?:\1|$)|[A-Za-z_][\w$]*|[^;'"$/\-A-Za-z_]+|[^;])/y;

export function statementsOf(text) {
  const found = [];
  let at = 0;
  while (at < text.length) {
    const start = past(QUIET, text, at);
    at = past(PIECE, text, start);
    const sql = text.slice(start, at).trimEnd();
    if (sql) found.push({ sql, start, end: start + sql.length });
  }
  return found;
}

// Where what fits ends, with the comments in it.
function past(pattern, text, at) {
  for (;;) {
    pattern.lastIndex = at;
    if (text.startsWith("/*", at)) at = commentEnd(text, at);
    else if (pattern.test(text)) at = pattern.lastIndex;
    else return at;
  }
}

// They nest.
function commentEnd(text, start) {
  let depth = 0;
  for (const { 0: edge, index } of text.slice(start).matchAll(/\/\*|\*\//g)) {
    depth += edge === "/*" ? 1 : -1;
    if (depth === 0) return start + index + edge.length;
  }
  return text.length;
}

// The one in which the cursor is, or that it follows.
export function statementAt(text, cursor) {
  const all = statementsOf(text);
  return all.filter((each) => each.start <= cursor).at(-1) ?? all[0] ?? null;
}

const DRAWN = /^EXPLAIN\s+(?:(RAW|DECORRELATED|OPTIMIZED)\s+)?(?:PLAN\s+)?(?:FOR\s+)?(?=SELECT\b|WITH\b|VALUES\b|TABLE\b|VIEW\b|MATERIALIZED\b|INDEX\b|CREATE\b|\()/i;

// What is sent of a statement, and by how much that is longer in front: an EXPLAIN of a plan asks
// for the document of which a drawing is made.
export function sent(sql) {
  const match = sql.match(DRAWN);
  if (!match) return { sql, longer: 0 };
  const front = `EXPLAIN ${match[1] ? `${match[1]} ` : ""}PLAN AS JSON FOR `;
  return { sql: front + sql.slice(match[0].length), longer: front.length - match[0].length };
}

// Whether this only looks at something that has a name.
export function isWatching(text) {
  const [one, ...others] = statementsOf(text);
  const [, what] = one?.sql.match(/^SUBSCRIBE\s+(?:TO\s+)?([\s\S]*)$/i) ?? [];
  return others.length === 0 && what !== undefined && what.match(NAME)?.[0] === what;
}

// Of any statement, without running it; an EXPLAIN stays what it is.
export function explaining(sql) {
  const bare = sql.replace(/^EXPLAIN\s+(?:(?:RAW|DECORRELATED|OPTIMIZED)\s+)?(?:PLAN\s+)?(?:AS\s+JSON\s+)?(?:FOR\s+)?/i, "");
  const [, what] = bare.match(/^SUBSCRIBE\s+(?:TO\s+)?([\s\S]*)$/i) ?? [];
  return `EXPLAIN OPTIMIZED PLAN FOR ${what === undefined ? bare : queried(what)}`;
}

// What is subscribed to, as a query; how it is shown is no part of that.
const NAME = /^(?:[\w$]+|"(?:[^"]|"")*")(?:\.(?:[\w$]+|"(?:[^"]|"")*"))*/;
const BRACKETS = /'(?:[^']|'')*'|"(?:[^"]|"")*"|[()]/g;

function queried(what) {
  const name = what.match(NAME);
  if (name) return `SELECT * FROM ${name[0]}`;
  let depth = 0;
  for (const { 0: piece, index } of what.matchAll(BRACKETS)) {
    depth += piece === "(" ? 1 : piece === ")" ? -1 : 0;
    if (piece === ")" && depth === 0) return what.slice(0, index + 1);
  }
  return what;
}
