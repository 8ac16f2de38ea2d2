"""Consensus: where a shard's state lives. A linearizable log of versions per key.

`compare_and_set` at sequence 0 succeeds only on an empty log, otherwise only at exactly the
head's sequence + 1. Losing is a value (False), never an error. An error that may hide a success
is `Indeterminate`; the caller looks at the head before it tries again.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import NamedTuple, Protocol

from tidemark.errors import Corruption, Determinate, Indeterminate, InvalidUsage

WAL_ATTEMPTS = 100


class Versioned(NamedTuple):
    seqno: int
    data: bytes


class Consensus(Protocol):
    def head(self, key: str) -> Versioned | None: ...

    def compare_and_set(self, key: str, new: Versioned) -> bool: ...

    def scan(self, key: str, start: int = 0) -> list[Versioned]:
        """Versions from `start` on, oldest first."""
        ...

    def truncate(self, key: str, seqno: int) -> int:
        """Drop versions before `seqno`, which must not be beyond the head."""
        ...

    def keys(self) -> list[str]: ...

    def change_token(self) -> int:
        """A number that differs from the last one asked for if anything may have changed."""
        ...


class MemConsensus:
    """The in-memory twin, for unit tests."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Versioned]] = {}
        self._lock = threading.Lock()
        self._changes = 0

    def head(self, key: str) -> Versioned | None:
        with self._lock:
            log = self._logs.get(key)
            return log[-1] if log else None

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        with self._lock:
            log = self._logs.setdefault(key, [])
            if new.seqno != (log[-1].seqno + 1 if log else 0):
                return False
            log.append(new)
            self._changes += 1
            return True

    def scan(self, key: str, start: int = 0) -> list[Versioned]:
        with self._lock:
            return [version for version in self._logs.get(key, ()) if version.seqno >= start]

    def truncate(self, key: str, seqno: int) -> int:
        with self._lock:
            log = self._logs.get(key, [])
            _check_truncate(key, seqno, log[-1].seqno if log else None)
            kept = [version for version in log if version.seqno >= seqno]
            self._logs[key] = kept
            return len(log) - len(kept)

    def keys(self) -> list[str]:
        with self._lock:
            return sorted(key for key, log in self._logs.items() if log)

    def change_token(self) -> int:
        return self._changes


class SqliteConsensus:
    """One SQLite file in WAL mode with full durability; many processes may share it."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._local = threading.local()
        self._read(
            "CREATE TABLE IF NOT EXISTS consensus (key TEXT NOT NULL, seqno INTEGER NOT NULL,"
            " data BLOB NOT NULL, PRIMARY KEY (key, seqno)) WITHOUT ROWID"
        )

    def head(self, key: str) -> Versioned | None:
        sql = "SELECT seqno, data FROM consensus WHERE key = ? ORDER BY seqno DESC LIMIT 1"
        rows = self._read(sql, (key,))
        return Versioned(*rows[0]) if rows else None

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        # One statement, so one transaction: it inserts only onto the head that was expected.
        sql = (
            "INSERT INTO consensus SELECT ?1, ?2, ?3"
            " WHERE ?2 = (SELECT coalesce(max(seqno) + 1, 0) FROM consensus WHERE key = ?1)"
        )
        try:
            return self._connection().execute(sql, (key, *new)).rowcount == 1
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def scan(self, key: str, start: int = 0) -> list[Versioned]:
        sql = "SELECT seqno, data FROM consensus WHERE key = ? AND seqno >= ? ORDER BY seqno"
        return [Versioned(*row) for row in self._read(sql, (key, start))]

    def truncate(self, key: str, seqno: int) -> int:
        head = self.head(key)
        _check_truncate(key, seqno, head.seqno if head else None)
        sql = "DELETE FROM consensus WHERE key = ? AND seqno < ?"
        try:
            return self._connection().execute(sql, (key, seqno)).rowcount
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def keys(self) -> list[str]:
        return [key for (key,) in self._read("SELECT DISTINCT key FROM consensus ORDER BY key")]

    def change_token(self) -> int:
        return self._read("PRAGMA data_version")[0][0]

    def _read(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple]:
        try:
            return self._connection().execute(sql, values).fetchall()
        except sqlite3.Error as error:
            explained = self._explained(error)
            if isinstance(explained, Indeterminate):
                explained = Determinate(f"cannot read {self.path}: {error}")
            raise explained from error

    def _connection(self) -> sqlite3.Connection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            _use_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
            self._local.connection = connection
        return connection

    def _explained(self, error: sqlite3.Error) -> Determinate | Indeterminate | Corruption:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # Above it is only detail.
        if code == sqlite3.SQLITE_FULL:
            hint = "free some space on that disk; the write is safe to try again"
            return Determinate(f"disk full while writing {self.path}", hint=hint, sqlstate="53100")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Determinate(f"{self.path} is locked by another process for too long")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
            return Determinate(f"cannot write {self.path}: {error}")
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return Corruption(f"{self.path} is damaged: {error}")
        return Indeterminate(f"{self.path}: {error}")


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


def _check_truncate(key: str, seqno: int, head: int | None) -> None:
    if head is None or seqno > head:
        raise InvalidUsage(f"cannot truncate {key} to {seqno}: its head is at {head}")
