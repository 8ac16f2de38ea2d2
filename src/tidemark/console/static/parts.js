// What pages are made of.
import { html, useMemo, useRef, useState, useEffect } from "/console/vendor/preact.js";
import * as format from "/console/format.js";
import { shownName } from "/console/model.js";

export const LATE = 5_000; // Milliseconds behind the clock that are worth a colour …
export const VERY_LATE = 60_000;

const TONES = {
  running: "good",
  online: "good",
  verified: "good",
  hydrating: "busy",
  starting: "busy",
  stalled: "bad",
  offline: "bad",
  different: "bad",
  "in error": "warn",
  paused: "warn",
};

export function Status({ word, title }) {
  return html`<span class="status ${TONES[word] || "calm"}" title=${title || null}><i aria-hidden="true"></i>${word}</span>`;
}

export function Lag({ object }) {
  if (!object.isStored) return html`<span class="dim">–</span>`;
  if (object.upper === null && object.type !== "index") return html`<span class="dim" title="It will not change any more">ended</span>`;
  if (object.lag === null) return html`<span class="lag busy" title="It cannot be read yet">not yet</span>`;
  const tone = object.lag >= VERY_LATE ? "bad" : object.lag >= LATE ? "warn" : "good";
  return html`<span class="lag ${tone}">${format.duration(object.lag)}</span>`;
}

// Nothing that is behind by seconds looks like a mountain: the scale begins at five of them.
export function Sparkline({ values, label }) {
  const known = values.map((value) => value ?? 0);
  if (known.length < 2) return html`<svg class="spark" role="img" aria-label=${label} viewBox="0 0 60 16"></svg>`;
  const top = Math.max(LATE, ...known);
  const points = known.map((value, at) => `${60 - known.length + at + 1},${15 - (14 * value) / top}`);
  return html`<svg class="spark" role="img" aria-label=${label} viewBox="0 0 60 16" preserveAspectRatio="none">
    <polyline points=${points.join(" ")} />
  </svg>`;
}

export function ObjectLink({ object, tab }) {
  if (!object) return html`<span class="dim">gone</span>`;
  return html`<a href=${`#/object/${object.id}${tab ? `/${tab}` : ""}`}>${shownName(object)}</a>`;
}

export function Loading({ what }) {
  return html`<div class="state" role="status"><span class="wave" aria-hidden="true"></span><p>Loading ${what}…</p></div>`;
}

// `whole` if it is all that the page has.
export function Empty({ title, whole, children }) {
  return html`<div class="state">${whole ? html`<h1 class="state-title">${title}</h1>` : html`<p class="state-title">${title}</p>`}${children}</div>`;
}

// `sql` and `failure.position` show where.
export function Problem({ failure, title, sql, retry }) {
  return html`<div class="problem" role="alert">
    <p class="problem-title">${title ? `${title}: ` : ""}${failure.message}</p>
    ${sql && failure.position ? html`<${Where} sql=${sql} position=${failure.position} />` : null}
    ${failure.hint ? html`<p>${failure.hint}</p>` : null}
    <p class="problem-foot">
      ${failure.code ? html`<span class="dim">SQLSTATE ${failure.code}</span>` : null}
      ${retry ? html`<button type="button" onClick=${retry}>Try again</button>` : null}
    </p>
  </div>`;
}

// Positions count characters, not what UTF-16 makes of them.
function Where({ sql, position }) {
  const before = Array.from(sql).slice(0, position - 1).join("");
  const start = before.lastIndexOf("\n") + 1;
  const end = sql.indexOf("\n", before.length);
  const line = sql.slice(start, end < 0 ? undefined : end);
  const word = sql.slice(before.length).match(/^(\w+|"[^"]*"|\S)?/)[0];
  return html`<pre class="where">${sql.slice(start, before.length)}<mark>${word}</mark>${line.slice(before.length - start + word.length)}</pre>`;
}

// Old data with a line above it, if asking has just failed; else what there is.
export function Loaded({ live, what, children }) {
  if (live.data === null) {
    if (live.error) return html`<${Problem} failure=${live.error} title=${`Cannot load ${what}`} retry=${live.again} />`;
    return html`<${Loading} what=${what} />`;
  }
  return children(live.data);
}

// SQL, unless it is `plain`. A browser gives its clipboard to safe addresses only.
export function Code({ text, label, plain }) {
  const [copied, setCopied] = useState(false);
  async function copy() {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  }
  return html`<div class="code">
    <pre tabindex="0" role="region" aria-label=${label}>${plain ? text : highlighted(text)}</pre>
    ${navigator.clipboard ? html`<button type="button" class="quiet" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>` : null}
  </div>`;
}

const TOKENS = /(--[^\n]*|\/\*[\s\S]*?\*\/)|([eE]'(?:[^'\\]|\\[\s\S]|'')*'?|'(?:[^']|'')*'?)|("(?:[^"]|"")*"?)|(\b\d+(?:\.\d+)?\b)|([A-Za-z_]\w*)/g;

