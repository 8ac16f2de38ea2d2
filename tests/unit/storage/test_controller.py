"""The controller: durable definitions, renditions that do not mix, and what it answers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tidemark.errors import AsOfBeforeSince, Fenced, Indeterminate, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import (
    Appended,
    MemBlob,
    MemConsensus,
    PersistClient,
    UpperMismatch,
    as_updates,
)
from tidemark.persist.updates import DIFF, ERR
from tidemark.storage.controller import Storage
from tidemark.storage.generated import Generated
from tidemark.storage.generators import generator
from tidemark.storage.kafka.spec import KafkaConnection, KafkaSink, sink_holder
from tidemark.storage.source import Counts, Ingestion, Statistics
from tidemark.storage.spec import GeneratorSource
from tidemark.types import BIGINT, Column
from unreliable import UnreliableConsensus

ROWS = pa.schema([pa.field("k", pa.int64())])

COUNTER = GeneratorSource(
    id="u1",
    kind="counter",
    options={},
    remap="u1-remap",
    shards={"counter": "u1"},
    tick_ms=100,
    interval_ms=1_000,
)

SINK = KafkaSink(
    id="u2-x",
    connection=KafkaConnection("localhost:9092"),
    topic="t",
    shard="u1",
    columns=(Column("counter", BIGINT),),
    key=("counter",),
    as_of=0,
)


def back(
    storage: Storage, rendition: int, lower: int, upper: int, *keys: int
) -> Appended | UpperMismatch:
    """Write keys back at `lower`."""
    updates = _row(*keys, time=lower)
    bounds = {"lower": Frontier(lower), "upper": Frontier(upper)}
    return storage.write_back("c", updates, **bounds, rendition=rendition)


def _row(*keys: int, time: int = 0) -> pa.Table:
    return as_updates(pa.table({"k": pa.array(keys, pa.int64())}), time=time)


@pytest.fixture
def storage(client: PersistClient) -> Storage:
    return Storage(client, "storage")


class TestDefinitions:
    def test_a_new_controller_finds_them_and_shuts_the_old_one_out(
        self, client: PersistClient, storage: Storage
    ) -> None:
        storage.create_source(COUNTER)
        storage.create_sink(SINK)
        second = Storage(client, "storage")
        assert second.definitions == storage.definitions == {"u1": COUNTER, "u2-x": SINK}
        with pytest.raises(Fenced, match="taken over"):
            storage.drop_source("u1")

    def test_the_same_twice_is_once_and_another_is_refused(self, storage: Storage) -> None:
        storage.create_source(COUNTER)
        storage.create_source(COUNTER)
        assert list(storage.definitions) == ["u1"]
        other = replace(COUNTER, tick_ms=7)
        with pytest.raises(InvalidUsage, match="defined already"):
            storage.create_source(other)
        assert storage.definitions["u1"] == COUNTER

    def test_a_restart_does_not_disturb_a_running_ingestion(
        self, client: PersistClient, storage: Storage
    ) -> None:
        storage.create_source(COUNTER)
        running = _ingestion(client)
        running.step()
        first = storage.frontiers("u1")["u1"].upper
        restarted = Storage(client, "storage")
        client.clock.sleep(1.1)
        running.step()
        assert restarted.frontiers("u1")["u1"].upper > first
        assert running.statistics.mismatches == 0

    def test_dropping_a_source_drops_what_it_wrote(
        self, client: PersistClient, storage: Storage
    ) -> None:
        storage.create_source(COUNTER)
        _ingestion(client).step()
        storage.drop_source("u1")
        storage.drop_source("u1")
        assert not storage.definitions
        assert all(client.state(shard).is_tombstone for shard in ("u1", "u1-remap"))
        assert _ingestion(client).write(Frontier(10)) is None

    def test_a_drop_that_was_cut_short_is_finished(
        self, client: PersistClient, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage.create_source(COUNTER)
        finalize = client.finalize

        def cut(shard_id: str) -> None:
            finalize(shard_id)
            raise KeyboardInterrupt

        monkeypatch.setattr(client, "finalize", cut)
        with pytest.raises(KeyboardInterrupt):
            storage.drop_source("u1")
        monkeypatch.undo()
        again = Storage(client, "storage")
        assert "u1" in again.definitions
        again.drop_source("u1")
        assert client.state("u1-remap").is_tombstone
        assert not again.definitions

    def test_a_dropped_sink_lets_go_of_history(
        self, client: PersistClient, storage: Storage
    ) -> None:
        storage.create_source(COUNTER)
        client.open_critical_since("u1", sink_holder(SINK.id)).downgrade(Frontier(0))
        storage.create_sink(SINK)
        storage.drop_sink(SINK.id)
        assert sink_holder(SINK.id) not in client.state("u1").holds
        assert list(storage.definitions) == ["u1"]

    def test_a_change_stands_if_only_the_past_could_not_be_let_go(
        self, client: PersistClient, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*_: object) -> None:
            raise Unavailable("the store is away")

        with monkeypatch.context() as patch:
            patch.setattr(storage._definitions._hold, "downgrade", away)
            storage.create_sink(SINK)
        assert storage.definitions == {SINK.id: SINK}
        storage.create_source(COUNTER)
        assert set(Storage(client, "storage").definitions) == {SINK.id, COUNTER.id}


class TestRenditions:
    def test_a_newer_one_shuts_out_the_older(self, client: PersistClient, storage: Storage) -> None:
        assert isinstance(back(storage, 1, 0, 5, 1), Appended)
        assert back(storage, 2, 3, 6, 2) == UpperMismatch(Frontier(5))
        # To lose is not to take over.
        assert isinstance(back(storage, 1, 5, 6, 3), Appended)
        assert isinstance(back(storage, 2, 6, 7, 4), Appended)
        with pytest.raises(Fenced, match="rendition 2, not 1 any more"):
            back(storage, 1, 7, 8, 5)
        plain = client.open_writer("c", schema=ROWS)
        with pytest.raises(Fenced):
            plain.advance_upper(Frontier(9))
        assert isinstance(back(storage, 2, 7, 8, 6), Appended)
        found = client.open_reader("c").snapshot(7)["k"].to_pylist()
        assert sorted(found) == [1, 3, 4, 6]

    def test_it_is_durable(self, client: PersistClient, storage: Storage) -> None:
        back(storage, 3, 0, 1, 1)
        other = PersistClient(client.blob, client.consensus)
        assert other.state("c").rendition == 3
        with pytest.raises(Fenced):
            back(Storage(other, "storage"), 2, 1, 2, 2)

    def test_an_append_that_may_have_happened_is_not_said_to_have_not(self) -> None:
        """It did, its answer was lost, and a newer one of the same name has written since."""
        consensus = UnreliableConsensus(MemConsensus())
        client = PersistClient(MemBlob(), consensus)

        def append(rendition: int, time: int) -> object:
            writer = client.open_writer("c", schema=ROWS, name="w", rendition=rendition)
            upper = Frontier(time + 1)
            return writer.compare_and_append(
                _row(time, time=time), lower=Frontier(time), upper=upper, token=f"t{rendition}"
            )

        append(0, 0)
        consensus.fail("after", call="compare_and_set", meanwhile=lambda: append(2, 2))
        with pytest.raises(Indeterminate):
            append(1, 1)
        with pytest.raises(Fenced):
            append(1, 3)
        assert sorted(client.open_reader("c").snapshot(2)["k"].to_pylist()) == [0, 1, 2]

    def test_what_is_refused_leaves_nothing_behind(
        self, client: PersistClient, storage: Storage
    ) -> None:
        back(storage, 2, 0, 1, 1)
        before = list(client.blob.list("c/"))
        with pytest.raises(Fenced):
            back(storage, 1, 1, 2, *range(200_000))
        assert list(client.blob.list("c/")) == before

    def test_a_subscriber_is_told_of_a_newer_one(self, storage: Storage) -> None:
        back(storage, 1, 0, 1, 1)
        steps = storage.subscribe("c", 0, rendition=1, timeout=5.0)
        assert next(steps).table["k"].to_pylist() == [1]
        back(storage, 1, 1, 2, 2)
        assert next(steps).table["k"].to_pylist() == [2]
        back(storage, 2, 2, 3, 3)
        with pytest.raises(Fenced, match="rendition 2"):
            next(steps)

    def test_without_a_rendition_all_that_is_written_is_seen(self, storage: Storage) -> None:
        back(storage, 1, 0, 1, 1)
        steps = storage.subscribe("c", 0, timeout=5.0)
        next(steps)
        back(storage, 2, 1, 2, 2)
        found = next(steps)
        assert (found.upper, found.table["k"].to_pylist()) == (Frontier(2), [2])

    def test_sources_and_tables_have_writers_of_their_own(
        self, client: PersistClient, storage: Storage
    ) -> None:
        storage.create_source(COUNTER)
        for id_ in ("u1", "u1-remap"):
            with pytest.raises(InvalidUsage, match="is a source"):
                storage.write_back(id_, _row(), lower=Frontier(0), upper=Frontier(1), rendition=1)


class TestCollections:
    def test_any_readable_time_can_be_subscribed_to(self, storage: Storage) -> None:
        storage.allow_compaction("c", Frontier(0))
        for time in range(4):
            back(storage, 1, time, time + 1, time)
        for as_of in range(4):
            first = next(storage.subscribe("c", as_of))
            assert sorted(first.table["k"].to_pylist()) == list(range(as_of + 1))
        storage.allow_compaction("c", Frontier(2))
        assert storage.frontiers("c") == {"c": (Frontier(2), Frontier(4))}
        with pytest.raises(AsOfBeforeSince):
            next(storage.subscribe("c", 1))


class TestStatistics:
    def test_they_add_up_when_a_source_starts_again(self, storage: Storage) -> None:
        assert storage.statistics("u1") == Statistics()
        for started, messages, offset in ((1, 10, 10), (1, 15, 15), (2, 16, 31), (3, 0, 31)):
            storage.heard(
                "u1",
                Statistics(started_ms=started, messages_received=messages, offset_committed=offset),
            )
        found = storage.statistics("u1")
        assert (found.messages_received, found.offset_committed) == (31, 31)

    def test_rows_and_errors_are_counted_by_what_they_do(self) -> None:
        table = pa.table({DIFF: [2, -1, 1, -3, 1], ERR: [None, None, "a", "b", "c"]})
        assert Counts.of(table) == Counts(2, 1, 2, 3)
        assert Counts.of(table.slice(0, 0)) == Counts()
        assert Counts.sum([Counts(1, 2, 3, 4), Counts(1, 1, 1, 1)]) == Counts(2, 3, 4, 5)


def _ingestion(client: PersistClient) -> Ingestion:
    return Ingestion(
        "u1",
        Generated(generator("counter", {}), tick_ms=100),
        client=client,
        remap="u1-remap",
        shards={"counter": "u1"},
        interval_ms=1_000,
    )


def test_a_table_is_not_written_back_to(client: PersistClient):
    client.open_writer("c", schema=ROWS).follow("txns")
    with pytest.raises(InvalidUsage, match="only commits write to it"):
        back(Storage(client, "storage"), 1, 0, 1, 7)
    assert client.state("c").rows == 0
