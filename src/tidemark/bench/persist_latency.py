"""How long one small append takes, until it is durable and until another process has it.

An append is 100 updates: 50 of 5,000 rows (key int64, value int64, name string) are replaced. The
baseline is one durable commit of as many bytes as the append's version has in Consensus, into a
plain table of a database of its own. The two take turns, so that the machine's noise hits both.
"""

from __future__ import annotations

import sqlite3
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psycopg
import pyarrow as pa

from tidemark.bench.persist_process import Fresh
from tidemark.clock import SYSTEM_CLOCK
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, TIME, Appended, PersistClient, WriteHandle, as_updates
from tidemark.persist.codec import encode

Say = Callable[[str], None]
"""Shows how far the work has come."""

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("name", pa.string())])
ROWS, REPLACED = 5_000, 50
NAMES = pa.array([f"product {i}" for i in range(1_000)])
SEED = 42
WARM = 100
MARKS = (1_000, 2_000, 4_000, 8_000)
"""Appends after which live parts are counted."""

SINCE_EVERY = 50
"""Appends after which the shard's owner lets since follow the upper."""


class Stores(NamedTuple):
    """Where a shard lives. What `mem://` holds, one process only can see."""

    blob: str
    consensus: str
    shard: str = "s"

    @property
    def shared(self) -> bool:
        return not self.consensus.startswith("mem:")

    def open(self) -> PersistClient:
        return PersistClient.open(blob=self.blob, consensus=self.consensus)


class Upserts:
    """Appends that replace rows, one time after the other."""

    def __init__(self, writer: WriteHandle):
        self._writer = writer
        self._rng = np.random.default_rng(SEED)
        self._values = np.arange(ROWS)
        self.now = 0
        keys = np.arange(ROWS)
        self.append(self._updates(keys, self._values[keys], np.ones(ROWS, dtype=np.int64)))

    def next(self) -> pa.Table:
        keys = self._rng.choice(ROWS, REPLACED, replace=False)
        old, new = self._values[keys], self._rng.integers(0, 1 << 40, REPLACED)
        self._values[keys] = new
        diffs = np.repeat([-1, 1], REPLACED)
        return self._updates(np.tile(keys, 2), np.concatenate([old, new]), diffs)

    def append_stamped(self) -> None:
        """Append updates whose value is the time of this call, in nanoseconds."""
        updates = self.next()
        stamps = np.full(updates.num_rows, now_ns())
        self.append(updates.set_column(1, updates.schema.field(1), pa.array(stamps)))

    def append(self, updates: pa.Table) -> float:
        """Seconds that it took."""
        lower, self.now = Frontier(self.now), self.now + 1
        start = SYSTEM_CLOCK.monotonic()
        outcome = self._writer.compare_and_append(updates, lower=lower, upper=Frontier(self.now))
        took = SYSTEM_CLOCK.monotonic() - start
        assert isinstance(outcome, Appended), outcome
        return took

    def finish(self) -> None:
        self._writer.advance_upper(Frontier.EMPTY)

    def _updates(self, keys: np.ndarray, values: np.ndarray, diffs: np.ndarray) -> pa.Table:
        names = NAMES.take(pa.array(values % len(NAMES)))
        columns = {"key": keys, "value": values, "name": names, DIFF: diffs}
        times = np.full(len(keys), self.now)
        return as_updates(pa.table({**columns, TIME: times}), schema=self._writer.schema)


Commit = Callable[[], float]
"""Makes one bare commit and says how many seconds it took."""


@contextmanager
def bare_commits(folder: Path, consensus: str, data: bytes) -> Iterator[Commit]:
    """Durable commits of `data` to the same kind of database, with nothing around them."""
    with _bare_postgres(consensus) if "postgres" in consensus else _bare_sqlite(folder) as insert:

        def commit() -> float:
            start = SYSTEM_CLOCK.monotonic()
            insert(data)
            return SYSTEM_CLOCK.monotonic() - start

        yield commit


@contextmanager
def _bare_sqlite(folder: Path) -> Iterator[Callable[[bytes], object]]:
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, data BLOB)")
        yield lambda data: connection.execute("INSERT INTO bare (data) VALUES (?)", (data,))


