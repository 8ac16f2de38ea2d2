"""The few kinds of error that Tidemark raises, all under one root.

Expected outcomes (losing a race, say) are values, not errors. An error is misuse or trouble, and
its message says what was given, what was allowed and what to do next. Each kind maps to one
SQLSTATE, so that any PostgreSQL client can act on it.
"""

from __future__ import annotations

from typing import Self


class TidemarkError(Exception):
    """Root of everything that Tidemark raises on purpose."""

    sqlstate = "XX000"

    context: str | None = None
    """Where in the input it happened, if that is worth telling: `COPY t, line 3, column k: "x"`."""

    position: int | None = None
    """Which character of the statement it is about, the first being 1, if that is known."""

    def __init__(self, message: str, *, hint: str | None = None, sqlstate: str | None = None):
        super().__init__(message)
        self.message = message
        self.hint = hint
        if sqlstate is not None:
            self.sqlstate = sqlstate

    def at(self, start: int | None) -> Self:
        """This error, about what begins at `start` of the statement; who knows first knows best."""
        if self.position is None and start is not None:
            self.position = start + 1
        return self

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidUsage(TidemarkError):
    """A call that could never be right: bounds reversed, a wrong schema, a closed handle."""

    sqlstate = "22023"


class SqlError(TidemarkError):
    """A statement that cannot be accepted; carries the SQLSTATE a PostgreSQL client expects."""

    sqlstate = "42601"


class Unsupported(SqlError):
    """Well-formed SQL that Tidemark refuses, with the reason and what to do instead."""

    sqlstate = "0A000"


class DataError(TidemarkError):
    """A value that an expression or a cast cannot take, or an error row met by a read."""

    sqlstate = "22000"


class AsOfBeforeSince(TidemarkError):
    """A read at a time whose history may already be compacted away."""

    sqlstate = "22023"


class Fenced(TidemarkError):
    """Another process has taken over: this one must stop writing."""

    sqlstate = "57P01"


class Corruption(TidemarkError):
    """Stored data that does not read back as what was written; names the object."""

    sqlstate = "XX001"


class Unavailable(TidemarkError):
    """Something needed is away for now (a cluster that is starting, a full disk): try again."""

    sqlstate = "57P03"


class TooLarge(TidemarkError):
    """More rows than the client has said that it will take."""

    sqlstate = "54000"


class Cancelled(TidemarkError):
    """The user asked for the statement to stop."""

    sqlstate = "57014"


class Determinate(Unavailable):
    """A storage operation that surely did not happen."""


class Indeterminate(Unavailable):
    """A storage operation that may or may not have happened: look before trying again."""
