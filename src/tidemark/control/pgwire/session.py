"""The seam to the SQL layer: what the wire asks of a session, and the values that cross.

The wire knows messages, formats and cancellation; the session knows SQL, transactions and the
catalog. A statement crosses twice: `prepare` says what it takes and returns, `execute` runs it
with its parameters, re-planned with their values. Results come as Arrow batches, pulled one at a
time, so that a slow client holds back the query and never fills memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, Protocol

import msgspec
import pyarrow as pa

from tidemark.control.pgwire.codec import ProtocolViolation
from tidemark.errors import Unsupported
from tidemark.types import Column

TransactionStatus = Literal["I", "T", "E"]
"""Idle, in a transaction, in a failed transaction; the byte that ReadyForQuery carries."""


class Param(msgspec.Struct, frozen=True):
    """A bound parameter as PostgreSQL would print it; None is NULL."""

    value_text: str | None
    oid: int


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something the user should know that is not an error."""

    message: str
    severity: str = "NOTICE"
    sqlstate: str = "00000"
    hint: str | None = None


class Ready(msgspec.Struct, frozen=True):
    """So few rows that they were made in one go: `encoded` gives them as DataRow messages."""

    count: int
    encoded: Callable[[tuple[int, ...]], list[bytes]]


class Rows(msgspec.Struct, frozen=True):
    """Rows for the client; without a `tag` the command completes as `verb n`."""

    columns: tuple[Column, ...]
    batches: AsyncIterator[pa.RecordBatch]
    tag: str | None = None
    verb: str = "SELECT"
    binary: bool = False
    """From a BINARY cursor: the simple protocol, where nobody chooses formats, sends binary."""
    ready: Ready | None = None
    """All the rows of `batches`, for who does not want to read those."""

    def completed(self, count: int) -> str:
        return self.tag or f"{self.verb} {count}"


class CopyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How COPY writes rows, or reads them. `quote` and `escape` are of csv only."""

    format: Literal["text", "csv", "binary"] = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: Literal["none", "skip", "match"] = "none"
    """`match` reads as `skip` but compares the names; anything but `none` writes a header."""
    quote: str = '"'
    escape: str = '"'


class Copy(msgspec.Struct, frozen=True):
    """COPY … TO STDOUT; completes as `COPY n`, or never (SUBSCRIBE)."""

    columns: tuple[Column, ...]
    batches: AsyncIterator[pa.RecordBatch]
    options: CopyOptions = CopyOptions()


class CopyIn(msgspec.Struct, frozen=True):
    """COPY … FROM STDIN: `load` takes the client's bytes, cut anywhere, and says what it did."""

    column_count: int
    binary: bool
    load: Callable[[AsyncIterator[bytes]], Awaitable[Done]]


class Done(msgspec.Struct, frozen=True):
    """A command without rows, such as `INSERT 0 3` or `CREATE TABLE`."""

    tag: str


Result = Rows | Copy | CopyIn | Done


class Statement(Protocol):
    """A statement that parsed; `columns` is None for one that returns no rows (COPY too)."""

    @property
    def sql(self) -> str: ...

    @property
    def param_oids(self) -> tuple[int, ...]: ...

    @property
    def columns(self) -> tuple[Column, ...] | None: ...


class Session(Protocol):
    """One client's SQL session. The wire never has two calls of it under way at once.

    `pid` is the number under which the client may ask for a cancel, set once it is known."""

    pid: int

    statements: dict[str, Statement | None]
    """By name, whether prepared by Parse or by PREPARE; None is the empty statement."""

    @property
    def transaction_status(self) -> TransactionStatus: ...

    @property
    def idle_seconds(self) -> float | None:
        """How long the client may stay silent from here on; None is for ever."""
        ...

    async def split(self, sql: str) -> list[str]:
        """The statements of a query string; blank ones and comments are left out."""
        ...

    async def prepare(self, sql: str, param_oids: tuple[int, ...]) -> Statement:
        """Parse and describe one statement; a parameter without a type (oid 0, or not given) has
        the one that it is taken for where it stands, or else text (oid 25)."""
        ...

    async def execute(self, statement: Statement, params: tuple[Param, ...]) -> Result:
        """Run it. Cancelling the calling task cancels the statement, here or while its batches
        are read; batches that have an `aclose` are closed, read to the end or not."""
        ...

    def begin_implicit(self) -> None:
        """What runs from here on is one transaction, unless one is open: several statements that
        were sent at once."""
        ...

    async def end_implicit(self) -> None:
        """They are over: commit, or roll back if one has failed. A transaction that they have begun
        themselves stays open."""
        ...

    def cursor_columns(self, name: str) -> tuple[Column, ...] | None:
        """The columns of a cursor, which clients describe as a portal; None if there is none."""
        ...

    def fail(self) -> None:
        """The client was sent an error, wherever it arose: an open transaction has failed."""
        ...

    def notices(self) -> list[Notice]:
        """What has come up since the last call."""
        ...

    def parameter_changes(self) -> dict[str, str]:
        """Reported settings (application_name, TimeZone, …) changed since the last call."""
        ...

    async def close(self) -> None: ...


def check_wanted() -> None:
    """Between two statements: if the first of them could no longer be cancelled, the second can."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def check_same_shape(
    described: tuple[Column, ...] | None, actual: tuple[Column, ...] | None
) -> None:
    """The client decodes by what it was told; a result that differs must not reach it."""
    if described is actual:
        return
    if [c.type.oid for c in described or ()] != [c.type.oid for c in actual or ()]:
        raise Unsupported(
            "cached plan must not change result type", hint="Prepare the statement again."
        )


def idle_for_too_long(status: TransactionStatus) -> ProtocolViolation:
    """What ends a session whose client was silent for longer than `idle_seconds`."""
    if status == "I":
        what, sqlstate = "idle-session timeout", "57P05"
    else:
        what, sqlstate = "idle-in-transaction timeout", "25P03"
    return ProtocolViolation(f"terminating connection due to {what}", sqlstate=sqlstate)


class SessionFactory(Protocol):
    """Opens a session, or raises a TidemarkError: 3D000 for an unknown database, 42704 for an
    option that is `demanded` and unknown (others are left alone)."""

    def __call__(
        self,
        *,
        user: str,
        database: str,
        options: dict[str, str],
        demanded: tuple[str, ...] = (),
    ) -> Session: ...
