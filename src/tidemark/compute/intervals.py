"""Intervals: constants of months, days and microseconds; values of seconds.

A month has no fixed length, so a constant keeps the three apart, as PostgreSQL does, and one of
months is only ever added to a moment: `interval '1' month * 3` is computed when the statement is
planned, and `moment + interval` becomes the function `add interval`.

    interval '90' day                0 months, 90 days, 0 microseconds
    interval '1 year 02:30:00'       12 months, 0 days, 9,000,000,000 microseconds
    interval '1.5 months'            1 month, 15 days

All others are so many seconds, a day being 24 hours as always in UTC. That is what is between two
timestamps, what a column keeps, and how intervals are compared and added up. They are printed in
days and time, so 36 hours are `1 day 12:00:00`; PostgreSQL prints what was written.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeVar

from tidemark.compute.expr import Call, Expr, Lit
from tidemark.errors import DataError, Unsupported
from tidemark.types import INTERVAL

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}
_DAY_MICROS = 86_400_000_000
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12, "decade": 120, "century": 1_200, "millennium": 12_000}
_SPELLINGS = {
    "us": "microsecond", "usec": "microsecond", "ms": "millisecond", "msec": "millisecond",
    "s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "hr": "hour",
    "d": "day", "w": "week", "mon": "month", "y": "year", "yr": "year", "dec": "decade",
    "c": "century", "cent": "century", "centurie": "century", "mil": "millennium",
    "millennia": "millennium",
}  # fmt: skip
_TOKEN = re.compile(
    r"\s*(?:(?P<time>[+-]?\d+:\d\d?(?::\d\d?(?:\.\d*)?)?)"
    r"|(?P<years>[+-]?\d+)-(?P<months>\d+)(?![\d.])"
    r"|(?P<number>(?:[+-]\s*)?(?:\d+(?:\.\d*)?|\.\d+))\s*(?P<unit>[a-zA-Z]+)?)"
)
_MAX_YEARS = 10_000
_SECONDS = 10**14
"""As many as a value cannot have: it is a DECIMAL(20,6)."""


E = TypeVar("E", bound=Expr)


@dataclass(frozen=True, slots=True)
class Interval:
    months: int = 0
    days: int = 0
    micros: int = 0

    def __str__(self) -> str:
        months = f"{self.months} mons " if self.months else ""
        return months + interval_text(self.seconds)

    def plus(self, other: Interval) -> Interval:
        return Interval(
            self.months + other.months, self.days + other.days, self.micros + other.micros
        )

    def times(self, factor: Decimal) -> Interval:
        """What is less than a month or a day goes on as days of 30 to a month, and as time."""
        months, days = self.months * factor, self.days * factor
        whole_months = int(months)
        spilled = (months - whole_months) * 30
        whole_days = int(days) + int(spilled)
        left = (days - int(days)) + (spilled - int(spilled))
        micros = self.micros * factor + left * _DAY_MICROS
        return Interval(whole_months, whole_days, int(micros.to_integral_value()))

    def literal(self) -> Lit:
        about = abs(self.seconds) + abs(self.months) * 30 * 86_400
        if abs(self.months) > 12 * _MAX_YEARS or about >= _SECONDS:
            raise DataError("interval out of range", sqlstate="22008")
        return Lit(f"{self.months} {self.days} {self.micros}", INTERVAL)

    @property
    def seconds(self) -> Decimal:
        """Of days and time together; a day is 24 hours, as always in UTC."""
        return Decimal(self.days * _DAY_MICROS + self.micros).scaleb(-6)


def seconds_of(literal: Lit) -> Decimal:
    """What a value is kept as, which is not null."""
    interval = interval_of(literal)
    if interval.months:
        raise with_months()
    return interval.seconds.quantize(Decimal("0.000001"))


def with_months() -> Unsupported:
    return Unsupported(
        "an interval of months cannot be a value: how long a month is, is not said",
        hint="add it to a date or a timestamp, or write days",
    )


def kept(expr: E) -> E:
    """An interval as a value: of no months."""
    if isinstance(expr, Lit):
        if expr.value is not None:
            seconds_of(expr)
        return expr
    if isinstance(expr, Call) and expr.fn == TIMES:
        raise with_months()
    return expr


TIMES = "interval times"
"""A number times a constant of months, which can only be added to a moment."""


def interval_text(seconds: Decimal) -> str:
    """As PostgreSQL prints it."""
    days, micros = divmod(int(abs(seconds) * 1_000_000), _DAY_MICROS)
    sign = "-" if seconds < 0 else ""
    parts = [f"{sign}{days} {'day' if (days, sign) == (1, '') else 'days'}"] if days else []
    if micros or not days:
        minutes, rest = divmod(micros, _MICROS["minute"])
        clock = f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1_000_000:02}"
        fraction = f"{rest % 1_000_000:06}".rstrip("0")
        parts.append(f"{sign}{clock}.{fraction}" if fraction else f"{sign}{clock}")
    return " ".join(parts)


SPARK_TEXT = (
    "transform(array({0}), x_ -> concat("
    "CASE WHEN abs(x_) < 86400 THEN '' ELSE concat(CAST(x_ div 86400 AS STRING),"
    " CASE WHEN x_ div 86400 = 1 THEN ' day' ELSE ' days' END,"
    " CASE WHEN x_ % 86400 = 0 THEN '' ELSE ' ' END) END,"
    " CASE WHEN x_ % 86400 = 0 AND x_ <> 0 THEN '' ELSE concat(CASE WHEN x_ < 0 THEN '-' ELSE '' END,"
    " format_string('%02d:%02d:%02d', abs(x_) % 86400 div 3600, abs(x_) % 3600 div 60,"
    " abs(x_) % 60 div 1), CASE WHEN x_ % 1 = 0 THEN '' ELSE"
    " rtrim('0', format_string('.%06d', abs(x_) % 1 * 1000000 div 1)) END) END))[0]"
)
"""The same in Spark SQL, of the seconds `{0}`."""


def interval_of(literal: Lit) -> Interval:
    """What an interval's literal says; it is not null."""
    months, days, micros = (int(part) for part in (literal.value or "0 0 0").split())
    return Interval(months, days, micros)


