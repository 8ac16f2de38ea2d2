// The frame: which page is shown, what keys do, who is signed in. Addresses are behind the #, so
// that one file is all that the server has to give.
import { html, render, useEffect, useRef, useState } from "/console/vendor/preact.js";
import { ask, signedIn, signIn, signOut } from "/console/api.js";
import { Clusters } from "/console/clusters.js";
import { Graph } from "/console/graph.js";
import { useLive } from "/console/live.js";
import { world } from "/console/model.js";
import { ObjectPage } from "/console/object.js";
import { Overview } from "/console/overview.js";
import { Dialog, Empty, Loaded, Problem } from "/console/parts.js";
import { Search } from "/console/search.js";
import { Shell } from "/console/sql.js";
import { Verifications } from "/console/verify.js";

const PAGES = [
  { path: "", name: "Overview", key: "o", page: Overview },
  { path: "graph", name: "Dataflow", key: "g", page: Graph },
  { path: "sql", name: "SQL", key: "s", page: Shell },
  { path: "clusters", name: "Clusters", key: "c", page: Clusters },
  { path: "verification", name: "Verification", key: "v", page: Verifications },
];

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, ...more] = path.split("/");
  return { page, more, query: new URLSearchParams(query ?? ""), hash: location.hash };
}

function usePlace() {
  const [at, setAt] = useState(place());
  useEffect(() => {
    const moved = () => {
      setAt(place());
      scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return at;
}

const GO_WITHIN = 1200; // Milliseconds between g and where to.

function useKeys({ box, help }) {
  useEffect(() => {
    let going = 0;
    function onKey(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (event.target.closest("input, textarea, select")) return;
      const page = PAGES.find((each) => each.key === event.key);
      if (event.key === "/") box.current?.focus();
      else if (event.key === "?") help();
      else if (page && performance.now() < going) {
        location.hash = `#/${page.path}`;
        going = 0;
      } else {
        if (event.key === "g") going = performance.now() + GO_WITHIN;
        return;
      }
      event.preventDefault();
    }
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

function Frame({ needsSignIn }) {
  const at = usePlace();
  const live = useLive(world);
  const [helps, setHelps] = useState(false);
  const box = useRef(null);
  useKeys({ box, help: () => setHelps(true) });
  useEffect(() => {
    if (live.error?.needsSignIn) needsSignIn(signedIn() ? live.error : null);
  }, [live.error]);
  const shown = PAGES.find((each) => each.path === at.page);
  const object = at.page === "object" ? live.data?.objects.get(at.more[0]) : null;
  useEffect(() => {
    document.title = `${object?.name ?? shown?.name ?? "Tidemark"} · Tidemark`;
  }, [at.hash, object?.name]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <header>
      <a class="brand" href="#/"><img src="/console/tidemark.svg" alt="" width="20" height="20" /> Tidemark</a>
      <nav aria-label="Pages">
        ${PAGES.map((each) => html`<a href=${`#/${each.path}`} aria-current=${each === shown ? "page" : null} title=${`g ${each.key}`}>${each.name}</a>`)}
      </nav>
      ${live.data ? html`<${Search} world=${live.data} box=${box} />` : html`<span class="spring"></span>`}
      <${Connection} live=${live} />
      <${Theme} />
      <button type="button" class="quiet" aria-label="Help" title="?" onClick=${() => setHelps(true)}>?</button>
      ${signedIn() ? html`<button type="button" class="quiet" onClick=${() => { signOut(); needsSignIn(null); }}>Sign out ${signedIn().user}</button>` : null}
    </header>
    <main id="main" tabindex="-1">
      ${live.error && live.data ? html`<${Problem} failure=${live.error} title="What is below is no longer current" retry=${live.again} />` : null}
      <${Loaded} live=${live} what="what there is">${(data) =>
        at.page === "object"
          ? html`<${ObjectPage} world=${data} id=${at.more[0]} tab=${at.more[1]} />`
          : shown
            ? html`<${shown.page} key=${shown.path === "sql" ? at.hash : shown.path} world=${data} query=${at.query} />`
            : html`<${Empty} title="No such page" whole><p><a class="button" href="#/">Back to the overview</a></p><//>`}<//>
    </main>
    ${helps ? html`<${Help} onClose=${() => setHelps(false)} />` : null}`;
}

function Connection({ live }) {
  const [word, tone] = live.error ? ["offline", "bad"] : live.data ? ["live", "good"] : ["connecting", "busy"];
  return html`<span class="status ${tone}" role="status"><i aria-hidden="true"></i>${word}</span>`;
}

const THEMES = { "": "auto", light: "light", dark: "dark" };

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("tidemark.theme") ?? "");
  function next() {
    const names = Object.keys(THEMES);
    const chosen = names[(names.indexOf(theme) + 1) % names.length];
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem("tidemark.theme", chosen);
    setTheme(chosen);
  }
  return html`<button type="button" class="quiet" onClick=${next} aria-label=${`Colours: ${THEMES[theme]}`} title="light, dark, or as the system has it">◐ ${THEMES[theme]}</button>`;
}

const KEYS = [
  ["/", "find an object"],
  ...PAGES.map((each) => [`g ${each.key}`, each.name]),
  ["Ctrl Enter", "run SQL, or what is selected of it"],
  ["Ctrl E", "explain the statement at the cursor"],
  ["Esc", "stop what runs"],
  ["Alt ↑, Alt ↓", "earlier and later SQL"],
  ["?", "this"],
];

function Help({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">${KEYS.map(([key, does]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl>
  <//>`;
}

function SignIn({ failure, done }) {
  const [problem, setProblem] = useState(failure);
  const [busy, setBusy] = useState(false);
  async function submit(event) {
    event.preventDefault();
    const { user, password } = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    try {
      await ask({ who: "SELECT current_user" }, { who: { user, password } });
      signIn(user, password);
      done();
    } catch (refused) {
      setProblem(refused);
      setBusy(false);
    }
  }
  return html`<main class="sign-in" id="main">
    <form onSubmit=${submit}>
      <h1><img src="/console/tidemark.svg" alt="" width="28" height="28" /> Tidemark</h1>
      <p class="dim">This server asks for a password.</p>
      ${problem ? html`<${Problem} failure=${problem} />` : null}
      <label>User <input name="user" required autocomplete="username" value="tidemark" autofocus /></label>
      <label>Password <input name="password" type="password" required autocomplete="current-password" /></label>
      <button class="primary" disabled=${busy}>${busy ? "Signing in…" : "Sign in"}</button>
      <p class="dim small">Kept in this tab until it is closed.</p>
    </form>
  </main>`;
}

function App() {
  const [asking, setAsking] = useState(null);
  if (asking) return html`<${SignIn} failure=${asking.failure} done=${() => setAsking(null)} />`;
  return html`<${Frame} needsSignIn=${(failure) => { signOut(); setAsking({ failure }); }} />`;
}

render(html`<${App} />`, document.getElementById("app"));
