"""`fn(...) OVER (...)`: window functions, their types and their frames.

A plan's window functions are those of `FUNCTIONS` and count, sum, min and max; other aggregates
become expressions over these, as they do in GROUP BY (`aggregates.composed`; avg is a quotient).
A FILTER is a CASE around the argument. DISTINCT, GROUPS, EXCLUDE and a RANGE with offsets are
refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from tidemark.compute.aggregates import AGGREGATES, composed, is_aggregate
from tidemark.compute.casts import cast, common_type, settled
from tidemark.compute.expr import Call, Col, Expr, Lit
from tidemark.compute.functions import call
from tidemark.compute.plan import Aggregate, Order, WindowFunction
from tidemark.compute.sql.dialect import identifier
from tidemark.compute.sql.windows import WINDOW_BASE, WindowCall
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BIGINT, DOUBLE, INTEGER, SqlType

if TYPE_CHECKING:
    from tidemark.compute.sql.expressions import Expressions

RANKS: dict[str, SqlType] = {
    "row_number": BIGINT,
    "rank": BIGINT,
    "dense_rank": BIGINT,
    "percent_rank": DOUBLE,
    "cume_dist": DOUBLE,
}
FRAMED = ("first_value", "last_value", "nth_value")
FUNCTIONS = frozenset([*RANKS, "ntile", "lag", "lead", *FRAMED])
"""The functions that need an OVER; the frame means something to `FRAMED` only."""


@dataclass(frozen=True, slots=True)
class _Definition:
    """What stands in the parentheses of OVER, a named window merged in."""

    partition: list[exp.Expr]
    order: exp.Order | None
    spec: exp.WindowSpec | None


def plan_over(node: exp.Window, outer: Expressions, named: Mapping[str, exp.Window]) -> Expr:
    """The value of a window function, as columns from `WINDOW_BASE` on; collects its calls."""
    if outer.windows is None:
        what = outer.clause
        if what == "a window":
            raise SqlError("window function calls cannot be nested", sqlstate="42P20")
        if what == "an aggregate":
            raise SqlError(
                "aggregate function calls cannot contain window function calls", sqlstate="42803"
            )
        raise SqlError(f"window functions are not allowed in {what}", sqlstate="42P20")
    inner = replace(outer, clause="a window", windows=None)
    definition = _definition(node, named)
    partition = tuple(settled(inner.plan(each)) for each in definition.partition)
    order_by = inner.orders(definition.order) if definition.order else ()
    frame = _frame(definition.spec, inner, order_by)

    def column(fn: str, args: tuple[Expr, ...], type_: SqlType) -> Expr:
        assert outer.windows is not None
        made = WindowCall(WindowFunction(fn, args, type_, frame), partition, order_by)
        if fn not in FRAMED and fn not in AGGREGATES:
            function = WindowFunction(fn, args, type_)
            made = WindowCall(function, partition, order_by)
        if made not in outer.windows:
            outer.windows.append(made)
        return Col(WINDOW_BASE + outer.windows.index(made), type_)

    name, nodes, where = _function(node.this)
    if is_aggregate(name):
        planned = _aggregate(name, nodes, where, inner)

        def of(agg: Aggregate) -> Expr:
            made = composed(agg, of)
            if made is not None:
                return made
            if agg.fn == "avg":
                return _average(agg, column)
            return column(agg.fn, agg.args, agg.type)

        return of(planned)
    if name not in FUNCTIONS:
        raise SqlError(
            f"OVER specified, but {name} is not a window function nor an aggregate function",
            hint="window functions: " + ", ".join(sorted(FUNCTIONS)),
            sqlstate="42809",
        )
    if where is not None:
        raise Unsupported("FILTER is not implemented for non-aggregate window functions")
    args = tuple(inner.plan(each) for each in nodes)
    return column(name, *_typed(name, args))


def _function(node: exp.Expr) -> tuple[str, list[exp.Expr], exp.Expr | None]:
    """The name, the arguments and the FILTER of what stands before OVER."""
    where = None
    if isinstance(node, exp.Filter):
        node, where = node.this, node.expression.this
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        raise Unsupported("IGNORE NULLS and RESPECT NULLS are not supported")
    if isinstance(node, exp.Dot) and identifier(node.this) == "pg_catalog":
        node = node.expression
    if not isinstance(node, exp.Anonymous):
        raise SqlError("OVER specified, but this is not a function", sqlstate="42809")
    return identifier(node.this), node.expressions, where


def _aggregate(
    name: str, nodes: list[exp.Expr], where: exp.Expr | None, inner: Expressions
) -> Aggregate:
    if any(isinstance(each, exp.Distinct) for each in nodes):
        raise Unsupported("DISTINCT is not implemented for window functions")
    if any(isinstance(each, exp.Order) for each in nodes):
        raise Unsupported("aggregate ORDER BY is not implemented for window functions")
    planned = inner.aggregate_call(name, nodes, where)
    if AGGREGATES[planned.fn].kind == "whole":
        raise Unsupported(
            f"{name} as a window function is not supported",
            hint="aggregate with GROUP BY and join the result",
        )
    return planned


def _average(planned: Aggregate, column) -> Expr:
    """As everywhere a quotient of sum and count, so that it rounds as everywhere."""
    (arg,) = planned.args
    scale = arg.type.decimal[1]
    total = column("sum", (arg,), SqlType("numeric", 38, scale))
    count = column("count", (arg,), BIGINT)
    some = call(">", (count, Lit("0", BIGINT)))
    mean = cast(call("/", (total, count)), planned.type)
    return Call("case", (some, mean, Lit(None, planned.type)), planned.type)


def _typed(name: str, args: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], SqlType]:
    """The arguments as the function takes them, and the type of its result."""
    count = len(args)
    if name in RANKS and count == 0:
        return (), RANKS[name]
    if name == "ntile" and count == 1:
        return (_constant(name, args[0], least=1),), INTEGER
    if name in ("lag", "lead") and 1 <= count <= 3:
        offset = _constant(name, args[1]) if count > 1 else Lit("1", INTEGER)
        value = args[0]
        if count < 3:
            return (settled(value), offset), settled(value).type
        type_ = common_type((value.type, args[2].type))
        if type_ is not None:
            return (cast(value, type_), offset, cast(args[2], type_)), type_
    if name in ("first_value", "last_value") and count == 1:
        value = settled(args[0])
        return (value,), value.type
    if name == "nth_value" and count == 2:
        value = settled(args[0])
        return (value, _constant(name, args[1], least=1)), value.type
    types = ", ".join(str(arg.type) for arg in args)
    raise SqlError(f"function {name}({types}) does not exist", sqlstate="42883")


def _constant(name: str, arg: Expr, *, least: int | None = None) -> Lit:
    number = cast(arg, INTEGER, context="implicit")
    if not isinstance(number, Lit) or number.value is None:
        raise Unsupported(
            f"{name} with a number that is not a constant is not supported",
            hint="write it as a literal",
        )
    if least is not None and int(number.value) < least:
        code = "22014" if name == "ntile" else "22016"
        raise SqlError(f"argument of {name} must be greater than zero", sqlstate=code)
    return number


# The window ----------------------------------------------------------------------------------------


def _definition(node: exp.Window, named: Mapping[str, exp.Window], depth: int = 0) -> _Definition:
    partition = node.args.get("partition_by") or []
    order, spec, base = (node.args.get(part) for part in ("order", "spec", "alias"))
    if base is None:
        return _Definition(partition, order, spec)
    name = identifier(base)
    if name not in named or depth > len(named):
        raise SqlError(f'window "{name}" does not exist', sqlstate="42704")
    found = _definition(named[name], named, depth + 1)
    alone = not (partition or order or spec)
    if partition:
        raise SqlError(f'cannot override PARTITION BY clause of window "{name}"', sqlstate="42P20")
    if order and found.order:
        raise SqlError(f'cannot override ORDER BY clause of window "{name}"', sqlstate="42P20")
    if found.spec and not alone:
        raise SqlError(
            f'cannot copy window "{name}" because it has a frame clause', sqlstate="42P20"
        )
    return _Definition(found.partition, order or found.order, spec or found.spec)


def _frame(
    spec: exp.WindowSpec | None, inner: Expressions, order_by: tuple[Order, ...]
) -> str | None:
    """The frame's text; None if it is what every window has by default."""
    if spec is None:
        return None
    kind = str(spec.args["kind"]).upper()
    if spec.args.get("exclude"):
        raise Unsupported("EXCLUDE in a window's frame is not supported")
    if kind == "GROUPS":
        raise Unsupported("GROUPS in a window's frame is not supported", hint="use ROWS or RANGE")
    start, start_place = _bound(spec, "start", kind, inner)
    end, end_place = _bound(spec, "end", kind, inner)
    if start_place == _LAST:
        raise SqlError("frame start cannot be UNBOUNDED FOLLOWING", sqlstate="42P20")
    if end_place == -_LAST:
        raise SqlError("frame end cannot be UNBOUNDED PRECEDING", sqlstate="42P20")
    if _SIDES.index(start.split()[1]) > _SIDES.index(end.split()[1]):
        where = "current" if start_place == 0 else "following"
        raise SqlError(
            f"frame starting from {where} row cannot have preceding rows", sqlstate="42P20"
        )
    if start_place > end_place:
        raise Unsupported(
            "a window's frame that is always empty is not supported",
            hint="of two bounds on the same side, the one that is farther back comes first",
        )
    if kind == "RANGE" and not order_by:
        return None  # all rows of a partition are peers
    text = f"{kind} BETWEEN {start} AND {end}"
    return None if text == "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW" else text


