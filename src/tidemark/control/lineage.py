"""What a query reads in the end: the tables and sources underneath its views."""

from __future__ import annotations

from typing import NamedTuple

from tidemark.compute.plan import Plan, collections_of
from tidemark.control.catalog import Catalog, Item
from tidemark.errors import SqlError


class Underneath(NamedTuple):
    """By id: tables, sources, and views that change by a schedule of their own. `through` are the
    views that keep what is underneath them."""

    tables: dict[str, Item]
    sources: dict[str, Item]
    refreshed: dict[str, Item]
    through: dict[str, Item]


def underneath(catalog: Catalog, plan: Plan) -> Underneath:
    found = Underneath({}, {}, {}, {})
    waiting = list(collections_of(plan))
    while waiting:
        item = catalog.items.get(waiting.pop())
        if item is None:
            continue  # A system relation: made up when it is asked for.
        if item.kind == "table":
            found.tables[item.id] = item
        elif item.kind == "materialized-view":
            if item.id not in found.through:
                found.through[item.id] = item
                assert item.plan is not None
                waiting += collections_of(item.plan)
            if item.refresh is not None:
                found.refreshed[item.id] = item
        else:
            source = catalog.items.get(item.parent, item) if item.parent else item
            found.sources[source.id] = source
    return found


def tables_of(found: Underneath) -> dict[str, str]:
    """The names of the tables, by shard."""
    shards = {item.shard: item.name for item in found.tables.values()}
    if None in shards:
        raise SqlError("a relation of this query was dropped", sqlstate="42P01")
    return {shard: name for shard, name in shards.items() if shard is not None}
