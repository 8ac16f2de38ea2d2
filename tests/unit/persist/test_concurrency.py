"""Threads on shared handles, waiting, and the end of waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tidemark.errors import Cancelled, Corruption, Indeterminate
from tidemark.frontier import Frontier
from tidemark.persist import (
    Appended,
    FileBlob,
    MemBlob,
    MemConsensus,
    PersistClient,
    SqliteConsensus,
    WriteHandle,
    as_updates,
)
from tidemark.persist.consensus import Versioned
from tidemark.persist.part import encode_inline
from tidemark.persist.source import PartSource
from tidemark.persist.state import Part

SCHEMA = pa.schema([("k", pa.string())])


@pytest.fixture(params=["embedded", "memory"])
def open_client(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], PersistClient]:
    if request.param == "embedded":
        blob, consensus = (tmp_path / "blob").as_uri(), f"sqlite://{tmp_path}/consensus"
        return lambda: PersistClient.open(blob=blob, consensus=consensus)
    blob, consensus = MemBlob(), MemConsensus()
    return lambda: PersistClient(blob, consensus)


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


def append(writer: WriteHandle, k: str) -> None:
    """Append one row at whatever time turns out to be next."""
    while True:
        lower = writer.fetch_upper()
        assert lower.time is not None
        rows = as_updates(pa.table({"k": [k]}), time=lower.time)
        outcome = writer.compare_and_append(rows, lower=lower, upper=Frontier(lower.time + 1))
        if isinstance(outcome, Appended):
            return


def contents(client: PersistClient) -> list[str]:
    reader = client.open_reader("s")
    upper = reader.upper.time
    assert upper
    table = reader.snapshot(upper - 1)
    assert set(table["_diff"].to_pylist()) == {1}
    return sorted(table["k"].to_pylist())


def test_threads_append_through_one_handle_and_several(open_client):
    shared = open_client()
    one = shared.open_writer("s", schema=SCHEMA)
    other = open_client()

    def through(writer: WriteHandle, name: str) -> Callable[[], None]:
        return lambda: [append(writer, f"{name}{n:02}") for n in range(15)] and None

    def upkeep() -> None:
        for _ in range(15):
            other.maintain("s")

    run_all(
        through(one, "a"),
        through(one, "b"),
        through(shared.open_writer("s", schema=SCHEMA), "c"),
        through(other.open_writer("s", schema=SCHEMA), "d"),
        upkeep,
    )
    assert contents(open_client()) == [f"{name}{n:02}" for name in "abcd" for n in range(15)]


class Flaky:
    """Every third commit happens and is reported as unsure, a little late: others can go on."""

    def __init__(self, inner: MemConsensus):
        self.inner = inner
        self.calls = 0

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        won = self.inner.compare_and_set(key, new)
        self.calls += 1
        if won and self.calls % 3 == 0:
            threading.Event().wait(0.002)
            raise Indeterminate("who knows")
        return won


def test_unsure_appends_through_one_handle_are_each_in_once(monkeypatch):
    """The handle's token is that of its last append, so appends of one handle must not mix."""
    monkeypatch.setattr("tidemark.persist.write.INLINE_BUDGET", 0)
    client = PersistClient(MemBlob(), Flaky(MemConsensus()))
    writer = client.open_writer("s", schema=SCHEMA)
    run_all(*(lambda me=me: [append(writer, f"{me}{n:02}") for n in range(25)] for me in "abcd"))
    assert contents(client) == sorted(f"{me}{n:02}" for me in "abcd" for n in range(25))


class TestWaiting:
    def test_a_waiter_learns_of_another_client_s_append(self, open_client):
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

    def test_a_snapshot_waits_for_its_time(self, open_client):
        client = open_client()
        writer = open_client().open_writer("s", schema=SCHEMA)
        found: list[int] = []
        run_all(
            lambda: found.append(client.open_reader("s").snapshot(2).num_rows),
            lambda: [append(writer, k) for k in "abc"],
        )
        assert found == [3]

    def test_a_timeout_is_none(self, open_client):
        reader = open_client().open_reader("s")
        assert reader.wait_for_upper_past(0, timeout=0) is None

    def test_closing_the_client_ends_the_wait(self, open_client):
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

    def test_a_listener_hears_everything_once_and_in_order(self, open_client):
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

        run_all(listen, write)
        assert heard == [str(n) for n in range(20)]
        assert progress[-1] == Frontier.EMPTY


class TestPartSource:
    def part(self, k: str, schema: pa.Schema = SCHEMA) -> Part:
        encoded = encode_inline(pa.table({schema.names[0]: [k]}, schema=schema))
        return Part(rows=1, size=len(encoded), diffs=1, min_time=0, max_time=0, inline=encoded)

    def test_inline_parts_are_told_apart_by_their_bytes(self):
        source = PartSource(MemBlob())
        other = pa.schema([("x", pa.string())])
        assert source.read(self.part("a"), SCHEMA).to_pydict() == {"k": ["a"]}
        assert source.read(self.part("b"), SCHEMA).to_pydict() == {"k": ["b"]}
        assert source.read(self.part("a", other), other).to_pydict() == {"x": ["a"]}
        assert source.read(self.part("a"), SCHEMA) is source.read(self.part("a"), SCHEMA)

    def test_the_cache_stays_within_its_limit(self):
        source = PartSource(MemBlob(), cache_bytes=100)
        for n in range(50):
            source.read(self.part(f"{n:04}"), SCHEMA)
            assert source._size <= 100
        assert source._size == sum(table.nbytes for table in source._cache.values())


def test_a_state_that_cannot_be_read_names_its_shard(tmp_path: Path):
    consensus = MemConsensus()
    consensus.compare_and_set("s", Versioned(0, b"\xc1 not msgpack"))
    with pytest.raises(Corruption, match="shard s cannot be read"):
        PersistClient(MemBlob(), consensus).state("s")


def test_a_state_from_the_future_is_refused():
    consensus = MemConsensus()
    data = msgspec.msgpack.encode({"version": 99, "shard_id": "s", "novel": 1})
    consensus.compare_and_set("s", Versioned(0, data))
    with pytest.raises(Corruption, match="upgrade Tidemark"):
        PersistClient(MemBlob(), consensus).state("s")


def test_background_maintenance_compacts_what_this_process_writes(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tidemark.persist.client.MAINTAIN_EVERY", 0.001)
    client = PersistClient(FileBlob(tmp_path / "b"), SqliteConsensus(tmp_path / "c"))
    writer = client.open_writer("s", schema=SCHEMA)
    client.start_maintenance()

    def merge_seen() -> bool | None:
        state = client.state("s")
        return True if any(p.key for b in state.batches for p in b.parts) else None

    for n in range(20):
        append(writer, f"{n:02}")
    assert client.watch.wait_for(merge_seen)
    client.close()
    assert contents(PersistClient(FileBlob(tmp_path / "b"), SqliteConsensus(tmp_path / "c"))) == [
        f"{n:02}" for n in range(20)
    ]
