"""System relations: what Tidemark knows of itself, as ordinary relations.

Each is a function of the coordinator, computed when a query asks for it. Here are those of
Tidemark's own, as Materialize names them; those of PostgreSQL's catalog are in `control/pg`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from tidemark.compute.intervals import interval_text
from tidemark.compute.protocol import Status
from tidemark.control import (
    comments,
    system_lag,
    system_objects,
    system_settings,
    system_shards,
    system_status,
)
from tidemark.control.access import of_cluster, of_database, of_item, of_schema
from tidemark.control.catalog import RUNNING, Item
from tidemark.control.clusters import status_of
from tidemark.control.pg import empty, information_schema, roles, settings, tables
from tidemark.control.pg.names import SYSTEM_OIDS, oid_of
from tidemark.control.relation import SystemRelation, names_of
from tidemark.control.roles import SUPERUSER
from tidemark.control.system_status import error_in
from tidemark.control.webhook import relations as webhooks
from tidemark.storage.spec import written_by
from tidemark.types import BIGINT, BOOLEAN, OID, TEXT, TIMESTAMPTZ, Column

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


def _objects(coordinator: Coordinator) -> list[tuple]:
    ids = {name: cluster.id for name, cluster in coordinator.catalog.clusters.items()}
    return [
        (
            *(i.id, i.name, i.kind, i.sql, ids[i.cluster] if i.kind in RUNNING else None),
            coordinator.catalog.schemas[i.database, i.schema].id,
            coordinator.catalog.access_to(of_item(i)).owner,
        )
        for i in coordinator.catalog.items.values()
    ]


def _databases(coordinator: Coordinator) -> list[tuple]:
    catalog = coordinator.catalog
    return [
        (d.id, oid_of(d.id), d.name, catalog.access_to(of_database(d)).owner)
        for d in catalog.databases.values()
    ]


def _schemas(coordinator: Coordinator) -> list[tuple]:
    """The system's are in every database, and in none."""
    catalog = coordinator.catalog
    ids = {each.name: each.id for each in catalog.databases.values()}
    system = [(f"s{oid}", oid, None, name, SUPERUSER.id) for name, oid in SYSTEM_OIDS.items()]
    own = (
        (s.id, oid_of(s.id), ids[s.database], s.name, catalog.access_to(of_schema(s)).owner)
        for s in catalog.schemas.values()
    )
    return [*system, *own]


def _columns(coordinator: Coordinator) -> list[tuple]:
    return [
        (item.id, column.name, position, str(column.type), column.nullable)
        for item in coordinator.catalog.items.values()
        for position, column in enumerate(item.columns, 1)
    ]


def _frontiers(coordinator: Coordinator) -> list[tuple]:
    shards = {i.id: i.shard for i in coordinator.catalog.items.values() if i.shard is not None}
    found = coordinator.storage.frontiers(*shards.values())
    return [
        (id_, found[shard].since.time, found[shard].upper.time) for id_, shard in shards.items()
    ]


def _hydration(coordinator: Coordinator) -> list[tuple]:
    found = []
    definitions = coordinator.storage.definitions
    for item in coordinator.catalog.items.values():
        if item.kind in ("source", "materialized-view"):
            # The shards know at once; a replica's own word comes once a second.
            shards = [item.shard] if item.shard is not None else []
            definition = definitions.get(item.runs_as)
            if definition is not None:
                shards = list(written_by(definition)[:-1])
            frontiers = coordinator.storage.frontiers(*shards).values()
            written = all(upper.covers(item.as_of) for _, upper in frontiers)
            found += _hydrated_on(coordinator, item, written=written)
        elif item.kind == "index":
            found += _hydrated_on(coordinator, item, written=False)
    return found


def _hydrated_on(coordinator: Coordinator, item: Item, *, written: bool) -> list[tuple]:
    """For each replica that keeps it; what only one writes is hydrated there if it is `written`."""
    cluster = coordinator.clusters.named(item.cluster)
    keepers = cluster.item.replicas
    if item.kind == "source":
        keepers = [each for each in keepers if each.name == cluster.host]
    found = []
    broken = error_in(coordinator, item)
    for each in keepers:
        replica = cluster.replicas[each.name]
        own = replica.statuses.get(item.runs_as) if replica.is_ready else None
        status = coordinator.status(item) if item.kind == "source" else own
        hydrated = (status is not None and status.hydrated) or (written and len(keepers) == 1)
        error = (status.error if status else None) or broken
        found.append((item.id, cluster.item.replica_id(each), hydrated, error))
    return found


def _clusters(coordinator: Coordinator) -> list[tuple]:
    access = coordinator.catalog.access_to
    return [
        (c.item.id, c.name, len(c.item.replicas), access(of_cluster(c.item)).owner)
        for c in coordinator.clusters
    ]


