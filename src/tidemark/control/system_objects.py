"""System relations of what exists: one for each kind of object, as Materialize has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemark.compute.plan import collections_of
from tidemark.control.access import of_item
from tidemark.control.catalog import RUNNING, Item
from tidemark.control.connections import kind_of
from tidemark.control.pg.columns import Row, relation
from tidemark.control.pg.definitions import view_query
from tidemark.control.pg.names import oid_of
from tidemark.storage.kafka.spec import KafkaSink, KafkaSource
from tidemark.storage.spec import GeneratorSource

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


def _named(coordinator: Coordinator, *kinds: str) -> Iterator[tuple[Item, Row]]:
    """The objects of some kinds, with what all of them have."""
    clusters = {name: cluster.id for name, cluster in coordinator.catalog.clusters.items()}
    for item in list(coordinator.catalog.items.values()):
        if item.kind in kinds:
            yield (
                item,
                {
                    "id": item.id,
                    "oid": oid_of(item.id),
                    "schema_id": coordinator.catalog.schemas[item.database, item.schema].id,
                    "name": item.name,
                    "owner_id": coordinator.catalog.access_to(of_item(item)).owner,
                    "create_sql": item.sql,
                    "cluster_id": clusters.get(item.cluster) if item.kind in RUNNING else None,
                },
            )


def _of(*kinds: str):
    def rows(coordinator: Coordinator) -> Iterator[Row]:
        return (row for _, row in _named(coordinator, *kinds))

    return rows


def _views(coordinator: Coordinator, kind: str = "view") -> Iterator[Row]:
    for item, row in _named(coordinator, kind):
        yield row | {"definition": (view_query(item) or "").strip()}


def _materialized_views(coordinator: Coordinator) -> Iterator[Row]:
    return _views(coordinator, "materialized-view")


def _connections(coordinator: Coordinator) -> Iterator[Row]:
    for item, row in _named(coordinator, "connection"):
        yield row | {"type": kind_of(item.connection) if item.connection is not None else None}


def source_type(coordinator: Coordinator, item: Item) -> str:
    """`kafka`, `load-generator` and so on; a source's tables are of its type's `subsource`."""
    if item.kind in ("subsource", "progress"):
        return item.kind
    if item.webhook is not None:
        return "webhook"
    match coordinator.storage.definitions.get(item.runs_as):
        case GeneratorSource():
            return "load-generator"
        case KafkaSource() | KafkaSink():
            return "kafka"
        case None:
            return item.kind
        case other:
            return type(other).__name__.removesuffix("Source").lower()


def _sources(coordinator: Coordinator) -> Iterator[Row]:
    for item, row in _named(coordinator, "source", "subsource", "progress"):
        made = coordinator.storage.definitions.get(item.runs_as)
        more: Row = {"type": source_type(coordinator, item)}
        if isinstance(made, KafkaSource) and item.kind == "source":
            more |= {
                "connection_id": _connection(coordinator, item),
                "topic": made.topic,
                "envelope_type": made.envelope,
                "key_format": made.key.kind if made.key is not None else None,
                "value_format": made.value.kind,
            }
        yield row | more


def _sinks(coordinator: Coordinator) -> Iterator[Row]:
    for item, row in _named(coordinator, "sink"):
        more: Row = {"type": source_type(coordinator, item)}
        made = coordinator.storage.definitions.get(item.runs_as)
        if isinstance(made, KafkaSink):
            more |= {
                "connection_id": _connection(coordinator, item),
                "topic": made.topic,
                "envelope_type": made.envelope,
                "format": made.format,
            }
        yield row | more


def _connection(coordinator: Coordinator, item: Item) -> str | None:
    """The first connection that it needs: its broker's."""
    items = coordinator.catalog.items
    needed = (items[id_] for id_ in item.depends if id_ in items)
    return next((each.id for each in needed if each.kind == "connection"), None)


def _dependencies(coordinator: Coordinator) -> Iterator[Row]:
    """What an object needs to be there, also what it reads through a view; a source's tables
    need the source."""
    for item in list(coordinator.catalog.items.values()):
        needed = (*item.depends, *([item.parent] if item.parent is not None else []))
        for id_ in dict.fromkeys(needed):
            yield {"object_id": item.id, "referenced_object_id": id_}


def stored_inputs(item: Item) -> tuple[str, ...]:
    """The stored collections that a view or an index is kept from."""
    if item.kind == "materialized-view" and item.plan is not None:
        return tuple(dict.fromkeys(collections_of(item.plan)))
    return item.depends[:1] if item.kind in ("index", "sink") else ()


def _compute_dependencies(coordinator: Coordinator) -> Iterator[Row]:
    for item in list(coordinator.catalog.items.values()):
        if item.kind in ("materialized-view", "index"):
            for id_ in stored_inputs(item):
                yield {"object_id": item.id, "dependency_id": id_}


_OBJECT = "id text, oid oid, schema_id text, name text, owner_id text"
_KAFKA = "connection_id text, topic text, envelope_type text"

RELATIONS = (
    relation("mz_catalog", "mz_tables", f"{_OBJECT}, create_sql text", _of("table")),
    relation(
        "mz_catalog",
        "mz_sources",
        f"{_OBJECT}, type text, {_KAFKA}, key_format text, value_format text, cluster_id text,"
        " create_sql text",
        _sources,
    ),
    relation("mz_catalog", "mz_views", f"{_OBJECT}, definition text, create_sql text", _views),
    relation(
        "mz_catalog",
        "mz_materialized_views",
        f"{_OBJECT}, cluster_id text, definition text, create_sql text",
        _materialized_views,
    ),
    relation(
        "mz_catalog", "mz_connections", f"{_OBJECT}, type text, create_sql text", _connections
    ),
    relation("mz_catalog", "mz_secrets", _OBJECT, _of("secret")),
    relation(
        "mz_catalog",
        "mz_sinks",
        f"{_OBJECT}, type text, {_KAFKA}, format text, cluster_id text, create_sql text",
        _sinks,
    ),
    relation(
        "mz_internal",
        "mz_object_dependencies",
        "object_id text, referenced_object_id text",
        _dependencies,
    ),
    relation(
        "mz_internal",
        "mz_compute_dependencies",
        "object_id text, dependency_id text",
        _compute_dependencies,
    ),
)
