"""Merges cut into ranges of positions: the same result as one merge, on Spark and without it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import Corruption, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.ipc import encode_schema
from tidemark.persist import Config, MemBlob, PersistClient, as_updates, consolidate
from tidemark.persist import order as order_module
from tidemark.persist.compact import Merge, compact, merge_range
from tidemark.persist.fsck import fsck
from tidemark.persist.gc import collect, leaked
from tidemark.persist.order import order, sort
from tidemark.persist.part import MissingPart, read_part
from tidemark.persist.ranges import Range, cut, overlapping
from tidemark.persist.runs import memory_of, schema_of
from tidemark.persist.staging import Stager
from tidemark.persist.state import Part, Run, State
from tidemark.persist.updates import advance, updates_schema
from tidemark.spark import compact as spark_compact
from tidemark.spark.compact import merge, next_groups
from tidemark.spark.session import start_spark

PROPERTY = settings(deadline=None, print_blob=True, max_examples=100)
ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])
UPDATES = updates_schema(ROWS)
TINY = Config(part_bytes=600, row_group_bytes=200, inline_total=0)
"""Parts of a dozen rows in row groups of four."""


@contextmanager
def hash_bits(bits: int) -> Iterator[None]:
    """Only so many bits of the hashes are left: positions have many rows."""
    mask = np.uint64(2**bits - 1)

    def masked(function):
        return lambda *args: function(*args) & mask

    with (
        patch.object(order_module, "_row_hash", masked(order_module._row_hash)),
        patch.object(order_module, "combine", masked(order_module.combine)),
    ):
        yield


def table(updates: list[tuple[int | None, str | None, int, int]]) -> pa.Table:
    columns = list(zip(*updates, strict=True)) or [[]] * 4
    arrays = [pa.array(c, f.type) for c, f in zip(columns, list(UPDATES)[:4], strict=True)]
    return as_updates(pa.table(arrays, names=UPDATES.names[:4]), schema=UPDATES)


def written(blob: MemBlob, shape: State, updates: pa.Table) -> Run:
    """One run of the updates, in parts."""
    stager = Stager(
        blob, shape.shard_id, key=shape.key, config=TINY, clock=SYSTEM_CLOCK, floor=lambda: 0
    )
    return tuple(stager.write([sort(updates, shape.key)], schema=0))


def contents(blob: MemBlob, run: Run, key: tuple[str, ...]) -> list[tuple]:
    """Its updates in order; different rows that share a position may come in any."""
    found = []
    for each in run:
        rows = read_part(blob, each, UPDATES)
        positions = order(rows, key)
        found += [(positions.at(n), repr(row)) for n, row in enumerate(rows.to_pylist())]
    assert [position for position, _ in found] == sorted(position for position, _ in found)
    return sorted(found)


histories = st.lists(
    st.lists(
        st.tuples(
            st.one_of(st.just(7), st.none(), st.integers(0, 3)),
            st.sampled_from([None, *"abcdefgh"]),
            st.integers(0, 5),
            st.integers(-2, 2),
        ),
        max_size=60,
    ),
    max_size=4,
)
keys = st.sampled_from([(), ("k",), ("v", "k")])
somewhere = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


@PROPERTY
@given(
    histories, keys, st.sampled_from([None, 3, 9]), st.sampled_from([64, 64, 3, 1, 0]), st.data()
)
def test_the_ranges_of_a_merge_are_the_merge(history, key, horizon, bits, data):
    with hash_bits(bits):
        blob = MemBlob()
        shape = State("s", schemas=(encode_schema(UPDATES),), key=key)
        runs = [written(blob, shape, table(updates)) for updates in history]
        runs = tuple(run for run in runs if run)
        whole = table([update for updates in history for update in updates])
        positions = order(whole, key)
        known = sorted({positions.at(n) for n in range(whole.num_rows)})
        bound = st.one_of(somewhere, st.sampled_from(known)) if known else somewhere
        bounds = sorted(set(data.draw(st.lists(bound, max_size=6))))
        ranges = [Range(a, b) for a, b in zip([None, *bounds], [*bounds, None], strict=True)]
        if data.draw(st.booleans()):
            ranges = cut(list(runs), data.draw(st.integers(1, 9)), key=key)
        expected = merge_range(Merge(shape, runs, horizon, TINY), blob, SYSTEM_CLOCK)
        pieces = [
            merge_range(Merge(shape, runs, horizon, TINY, within), blob, SYSTEM_CLOCK)
            for within in ranges
        ]
        found = tuple(part for piece in pieces for part in piece)
        assert contents(blob, found, key) == contents(blob, expected, key)
        for within, piece in zip(ranges, pieces, strict=True):
            for part in piece:
                placed = order(read_part(blob, part, UPDATES), key)
                assert part.first == placed.at(0)
                assert within.start is None or within.start <= placed.at(0)
                assert within.end is None or placed.at(-1) < within.end
        if found:
            everything = pa.concat_tables([read_part(blob, part, UPDATES) for part in found])
            moved = advance(whole, horizon) if horizon is not None else whole
            names = [(name, "ascending") for name in UPDATES.names]
            assert everything.sort_by(names) == consolidate(moved).sort_by(names)


def test_one_row_in_many_parts_is_in_one_range():
    blob, shape = MemBlob(), State("s", schemas=(encode_schema(UPDATES),), key=("k",))
    runs = [written(blob, shape, table([(1, "a", time, 1)] * 300)) for time in range(3)]
    assert all(len(run) > 5 and len({part.first for part in run}) == 1 for run in runs)
    ranges = cut(runs, 8, key=("k",))
    found = [
        merge_range(Merge(shape, tuple(runs), 9, TINY, within), blob, SYSTEM_CLOCK)
        for within in ranges
    ]
    assert [each.diffs for run in found for each in run] == [900]


def part(first: tuple[int, int] | None, memory: int = 100) -> Part:
    ordered = first is not None
    return Part(1, 1, 1, 0, 0, key="s/p", memory=memory, ordered=ordered, first=first)


def test_what_a_range_needs_of_a_run():
    run = (part((0, 3)), part((5, 0)), part((5, 0)), part((9, 1)))

    def needed(start, end) -> list[int]:
        chosen = overlapping(run, Range(start, end))
        return [at for at, each in enumerate(run) if any(each is one for one in chosen)]

    assert needed(None, None) == [0, 1, 2, 3]
    assert needed(None, (5, 0)) == [0]
    assert needed((5, 0), (5, 1)) == [0, 1, 2], "the part before may end with the same position"
    assert needed((5, 1), (9, 1)) == [2]
    assert needed((9, 1), (9, 2)) == [2, 3]
    assert needed((9, 5), None) == [3]
    loose = (part(None),)
    assert overlapping(loose, Range((1, 1), (1, 2))) == loose


firsts = st.one_of(somewhere, st.tuples(st.just(2**63), st.integers(0, 2**64 - 1)))


@PROPERTY
@given(
    st.lists(st.lists(st.tuples(firsts, st.integers(0, 10**9)), max_size=8), max_size=8),
    st.integers(1, 40),
)
def test_ranges_are_disjoint_and_cover_everything(parts, count):
    runs = [tuple(part(first, memory) for first, memory in sorted(run)) for run in parts]
    ranges = cut(runs, count, key=("k",))
    assert 1 <= len(ranges) <= count
    assert ranges[0].start is None
    assert ranges[-1].end is None
    bounds = [within.end for within in ranges[:-1]]
    assert bounds == [within.start for within in ranges[1:]]
    assert bounds == sorted(set(bounds))


@pytest.mark.parametrize("key", [(), ("k",)])
@pytest.mark.parametrize("parts", [1, 2, 50])
def test_ranges_are_of_about_the_same_size(key, parts):
    rng = random.Random(3)
    top = 2**64
    runs = []
    for _ in range(12):
        places = sorted(rng.randrange(top) for _ in range(1000))
        chosen = places[:: 1000 // parts]
        runs.append(tuple(part((p, 0) if key else (0, p)) for p in chosen))
    ranges = cut(runs, 6, key=key)
    shares = [((r.end or (top, top))[0 if key else 1] / top) for r in ranges]
    assert shares == pytest.approx([n / 6 for n in range(1, 7)], abs=0.03)


@PROPERTY
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 10**6)), max_size=60),
    st.sampled_from([0, 100_000, 1_000_000]),
)
def test_rounds_end_with_one_run(sizes, memory):
    config = Config(merge_memory=memory, part_bytes=5_000, row_group_bytes=1_000)
    runs = [(part((n, 0) if ordered else None, size),) for n, (ordered, size) in enumerate(sizes)]
    rounds = 0
    while True:
        groups, rest = next_groups(runs, config)
        grouped = [run for group in groups for run in group]
        assert sorted(map(memory_of, grouped + rest)) == sorted(map(memory_of, runs))
        new = [(part((0, 0), sum(map(memory_of, group))),) for group in groups if group]
        rounds += 1
        if not rest and len(new) <= 1:
            break
        assert len(rest + new) < len(runs) or any(run[0].first is None for run in grouped)
        runs = rest + new
    assert rounds <= 8


# On Spark.

CONFIG = Config(
    part_bytes=20_000,
    row_group_bytes=4_000,
    inline_bytes=2_000,
    merge_memory=400_000,
    heartbeat=False,
)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[PersistClient]:
    opened = connect(tmp_path)
    yield opened
    opened.close()


def connect(folder: Path) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{folder / 'blob'}",
        consensus=f"sqlite://{folder / 'consensus.db'}",
        config=CONFIG,
    )


def fill(client: PersistClient, *shards: str, key: tuple[str, ...] = ("k",), seed: int = 1) -> None:
    """The same history for all: large and small batches, with deletions; since is 15 of 20."""
    rng = np.random.default_rng(seed)
    writers = [client.open_writer(shard, schema=ROWS, key=key) for shard in shards]
    for time in range(20):
        rows = int(rng.choice([3, 40, 300, 2000]))
        hot = rng.random(rows) < 0.3
        keys = np.where(hot, 7, rng.integers(0, 500, rows))
        values = pa.array([f"value {n}" for n in rng.integers(0, 40, rows)])
        updates = as_updates(pa.table({"k": keys, "v": values}), time=time)
        diffs = pa.array(rng.choice([-1, 1, 1], rows))
        updates = updates.set_column(3, UPDATES.field("_diff"), diffs)
        for writer in writers:
            writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))
    for shard in shards:
        client.open_critical_since(shard).downgrade(Frontier(15))


def snapshot(client: PersistClient, shard: str, as_of: int) -> pa.Table:
    found = client.open_reader(shard).snapshot(as_of)
    return found.sort_by([(name, "ascending") for name in found.column_names])


def check(client: PersistClient, shard: str, like: str) -> None:
    """One run of ordered parts with the contents of the shard `like`."""
    state = client.state(shard)
    (run,) = [run for batch in state.batches for run in batch.runs]
    assert all(each.ordered and each.first is not None for each in run)
    assert [each.first for each in run] == sorted(each.first for each in run)
    for as_of in random.Random(5).sample(range(15, 20), 3):
        assert snapshot(client, shard, as_of) == snapshot(client, like, as_of)
    report = fsck(client, shard, clock=client.clock)
    assert report.is_clean
    assert not report.errors


@pytest.mark.parametrize("key", [(), ("k",)])
def test_a_merge_on_spark_is_the_merge(spark: SparkSession, small: PersistClient, key):
    fill(small, "here", "spark", key=key)
    assert merge(spark, small, "spark", small.state("spark").batches, report=lambda _: None)
    machine = small.machine("here")
    while len(machine.refresh().batches) > 1 or len(machine.cached.batches[0].runs) > 1:
        assert compact(machine, small.blob, machine.cached.batches)
    check(small, "spark", like="here")
    parts = {name: list(small.state(name).parts) for name in ("here", "spark")}
    assert len(parts["spark"]) > 5
    schema = schema_of(small.state("here"))
    whole = [
        pa.concat_tables([read_part(small.blob, each, schema) for each in parts[name]])
        for name in ("here", "spark")
    ]
    assert whole[0].to_pylist() == whole[1].to_pylist(), "update by update, in order"
    assert not leaked(small.machine("spark"), small.blob)


def test_nothing_is_left_of_what_comes_and_goes(spark: SparkSession, small: PersistClient):
    writer = small.open_writer("s", schema=ROWS, key=("k",))
    rows = pa.table({"k": list(range(2000)), "v": ["gone"] * 2000})
    for time, diff in ((0, 1), (1, -1)):
        updates = as_updates(rows, time=time, diff=diff)
        writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))
    small.open_critical_since("s").downgrade(Frontier(1))
    assert merge(spark, small, "s", small.state("s").batches)
    assert [batch.parts for batch in small.state("s").batches] == [()]
    assert not merge(spark, small, "s"), "nothing is due"
    assert not merge(spark, small, "nothing")


def test_an_append_meanwhile_stays(spark: SparkSession, small: PersistClient, monkeypatch):
    fill(small, "here", "spark")
    late = as_updates(pa.table({"k": [1], "v": ["late"]}), time=20)

    def append(shard: str) -> None:
        writer = small.open_writer(shard, schema=ROWS, key=("k",))
        writer.compare_and_append(late, lower=Frontier(20), upper=Frontier(21))

    meanwhile(monkeypatch, lambda: append("spark"))
    assert merge(spark, small, "spark", small.state("spark").batches)
    append("here")
    state = small.state("spark")
    assert [len(batch.runs) for batch in state.batches] == [1, 1]
    assert snapshot(small, "spark", 20) == snapshot(small, "here", 20)


def meanwhile(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Do it once, after the merge was planned and before its first task begins."""
    collect_tasks = spark_compact._Spot.collect
    left = [work]

    def collect_after(self, planned):
        while left:
            left.pop()()
        return collect_tasks(self, planned)

    monkeypatch.setattr(spark_compact._Spot, "collect", collect_after)


