"""Rows of a leaf that its own predicates drop for sure, dropped before anything is looked up.

    p_brand = 'Brand#23' AND l_quantity < 0.2 * c1       the first is asked here, the second is not

A tick's changes are looked up in arrangements and joined by a Spark query; most of them fail a
comparison with a constant. Here are only those predicates that Arrow answers exactly as Spark does
and that cannot fail; the query asks all of them again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.constants import value_of
from tidemark.compute.expr import Call, Cast, Col, Expr, Lit, columns_of
from tidemark.compute.shape import Block
from tidemark.types import BOOLEAN, DATE, TEXT, TIMESTAMP, SqlType

Answer: TypeAlias = Callable[[pa.Table], Any]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Sieve:
    """What one leaf of a block asks of its rows."""

    def __init__(self, block: Block, leaf: int):
        start, columns = block.offset(leaf), block.leaves[leaf].columns
        own = range(start, start + len(columns))
        names = {start + at: column.name for at, column in enumerate(columns)}
        mine = [p for p in block.predicates if columns_of(p) and columns_of(p) <= set(own)]
        self._asked = [answer for each in mine if (answer := _answer(each, names)) is not None]

    def passed(self, rows: pa.Table) -> pa.Table:
        for answer in self._asked:
            if not rows.num_rows:
                break
            # A date may be too far away for a timestamp; Spark has a word on that.
            with contextlib.suppress(pa.ArrowInvalid):
                rows = rows.filter(answer(rows))
        return rows


def _answer(expr: Expr, names: dict[int, str]) -> Answer | None:
    """`expr` as a function of the leaf's rows; None where Arrow might say something else."""
    match expr:
        case Col(index=index, type=type_) if _comparable(type_) or type_ == BOOLEAN:
            return lambda rows: rows[names[index]]
        case Lit(value=str(), type=type_) if _comparable(type_) or type_ == BOOLEAN:
            constant = _constant(expr)
            return lambda rows: constant
        case Cast(arg=arg, type=type_) if arg.type == DATE and type_ == TIMESTAMP:
            day = _answer(arg, names)
            return None if day is None else lambda rows: pc.cast(day(rows), TIMESTAMP.arrow)
        case Call():
            args = [_answer(arg, names) for arg in expr.args]
            known = [arg for arg in args if arg is not None]
            return _called(expr, known) if len(known) == len(args) else None
        case _:
            return None


def _called(expr: Call, args: list[Answer]) -> Answer | None:
    types = {arg.type for arg in expr.args}
    if expr.fn in COMPARISONS and len(types) == 1:
        compare, (left, right) = COMPARISONS[expr.fn], args
        # Which text comes first is a matter of collation.
        if types <= {TEXT, BOOLEAN} and expr.fn not in ("=", "<>"):
            return None
        return lambda rows: compare(left(rows), right(rows))
    match expr.fn, expr.args:
        case "in", (Col(type=type_), *listed) if len(types) == 1:
            constants = [_constant(each) for each in listed if isinstance(each, Lit)]
            if len(constants) < len(listed):
                return None
            values = pa.array([each.as_py() for each in constants], type_.arrow)
            return lambda rows: _among(args[0](rows), values)
        case "like", (Col(), Lit(value=str(pattern))) if "\\" not in pattern:
            return lambda rows: pc.match_like(args[0](rows), pattern)
        case "not", _:
            return lambda rows: pc.invert(args[0](rows))
        case "and", _:
            return lambda rows: _folded(pc.and_kleene, args, rows)
        case "or", _:
            return lambda rows: _folded(pc.or_kleene, args, rows)
        case _:
            return None


def _constant(literal: Lit) -> pa.Scalar:
    return pa.scalar(value_of(literal), literal.type.arrow)


def _among(column: pa.ChunkedArray, values: pa.Array) -> Any:
    return pc.if_else(pc.is_valid(column), pc.is_in(column, values), pa.scalar(None, pa.bool_()))


def _folded(combine: Callable[[Any, Any], Any], args: list[Answer], rows: pa.Table) -> Any:
    so_far = args[0](rows)
    for arg in args[1:]:
        so_far = combine(so_far, arg(rows))
    return so_far


def _comparable(type_: SqlType) -> bool:
    return type_ in (DATE, TIMESTAMP, TEXT) or type_.is_integer or type_.name == "numeric"
