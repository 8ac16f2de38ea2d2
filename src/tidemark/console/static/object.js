// One object, in tabs: what it is, its rows, its plan, what is wrong, its shards, its verdicts.
import { html, useEffect, useState } from "/console/vendor/preact.js";
import { ask, read } from "/console/api.js";
import * as format from "/console/format.js";
import { useLive } from "/console/live.js";
import { lagsOf, shownName, sqlName } from "/console/model.js";
import { cell, Code, Empty, Facts, Lag, Loaded, Loading, ObjectLink, Problem, Sparkline, Status, Table, Tabs } from "/console/parts.js";
import { Plan, planOf } from "/console/plan.js";
import { Storage } from "/console/storage.js";
import { useVerify, Verdicts } from "/console/verify.js";

const READ = ["table", "subsource", "view", "materialized-view", "source"];

export function ObjectPage({ world, id, tab }) {
  const object = world.objects.get(id);
  if (!object) {
    return html`<${Empty} title="No such object" whole><p>There is nothing with the id ${id}: it may have been dropped.</p><p><a class="button" href="#/">Back to the overview</a></p><//>`;
  }
  const isView = ["view", "materialized-view"].includes(object.type);
  const hasRows = READ.includes(object.type) && !(object.type === "source" && !object.isStored);
  const tabs = [
    ["about", "About"],
    hasRows && ["rows", "Rows"],
    isView && ["plan", "Plan"],
    ["errors", object.error ? html`Errors <i class="dot" aria-hidden="true"></i>` : "Errors"],
    object.type !== "index" && object.type !== "view" && ["storage", "Storage"],
    object.type === "materialized-view" && ["verification", "Verification"],
  ].filter(Boolean);
  const current = tabs.some(([each]) => each === tab) ? tab : "about";
  const Page = { about: About, rows: Rows, plan: Explained, errors: Errors, storage: Storage, verification: Verification }[current];
  return html`
    <div class="head object-head">
      <h1>${shownName(object)} <span class="kind">${object.kind}</span></h1>
      <p><${Status} word=${object.status} title=${object.error} />${object.isStored ? html` <${HowLate} object=${object} />` : null}</p>
    </div>
    ${object.comment ? html`<p class="lead">${object.comment}</p>` : null}
    <${Tabs} tabs=${tabs} current=${current} href=${(each) => `#/object/${id}/${each}`} />
    <${Page} key=${`${id}/${current}`} object=${object} world=${world} />`;
}

function HowLate({ object }) {
  const canBeLate = object.lag !== null && object.upper !== null;
  if (object.lag === null && object.upper !== null) return html`<span class="dim">not readable yet</span>`;
  return html`${canBeLate ? html`<span class="dim">behind</span> ` : null}<${Lag} object=${object} />`;
}

function About({ object, world }) {
  const live = useLive(
    () => ask({ columns: ["SELECT name, position, type, nullable FROM mz_columns WHERE id = $1 ORDER BY position", object.id], notes: ["SELECT object_sub_id, comment FROM mz_internal.mz_comments WHERE id = $1", object.id] }),
    [object.id],
  );
  const links = (ids) => (ids.length ? ids.map((each) => html`<span class="chip"><${ObjectLink} object=${world.objects.get(each)} /> <span class="dim">${world.objects.get(each)?.kind}</span></span>`) : html`<span class="dim">nothing</span>`);
  return html`
    <div class="columns">
      <section>
        <h2>Definition</h2>
        ${object.create_sql ? html`<${Code} text=${object.create_sql} label="Definition" />` : html`<p class="none">It came with its source.</p>`}
        <${Loaded} live=${live} what="columns">${({ columns, notes }) => columns.length > 0 && html`
          <h2>Columns</h2>
          <${Table} label="Columns" rows=${columns} columns=${[
            { name: "Column", cell: (column) => html`<b>${column.name}</b>` },
            { name: "Type", mono: true, cell: (column) => column.type },
            { name: "Null", cell: (column) => (column.nullable ? "yes" : "no") },
            ...(notes.some((note) => note.object_sub_id) ? [{ name: "Comment", cell: (column) => notes.find((note) => note.object_sub_id === column.position)?.comment }] : []),
          ]} />`}<//>
      </section>
      <section>
        <h2>Freshness</h2>
        <${Facts} facts=${[
          ["Behind the clock", html`<${Lag} object=${object} /> ${object.isStored ? html`<${Sparkline} values=${lagsOf(object.id)} label="lag at the last looks" />` : null}`],
          object.upper !== undefined && ["Complete up to (UTC)", html`<span class="mono" title=${object.upper}>${object.upper ? format.frontier(object.upper) : "nothing yet"}</span>`],
          object.since !== undefined && ["Readable from (UTC)", html`<span class="mono" title=${object.since}>${format.frontier(object.since)}</span>`],
          object.hydration.of > 0 && ["Hydrated on", `${object.hydration.done} of ${format.plural(object.hydration.of, "replica")}`],
        ]} />
        <h2>Statistics</h2>
        <${Statistics} object=${object} world=${world} />
        <h2>Place</h2>
        <${Facts} facts=${[
          ["Reads", links(object.inputs)],
          ["Read by", links(object.outputs)],
          object.cluster && ["Cluster", html`<a href="#/clusters">${object.cluster}</a>`],
          ["Database", `${object.database}, schema ${object.schema}`],
          ["Owner", object.owner],
          ["Id", html`<span class="mono">${object.id}</span>`],
        ]} />
      </section>
    </div>`;
}

function Statistics({ object, world }) {
  const replica = (id) => world.replicas.find((each) => each.id === id)?.name ?? id;
  const { received, rates } = object;
  const sizes = [
    object.rows !== null && ["Rows", format.count(object.rows)],
    object.bytes !== null && ["Size", format.bytes(object.bytes)],
    rates && ["Updates", format.rate(rates.updates)],
  ];
  if (received) {
    return html`<${Facts} facts=${[
      ...sizes,
      ["Messages received", format.count(received.messages_received)],
      ["Bytes received", format.bytes(received.bytes_received)],
      ["Updates committed", format.count(received.updates_committed)],
      ["Offsets", `${format.count(received.offset_committed)} of ${format.count(received.offset_known)}`],
      ["Rows inserted, retracted", `${format.count(received.inserts)}, ${format.count(received.retractions)}`],
      ["Error rows inserted, retracted", `${format.count(received.error_inserts)}, ${format.count(received.error_retractions)}`],
    ]} />`;
  }
  return html`
    ${sizes.some(Boolean) ? html`<${Facts} facts=${sizes} />` : object.costs.length ? null : html`<p class="none">${object.type === "view" ? "It is computed when it is read." : "None."}</p>`}
    ${object.costs.length
      ? html`<${Table} label="Cost by replica" rows=${object.costs} columns=${[
          { name: "Replica", cell: (cost) => replica(cost.replica_id) },
          { name: "Ticks", right: true, cell: (cost) => format.count(cost.ticks) },
          { name: "Last tick", right: true, cell: (cost) => format.duration(cost.tick_ms) },
          { name: "All ticks", right: true, cell: (cost) => format.duration(cost.busy_ms) },
          { name: "Written", right: true, cell: (cost) => format.count(cost.updates) },
          { name: "Corrections", right: true, cell: (cost) => format.count(cost.corrections) },
        ]} />`
      : null}
    ${object.sizes.length
      ? html`<${Table} label="Size by replica" rows=${object.sizes} columns=${[
          { name: "Replica", cell: (size) => replica(size.replica_id) },
          { name: "Updates stored", right: true, cell: (size) => format.count(size.rows) },
          { name: "Size", right: true, cell: (size) => format.bytes(size.bytes) },
          { name: "In memory", right: true, cell: (size) => format.bytes(size.memory_bytes) },
        ]} />`
      : null}
    ${object.sent.length
      ? html`<${Table} label="Sent by replica" rows=${object.sent} columns=${[
          { name: "Replica", cell: (sent) => replica(sent.replica_id) },
          { name: "Messages", right: true, cell: (sent) => format.count(sent.messages_committed) },
          { name: "Bytes", right: true, cell: (sent) => format.bytes(sent.bytes_committed) },
        ]} />`
      : null}`;
}

// Asked once, and again when that is asked for: what runs on a cluster is not for every two seconds.
function useOnce(look) {
  const [found, setFound] = useState({ data: null, error: null });
  async function again() {
    setFound({ data: null, error: null });
    try {
      setFound({ data: await look(), error: null });
    } catch (error) {
      setFound({ data: null, error });
    }
  }
  useEffect(() => {
    again();
  }, []);
  return { ...found, again };
}

const FIRST = 100;

function Rows({ object }) {
  const live = useOnce(() => read(`SELECT * FROM ${sqlName(object)} LIMIT ${FIRST}`));
  const subscribe = `SUBSCRIBE ${sqlName(object)}`;
  return html`<div class="head"><p class="dim">At most ${FIRST} rows, as of now.</p>
      <p><button type="button" onClick=${live.again}>Read again</button> <a class="button" href=${`#/sql?run=1&q=${encodeURIComponent(subscribe)}`}>Watch it change</a></p></div>
    <${Loaded} live=${live} what="rows">${({ columns, rows }) =>
      rows.length
        ? html`<${Table} label="Rows" rows=${rows} columns=${columns.map(shownColumn)} />`
        : html`<${Empty} title="No rows"><p>${shownName(object)} is empty.</p><//>`}<//>`;
}

