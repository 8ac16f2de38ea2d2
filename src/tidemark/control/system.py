"""System relations: what Tidemark knows of itself, as ordinary relations.

Each is a function from the coordinator to an Arrow table, computed when a query asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tidemark.compute.plan import Get
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
    found = []
    for item in coordinator.catalog.items.values():
        if item.shard is not None:
            state = coordinator.client.state(item.shard)
            found.append((item.id, state.since.time, state.upper.time))
    return found


def _hydration(coordinator: Coordinator) -> list[tuple]:
    found = []
    for item in coordinator.catalog.items.values():
        if item.kind in ("source", "materialized-view"):
            status = coordinator.cluster.statuses.get(item.id)
            # The shards know at once; the replica's own word comes once a second.
            shards = item.source.shards.values() if item.source else [item.shard or ""]
            uppers = [coordinator.client.state(shard).upper for shard in shards]
            hydrated = all(upper.covers(item.as_of) for upper in uppers)
            error = status.error if status else None
            found.append((item.id, coordinator.cluster.name, hydrated, error))
    return found


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
)

BY_ID = {relation.get.id: relation for relation in RELATIONS}
