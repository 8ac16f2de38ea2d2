"""Threads on shared handles and clients side by side, waiting, and the end of waiting."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemark.errors import Cancelled
from tidemark.frontier import Frontier
from tidemark.persist import (
    Appended,
    Config,
    EpochMismatch,
    FileBlob,
    MemBlob,
    MemConsensus,
    PersistClient,
    SqliteConsensus,
    WriteHandle,
    as_updates,
)
from tidemark.persist.part import encode_small
from tidemark.persist.source import PartSource
from tidemark.persist.state import Part, check
from tidemark.persist.updates import updates_schema
from unreliable import UnreliableConsensus

SCHEMA = pa.schema([("k", pa.string())])
UPDATES = updates_schema(SCHEMA)

Open = Callable[..., PersistClient]


@pytest.fixture(params=["embedded", "memory"])
def open_client(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "embedded":
        blob, consensus = (tmp_path / "blob").as_uri(), f"sqlite://{tmp_path}/consensus"
        return lambda **config: PersistClient.open(
            blob=blob, consensus=consensus, config=Config(**config)
        )
    blob, consensus = MemBlob(), MemConsensus()
    return lambda **config: PersistClient(blob, consensus, config=Config(**config))


def run_all(*targets: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def guarded(target: Callable[[], object]) -> None:
        try:
            target()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def append(writer: WriteHandle, *keys: str, diff: int = 1) -> None:
    """Append rows at whatever time turns out to be next."""
    while True:
        lower = writer.fetch_upper()
        assert lower.time is not None
        rows = as_updates(pa.table({"k": list(keys)}), time=lower.time, diff=diff, schema=UPDATES)
        outcome = writer.compare_and_append(rows, lower=lower, upper=Frontier(lower.time + 1))
        if isinstance(outcome, Appended):
            return


def contents(client: PersistClient) -> list[str]:
    reader = client.open_reader("s")
    upper = reader.upper.time
    assert upper
    table = reader.snapshot(upper - 1)
    assert set(table["_diff"].to_pylist()) <= {1}
    return sorted(table["k"].to_pylist())


def numbered(names: str, count: int) -> list[str]:
    return [f"{name}{n:02}" for name in names for n in range(count)]


def test_threads_append_through_one_handle_and_several(open_client: Open):
    shared = open_client()
    one = shared.open_writer("s", schema=SCHEMA)
    other = open_client(inline_total=0, small_batches=3, rollup_every=4)

    def through(writer: WriteHandle, name: str) -> Callable[[], object]:
        return lambda: [append(writer, key) for key in numbered(name, 15)]

    run_all(
        through(one, "a"),
        through(one, "b"),
        through(shared.open_writer("s", schema=SCHEMA), "c"),
        through(other.open_writer("s", schema=SCHEMA), "d"),
        lambda: [other.maintain("s") for _ in range(15)],
    )
    assert contents(open_client()) == numbered("abcd", 15)
    check(other.state("s"))


def test_unsure_appends_through_one_handle_are_each_in_once():
    """The handle's token is that of its last append, so appends of one handle must not mix."""
    consensus = UnreliableConsensus(MemConsensus())
    client = PersistClient(MemBlob(), consensus, config=Config(inline_total=0))
    writer = client.open_writer("s", schema=SCHEMA)
    writer.register()
    # Each happens and is reported as unsure, a little late: others can go on meanwhile.
    consensus.fail("after", times=60, meanwhile=lambda: threading.Event().wait(0.002))
    run_all(*(lambda me=me: [append(writer, key) for key in numbered(me, 25)] for me in "abcd"))
    assert contents(client) == numbered("abcd", 25)


def test_every_read_is_of_one_time(open_client: Open):
    """Each append takes one row away and puts another in its place: there are ten at all times,
    while merges, sweeps and a moving since change what they are read from."""
    config = {"inline_bytes": 700, "small_batches": 2, "inline_batches": 2, "rollup_every": 5}
    append(open_client().open_writer("s", schema=SCHEMA), *map(str, range(10)))
    done = threading.Event()

    def move(seed: int) -> None:
        chance = random.Random(seed)
        client = open_client(**config)
        writer, reader = client.open_writer("s", schema=SCHEMA), client.open_reader("s")
        moved = 0
        while moved < 12:
            lower = writer.fetch_upper().time
            assert lower is not None
            here = sorted(reader.snapshot(lower - 1)["k"].to_pylist())
            one, other = chance.choice(here), f"{seed}-{moved}"
            rows = pa.table({"k": [one, other], "_diff": [-1, 1]})
            outcome = writer.compare_and_append(
                as_updates(rows, time=lower, schema=UPDATES),
                lower=Frontier(lower),
                upper=Frontier(lower + 1),
            )
            moved += isinstance(outcome, Appended)

    def keep(client: PersistClient) -> None:
        since = client.open_critical_since("s")
        while not done.is_set():
            client.maintain("s")
            client.sweep("s")
            upper = client.state("s").upper.time
            assert upper is not None
            since.downgrade(Frontier(max(upper - 4, 0)))

    def look(client: PersistClient) -> None:
        reader = client.open_reader("s")
        while not done.is_set():
            with reader.lease() as lease:
                since, upper = lease.state.since.time, lease.state.upper.time
                assert since is not None
                assert upper is not None
                as_of = max(since, upper - 2)
                assert pc.sum(reader.snapshot(as_of)["_diff"]).as_py() == 10
                pieces = list(reader.stream(as_of))
                assert sum(piece.num_rows for piece in pieces) == 10

    def movers() -> None:
        try:
            run_all(*(lambda n=n: move(n) for n in range(3)))
        finally:
            done.set()

    run_all(movers, lambda: keep(open_client(**config)), lambda: look(open_client(**config)))
    state = check(open_client().state("s"))
    assert state.upper == Frontier(37)
    assert not [hold for hold in state.holds if hold.startswith("lease")]