function shownColumn({ name, type_oid }, at) {
  const isNumber = format.NUMERIC.has(type_oid);
  const by = (row) => (row[at] === null ? null : isNumber ? format.orderOf(row[at]) : format.textOf(row[at]));
  return { name, by, right: isNumber, mono: true, cell: (row) => cell(row[at]) };
}

function Explained({ object }) {
  const isKept = object.type !== "view";
  const word = isKept ? "MATERIALIZED VIEW" : "VIEW";
  const live = useOnce(() =>
    ask({ plan: `EXPLAIN OPTIMIZED PLAN AS JSON FOR ${word} ${sqlName(object)}`, delta: `EXPLAIN DELTA PLAN FOR ${word} ${sqlName(object)}` }),
  );
  return html`<${Loaded} live=${live} what="the plan">${({ plan, delta }) => html`
    <h2>${isKept ? "As it is kept" : "As it would be kept"}</h2>
    <${Plan} document=${planOf(plan[0].plan)} />
    <h2>${isKept ? "What a tick does" : "What a tick would do"}</h2>
    <${Code} text=${delta.map((line) => line.plan).join("\n")} label="Delta plan" plain />`}<//>`;
}

function Errors({ object }) {
  const fails = object.errorRows > 0;
  return html`
    ${object.error && !(fails && object.status === "in error") ? html`<${Problem} title=${{ stalled: "It is stalled", "in error": "Reads of it fail" }[object.status]} failure=${{ message: object.error, hint: object.hint }} />` : null}
    ${fails ? html`<${ErrorRow} object=${object} />` : null}
    ${object.error || fails ? null : html`<${NoErrors} object=${object} />`}
    ${object.received ? html`<p class="dim">Error rows so far: ${format.count(object.received.error_inserts)} inserted, ${format.count(object.received.error_retractions)} retracted.</p>` : null}`;
}