def test_batches_that_someone_else_merged(spark: SparkSession, small: PersistClient, monkeypatch):
    """And whose parts are deleted already."""
    fill(small, "here", "spark")
    machine = small.machine("spark")

    def merge_here() -> None:
        while len(machine.refresh().batches[0].runs) > 1 or len(machine.cached.batches) > 1:
            assert compact(machine, small.blob, machine.cached.batches)
        assert collect(machine, small.blob)

    meanwhile(monkeypatch, merge_here)
    assert not merge(spark, small, "spark", machine.refresh().batches)
    check(small, "spark", like="here")
    assert not leaked(machine, small.blob)


def test_of_two_merges_at_once_one_wins(spark: SparkSession, tmp_path: Path):
    clients = [connect(tmp_path) for _ in range(2)]
    fill(clients[0], "here", "spark")
    batches = clients[0].state("spark").batches
    done: list[bool] = []
    together = Barrier(2)

    def work(client: PersistClient) -> None:
        together.wait()
        done.append(merge(spark, client, "spark", batches, slots=1))

    threads = [Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, True]
    check(clients[0], "spark", like="here")
    assert not leaked(clients[0].machine("spark"), clients[0].blob)
    for client in clients:
        client.close()


def test_damage_is_told_and_changes_nothing(spark: SparkSession, small: PersistClient):
    fill(small, "s")
    state = small.state("s")
    largest = max(state.parts, key=lambda each: each.size)
    assert largest.key is not None
    data = small.blob.get(largest.key)
    assert data is not None
    small.blob.set(largest.key, data[:-100] + bytes(100))
    with pytest.raises(Corruption, match="cannot be read"):
        merge(spark, small, "s", state.batches)
    small.blob.delete(largest.key)
    with pytest.raises(MissingPart, match="is missing"):
        merge(spark, small, "s", state.batches)
    assert small.state("s").batches == state.batches
    assert not leaked(small.machine("s"), small.blob)