def read_interval(text: str, unit: str | None = None) -> Lit:
    """`interval 'text' unit`; the unit is that of a number without one."""
    bad = DataError(f'invalid input syntax for type interval: "{text}"', sqlstate="22007")
    body = text.strip()
    if body[:1] in ("P", "p"):
        raise Unsupported("intervals in ISO 8601 are not supported", hint="write '1 day 02:00'")
    ago = body.lower().endswith(" ago")
    body = (body[:-4] if ago else body).removeprefix("@").lstrip()
    total, at = Interval(), 0
    if not body:
        raise bad
    while at < len(body):
        found = _TOKEN.match(body, at)
        if found is None or found.end() == at:
            raise bad
        at = found.end()
        rest = body[at:].strip()
        if found["time"]:
            total = total.plus(_clock(found["time"]))
        elif found["years"]:
            sign = -1 if found["years"].startswith("-") else 1
            months = abs(int(found["years"])) * 12 + int(found["months"])
            total = total.plus(Interval(months=sign * months))
        else:
            # A number before a time of day counts days: '1 02:03:04'.
            default = "day" if re.match(r"[+-]?\d+:", rest) else (unit or "second").lower()
            name = _unit_name(found["unit"] or default)
            if name is None or (found["unit"] is None and rest and default != "day"):
                raise bad
            total = total.plus(_quantity(Decimal(found["number"].replace(" ", "")), name))
        if not rest:
            break
    return (total.times(Decimal(-1)) if ago else total).literal()


def cut_off(literal: Lit, field: str) -> Lit:
    """`interval '1 02:03:04' day to minute` has no seconds: what is less than the field goes."""
    interval = interval_of(literal)
    match field.lower():
        case "hour" | "minute" as unit:
            return replace(interval, micros=_down_to(interval.micros, _MICROS[unit])).literal()
        case "day":
            return replace(interval, micros=0).literal()
        case "year" | "month" as unit:
            return Interval(months=_down_to(interval.months, _MONTHS[unit])).literal()
    return literal  # Seconds keep what is less; no other field is PostgreSQL's.


def _down_to(number: int, step: int) -> int:
    """Towards nothing."""
    return abs(number) // step * step * (-1 if number < 0 else 1)


def shifted(moment: dt.datetime, by: Interval) -> dt.datetime | None:
    """The moment so much later: months first, keeping to the month's end; None out of range."""
    month = moment.year * 12 + moment.month - 1 + by.months
    year, month = divmod(month, 12)
    if not dt.MINYEAR <= year <= dt.MAXYEAR:
        return None
    last = calendar.monthrange(year, month + 1)[1]
    there = moment.replace(year=year, month=month + 1, day=min(moment.day, last))
    try:
        return there + dt.timedelta(days=by.days, microseconds=by.micros)
    except OverflowError:
        return None


def _unit_name(word: str) -> str | None:
    lower = word.lower()
    for spelled in (lower, lower.removesuffix("s")):
        name = _SPELLINGS.get(spelled, spelled)
        if name in _MICROS or name in _DAYS or name in _MONTHS:
            return name
    return None


def _quantity(number: Decimal, unit: str) -> Interval:
    if unit in _MICROS:
        return Interval(micros=int((number * _MICROS[unit]).to_integral_value()))
    if unit in _DAYS:
        return Interval(days=_DAYS[unit]).times(number)
    months = number * _MONTHS[unit]
    if unit == "month":
        return Interval(months=1).times(number)
    return Interval(months=int(months.to_integral_value()))


def _clock(text: str) -> Interval:
    sign = -1 if text.startswith("-") else 1
    hours, minutes, *seconds = text.lstrip("+-").split(":")
    if int(minutes) > 59 or (seconds and Decimal(seconds[0]) > 60):
        raise DataError(f'interval field value out of range: "{text}"', sqlstate="22015")
    micros = int(hours) * _MICROS["hour"] + int(minutes) * _MICROS["minute"]
    if seconds:
        micros += int((Decimal(seconds[0]) * 1_000_000).to_integral_value())
    return Interval(micros=sign * micros)
