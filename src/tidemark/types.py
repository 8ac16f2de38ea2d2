"""SQL types, and what each is called by Arrow, by Spark and by the PostgreSQL wire.

One table (`SCALARS`) is the whole list; a type that is not in it is refused by name. Each has
arrays of one dimension (`integer[]`). Only PostgreSQL's own catalog has columns of the types in
`SYSTEM_SCALARS`: no table can.
`numeric` without precision is DECIMAL(38, 16) and prints without trailing zeros;
`numeric(p, s)` is exactly that and prints all `s` digits.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from tidemark.errors import SqlError, Unsupported

MAX_PRECISION = 38
BARE_NUMERIC_SCALE = 16


class SqlType(msgspec.Struct, frozen=True, omit_defaults=True):
    """A SQL type; `precision` and `scale` are set only for a constrained numeric, `element` only
    for an array, whose name is that of its elements and `[]`."""

    name: str
    precision: int | None = None
    scale: int | None = None
    element: SqlType | None = None

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.element}[]"
        if self.precision is not None:
            return f"numeric({self.precision},{self.scale})"
        return self.name

    @property
    def arrow(self) -> pa.DataType:
        if self.element is not None:
            return pa.string()  # as it is kept: see compute/arrays.py
        if self.name == "numeric":
            return pa.decimal128(*self.decimal)
        return _scalar(self.name).arrow

    @property
    def spark(self) -> str:
        """The type of a column; that of a value within an expression is `spark_value`."""
        if self.element is not None:
            return "STRING"
        if self.name == "numeric":
            precision, scale = self.decimal
            return f"DECIMAL({precision},{scale})"
        return _scalar(self.name).spark

    @property
    def spark_value(self) -> str:
        return self.spark if self.element is None else f"ARRAY<{self.element.spark}>"

    @property
    def oid(self) -> int:
        if self.element is not None:
            return _scalar(self.element.name).array_oid
        return _scalar(self.name).oid

    @property
    def wire_size(self) -> int:
        return -1 if self.element is not None else _scalar(self.name).wire_size

    @property
    def modifier(self) -> int:
        """What PostgreSQL calls typmod: precision and scale of a constrained numeric, else -1."""
        if self.precision is None:
            return -1
        return ((self.precision << 16) | (self.scale or 0)) + 4

    @property
    def decimal(self) -> tuple[int, int]:
        """Precision and scale of the decimal that holds a numeric or an integer of this type."""
        if self.name == "numeric":
            if self.precision is None:
                return MAX_PRECISION, BARE_NUMERIC_SCALE
            return self.precision, self.scale or 0
        return {"smallint": 5, "integer": 10, "bigint": 19}[self.name], 0

    @property
    def is_integer(self) -> bool:
        return self.name in ("smallint", "integer", "bigint")

    @property
    def is_exact(self) -> bool:
        return self.is_integer or self.name == "numeric"

    @property
    def is_number(self) -> bool:
        return self.is_exact or self.name == "double precision"


class _Scalar(msgspec.Struct, frozen=True):
    arrow: pa.DataType
    spark: str
    oid: int
    wire_size: int
    array_oid: int


SCALARS = {
    "boolean": _Scalar(pa.bool_(), "BOOLEAN", 16, 1, 1000),
    "smallint": _Scalar(pa.int16(), "SMALLINT", 21, 2, 1005),
    "integer": _Scalar(pa.int32(), "INT", 23, 4, 1007),
    "bigint": _Scalar(pa.int64(), "BIGINT", 20, 8, 1016),
    "numeric": _Scalar(pa.decimal128(38, 16), "DECIMAL(38,16)", 1700, -1, 1231),
    "double precision": _Scalar(pa.float64(), "DOUBLE", 701, 8, 1022),
    "text": _Scalar(pa.string(), "STRING", 25, -1, 1009),
    "bytea": _Scalar(pa.binary(), "BINARY", 17, -1, 1001),
    # Kept as its text.
    "jsonb": _Scalar(pa.string(), "STRING", 3802, -1, 3807),
    "date": _Scalar(pa.date32(), "DATE", 1082, 4, 1182),
    "timestamp": _Scalar(pa.timestamp("us"), "TIMESTAMP_NTZ", 1114, 8, 1115),
    "timestamp with time zone": _Scalar(
        pa.timestamp("us", tz="UTC"), "TIMESTAMP_LTZ", 1184, 8, 1185
    ),
    # Kept as its seconds; one of months is added to a moment, and nothing else (compute/intervals.py).
    "interval": _Scalar(pa.decimal128(20, 6), "DECIMAL(20,6)", 1186, 16, 1187),
}

SYSTEM_SCALARS = {
    "oid": _Scalar(pa.uint32(), "BIGINT", 26, 4, 1028),
    "name": _Scalar(pa.string(), "STRING", 19, 64, 1003),
    '"char"': _Scalar(pa.string(), "STRING", 18, 1, 1002),
    # Arrays that are printed as `1 2`, and kept so.
    "int2vector": _Scalar(pa.string(), "STRING", 22, -1, 1006),
    "oidvector": _Scalar(pa.string(), "STRING", 30, -1, 1013),
}


def _scalar(name: str) -> _Scalar:
    return SCALARS.get(name) or SYSTEM_SCALARS[name]


BOOLEAN = SqlType("boolean")
SMALLINT = SqlType("smallint")
INTEGER = SqlType("integer")
BIGINT = SqlType("bigint")
NUMERIC = SqlType("numeric")
DOUBLE = SqlType("double precision")
TEXT = SqlType("text")
BYTEA = SqlType("bytea")
JSONB = SqlType("jsonb")
DATE = SqlType("date")
TIMESTAMP = SqlType("timestamp")
TIMESTAMPTZ = SqlType("timestamp with time zone")
INTERVAL = SqlType("interval")
OID = SqlType("oid")
NAME = SqlType("name")
CHAR = SqlType('"char"')
INT2VECTOR = SqlType("int2vector")
OIDVECTOR = SqlType("oidvector")

_ALIASES = {
    "bool": "boolean",
    "int2": "smallint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "decimal": "numeric",
    "float": "double precision",
    "float8": "double precision",
    "double": "double precision",
    "varchar": "text",
    "character varying": "text",
    "string": "text",
    "timestamp without time zone": "timestamp",
    "timestamptz": "timestamp with time zone",
}


def numeric(precision: int, scale: int = 0) -> SqlType:
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise SqlError(
            f"numeric({precision},{scale}) is out of range: precision must be 1 to "
            f"{MAX_PRECISION} and scale 0 to the precision",
            sqlstate="22023",
        )
    return SqlType("numeric", precision, scale)


def array_of(element: SqlType) -> SqlType:
    if element.element is not None:
        raise Unsupported(
            "arrays of arrays are not supported", hint="keep one array per row, or use jsonb"
        )
    return SqlType(f"{element.name}[]", element=element)


def type_named(name: str) -> SqlType:
    """The type that SQL calls `name` (an alias is fine); unknown names are refused."""
    folded = " ".join(name.lower().split())
    if folded.endswith("[]"):
        return array_of(type_named(folded[:-2]))
    folded = _ALIASES.get(folded, folded)
    if folded not in SCALARS:
        raise Unsupported(
            f'type "{name}" is not supported',
            hint="supported: " + ", ".join(sorted(SCALARS)),
            sqlstate="42704",
        )
    return SqlType(folded)


def type_of_arrow(type_: pa.DataType) -> SqlType:
    """The SQL type of stored values: `SqlType.arrow` backwards, but what is kept as text is text."""
    if pa.types.is_decimal128(type_):
        limits = type_.precision, type_.scale
        return NUMERIC if limits == NUMERIC.decimal else numeric(*limits)
    for name, scalar in SCALARS.items():
        if scalar.arrow == type_:
            return SqlType(name)
    known = dict.fromkeys(str(scalar.arrow) for scalar in SCALARS.values())
    raise Unsupported(
        f"Arrow type {type_} has no type in SQL",
        hint=f"store the column as one of {', '.join(known)}",
        sqlstate="42704",
    )


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named, typed column of a relation."""

    name: str
    type: SqlType
    nullable: bool = True


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema of a relation's rows; every field is nullable, as stored."""
    return pa.schema([pa.field(column.name, column.type.arrow) for column in columns])


def check_columns(columns: tuple[Column, ...]) -> None:
    """Refuse columns that no shard can have."""
    for column in columns:
        if column.name.startswith("_"):
            raise SqlError(
                f'column name "{column.name}" is reserved: names may not begin with _',
                sqlstate="42939",
            )
        if "`" in column.name or column.type.name == "unknown":
            raise SqlError(f'column "{column.name}" cannot be stored', sqlstate="42P16")
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise SqlError(f'column "{column.name}" specified more than once', sqlstate="42701")
        seen.add(column.name)