// An error row is data: a read fails with what it says, for as long as it is there.
function ErrorRow({ object }) {
  const read = useOnce(async () => {
    try {
      await ask({ rows: `SELECT * FROM ${sqlName(object)} LIMIT 1` });
      return { failure: null };
    } catch (failure) {
      if (failure.status !== 200) throw failure;
      return { failure };
    }
  });
  return html`<${Loaded} live=${read} what="what a read says">${({ failure }) =>
    failure
      ? html`<${Problem} title="Reads fail" failure=${failure} retry=${read.again} />
          <p class="lead">An error row is data: reads fail with it until the row that causes it changes or is deleted. The dataflow goes on meanwhile.</p>`
      : html`<${NoErrors} object=${object} />`}<//>`;
}

function NoErrors({ object }) {
  const { errorUpdates } = object;
  if (!errorUpdates) return html`<${Empty} title="No errors"><p>It runs, and its history has no error rows.</p><//>`;
  return html`<${Empty} title="No errors now"><p>${format.plural(errorUpdates, "update")} of its history ${errorUpdates === 1 ? "is" : "are"} of error rows, which are gone by now.</p><//>`;
}

function Verification({ object }) {
  const live = useLive(
    async () => (await ask({ verdicts: ["SELECT at, verified_at, rows, missing, unexpected, verdict FROM mz_internal.mz_verifications WHERE object_id = $1 ORDER BY verified_at DESC", object.id] })).verdicts,
    [object.id],
  );
  const { busy, failed, verify } = useVerify(live.again);
  return html`<div class="head"><p class="dim">Compared with its query over its inputs at one time, row by row.</p>
      <button type="button" disabled=${busy.has(object.id)} onClick=${() => verify(object)}>${busy.has(object.id) ? "Verifying…" : "Verify now"}</button></div>
    ${failed ? html`<${Problem} failure=${failed.failure} title=${failed.object.name} />` : null}
    <${Loaded} live=${live} what="verdicts">${(found) => (found.length ? html`<${Verdicts} found=${found} />` : html`<${Empty} title="Never verified"><p>Verify it now, or say VERIFY in SQL.</p><//>`)}<//>`;
}
