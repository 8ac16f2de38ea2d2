"""What the server or the connection says is wrong, as Tidemark's own kinds of error.

The SQLSTATE decides the kind, and comes along; so do the hint, the position in the statement and
the context. Whoever catches `TidemarkError` catches everything that a client raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tidemark.errors import (
    Cancelled,
    DataError,
    SqlError,
    TidemarkError,
    TooLarge,
    Unavailable,
    Unsupported,
)

_KINDS: tuple[tuple[str, type[TidemarkError]], ...] = (
    ("57014", Cancelled),
    ("57", Unavailable),
    ("08P01", SqlError),
    ("08", Unavailable),
    ("53", Unavailable),
    ("0A", Unsupported),
    ("22", DataError),
    ("54", TooLarge),
    ("XX", TidemarkError),
)
"""By how the SQLSTATE begins; every other one is a `SqlError`."""


@contextmanager
def as_ours() -> Iterator[None]:
    """Whatever psycopg raises inside comes out as one of ours."""
    try:
        yield
    except psycopg.Error as error:
        raise ours(error) from error


def ours(error: psycopg.Error) -> TidemarkError:
    said = error.diag
    if said.message_primary is None:
        return _without_answer(error)
    sqlstate = said.sqlstate or "XX000"
    kind = next((kind for prefix, kind in _KINDS if sqlstate.startswith(prefix)), SqlError)
    made = kind(said.message_primary, hint=said.message_hint, sqlstate=sqlstate)
    made.context = said.context
    made.position = int(said.statement_position) if said.statement_position else None
    return made


def _without_answer(error: psycopg.Error) -> TidemarkError:
    """It came from psycopg itself: the connection is gone, or something was used wrongly."""
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Unavailable(
            f"the connection to the server is lost: {_first_line(error)}",
            hint="is the server running? connect again when it is",
            sqlstate="08006",
        )
    return SqlError(str(error), sqlstate=error.sqlstate or "22023")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def no_connection(error: psycopg.Error, host: str, port: int | str) -> TidemarkError:
    """Nobody answers there, or the one who does says no."""
    text = str(error)
    if "FATAL" in text or "password" in text or "SSL" in text or "certificate" in text:
        # libpq tries more than one way in, and says what became of each; the first is the best.
        first = re.split(r"\n(?=connection to server)", text)[0]
        _, is_servers, said = first.partition("FATAL:")
        reason = said if is_servers else first.rpartition(" failed: ")[2]
        lines = [line.strip() for line in reason.strip().splitlines()]
        hint = next((line[5:].strip() for line in lines if line.startswith("HINT:")), None)
        if hint is None and "certificate" in lines[0]:
            hint = "sslrootcert=FILE in the connection string says whose certificates are trusted"
        return Unavailable(
            f"{host}:{port} refuses the connection: {lines[0].removeprefix('fe_sendauth: ')}",
            hint=hint or "check user, password, database and sslmode",
            sqlstate=error.sqlstate or "08004",
        )
    return Unavailable(
        f"no server answers on {host}:{port}",
        hint=f"start one: tidemark serve --data DIR --listen {host}:{port}",
        sqlstate="08001",
    )
