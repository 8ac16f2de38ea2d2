"""The seam to the SQL layer: what the wire asks of a session, and the values that cross.

The wire knows messages, formats and cancellation; the session knows SQL, transactions and the
catalog. A statement crosses twice: `prepare` says what it takes and returns, `execute` runs it
with its parameters, re-planned with their values. Results come as Arrow batches, pulled one at a
time, so that a slow client holds back the query and never fills memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol

import msgspec
import pyarrow as pa

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


class Rows(msgspec.Struct, frozen=True):
    """Rows for the client; without a `tag` the command completes as `SELECT n`."""

    columns: tuple[Column, ...]
    batches: AsyncIterator[pa.RecordBatch]
    tag: str | None = None


class Copy(msgspec.Struct, frozen=True):
    """COPY … TO STDOUT in text format; completes as `COPY n`, or never (SUBSCRIBE)."""

    columns: tuple[Column, ...]
    batches: AsyncIterator[pa.RecordBatch]


class Done(msgspec.Struct, frozen=True):
    """A command without rows, such as `INSERT 0 3` or `CREATE TABLE`."""

    tag: str


class Deallocate(msgspec.Struct, frozen=True):
    """DEALLOCATE: the connection, which keeps prepared statements, forgets one or (None) all."""

    name: str | None
    tag: str = "DEALLOCATE"


Result = Rows | Copy | Done | Deallocate


class Statement(Protocol):
    """A statement that parsed; `columns` is None for one that returns no rows (COPY too)."""

    @property
    def sql(self) -> str: ...

    @property
    def param_oids(self) -> tuple[int, ...]: ...

    @property
    def columns(self) -> tuple[Column, ...] | None: ...


class Session(Protocol):
    """One client's SQL session. The wire never has two calls of it under way at once."""

    @property
    def transaction_status(self) -> TransactionStatus: ...

    def split(self, sql: str) -> list[str]:
        """The statements of a query string; blank ones and comments are left out."""
        ...

    async def prepare(self, sql: str, param_oids: tuple[int, ...]) -> Statement:
        """Parse and describe one statement; a parameter of unknown type (oid 0, or not given)
        is text (oid 25)."""
        ...

    async def execute(self, statement: Statement, params: tuple[Param, ...]) -> Result:
        """Run it. Cancelling the calling task cancels the statement, here or while its batches
        are read; batches that have an `aclose` are closed, read to the end or not."""
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


class SessionFactory(Protocol):
    """Opens a session, or raises a TidemarkError (3D000 for an unknown database)."""

    def __call__(self, *, user: str, database: str, options: dict[str, str]) -> Session: ...
