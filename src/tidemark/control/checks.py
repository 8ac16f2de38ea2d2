"""What every CREATE checks."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal

from tidemark.compute.intervals import interval_of, read_interval
from tidemark.compute.literals import moment_of, typed
from tidemark.control.catalog import RETAIN_MS
from tidemark.errors import SqlError, Unsupported
from tidemark.types import TIMESTAMPTZ

RETAIN = "retain history for"
DEFAULT_INTERVAL = "1s"
_UNITS = {"ms": 1, "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000, "min": 60_000}


def duration_ms(text: str, option: str) -> int:
    """`100ms`, `1s`, `1 second`; at least a millisecond."""
    compact = text.strip().lower().replace(" ", "")
    digits = compact.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = compact[len(digits) :]
    try:
        value = int(float(digits) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        value = 0
    if value < 1:
        raise SqlError(
            f"{option} takes a duration such as '100ms' or '1s', not {text!r}", sqlstate="22023"
        )
    return value


def whole_ms(text: str, option: str) -> int:
    """An interval as PostgreSQL writes it, of a fixed and positive length."""
    interval = interval_of(read_interval(text))
    if interval.months:
        raise SqlError(
            f"{option} {text!r}: a month has no fixed length",
            hint="use weeks, days or less",
            sqlstate="22023",
        )
    ms = interval.seconds * 1000
    if ms < 1 or ms != int(ms):
        raise SqlError(
            f"{option} takes a positive interval of whole milliseconds, not {text!r}",
            sqlstate="22023",
        )
    return int(ms)


def source_options(options: tuple[tuple[str, str], ...]) -> tuple[int, int]:
    """Of a source's WITH: how often it binds how far it is, and how long history is kept."""
    given = dict(options)
    interval = given.pop("timestamp interval", DEFAULT_INTERVAL)
    retain_ms = retained_ms(given.pop(RETAIN, None))
    if given:
        raise Unsupported(
            f"source option {next(iter(given)).upper()} is not supported",
            hint="known: TIMESTAMP INTERVAL, RETAIN HISTORY FOR",
        )
    return duration_ms(interval, "TIMESTAMP INTERVAL"), retain_ms


def retained_ms(text: str | None) -> int:
    """RETAIN HISTORY FOR an interval, if it was given."""
    return RETAIN_MS if text is None else whole_ms(text, RETAIN.upper())


def moment_ms(text: str) -> int:
    """The timeline's milliseconds, or a moment (in UTC unless it says otherwise)."""
    if text.isdecimal() and len(text) <= 18:
        return int(text)
    moment = moment_of(typed(text, TIMESTAMPTZ)).replace(tzinfo=UTC)
    ms = Decimal(repr(moment.timestamp())) * 1000
    if ms < 0:
        raise SqlError(f"times before 1970 are not supported: {text!r}", sqlstate="22023")
    return int(ms)
