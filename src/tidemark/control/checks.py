"""What every CREATE checks."""

from __future__ import annotations

from tidemark.control.coordinator import CLUSTER
from tidemark.errors import SqlError, Unsupported

DEFAULT_INTERVAL = "1s"
_UNITS = {"ms": 1, "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000, "min": 60_000}


def check_cluster(name: str | None) -> None:
    if name not in (None, CLUSTER):
        raise SqlError(
            f'unknown cluster "{name}"', hint=f"the only one is {CLUSTER}", sqlstate="42704"
        )


def duration_ms(text: str, option: str) -> int:
    """`100ms`, `1s`, `1 second`; at least a millisecond."""
    compact = text.strip().lower().replace(" ", "")
    digits = compact.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = compact[len(digits) :]
    try:
        value = int(float(digits) * _UNITS[unit])
    except (KeyError, ValueError):
        value = 0
    if value < 1:
        raise SqlError(
            f"{option} takes a duration such as '100ms' or '1s', not {text!r}", sqlstate="22023"
        )
    return value


def interval_ms(options: tuple[tuple[str, str], ...]) -> int:
    """The one option of a source's WITH: how often it binds how far it is."""
    given = dict(options)
    interval = given.pop("timestamp interval", DEFAULT_INTERVAL)
    if given:
        raise Unsupported(
            f"source option {next(iter(given)).upper()} is not supported",
            hint="known: TIMESTAMP INTERVAL",
        )
    return duration_ms(interval, "TIMESTAMP INTERVAL")