// SQL with its words marked; `mark` is [from, to), where something is wrong.
export function highlighted(sql, mark) {
  const found = [];
  const add = (from, to, kind) => {
    if (mark && from < mark[1] && to > mark[0]) {
      const [a, b] = [Math.max(from, mark[0]), Math.min(to, mark[1])];
      if (from < a) found.push(piece(sql.slice(from, a), kind));
      found.push(html`<mark>${sql.slice(a, b)}</mark>`);
      if (b < to) found.push(piece(sql.slice(b, to), kind));
    } else if (from < to) found.push(piece(sql.slice(from, to), kind));
  };
  let last = 0;
  for (const match of sql.matchAll(TOKENS)) {
    const kind = match[1] ? "comment" : match[2] ? "string" : match[4] ? "number" : match[5] && format.WORDS.has(match[5].toLowerCase()) ? "word" : null;
    if (!kind) continue;
    add(last, match.index, null);
    last = match.index + match[0].length;
    add(match.index, last, kind);
  }
  add(last, sql.length, null);
  return found;
}

const piece = (text, kind) => (kind ? html`<span class="sql-${kind}">${text}</span>` : text);

// A table that sorts. Columns: `{name, cell, by, right, mono}`; `by` gives what to sort by.
export function Table({ label, columns, rows, id, sorted: first = null, empty = "Nothing here." }) {
  const [sorted, setSorted] = useState(first);
  const shown = useMemo(() => {
    const column = sorted && columns.find((each) => each.name === sorted.name);
    if (!column?.by) return rows;
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const lacks = (key) => key === null || key === undefined; // Those come last, whichever way.
    return [...rows].sort((x, y) => {
      const [a, b] = [column.by(x), column.by(y)];
      return lacks(a) - lacks(b) || (sorted.down ? order(b, a) : order(a, b));
    });
  }, [rows, sorted]);
  const turn = (name) => setSorted({ name, down: sorted?.name === name && !sorted.down });
  const direction = (column) => (sorted?.name === column.name ? (sorted.down ? "descending" : "ascending") : "none");
  if (!rows.length) return html`<p class="none">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>
          ${columns.map((column) =>
            column.by
              ? html`<th scope="col" class=${column.right ? "right" : ""} aria-sort=${direction(column)}>
                  <button type="button" onClick=${() => turn(column.name)}>${column.name}</button>
                </th>`
              : html`<th scope="col" class=${column.right ? "right" : ""}>${column.name}</th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${shown.map(
          (row, at) => html`<tr key=${id ? id(row) : at}>
            ${columns.map((column) => html`<td class=${[column.right && "right", column.mono && "mono"].filter(Boolean).join(" ")}>${column.cell(row)}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

// A value of SQL's; what is no text is jsonb, an array or a boolean.
export function cell(value) {
  return value === null ? html`<span class="dim">null</span>` : format.textOf(value);
}

export function Facts({ facts }) {
  return html`<dl class="facts">
    ${facts.filter(Boolean).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

export function Tabs({ tabs, current, href }) {
  return html`<nav class="tabs" aria-label="Sections">
    ${tabs.map(([id, name]) => html`<a href=${href(id)} aria-current=${id === current ? "page" : null}>${name}</a>`)}
  </nav>`;
}

export function Dialog({ title, onClose, children }) {
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="dialog-title">
    <h2 id="dialog-title">${title}</h2>
    ${children}
    <form method="dialog"><button>Close</button></form>
  </dialog>`;
}
