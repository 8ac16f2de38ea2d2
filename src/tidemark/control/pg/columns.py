"""A relation's columns, spelled as `"oid oid, relname name, relpages int4=0"`.

What a row does not say is the default behind the `=`, or null; `@database` is the session's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidemark.control.relation import SystemRelation
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    CHAR,
    DOUBLE,
    INT2VECTOR,
    INTEGER,
    NAME,
    OID,
    OIDVECTOR,
    SMALLINT,
    TEXT,
    TIMESTAMPTZ,
    Column,
    array_of,
)

Row = dict[str, Any]

_DATABASE = "@database"

_SCALARS = {
    "bool": BOOLEAN,
    "int2": SMALLINT,
    "int4": INTEGER,
    "int8": BIGINT,
    "float": DOUBLE,
    "text": TEXT,
    "timestamptz": TIMESTAMPTZ,
    "oid": OID,
    "name": NAME,
    "char": CHAR,
}
_ARRAYS = {f"{name}[]": array_of(type_) for name, type_ in _SCALARS.items()}
_TYPES = _SCALARS | _ARRAYS | {"int2vector": INT2VECTOR, "oidvector": OIDVECTOR}


def relation(
    schema: str,
    name: str,
    spelled: str,
    rows: Callable[[Any], Iterable[Row]] | None = None,
) -> SystemRelation:
    """A relation by the spelling of its columns; without `rows` it never has any."""
    columns, defaults = _read(spelled)
    own = [each for each, value in defaults.items() if value == _DATABASE]

    def tuples(seen: Any) -> list[tuple]:
        found = [] if rows is None else rows(seen)
        given = (defaults | dict.fromkeys(own, seen.database)) if own else defaults
        return [tuple((given | row)[column.name] for column in columns) for row in found]

    return SystemRelation(schema, name, columns, tuples)


def _read(spelled: str) -> tuple[tuple[Column, ...], Row]:
    columns: list[Column] = []
    defaults: Row = {}
    for each in spelled.split(","):
        name, type_ = each.split()
        type_, is_given, text = type_.partition("=")
        columns.append(Column(name, _TYPES[type_]))
        defaults[name] = _value(type_, text) if is_given else None
    return tuple(columns), defaults


def _value(type_: str, text: str) -> bool | int | str:
    if type_ == "bool":
        return text == "t"
    return text if type_ in ("text", "name", "char") else int(text)
