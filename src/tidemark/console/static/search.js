// The box at the top that leads to an object by its name.
import { html, useState } from "/console/vendor/preact.js";
import { shownName } from "/console/model.js";

const MOST = 12;

export function Search({ world, box }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const wanted = text.trim().toLowerCase();
  const found = wanted
    ? [...world.objects.values()]
        .filter((object) => shownName(object).toLowerCase().includes(wanted))
        .sort((a, b) => shownName(a).toLowerCase().indexOf(wanted) - shownName(b).toLowerCase().indexOf(wanted))
        .slice(0, MOST)
    : [];
  const go = (object) => {
    location.hash = `#/object/${object.id}`;
    setText("");
    box.current.blur();
  };
  function onKey(event) {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, found.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter" && found[at]) go(found[at]);
    else if (event.key === "Escape") {
      setText("");
      box.current.blur();
    } else return;
    event.preventDefault();
  }
  return html`<div class="search">
    <input ref=${box} type="text" role="combobox" aria-label="Find an object" aria-expanded=${found.length > 0} aria-controls="found" aria-autocomplete="list"
      aria-activedescendant=${found[at] ? `found-${found[at].id}` : null} placeholder="Find an object   /" autocomplete="off" spellcheck="false"
      value=${text} onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${onKey} />
    <ul id="found" role="listbox" aria-label="Objects found" hidden=${!wanted}>
      ${found.map((object, number) => html`<li key=${object.id} id=${`found-${object.id}`} role="option" aria-selected=${number === at} onMouseDown=${(event) => { event.preventDefault(); go(object); }}>
        ${shownName(object)} <span>${object.kind}</span></li>`)}
      ${wanted && !found.length ? html`<li role="option" aria-selected="false" aria-disabled="true" class="dim">Nothing has that in its name</li>` : null}
    </ul>
  </div>`;
}
