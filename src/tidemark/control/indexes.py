"""Indexes in SQL: what CREATE INDEX makes, and what a query will use.

    CREATE INDEX orders_by_customer ON orders (customer)
    CREATE DEFAULT INDEX ON orders            by the columns that tell its rows apart, as far as known

An index is of something that is stored (a table, a source, a materialized view) and by plain
columns; it has no shard of its own, and goes with its relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemark.compute.peek import at_time
from tidemark.compute.peek_plan import Asked, asked_of, chosen_key, key_type, simple
from tidemark.compute.plan import Plan
from tidemark.control import statements as s
from tidemark.control.catalog import Item
from tidemark.control.cursor import Cursor
from tidemark.errors import SqlError, Unsupported
from tidemark.spark.frames import SMALL_ROWS

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


def parse_create(cursor: Cursor, *, default: bool) -> s.CreateIndex:
    if_not_exists = cursor.take("IF NOT EXISTS")
    unnamed = cursor.looking_at("ON") or cursor.looking_at("IN CLUSTER")
    name = None if unnamed else cursor.name()
    cluster = cursor.word() if cursor.take("IN CLUSTER") else None
    cursor.expect("ON")
    relation = cursor.name()
    if cursor.take("USING"):
        cursor.one_of("ARRANGEMENT", "BTREE")
    columns = () if default else tuple(_key(cursor))
    for words in ("WITH", "WHERE", "INCLUDE"):
        if cursor.looking_at(words):
            raise Unsupported(f"CREATE INDEX ... {words} is not supported", hint="leave it out")
    if if_not_exists and name is None:
        raise SqlError("IF NOT EXISTS needs the name of the index")
    return s.CreateIndex(name, relation, columns, cluster, if_not_exists, cursor.sql)


def _key(cursor: Cursor) -> Iterator[str]:
    cursor.expect("(")
    while True:
        plain = not cursor.looking_at("(")
        column = cursor.word() if plain else ""
        if not plain or not (cursor.looking_at(",") or cursor.looking_at(")")):
            raise Unsupported(
                "an index is by plain columns, not by expressions or in an order",
                hint="create a materialized view that has the expression as a column, and index that",
            )
        yield column
        if cursor.take(")"):
            return
        cursor.expect(",")


def indexed_relation(coordinator: Coordinator, statement: s.CreateIndex) -> Item:
    item = coordinator.relation(statement.relation)
    if item.kind == "view":
        raise SqlError(
            f'cannot index "{item.name}": a view is not stored',
            hint="create a materialized view, and index that",
            sqlstate="42809",
        )
    if item.shard is None:
        raise SqlError(
            f'cannot index "{item.name}": it has several tables',
            hint="index one of its tables: SHOW SOURCES lists them",
            sqlstate="42809",
        )
    return item


def key_of(relation: Item, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns to index by; those of the default index if none are named."""
    known = {column.name: column for column in relation.columns}
    if not columns:
        usable = [at for at, column in enumerate(relation.columns) if key_type(column.type)]
        unique = [key for key in relation.keys if key and set(key) <= set(usable)]
        chosen = min(unique, key=len, default=tuple(usable))
        if not chosen:
            raise SqlError(f'"{relation.name}" has no column to index by', sqlstate="42P16")
        return tuple(relation.columns[at].name for at in chosen)
    for name in columns:
        if name not in known:
            raise SqlError(f'column "{name}" does not exist', sqlstate="42703")
        if columns.count(name) > 1:
            raise SqlError(f'column "{name}" is in the key twice', sqlstate="42701")
        if not key_type(known[name].type):
            raise Unsupported(
                f'column "{name}" is {known[name].type}, which cannot be looked up by',
                hint="index a column of a plain type, such as text or bigint",
            )
    return columns


def free_name(coordinator: Coordinator, statement: s.CreateIndex, relation: Item) -> s.Name:
    """The name given, or one as PostgreSQL would choose it."""
    if statement.name is not None:
        return statement.name
    middle = "_".join(statement.columns) or "primary"
    base, at = f"{relation.name}_{middle}_idx", 0
    where = relation.full_name[:2]
    while coordinator.catalog.find((*where, found := f"{base}{at or ''}")) is not None:
        at += 1
    return (*where, found)


def indexes_of(coordinator: Coordinator, relation: Item | None = None) -> list[Item]:
    return [
        item
        for item in coordinator.catalog.items.values()
        if item.kind == "index" and (relation is None or relation.id in item.depends)
    ]


# EXPLAIN.


def way_lines(coordinator: Coordinator, plan: Plan, cluster: str) -> list[str]:
    """How a query will be answered by that cluster."""
    plan = at_time(plan, 0)
    query = simple(plan)
    if query is not None:
        way = _way(coordinator, Asked(query.get, query.predicates), cluster)
        if way is not None:
            return [f"Answered without Spark: {way}"]
    lines = ["Answered by Spark:"]
    for asked in asked_of(plan):
        name = _name(coordinator, asked)
        lines.append(f"  {_way(coordinator, asked, cluster) or f'{name} scanned'}")
    return lines


def _way(coordinator: Coordinator, asked: Asked, cluster: str) -> str | None:
    name = _name(coordinator, asked)
    item = coordinator.catalog.items.get(asked.get.id)
    if item is None or item.shard is None:
        return f"{name}, which control knows"
    there = [each for each in indexes_of(coordinator, item) if each.cluster == cluster]
    by_key = {index.key: index.shown for index in there}
    chosen = chosen_key(asked, by_key)
    if chosen is not None:
        key, values = chosen
        keys = "one key" if values.num_rows == 1 else f"{values.num_rows} keys"
        return f"{name} looked up in index {by_key[key]} by ({', '.join(key)}), {keys}"
    small = coordinator.client.state(item.shard).rows <= SMALL_ROWS
    return f"{name} read, it is small" if small else None


def _name(coordinator: Coordinator, asked: Asked) -> str:
    item = coordinator.catalog.items.get(asked.get.id)
    return item.shown if item is not None else asked.get.id