def _replicas(coordinator: Coordinator) -> list[tuple]:
    return [
        (cluster.item.replica_id(each), each.name, cluster.item.id, each.read_only)
        for cluster in coordinator.clusters
        for each in cluster.item.replicas
    ]


def _replica_statuses(coordinator: Coordinator) -> list[tuple]:
    found = []
    for cluster in coordinator.clusters:
        for each in cluster.item.replicas:
            replica = cluster.replicas[each.name]
            known = (replica.pid, None, replica.spark_ui)
            pid, error, spark_ui = known if replica.is_ready else (None, replica.error, None)
            id_ = cluster.item.replica_id(each)
            found.append((id_, status_of(replica), pid, error, spark_ui))
    return found


def _indexes(coordinator: Coordinator) -> list[tuple]:
    ids = {cluster.name: cluster.item.id for cluster in coordinator.clusters}
    return [
        (item.id, item.name, item.depends[0], ids[item.cluster], item.sql)
        for item in coordinator.catalog.items.values()
        if item.kind == "index"
    ]


def _index_columns(coordinator: Coordinator) -> list[tuple]:
    items = coordinator.catalog.items
    found = []
    for item in items.values():
        if item.kind == "index":
            names = [column.name for column in items[item.depends[0]].columns]
            found += [(item.id, at, names.index(name) + 1) for at, name in enumerate(item.key, 1)]
    return found


def _index_statistics(coordinator: Coordinator) -> list[tuple]:
    found = []
    for item in coordinator.catalog.items.values():
        if item.kind == "index":
            for replica, status in _on_replicas(coordinator, item):
                size = status.index if status is not None else None
                numbers = (size.rows, size.bytes, size.memory, size.upper) if size else (None,) * 4
                hydrated = status is not None and status.hydrated
                found.append((item.id, item.name, replica, hydrated, *numbers))
    return found


def _view_statistics(coordinator: Coordinator) -> list[tuple]:
    found = []
    for item in coordinator.catalog.items.values():
        if item.kind == "materialized-view":
            assert item.shard is not None
            now = coordinator.timelines[item.database].read_ts
            upper = coordinator.client.state(item.shard).upper.time
            lag = 0 if upper is None else max(0, now - (upper - 1)) if upper else None
            for replica, status in _on_replicas(coordinator, item):
                if status is not None:
                    costs = (status.ticks, round(status.tick_ms), round(status.busy_ms))
                    counts = (status.corrections, status.updates)
                    found.append((item.id, item.name, replica, lag, *costs, *counts))
    return found


def _on_replicas(coordinator: Coordinator, item: Item) -> list[tuple[str, Status | None]]:
    """What each replica of its cluster says of it."""
    cluster = coordinator.clusters.named(item.cluster)
    found = []
    for each in cluster.item.replicas:
        replica = cluster.replicas[each.name]
        status = replica.statuses.get(item.runs_as) if replica.is_ready else None
        found.append((cluster.item.replica_id(each), status))
    return found


def _source_statistics(coordinator: Coordinator) -> list[tuple]:
    found = []
    for item in coordinator.catalog.items.values():
        if item.kind == "source":
            numbers = coordinator.storage.statistics(item.runs_as)
            counts = [getattr(numbers, name) for name in _COUNTS]
            done, took = numbers.snapshot_committed, numbers.rehydration_ms
            found.append((item.id, item.name, *counts[:4], done, *counts[4:], took))
    return found


def _refresh_strategies(coordinator: Coordinator) -> list[tuple]:
    found: list[tuple] = []
    for item in coordinator.catalog.items.values():
        if item.kind == "materialized-view":
            every, at = (item.refresh.every, item.refresh.at) if item.refresh else ((), ())
            found += [
                (item.id, "every", _interval(e.interval), _moment(e.aligned_to), None)
                for e in every
            ]
            found += [(item.id, "at", None, None, _moment(time)) for time in at]
            if item.refresh is None:
                found.append((item.id, "on-commit", None, None, None))
    return found


def _retention(coordinator: Coordinator) -> list[tuple]:
    return [
        (item.id, "FOR", item.retain_ms)
        for item in coordinator.catalog.items.values()
        if item.shard is not None
    ]


def _refreshes(coordinator: Coordinator) -> list[tuple]:
    """The last one that can be read, and the next one; of views that are refreshed at times."""
    found = []
    for item in coordinator.catalog.items.values():
        if item.refresh is None or item.shard is None:
            continue
        upper = coordinator.storage.frontiers(item.shard)[item.shard].upper
        first = item.refresh.round_up(item.as_of)
        if upper.time is None:
            found.append((item.id, max(item.refresh.at, default=None), None))
        elif first is None or upper.time <= first:
            found.append((item.id, None, first))
        else:
            done = item.refresh.round_down(upper.time - 1)
            found.append((item.id, done, item.refresh.round_up(upper.time)))
    return found


