"""Casts and array literals of PostgreSQL's SQL, as DuckDB has them (steps of `rewrite.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from tidemark.compute.arrays import read_array
from tidemark.compute.sql.dialect import identifier
from tidemark.control.pg.types import ARRAY_IN
from tidemark.errors import DataError, SqlError

if TYPE_CHECKING:
    from tidemark.control.pg.rewrite import Context

REGS = ("regclass", "regtype", "regnamespace")
"""Types whose values are oids that print as names."""

_NO_REGS = ("regproc", "regprocedure", "regoper", "regoperator", "regrole", "regconfig")

_TYPES = {
    **dict.fromkeys(("text", "name", "char", "varchar", "bpchar", "cstring", "citext"), "VARCHAR"),
    **dict.fromkeys(("oid", "xid", "cid", *_NO_REGS), "UINTEGER"),
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int": "INTEGER",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "numeric": "DECIMAL(38,16)",
    "json": "JSON",
    "jsonb": "JSON",
    "int2vector": "USMALLINT[]",
    "oidvector": "UBIGINT[]",
}
"""Types by PostgreSQL's names; others are left to sqlglot."""

SYSTEM_TYPES = (*REGS, *_NO_REGS, "oid", "name", "int2vector", "oidvector")
"""Types that only the catalog has."""

_ARRAY_TEXT = re.compile(r"\{.*\}", re.DOTALL)


def put_casts(tree: exp.Expr, context: Context) -> exp.Expr:
    """The inner ones last, so that a cast of a regclass to text is still seen as one."""
    query = first_select(tree)
    shown = {id(each) for each in query.expressions} if query is not None else set()
    for node in list(tree.find_all(exp.Cast)):
        name, is_array = type_name(node.args["to"])
        literal = node.this if isinstance(node.this, exp.Literal) else None
        parent = node.parent
        if name in REGS and not is_array:
            as_text = id(node) in shown or id(parent) in shown or _is_text_cast(parent)
            value = node.this
            if literal is not None and not literal.name.isdecimal():
                value = exp.Literal.number(context.oid(name, literal.name))
            node.replace(reg(name, value, as_text=as_text))
        elif literal is not None and literal.is_string and is_array:
            node.set("this", _array(literal.name))
        elif name in _NO_REGS and literal is not None and not literal.name.isdecimal():
            number = ARRAY_IN if literal.name.endswith("array_in") else 0
            node.replace(cast(exp.Literal.number(number), "oid"))
            continue
        if name in _TYPES:
            node.set("to", exp.DataType.build(_TYPES[name] + "[]" * is_array, dialect="duckdb"))
    return tree


def reg(kind: str, value: exp.Expr, *, as_text: bool) -> exp.Expr:
    text = exp.Cast(this=value, to=exp.DataType.build("VARCHAR", dialect="duckdb"))
    oid = exp.Anonymous(this=f"{kind}_oid", expressions=[text])
    return exp.Anonymous(this=f"{kind}_text", expressions=[oid]) if as_text else oid


def _is_text_cast(node: exp.Expr | None) -> bool:
    if not isinstance(node, exp.Cast):
        return False
    name, is_array = type_name(node.args["to"])
    return _TYPES.get(name) == "VARCHAR" and not is_array


def put_arrays(tree: exp.Expr, context: Context) -> exp.Expr:
    """`'{1,2}'` where an array is meant, and ANY of a query's array."""
    for node in list(tree.find_all(exp.Any)):
        inner = node.this.unnest()
        if isinstance(inner, exp.Literal) and inner.is_string:
            other = node.parent.this if node.parent is not None else None
            if isinstance(other, exp.Expr):
                wrap(other, lambda compared: cast(compared, "text"))
            node.set("this", exp.Paren(this=_array(inner.name)))
        elif isinstance(inner, exp.Anonymous) and inner.name == "array":
            node.set("this", exp.Paren(this=inner.expressions[0]))
    for node in list(tree.find_all(exp.EQ, exp.NEQ)):
        column, literal = node.this, node.expression
        if isinstance(column, exp.Column) and isinstance(literal, exp.Literal):
            type_ = context.arrays.get(column.name)
            if type_ is not None and _ARRAY_TEXT.fullmatch(literal.name):
                element = str(type_.element)
                literal.replace(cast(_array(literal.name), element, is_array=True))
    return tree


def _array(text: str) -> exp.Expr:
    try:
        elements = read_array(text)
    except DataError as error:
        raise SqlError(error.message, sqlstate="22P02") from None
    cells = [exp.null() if each is None else exp.Literal.string(each) for each in elements]
    return exp.Array(expressions=cells)


def cast(value: exp.Expr, name: str, *, is_array: bool = False) -> exp.Expr:
    bare = name.removesuffix("[]").strip('"')
    spelled = _TYPES.get(bare, bare)
    many = is_array or name.endswith("[]")
    if many and isinstance(value, exp.Literal):
        value = _array(value.name)
    return exp.Cast(this=value, to=exp.DataType.build(spelled + "[]" * many, dialect="duckdb"))


def type_name(node: exp.Expr) -> tuple[str, bool]:
    """The type's name without its schema, in lower case, and whether it is an array of it."""
    if isinstance(node, exp.DataType) and node.this == exp.DType.ARRAY and node.expressions:
        return type_name(node.expressions[0])[0], True
    kind = node.args.get("kind")
    if kind is not None:  # A type that sqlglot does not know, perhaps with its schema.
        return identifier(kind.expression if isinstance(kind, exp.Dot) else kind), False
    return str(node.this.value).lower() if isinstance(node.this, exp.DType) else "", False


def wrap(node: exp.Expr, make: Callable[[exp.Expr], exp.Expr]) -> None:
    """Put what `make` builds around a node where the node is; it is not copied, so that steps may
    go on with what is in it."""
    place = exp.Null()
    node.replace(place)
    place.replace(make(node))


def first_select(tree: exp.Expr) -> exp.Select | None:
    """The SELECT whose columns a query returns, and that names them for the others of a union."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return tree if isinstance(tree, exp.Select) else None
