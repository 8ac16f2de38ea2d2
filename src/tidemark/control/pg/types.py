"""PostgreSQL's built-in types, under PostgreSQL's own oids: those that a client may meet here."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from tidemark.errors import SqlError
from tidemark.types import SqlType, type_named


class PgType(NamedTuple):
    oid: int
    name: str
    size: int
    """Bytes; -1 where it varies."""
    category: str
    array: int
    """The oid of the type of its arrays, or 0."""
    sql: str
    """As SQL calls it: what `format_type` says."""
    kind: str = "b"
    element: int = 0


_SCALARS = (
    PgType(16, "bool", 1, "B", 1000, "boolean"),
    PgType(17, "bytea", -1, "U", 1001, "bytea"),
    PgType(18, "char", 1, "Z", 1002, '"char"'),
    PgType(19, "name", 64, "S", 1003, "name"),
    PgType(20, "int8", 8, "N", 1016, "bigint"),
    PgType(21, "int2", 2, "N", 1005, "smallint"),
    PgType(22, "int2vector", -1, "A", 1006, "int2vector", element=21),
    PgType(23, "int4", 4, "N", 1007, "integer"),
    PgType(24, "regproc", 4, "N", 1008, "regproc"),
    PgType(25, "text", -1, "S", 1009, "text"),
    PgType(26, "oid", 4, "N", 1028, "oid"),
    PgType(30, "oidvector", -1, "A", 1013, "oidvector", element=26),
    PgType(114, "json", -1, "U", 199, "json"),
    PgType(700, "float4", 4, "N", 1021, "real"),
    PgType(701, "float8", 8, "N", 1022, "double precision"),
    PgType(1042, "bpchar", -1, "S", 1014, "character"),
    PgType(1043, "varchar", -1, "S", 1015, "character varying"),
    PgType(1082, "date", 4, "D", 1182, "date"),
    PgType(1083, "time", 8, "D", 1183, "time without time zone"),
    PgType(1114, "timestamp", 8, "D", 1115, "timestamp without time zone"),
    PgType(1184, "timestamptz", 8, "D", 1185, "timestamp with time zone"),
    PgType(1186, "interval", 16, "T", 1187, "interval"),
    PgType(1266, "timetz", 12, "D", 1270, "time with time zone"),
    PgType(1700, "numeric", -1, "N", 1231, "numeric"),
    PgType(2205, "regclass", 4, "N", 2210, "regclass"),
    PgType(2206, "regtype", 4, "N", 2211, "regtype"),
    PgType(2950, "uuid", 16, "U", 2951, "uuid"),
    PgType(3802, "jsonb", -1, "U", 3807, "jsonb"),
    PgType(4089, "regnamespace", 4, "N", 4090, "regnamespace"),
    PgType(4096, "regrole", 4, "N", 4097, "regrole"),
)
CSTRING, INTERNAL = 2275, 2281
_PSEUDO = (
    PgType(705, "unknown", -2, "X", 0, "unknown", "p"),
    PgType(2249, "record", -1, "P", 2287, "record", "p"),
    PgType(CSTRING, "cstring", -2, "P", 0, "cstring", "p"),
    PgType(2276, "any", 4, "P", 0, '"any"', "p"),
    PgType(2277, "anyarray", -1, "P", 0, "anyarray", "p"),
    PgType(2278, "void", 4, "P", 0, "void", "p"),
    PgType(INTERNAL, "internal", 8, "P", 0, "internal", "p"),
    PgType(2283, "anyelement", 4, "P", 0, "anyelement", "p"),
)
_ARRAYS = tuple(
    PgType(each.array, f"_{each.name}", -1, "A", 0, f"{each.sql}[]", element=each.oid)
    for each in _SCALARS
)
TYPES = tuple(sorted(_SCALARS + _PSEUDO + _ARRAYS))

BY_OID = {each.oid: each for each in TYPES}
BY_NAME = {each.name: each for each in TYPES} | {each.sql: each for each in TYPES}

ARRAY_IN, ARRAY_RECV = 750, 2400
"""The oids of PostgreSQL's functions by which drivers tell that a type is an array."""

TEXTUAL = (18, 19, 25, 1042, 1043)
DEFAULT_COLLATION = 100

_HEADER = 4
"""What PostgreSQL adds to the precision and scale of a numeric."""


def modifier(type_: SqlType) -> int:
    """`atttypmod`: the precision and scale of a numeric that has them, else -1."""
    inner = type_.element or type_
    if inner.precision is None:
        return -1
    return (inner.precision << 16 | (inner.scale or 0)) + _HEADER


def format_type(oid: int | None, modifier_: int | None) -> str | None:
    if oid is None:
        return None
    type_ = BY_OID.get(oid)
    if type_ is None:
        return "-" if oid == 0 else "???"
    if modifier_ is None or modifier_ < _HEADER:
        return type_.sql
    limits = f"({modifier_ - _HEADER >> 16},{modifier_ - _HEADER & 0xFFFF})"
    if type_.name == "numeric":
        return f"numeric{limits}"
    return f"numeric{limits}[]" if type_.name == "_numeric" else type_.sql


def type_oid(name: str) -> int | None:
    """Of a type by either of its names, with or without its schema."""
    folded = " ".join(name.strip().lower().split()).removeprefix("pg_catalog.")
    found = BY_NAME.get(folded) or BY_NAME.get(folded.strip('"'))
    if found is not None:
        return found.oid
    with suppress(SqlError):
        return type_named(folded).oid
    return None
