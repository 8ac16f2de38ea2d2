// A text as the statements in it, each with where it begins: errors tell positions within one.

const QUIET = /^(?:\s+|--[^\n]*(?:\n|$)|\/\*[\s\S]*?(?:\*\/|$)|;)+/;
const PIECE = /^(?:'(?:[^']|'')*'?|"(?:[^"]|"")*"?|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|(\$\w*\$)[\s\S]*?(?:\1|$)|[^;'"$/-]+|[^;])/;

export function statementsOf(text) {
  const found = [];
  let at = 0;
  while (at < text.length) {
    at += text.slice(at).match(QUIET)?.[0].length ?? 0;
    const start = at;
    let piece;
    while (at < text.length && (piece = text.slice(at).match(PIECE))) at += piece[0].length;
    const sql = text.slice(start, at).trimEnd();
    if (sql) found.push({ sql, start, end: start + sql.length });
  }
  return found;
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

// Of any statement, without running it; an EXPLAIN stays what it is.
export function explaining(sql) {
  const bare = sql.replace(/^EXPLAIN\s+(?:(?:RAW|DECORRELATED|OPTIMIZED)\s+)?(?:PLAN\s+)?(?:AS\s+JSON\s+)?(?:FOR\s+)?/i, "");
  const query = bare.replace(/^SUBSCRIBE\s+(?:TO\s+)?/i, "").replace(/^([\w."]+)$/, "SELECT * FROM $1");
  return `EXPLAIN OPTIMIZED PLAN FOR ${query}`;
}
