// The world as the pages see it: objects with how they do, out of the rows of system relations.
import { ask } from "/console/api.js";
import * as format from "/console/format.js";

const QUERIES = {
  objects: `SELECT o.id, o.name, o.type, o.create_sql, o.cluster_id, s.name AS schema,
      d.name AS database, r.name AS owner
    FROM mz_objects o JOIN mz_schemas s ON s.id = o.schema_id
    JOIN mz_databases d ON d.id = s.database_id LEFT JOIN mz_roles r ON r.id = o.owner_id`,
  lags: "SELECT object_id, lag FROM mz_internal.mz_wallclock_global_lag",
  frontiers: "SELECT object_id, read_frontier, write_frontier FROM mz_internal.mz_frontiers",
  hydration: "SELECT object_id, replica_id, hydrated, error FROM mz_internal.mz_hydration_statuses",
  sources: "SELECT id, type, status, error FROM mz_internal.mz_source_statuses",
  sinks: "SELECT id, type, status, error FROM mz_internal.mz_sink_statuses",
  received: "SELECT * FROM mz_internal.mz_source_statistics",
  sent: "SELECT * FROM mz_internal.mz_sink_statistics",
  views: "SELECT * FROM mz_internal.mz_view_statistics",
  indexes: "SELECT * FROM mz_internal.mz_index_statistics",
  shards: `SELECT object_id, rows, error_rows, updates, error_updates, read_error, bytes FROM mz_internal.mz_storage_shards
    WHERE is_collection`,
  needs: "SELECT object_id, referenced_object_id FROM mz_internal.mz_object_dependencies",
  reads: "SELECT object_id, dependency_id FROM mz_internal.mz_compute_dependencies",
  comments: "SELECT id, comment FROM mz_internal.mz_comments WHERE object_sub_id IS NULL",
  clusters: "SELECT id, name FROM mz_clusters ORDER BY name",
  replicas: `SELECT r.id, r.name, r.cluster_id, r.read_only, s.status, s.pid, s.error, s.spark_ui,
      m.cpu_nano_cores, m.memory_bytes, u.cpu_percent, u.memory_percent
    FROM mz_cluster_replicas r
    LEFT JOIN mz_internal.mz_cluster_replica_statuses s ON s.replica_id = r.id
    LEFT JOIN mz_internal.mz_cluster_replica_metrics m ON m.replica_id = r.id
    LEFT JOIN mz_internal.mz_cluster_replica_utilization u ON u.replica_id = r.id
    ORDER BY r.name`,
  who: "SELECT current_user AS name",
};

export const KINDS = {
  table: "table",
  source: "source",
  subsource: "subsource",
  progress: "progress",
  view: "view",
  "materialized-view": "materialized view",
  index: "index",
  sink: "sink",
  connection: "connection",
  secret: "secret",
};

const KEPT = ["source", "materialized-view", "index", "sink"]; // By a cluster.

export async function world() {
  const rows = await ask(QUERIES);
  const by = (name, key) => new Map(rows[name].map((row) => [row[key], row]));
  const [lags, frontiers, shards] = ["lags", "frontiers", "shards"].map((name) => by(name, "object_id"));
  const statuses = new Map([...by("sources", "id"), ...by("sinks", "id")]);
  const comments = by("comments", "id");
  const clusters = by("clusters", "id");
  // An index fails with what it is of.
  const holder = ({ id, type }) => (type === "index" ? rows.reads.find((each) => each.object_id === id)?.dependency_id : id);
  const now = performance.now();
  const objects = new Map();
  for (const row of rows.objects) {
    const kept = rows.hydration.filter((each) => each.object_id === row.id);
    const shard = shards.get(row.id);
    const object = {
      ...row,
      kind: KINDS[row.type] || row.type,
      cluster: clusters.get(row.cluster_id)?.name ?? null,
      comment: comments.get(row.id)?.comment ?? null,
      lag: lags.get(row.id)?.lag ?? null,
      // A source may have rows of its own, or only be what makes those of its subsources.
      isStored: shards.has(row.id) || row.type === "index" || (lags.has(row.id) && row.type !== "source"),
      since: frontiers.get(row.id)?.read_frontier,
      upper: frontiers.get(row.id)?.write_frontier,
      rows: shard?.rows ?? null,
      bytes: shard?.bytes ?? null,
      errorRows: shard?.error_rows ?? 0,
      errorUpdates: shard?.error_updates ?? 0,
      hydration: { done: kept.filter((each) => each.hydrated).length, of: kept.length, on: kept },
      received: rows.received.find((each) => each.id === row.id) ?? null,
      sent: rows.sent.filter((each) => each.id === row.id),
      costs: rows.views.filter((each) => each.object_id === row.id),
      sizes: rows.indexes.filter((each) => each.id === row.id),
      inputs: [],
      outputs: [],
    };
    const index = object.sizes.find((each) => each.write_frontier !== null);
    // What it stores are updates, of which a row may have many.
    if (index) Object.assign(object, { upper: index.write_frontier, bytes: index.bytes });
    Object.assign(object, doing(object, statuses.get(row.id), shards.get(holder(row))?.read_error ?? null));
    object.rates = rates(object, now);
    objects.set(row.id, object);
    remember(object);
  }
  connect(objects, rows);
  forget(objects);
  return { objects, clusters: rows.clusters, replicas: rows.replicas, user: rows.who[0].name };
}