def test_a_job_that_fails(spark: SparkSession, small: PersistClient, monkeypatch):
    fill(small, "s")
    state = small.state("s")

    def fail(_blob: str, _data: bytes) -> bytes:
        raise RuntimeError("no room on this executor")

    monkeypatch.setattr(spark_compact, "carry_out", fail)
    with pytest.raises(Unavailable, match="failed on Spark: RuntimeError: no room on this exec"):
        merge(spark, small, "s", state.batches)
    assert small.state("s").batches == state.batches


def test_a_task_that_fails_once_is_repeated(tmp_path: Path):
    """In a process of its own: only there does Spark repeat tasks."""
    client = connect(tmp_path)
    fill(client, "here", "spark")
    code = "import sys, test_compact; test_compact.merge_with_failures(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=Path(__file__).parent,
        check=True,
        timeout=240,
    )
    check(client, "spark", like="here")
    machine = client.machine("spark")
    assert leaked(machine, client.blob), "what the failed attempts wrote"
    client.sweep("spark", older_than_ms=0)
    assert not leaked(machine, client.blob)
    assert {key for key, _ in client.blob.list("spark/")} == machine.refresh().keys
    check(client, "spark", like="here")
    client.close()


def merge_with_failures(folder: str) -> None:
    """Every task fails the first time, when it has written everything."""

    def fail_once(blob: str, data: bytes) -> bytes:
        from tidemark.spark.compact import carry_out

        outcome = carry_out(blob, data)
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("this attempt is lost")
        return outcome

    spark_compact.carry_out = fail_once
    spark = start_spark(master="local[2,4]", app="tidemark-test-retries")
    client = connect(Path(folder))
    assert merge(spark, client, "spark", client.state("spark").batches)
    client.close()
    spark.stop()