@contextmanager
def _bare_postgres(uri: str) -> Iterator[Callable[[bytes], object]]:
    # The driver does not know the URI's own option `schema`.
    with psycopg.connect(uri.partition("?")[0], autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("DROP TABLE IF EXISTS tidemark_bench")
        connection.execute("CREATE TABLE tidemark_bench (id bigserial PRIMARY KEY, data bytea)")
        yield lambda data: connection.execute(
            "INSERT INTO tidemark_bench (data) VALUES (%s)", (data,)
        )
        connection.execute("DROP TABLE tidemark_bench")


def measure_append(stores: Stores, folder: Path, count: int) -> dict[str, float]:
    with closing(stores.open()) as client:
        upserts = Upserts(open_writer(client, stores.shard))
        data = _version(client, stores.shard, upserts)
        client.start_maintenance()
        appends, commits = [], []
        with bare_commits(folder, stores.consensus, data) as commit:
            for _ in range(WARM + count):
                updates = upserts.next()
                appends.append(upserts.append(updates))
                commits.append(commit())
        client.finalize(stores.shard)
        return {
            "append_ms": _median_ms(appends[WARM:]),
            "append_p95_ms": 1000 * sorted(appends[WARM:])[int(0.95 * count)],
            "commit_ms": _median_ms(commits[WARM:]),
            "append_vs_commit": _median_ms(appends[WARM:]) / _median_ms(commits[WARM:]),
            "version_bytes": len(data),
        }


def measure_listen(stores: Stores, folder: Path, count: int) -> dict[str, float]:
    """From just before an append until a listener, in another process where the stores can be
    shared, has its updates."""
    rng = np.random.default_rng(SEED)
    with closing(stores.open()) as client:
        upserts = Upserts(open_writer(client, stores.shard))
        data, commits = _version(client, stores.shard, upserts), []
        client.start_maintenance()

        def write() -> None:
            with bare_commits(folder, stores.consensus, data) as commit:
                for _ in range(WARM + count):
                    upserts.append_stamped()
                    SYSTEM_CLOCK.sleep(rng.uniform(0.001, 0.008))
                    commits.append(commit())
                    SYSTEM_CLOCK.sleep(rng.uniform(0.001, 0.008))
            upserts.finish()

        if stores.shared:
            with Fresh(listen, *stores, upserts.now - 1) as listener:
                listener.wait_ready()
                write()
                waits = listener.result()
        else:
            steps = client.open_reader(stores.shard).listen(upserts.now - 1)
            with ThreadPoolExecutor(1) as pool:
                listening = pool.submit(_ages, steps)
                write()
                waits = listening.result()
        client.finalize(stores.shard)
        commits = commits[WARM:]
        return {
            "write_to_listen_ms": _median_ms(waits[WARM:]),
            "write_to_listen_p95_ms": 1000 * sorted(waits[WARM:])[int(0.95 * count)],
            "write_to_listen_vs_commit": _median_ms(waits[WARM:]) / _median_ms(commits),
        }


def listen(blob: str, consensus: str, shard: str, as_of: int) -> list[float]:
    """The ages of all appends after `as_of` when they come out of `listen`; in seconds."""
    with closing(Stores(blob, consensus, shard).open()) as client:
        steps = client.open_reader(shard).listen(as_of)
        print("ready", flush=True)
        return _ages(steps)


def _ages(steps: Iterator) -> list[float]:
    ages = []
    for step in steps:
        now = now_ns()  # CLOCK_MONOTONIC, which all processes of a machine share.
        ages += [(now - stamp) / 1e9 for stamp in np.unique(step.table["value"].to_numpy())]
    return ages


def measure_growth(folder: Path, count: int, *, follow: bool, say: Say) -> dict[str, float]:
    """Many appends: whether the last cost more than the first, and what has piled up by then.

    Each is compared with the bare commits of its own stretch. In the last stretch a young shard
    gets appends in turn with the old one, too: so both meet the same noise. `follow` lets since
    follow the upper; otherwise all history is retained.
    """
    window = count // 20
    stores = Stores(f"file://{folder}/blob", f"sqlite://{folder}/consensus.db")
    with closing(stores.open()) as client:
        upserts = Upserts(open_writer(client, stores.shard))
        young = Upserts(open_writer(client, "young"))
        data = _version(client, stores.shard, upserts)
        owner = client.open_critical_since(stores.shard)
        client.start_maintenance()
        appends, commits, parts, paired = [], [], [], []
        with bare_commits(folder, stores.consensus, data) as commit:
            for done in range(count):
                if done % 200 == 0:
                    say(f"{done:,} of {count:,}, {'since follows' if follow else 'all retained'}")
                if done == count - window:
                    for _ in range(WARM):
                        young.append(young.next())
                if done >= count - window:
                    paired.append(young.append(young.next()))
                updates = upserts.next()
                appends.append(upserts.append(updates))
                commits.append(commit())
                parts.append(sum(1 for _ in client.machine(stores.shard).cached.parts))
                if follow and done % SINCE_EVERY == 0:
                    owner.downgrade(Frontier(upserts.now - 1))
        early, late = slice(WARM, WARM + window), slice(count - window, count)
        before, after = (_median_ms(appends[w]) / _median_ms(commits[w]) for w in (early, late))
        state = client.state(stores.shard)
        return {
            "append_growth": after / before,
            "append_growth_paired": _median_ms(appends[late]) / _median_ms(paired),
            # Merges make them come and go: the most there were in the stretch before.
            **{f"live_parts_{at}": max(parts[at - window : at]) for at in MARKS if at < count},
            "live_parts": max(parts[late]),
            "live_rows": state.rows,
            "state_bytes": len(encode(state, state, "", rollup=True)),
            "log_versions": len(client.consensus.scan(stores.shard)),
        }


def open_writer(client: PersistClient, shard: str) -> WriteHandle:
    return client.open_writer(shard, schema=SCHEMA, key=("key",))


def now_ns() -> int:
    return int(SYSTEM_CLOCK.monotonic() * 1e9)


def _version(client: PersistClient, shard: str, upserts: Upserts) -> bytes:
    """What one append of 100 updates writes to Consensus."""
    upserts.append(upserts.next())
    head = client.consensus.head(shard)
    assert head is not None
    return head.data


def _median_ms(seconds: list[float]) -> float:
    return 1000 * statistics.median(seconds)
