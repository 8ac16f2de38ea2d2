"""Arithmetic of moments and intervals: `date '1998-12-01' - interval '90' day`.

`interval_arithmetic` looks at `+ - * /` before the table of functions does. Constants are
computed at once; what is left is arithmetic of seconds (`interval of`, `seconds of`), and
`add interval(moment, months, seconds)`.

    a - b                        interval of(epoch of a - epoch of b)
    n * interval '1 day'         interval of(n * 86400)
    a + n * interval '1 day'     add interval(a, 0, n * 86400)
    n * interval '1 month'       is no value; added to a moment, add interval(a, n, 0)
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from tidemark.compute.casts import cast
from tidemark.compute.expr import Call, Expr, Lit
from tidemark.compute.intervals import (
    TIMES,
    Interval,
    interval_of,
    read_interval,
    shifted,
    with_months,
)
from tidemark.compute.literals import UNKNOWN, moment_of, moment_text, typed
from tidemark.errors import DataError, Unsupported
from tidemark.types import (
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    numeric,
)

SECONDS = numeric(20, 6)
MOMENTS = (DATE, TIMESTAMP, TIMESTAMPTZ)
Args = tuple[Expr, ...]
Make = Callable[[str, Args], Expr]
"""How a call is made: the table of functions needs this module, so it comes as an argument."""


def interval_arithmetic(fn: str, args: Args, call: Make) -> Expr | None:
    """The result, if an interval takes part in the arithmetic; else None."""
    if len(args) == 2 and (fn == "+" or (fn == "-" and any(a.type == INTERVAL for a in args))):
        args = tuple(_as_interval(arg, other) for arg, other in (args, args[::-1]))
    if not any(arg.type == INTERVAL for arg in args):
        return _difference(*args, call) if fn == "-" and len(args) == 2 else None
    if any(isinstance(arg, Lit) and arg.value is None for arg in args):
        moment = next((arg.type for arg in args if arg.type in MOMENTS), INTERVAL)
        return Lit(None, TIMESTAMP if moment == DATE else moment)
    if fn == "negate":
        return _negated(args[0], call)
    if len(args) != 2:
        return None
    left, right = args
    if fn == "+" and right.type in MOMENTS:
        left, right = right, left
    if fn in ("+", "-") and left.type in MOMENTS and right.type == INTERVAL:
        return _later(left, right if fn == "+" else _negated(right, call), call)
    if fn in ("+", "-") and left.type == right.type == INTERVAL:
        if isinstance(left, Lit) and isinstance(right, Lit):
            return (
                _interval(left)
                .plus(_interval(_negated(right, call) if fn == "-" else right))
                .literal()
            )
        return _of_seconds(call(fn, (_seconds(left, call), _seconds(right, call))), call)
    if fn in ("*", "/") and (left.type == INTERVAL) != (right.type == INTERVAL):
        return _scaled(fn, left, right, call)
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


def _difference(left: Expr, right: Expr, call: Make) -> Expr | None:
    types = tuple(
        other if each == UNKNOWN and other in (TIMESTAMP, TIMESTAMPTZ) else each
        for each, other in ((left.type, right.type), (right.type, left.type))
    )
    if types == (DATE, DATE) or any(type_ not in MOMENTS for type_ in types):
        return None
    type_ = TIMESTAMPTZ if TIMESTAMPTZ in types else TIMESTAMP
    epochs = (call("extract", (Lit("epoch", UNKNOWN), cast(arg, type_))) for arg in (left, right))
    return _of_seconds(call("-", tuple(epochs)), call)


def _of_seconds(seconds: Expr, call: Make) -> Expr:
    return call("interval of", (seconds,))


def _seconds(interval: Expr, call: Make) -> Expr:
    """What a value is kept as; one of months is none."""
    if _is(interval, TIMES) or (isinstance(interval, Lit) and _interval(interval).months):
        raise with_months()
    return interval_seconds(interval, call)


def _is(expr: Expr, fn: str) -> bool:
    return isinstance(expr, Call) and expr.fn == fn and expr.type == INTERVAL


def _negated(interval: Expr, call: Make) -> Expr:
    if isinstance(interval, Lit):
        return _interval(interval).times(Decimal(-1)).literal()
    if isinstance(interval, Call) and interval.fn == TIMES:
        return Call(TIMES, (interval.args[0], _negated(interval.args[1], call)), INTERVAL)
    return _of_seconds(call("negate", (_seconds(interval, call),)), call)


def interval_seconds(expr: Expr, call: Make) -> Expr:
    """An interval as the number by which PostgreSQL compares it: a month has 30 days."""
    if isinstance(expr, Lit):
        if expr.value is None:
            return Lit(None, SECONDS)
        lit = expr if expr.type == INTERVAL else read_interval(expr.value)
        interval = interval_of(lit)
        return Lit(format(interval.seconds + interval.months * 30 * 86_400, "f"), SECONDS)
    if isinstance(expr, Call) and expr.fn == TIMES:
        number, constant = expr.args
        return call("*", (number, interval_seconds(constant, call)))
    if isinstance(expr, Call) and expr.fn == "interval of":
        return expr.args[0]
    if expr.type == UNKNOWN:
        return Lit(None, SECONDS)
    return call("seconds of", (expr,))


_FIELDS = {"day": (None, 86_400), "hour": (86_400, 3_600), "minute": (3_600, 60)}
"""What is left of the seconds by the first, and how often the second goes into that."""


def extracted(unit: Expr, interval: Expr, call: Make) -> Expr:
    """extract(unit FROM interval)."""
    name = (unit.value or "").lower().removesuffix("s") if isinstance(unit, Lit) else ""
    if _is(interval, TIMES):
        raise with_months()
    months = _interval(interval).months if isinstance(interval, Lit) else 0
    if name in ("year", "month") and months:
        found = int(months / 12) if name == "year" else abs(months) % 12 * (-1 if months < 0 else 1)
        return Lit(str(found), numeric(10, 0))
    if name not in (*_FIELDS, "second", "epoch", "year", "month") or months:
        raise Unsupported(f'unit "{name}" is not supported for type interval')
    seconds = interval_seconds(interval, call)
    if name == "epoch":
        return seconds
    if name in ("year", "month"):
        return cast(call("-", (seconds, seconds)), numeric(10, 0))  # None, but of a null.

    def number(value: int) -> Lit:
        return Lit(str(value), INTEGER)

    if name == "second":
        return call("%", (seconds, number(60)))
    of, size = _FIELDS[name]
    if of is not None:
        seconds = call("%", (seconds, number(of)))
    # Exact: a whole number of seconds that the unit goes into.
    whole = call("-", (seconds, call("%", (seconds, number(size)))))
    return cast(call("/", (whole, number(size))), numeric(10, 0))


def _interval(expr: Expr) -> Interval:
    assert isinstance(expr, Lit), "intervals of months are literals"
    return interval_of(expr)


def _scaled(fn: str, left: Expr, right: Expr, call: Make) -> Expr:
    interval, number = (left, right) if left.type == INTERVAL else (right, left)
    is_constant = isinstance(number, Lit) and (number.type.is_number or number.type == UNKNOWN)
    if isinstance(interval, Lit) and isinstance(number, Lit) and is_constant:
        if number.value is None:
            return Lit(None, INTERVAL)
        said = number if number.type.is_number else typed(number.value, DOUBLE)
        factor = Decimal(said.value or 0)
        if not factor.is_finite():
            raise DataError("interval out of range", sqlstate="22008")
        if fn == "/" and not factor:
            raise DataError("division by zero", sqlstate="22012")
        try:
            return _interval(interval).times(1 / factor if fn == "/" else factor).literal()
        except ArithmeticError:
            raise DataError("interval out of range", sqlstate="22008") from None
    if isinstance(interval, Lit) and _interval(interval).months:
        if number.type.is_integer and fn == "*":
            return Call(TIMES, (cast(number, INTEGER), interval), INTERVAL)
        raise with_months()
    if number.type == DOUBLE and (fn == "*" or left.type == INTERVAL):
        return call(f"interval {fn} double", (_of_seconds(_seconds(interval, call), call), number))
    if (fn == "/" and left.type != INTERVAL) or not (number.type.is_number or is_constant):
        raise Unsupported(
            f"operator does not exist: {left.type} {fn} {right.type}",
            hint="an interval can be multiplied with and divided by a number",
            sqlstate="42883",
        )
    return _of_seconds(call(fn, (_seconds(interval, call), number)), call)


def _later(moment: Expr, by: Expr, call: Make) -> Expr:
    type_: SqlType = TIMESTAMP if moment.type == DATE else moment.type
    months: Expr = Lit("0", INTEGER)
    if isinstance(by, Lit):
        constant = _interval(by)
        if isinstance(moment, Lit) and moment.value is not None:
            there = shifted(moment_of(moment), constant)
            if there is not None:
                return Lit(moment_text(there) + ("+00" if type_ == TIMESTAMPTZ else ""), type_)
        months = Lit(str(constant.months), INTEGER)
        seconds: Expr = Lit(format(constant.seconds, "f"), SECONDS)
    elif isinstance(by, Call) and by.fn == TIMES:
        number, unit = by.args
        constant = _interval(unit)
        months = call("*", (number, Lit(str(constant.months), INTEGER)))
        seconds = cast(call("*", (number, Lit(format(constant.seconds, "f"), SECONDS))), SECONDS)
    else:
        seconds = cast(_seconds(by, call), SECONDS)
    return Call("add interval", (cast(moment, type_), months, seconds), type_)
