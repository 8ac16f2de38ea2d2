"""COMMENT ON: what people have written about objects and their columns, kept in the catalog.

    COMMENT ON TABLE orders IS 'one row an order'        IS NULL takes it away
    COMMENT ON COLUMN orders.amount IS 'in euros'

PostgreSQL's clients find them by `obj_description` and `col_description`, others in `mz_comments`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidemark.control import statements as s
from tidemark.control.cursor import Cursor
from tidemark.control.pg.columns import Row, relation
from tidemark.control.pg.names import RELKINDS, oid_of
from tidemark.control.pgwire import Done
from tidemark.errors import SqlError, Unsupported

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator
    from tidemark.control.pg.seen import Seen

_PREFIX = "comment-"
_PG_CLASS = 1259


class Comment(NamedTuple):
    """`column` is its place from 1 on; 0 is the object itself."""

    id: str
    column: int
    text: str


def parse(cursor: Cursor, kinds: dict[str, s.ObjectKind]) -> s.Comment:
    cursor.expect("COMMENT ON")
    column = cursor.take("COLUMN")
    if not column and not any(map(cursor.looking_at, kinds)):
        what = cursor.next().text.upper()
        cursor.at = len(cursor.tokens)
        raise Unsupported(
            f"COMMENT ON {what} is not supported",
            hint=f"supported: COMMENT ON COLUMN, {', '.join(kinds)}",
        )
    kind = None if column else kinds[cursor.one_of(*kinds)]
    name = cursor.name()
    cursor.expect("IS")
    if cursor.take("NULL"):
        return s.Comment(kind, name, None)
    return s.Comment(kind, name, cursor.text())


async def run(coordinator: Coordinator, statement: s.Comment) -> Done:
    name, column = statement.name, ""
    if statement.kind is None:
        *rest, column = name
        if not rest:
            raise SqlError("COMMENT ON COLUMN takes relation.column")
        name = tuple(rest)
    item = coordinator.item(name)
    if statement.kind is not None and item.kind_name != statement.kind:
        raise SqlError(f'"{item.name}" is not a {statement.kind}', sqlstate="42809")
    names = [each.name for each in item.columns]
    if column and column not in names:
        raise SqlError(
            f'column "{column}" of relation "{item.name}" does not exist', sqlstate="42703"
        )
    place = names.index(column) + 1 if column else 0
    key = f"{_PREFIX}{item.id}-{place}"
    await coordinator.change(lambda: coordinator.catalog.note({key: statement.text or None}))
    return Done("COMMENT")


def comments(coordinator: Coordinator) -> Iterator[Comment]:
    """Of what exists."""
    items = coordinator.catalog.items
    for key, text in coordinator.catalog.notes.items():
        id_, _, place = key.removeprefix(_PREFIX).rpartition("-")
        if key.startswith(_PREFIX) and id_ in items:
            yield Comment(id_, int(place), text)


def comments_by_oid(coordinator: Coordinator) -> dict[tuple[int, int], str]:
    return {(oid_of(id_), place): text for id_, place, text in comments(coordinator)}


def _rows(coordinator: Coordinator) -> Iterator[Row]:
    for id_, place, text in comments(coordinator):
        yield {
            "id": id_,
            "object_type": coordinator.catalog.items[id_].kind,
            "object_sub_id": place or None,
            "comment": text,
        }


def _descriptions(seen: Seen) -> Iterator[Row]:
    for id_, place, text in comments(seen.coordinator):
        if id_ in seen.items and seen.items[id_].kind in RELKINDS:
            yield {
                "objoid": oid_of(id_),
                "classoid": _PG_CLASS,
                "objsubid": place,
                "description": text,
            }


RELATIONS = (
    relation(
        "mz_internal",
        "mz_comments",
        "id text, object_type text, object_sub_id int4, comment text",
        _rows,
    ),
    relation(
        "pg_catalog",
        "pg_description",
        "objoid oid, classoid oid, objsubid int4, description text",
        _descriptions,
    ),
)
