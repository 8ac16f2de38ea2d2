"""System relations: what Tidemark knows of itself, as ordinary relations.

Each is a function from the coordinator to an Arrow table, computed when a query asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tidemark.compute.plan import Get
from tidemark.storage.spec import GeneratorSource, written_by
from tidemark.types import BIGINT, BOOLEAN, TEXT, Column, arrow_schema

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


class SystemRelation(NamedTuple):
    schema: str
    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Coordinator], list[tuple]]

    @property
    def get(self) -> Get:
        return Get(f"{self.schema}.{self.name}", self.columns)

    def table(self, coordinator: Coordinator) -> pa.Table:
        rows = self.rows(coordinator)
        schema = arrow_schema(self.columns)
        arrays = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema)]
        return pa.table(arrays, schema=schema)


def _objects(coordinator: Coordinator) -> list[tuple]:
    return [(i.id, i.name, i.kind, i.sql) for i in coordinator.catalog.items.values()]


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
            status = coordinator.status(item)
            # The shards know at once; the replica's own word comes once a second.
            shards = [item.shard] if item.shard is not None else []
            definition = definitions.get(item.runs_as)
            if definition is not None:
                shards = list(written_by(definition)[:-1])
            frontiers = coordinator.storage.frontiers(*shards).values()
            hydrated = all(upper.covers(item.as_of) for _, upper in frontiers)
            error = status.error if status else None
            found.append((item.id, coordinator.cluster.name, hydrated, error))
    return found


def _source_statuses(coordinator: Coordinator) -> list[tuple]:
    return _statuses(coordinator, "source")


def _sink_statuses(coordinator: Coordinator) -> list[tuple]:
    return _statuses(coordinator, "sink")


def _statuses(coordinator: Coordinator, kind: str) -> list[tuple]:
    found = []
    definitions = coordinator.storage.definitions
    for item in coordinator.catalog.items.values():
        if item.kind == kind:
            status = coordinator.status(item)
            error = status.error if status else None
            word = "stalled" if error else "running" if status and status.hydrated else "starting"
            is_generator = isinstance(definitions.get(item.runs_as), GeneratorSource)
            type_ = "load-generator" if is_generator else "kafka"
            found.append((item.id, item.name, type_, word, error))
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


RELATIONS = (
    SystemRelation(
        "mz_catalog",
        "mz_objects",
        (
            Column("id", TEXT),
            Column("name", TEXT),
            Column("type", TEXT),
            Column("create_sql", TEXT),
        ),
        _objects,
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
        "mz_source_statuses",
        tuple(Column(name, TEXT) for name in ("id", "name", "type", "status", "error")),
        _source_statuses,
    ),
    SystemRelation(
        "mz_internal",
        "mz_sink_statuses",
        tuple(Column(name, TEXT) for name in ("id", "name", "type", "status", "error")),
        _sink_statuses,
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
)

BY_ID = {relation.get.id: relation for relation in RELATIONS}
