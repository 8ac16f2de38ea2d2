// The dataflow graph: sources and tables on the left, what is kept from them to the right.
import { html, useMemo, useState } from "/console/vendor/preact.js";
import * as format from "/console/format.js";
import { layered } from "/console/layout.js";
import { shownName } from "/console/model.js";
import { Empty, Lag, Status } from "/console/parts.js";

const SIZE = { width: 206, height: 92, across: 62, down: 18 };
const MARGIN = 12;

export function Graph({ world }) {
  const [over, setOver] = useState(null);
  const nodes = [...world.objects.values()].filter((object) => !["connection", "secret", "progress"].includes(object.type));
  const shape = nodes.map((node) => `${node.id}<${node.inputs}`).join(" ");
  const { boxes, edges, width, height } = useMemo(() => layered(nodes, SIZE), [shape]);
  if (!nodes.length) {
    return html`<${Empty} title="No dataflow yet" whole><p>Sources, tables and views appear here, with how far each has come.</p><p><a class="button" href="#/sql">Create one</a></p><//>`;
  }
  const near = over && related(world.objects, over);
  return html`
    <div class="head"><h1>Dataflow</h1>
      <p class="legend"><span><i class="good"></i>fresh</span><span><i class="warn"></i>needs a look</span><span><i class="busy"></i>hydrating</span><span><i class="bad"></i>stalled</span></p>
    </div>
    <div class="canvas" tabindex="0" role="region" aria-label="Dataflow graph">
      <div class="graph" style=${{ width: `${width + 2 * MARGIN}px`, height: `${height + 2 * MARGIN}px` }}>
        <svg width=${width + 2 * MARGIN} height=${height + 2 * MARGIN} aria-hidden="true">
          <g transform=${`translate(${MARGIN} ${MARGIN})`}>
            ${edges.map(({ from, to, path }) => html`<path key=${`${from}-${to}`} d=${path} class=${near ? (near.has(from) && near.has(to) ? "near" : "far") : ""} />`)}
          </g>
        </svg>
        <ul>
          ${nodes.map((node) => {
            const { x, y } = boxes.get(node.id);
            const sides = { onMouseEnter: () => setOver(node.id), onMouseLeave: () => setOver(null), onFocus: () => setOver(node.id), onBlur: () => setOver(null) };
            return html`<li key=${node.id} style=${{ left: `${x + MARGIN}px`, top: `${y + MARGIN}px` }}>
              <a class="node ${tone(node)} ${near && !near.has(node.id) ? "far" : ""}" href=${`#/object/${node.id}`} ...${sides}>
                <span class="node-kind">${node.kind}${node.cluster ? html` <span>${node.cluster}</span>` : null}</span>
                <span class="node-name">${shownName(node)}</span>
                <${Doing} node=${node} />
              </a>
            </li>`;
          })}
        </ul>
      </div>
    </div>`;
}

function Doing({ node }) {
  if (["hydrating", "starting"].includes(node.status) || (node.received?.offset_known && !node.received.snapshot_committed)) return html`<${Hydration} node=${node} />`;
  if (!["running"].includes(node.status)) return html`<span class="node-line"><${Status} word=${node.status} title=${node.error} /></span>`;
  const { rates } = node;
  return html`
    <span class="node-line">
      ${node.isStored ? html`<span class="dim">behind</span> <${Lag} object=${node} />` : html`<${Status} word=${node.status} />`}
      ${rates ? html`<span class="node-rate">${format.rate(rates.updates)}</span>` : node.rows !== null ? html`<span class="node-rate">${format.plural(node.rows, "row")}</span>` : null}
    </span>
    <span class="node-line dim">
      ${node.received ? `offset ${format.count(node.received.offset_committed)}` : node.upper ? html`to <span class="mono">${format.frontier(node.upper)}</span>` : ""}
      ${rates?.busy !== null && rates?.busy !== undefined ? html`<span class="node-rate">${Math.round(rates.busy * 100)} % busy</span>` : null}
    </span>`;
}

// A source knows how far it has to go; of a view it is known on which replicas it is done.
function Hydration({ node }) {
  const { received, hydration } = node;
  const [done, of] = received?.offset_known ? [received.offset_committed ?? 0, received.offset_known] : [hydration.done, hydration.of];
  const unit = received?.offset_known ? "offsets" : "replicas";
  return html`<span class="node-line"><${Status} word=${node.status === "running" ? "hydrating" : node.status} /></span>
    <span class="node-line"><progress max=${of || 1} value=${done} aria-label=${`hydration of ${node.name}`}></progress> <span class="dim">${format.count(done)} of ${format.count(of)} ${unit}</span></span>`;
}

function tone(node) {
  if (node.status === "stalled") return "bad";
  if (["hydrating", "starting"].includes(node.status)) return "busy";
  if (node.status === "paused" || (node.lag ?? 0) >= 5000 || node.status === "in error") return "warn";
  return node.isStored || node.status === "running" ? "good" : "";
}

function related(objects, id) {
  const found = new Set([id]);
  for (const side of ["inputs", "outputs"]) {
    const waiting = [id];
    while (waiting.length) {
      for (const each of objects.get(waiting.pop())?.[side] ?? []) {
        if (!found.has(each)) waiting.push(each);
        found.add(each);
      }
    }
  }
  return found;
}
