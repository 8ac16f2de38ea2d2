"""SqliteConsensus: the durable Consensus for one machine, a file that many processes share.

WAL mode with full durability: a commit is one append to the log and one sync of it. The threads
of a process commit together (`group`); other processes hear of it by the doorbell (`bell`).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import Corruption, Determinate, Indeterminate, InvalidUsage, TidemarkError
from tidemark.persist.bell import bell_of
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

T = TypeVar("T")

WAL_ATTEMPTS = 100
BUSY_TIMEOUT = 30.0
FIRST_PAUSES = (0.0002,) * 20 + (0.001,) * 200
LATER_PAUSE = 0.005
"""Seconds between attempts to begin a transaction while another process is in one."""

POLL_EVERY = 0.02
"""Seconds between looks at the file, only where no doorbell can be had."""

# With row ids: the key's index stays small where data are large, and a commit is a third cheaper.
# SQLite's own checkpoint every 1,000 pages keeps the log short, so that it is overwritten in
# place; a log four times as long was slower to append to and stalled longer.
TABLE = """
CREATE TABLE IF NOT EXISTS consensus (
    key TEXT NOT NULL, seqno INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (key, seqno)
)
"""
# One statement, so one transaction: it inserts only onto the head that was expected.
COMPARE_AND_SET = """
INSERT INTO consensus SELECT ?1, ?2, ?3
WHERE ?2 = (SELECT coalesce(max(seqno) + 1, 0) FROM consensus WHERE key = ?1)
"""


class SqliteConsensus:
    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Determinate(f"cannot make {self.path.parent}: {error.strerror}") from error
        self._bell = bell_of(self.path)
        self._pollers = Watchers(first=self._poll)
        self._closed = False
        self._stops: list[Callable[[], None]] = []
        self._idle: list[sqlite3.Connection] = []
        self._group = Group(self._commit)
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._write(lambda connection: connection.execute(TABLE))

    def head(self, key: str) -> Versioned | None:
        sql = "SELECT seqno, data FROM consensus WHERE key = ? ORDER BY seqno DESC LIMIT 1"
        rows = self._read(sql, (key,))
        return Versioned(*rows[0]) if rows else None

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        check_seqno(key, new.seqno)
        return self._group.do((key, new.seqno, new.data))

    def compare_and_set_all(self, news: Sequence[tuple[str, Versioned]]) -> list[bool]:
        for key, new in news:
            check_seqno(key, new.seqno)
        items = [(key, new.seqno, new.data) for key, new in news]
        rounds = (items[at : at + MOST] for at in range(0, len(items), MOST))
        return [won for batch in rounds for won in self._commit(batch)]

    def scan(self, key: str, start: int = 0, limit: int | None = None) -> list[Versioned]:
        sql = (
            "SELECT seqno, data FROM consensus WHERE key = ? AND seqno >= ? ORDER BY seqno LIMIT ?"
        )
        rows = self._read(sql, (key, start, -1 if limit is None else limit))
        return [Versioned(*row) for row in rows]

    def truncate(self, key: str, seqno: int) -> int:
        rows = self._read("SELECT max(seqno) FROM consensus WHERE key = ?", (key,))
        check_truncate(key, seqno, rows[0][0])
        sql = "DELETE FROM consensus WHERE key = ? AND seqno < ?"
        return self._write(lambda connection: connection.execute(sql, (key, seqno)).rowcount)

    def keys(self) -> list[str]:
        return [key for (key,) in self._read("SELECT DISTINCT key FROM consensus ORDER BY key")]

    def capture(self) -> Logs:
        # One statement reads one snapshot of the file.
        return gathered(self._read("SELECT key, seqno, data FROM consensus ORDER BY key, seqno"))

    def watch(self, wake: Wake) -> Callable[[], None]:
        try:
            stop = self._bell.watchers.add(wake)
        except OSError:
            stop = self._pollers.add(wake)
        self._stops.append(stop)
        return stop

    def close(self) -> None:
        self._closed = True
        while self._stops:
            self._stops.pop()()
        with self._write_lock:
            if self._writer is not None:
                self._idle.append(self._writer)
                self._writer = None
            while self._idle:
                with suppress(sqlite3.Error, IndexError):
                    self._idle.pop().close()

    def _commit(self, items: Sequence[tuple[str, int, bytes]]) -> list[bool]:
        def work(connection: sqlite3.Connection) -> list[bool]:
            if len(items) == 1:
                return [connection.execute(COMPARE_AND_SET, items[0]).rowcount == 1]
            connection.execute("BEGIN IMMEDIATE")
            done = [connection.execute(COMPARE_AND_SET, item).rowcount == 1 for item in items]
            connection.execute("COMMIT")
            return done

        done = self._write(work)
        if any(done):
            won = (item[0] for item, yes in zip(items, done, strict=True) if yes)
            self._bell.ring(dict.fromkeys(won))
        return done

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._write_lock:
            try:
                if self._writer is None:
                    self._writer = self._connect()
                    self._writer.execute("PRAGMA busy_timeout = 0")
                return self._patiently(work, self._writer)
            except BaseException as error:
                if self._writer is not None and self._writer.in_transaction:
                    with suppress(sqlite3.Error):
                        self._writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise self._explained(error) from error
                raise

    def _patiently(
        self, work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection
    ) -> T:
        """Wait for other processes' commits, which take milliseconds.

        SQLite's own patience sleeps longer and longer, up to a tenth of a second, and so starves
        while another process commits again and again.
        """
        pauses, give_up = None, 0.0
        while True:
            try:
                return work(connection)
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or connection.in_transaction:
                    raise
                now = SYSTEM_CLOCK.monotonic()
                if pauses is None:
                    pauses = chain(FIRST_PAUSES, repeat(LATER_PAUSE))
                    give_up = now + BUSY_TIMEOUT
                if now > give_up:
                    raise
            SYSTEM_CLOCK.sleep(next(pauses))

    def _read(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple]:
        connection = None
        try:
            connection = self._idle.pop() if self._idle else self._connect()
            return connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._explained(error, reading=True) from error
        finally:
            if connection is not None and self._closed:
                connection.close()
            elif connection is not None:
                self._idle.append(connection)

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise InvalidUsage(f"{self.path} was closed")
        connection = sqlite3.connect(
            self.path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _explained(self, error: sqlite3.Error, *, reading: bool = False) -> TidemarkError:
        if isinstance(error, sqlite3.ProgrammingError):
            return InvalidUsage(f"{self.path}: {error}")  # Closed while in use, say.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # Above it is only detail.
        if code == sqlite3.SQLITE_FULL:
            hint = "free some space on that disk; the write is safe to try again"
            return Determinate(f"disk full while writing {self.path}", hint=hint, sqlstate="53100")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Determinate(f"{self.path} is locked by another process for too long")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
            return Determinate(
                f"cannot write {self.path}: {error}",
                hint="this user must be able to write the file and the folder it is in",
            )
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return Corruption(f"{self.path} is damaged: {error}")
        if reading:
            return Determinate(f"cannot read {self.path}: {error}")
        return Indeterminate(f"{self.path}: {error}")

    def _poll(self) -> None:
        threading.Thread(target=self._look, name="watch-sqlite", daemon=True).start()

    def _look(self) -> None:
        """Each connection counts from its own last look, so this one is for nothing else."""
        connection, seen = None, None
        while not self._closed and self._pollers:
            with suppress(sqlite3.Error, InvalidUsage):
                if connection is None:
                    connection = self._connect()
                version = connection.execute("PRAGMA data_version").fetchone()
                if version != seen:
                    seen = version
                    self._pollers.wake(None)
            SYSTEM_CLOCK.sleep(POLL_EVERY)
        if connection is not None:
            connection.close()


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, which the first to open a file does for everyone.

    The switch fails at once if another process is at it, without SQLite's usual patience; an
    immediate transaction has that patience, so one waits for the other to be done.
    """
    for _ in range(WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")
