"""DuckDB: the database with PostgreSQL's functions in it, and results in PostgreSQL's types.

It may touch no file and no network. Where its types are not PostgreSQL's, an unsigned integer is
an oid (no other column is one), lists of other unsigned integers are PostgreSQL's two kinds of
vectors, and what no client could take is text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling

from tidemark.compute.arrays import stored_text
from tidemark.control.pg import functions
from tidemark.control.pg.messages import MEMORY, explained_error
from tidemark.control.relation import SystemRelation
from tidemark.spark.collect import too_large
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INT2VECTOR,
    INTEGER,
    JSONB,
    NUMERIC,
    OID,
    OIDVECTOR,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    SqlType,
    array_of,
    numeric,
)

if TYPE_CHECKING:
    from tidemark.control.pg.seen import Seen

BATCH_ROWS = 10_000

_SETTINGS = {
    "threads": 1,
    "memory_limit": MEMORY,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "integer_division": True,
    "default_null_order": "nulls_last_on_asc_first_on_desc",
}

_TYPES = {
    "BOOLEAN": BOOLEAN,
    "SMALLINT": SMALLINT,
    "INTEGER": INTEGER,
    "BIGINT": BIGINT,
    "UBIGINT": BIGINT,
    "HUGEINT": NUMERIC,
    "UINTEGER": OID,
    "FLOAT": DOUBLE,
    "DOUBLE": DOUBLE,
    "VARCHAR": TEXT,
    "JSON": JSONB,
    "BLOB": BYTEA,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ,
    '"NULL"': TEXT,
    "USMALLINT": SMALLINT,
    "USMALLINT[]": INT2VECTOR,
    "UBIGINT[]": OIDVECTOR,
}
_VECTORS = {INT2VECTOR: pa.list_(pa.uint16()), OIDVECTOR: pa.list_(pa.uint64())}


def opened(seen: Callable[[], Seen]) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(":memory:", config=_SETTINGS)
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    for each in functions.FUNCTIONS:
        database.create_function(
            each.name,
            _for(each.call, seen, len(each.takes)),
            list(each.takes),
            each.returns,
            null_handling=FunctionNullHandling.SPECIAL,
        )
    for text in functions.MACROS:
        database.execute(f"CREATE MACRO {text}")
    database.execute("SET GLOBAL lock_configuration = true")
    return database


def _for(call: Callable, seen: Callable[[], Seen], count: int) -> Callable:
    """DuckDB looks at how many arguments a function has."""
    if count == 1:
        return lambda a: None if a is None else call(seen(), a)
    if count == 2:
        return lambda a, b: None if a is None else call(seen(), a, b)
    if count == 3:
        return lambda a, b, c: None if None in (a, b, c) else call(seen(), a, b, c)
    return lambda a, b, c, d: None if None in (a, b, c, d) else call(seen(), a, b, c, d)


def bound(cursor: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
    """The query, checked but not run; what no client could take comes as text."""
    try:
        found = cursor.sql(sql)
        if all(_known(type_) for type_ in found.types):
            return found
        columns = ", ".join(f"c{i}" for i in range(len(found.columns)))
        picked = (
            f"{'c' + str(i) if _known(type_) else f'CAST(c{i} AS VARCHAR)'} AS {_quoted(name)}"
            for i, (name, type_) in enumerate(zip(found.columns, found.types, strict=True))
        )
        return cursor.sql(f"SELECT {', '.join(picked)} FROM ({sql}) AS t({columns})")
    except duckdb.Error as error:
        raise explained_error(error) from error


def fetched(
    cursor: duckdb.DuckDBPyConnection, sql: str, max_bytes: int
) -> tuple[tuple[Column, ...], pa.Table]:
    """The result; of more than `max_bytes` (0: as many as there are) nothing more is fetched."""
    with cursor:
        found = bound(cursor, sql)
        columns = described(found)
        batches: list[pa.RecordBatch] = []
        size = 0
        try:
            reader = found.to_arrow_reader(BATCH_ROWS)
            for batch in reader:
                size += batch.nbytes
                if 0 < max_bytes < size:
                    raise too_large(max_bytes)
                batches.append(batch)
        except duckdb.Error as error:
            raise explained_error(error) from error
        table = pa.Table.from_batches(batches, reader.schema)
    arrays = [
        _as_sent(array, column.type) for column, array in zip(columns, table.columns, strict=True)
    ]
    return columns, pa.table(arrays, names=[column.name for column in columns])


def described(found: duckdb.DuckDBPyRelation) -> tuple[Column, ...]:
    pairs = zip(found.columns, found.types, strict=True)
    return tuple(Column(name, _sql_type(type_)) for name, type_ in pairs)


def _known(type_: object) -> bool:
    text = str(type_)
    return text.removesuffix("[]") in _TYPES or text.startswith("DECIMAL(")


def _sql_type(type_: object) -> SqlType:
    text = str(type_)
    if text.endswith("[]") and text not in _TYPES:
        return array_of(_sql_type(text[:-2]))
    if text.startswith("DECIMAL("):
        precision, scale = map(int, text[len("DECIMAL(") : -1].split(","))
        return NUMERIC if (precision, scale) == NUMERIC.decimal else numeric(precision, scale)
    return _TYPES[text]


def _as_sent(array: pa.ChunkedArray, type_: SqlType) -> pa.Array:
    if type_ in _VECTORS:
        cells = [None if c is None else " ".join(map(str, c)) for c in array.to_pylist()]
        return pa.array(cells, pa.string())
    if type_.element is not None:
        return pa.array([_array_text(cell, type_) for cell in array.to_pylist()], pa.string())
    return array.combine_chunks() if type_ == NUMERIC else array.cast(type_.arrow).combine_chunks()


def _array_text(cell: list | None, type_: SqlType) -> str | None:
    if cell is None:
        return None
    return stored_text([None if each is None else _element(each) for each in cell], type_)


def _element(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def schema_of(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(column.name, _arrow(column.type)) for column in columns])


def _arrow(type_: SqlType) -> pa.DataType:
    if type_ in _VECTORS:
        return _VECTORS[type_]
    return type_.arrow if type_.element is None else pa.list_(type_.element.arrow)


def table_of(relation: SystemRelation, seen: Seen) -> pa.Table:
    rows = seen.rows(relation)
    schema = schema_of(relation.columns)
    arrays = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema)]
    return pa.table(arrays, schema=schema)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
