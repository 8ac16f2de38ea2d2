"""Arithmetic of moments and intervals: `date '1998-12-01' - interval '90' day`.

`interval_arithmetic` looks at `+ - * /` before the table of functions does. Constants are
computed at once; what is left is `add interval(moment, months, seconds)`.

Two intervals are not constants, and live only until something is made of them: the time between
two moments can be extracted from and compared, a constant times a number can be added to a moment.

    extract(epoch FROM a - b)            a - b > interval '1 hour'            a + n * interval '1 day'
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, DivisionByZero, InvalidOperation

from tidemark.compute.casts import cast
from tidemark.compute.expr import Call, Expr, Lit
from tidemark.compute.intervals import INTERVAL, Interval, interval_of, read_interval, shifted
from tidemark.compute.literals import UNKNOWN, moment_of, moment_text
from tidemark.errors import DataError, Unsupported
from tidemark.types import DATE, INTEGER, TIMESTAMP, TIMESTAMPTZ, SqlType, numeric

SECONDS = numeric(20, 6)
_BETWEEN, _TIMES = "time between", "interval times"
MOMENTS = (DATE, TIMESTAMP, TIMESTAMPTZ)
Args = tuple[Expr, ...]
Make = Callable[[str, Args], Expr]
"""How a call is made: the table of functions needs this module, so it comes as an argument."""


def interval_arithmetic(fn: str, args: Args, call: Make) -> Expr | None:
    """The result, if an interval takes part in the arithmetic; else None."""
    if len(args) == 2 and fn == "+":
        args = tuple(_as_interval(arg, other) for arg, other in (args, args[::-1]))
    if not any(arg.type == INTERVAL for arg in args):
        return _difference(*args) if fn == "-" and len(args) == 2 else None
    if any(isinstance(arg, Lit) and arg.value is None for arg in args):
        moment = next((arg.type for arg in args if arg.type in MOMENTS), INTERVAL)
        return Lit(None, TIMESTAMP if moment == DATE else moment)
    if fn in ("+", "-") and len(args) == 2 and args[0].type in MOMENTS and _is(args[1], _TIMES):
        return _times_later(args[0], args[1], call, back=fn == "-")
    if fn == "+" and len(args) == 2 and args[1].type in MOMENTS and _is(args[0], _TIMES):
        return _times_later(args[1], args[0], call, back=False)
    if any(arg.type == INTERVAL and not isinstance(arg, Lit) for arg in args):
        raise Unsupported(
            "values of type interval are not supported",
            hint="subtract seconds, e.g. extract(epoch FROM a) - extract(epoch FROM b)",
        )
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


def _difference(left: Expr, right: Expr) -> Expr | None:
    types = (left.type, right.type)
    if types == (DATE, DATE) or any(type_ not in MOMENTS for type_ in types):
        return None
    type_ = TIMESTAMPTZ if TIMESTAMPTZ in types else TIMESTAMP
    return Call(_BETWEEN, (cast(left, type_), cast(right, type_)), INTERVAL)


def _is(expr: Expr, fn: str) -> bool:
    return isinstance(expr, Call) and expr.fn == fn and expr.type == INTERVAL


def _times_later(moment: Expr, times: Expr, call: Make, *, back: bool) -> Expr:
    assert isinstance(times, Call)
    number, constant = times.args
    by = _interval(constant).times(Decimal(-1)) if back else _interval(constant)
    months: Expr = Lit("0", INTEGER)
    if by.months:
        months = call("*", (number, Lit(str(by.months), INTEGER)))
    seconds = cast(call("*", (number, Lit(format(by.seconds, "f"), SECONDS))), SECONDS)
    type_ = TIMESTAMP if moment.type == DATE else moment.type
    return Call("add interval", (cast(moment, type_), months, seconds), type_)


def interval_seconds(expr: Expr, call: Make) -> Expr:
    """An interval as the number by which PostgreSQL compares it: a month has 30 days."""
    if isinstance(expr, Lit):
        if expr.value is None:
            return Lit(None, SECONDS)
        lit = expr if expr.type == INTERVAL else read_interval(expr.value)
        interval = interval_of(lit)
        return Lit(format(interval.seconds + interval.months * 30 * 86_400, "f"), SECONDS)
    if _is(expr, _BETWEEN) and isinstance(expr, Call):
        first, second = (call("extract", (Lit("epoch", UNKNOWN), arg)) for arg in expr.args)
        return call("-", (first, second))
    if _is(expr, _TIMES) and isinstance(expr, Call):
        number, constant = expr.args
        return call("*", (number, interval_seconds(constant, call)))
    raise Unsupported("values of type interval are not supported", hint="compare seconds instead")


_FIELDS = {"day": (None, 86_400), "hour": (86_400, 3_600), "minute": (3_600, 60)}
"""What is left of the seconds by the first, and how often the second goes into that."""


def extracted(unit: Expr, interval: Expr, call: Make) -> Expr:
    """extract(unit FROM interval), of a constant or of the time between two moments."""
    name = (unit.value or "").lower().removesuffix("s") if isinstance(unit, Lit) else ""
    if not (_is(interval, _BETWEEN) or (isinstance(interval, Lit) and interval.value is not None)):
        raise Unsupported(f"extract of {name or 'a unit'} from such an interval is not supported")
    months = interval_of(interval).months if isinstance(interval, Lit) else 0
    if name in ("year", "month"):
        found = int(months / 12) if name == "year" else abs(months) % 12 * (-1 if months < 0 else 1)
        return Lit(str(found), numeric(10, 0))
    if name not in (*_FIELDS, "second", "epoch") or months:
        raise Unsupported(f'unit "{name}" is not supported for type interval')
    seconds = interval_seconds(interval, call)
    if name == "epoch":
        return seconds

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
    assert isinstance(expr, Lit), "intervals are literals"
    return interval_of(expr)


def _signed(expr: Expr, fn: str) -> Interval:
    return _interval(expr).times(Decimal(-1)) if fn == "-" else _interval(expr)


def _scaled(fn: str, left: Expr, right: Expr) -> Expr:
    interval, number = (left, right) if left.type == INTERVAL else (right, left)
    if number.type.is_integer and not isinstance(number, Lit) and fn == "*":
        return Call(_TIMES, (cast(number, INTEGER), interval), INTERVAL)
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
