"""Indexes: exact at every readable time, fresh without being asked, errors and all."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.index import Index, Indexes, memory_limit
from tidemark.compute.protocol import IndexSpec
from tidemark.errors import Cancelled, DataError
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient
from tidemark.persist.write import WriteHandle

SCHEMA = pa.schema([("k", pa.int64()), ("part", pa.string()), ("v", pa.int64())])
Update = tuple[int | None, str | None, int | None, int, int, str | None]


def never() -> bool:
    return False


class Shard:
    """A shard, and what was written to it."""

    def __init__(self, client: PersistClient):
        self.client = client
        self.writer: WriteHandle = client.open_writer("u1", schema=SCHEMA)
        self.hold = client.open_critical_since("u1")
        self.history: list[Update] = []
        self.upper = 0

    def write(self, updates: list[Update], upper: int) -> None:
        columns = list(zip(*updates, strict=True)) or [[]] * 6
        fields = [*SCHEMA, (TIME, pa.int64()), (DIFF, pa.int64()), (ERR, pa.string())]
        schema = pa.schema(fields)
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema
        )
        self.writer.append(table, lower=Frontier(self.upper), upper=Frontier(upper))
        self.history += updates
        self.upper = upper

    def forget(self, since: int) -> None:
        self.hold.downgrade(Frontier(since))
        self.client.maintain("u1")

    def at(self, keys: set[tuple[int | None, str | None]], as_of: int) -> Counter:
        found: Counter = Counter()
        for k, part, v, time, diff, err in self.history:
            if time <= as_of and err is None and (k, part) in keys:
                found[k, part, v] += diff
        return Counter({row: n for row, n in found.items() if n})


def looked_up(index: Index, keys: set[tuple[int | None, str | None]], as_of: int) -> Counter:
    listed = list(keys)
    table = pa.table(
        {
            "k": pa.array([k for k, _ in listed], pa.int64()),
            "p": pa.array([p for _, p in listed], pa.string()),
        }
    )
    found = index.lookup(table, as_of, never)
    assert found is not None
    return Counter(
        {
            (r["k"], r["part"], r["v"]): r[DIFF]
            for r in found.select([*SCHEMA.names, DIFF]).to_pylist()
        }
    )


def eventually(what: str, look) -> None:
    last = SYSTEM_CLOCK.monotonic() + 60
    while not look():
        assert SYSTEM_CLOCK.monotonic() < last, what
        SYSTEM_CLOCK.sleep(0.01)


@pytest.fixture
def shard(client: PersistClient) -> Shard:
    return Shard(client)


@pytest.fixture
def index(shard: Shard, client: PersistClient, tmp_path: Path) -> Iterator[Index]:
    spec = IndexSpec("u2", "u1", ("k", "part"))
    made = Index(spec, client, Arrangements(client, tmp_path / "cache"))
    yield made
    if made._thread.is_alive():
        made.stop()


@pytest.mark.parametrize("seed", range(6))
def test_exact_at_every_readable_time(shard: Shard, index: Index, client: PersistClient, seed: int):
    rng = random.Random(seed)
    since, live = 0, []
    for step in range(12):
        updates: list[Update] = []
        for time in range(shard.upper, shard.upper + 3):
            for _ in range(rng.randrange(12)):
                if live and rng.random() < 0.4:
                    k, part, v = live.pop(rng.randrange(len(live)))
                    updates.append((k, part, v, time, -1, None))
                else:
                    row = (
                        rng.choice([None, *range(4)]),
                        rng.choice([None, "a", "b"]),
                        rng.randrange(3),
                    )
                    copies = rng.choice([1, 1, 1, 2])
                    live += [row] * copies
                    updates.append((*row, time, copies, None))
        shard.write(updates, shard.upper + 3)
        if rng.random() < 0.5:
            since = rng.randrange(since, shard.upper)
            shard.forget(since)
        index.step(client.state("u1"))
        for as_of in range(since, shard.upper):
            keys = {
                (rng.choice([None, 0, 1, 2, 3]), rng.choice([None, "a", "b"])) for _ in range(3)
            }
            assert looked_up(index, keys, as_of) == shard.at(keys, as_of), (seed, step, as_of)


def test_errors_fail_every_look_up_while_they_are_there(
    shard: Shard, index: Index, client: PersistClient
):
    shard.write([(1, "a", 1, 0, 1, None)], 1)
    shard.write([(None, None, None, 1, 1, "division by zero")], 2)
    shard.write([(None, None, None, 2, -1, "division by zero")], 3)
    index.step(client.state("u1"))
    assert looked_up(index, {(1, "a")}, 0) == {(1, "a", 1): 1}
    for _ in range(2):
        with pytest.raises(DataError, match="division by zero"):
            looked_up(index, {(7, "none")}, 1)
    assert looked_up(index, {(1, "a")}, 2) == {(1, "a", 1): 1}
    shard.forget(2)
    index.step(client.state("u1"))
    assert looked_up(index, {(1, "a")}, 2) == {(1, "a", 1): 1}


def test_it_follows_without_being_asked(shard: Shard, index: Index):
    shard.write([(1, "a", 1, 0, 1, None)], 1)
    index.start()
    eventually("it is hydrated", lambda: index.hydrated)
    shard.write([(1, "a", 2, 5, 1, None)], 6)
    eventually("it has followed", lambda: index.status().index.upper == 6)
    assert index.status().index.rows == 2
    index.stop()
    assert index.lookup(pa.table({"k": [1], "p": ["a"]}), 5, never) is None


def test_a_look_up_waits_for_its_time_and_can_be_cancelled(
    shard: Shard, index: Index, client: PersistClient
):
    shard.write([(1, "a", 1, 0, 1, None)], 1)
    index.step(client.state("u1"))
    done = threading.Event()

    def look() -> None:
        assert looked_up(index, {(1, "a")}, 3) == {(1, "a", 1): 1, (1, "a", 2): 1}
        done.set()

    thread = threading.Thread(target=look)
    thread.start()
    assert not done.is_set()
    shard.write([(1, "a", 2, 3, 1, None)], 4)
    thread.join(60)
    assert done.is_set()
    with pytest.raises(Cancelled):
        index.lookup(pa.table({"k": [1], "p": ["a"]}), 100, lambda: True)


def test_history_that_went_while_it_was_away(shard: Shard, index: Index, client: PersistClient):
    shard.write([(1, "a", 1, 0, 1, None)], 1)
    index.step(client.state("u1"))
    for time in range(1, 50):
        shard.write([(1, "a", time, time, 1, None), (1, "a", time, time, -1, None)], time + 1)
    shard.forget(49)
    index.step(client.state("u1"))
    assert looked_up(index, {(1, "a")}, 49) == {(1, "a", 1): 1}


def test_configured_like_everything_else(shard: Shard, client: PersistClient, tmp_path: Path):
    shard.write([(1, "a", 1, 0, 1, None)], 1)
    arrangements = Arrangements(client, tmp_path / "cache")
    indexes = Indexes(client, arrangements)
    one, two = IndexSpec("u2", "u1", ("k",)), IndexSpec("u3", "u1", ("v",))
    indexes.configure([one, two])
    eventually("both are hydrated", lambda: all(s.hydrated for s in indexes.statuses()))
    (kept,) = [i for i in indexes.of_shard("u1") if i.spec == one]
    indexes.configure([one])
    assert indexes.of_shard("u1") == [kept]
    assert arrangements.keys_of("u1") == [("k",)]
    indexes.stop()
    assert arrangements.keys_of("u1") == []


def test_memory_is_bounded(shard: Shard, client: PersistClient, tmp_path: Path):
    shard.write([(1, "a", 1, 0, 1, None)], 1)
    indexes = Indexes(client, Arrangements(client, tmp_path / "cache"), memory=50_000)
    indexes.configure([IndexSpec("u2", "u1", ("k", "part"))])
    (index,) = indexes.of_shard("u1")
    for time in range(1, 40):
        shard.write([(k, "b", time, time, 1, None) for k in range(100)], time + 1)
    eventually("it has followed", lambda: index.status().index.upper == 40)
    size = index.status().index
    assert size.rows == 3901
    assert size.memory <= 50_000 < size.bytes
    keys = {(7, "b"), (1, "a")}
    for as_of in (0, 3, 17, 39):
        assert looked_up(index, keys, as_of) == shard.at(keys, as_of)
    indexes.stop()


def test_the_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEMARK_INDEX_MEMORY", "64 MB")
    assert memory_limit() == 64 << 20
