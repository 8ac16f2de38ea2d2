// The first page: is everything fresh, and if not, what is it?
import { html, useState } from "/console/vendor/preact.js";
import * as format from "/console/format.js";
import { lagsOf, shownName } from "/console/model.js";
import { Empty, Lag, LATE, ObjectLink, Sparkline, Status, Table } from "/console/parts.js";

const START = `CREATE TABLE orders (id int, region text, amount numeric(10, 2));
INSERT INTO orders VALUES (1, 'west', 12.50), (2, 'east', 7.00);
CREATE MATERIALIZED VIEW by_region AS
  SELECT region, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY region;
SUBSCRIBE by_region;`;

const RUN = ["source", "materialized-view", "index", "sink"];

const COLUMNS = [
  { name: "Name", by: shownName, cell: (object) => html`<${ObjectLink} object=${object} />` },
  { name: "Kind", by: (object) => object.kind, cell: (object) => object.kind },
  { name: "Status", by: (object) => object.status, cell: (object) => html`<${Status} word=${object.status} title=${object.error} />` },
  { name: "Behind", by: (object) => object.lag, right: true, cell: (object) => html`<${Lag} object=${object} />` },
  {
    name: "Lately",
    cell: (object) => object.isStored && html`<${Sparkline} values=${lagsOf(object.id)} label=${`lag of ${object.name}`} />`,
  },
  { name: "Complete up to (UTC)", by: (object) => object.upper, right: true, mono: true, cell: (object) => (object.upper === undefined ? "–" : object.upper ? format.frontier(object.upper) : object.upper === null ? "ended" : "–") },
  { name: "Updates", by: (object) => object.rates?.updates, right: true, cell: (object) => (object.rates ? format.rate(object.rates.updates) : "–") },
  { name: "Rows", by: (object) => object.rows, right: true, cell: (object) => format.count(object.rows) },
  { name: "Size", by: (object) => object.bytes, right: true, cell: (object) => format.bytes(object.bytes) },
  { name: "Cluster", by: (object) => object.cluster, cell: (object) => object.cluster && html`<a href="#/clusters">${object.cluster}</a>` },
];

// Of what it is made from, the first that is late: when that comes, so does the rest.
export function lateInput(object, objects) {
  const inputs = object.inputs.map((id) => objects.get(id)).filter((each) => each && each.status !== "paused");
  const late = inputs.find((each) => (each.lag ?? 0) >= LATE);
  return late ? (lateInput(late, objects) ?? late) : null;
}

// What is in error makes what is read from it so, with the same words: they are said once.
function byMessage(trouble, objects) {
  const found = new Map();
  for (const object of trouble) {
    const cause = lateInput(object, objects);
    const message = object.error || `${format.duration(object.lag)} behind the clock${cause ? `, as ${shownName(cause)} is` : ""}.`;
    found.set(message, [...(found.get(message) ?? []), object]);
  }
  return [...found];
}

export function Overview({ world }) {
  const [kind, setKind] = useState("");
  const all = [...world.objects.values()].filter((object) => !["connection", "secret", "progress"].includes(object.type));
  if (!all.length) {
    return html`<${Empty} title="Nothing here yet" whole>
      <p>Create a source, a table or a view, and it appears here. To begin with, for example:</p>
      <pre class="example">${START}</pre>
      <p><a class="button" href=${`#/sql?q=${encodeURIComponent(START)}`}>Open it in the SQL shell</a></p>
    <//>`;
  }
  const stored = all.filter((object) => object.isStored && object.upper !== null);
  const worst = stored.reduce((found, object) => ((object.lag ?? -1) > (found?.lag ?? -1) ? object : found), null);
  const run = all.filter((object) => RUN.includes(object.type));
  const filling = run.filter((object) => ["hydrating", "starting"].includes(object.status));
  const trouble = all.filter((object) => object.error || (object.lag ?? 0) >= LATE);
  const online = world.replicas.filter((replica) => replica.status === "online").length;
  const kinds = [...new Set(all.map((object) => object.kind))].sort();
  const shown = kind ? all.filter((object) => object.kind === kind) : all;
  return html`
    <h1>Overview</h1>
    <div class="tiles">
      <${Tile} name="Furthest behind" value=${worst && worst.lag !== null ? format.duration(worst.lag) : "–"} tone=${worst?.lag >= LATE ? "warn" : "good"}>
        ${worst ? html`<${ObjectLink} object=${worst} />` : null}
      <//>
      <${Tile} name="Running" value=${`${run.filter((object) => object.status === "running").length} of ${run.length}`} tone=${filling.length ? "busy" : "good"}>
        ${filling.length ? `${format.plural(filling.length, "is", "are")} hydrating` : "sources, views, indexes, sinks"}
      <//>
      <${Tile} name="Replicas online" value=${`${online} of ${world.replicas.length}`} tone=${online < world.replicas.length ? "bad" : "good"}>
        <a href="#/clusters">${format.plural(world.clusters.length, "cluster")}</a>
      <//>
      <${Tile} name="Stored" value=${format.bytes(all.reduce((sum, object) => sum + (object.bytes ?? 0), 0))}>
        ${format.plural(all.length, "object")}
      <//>
    </div>
    ${trouble.length
      ? html`<section class="attention" aria-labelledby="attention">
          <h2 id="attention">Needs a look</h2>
          <ul>
            ${byMessage(trouble, world.objects).map(
              ([message, objects]) => html`<li key=${message}>
                <span>${objects.map((object, at) => html`${at ? ", " : null}<${ObjectLink} object=${object} tab=${object.error ? "errors" : null} />`)}</span>
                <span>${message}</span>
              </li>`,
            )}
          </ul>
        </section>`
      : null}
    <div class="head">
      <h2>Objects</h2>
      <label>Kind
        <select value=${kind} onChange=${(event) => setKind(event.target.value)}>
          <option value="">all</option>
          ${kinds.map((each) => html`<option value=${each}>${each}</option>`)}
        </select>
      </label>
    </div>
    <${Table} label="Objects" columns=${COLUMNS} rows=${shown} id=${(object) => object.id} />`;
}

function Tile({ name, value, tone = "", children }) {
  return html`<div class="tile ${tone}"><p class="tile-name">${name}</p><p class="tile-value">${value}</p><p class="tile-more">${children}</p></div>`;
}
