"""ALTER of what runs or is stored: how long its history is kept, and where it runs.

ALTER MATERIALIZED VIEW v SET (RETAIN HISTORY FOR '1 hour')     RESET (RETAIN HISTORY)
ALTER SINK s SET CLUSTER c
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tidemark.control import statements as s
from tidemark.control.catalog import RUNNING, Item
from tidemark.control.checks import RETAIN, retained_ms
from tidemark.control.clauses import options
from tidemark.control.cursor import Cursor
from tidemark.control.pgwire import Done
from tidemark.errors import SqlError, Unsupported

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator

_MOVES = ("source", "sink", "materialized-view")


def parse(cursor: Cursor, kinds: dict[str, s.ObjectKind]) -> s.AlterObject | None:
    """What follows ALTER, if it is one of these; else the cursor stays where it is."""
    start = cursor.at
    for words, kind in kinds.items():
        if not cursor.take(words):
            continue
        if_exists = cursor.take("IF EXISTS")
        name = cursor.name()
        if cursor.take("SET CLUSTER"):
            cursor.take("TO")
            return s.AlterObject(kind, name, if_exists, cluster=cursor.word())
        if cursor.looking_at("SET") and (after := cursor.peek(1)) and after.text == "(":
            cursor.take("SET")
            return s.AlterObject(kind, name, if_exists, retain=_retained(cursor))
        if cursor.take("RESET"):
            cursor.expect("(")
            cursor.expect("RETAIN HISTORY")
            cursor.expect(")")
            return s.AlterObject(kind, name, if_exists)
        break
    cursor.at = start
    return None


def _retained(cursor: Cursor) -> str:
    given = dict(options(cursor))
    retain = given.pop(RETAIN, None)
    if given or retain is None:
        raise Unsupported(
            "ALTER ... SET (...) can change RETAIN HISTORY only",
            hint="SET (RETAIN HISTORY FOR '<interval>')",
        )
    return retain


async def run(coordinator: Coordinator, statement: s.AlterObject, notice) -> Done:
    tag = Done(f"ALTER {statement.kind.upper()}")
    item = coordinator.catalog.find(statement.name)
    if item is None and statement.if_exists:
        notice(f'{statement.kind} "{".".join(statement.name)}" does not exist, skipping')
        return tag
    item = coordinator.item(statement.name)
    if item.kind_name != statement.kind:
        raise SqlError(f'"{item.name}" is not a {statement.kind}', sqlstate="42809")
    if statement.cluster is not None:
        await _move(coordinator, item, statement.cluster)
    else:
        await _retain(coordinator, item, retained_ms(statement.retain))
    return tag


async def _retain(coordinator: Coordinator, item: Item, kept: int) -> None:
    parts = [i for i in coordinator.catalog.items.values() if i.parent == item.id]
    stored = [each for each in (item, *parts) if each.shard is not None]
    if not stored:
        raise SqlError(f'"{item.name}" is {item.kind_phrase}: it has no history', sqlstate="42809")
    changed = [msgspec.structs.replace(each, retain_ms=kept) for each in stored]
    await coordinator.change(lambda: coordinator.catalog.put(*changed))


async def _move(coordinator: Coordinator, item: Item, cluster: str) -> None:
    if item.kind not in _MOVES:
        can = ", ".join(kind.replace("-", " ") for kind in _MOVES)
        raise Unsupported(
            f"{item.kind_phrase} cannot be moved to another cluster",
            hint=f"what can: {can}" + ("; create another index there" * (item.kind == "index")),
        )
    coordinator.clusters.named(cluster)
    if item.kind == "materialized-view" and (others := _sharing(coordinator, item)):
        raise SqlError(
            f'"{item.name}" shares what it keeps with {", ".join(others)}, which stay where they are',
            hint=f"create it anew: CREATE OR REPLACE MATERIALIZED VIEW {item.name} IN CLUSTER ...",
            sqlstate="2BP01",
        )
    parts = [i for i in coordinator.catalog.items.values() if i.parent == item.id]
    moved = [msgspec.structs.replace(each, cluster=cluster) for each in (item, *parts)]
    await coordinator.change(lambda: coordinator.catalog.put(*moved), configure=True)


def _sharing(coordinator: Coordinator, item: Item) -> list[str]:
    """Views that keep some fragment together with it."""
    running = [i for i in coordinator.catalog.items.values() if i.kind in RUNNING and i.owners]
    mine = set(item.owners)
    return sorted(each.name for each in running if each.id != item.id and mine & set(each.owners))