export const givingReplica = (cluster) => `ALTER CLUSTER ${format.quoted(cluster)} SET (REPLICATION FACTOR = 1)`;

// A word for how it does, and why if that is not well. One that goes on, but whose contents cannot
// be read now (`failing`), is in error.
function doing(object, status, failing) {
  if (status) return { status: status.status === "running" && status.error ? "in error" : status.status, error: status.error, sort: status.type };
  const { done, of, on } = object.hydration;
  const error = on.find((each) => each.error)?.error ?? failing;
  if (error && !(KEPT.includes(object.type) && of === 0)) return { status: failing && done === of ? "in error" : "stalled", error };
  if (KEPT.includes(object.type)) {
    if (of === 0) return { status: "paused", error: `Cluster ${object.cluster} has no replicas.`, hint: givingReplica(object.cluster) };
    return { status: done === of ? "running" : "hydrating", error: null };
  }
  if (object.type === "view") return { status: "on demand", error: null };
  return { status: object.isStored ? "running" : "defined", error: null };
}

// Edges. What a view is kept from is known; that through plain views the way is shown.
function connect(objects, { needs, reads }) {
  const needed = grouped(needs, "object_id", "referenced_object_id");
  const read = grouped(reads, "object_id", "dependency_id");
  const beyondViews = (id, seen) => {
    for (const each of needed.get(id) ?? []) {
      if (!seen.has(each)) {
        seen.add(each);
        if (objects.get(each)?.type === "view") beyondViews(each, seen);
      }
    }
    return seen;
  };
  for (const object of objects.values()) {
    const all = (needed.get(object.id) ?? []).filter((id) => objects.has(id));
    const through = new Set();
    for (const id of all) if (objects.get(id).type === "view") beyondViews(id, through);
    object.inputs = all.filter((id) => {
      if (through.has(id)) return false;
      const stored = read.get(object.id);
      return !stored || stored.includes(id) || !objects.get(id).isStored;
    });
    for (const id of object.inputs) objects.get(id).outputs.push(object.id);
  }
}

function grouped(rows, key, value) {
  const found = new Map();
  for (const row of rows) found.set(row[key], [...(found.get(row[key]) ?? []), row[value]]);
  return found;
}

// Rates are of the last few looks, `busy` is a share of each replica's time (a long tick is counted when it ends): counters only ever grow, unless what counts them starts anew.
const LOOKS = 6;
const counted = new Map();

function rates(object, now) {
  const total = (rows, name) => rows.reduce((sum, row) => sum + (row[name] ?? 0), 0);
  const counters = object.received
    ? { updates: object.received.updates_committed, bytes: object.received.bytes_received }
    : object.costs.length
      ? { updates: total(object.costs, "updates"), ticks: total(object.costs, "ticks"), busy: total(object.costs, "busy_ms") }
      : object.sent.length
        ? { updates: total(object.sent, "messages_committed"), bytes: total(object.sent, "bytes_committed") }
        : null;
  if (!counters) return null;
  let looks = counted.get(object.id) ?? [];
  if (looks.length && counters.updates < looks.at(-1).updates) looks = [];
  looks = [...looks, { ...counters, at: now }].slice(-LOOKS);
  counted.set(object.id, looks);
  const [first, last] = [looks[0], looks.at(-1)];
  if (first === last) return null;
  const seconds = (last.at - first.at) / 1000;
  const per = (name) => (last[name] === undefined ? null : Math.max(0, last[name] - first[name]) / seconds);
  return { updates: per("updates"), bytes: per("bytes"), ticks: per("ticks"), busy: per("busy") === null ? null : Math.min(1, per("busy") / 1000 / object.costs.length) };
}

const POINTS = 60;
const lagged = new Map();

function remember(object) {
  if (object.isStored) lagged.set(object.id, [...(lagged.get(object.id) ?? []), object.lag].slice(-POINTS));
}

function forget(objects) {
  for (const known of [counted, lagged]) for (const id of known.keys()) if (!objects.has(id)) known.delete(id);
}

// How far it was behind at the last looks.
export const lagsOf = (id) => lagged.get(id) ?? [];

// Its name as SQL takes it, wherever the session is.
export function sqlName(object) {
  return [object.database, object.schema, object.name].map(format.quoted).join(".");
}

// With what is needed of it to tell it from others.
export function shownName(object) {
  return object.schema === "public" && object.database === "tidemark"
    ? object.name
    : [...(object.database === "tidemark" ? [] : [object.database]), object.schema, object.name].join(".");
}
