"""What PostgreSQL calls a column that has no alias."""

from __future__ import annotations

from sqlglot import exp

from tidemark.compute.sql.dialect import identifier

_TYPE_NAME = {
    exp.DType.BOOLEAN: "bool",
    exp.DType.SMALLINT: "int2",
    exp.DType.INT: "int4",
    exp.DType.BIGINT: "int8",
    exp.DType.DECIMAL: "numeric",
    exp.DType.DOUBLE: "float8",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "varchar",
    exp.DType.VARBINARY: "bytea",
    exp.DType.JSONB: "jsonb",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamptz",
}


def output_name(node: exp.Expr) -> str:
    match node:
        case exp.Column():
            return identifier(node.this)
        case exp.Paren(this=inner) | exp.Window(this=inner) | exp.Filter(this=inner):
            return output_name(inner)
        case exp.WithinGroup(this=inner):
            return output_name(inner)
        case exp.Anonymous():
            return identifier(node.this)
        case exp.Dot(expression=exp.Anonymous() as function):
            return identifier(function.this)
        case exp.Exists():
            return "exists"
        case exp.Subquery(this=inner):
            return _first_column(inner)
        case exp.Case():
            default = node.args.get("default")
            name = output_name(default) if default is not None else "?column?"
            return name if isinstance(default, exp.Column) else "case"
        case exp.Extract():
            return "extract"
        case exp.Unnest():
            return "unnest"
        case exp.Array():
            return "array"
        case exp.Substring():
            return "substring"
        case exp.StrPosition():
            return "position"
        case exp.Trim():
            position = node.args.get("position") or ""
            return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "btrim")
        case exp.Boolean():
            return "bool"
        case exp.Cast(this=inner):
            name = output_name(inner)
            return name if name != "?column?" else _TYPE_NAME.get(node.args["to"].this, name)
    return "?column?"


def _first_column(query: exp.Expr) -> str:
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if isinstance(query, exp.Select) and query.expressions:
        first = query.expressions[0]
        return (
            identifier(first.args["alias"]) if isinstance(first, exp.Alias) else output_name(first)
        )
    return "column1" if isinstance(query, exp.Values) else "?column?"
