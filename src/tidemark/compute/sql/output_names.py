"""What PostgreSQL calls a column that has no alias."""

from __future__ import annotations

from sqlglot import exp

from tidemark.compute.sql.dialect import identifier
from tidemark.compute.sql.spark_dialect import AS_FRACTION, TOWARD_ZERO

_TYPE_NAME = {
    exp.DType.BOOLEAN: "bool",
    exp.DType.SMALLINT: "int2",
    exp.DType.INT: "int4",
    exp.DType.BIGINT: "int8",
    exp.DType.DECIMAL: "numeric",
    exp.DType.DOUBLE: "float8",
    exp.DType.FLOAT: "float4",
    exp.DType.INTERVAL: "interval",
    exp.DType.TEXT: "text",
    exp.DType.NAME: "name",
    exp.DType.VARCHAR: "varchar",
    exp.DType.VARBINARY: "bytea",
    exp.DType.JSONB: "jsonb",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamptz",
}


NAMELESS = "?column?"


def output_name(node: exp.Expr) -> str:
    return _figured(node)[0]


def _figured(node: exp.Expr) -> tuple[str, bool]:
    """The name, and whether it stays what it is within a cast or a CASE; those of types do not."""
    match node:
        case exp.Column():
            return identifier(node.this), True
        case exp.Paren(this=inner) | exp.Window(this=inner) | exp.Filter(this=inner):
            return _figured(inner)
        case exp.WithinGroup(this=inner) | exp.Bracket(this=inner) | exp.Collate(this=inner):
            return _figured(inner)
        case exp.Anonymous(this=name) if name in (AS_FRACTION, TOWARD_ZERO):
            return _figured(node.expressions[0])
        case exp.Anonymous():
            return identifier(node.this), True
        case exp.Dot(expression=exp.Anonymous() as function):
            return identifier(function.this), True
        case exp.Exists():
            return "exists", True
        case exp.Subquery(this=inner):
            name = _first_column(inner)
            return name, name != NAMELESS
        case exp.Case():
            default = node.args.get("default")
            name, stays = _figured(default) if default is not None else (NAMELESS, False)
            return (name, True) if stays else ("case", False)
        case exp.Extract():
            return "extract", True
        case exp.Unnest():
            return "unnest", True
        case exp.Array():
            return "array", True
        case exp.AtTimeZone():
            return "timezone", True
        case exp.Substring():
            return "substring", True
        case exp.Overlay():
            return "overlay", True
        case exp.StrPosition():
            return "position", True
        case exp.Trim():
            position = node.args.get("position") or ""
            return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "btrim"), True
        case exp.Interval():
            return "interval", False
        case exp.Cast(this=inner):
            name, stays = _figured(inner)
            return (name, True) if stays else (_type_name(node.args["to"]), False)
    return NAMELESS, False


def _type_name(type_: exp.Expr) -> str:
    kind = type_.args.get("kind")
    if kind is not None:  # A type that sqlglot does not know, perhaps with its schema.
        return identifier(kind.expression if isinstance(kind, exp.Dot) else kind)
    if type_.this == exp.DType.ARRAY and len(type_.expressions) == 1:
        return _type_name(type_.expressions[0])
    return _TYPE_NAME.get(type_.this, NAMELESS)


def _first_column(query: exp.Expr) -> str:
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if isinstance(query, exp.Select) and query.expressions:
        first = query.expressions[0]
        return (
            identifier(first.args["alias"]) if isinstance(first, exp.Alias) else output_name(first)
        )
    return "column1" if isinstance(query, exp.Values) else NAMELESS
