"""The lists of SHOW: what there is of a kind, where it runs and how it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from sqlglot import exp

from tidemark.control.catalog import ClusterItem, Item
from tidemark.control.connections import kind_of
from tidemark.control.hierarchy import DATABASE, quoted
from tidemark.control.like import matcher
from tidemark.control.pg.messages import explained_error
from tidemark.control.system_objects import source_type
from tidemark.control.system_status import doing
from tidemark.types import Column

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator

Listing = tuple[tuple[str, ...], list[tuple]]
"""Names of columns, and rows."""

_SOURCES = ("source", "subsource", "progress")


def listed(coordinator: Coordinator, kind: str, within: Iterable[Item]) -> Listing:
    """Those of a kind, out of all that are in a schema."""
    kinds, columns, row = LISTS[kind]
    items = [item for item in within if not kinds or item.kind in kinds]
    return columns, [row(coordinator, item) for item in _sorted(items)]


def listed_indexes(coordinator: Coordinator, indexes: Iterable[Item]) -> Listing:
    names = {item.id: item.name for item in coordinator.catalog.items.values()}
    rows = [
        (item.name, names[item.depends[0]], item.cluster, ", ".join(item.key))
        for item in _sorted(indexes)
    ]
    return ("name", "on", "cluster", "key"), rows


def _sorted(items: Iterable[Item]) -> list[Item]:
    return sorted(items, key=lambda item: item.name)


def _source(coordinator: Coordinator, item: Item) -> tuple:
    runs = coordinator.catalog.items.get(item.parent or "", item)
    return item.name, source_type(coordinator, item), runs.cluster, *doing(coordinator, item)


def _subsource(coordinator: Coordinator, item: Item) -> tuple:
    source = coordinator.catalog.items.get(item.parent or "")
    return item.name, item.kind, source.name if source is not None else None


def _view(coordinator: Coordinator, item: Item) -> tuple:
    return item.name, item.cluster, *doing(coordinator, item)


def _connection(_: Coordinator, item: Item) -> tuple:
    return item.name, kind_of(item.connection) if item.connection is not None else item.kind


_Row = Callable[["Coordinator", Item], tuple]
_STATUS = ("cluster", "status", "error")

LISTS: dict[str, tuple[Sequence[str], tuple[str, ...], _Row]] = {
    "tables": (("table",), ("name",), lambda _, item: (item.name,)),
    "sources": (_SOURCES, ("name", "type", *_STATUS), _source),
    "subsources": (_SOURCES[1:], ("name", "type", "source"), _subsource),
    "views": (("view",), ("name",), lambda _, item: (item.name,)),
    "materialized views": (("materialized-view",), ("name", *_STATUS), _view),
    "connections": (("connection",), ("name", "type"), _connection),
    "secrets": (("secret",), ("name",), lambda _, item: (item.name,)),
    "sinks": (("sink",), ("name", "type", *_STATUS), _source),
    "objects": ((), ("name", "type"), lambda _, item: (item.name, item.kind)),
}
"""By what is shown: the kinds of objects (none are all), the columns, and an object's row."""


def table_statement(name: Sequence[str], columns: tuple[Column, ...], retain: str | None) -> str:
    """What makes a table like this one, of which only that was said which rows it begins with."""
    listed = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
    kept = f" WITH (RETAIN HISTORY FOR '{retain}')" if retain is not None else ""
    return f"CREATE TABLE {'.'.join(map(quoted, name))} ({listed}){kept}"


def cluster_statement(cluster: ClusterItem) -> str:
    """How to make a cluster of that form."""
    given = [f"REPLICATION FACTOR = {len(cluster.replicas)}"]
    if cluster.memory:
        given.append(f"MEMORY = '{cluster.memory}'")
    if cluster.spark_master:
        given.append(f"SPARK MASTER = '{cluster.spark_master}'")
    return f"CREATE CLUSTER {quoted(cluster.name)} ({', '.join(given)})"


# LIKE and WHERE.


def matching(listing: Listing, like: str) -> Listing:
    """Those whose name is like a pattern."""
    columns, rows = listing
    place = columns.index("name" if "name" in columns else "replica")
    is_like = matcher(like)
    return columns, [row for row in rows if is_like(str(row[place]))]


async def chosen(
    coordinator: Coordinator, columns: tuple[str, ...], rows: list[tuple], where: exp.Expr
) -> list[tuple]:
    """Those for whose columns a condition holds; it may take as long as any query."""
    cells = [[None if row[i] is None else str(row[i]) for row in rows] for i in range(len(columns))]
    table = pa.table([pa.array(each, pa.string()) for each in cells], names=list(columns))
    cursor = coordinator.engine.view(DATABASE).cursor()
    cursor.register("shown", table)
    sql = f"SELECT * FROM shown WHERE {where.sql(dialect='duckdb')}"
    return await coordinator.engine.aside(cursor, _fetched, sql)


def _fetched(cursor: duckdb.DuckDBPyConnection, sql: str) -> list[tuple]:
    with cursor:
        try:
            return cursor.sql(sql).fetchall()
        except duckdb.Error as error:
            raise explained_error(error) from None
