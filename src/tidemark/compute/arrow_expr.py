"""Expressions that Arrow answers exactly as Spark does, and that cannot fail.

Comparisons with constants, lists of them, what `and`, `or` and `not` make of those, and casts that
lose nothing. Everything else is None here and Spark's to answer; so is what the two see differently
(NaN is the largest number to Spark and to PostgreSQL, and equal to itself).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.constants import value_of
from tidemark.compute.expr import Call, Cast, Col, Expr, Lit
from tidemark.types import BOOLEAN, BYTEA, DATE, DOUBLE, TEXT, TIMESTAMP, TIMESTAMPTZ, SqlType

Answer: TypeAlias = Callable[[pa.Table], Any]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_PLAIN = (BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ, TEXT, BYTEA)


def answer(expr: Expr, names: Callable[[int], str]) -> Answer | None:
    """`expr` as a function of rows whose columns have these `names`; None if it is not for Arrow.

    A column or an array of its values, or a scalar.
    """
    match expr:
        case Col(index=index):
            return lambda rows: rows[names(index)]
        case Lit(type=type_) if comparable(type_) or type_ == DOUBLE:
            constant = constant_of(expr)
            return lambda rows: constant
        case Cast(arg=arg, type=type_) if widens(arg.type, type_):
            inner = answer(arg, names)
            return None if inner is None else lambda rows: pc.cast(inner(rows), type_.arrow)
        case Call():
            args = [answer(arg, names) for arg in expr.args]
            known = [arg for arg in args if arg is not None]
            return _called(expr, known) if len(known) == len(args) else None
        case _:
            return None


def comparable(type_: SqlType) -> bool:
    """Whether the values of a type compare and sort in Arrow as in Spark."""
    return type_ in _PLAIN or type_.is_exact


def widens(source: SqlType, target: SqlType) -> bool:
    """Whether every value of `source` is one of `target`, and no other becomes the same."""
    if source == DATE and target == TIMESTAMP:
        return True
    if not source.is_exact or not target.is_exact:
        return False
    (digits, scale), (more, finer) = source.decimal, target.decimal
    if target.is_integer:
        return scale == 0 and source.is_integer and digits <= more
    return finer >= scale and more - finer >= digits - scale


def constant_of(literal: Lit) -> pa.Scalar:
    return pa.scalar(value_of(literal), literal.type.arrow)


def _called(expr: Call, args: list[Answer]) -> Answer | None:
    types = {arg.type for arg in expr.args}
    if expr.fn in COMPARISONS and len(types) == 1:
        return _comparison(expr, args)
    match expr.fn, expr.args:
        case "in", (first, *listed) if len(types) == 1 and comparable(first.type):
            literals = [each for each in listed if isinstance(each, Lit)]
            if len(literals) < len(listed) or any(each.value is None for each in literals):
                return None
            values = pa.array([value_of(each) for each in literals], first.type.arrow)
            return lambda rows: _among(args[0](rows), values)
        case "like", (Col(), Lit(value=str(pattern))) if "\\" not in pattern:
            return lambda rows: pc.match_like(args[0](rows), pattern)
        case "is null", (Col(),):
            return lambda rows: pc.is_null(args[0](rows))
        case "is not null", (Col(),):
            return lambda rows: pc.is_valid(args[0](rows))
        case "not", _:
            return lambda rows: pc.invert(args[0](rows))
        case "and", _:
            return lambda rows: _folded(pc.and_kleene, args, rows)
        case "or", _:
            return lambda rows: _folded(pc.or_kleene, args, rows)
        case _:
            return None


def _comparison(expr: Call, args: list[Answer]) -> Answer | None:
    left, right = args
    compare = COMPARISONS[expr.fn]
    if comparable(expr.args[0].type):
        return lambda rows: compare(left(rows), right(rows))
    match expr.args:
        case (Lit(), Col()):
            mirrored = Call(MIRRORED[expr.fn], expr.args[::-1], expr.type)
            return _comparison(mirrored, args[::-1])
        case (Col(type=type_), Lit(value=str(text))) if type_ == DOUBLE and text != "NaN":
            if expr.fn not in (">", ">="):
                return lambda rows: compare(left(rows), right(rows))
            return lambda rows: pc.or_(compare(left(rows), right(rows)), pc.is_nan(left(rows)))
    return None


def _among(column: pa.ChunkedArray, values: pa.Array) -> Any:
    return pc.if_else(pc.is_valid(column), pc.is_in(column, values), pa.scalar(None, pa.bool_()))


def _folded(combine: Callable[[Any, Any], Any], args: list[Answer], rows: pa.Table) -> Any:
    so_far = args[0](rows)
    for arg in args[1:]:
        so_far = combine(so_far, arg(rows))
    return so_far
