"""What a plan shows about its rows: whether there can be several, whether a value can be null."""

from __future__ import annotations

from typing import TypeGuard

from tidemark.compute.expr import Call, Col, Expr, Lit, columns_of, conjuncts
from tidemark.compute.plan import (
    Constant,
    Filter,
    Get,
    Join,
    Let,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    TopK,
)
from tidemark.types import BOOLEAN


def at_most_one(plan: Plan, fixed: frozenset[int] = frozenset()) -> bool:
    """True if no two rows agree in the columns `fixed`, for any one outer row."""
    match plan:
        case Constant(rows=rows):
            return len(rows) <= 1
        case Get(keys=keys):
            return any(fixed.issuperset(key) for key in keys)
        case Filter(input=input_, predicate=predicate):
            return at_most_one(input_, fixed | _equated(predicate))
        case Project(input=input_, outputs=outputs):
            below = (outputs[at] for at in fixed)
            return at_most_one(input_, frozenset(e.index for e in below if _is_own(e)))
        case Reduce(input=input_, keys=keys):
            single = _constant_columns(input_)
            return all(
                at in fixed or single.issuperset(columns_of(key) - _outer(key))
                for at, key in enumerate(keys)
            )
        case TopK(input=input_, group=group, limit=limit):
            return (limit is not None and limit <= 1 and fixed.issuperset(group)) or at_most_one(
                input_, fixed
            )
        case Let(body=body):
            return at_most_one(body, fixed)
        case Join(inputs=inputs, on=on):
            for predicate in on:
                fixed |= _equated(predicate)
            return _each(inputs, fixed)
        case OuterJoin(kind="left", left=left, right=right):
            return _each((left, right), fixed)
        case OuterJoin(kind="semi" | "anti", left=left):
            return at_most_one(left, fixed)
        case _:
            return False


def never_null(plan: Plan, expr: Expr) -> bool:
    """True if the plan shows that `expr` over it is not null in any row."""
    if isinstance(expr, Lit):
        return expr.value is not None
    if not _is_own(expr):
        return False
    at = expr.index
    match plan:
        case Get(columns=columns):
            return not columns[at].nullable
        case Constant(rows=rows):
            return all(row[at].value is not None for row in rows)
        case Filter(input=input_, predicate=predicate):
            known = Call("is not null", (expr,), BOOLEAN) in conjuncts(predicate)
            return known or never_null(input_, expr)
        case Project(input=input_, outputs=outputs):
            return never_null(input_, outputs[at])
        case Reduce(input=input_, keys=keys, aggregates=aggregates):
            if at < len(keys):
                return never_null(input_, keys[at])
            return aggregates[at - len(keys)].fn == "count"
        case Join(inputs=inputs):
            for input_ in inputs:
                if at < len(input_.columns):
                    return never_null(input_, Col(at, expr.type))
                at -= len(input_.columns)
            return False
        case OuterJoin(kind="left" | "semi" | "anti", left=left):
            return at < len(left.columns) and never_null(left, expr)
        case TopK(input=input_):
            return never_null(input_, expr)
        case _:
            return False


def _each(inputs: tuple[Plan, ...], fixed: frozenset[int]) -> bool:
    first = 0
    for input_ in inputs:
        last = first + len(input_.columns)
        if not at_most_one(input_, frozenset(at - first for at in fixed if first <= at < last)):
            return False
        first = last
    return True


def _constant_columns(plan: Plan) -> frozenset[int]:
    """Columns that have one value in all rows, for any one outer row."""
    match plan:
        case Filter(input=input_, predicate=predicate):
            return _constant_columns(input_) | _equated(predicate)
        case Project(input=input_, outputs=outputs):
            below = _constant_columns(input_)
            return frozenset(
                at
                for at, expr in enumerate(outputs)
                if below.issuperset(columns_of(expr) - _outer(expr))
            )
        case _:
            return frozenset()


def _equated(predicate: Expr) -> frozenset[int]:
    """Own columns that must equal something of the outer query, or a constant."""
    found: set[int] = set()
    for part in conjuncts(predicate):
        if not (isinstance(part, Call) and part.fn == "="):
            continue
        for own, other in (part.args, part.args[::-1]):
            if _is_own(own) and all(index < 0 for index in columns_of(other)):
                found.add(own.index)
    return frozenset(found)


def _is_own(expr: Expr) -> TypeGuard[Col]:
    return isinstance(expr, Col) and expr.index >= 0


def _outer(expr: Expr) -> frozenset[int]:
    return frozenset(index for index in columns_of(expr) if index < 0)