_LAST = 1 << 62
_SIDES = ("PRECEDING", "ROW", "FOLLOWING")


def _bound(spec: exp.WindowSpec, which: str, kind: str, inner: Expressions) -> tuple[str, int]:
    """A bound's text, and its distance from the current row."""
    bound, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "").upper()
    sign = -1 if side == "PRECEDING" else 1
    if bound is None or bound == "CURRENT ROW":
        return "CURRENT ROW", 0
    if bound == "UNBOUNDED":
        return f"UNBOUNDED {side}", sign * _LAST
    if kind == "RANGE":
        raise Unsupported(
            "RANGE with offsets is not supported", hint="use ROWS, or RANGE with UNBOUNDED"
        )
    word = "starting" if which == "start" else "ending"
    offset = cast(inner.plan(bound), BIGINT, context="assignment")
    if not isinstance(offset, Lit):
        raise Unsupported("offsets of a window's frame must be constants")
    if offset.value is None:
        raise SqlError(f"frame {word} offset must not be null", sqlstate="22004")
    rows = int(offset.value)
    if rows < 0:
        raise SqlError(f"frame {word} offset must not be negative", sqlstate="22013")
    if rows >= 1 << 31:
        raise Unsupported(f"frame {word} offset {rows} is too large")
    return f"{rows} {side}", sign * rows