def test_the_command(tmp_path: Path):
    client = connect(tmp_path)
    fill(client, "here", "spark")
    command = [Path(sys.executable).parent / "tidemark", "shard", "compact", "spark", "--json"]
    command += ["--spark", "--spark-master", "local[2]", "--data", tmp_path]
    done = subprocess.run(command, check=True, timeout=240, stdout=subprocess.PIPE)
    (row,) = json.loads(done.stdout)["shards"]
    assert (row["merges"], row["after"]["runs"]) == (1, 1)
    check(client, "spark", like="here")
    client.close()


def test_a_blob_store_in_memory_is_refused(spark: SparkSession):
    client = PersistClient.open(blob="mem://", consensus="mem://")
    with pytest.raises(InvalidUsage, match="in this one's memory"):
        merge(spark, client, "s")
    client.close()


# The upkeep hands large merges over.


@pytest.mark.parametrize(("size", "expected"), [(0, 1), (2**40, 0)])
def test_the_upkeep_hands_over_what_is_large(small: PersistClient, size, expected):
    fill(small, "s")
    upkeep, machine = small._maintenance, small.machine("s")
    upkeep._config = Config(spark_merge_bytes=size)
    asked: list[str] = []
    upkeep._elsewhere = lambda shard_id, batches: asked.append(shard_id) is None
    before = machine.refresh().batches
    upkeep._merge_large(machine, before)
    assert len(asked) == expected
    assert (machine.refresh().batches == before) == bool(expected), "else it was merged here"


def test_the_upkeep_does_it_itself_if_spark_cannot(small: PersistClient):
    fill(small, "s")
    upkeep, machine = small._maintenance, small.machine("s")
    upkeep._config = Config(spark_merge_bytes=0)

    def unable(shard_id, batches):
        raise Unavailable("no executors")

    upkeep._elsewhere = unable
    upkeep._merge_large(machine, machine.refresh().batches)
    assert len(machine.refresh().batches) == 1
    assert not upkeep._retry_at
