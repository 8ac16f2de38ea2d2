// A subscription: what is there now, out of the changes that come; and the changes themselves.
import { html, useState } from "/console/vendor/preact.js";
import * as format from "/console/format.js";
import { cell } from "/console/parts.js";

const SHOWN = 500;
const CHANGES = 200;
const FRESH = 1500; // Milliseconds for which a row that has come is marked.

export class Stream {
  constructor(columns) {
    const names = columns.map((column) => column.name);
    this.names = names;
    this.isNumber = columns.map((column) => format.NUMERIC.has(column.type_oid));
    this.time = names.indexOf("mz_timestamp");
    this.diff = names.indexOf("mz_diff");
    this.progress = names.indexOf("mz_progressed");
    this.data = names.map((_, at) => at).filter((at) => ![this.time, this.diff, this.progress].includes(at));
    this.rows = new Map(); // By their text: {row, copies, at}.
    this.changes = [];
    this.at = null;
    this.count = 0;
    this.isFirst = null; // The time of the snapshot, whose rows are no news.
  }

  get isTable() {
    return this.diff >= 0;
  }

  take(row) {
    this.at = Number(row[this.time]);
    if (this.progress >= 0 && row[this.progress]) return;
    this.isFirst ??= this.at;
    this.count += 1;
    this.changes.push(row);
    if (this.changes.length > CHANGES) this.changes.shift();
    if (!this.isTable) return;
    const data = this.data.map((at) => row[at]);
    const key = JSON.stringify(data);
    const known = this.rows.get(key);
    const copies = (known?.copies ?? 0) + Number(row[this.diff]);
    if (copies === 0) this.rows.delete(key);
    else this.rows.set(key, { row: data, copies, at: this.at === this.isFirst ? 0 : performance.now() });
  }
}

// By what rows say, so that one that changes stays about where it was; nulls come last.
function inOrder(stream) {
  const numbers = stream.data.map((at) => stream.isNumber[at]);
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const by = ({ row: a }, { row: b }) => {
    for (let at = 0; at < numbers.length; at += 1) {
      const nulls = (a[at] === null) - (b[at] === null);
      const found = nulls || (a[at] === null ? 0 : numbers[at] ? order(format.orderOf(a[at]), format.orderOf(b[at])) : order(format.textOf(a[at]), format.textOf(b[at])));
      if (found) return found;
    }
    return 0;
  };
  return [...stream.rows.entries()].sort(([, a], [, b]) => by(a, b));
}

export function StreamTable({ stream, isLive }) {
  const [asChanges, setAsChanges] = useState(!stream.isTable);
  const now = performance.now();
  const rows = inOrder(stream).slice(0, SHOWN);
  const right = (at) => (stream.isNumber[at] ? "right" : "");
  return html`
    <div class="stream-head">
      ${isLive ? html`<span class="status good pulse"><i aria-hidden="true"></i>live</span>` : html`<span class="status calm"><i aria-hidden="true"></i>stopped</span>`}
      <span>${stream.at ? html`as of <span class="mono">${format.frontier(stream.at)}</span>` : isLive ? "waiting for the first rows…" : "no rows had come"}</span>
      <span class="dim">${format.plural(stream.rows.size, "row")}, ${format.plural(stream.count, "update")}</span>
      <span class="spring"></span>
      ${stream.isTable ? html`<button type="button" class="quiet" onClick=${() => setAsChanges(!asChanges)}>${asChanges ? "As a table" : "As changes"}</button>` : null}
    </div>
    <div class="scroll rows" tabindex="0" role="region" aria-label=${asChanges ? "Changes" : "Rows now"}>
      ${asChanges
        ? html`<table>
            <thead><tr>${stream.names.map((name, at) => html`<th scope="col" class=${right(at)}>${name}</th>`)}</tr></thead>
            <tbody>${[...stream.changes].reverse().map((row) => html`<tr class=${Number(row[stream.diff]) < 0 ? "gone" : "come"}>${row.map((value, at) => html`<td class="mono ${right(at)}">${cell(value)}</td>`)}</tr>`)}</tbody>
          </table>`
        : html`<table>
            <thead><tr>${stream.data.map((at) => html`<th scope="col" class=${right(at)}>${stream.names[at]}</th>`)}${rows.some(([, { copies }]) => copies !== 1) ? html`<th scope="col" class="right">copies</th>` : null}</tr></thead>
            <tbody>${rows.map(([key, { row, copies, at }]) => html`<tr key=${key} class=${now - at < FRESH ? "fresh" : ""}>${row.map((value, at) => html`<td class="mono ${right(stream.data[at])}">${cell(value)}</td>`)}${copies !== 1 ? html`<td class="right">${copies}</td>` : null}</tr>`)}</tbody>
          </table>`}
    </div>
    ${!asChanges && stream.rows.size > SHOWN ? html`<p class="none">The first ${SHOWN} of ${format.count(stream.rows.size)} rows.</p>` : null}`;
}
