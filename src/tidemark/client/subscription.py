"""Subscriptions: what a relation has, then every change, in batches that are complete.

The server is asked to say how far it is (PROGRESS), and a batch ends where it says so. Hence
(I1) batches follow each other without gaps, (I2) all changes of one time are in one batch, and
(I3) added up, the batches so far are the relation at `batch.time`, exactly.

    rows        time 7: +a, time 9: -a +b
    the server  7 +a | progress 8 |           9 -a | 9 +b | progress 12
    batches     time=7, [+a]                  time=11, [-a, +b]

A program that keeps `batch.time` together with what it made of the batch can go on after a
restart, without losing or doubling anything: `as_of=time, snapshot=False`. How far back that is
possible says the relation's RETAIN HISTORY, which is a second if nobody has said more. It counts
from now, not from the last change: such a program asks for `progress=True` and keeps every time,
or after a quiet hour it would have been away for an hour.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import psycopg

from tidemark.client import show
from tidemark.client.names import is_relation, quoted
from tidemark.client.problems import as_ours
from tidemark.client.result import Result
from tidemark.client.values import columns_of
from tidemark.errors import InvalidUsage
from tidemark.types import BIGINT, Column

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

TIME, PROGRESSED, DIFF, STATE = "mz_timestamp", "mz_progressed", "mz_diff", "mz_state"

CANCEL_SECONDS = 5.0
"""How long a server may take to hear that a subscription is over."""

_LAST_OPTIONS = re.compile(
    r"\bWITH\s*\(([^()]*)\)(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*$", re.IGNORECASE | re.DOTALL
)


def statement(
    what: str,
    *,
    snapshot: bool,
    as_of: int | None,
    up_to: int | None,
    envelope: str | None,
    key: tuple[str, ...],
) -> str:
    parts = ["SUBSCRIBE", what.strip() if is_relation(what) else f"({what.strip().rstrip(';')}\n)"]
    if envelope is not None:
        if envelope not in ("upsert", "debezium") or not key:
            raise InvalidUsage(
                f"envelope {envelope!r} with key {key!r}",
                hint='say envelope="upsert" or "debezium", and its key: key=["id"]',
            )
        names = ", ".join(quoted(name) for name in key)
        parts.append(f"ENVELOPE {envelope.upper()} (KEY ({names}))")
    parts.append(f"WITH (SNAPSHOT = {str(snapshot).lower()}, PROGRESS = true)")
    for word, time in (("AS OF", as_of), ("UP TO", up_to)):
        if time is not None:
            parts.append(f"{word} {int(time)}")
    return " ".join(parts)


def with_progress(sql: str) -> str:
    """A SUBSCRIBE that somebody wrote, saying PROGRESS, too."""
    options = _LAST_OPTIONS.search(sql)
    if options is None:
        return f"{sql}\nWITH (PROGRESS = true)"  # Its last line may end in a comment.
    if "progress" in options.group(1).lower():
        raise InvalidUsage("PROGRESS is what the client asks for by itself", hint="leave it out")
    return f"{sql[: options.end(1)]}, PROGRESS = true{sql[options.end(1) :]}"


class Batch:
    """All changes up to `time`, that itself included, since the batch before.

    The rows have `mz_timestamp` and `mz_diff` (how many of this row came, or, if negative, went)
    before the relation's columns; with an envelope, `mz_state` is in place of the latter."""

    def __init__(self, time: int, changes: Result):
        self.time = time
        self.changes = changes

    @property
    def progressed(self) -> bool:
        """Whether nothing happened, but that time passed."""
        return not self.changes

    def arrow(self) -> pa.Table:
        return self.changes.arrow()

    def pandas(self) -> pandas.DataFrame:
        return self.changes.pandas()

    def polars(self) -> polars.DataFrame:
        return self.changes.polars()

    def rows(self) -> list[tuple]:
        return self.changes.rows()

    def dicts(self) -> list[dict[str, object]]:
        return self.changes.dicts()

    def __len__(self) -> int:
        return len(self.changes)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<tidemark.Batch time={self.time}, {show.count_line(len(self))[1:-1]}>"

    def _repr_html_(self) -> str:
        return f"<p>up to {self.time}</p>{self.changes._repr_html_()}"


class Subscription:
    """An iterator of batches; close it, or use it as a context manager, to end it early.

    It has a connection of its own, so its `Database` stays free. Not for several threads at once,
    but any thread may `close` it, which ends the iteration."""

    def __init__(
        self,
        connection: psycopg.Connection,
        cursor: psycopg.Cursor,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] | None,
        *,
        progress: bool,
    ):
        self._connection = connection
        self._closed = threading.Event()
        self._reading = threading.Lock()
        # It must not know this object: without a cycle, one that is forgotten ends at once, and in
        # the thread that forgot it.
        self._batches = _read(
            connection, cursor, cursor.stream(sql.encode(), parameters), progress, self._closed
        )

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        with self._reading:
            return next(self._batches)

    def close(self) -> None:
        """End it; the server lets go of what it kept for it."""
        self._closed.set()
        if self._connection.closed:
            return
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=CANCEL_SECONDS)
        if self._reading.acquire(blocking=False):
            self._connection.close()
            self._reading.release()
            return
        # Another thread waits for this socket. Closed under its hands, it might wait for ever; an
        # end of what comes wakes it, and it closes the connection itself.
        with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as its:
            its.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Without a word to the server, which notices: nobody waits for an answer here.
        with suppress(Exception):
            self._connection.close()


def _read(
    connection: psycopg.Connection,
    cursor: psycopg.Cursor,
    stream: Iterator[tuple],
    progress: bool,
    closed: threading.Event,
) -> Generator[Batch]:
    try:
        with as_ours():
            yield from _cut(cursor, stream, progress)
    except Exception:
        if not closed.is_set():
            raise
    finally:
        connection.close()


def _cut(cursor: psycopg.Cursor, stream: Iterator[tuple], progress: bool) -> Generator[Batch]:
    """Rows up to each word about progress."""
    rows: list[tuple] = []
    columns: tuple[Column, ...] = ()
    begun = False
    for row in stream:
        columns = columns or _columns(cursor)
        if row[1] != "t":
            rows.append((row[0], *row[2:]))
            continue
        # The first says only where the snapshot will be.
        if rows or (begun and progress):
            yield _batch(int(row[0]) - 1, columns, rows)
            rows = []
        begun = True
    if rows:
        yield _batch(int(rows[-1][0]), columns, rows)


def _columns(cursor: psycopg.Cursor) -> tuple[Column, ...]:
    time, progressed, *others = columns_of(cursor)
    if (time.name, progressed.name) != (TIME, PROGRESSED):
        raise InvalidUsage(
            "a subscription is cut into batches where the server says how far it is",
            hint="end the statement with WITH (PROGRESS = true)",
        )
    return (Column(TIME, BIGINT), *others)


def _batch(time: int, columns: tuple[Column, ...], rows: list[tuple]) -> Batch:
    return Batch(time, Result(columns, rows, f"SUBSCRIBE {len(rows)}", 0))