def _verifications(coordinator: Coordinator) -> list[tuple]:
    return [
        (id_, v.at, _moment(v.verified_at), v.rows, v.missing, v.unexpected, v.verdict)
        for id_, verdicts in coordinator.catalog.verdicts.items()
        for v in verdicts
    ]


def _sessions(coordinator: Coordinator) -> list[tuple]:
    return [
        (
            str(who.id),
            who.user,
            who.variables.get("application_name"),
            _moment(who.connected_ms),
            who.variables.get("database"),
        )
        for who in coordinator.activity.sessions.values()
    ]


def _recent_activity(coordinator: Coordinator) -> list[tuple]:
    return [
        (
            str(ran.id),
            str(ran.who.id),
            ran.who.user,
            ran.application,
            ran.cluster,
            ran.isolation,
            ran.kind,
            ran.sql,
            _moment(ran.began_ms),
            None if ran.finished_ms is None else _moment(ran.finished_ms),
            ran.outcome,
            ran.error_code,
            ran.error,
            ran.rows,
        )
        for ran in coordinator.activity.recent
    ]


def _interval(ms: int) -> str:
    return interval_text(Decimal(ms).scaleb(-3))


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


_COUNTS = (
    "messages_received",
    "bytes_received",
    "updates_staged",
    "updates_committed",
    "offset_known",
    "offset_committed",
    "inserts",
    "retractions",
    "error_inserts",
    "error_retractions",
    "batches",
)


