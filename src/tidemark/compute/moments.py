"""Arithmetic of moments and intervals: `date '1998-12-01' - interval '90' day`.

`interval_arithmetic` looks at `+ - * /` before the table of functions does. Constants are
computed at once; what is left is `add interval(moment, months, seconds)`.
"""

from __future__ import annotations

from decimal import Decimal, DivisionByZero, InvalidOperation

from tidemark.compute.casts import cast
from tidemark.compute.expr import Call, Expr, Lit
from tidemark.compute.intervals import INTERVAL, Interval, interval_of, read_interval, shifted
from tidemark.compute.literals import UNKNOWN, moment_of, moment_text
from tidemark.errors import DataError, Unsupported
from tidemark.types import DATE, INTEGER, TIMESTAMP, TIMESTAMPTZ, SqlType, numeric

SECONDS = numeric(20, 6)
MOMENTS = (DATE, TIMESTAMP, TIMESTAMPTZ)
Args = tuple[Expr, ...]


def interval_arithmetic(fn: str, args: Args) -> Expr | None:
    """The result, if an interval takes part in the arithmetic; else None."""
    if len(args) == 2 and fn == "+":
        args = tuple(_as_interval(arg, other) for arg, other in (args, args[::-1]))
    if not any(arg.type == INTERVAL for arg in args):
        if fn == "-" and len(args) == 2:
            _refuse_difference(args)
        return None
    if any(isinstance(arg, Lit) and arg.value is None for arg in args):
        moment = next((arg.type for arg in args if arg.type in MOMENTS), INTERVAL)
        return Lit(None, TIMESTAMP if moment == DATE else moment)
    if fn == "negate":
        return _interval(args[0]).times(Decimal(-1)).literal()
    if len(args) != 2:
        return None
    left, right = args
    if fn in ("+", "-") and left.type == right.type == INTERVAL:
        return _interval(left).plus(_signed(right, fn)).literal()
    if fn in ("+", "-") and right.type == INTERVAL and left.type in MOMENTS:
        return _later(left, _signed(right, fn))
    if fn == "+" and left.type == INTERVAL and right.type in MOMENTS:
        return _later(right, _interval(left))
    if fn in ("*", "/"):
        return _scaled(fn, left, right)
    raise Unsupported(
        f"operator does not exist: {left.type} {fn} {right.type}",
        hint="an interval can be added to or taken from a date or a timestamp",
        sqlstate="42883",
    )


def _as_interval(arg: Expr, other: Expr) -> Expr:
    """`timestamp + '1 day'`: nothing but an interval can be added to a timestamp."""
    if not isinstance(arg, Lit) or arg.type != UNKNOWN or arg.value is None:
        return arg
    return read_interval(arg.value) if other.type in (TIMESTAMP, TIMESTAMPTZ, INTERVAL) else arg


def _refuse_difference(args: Args) -> None:
    left, right = (arg.type for arg in args)
    moments = (TIMESTAMP, TIMESTAMPTZ)
    if (left in moments or right in moments) and left in MOMENTS and right in MOMENTS:
        raise Unsupported(
            f"{left} - {right} is not supported: there are no values of type interval",
            hint="subtract seconds, e.g. extract(epoch FROM a) - extract(epoch FROM b)",
            sqlstate="42883",
        )


def _interval(expr: Expr) -> Interval:
    assert isinstance(expr, Lit), "intervals are literals"
    return interval_of(expr)


def _signed(expr: Expr, fn: str) -> Interval:
    return _interval(expr).times(Decimal(-1)) if fn == "-" else _interval(expr)


def _scaled(fn: str, left: Expr, right: Expr) -> Expr:
    interval, number = (left, right) if left.type == INTERVAL else (right, left)
    if not isinstance(number, Lit) or not (number.type.is_number or number.type == UNKNOWN):
        raise Unsupported(
            "an interval times something that is not a constant number is not supported",
            hint="add the interval in a CASE, or add days to a date as an integer",
        )
    try:
        factor = Decimal(number.value or "0")
        return _interval(interval).times(1 / factor if fn == "/" else factor).literal()
    except (InvalidOperation, DivisionByZero):
        raise DataError("division by zero", sqlstate="22012") from None


def _later(moment: Expr, by: Interval) -> Expr:
    type_: SqlType = TIMESTAMP if moment.type == DATE else moment.type
    if isinstance(moment, Lit) and moment.value is not None:
        there = shifted(moment_of(moment), by)
        if there is not None:
            return Lit(moment_text(there) + ("+00" if type_ == TIMESTAMPTZ else ""), type_)
    months, seconds = Lit(str(by.months), INTEGER), Lit(format(by.seconds, "f"), SECONDS)
    return Call("add interval", (cast(moment, type_), months, seconds), type_)
