"""REFRESH options: how a materialized view that is not kept up to date at once is written in SQL.

    WITH (REFRESH ON COMMIT)                                       as without: at every change
    WITH (REFRESH AT CREATION)                                     once, and never again
    WITH (REFRESH AT '2030-01-01 00:00:00')                        once, then
    WITH (REFRESH EVERY '1 day' ALIGNED TO '2030-01-01 03:00:00')  every night at three

All but the first may be repeated and combined. Times are the timeline's milliseconds, or moments
(in UTC unless they say otherwise); without ALIGNED TO the first of a series is the creation.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlglot.tokenizer_core import TokenType

from tidemark.compute.refresh import Every, Refresh
from tidemark.control import statements as s
from tidemark.control.checks import moment_ms, whole_ms
from tidemark.control.cursor import Cursor
from tidemark.errors import SqlError, Unsupported

_SUPPORTED = (
    "supported: REFRESH ON COMMIT, REFRESH AT CREATION, REFRESH AT '<timestamp>',"
    " REFRESH EVERY '<interval>' [ALIGNED TO '<timestamp>'], RETAIN HISTORY FOR '<interval>'"
)


def view_options(cursor: Cursor) -> tuple[tuple[s.RefreshOption, ...], str | None]:
    """The `(REFRESH ..., RETAIN HISTORY FOR ...)` of CREATE MATERIALIZED VIEW ... WITH."""
    cursor.expect("(")
    found: list[s.RefreshOption] = []
    retain: str | None = None
    while True:
        if cursor.take("RETAIN HISTORY"):
            cursor.take("=")
            cursor.expect("FOR")
            retain = _string(cursor)
        elif cursor.take("REFRESH"):
            cursor.take("=")
            found.append(_option(cursor))
        else:
            raise Unsupported(
                "options of materialized views other than REFRESH and RETAIN HISTORY are not"
                " supported",
                hint=_SUPPORTED,
            )
        if cursor.take(")"):
            return tuple(found), retain
        cursor.expect(",")


def _option(cursor: Cursor) -> s.RefreshOption:
    if cursor.take("ON COMMIT"):
        return s.RefreshOption("on commit")
    if cursor.take("AT CREATION"):
        return s.RefreshOption("at")
    if cursor.take("AT"):
        return s.RefreshOption("at", at=_time(cursor))
    cursor.expect("EVERY")
    cursor.take("INTERVAL")
    interval = _string(cursor)
    aligned_to = _time(cursor) if cursor.take("ALIGNED TO") else None
    return s.RefreshOption("every", interval=interval, at=aligned_to)


def _time(cursor: Cursor) -> str | None:
    """A moment as text; None for `mz_now()` and its kin, which is the creation."""
    if any(cursor.take(name) for name in ("MZ_NOW", "NOW", "CURRENT_TIMESTAMP")):
        if cursor.take("("):
            cursor.expect(")")
        return None
    _ = cursor.take("TIMESTAMPTZ") or cursor.take("TIMESTAMP")
    return _string(cursor)


def _string(cursor: Cursor) -> str:
    token = cursor.peek()
    if token is None or token.token_type not in (TokenType.STRING, TokenType.NUMBER):
        raise cursor.error()
    return cursor.next().text


class Schedule(NamedTuple):
    """What was asked for; None is the creation, whenever that will be."""

    every: tuple[tuple[int, int | None], ...] = ()
    at: tuple[int | None, ...] = ()

    def created(self, as_of: int) -> Refresh | None:
        """For a view that begins at `as_of`; None is ON COMMIT."""
        if not (self.every or self.at):
            return None
        every = (Every(interval, as_of if at is None else at) for interval, at in self.every)
        at = {as_of if time is None else max(time, as_of) for time in self.at}
        return Refresh(tuple(every), tuple(sorted(at)))


def schedule(options: tuple[s.RefreshOption, ...], *, now: int) -> Schedule:
    """Checked: a refresh that was asked for does happen."""
    kinds = [option.kind for option in options]
    if "on commit" in kinds:
        if len(kinds) > 1:
            raise SqlError(
                "REFRESH ON COMMIT cannot be combined with other REFRESH options",
                hint="leave it out, or leave the others out",
            )
        return Schedule()
    every, at = [], []
    for option in options:
        time = moment_ms(option.at) if option.at is not None else None
        if option.kind == "every":
            assert option.interval is not None
            every.append((whole_ms(option.interval, "REFRESH EVERY"), time))
            continue
        if time is not None and time < now:
            raise SqlError(
                f"REFRESH AT {option.at} is in the past: the view would never be refreshed then",
                hint=f"now is {now}; REFRESH AT CREATION is at once",
                sqlstate="22023",
            )
        at.append(time)
    return Schedule(tuple(every), tuple(at))
