// What lies in persist for an object: its shards, their batches, and who holds their history.
import { html, useState } from "/console/vendor/preact.js";
import { ask } from "/console/api.js";
import * as format from "/console/format.js";
import { useLive } from "/console/live.js";
import { Empty, Facts, Loaded, Table } from "/console/parts.js";

const look = (id) =>
  ask({
    shards: ["SELECT * FROM mz_internal.mz_storage_shards WHERE object_id = $1 ORDER BY is_collection DESC, shard_id", id],
    batches: ["SELECT * FROM mz_internal.mz_storage_batches WHERE object_id = $1 ORDER BY shard_id, number", id],
    holds: ["SELECT * FROM mz_internal.mz_storage_holds WHERE object_id = $1 ORDER BY shard_id, since, hold_id", id],
  });

export function Storage({ object }) {
  const live = useLive(() => look(object.id), [object.id]);
  const [picked, setPicked] = useState(null);
  return html`<${Loaded} live=${live} what="shards">${({ shards, batches, holds }) => {
    if (!shards.length) return html`<${Empty} title="No shards"><p>Nothing is stored for it under its own name.</p><//>`;
    const shard = shards.find((each) => each.shard_id === picked) ?? shards[0];
    const of = (rows) => rows.filter((row) => row.shard_id === shard.shard_id);
    return html`
      ${shards.length > 1
        ? html`<div class="head"><label>Shard
            <select value=${shard.shard_id} onChange=${(event) => setPicked(event.target.value)}>
              ${shards.map((each) => html`<option value=${each.shard_id}>${each.shard_id}${each.is_collection ? " (its rows)" : ""}</option>`)}
            </select></label></div>`
        : null}
      <${Shard} shard=${shard} batches=${of(batches)} holds=${of(holds)} />`;
  }}<//>`;
}

// What happened in it before its since is forgotten: only the sum is left.
const isCompacted = (batch) => batch.since > batch.lower;

function Shard({ shard, batches, holds }) {
  if (shard.error) return html`<p class="problem-line"><b>${shard.shard_id} cannot be read.</b> ${shard.error}</p>`;
  const compacted = batches.filter(isCompacted).length;
  return html`
    <div class="columns">
      <${Facts} facts=${[
        ["Shard", html`<span class="mono">${shard.shard_id}</span>`],
        ["Readable from (since)", html`<span class="mono" title=${shard.read_frontier}>${format.frontier(shard.read_frontier)}</span>`],
        ["Complete up to (upper)", html`<span class="mono" title=${shard.write_frontier}>${format.frontier(shard.write_frontier)}</span>`],
        ["History kept", shard.read_frontier === 0 ? "all of it" : shard.write_frontier ? format.duration(Math.max(0, shard.write_frontier - shard.read_frontier)) : "–"],
        ["Last commit", html`${format.moment(format.parsed(shard.committed_at))}, version ${format.count(shard.version)}`],
      ]} />
      <${Facts} facts=${[
        ["Rows", html`${format.count(shard.rows)}${shard.error_rows ? html` <span class="dim">and in error ${format.count(shard.error_rows)}</span>` : null}`],
        ["Updates", html`${format.count(shard.updates)}${shard.error_updates ? html` <span class="dim">of which errors ${format.count(shard.error_updates)}</span>` : null}`],
        ["Size", html`${format.bytes(shard.bytes)} <span class="dim">of which ${format.bytes(shard.inline_bytes)} in the state</span>`],
        ["Batches, parts", `${format.count(shard.batches)}, ${format.count(shard.parts)}`],
        ["Compacted", `${compacted} of ${format.plural(batches.length, "batch", "batches")}`],
        ["To be deleted", format.plural(shard.retired_parts, "part")],
      ]} />
    </div>
    <h2>Batches</h2>
    ${batches.length ? html`<${Strip} batches=${batches} />` : null}
    <${Table} label="Batches" rows=${[...batches].reverse()} id=${(batch) => batch.number} empty="No batches: nothing was ever written." columns=${[
      { name: "Lower", by: (batch) => batch.lower, right: true, mono: true, cell: (batch) => format.frontier(batch.lower) },
      { name: "Upper", by: (batch) => batch.upper, right: true, mono: true, cell: (batch) => format.frontier(batch.upper) },
      { name: "Compacted to", by: (batch) => batch.since, right: true, mono: true, cell: (batch) => (isCompacted(batch) ? format.frontier(batch.since) : html`<span class="dim">as written</span>`) },
      { name: "Updates", by: (batch) => batch.updates, right: true, cell: (batch) => format.count(batch.updates) },
      { name: "Sum of diffs", by: (batch) => batch.diffs, right: true, cell: (batch) => format.count(batch.diffs) },
      { name: "Size", by: (batch) => batch.bytes, right: true, cell: (batch) => format.bytes(batch.bytes) },
      { name: "Runs", by: (batch) => batch.runs, right: true, cell: (batch) => format.count(batch.runs) },
      { name: "Parts", by: (batch) => batch.parts, right: true, cell: (batch) => format.count(batch.parts) },
    ]} />
    <h2>Holds</h2>
    <${Table} label="Holds" rows=${holds} id=${(hold) => hold.hold_id} empty="Nobody holds its history." columns=${[
      { name: "Hold", mono: true, cell: (hold) => hold.hold_id },
      { name: "Kind", cell: (hold) => hold.kind },
      { name: "Since", by: (hold) => hold.since, right: true, mono: true, cell: (hold) => format.frontier(hold.since) },
      { name: "Purpose", cell: (hold) => hold.purpose || "–" },
      { name: "Expires", cell: (hold) => (hold.expires_at ? format.moment(format.parsed(hold.expires_at)) : "never") },
    ]} />`;
}

// Batches from old to new, as wide as the logarithm of their updates: large and old ones on the left, a
// staircase of small ones on the right, is how a shard looks that is compacted well.
function Strip({ batches }) {
  const weight = (batch) => 1 + Math.log2(1 + batch.updates);
  const total = batches.reduce((sum, batch) => sum + weight(batch), 0);
  return html`<div class="strip" role="img" aria-label=${`${batches.length} batches from old to new, by their updates`}>
    ${batches.map(
      (batch) => html`<span key=${batch.number} class=${isCompacted(batch) ? "compacted" : ""} style=${{ width: `${(100 * weight(batch)) / total}%` }}
        title=${`${format.frontier(batch.lower)} to ${format.frontier(batch.upper)}: ${format.plural(batch.updates, "update")}, ${format.bytes(batch.bytes)}`}></span>`,
    )}
  </div>`;
}
