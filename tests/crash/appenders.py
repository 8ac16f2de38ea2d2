"""Clients whose every transaction is recorded, for `consistency.py` to check.

    one, two   lists as texts, by key: `UPDATE one SET list = list || ' 7' WHERE key = 3`
    pairs      a materialized view that joins them: lists read through it are lists all the same
    log        a table of (key, value): a list whose order nobody knows
    sums       a materialized view of it, by key

Values are numbers that are never used again. Keys are used for a while, a few at a time, so that
clients meet and lists stay short.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import psycopg
from serving import DEADLINE, Serving

from consistency import Append, Change, Followed, Outcome, Read, Rows, Timed, Transaction
from tidemark.clock import SYSTEM_CLOCK

LISTS = ("one", "two")
KEYS = 3_000
AT_ONCE = 3
"""Keys that are in use at a time."""

SECONDS_PER_KEY = 2.0

SCHEMA = (
    *(f"CREATE TABLE {name} (key int NOT NULL, list text NOT NULL)" for name in LISTS),
    *(
        f"INSERT INTO {name} SELECT k, '' FROM generate_series(0, {KEYS - 1}) AS k"
        for name in LISTS
    ),
    "CREATE MATERIALIZED VIEW pairs AS"
    " SELECT one.key, one.list AS one, two.list AS two FROM one JOIN two ON one.key = two.key",
    "CREATE TABLE log (key int NOT NULL, value int NOT NULL) WITH (RETAIN HISTORY FOR '1 hour')",
    "CREATE MATERIALIZED VIEW sums WITH (RETAIN HISTORY FOR '1 hour') AS"
    " SELECT key, count(*) AS n, sum(value) AS total, max(value) AS newest FROM log GROUP BY key",
)


def summed(log: Rows) -> Rows:
    """What `sums` must contain."""
    keys: dict[int, list[int]] = {}
    for (key, value), n in log.items():
        keys.setdefault(key, []).extend([value] * n)
    return Counter((key, len(v), sum(v), max(v)) for key, v in keys.items())


class Recording:
    """What all clients of a run share: the server, fresh values, and the history."""

    def __init__(self, server: Serving):
        self.server = server
        self.history: list[Transaction] = []
        self.reads: list[Timed] = []
        self.keys_used: set[int] = set()
        self._began = SYSTEM_CLOCK.monotonic()
        self._values = itertools.count(1)
        self._lock = threading.Lock()

    def fresh(self) -> int:
        with self._lock:
            return next(self._values)

    def key(self, chance: random.Random) -> int:
        with self._lock:
            now = int((SYSTEM_CLOCK.monotonic() - self._began) / SECONDS_PER_KEY)
            key = now + chance.randrange(AT_ONCE)
            assert key < KEYS, "there are no more keys: it took too long"
            self.keys_used.add(key)
            return key

    def add(self, transaction: Transaction, reads: list[Timed]) -> None:
        with self._lock:
            self.history.append(transaction)
            self.reads += reads


class Attempt:
    """One transaction as it runs: what it has done, and whether its end was under way."""

    def __init__(self, connection: psycopg.Connection, process: str):
        self.connection = connection
        self.ops: list[Append | Read] = []
        self.timed: list[tuple[str, int, Rows]] = []
        self.may_commit = False
        self._process = process
        self._called = _now()

    def query(self, sql: str) -> list[tuple]:
        return self.connection.execute(sql).fetchall()  # type: ignore[arg-type]

    def begin(self) -> None:
        self.connection.execute("BEGIN")

    def commit(self) -> None:
        self.may_commit = True
        assert self.connection.execute("COMMIT").statusmessage == "COMMIT"

    def update(self, table: str, key: int, value: int) -> None:
        self.ops.append(Append((table, key), value))
        sql = f"UPDATE {table} SET list = list || ' {value}' WHERE key = {key}"
        assert self.connection.execute(sql).rowcount == 1  # type: ignore[arg-type]

    def read_list(self, table: str, key: int) -> None:
        ((text,),) = self.query(f"SELECT list FROM {table} WHERE key = {key}")
        self.ops.append(Read((table, key), values_of(text)))

    def read_both(self, keys: set[int]) -> None:
        wanted = ", ".join(map(str, keys))
        for key, *texts in self.query(f"SELECT key, one, two FROM pairs WHERE key IN ({wanted})"):
            for table, text in zip(LISTS, texts, strict=True):
                self.ops.append(Read((table, key), values_of(text)))

    def read_log(self, keys: set[int]) -> Rows:
        """All of it; the lists of `keys` are part of the history."""
        rows = self.query("SELECT key, value FROM log")
        for key in keys:
            values = tuple(value for k, value in rows if k == key)
            self.ops.append(Read(("log", key), values, ordered=False))
        return Counter(rows)

    def done(self, outcome: Outcome) -> tuple[Transaction, list[Timed]]:
        returned = _now()
        reads = [
            Timed(self._process, self._called, returned, *each)
            for each in (self.timed if outcome == "ok" else ())
        ]
        return Transaction(self._process, self._called, returned, outcome, tuple(self.ops)), reads


def _now() -> int:
    return int(SYSTEM_CLOCK.monotonic() * 1_000_000_000)


def values_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


class Client(threading.Thread):
    """One session at a time, one transaction at a time, until stopped."""

    def __init__(self, recording: Recording, number: int, seed: int):
        super().__init__(name=f"client-{number}", daemon=True)
        self.done: Counter[Outcome] = Counter()
        self.errors: list[str] = []
        self.failure: BaseException | None = None
        self._recording = recording
        self._chance = random.Random(seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        connection: psycopg.Connection | None = None
        try:
            while not self._stopping.wait(self._chance.random() * 0.05):
                if connection is None or connection.closed:
                    with suppress(psycopg.Error):
                        connection = self._recording.server.connect(connect_timeout=10)
                    continue
                if not self._attempt(connection):
                    connection.close()
        except BaseException as error:
            self.failure = error
        finally:
            if connection is not None:
                connection.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(DEADLINE)
        assert not self.is_alive(), f"{self.name} hangs"
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed") from self.failure

    def _attempt(self, connection: psycopg.Connection) -> bool:
        """False if the session is of no use any more."""
        kinds: tuple[Callable[[Attempt], None], ...] = (
            self._insert,
            self._insert,
            self._insert_at_once,
            self._append,
            self._append_alone,
            self._read,
            self._read_at_once,
        )
        attempt = Attempt(connection, self.name)
        outcome: Outcome = "ok"
        try:
            self._chance.choice(kinds)(attempt)
        except psycopg.Error as error:
            refused = isinstance(error, psycopg.errors.SerializationFailure)
            outcome = "unknown" if attempt.may_commit and not refused else "failed"
            self.errors.append(f"{type(error).__name__}: {error}".splitlines()[0])
        self._recording.add(*attempt.done(outcome))
        self.done[outcome] += 1
        if outcome == "failed" and not connection.closed:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
        return outcome != "unknown"

    # Transactions.

    def _insert(self, attempt: Attempt) -> None:
        """Blind writes into several lists, in as many statements."""
        attempt.begin()
        for sql in self._inserts(attempt):
            attempt.connection.execute(sql)  # type: ignore[arg-type]
        attempt.commit()

    def _insert_at_once(self, attempt: Attempt) -> None:
        """The same without BEGIN and COMMIT: in one message, or in a pipeline."""
        statements = list(self._inserts(attempt))
        attempt.may_commit = True
        if self._chance.random() < 0.5:
            attempt.connection.execute("; ".join(statements))  # type: ignore[arg-type]
            return
        with attempt.connection.pipeline():
            for sql in statements:
                attempt.connection.execute(sql)  # type: ignore[arg-type]

    def _inserts(self, attempt: Attempt) -> list[str]:
        made = []
        for _ in range(self._chance.randint(1, 3)):
            key, value = self._recording.key(self._chance), self._recording.fresh()
            attempt.ops.append(Append(("log", key), value))
            made.append(f"INSERT INTO log VALUES ({key}, {value})")
        return made

    def _append(self, attempt: Attempt) -> None:
        """Reads a list, or some, and appends to others, or the same."""
        key, other = (self._recording.key(self._chance) for _ in range(2))
        table = self._chance.choice(LISTS)
        attempt.begin()
        match self._chance.randrange(4):
            case 0:
                attempt.read_list(table, key)
            case 1:
                attempt.read_both({key, other})
            case 2:
                attempt.read_log({key})
        attempt.update(table, key, self._recording.fresh())
        if self._chance.random() < 0.4:
            attempt.update(self._chance.choice(LISTS), other, self._recording.fresh())
        if self._chance.random() < 0.4:
            attempt.read_list(table, key)
        if self._chance.random() < 0.3:
            for sql in self._inserts(attempt):
                attempt.connection.execute(sql)  # type: ignore[arg-type]
        attempt.commit()

    def _append_alone(self, attempt: Attempt) -> None:
        attempt.may_commit = True
        key = self._recording.key(self._chance)
        attempt.update(self._chance.choice(LISTS), key, self._recording.fresh())

    def _read(self, attempt: Attempt) -> None:
        """Tables and views, at one time that the server names."""
        keys = {self._recording.key(self._chance) for _ in range(2)}
        attempt.begin()
        steps: list[Callable[[], None]] = [
            lambda: attempt.read_both(keys),
            lambda: self._read_timed(attempt, keys),
        ]
        self._chance.shuffle(steps)
        for step in steps:
            step()
        attempt.commit()

    def _read_timed(self, attempt: Attempt, keys: set[int]) -> None:
        sums = Counter(attempt.query("SELECT key, n, total, newest FROM sums"))
        log = attempt.read_log(keys)
        ((now,),) = attempt.query("SELECT mz_now()")
        attempt.timed += [("log", int(now), log), ("sums", int(now), sums)]

    def _read_at_once(self, attempt: Attempt) -> None:
        """One statement: a list in its table, or both in the view of them."""
        key = self._recording.key(self._chance)
        if self._chance.random() < 0.5:
            attempt.read_list(self._chance.choice(LISTS), key)
        else:
            attempt.read_both({key})


class Subscriber(threading.Thread):
    """Follows a relation through whatever happens, from where it was, without loss or repetition."""

    def __init__(self, server: Serving, relation: str, since: int):
        super().__init__(name=f"subscriber-{relation}", daemon=True)
        self.relation = relation
        self.resumed = 0
        self._server = server
        self._since = since
        self._upper = since
        self._changes: list[Change] = []
        self._stopping = threading.Event()
        self._connection: psycopg.Connection | None = None
        self.failure: BaseException | None = None

    @property
    def upper(self) -> int:
        return self._upper

    @property
    def followed(self) -> Followed:
        return Followed(self._since, self._upper, self._changes)

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                with (
                    suppress(psycopg.OperationalError),
                    self._server.connect(connect_timeout=10) as self._connection,
                ):
                    self._follow(self._connection)
                self._stopping.wait(0.2)
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self._stopping.set()
        while self.is_alive():
            if self._connection is not None and not self._connection.closed:
                with suppress(psycopg.Error):
                    self._connection.cancel()
            self.join(0.5)
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed") from self.failure

    def _follow(self, connection: psycopg.Connection) -> None:
        begun = self._upper > self._since
        as_of = self._upper - 1 if begun else self._since
        options = "PROGRESS, SNAPSHOT = false" if begun else "PROGRESS"
        sql = f"COPY (SUBSCRIBE {self.relation} WITH ({options}) AS OF {as_of}) TO STDOUT"
        self.resumed += begun
        pending: list[Change] = []
        with connection.cursor() as cursor, cursor.copy(sql) as copy:  # type: ignore[arg-type]
            for line in copy:
                time, progressed, diff, *row = bytes(line).decode().rstrip("\n").split("\t")
                if progressed == "f":
                    pending.append(Change(int(time), int(diff), tuple(map(int, row))))
                    continue
                # All before that time is complete, and none of it comes again.
                self._changes += pending
                assert all(change.time < int(time) for change in pending)
                pending.clear()
                self._upper = max(self._upper, int(time))
                if self._stopping.is_set():
                    return
