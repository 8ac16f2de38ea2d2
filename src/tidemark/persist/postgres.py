"""PostgresConsensus: the durable Consensus for many machines, a table in PostgreSQL.

    postgres://user:password@host:port/database?schema=name

Other parameters go to libpq (`sslmode`, say). One statement is one transaction and one round
trip. It is right at READ COMMITTED, because a head only grows: two who insert onto the same head
meet at the primary key, and the second inserts nothing. What is truncated is no longer there to be
met, so nobody may be under way who saw it as the head: truncating waits for them, and they for it
(a statement locks its table before it looks). Who has committed notifies the others in
that same transaction. The threads of a process commit together (`group`).

Goes to the primary, not through a pooler that hands out connections per transaction: that would
lose the session's settings and LISTEN.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, LiteralString, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg
import structlog
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from tidemark.errors import Determinate, Indeterminate, InvalidUsage, TidemarkError
from tidemark.persist.consensus import (
    Logs,
    Versioned,
    Wake,
    Watchers,
    check_seqno,
    check_truncate,
    gathered,
)
from tidemark.persist.group import MOST, Group

log = structlog.get_logger("persist")

T = TypeVar("T")

PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""How long libpq waits for a server that is gone, unless the address says otherwise."""

STATEMENT_TIMEOUT = "30s"
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds before the watching connection is opened again."""

LONGEST_PAYLOAD = 7_900
LOST_RACE = ("23505", "40001", "40P01")
UNSURE = ("08", "57P", "58", "XX")
"""SQLSTATEs with which a server leaves; whatever else it reports, it has rolled back."""

COMPARE_AND_SET = """
WITH done AS (
    INSERT INTO {table}
    SELECT key, seqno, data
    FROM unnest(%b::text[], %b::bigint[], %b::bytea[]) AS new (key, seqno, data)
    WHERE seqno = coalesce((SELECT max(old.seqno) + 1 FROM {table} old WHERE old.key = new.key), 0)
    ORDER BY key
    ON CONFLICT DO NOTHING
    RETURNING key, seqno
)
SELECT key, seqno, pg_notify({channel}, CASE WHEN octet_length(key) > {longest} THEN '' ELSE key END)
FROM done
"""
ALONE = "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"
TRUNCATE = """
DELETE FROM {table} WHERE key = %s AND seqno < %s
AND %s <= (SELECT max(seqno) FROM {table} WHERE key = %s)
"""


class PostgresConsensus:
    def __init__(self, uri: str):
        self._conninfo, self._schema, self._shown = _parsed(uri)
        table = sql.Identifier(self._schema, "consensus")
        channel = f"tidemark:{self._schema}".encode()[:60].decode(errors="ignore")
        self._names: dict[str, sql.Composable] = {
            "table": table,
            "channel": sql.Literal(channel),
            "longest": sql.Literal(LONGEST_PAYLOAD),
        }
        self._listen = sql.SQL("LISTEN {}").format(sql.Identifier(channel))
        self._statements: dict[str, bytes] = {}
        self._idle: list[psycopg.Connection] = []
        self._closed = False
        self._group = Group(self._commit)
        self._watchers = Watchers(first=self._start_watching, last=self._stop_watching)
        self._bye: int | None = None
        self._prepare()

    def head(self, key: str) -> Versioned | None:
        query = "SELECT seqno, data FROM {table} WHERE key = %s ORDER BY seqno DESC LIMIT 1"
        rows = self._read(query, (_storable(key),))
        return Versioned(*rows[0]) if rows else None

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        check_seqno(key, new.seqno)
        return self._group.do((_storable(key), new.seqno, new.data))

    def compare_and_set_all(self, news: Sequence[tuple[str, Versioned]]) -> list[bool]:
        for key, new in news:
            check_seqno(key, new.seqno)
        items = [(_storable(key), new.seqno, new.data) for key, new in news]
        rounds = (items[at : at + MOST] for at in range(0, len(items), MOST))
        return [won for batch in rounds for won in self._commit(batch)]

    def scan(self, key: str, start: int = 0, limit: int | None = None) -> list[Versioned]:
        query = (
            "SELECT seqno, data FROM {table} WHERE key = %s AND seqno >= %s ORDER BY seqno LIMIT %s"
        )
        return [Versioned(*row) for row in self._read(query, (_storable(key), start, limit))]

    def truncate(self, key: str, seqno: int) -> int:
        rows = self._read("SELECT max(seqno) FROM {table} WHERE key = %s", (_storable(key),))
        check_truncate(key, seqno, rows[0][0])
        values = (key, seqno, seqno, key)
        return self._run(TRUNCATE, values, lambda cursor: cursor.rowcount, alone=True)

    def keys(self) -> list[str]:
        query = 'SELECT DISTINCT key COLLATE "C" AS key FROM {table} ORDER BY key'
        return [key for (key,) in self._read(query)]

    def capture(self) -> Logs:
        # One statement sees one snapshot of the table.
        query = 'SELECT key, seqno, data FROM {table} ORDER BY key COLLATE "C", seqno'
        return gathered(self._read(query))

    def watch(self, wake: Wake) -> Callable[[], None]:
        return self._watchers.add(wake)

    def close(self) -> None:
        self._closed = True
        self._watchers.clear()
        while self._idle:
            self._idle.pop().close()

    def _commit(self, items: Sequence[tuple[str, int, bytes]]) -> list[bool]:
        # The first of those who want the same version; the others have lost to it, or as it did.
        firsts = {(key, seqno): at for at, (key, seqno, _) in reversed(list(enumerate(items)))}
        chosen = [items[at] for at in firsts.values()]
        keys, seqnos, data = (list(column) for column in zip(*chosen, strict=True))
        try:
            rows = self._run(
                COMPARE_AND_SET, (keys, seqnos, data), lambda cursor: cursor.fetchall()
            )
        except _LostRaceError:
            rows = []
        won = {firsts[key, seqno] for key, seqno, _ in rows}
        return [at in won for at in range(len(items))]

    def _read(self, query: LiteralString, values: tuple[object, ...] = ()) -> list[Any]:
        for again in (True, False):
            try:
                return self._run(query, values, lambda cursor: cursor.fetchall())
            except _LostRaceError as error:
                trouble: TidemarkError = Determinate(f"{self._shown}: {error}")
            except Indeterminate as error:  # A read has nothing to be unsure of.
                trouble = Determinate(error.message, hint=error.hint)
            if not again:
                raise trouble
        raise AssertionError("unreachable")

    def _run(
        self,
        query: LiteralString,
        values: tuple[object, ...],
        fetch: Callable[[psycopg.Cursor], T],
        *,
        alone: bool = False,
    ) -> T:
        statement = self._composed(query)
        connection = self._borrow()
        try:
            with connection.transaction() if alone else nullcontext():
                if alone:
                    connection.execute(self._composed(ALONE))
                result = fetch(connection.execute(statement, values, prepare=True))
        except psycopg.Error as error:
            raise self._explained(error) from error
        finally:
            self._give_back(connection)
        return result

    def _composed(self, query: LiteralString) -> bytes:
        statement = self._statements.get(query)
        if statement is None:
            composed = sql.SQL(query).format(**self._names).as_bytes(None)
            statement = self._statements[query] = composed
        return statement

    def _borrow(self) -> psycopg.Connection:
        while self._idle:
            with suppress(IndexError):  # Another thread was faster.
                connection = self._idle.pop()
                if not _hung_up(connection):
                    return connection
                connection.close()
        return self._connect()

    def _give_back(self, connection: psycopg.Connection) -> None:
        status = connection.info.transaction_status  # Not idle if it was interrupted.
        if self._closed or status != TransactionStatus.IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def _connect(self) -> psycopg.Connection:
        if self._closed:
            raise InvalidUsage(f"{self._shown} was closed")
        try:
            connection = psycopg.connect(**self._conninfo, autocommit=True)  # pyright: ignore[reportArgumentType]
        except psycopg.OperationalError as error:
            hint = "is PostgreSQL running there, and do user, password and database exist?"
            raise Determinate(f"cannot connect to {self._shown}: {error}", hint=hint) from error
        except psycopg.ProgrammingError as error:
            raise InvalidUsage(f"cannot connect to {self._shown}: {error}") from error
        try:
            # A commit must be on disk when it returns, whatever the server's default is.
            row = connection.execute(
                "SELECT set_config('synchronous_commit',"
                " CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'"
                " ELSE current_setting('synchronous_commit') END, false),"
                " set_config('default_transaction_isolation', 'read committed', false),"
                " set_config('statement_timeout', %s, false), current_setting('fsync')",
                (STATEMENT_TIMEOUT,),
            ).fetchone()
        except psycopg.Error as error:
            connection.close()
            raise Determinate(f"cannot connect to {self._shown}: {error}") from error
        if row is not None and row[3] != "on":
            log.warning("PostgreSQL runs with fsync off: a crash may lose commits", at=self._shown)
        return connection

    def _prepare(self) -> None:
        """Make the schema and the table unless they are there."""
        connection = self._connect()
        try:
            with connection.transaction():
                # IF NOT EXISTS alone lets two who are at it at once collide.
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('tidemark'))")
                if connection.execute(
                    "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'consensus'",
                    (self._schema,),
                ).fetchone():
                    return
                for statement in (
                    "CREATE SCHEMA IF NOT EXISTS {schema}",
                    "CREATE TABLE {table} (key text, seqno bigint, data bytea NOT NULL,"
                    " PRIMARY KEY (key, seqno))",
                    # What is stored is compressed already.
                    "ALTER TABLE {table} ALTER COLUMN data SET STORAGE EXTERNAL",
                ):
                    names = {"schema": sql.Identifier(self._schema), **self._names}
                    connection.execute(sql.SQL(statement).format(**names))
        except psycopg.Error as error:
            raise Determinate(f"cannot set up {self._shown}: {error}") from error
        finally:
            self._give_back(connection)

    def _explained(self, error: psycopg.Error) -> TidemarkError | _LostRaceError:
        state = error.sqlstate
        if state is None or state.startswith(UNSURE):
            return Indeterminate(f"lost the connection to {self._shown}: {error}")
        if state in LOST_RACE:
            return _LostRaceError(str(error))
        if state == "53100":
            hint = "free some space there; the write is safe to try again"
            return Determinate(f"disk full at {self._shown}", hint=hint, sqlstate=state)
        if state == "25006":
            hint = "give the address of the primary, not of a standby"
            return Determinate(f"{self._shown} is read-only", hint=hint)
        return Determinate(f"{self._shown}: {error}")

    def _start_watching(self) -> None:
        ours, theirs = os.pipe()
        self._bye = theirs
        threading.Thread(
            target=self._watch, args=(ours,), name="watch-postgres", daemon=True
        ).start()

    def _stop_watching(self) -> None:
        bye, self._bye = self._bye, None
        if bye is not None:
            os.close(bye)  # The thread sees the end of the pipe.

    def _watch(self, bye: int) -> None:
        """Hear of commits on a connection of its own, opened again whenever it breaks."""
        pause = FIRST_PAUSE
        try:
            while True:
                with suppress(psycopg.Error, TidemarkError), self._connect() as connection:
                    connection.execute(self._listen)
                    pause = FIRST_PAUSE
                    self._watchers.wake(None)  # Of what came before, nobody told us.
                    if self._hear(connection, bye):
                        return
                if _readable(pause, bye):
                    return
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            os.close(bye)

    def _hear(self, connection: psycopg.Connection, bye: int) -> bool:
        """True once it is time to stop; fails when the connection does."""
        while True:
            if bye in _readable(None, bye, connection.pgconn.socket):
                return True
            connection.pgconn.consume_input()
            keys: dict[str | None, None] = {}
            while (notice := connection.pgconn.notifies()) is not None:
                keys[notice.extra.decode() or None] = None
            self._watchers.wake(*keys)


class _LostRaceError(Exception):
    pass


def _hung_up(connection: psycopg.Connection) -> bool:
    """Whether the server has said goodbye on a connection that was idle."""
    pgconn = connection.pgconn
    if connection.closed or not _readable(0, pgconn.socket):
        return connection.closed
    try:
        pgconn.consume_input()
    except psycopg.Error:
        return True
    return pgconn.status != psycopg.pq.ConnStatus.OK


def _readable(seconds: float | None, *descriptors: int) -> list[int]:
    """Those that can be read, after waiting for one of them."""
    poll = select.poll()  # Not select.select, which knows only the first 1,024.
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    found = poll.poll(None if seconds is None else seconds * 1000)
    return [descriptor for descriptor, _ in found]


def _storable(key: str) -> str:
    if "\0" in key:
        raise InvalidUsage(f"not a key: {key!r}", hint="PostgreSQL stores no NUL characters")
    return key


def _parsed(uri: str) -> tuple[dict[str, Any], str, str]:
    """What libpq wants to know, the schema, and the address as it may be shown."""
    hint = "use postgres://user:password@host:port/database?schema=name"
    try:
        parts = urlsplit(uri, allow_fragments=False)
        if "," not in parts.netloc:
            _ = parts.port  # Several hosts are libpq's to take apart; of one, this checks more.
    except ValueError:
        raise InvalidUsage("not a PostgreSQL address", hint=hint) from None
    others = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(others).get("schema") or "public"
    query = urlencode([(name, value) for name, value in others if name != "schema"])
    try:
        given = conninfo_to_dict(f"postgresql://{parts.netloc}{parts.path}?{query}")
    except psycopg.ProgrammingError as error:
        said = str(error).strip()
        if parts.password:
            said = said.replace(parts.password, "***")
        raise InvalidUsage(f"not a PostgreSQL address: {said}", hint=hint) from None
    shown = f"postgres://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return {"application_name": "tidemark", **PATIENCE, **given}, schema, shown