_OWN = (
    SystemRelation(
        "mz_catalog",
        "mz_objects",
        (
            Column("id", TEXT),
            Column("name", TEXT),
            Column("type", TEXT),
            Column("create_sql", TEXT),
            Column("cluster_id", TEXT),
            Column("schema_id", TEXT),
            Column("owner_id", TEXT),
        ),
        _objects,
    ),
    SystemRelation(
        "mz_catalog",
        "mz_regions",
        (Column("account", TEXT), Column("name", TEXT)),
        lambda coordinator: [(coordinator.region.account, coordinator.region.region)],
    ),
    SystemRelation(
        "mz_catalog",
        "mz_databases",
        (
            Column("id", TEXT),
            Column("oid", OID),
            Column("name", TEXT),
            Column("owner_id", TEXT),
        ),
        _databases,
    ),
    SystemRelation(
        "mz_catalog",
        "mz_schemas",
        (
            Column("id", TEXT),
            Column("oid", OID),
            Column("database_id", TEXT),
            Column("name", TEXT),
            Column("owner_id", TEXT),
        ),
        _schemas,
    ),
    SystemRelation(
        "mz_catalog",
        "mz_clusters",
        (
            Column("id", TEXT),
            Column("name", TEXT),
            Column("replication_factor", BIGINT),
            Column("owner_id", TEXT),
        ),
        _clusters,
    ),
    SystemRelation(
        "mz_catalog",
        "mz_cluster_replicas",
        (
            Column("id", TEXT),
            Column("name", TEXT),
            Column("cluster_id", TEXT),
            Column("read_only", BOOLEAN),
        ),
        _replicas,
    ),
    SystemRelation(
        "mz_internal",
        "mz_cluster_replica_statuses",
        (
            Column("replica_id", TEXT),
            Column("status", TEXT),
            Column("pid", BIGINT),
            Column("error", TEXT),
            Column("spark_ui", TEXT),  # Where Spark shows what it runs there.
        ),
        _replica_statuses,
    ),
    SystemRelation(
        "mz_catalog",
        "mz_columns",
        (
            Column("id", TEXT),
            Column("name", TEXT),
            Column("position", BIGINT),
            Column("type", TEXT),
            Column("nullable", BOOLEAN),
        ),
        _columns,
    ),
    SystemRelation(
        "mz_catalog",
        "mz_indexes",
        tuple(Column(name, TEXT) for name in ("id", "name", "on_id", "cluster_id", "create_sql")),
        _indexes,
    ),
    SystemRelation(
        "mz_catalog",
        "mz_index_columns",
        (
            Column("index_id", TEXT),
            Column("index_position", BIGINT),
            Column("on_position", BIGINT),
        ),
        _index_columns,
    ),
    SystemRelation(
        "mz_internal",
        "mz_index_statistics",
        (
            Column("id", TEXT),
            Column("name", TEXT),
            Column("replica_id", TEXT),
            Column("hydrated", BOOLEAN),
            Column("rows", BIGINT),
            Column("bytes", BIGINT),  # In memory and in mapped files.
            Column("memory_bytes", BIGINT),  # Of the replica's own memory.
            Column("write_frontier", BIGINT),
        ),
        _index_statistics,
    ),
    SystemRelation(
        "mz_internal",
        "mz_view_statistics",
        (
            Column("object_id", TEXT),
            Column("name", TEXT),
            Column("replica_id", TEXT),
            Column("lag_ms", BIGINT),  # Of the view, whoever keeps it.
            Column("ticks", BIGINT),
            Column("tick_ms", BIGINT),  # The last one's.
            Column("busy_ms", BIGINT),  # All of them, hydration and progress included.
            Column("corrections", BIGINT),
            Column("updates", BIGINT),  # That this replica has written.
        ),
        _view_statistics,
    ),
    SystemRelation(
        "mz_internal",
        "mz_frontiers",
        (
            Column("object_id", TEXT),
            Column("read_frontier", BIGINT),
            Column("write_frontier", BIGINT),
        ),
        _frontiers,
    ),
    SystemRelation(
        "mz_internal",
        "mz_hydration_statuses",
        (
            Column("object_id", TEXT),
            Column("replica_id", TEXT),
            Column("hydrated", BOOLEAN),
            Column("error", TEXT),
        ),
        _hydration,
    ),
    SystemRelation(
        "mz_internal",
        "mz_source_statistics",
        (
            Column("id", TEXT),
            Column("name", TEXT),
            *(Column(name, BIGINT) for name in _COUNTS[:4]),
            Column("snapshot_committed", BOOLEAN),
            *(Column(name, BIGINT) for name in _COUNTS[4:]),
            Column("rehydration_latency", BIGINT),  # Milliseconds.
        ),
        _source_statistics,
    ),
    SystemRelation(
        "mz_internal",
        "mz_materialized_view_refresh_strategies",
        (
            Column("materialized_view_id", TEXT),
            Column("type", TEXT),
            Column("interval", TEXT),
            Column("aligned_to", TIMESTAMPTZ),
            Column("at", TIMESTAMPTZ),
        ),
        _refresh_strategies,
    ),
    SystemRelation(
        "mz_internal",
        "mz_history_retention_strategies",
        (Column("id", TEXT), Column("strategy", TEXT), Column("value", BIGINT)),
        _retention,
    ),
    SystemRelation(
        "mz_internal",
        "mz_materialized_view_refreshes",
        (
            Column("materialized_view_id", TEXT),
            Column("last_completed_refresh", BIGINT),
            Column("next_refresh", BIGINT),
        ),
        _refreshes,
    ),
    SystemRelation(
        "mz_internal",
        "mz_verifications",
        (
            Column("object_id", TEXT),
            Column("at", BIGINT),
            Column("verified_at", TIMESTAMPTZ),
            *(Column(name, BIGINT) for name in ("rows", "missing", "unexpected")),
            Column("verdict", TEXT),
        ),
        _verifications,
    ),
    SystemRelation(
        "mz_internal",
        "mz_sessions",
        (
            Column("id", TEXT),
            Column("role", TEXT),
            Column("application_name", TEXT),
            Column("connected_at", TIMESTAMPTZ),
            Column("database", TEXT),
        ),
        _sessions,
    ),
    SystemRelation(
        "mz_internal",
        "mz_recent_activity_log",
        (
            Column("execution_id", TEXT),
            Column("session_id", TEXT),
            Column("authenticated_user", TEXT),
            Column("application_name", TEXT),
            Column("cluster_name", TEXT),
            Column("transaction_isolation", TEXT),
            Column("statement_type", TEXT),
            Column("sql", TEXT),  # Its beginning, if it is long.
            Column("began_at", TIMESTAMPTZ),
            Column("finished_at", TIMESTAMPTZ),
            Column("finished_status", TEXT),
            Column("error_code", TEXT),
            Column("error_message", TEXT),  # Not of a statement with parameters.
            Column("rows_returned", BIGINT),
        ),
        _recent_activity,
    ),
)

RELATIONS = (
    *_OWN,
    *system_objects.RELATIONS,
    *system_status.RELATIONS,
    *system_lag.RELATIONS,
    *system_shards.RELATIONS,
    *comments.RELATIONS,
    system_settings.RELATION,
    *webhooks.RELATIONS,
    *tables.RELATIONS,
    *roles.RELATIONS,
    settings.RELATION,
    *empty.RELATIONS,
    *information_schema.RELATIONS,
)

BY_ID = {relation.id: relation for relation in RELATIONS}
BY_NAME = {name: relation for relation in RELATIONS for name in names_of(relation)}