def test_of_many_who_lead_one_is_left(open_client: Open):
    """Epochs race for one hold: the highest has it in the end, and nobody went back."""
    append(open_client().open_writer("s", schema=SCHEMA), "a")
    fenced: list[int] = []

    def lead(epoch: int) -> None:
        handle = open_client().open_critical_since("s", epoch=epoch)
        for since in range(10):
            if isinstance(handle.downgrade(Frontier(since)), EpochMismatch):
                fenced.append(epoch)
                return

    run_all(*(lambda epoch=epoch: lead(epoch) for epoch in range(1, 6)))
    hold = open_client().state("s").holds["control"]
    assert hold.epoch == 5
    assert hold.since == Frontier(9)
    assert 5 not in fenced


def test_only_one_of_two_evolutions_wins(open_client: Open):
    append(open_client().open_writer("s", schema=SCHEMA), "a")
    lost: list[bool] = []

    def evolve(column: str) -> None:
        writer = open_client().open_writer("s", schema=SCHEMA)
        outcome = writer.evolve_schema(pa.schema([*SCHEMA, (column, pa.int64())]))
        lost.append(outcome is not None)

    run_all(*(lambda column=column: evolve(column) for column in "xyz"))
    assert sorted(lost) == [False, True, True]
    assert len(open_client().state("s").schemas) == 2


class TestWaiting:
    def test_a_waiter_learns_of_another_client_s_append(self, open_client: Open):
        reader = open_client().open_reader("s")
        writer = open_client().open_writer("s", schema=SCHEMA)
        seen: list[Frontier | None] = []
        begun = threading.Event()

        def wait() -> None:
            begun.set()
            for time in range(5):
                seen.append(reader.wait_for_upper_past(time))

        def write() -> None:
            begun.wait()
            for n in range(5):
                append(writer, str(n))

        run_all(wait, write)
        assert len(seen) == 5
        assert all(upper is not None and upper.covers(time) for time, upper in enumerate(seen))

    def test_a_snapshot_waits_for_its_time(self, open_client: Open):
        client = open_client()
        writer = open_client().open_writer("s", schema=SCHEMA)
        append(writer, "a")
        found: list[int] = []
        run_all(
            lambda: found.append(client.open_reader("s").snapshot(2).num_rows),
            lambda: [append(writer, k) for k in "bc"],
        )
        assert found == [3]

    def test_a_timeout_is_none(self, open_client: Open):
        reader = open_client().open_reader("s")
        assert reader.wait_for_upper_past(0, timeout=0) is None

    def test_closing_the_client_ends_the_wait(self, open_client: Open):
        """An unfinished snapshot must not come back as if it were one."""
        client = open_client()
        append(client.open_writer("s", schema=SCHEMA), "a")
        reader = client.open_reader("s")
        heard: list[Frontier] = []

        def snapshot() -> None:
            with pytest.raises(Cancelled, match="closed"):
                reader.snapshot(100)

        def listen() -> None:
            for found in reader.listen(-1):
                heard.append(found.upper)
                client.close()

        run_all(snapshot, listen)
        assert heard == [Frontier(1)]

    def test_a_listener_hears_everything_once_and_in_order(self, open_client: Open):
        writer = open_client().open_writer("s", schema=SCHEMA)
        append(writer, "0")
        heard: list[str] = []
        progress: list[Frontier] = [Frontier(0)]

        def listen() -> None:
            for found in open_client().open_reader("s").listen(-1):
                assert found.lower == progress[-1]
                assert found.lower < found.upper
                progress.append(found.upper)
                heard.extend(found.table["k"].to_pylist())

        def write() -> None:
            for n in range(1, 20):
                append(writer, str(n))
            writer.advance_upper(Frontier.EMPTY)

        run_all(listen, write, lambda: [open_client().maintain("s") for _ in range(5)])
        assert sorted(heard, key=int) == [str(n) for n in range(20)]
        assert progress[-1] == Frontier.EMPTY

    def test_the_async_twins_see_the_same(self, open_client: Open):
        client = open_client()
        writer = client.open_writer("s", schema=SCHEMA)
        append(writer, "a")
        append(writer, "b")

        async def main() -> list[list[str]]:
            reader = client.open_reader("s")
            steps = [sorted((await reader.snapshot_async(1))["k"].to_pylist())]
            async with aclosing(reader.subscribe_async(0)) as updates:
                async for step in updates:
                    steps.append(sorted(step.table["k"].to_pylist()))
                    if len(steps) == 3:
                        await asyncio.to_thread(append, writer, "c")
                    if len(steps) == 4:
                        break
            assert await reader.wait_for_upper_past_async(9, timeout=0) is None
            return steps

        assert asyncio.run(main()) == [["a", "b"], ["a"], ["b"], ["c"]]
        assert not client.state("s").holds, "closed, it has given its leases up"


