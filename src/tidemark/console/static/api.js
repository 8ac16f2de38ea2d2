// How the console speaks to the server: SQL over POST, and a websocket for what goes on.
// What goes wrong is a Failure, with SQL's own words; `status` is HTTP's, 0 if nobody answered.

const SAVED = "tidemark.user";
const NO_ANSWER = "The server does not answer.";
const APPLICATION = "tidemark_console"; // The server does not keep its looks at the catalog.

export class Failure extends Error {
  constructor(error, status = 200) {
    super(error.message);
    Object.assign(this, { code: error.code, hint: error.hint, position: error.position, status });
  }

  get needsSignIn() {
    return this.status === 401 || this.code === "28P01";
  }
}

// Of this tab only, until it is closed: each request says them, there are no cookies.
export function signedIn() {
  return JSON.parse(sessionStorage.getItem(SAVED) || "null");
}

export function signIn(user, password) {
  sessionStorage.setItem(SAVED, JSON.stringify({ user, password }));
}

export function signOut() {
  sessionStorage.removeItem(SAVED);
}

function authorization(who) {
  if (!who) return {};
  const bytes = new TextEncoder().encode(`${who.user}:${who.password}`);
  return { Authorization: `Basic ${btoa(String.fromCharCode(...bytes))}` };
}

// JSON as it was sent: digits that a number of JavaScript's would lose stay where they are.
const parsed = (text) => JSON.parse(text, exactly);

function exactly(_, value, context) {
  const isRounded = typeof value === "number" && context && String(value) !== context.source;
  return isRounded ? JSON.rawJSON(context.source) : value;
}

const NUMBERS = new Set([20, 21, 23, 26, 700, 701]);

// Rows as objects; integers and doubles as numbers, as the catalog's are small enough for that.
function records({ desc, rows }) {
  const columns = desc.columns;
  return rows.map((row) =>
    Object.fromEntries(
      columns.map((column, at) => [
        column.name,
        row[at] !== null && NUMBERS.has(column.type_oid) ? Number(row[at]) : row[at],
      ]),
    ),
  );
}

// Several queries in one request: `{name: sql}` or `{name: [sql, param, …]}` to `{name: records}`.
export async function ask(queries, { who = signedIn() } = {}) {
  const names = Object.keys(queries);
  const results = await request(Object.values(queries), who);
  return Object.fromEntries(results.map((result, at) => [names[at], result.desc ? records(result) : []]));
}

// Somebody's own rows, `{columns, rows}`: values stay texts, as a number would be rounded.
export async function read(sql) {
  const [{ desc, rows }] = await request([sql], signedIn());
  return { columns: desc.columns, rows };
}

async function request(queries, who) {
  const listed = queries.map((each) => {
    const [query, ...params] = [each].flat();
    return { query, params };
  });
  const options = encodeURIComponent(JSON.stringify({ application_name: APPLICATION }));
  let response;
  try {
    response = await fetch(`/api/sql?options=${options}`, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        "X-Tidemark-Console": "1",
        ...authorization(who),
      },
      body: JSON.stringify({ queries: listed }),
    });
  } catch {
    throw new Failure({ message: NO_ANSWER, code: "08006" }, 0);
  }
  let body;
  try {
    body = parsed(await response.text());
  } catch {
    const message = `What answers is not the server (HTTP ${response.status}): is there a proxy in between?`;
    throw new Failure({ message, code: "08006" }, response.status);
  }
  if (body.error) throw new Failure(body.error, response.status);
  const failed = body.results.find((result) => result.error);
  if (failed) throw new Failure(failed.error);
  return body.results;
}

// One session over a websocket. `run` sends a statement and gives its messages to `heard`; it
// resolves when the statement has ended. `close` cancels what runs, and ends the session. `onEnd`
// is told of it, with the failure if that took a transaction along and no statement has heard it.
export class Conversation {
  constructor({ onState = () => {}, onEnd = () => {} } = {}) {
    this.onState = onState;
    this.onEnd = onEnd;
    this.turn = null;
    this.state = "I";
    this.hasEnded = false;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/api/ws`);
    this.opened = new Promise((resolve, reject) => {
      this.ready = resolve;
      this.failed = reject;
    });
    this.opened.catch(() => {}); // Whoever runs a statement hears it.
    let wasOpen = false;
    this.socket.onopen = () => {
      wasOpen = true;
      const options = { application_name: "tidemark_console_shell" };
      this.socket.send(JSON.stringify({ ...signedIn(), options }));
    };
    this.socket.onmessage = ({ data }) => this.take(parsed(data));
    this.socket.onclose = () => this.end(new Failure({ message: wasOpen ? "The session has ended." : NO_ANSWER, code: "08006" }, 0));
  }

  get isOpen() {
    return !this.hasEnded;
  }

  take({ type, payload }) {
    if (type === "ReadyForQuery") {
      this.state = payload;
      this.onState(payload);
      this.ready();
      const turn = this.turn;
      this.turn = null;
      if (turn) turn.done();
    } else if (this.turn) {
      this.turn.heard(type, payload);
    } else if (type === "Error") {
      this.end(new Failure(payload)); // That nobody asked for: it is the last that is said.
    }
  }

  end(failure) {
    if (this.hasEnded) return;
    this.hasEnded = true;
    const wasInTransaction = this.state !== "I";
    if (wasInTransaction) failure.hint = "the transaction was rolled back, and what was SET is gone";
    this.failed(failure);
    this.turn?.fail(failure);
    this.onEnd(wasInTransaction && !this.turn ? failure : null);
    this.turn = null;
  }

  async run(query, heard) {
    await this.opened;
    await new Promise((done, fail) => {
      this.turn = { heard, done, fail };
      this.socket.send(JSON.stringify({ queries: [{ query, params: [] }] }));
    });
  }

  close() {
    this.socket.close();
    this.end(new Failure({ message: "Cancelled.", code: "57014" }));
  }
}
