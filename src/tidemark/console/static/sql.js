// The SQL shell: one session for as long as the page is open.
import { html, useEffect, useRef, useState } from "/console/vendor/preact.js";
import { Conversation, Failure } from "/console/api.js";
import * as format from "/console/format.js";
import { cell, Empty, highlighted, Problem } from "/console/parts.js";
import { Plan, planOf } from "/console/plan.js";
import { explaining, isWatching, sent, statementAt, statementsOf } from "/console/statements.js";
import { Stream, StreamTable } from "/console/stream.js";

const TEXT = "tidemark.sql";
const HISTORY = "tidemark.history";
const KEPT = 100;
const MOST_ROWS = 1000; // That are shown; more would only make the browser slow.
const DRAW_EVERY = 150;

const EXAMPLES = [
  ["What there is", "SHOW OBJECTS;"],
  ["How far behind", "SELECT o.name, l.lag FROM mz_objects o JOIN mz_internal.mz_wallclock_global_lag l ON l.object_id = o.id;"],
  ["What was asked lately", "SELECT began_at, application_name, sql FROM mz_internal.mz_recent_activity_log ORDER BY began_at DESC LIMIT 20;"],
];

const STATES = {
  T: "in a transaction",
  E: "in a failed transaction: ROLLBACK ends it",
  ended: "the session has ended: the next statement begins another",
};

const saved = (key, otherwise) => JSON.parse(sessionStorage.getItem(key) ?? "null") ?? otherwise;
const save = (key, value) => sessionStorage.setItem(key, JSON.stringify(value));