class TestPartSource:
    def part(self, k: str, schema: pa.Schema = SCHEMA) -> Part:
        rows = pa.table({schema.names[0]: [k]}, schema=schema)
        table = as_updates(rows, time=0, schema=updates_schema(schema))
        part = encode_small(table, Config(), schema=0)
        assert part is not None
        return part

    def keys(self, table: pa.Table) -> list[str]:
        return table.column(0).to_pylist()

    def test_inline_parts_are_told_apart_by_their_bytes(self):
        source = PartSource(MemBlob(), Config())
        other = pa.schema([("x", pa.string())])
        assert self.keys(source.read(self.part("a"), UPDATES)) == ["a"]
        assert self.keys(source.read(self.part("b"), UPDATES)) == ["b"]
        found = source.read(self.part("a", other), updates_schema(other))
        assert found.column_names[0] == "x"
        assert source.read(self.part("a"), UPDATES) is source.read(self.part("a"), UPDATES)

    def test_the_cache_stays_within_its_limit(self):
        size = PartSource(MemBlob(), Config()).read(self.part("0000"), UPDATES).nbytes
        source = PartSource(MemBlob(), Config(cache_bytes=10 * size))
        for n in range(50):
            source.read(self.part(f"{n:04}"), UPDATES)
            assert source._size <= 10 * size
        assert len(source._cache) == 10
        assert source._size == sum(table.nbytes for table in source._cache.values())

    def test_what_is_too_large_for_the_cache_is_read_each_time(self):
        source = PartSource(MemBlob(), Config(cache_bytes=8))
        assert self.keys(source.read(self.part("a"), UPDATES)) == ["a"]
        assert not source._cache

    def test_threads_share_it(self):
        source = PartSource(MemBlob(), Config(cache_bytes=200))
        parts = {f"{n:02}": self.part(f"{n:02}") for n in range(20)}

        def read(seed: int) -> None:
            for key in random.Random(seed).choices(sorted(parts), k=100):
                assert self.keys(source.read(parts[key], UPDATES)) == [key]

        run_all(*(lambda seed=seed: read(seed) for seed in range(4)))
        assert source._size == sum(table.nbytes for table in source._cache.values())


def test_background_maintenance_compacts_what_this_process_writes(tmp_path: Path):
    blob, consensus = FileBlob(tmp_path / "b"), SqliteConsensus(tmp_path / "c")
    client = PersistClient(blob, consensus, config=Config(maintain_every=0.001, inline_batches=8))
    writer = client.open_writer("s", schema=SCHEMA)
    client.start_maintenance()

    def merge_seen() -> bool | None:
        return True if any(part.key for part in client.state("s").parts) else None

    for n in range(20):
        append(writer, f"{n:02}")
    assert client.watch.wait_for("s", merge_seen, timeout=60)
    client.close()
    again = PersistClient(FileBlob(tmp_path / "b"), SqliteConsensus(tmp_path / "c"))
    assert contents(again) == [f"{n:02}" for n in range(20)]


def test_the_heartbeat_keeps_leases_alive(open_client: Open):
    """A lease much shorter than the test, which only ends when its owner lets go of it."""
    client, other = open_client(lease_ms=6_000), open_client()
    append(client.open_writer("s", schema=SCHEMA), "a")
    with client.open_reader("s").lease(0) as lease:
        (first,) = (hold.expires_ms for hold in other.state("s").holds.values())

        def renewed() -> bool | None:
            (hold,) = other.state("s").holds.values()
            assert first is not None
            assert hold.expires_ms is not None
            return True if hold.expires_ms > first + 500 else None

        assert other.watch.wait_for("s", renewed, timeout=60)
        lease.check()
    assert not other.state("s").holds
    client.close()
