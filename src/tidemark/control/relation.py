"""A system relation: made up when a query asks for it, out of what control knows.

Its columns may be of types that only PostgreSQL's own catalog has. A query of system relations
alone sees them so (`control/pg/engine.py`); one that reads anything else runs on a cluster, where
an oid is a bigint and a name is text (`get`, `table`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from tidemark.compute.arrays import stored_text
from tidemark.compute.plan import Get
from tidemark.types import (
    BIGINT,
    CHAR,
    INT2VECTOR,
    NAME,
    OID,
    OIDVECTOR,
    SMALLINT,
    TEXT,
    Column,
    SqlType,
    array_of,
    arrow_schema,
)

if TYPE_CHECKING:
    from tidemark.control.pg.seen import Seen


class SystemRelation(NamedTuple):
    schema: str
    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Any], list[tuple]]
    """Given the coordinator, or, of PostgreSQL's catalog, what a session sees of it (`Seen`)."""

    @property
    def id(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def get(self) -> Get:
        return Get(self.id, self._on_cluster)

    @property
    def _on_cluster(self) -> tuple[Column, ...]:
        return tuple(
            msgspec.structs.replace(column, type=_on_cluster(column.type))
            for column in self.columns
        )

    def table(self, seen: Seen) -> pa.Table:
        """As a cluster takes it: under the columns of `get`."""
        rows = seen.rows(self)
        schema = arrow_schema(self._on_cluster)
        arrays = []
        for at, column in enumerate(self._on_cluster):
            cells = [row[at] for row in rows]
            if column.type.element is not None:
                cells = [_kept(cell, column.type) for cell in cells]
            arrays.append(pa.array(cells, column.type.arrow))
        return pa.table(arrays, schema=schema)


UNQUALIFIED = ("pg_catalog", "mz_catalog")
"""Schemas whose relations need no schema in front."""


def names_of(relation: SystemRelation) -> list[tuple[str, ...]]:
    """All that a query may call it, but for the database."""
    schema, name = relation.schema, relation.name
    short = [(name,)] if schema in UNQUALIFIED else []
    return [*short, (schema, name)]


def _on_cluster(type_: SqlType) -> SqlType:
    if type_.element is not None:
        return array_of(_on_cluster(type_.element))
    return {
        OID: BIGINT,
        NAME: TEXT,
        CHAR: TEXT,
        INT2VECTOR: array_of(SMALLINT),
        OIDVECTOR: array_of(BIGINT),
    }.get(type_, type_)


def _kept(cell: list | None, type_: SqlType) -> str | None:
    if cell is None:
        return None
    return stored_text([None if each is None else str(each) for each in cell], type_)