export function Shell({ query, world }) {
  const [text, setText] = useState(query.get("q") ?? saved(TEXT, ""));
  const [results, setResults] = useState([]);
  const [running, setRunning] = useState(false);
  const [state, setState] = useState("I");
  const [wrong, setWrong] = useState(null); // [from, to) of the text.
  const input = useRef(null);
  const talk = useRef(null);
  const past = useRef(null); // How far back in the history, and what stood here before.
  const draft = useRef("");
  const unheard = useRef(null); // That a transaction was lost, until it has been said.

  const conversation = () => {
    if (!talk.current?.isOpen) talk.current = new Conversation({ onState: setState, onEnd });
    return talk.current;
  };

  function onEnd(failure) {
    setState("ended");
    unheard.current = failure;
  }

  async function run(statements) {
    if (!statements.length || running) return;
    save(HISTORY, [...saved(HISTORY, []).filter((each) => each !== text), text].slice(-KEPT));
    past.current = null;
    setRunning(true);
    setWrong(null);
    const made = [];
    for (const statement of statements) {
      const result = new Result(statement.sql);
      made.push(result);
      const draw = setInterval(() => setResults([...made]), DRAW_EVERY);
      const { sql, longer } = sent(statement.sql);
      try {
        if (unheard.current) throw unheard.current; // Rather than go on outside the transaction.
        await conversation().run(sql, (type, payload) => result.take(type, payload, longer));
      } catch (failure) {
        unheard.current = null;
        result.fail(failure);
      }
      clearInterval(draw);
      result.end();
      setResults([...made]);
      if (result.failure) {
        point(statement, result.failure);
        result.unrun = statements.length - made.length;
        setResults([...made]);
        break;
      }
    }
    setRunning(false);
  }

  function point(statement, { position }) {
    if (!position) return;
    const before = Array.from(statement.sql).slice(0, position - 1).join("").length;
    const from = statement.start + before;
    const word = text.slice(from).match(/^(\w+|"[^"]*"|\S)?/)[0];
    setWrong([from, from + Math.max(1, word.length)]);
    input.current.focus();
    input.current.setSelectionRange(from, from);
  }

  const chosen = () => {
    const { selectionStart: from, selectionEnd: to } = input.current;
    const whole = from === to ? statementsOf(text) : statementsOf(text.slice(from, to)).map((each) => ({ ...each, start: each.start + from }));
    return whole;
  };
  const explain = () => {
    const found = statementAt(text, input.current.selectionStart);
    if (found) run([{ sql: explaining(found.sql), start: found.start }]);
  };
  const stop = () => talk.current?.close();

  function recall(step) {
    const history = saved(HISTORY, []);
    if (past.current === null) draft.current = text;
    const at = Math.min(history.length, Math.max(0, (past.current ?? history.length) + step));
    past.current = at;
    setText(history[at] ?? draft.current);
    setWrong(null);
  }

  function onKey(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(chosen());
    else if (event.key === "e" && (event.ctrlKey || event.metaKey)) explain();
    else if (event.key === "ArrowUp" && event.altKey) recall(-1);
    else if (event.key === "ArrowDown" && event.altKey) recall(1);
    else return;
    event.preventDefault();
  }

  const isAlone = world.replicas.length > 0 && !world.replicas.some((replica) => replica.status === "online");

  // Wherever the focus is: on the button that was clicked, or in the rows.
  useEffect(() => {
    if (!running) return;
    const onEscape = (event) => {
      if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]")) stop();
    };
    addEventListener("keydown", onEscape);
    return () => removeEventListener("keydown", onEscape);
  }, [running]);
  useEffect(() => save(TEXT, text), [text]);
  useEffect(() => {
    input.current.focus();
    if (query.has("run") && isWatching(text)) run(statementsOf(text)); // Links come from anywhere.
    return () => talk.current?.close();
  }, []);

  return html`
    <div class="head"><h1>SQL</h1>
      <p class="dim" role="status">${STATES[state] ?? `as ${world.user}`}</p></div>
    <div class="editor">
      <pre aria-hidden="true">${highlighted(text, wrong)}${"\n"}</pre>
      <textarea ref=${input} spellcheck="false" autocomplete="off" autocapitalize="off" aria-label="SQL" placeholder="SELECT …; SUBSCRIBE …; EXPLAIN …"
        value=${text} onInput=${(event) => { setText(event.target.value); setWrong(null); past.current = null; }} onKeyDown=${onKey}></textarea>
    </div>
    <div class="bar">
      <button type="button" class="primary" disabled=${running || !text.trim()} onClick=${() => run(chosen())}>Run <kbd>Ctrl Enter</kbd></button>
      <button type="button" disabled=${running || !text.trim()} onClick=${explain}>Explain <kbd>Ctrl E</kbd></button>
      ${running ? html`<button type="button" onClick=${stop}>Stop <kbd>Esc</kbd></button><span class="dim" role="status">running…${isAlone ? " no replica is online yet: what needs one waits" : ""}</span>` : null}
      <span class="spring"></span>
      <span class="dim">earlier: <kbd>Alt ↑</kbd> <kbd>Alt ↓</kbd></span>
    </div>
    <div class="results" aria-live="polite">
      ${results.length === 0
        ? html`<${Empty} title="Ask something">
            <p>Select a part to run only that. A SUBSCRIBE is shown as a table that changes; a plan is drawn.</p>
            <p class="examples">${EXAMPLES.map(([name, sql]) => html`<button type="button" onClick=${() => setText(sql)}>${name}</button>`)}</p>
          <//>`
        : results.map((result, at) => html`<${Shown} key=${at} result=${result} number=${at + 1} />`)}
    </div>`;
}

// One statement's answer, as it comes in.
class Result {
  constructor(sql) {
    this.sql = sql;
    this.began = performance.now();
    this.columns = null;
    this.rows = [];
    this.count = 0;
    this.stream = null;
    this.isStreaming = false;
    this.notices = [];
    this.tag = null;
    this.failure = null;
    this.unrun = 0; // Statements after this one, if it has failed.
    this.ms = null;
  }

  take(type, payload, longer) {
    if (type === "CommandStarting") this.isStreaming = payload.is_streaming;
    else if (type === "Rows") {
      this.columns = payload.columns;
      if (this.isStreaming) this.stream = new Stream(payload.columns);
    } else if (type === "Row") {
      this.count += 1;
      if (this.stream) this.stream.take(payload);
      else if (this.rows.length < MOST_ROWS) this.rows.push(payload);
    } else if (type === "Notice") this.notices.push(payload);
    else if (type === "CommandComplete") this.tag = payload;
    else if (type === "Error") {
      const position = payload.position && payload.position - longer;
      this.fail(new Failure({ ...payload, position: position > 0 ? position : undefined }));
    }
  }

  fail(failure) {
    // To stop a subscription is how it ends.
    if (this.stream && failure.code === "57014") this.tag = "stopped";
    else this.failure = failure;
  }

  end() {
    this.ms = performance.now() - this.began;
  }
}

function Shown({ result, number }) {
  const plan = result.rows.length === 1 && result.rows[0].length === 1 ? planOf(result.rows[0][0]) : null;
  return html`<div class="result">
    <div class="result-head">
      <code title=${result.sql}>${result.sql.replace(/\s+/g, " ")}</code>
      <span class="dim">${result.tag ?? ""}${result.ms !== null && !result.stream ? ` in ${format.duration(result.ms)}` : ""}</span>
    </div>
    ${result.notices.map((notice) => html`<p class="notice">${notice.message}${notice.hint ? html` <span class="dim">${notice.hint}</span>` : null}</p>`)}
    ${result.failure ? html`<${Problem} failure=${result.failure} sql=${result.sql} />` : null}
    ${result.unrun ? html`<p class="none">${result.unrun === 1 ? "The statement after it was" : `The ${format.count(result.unrun)} statements after it were`} not run.</p>` : null}
    ${plan ? html`<${Plan} document=${plan} label=${`Plan ${number}`} />` : result.stream ? html`<${StreamTable} stream=${result.stream} isLive=${result.ms === null} />` : result.columns ? html`<${Grid} result=${result} number=${number} />` : null}
  </div>`;
}

function Grid({ result, number }) {
  if (!result.rows.length) return html`<p class="none">${result.ms === null ? "…" : "No rows."}</p>`;
  const isText = result.columns.length === 1 && result.columns[0].name === "plan";
  if (isText) return html`<pre class="scroll text" tabindex="0" role="region" aria-label=${`Plan ${number}`}>${result.rows.map(([line]) => line).join("\n")}</pre>`;
  return html`<div class="scroll rows" tabindex="0" role="region" aria-label=${`Rows ${number}`}>
      <table>
        <thead><tr>${result.columns.map((column) => html`<th scope="col" class=${format.NUMERIC.has(column.type_oid) ? "right" : ""}>${column.name}</th>`)}</tr></thead>
        <tbody>${result.rows.map((row) => html`<tr>${row.map((value, at) => html`<td class=${`mono ${format.NUMERIC.has(result.columns[at].type_oid) ? "right" : ""}`}>${cell(value)}</td>`)}</tr>`)}</tbody>
      </table>
    </div>
    ${result.count > MOST_ROWS ? html`<p class="none">The first ${format.count(MOST_ROWS)} of ${format.count(result.count)} rows.</p>` : null}`;
}
