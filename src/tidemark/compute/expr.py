"""Typed scalar expressions over the columns of one relation.

An expression names columns by position, so plans can be merged by substitution and nothing
depends on what users call things. `FUNCTIONS` in `functions.py` is the allow-list of what a `Call`
may name; every function there says how it becomes Spark SQL and when it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from tidemark.types import BOOLEAN, SqlType


class Col(msgspec.Struct, frozen=True, tag="col", tag_field="kind"):
    """Column `index` of the input relation."""

    index: int
    type: SqlType


class Lit(msgspec.Struct, frozen=True, tag="lit", tag_field="kind"):
    """A constant; `value` is its text as PostgreSQL prints it, None is NULL."""

    value: str | None
    type: SqlType


class Told:
    """The types that something was taken for, in the order in which that happened."""

    def __init__(self) -> None:
        self.types: list[SqlType] = []


class Asked(Lit, frozen=True):
    """A parameter while its statement is prepared: a NULL, of which is noted what it is taken for."""

    told: Told


class Call(msgspec.Struct, frozen=True, tag="call", tag_field="kind"):
    """`fn` applied to `args`; operators and CASE are functions too.

    CASE is `case(cond1, value1, cond2, value2, ..., otherwise)`.
    """

    fn: str
    args: tuple[Expr, ...]
    type: SqlType


class Cast(msgspec.Struct, frozen=True, tag="cast", tag_field="kind"):
    arg: Expr
    type: SqlType


Expr: TypeAlias = Col | Lit | Call | Cast

TRUE = Lit("true", BOOLEAN)


def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Call(args=args):
            return args
        case Cast(arg=arg):
            return (arg,)
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in children(expr):
        yield from walk(child)


def columns_of(expr: Expr) -> frozenset[int]:
    return frozenset(node.index for node in walk(expr) if isinstance(node, Col))


def substitute(expr: Expr, replace: Callable[[Col], Expr]) -> Expr:
    """`expr` with every column replaced by what `replace` gives for it."""
    match expr:
        case Col():
            return replace(expr)
        case Call(fn=fn, args=args, type=type_):
            return Call(fn, tuple(substitute(arg, replace) for arg in args), type_)
        case Cast(arg=arg, type=type_):
            return Cast(substitute(arg, replace), type_)
        case _:
            return expr


def shift(expr: Expr, by: int) -> Expr:
    return substitute(expr, lambda col: Col(col.index + by, col.type))


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction: `a AND (b AND c)` gives a, b, c."""
    if isinstance(expr, Call) and expr.fn == "and":
        return tuple(part for arg in expr.args for part in conjuncts(arg))
    return () if expr == TRUE else (expr,)
