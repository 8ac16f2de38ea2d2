// Clusters: which replicas there are, whether they live, what they cost, and Spark's own pages.
import { html } from "/console/vendor/preact.js";
import * as format from "/console/format.js";
import { givingReplica } from "/console/model.js";
import { Empty, ObjectLink, Status, Table } from "/console/parts.js";

const COLUMNS = (world) => [
  { name: "Replica", by: (replica) => replica.name, cell: (replica) => html`${replica.name}${replica.read_only ? html` <span class="dim">read-only</span>` : null}` },
  { name: "Status", by: (replica) => replica.status, cell: (replica) => html`<${Status} word=${replica.status ?? "starting"} title=${replica.error} />` },
  {
    name: "Hydrated",
    right: true,
    cell: (replica) => {
      const kept = [...world.objects.values()].flatMap((object) => object.hydration.on.filter((each) => each.replica_id === replica.id));
      return kept.length ? `${kept.filter((each) => each.hydrated).length} of ${kept.length}` : "–";
    },
  },
  { name: "CPU", right: true, by: (replica) => replica.cpu_nano_cores, cell: (replica) => (replica.cpu_nano_cores === null ? "–" : `${(replica.cpu_nano_cores / 1e9).toFixed(2)} cores`) },
  { name: "Memory", right: true, by: (replica) => replica.memory_bytes, cell: (replica) => html`${format.bytes(replica.memory_bytes)}${replica.memory_percent === null ? null : html` <span class="dim">${replica.memory_percent.toFixed(0)} %</span>`}` },
  { name: "Process", right: true, mono: true, cell: (replica) => replica.pid ?? "–" },
  {
    name: "Spark",
    cell: (replica) => (replica.spark_ui ? html`<a href=${replica.spark_ui} target="_blank" rel="noreferrer">Spark UI <span aria-hidden="true">↗</span></a>` : html`<span class="dim">${replica.status === "online" ? "off" : "–"}</span>`),
  },
];

export function Clusters({ world }) {
  return html`<h1>Clusters</h1>
    ${world.clusters.map((cluster) => {
      const replicas = world.replicas.filter((replica) => replica.cluster_id === cluster.id);
      const objects = [...world.objects.values()].filter((object) => object.cluster_id === cluster.id);
      return html`<section class="card" key=${cluster.id} aria-labelledby=${`cluster-${cluster.id}`}>
        <div class="head"><h2 id=${`cluster-${cluster.id}`}>${cluster.name}</h2><p class="dim">${format.plural(replicas.length, "replica")}, ${format.plural(objects.length, "object")}</p></div>
        <${Table} label=${`Replicas of ${cluster.name}`} columns=${COLUMNS(world)} rows=${replicas} id=${(replica) => replica.id}
          empty=${`It has no replicas, so nothing on it runs. ${givingReplica(cluster.name)} gives it one.`} />
        ${replicas.filter((replica) => replica.error).map((replica) => html`<p class="problem-line"><b>${replica.name}</b> ${replica.error}</p>`)}
        ${objects.length
          ? html`<p class="keeps"><span class="dim">It keeps</span> ${objects.map((object) => html`<span class="chip" key=${object.id}><${ObjectLink} object=${object} /> <span class="dim">${object.kind}</span></span>`)}</p>`
          : html`<p class="none">Nothing is kept here.</p>`}
      </section>`;
    })}
    ${world.clusters.length ? null : html`<${Empty} title="No clusters"><p>CREATE CLUSTER makes one.</p><//>`}`;
}
