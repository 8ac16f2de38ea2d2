// Verification: views compared with their queries, as VERIFY does it. The verdicts are durable.
import { html, useState } from "/console/vendor/preact.js";
import { ask } from "/console/api.js";
import * as format from "/console/format.js";
import { useLive } from "/console/live.js";
import { sqlName } from "/console/model.js";
import { Empty, Loaded, ObjectLink, Problem, Status, Table } from "/console/parts.js";

const VERDICTS = "SELECT object_id, at, verified_at, rows, missing, unexpected, verdict FROM mz_internal.mz_verifications ORDER BY verified_at DESC";

export const verdicts = async () => (await ask({ verdicts: VERDICTS })).verdicts;

export function useVerify(again) {
  const [busy, setBusy] = useState(new Set());
  const [failed, setFailed] = useState(null);
  async function verify(object) {
    setFailed(null);
    setBusy((before) => new Set(before).add(object.id));
    try {
      await ask({ verify: `VERIFY MATERIALIZED VIEW ${sqlName(object)}` });
    } catch (failure) {
      setFailed({ object, failure });
    }
    setBusy((before) => new Set([...before].filter((id) => id !== object.id)));
    again();
  }
  return { busy, failed, verify };
}

export function Verifications({ world }) {
  const live = useLive(verdicts);
  const { busy, failed, verify } = useVerify(live.again);
  const views = [...world.objects.values()].filter((object) => object.type === "materialized-view");
  const button = (view) => html`<button type="button" disabled=${busy.has(view.id)} onClick=${() => verify(view)} aria-label=${`Verify ${view.name}`}>${busy.has(view.id) ? "Verifying…" : "Verify"}</button>`;
  return html`<h1>Verification</h1>
    <p class="lead">VERIFY computes a view's query from scratch over its inputs at one time, and compares that with what is kept, row by row.</p>
    ${failed ? html`<${Problem} failure=${failed.failure} title=${failed.object.name} />` : null}
    ${views.length === 0
      ? html`<${Empty} title="Nothing to verify"><p>There are no materialized views yet.</p><p><a class="button" href="#/sql">Create one</a></p><//>`
      : html`<${Loaded} live=${live} what="verdicts">${(found) => {
          const last = (view) => found.find((each) => each.object_id === view.id);
          return html`
            <${Table} label="Views" rows=${views} id=${(view) => view.id} columns=${[
              { name: "View", by: (view) => view.name, cell: (view) => html`<${ObjectLink} object=${view} tab="verification" />` },
              { name: "Verdict", by: (view) => last(view)?.verdict, cell: (view) => (last(view) ? html`<${Status} word=${last(view).verdict} />` : html`<span class="dim">never verified</span>`) },
              ...NUMBERS.map((column) => ({ ...column, by: null, cell: (view) => (last(view) ? column.cell(last(view)) : "–") })),
              { name: "Now", cell: button },
            ]} />
            <h2>All verdicts</h2>
            <${Verdicts} found=${found} objects=${world.objects} />`;
        }}<//>`}`;
}

const NUMBERS = [
  { name: "When (UTC)", by: (each) => each.verified_at, mono: true, cell: (each) => format.moment(format.parsed(each.verified_at)) },
  { name: "As of", by: (each) => each.at, right: true, mono: true, cell: (each) => format.frontier(each.at) },
  { name: "Rows", by: (each) => each.rows, right: true, cell: (each) => format.count(each.rows) },
  { name: "Missing", by: (each) => each.missing, right: true, cell: (each) => format.count(each.missing) },
  { name: "Unexpected", by: (each) => each.unexpected, right: true, cell: (each) => format.count(each.unexpected) },
];

export function Verdicts({ found, objects }) {
  return html`<${Table} label="Verdicts" rows=${found} empty="No verdicts yet." columns=${[
    ...(objects ? [{ name: "View", cell: (each) => html`<${ObjectLink} object=${objects.get(each.object_id)} tab="verification" />` }] : []),
    { name: "Verdict", by: (each) => each.verdict, cell: (each) => html`<${Status} word=${each.verdict} />` },
    ...NUMBERS,
  ]} />`;
}
