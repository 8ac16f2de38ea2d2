"""A Kafka source against its model, on the in-memory twin: at every binding, whatever happens."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from kafka_histories import Sent, random_message, replayed, source, stored
from tidemark.clock import ManualClock
from tidemark.errors import InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.storage.kafka import ingest
from tidemark.storage.kafka.broker import TopicLost
from tidemark.storage.kafka.ingest import KafkaUpstream
from tidemark.storage.kafka.memory import MemoryBroker, Message
from tidemark.storage.kafka.spec import Format, Include, KafkaSource
from tidemark.storage.remap import Binding, Remap
from tidemark.storage.source import Ingestion
from tidemark.types import BIGINT, JSONB, TEXT, Column

SEEDS = [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 10))]


class World:
    """A topic in memory, its source, and a clock."""

    def __init__(self, spark: SparkSession, folder: Path, *, partitions: int = 2, **changes):
        self.clock = ManualClock(50_300)
        self.client = PersistClient.open(
            blob=f"file://{folder / 'blob'}",
            consensus=f"sqlite://{folder / 'consensus.db'}",
            clock=self.clock,
        )
        self.broker = MemoryBroker(partitions)
        self.source: KafkaSource = source(**{"topic_id": "a", **changes})
        self._spark, self._folder = spark, folder
        self.running = self.start()

    def start(self) -> Ingestion:
        upstream = KafkaUpstream(
            self.source,
            self.broker,
            client=self.client,
            spark=self._spark,
            folder=self._folder / "cache",
        )
        return Ingestion(
            "s",
            upstream,
            client=self.client,
            remap="remap",
            shards={"data": "out"},
            interval_ms=1_000,
            clock=self.clock,
        )

    def send(self, key: bytes | str | None, value: bytes | str | None, *, to: int = 0) -> None:
        coded = [x.encode() if isinstance(x, str) else x for x in (key, value)]
        self.broker.partitions[to].append(Message(*coded))

    def step(self, pause: int = 1_000) -> None:
        self.clock.advance(pause)
        self.running.step()

    def lose_an_append(self) -> None:
        """Another ingestion is done between this one's write and append."""
        self.clock.advance(1_000)
        written = self.running.write(self.running.mint())
        self.start().step()
        if written is not None:
            before = self.running.statistics.mismatches
            assert not self.running.append(written)
            assert self.running.statistics.mismatches == before + 1

    def rows(self) -> list[dict]:
        """What is there now, without `_time` and `_diff`."""
        upper = self.client.state("out").upper
        assert upper.time is not None
        found = self.client.open_reader("out").snapshot(upper.time - 1)
        assert set(found["_diff"].to_pylist()) <= {1}
        return found.drop_columns(["_time", "_diff"]).to_pylist()

    def errors(self) -> list[str]:
        return sorted(row["_err"] for row in self.rows() if row["_err"] is not None)

    def check_every_binding(self) -> None:
        remap = Remap(self.client, "remap")
        assert self.client.state("out").upper == remap.upper
        bindings = remap.bindings(Frontier.MIN, remap.upper)
        topic = [
            {at: Sent(m.key, m.value) for at, m in enumerate(messages) if m is not None}
            for messages in self.broker.partitions
        ]
        reader = self.client.open_reader("out")
        for binding, expected in zip(bindings, replayed(topic, bindings), strict=True):
            assert stored(reader.snapshot(binding.time)) == expected, binding


@pytest.fixture(params=["few", "many"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of writing: through the driver, and by tasks."""
    if request.param == "many":
        monkeypatch.setattr(ingest, "FEW_MESSAGES", 0)
    return request.param


EVENTS = ["step", "step", "step", "bind", "restart", "race", "lost", "partition", "gap"]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_binding_holds_what_its_messages_say(
    spark: SparkSession, tmp_path: Path, path: str, seed: int
) -> None:
    random = Random(f"{seed}")
    world = World(spark, tmp_path)
    # Nothing is forgotten, so that every binding can be looked at in the end.
    for shard in ("out", "remap"):
        world.client.open_critical_since(shard, "test").downgrade(Frontier(0))
    for _ in range(12):
        for _ in range(random.randrange(40)):
            to = random.randrange(len(world.broker.partitions))
            sent = random_message(random, keys=12)
            world.send(sent.key, sent.value, to=to)
        event = random.choice(EVENTS)
        if event == "bind":
            # Somebody binds, and dies before anything is written.
            world.clock.advance(1_000)
            world.running.mint()
            continue
        if event == "restart":
            world.running = world.start()
        elif event == "race":
            world.clock.advance(1_000)
            world.start().step()
        elif event == "lost":
            world.lose_an_append()
        elif event == "partition":
            world.broker.partitions.append([])
            world.broker.low.append(0)
        elif event == "gap":
            random.choice(world.broker.partitions).extend([None, None])
        world.step(random.choice([0, 900, 2_000]))
    world.step()
    world.check_every_binding()


def test_history_is_let_go_while_it_runs(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """As control does it: everything but what the ingestion itself holds is forgotten."""
    random = Random("let go")
    world = World(spark, tmp_path)
    holds = [world.client.open_critical_since(shard, "critical") for shard in ("out", "remap")]
    for turn in range(8):
        for _ in range(random.randrange(30)):
            sent = random_message(random, keys=12)
            # A key is always in one partition: between two times, partitions have no order.
            world.send(sent.key, sent.value, to=int(_is_odd(sent.key)))
        world.clock.advance(1_000)
        world.running.mint()
        for hold in holds:
            upper = world.client.state(hold.shard_id).upper.time or 0
            hold.downgrade(Frontier(max(upper - 1, 0)))
        if turn % 3 == 2:
            world.running = world.start()
        world.step(0)
    topic = [
        {at: Sent(m.key, m.value) for at, m in enumerate(messages) if m is not None}
        for messages in world.broker.partitions
    ]
    remap = Remap(world.client, "remap")
    assert remap.upper.time is not None
    assert world.client.state("remap").since > Frontier(50_000)
    now = Binding(remap.upper.time - 1, remap.offsets_at(remap.upper.time - 1))
    # Bindings before are forgotten, so the order within partitions is all that may count.
    assert [len(messages) for messages in topic] == list(now.offsets.values())
    found = stored(world.client.open_reader("out").snapshot(now.time))
    assert sum(found.rows.values()) + found.errors == len(_last_values(topic))


def _is_odd(key: bytes | None) -> bool:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return bool(json.loads(key or b"?")["id"] % 2)
    return False


def _last_values(topic: list[dict[int, Sent]]) -> set[object]:
    """Keys whose last message is not null; each key is in one partition."""
    state: dict[object, bytes] = {}
    for messages in topic:
        for sent in messages.values():
            key: object = sent.key
            with contextlib.suppress(ValueError, TypeError):
                given = json.loads(sent.key or b"?")
                if isinstance(given["id"], int):
                    key = (given["id"], given["part"])
            state.pop(key, None)
            if sent.value is not None:
                state[key] = sent.value
    return set(state)


def test_a_range_without_a_message(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """An aborted transaction, or what compaction left of a topic."""
    world = World(spark, tmp_path)
    world.send('{"id": 1}', '{"amount": 5}')
    world.step()
    world.broker.partitions[0].extend([None, None, None])
    world.step()
    assert world.running.committed() == {0: 4, 1: 0}
    assert world.running.statistics.messages_received == 1


def test_bad_keys_that_begin_alike(spark: SparkSession, tmp_path: Path, path: str) -> None:
    world = World(spark, tmp_path)
    one, other = b"x" * 300 + b"1", b"x" * 300 + b"2"
    world.send(one, "{}")
    world.send(other, "{}")
    world.step()
    assert len(world.errors()) == 2
    world.send(one, None)
    world.step()
    (left,) = world.errors()
    assert left.startswith("key: Failed to decode JSON")


def test_errors_go_when_the_key_is_mended(spark: SparkSession, tmp_path: Path, path: str) -> None:
    world = World(spark, tmp_path)
    world.send('{"id": 1}', '{"amount": 5}')
    world.send('{"id": 2}', "nonsense")
    world.send("?", '{"amount": 7}')
    world.send(None, '{"amount": 8}')
    world.step()
    key, null, value = world.errors()
    assert key.startswith("key: Failed to decode JSON")
    assert '"3f"' in key
    assert "null key and a null value" in null
    assert value.startswith("value: Failed to decode JSON")
    assert "nonsense" in value
    world.send('{"id": 2}', '{"amount": 6}')
    world.send("?", None)
    world.step()
    assert world.errors() == [null]
    world.send(None, None)
    world.send('{"id": 9}', None)
    world.step()
    assert [row["amount"] for row in sorted(world.rows(), key=lambda r: r["id"])] == [5, 6]


def test_inline_errors_leave_the_source_readable(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path, inline_errors="error")
    world.send('{"id": 1}', "nonsense")
    world.step()
    (row,) = world.rows()
    assert (row["id"], row["amount"], row["_err"]) == (1, None, None)
    assert "nonsense" in json.loads(row["error"])["description"]
    world.send('{"id": 1}', '{"amount": 1}')
    world.step()
    (row,) = world.rows()
    assert (row["amount"], row["error"]) == (1, None)


def test_debezium_keeps_what_comes_after(spark: SparkSession, tmp_path: Path, path: str) -> None:
    world = World(spark, tmp_path, envelope="debezium")
    for key, after in ((1, {"amount": 1}), (2, {"amount": 2}), (1, {"amount": 3}), (2, None)):
        world.send(json.dumps({"id": key}), json.dumps({"before": {"amount": 9}, "after": after}))
    world.step()
    assert [(row["id"], row["amount"]) for row in world.rows()] == [(1, 3)]
    world.send('{"id": 1}', None)
    world.step()
    assert world.rows() == []


def test_every_message_is_a_row_without_an_envelope(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    include = (
        Include("key", "key"),
        Include("partition", "partition"),
        Include("offset", "offset"),
        Include("timestamp", "timestamp"),
        Include("headers", "headers"),
        Include("header", "h", header="h"),
    )
    world = World(
        spark,
        tmp_path,
        envelope="none",
        include=include,
        key=Format("text"),
        key_names=("k",),
        value=Format("text"),
    )
    headers = [("h", b"old"), ("h", b"new"), ("other", None)]
    world.broker.partitions[1].append(Message(b"key", b"a", headers))
    world.broker.partitions[1].append(Message(b"key", b"a", [("h", b"x")]))
    world.step()
    assert sorted(
        (r["k"], r["text"], r["partition"], r["offset"], r["h"]) for r in world.rows()
    ) == [
        ("key", "a", 1, 0, "new"),
        ("key", "a", 1, 1, "x"),
    ]
    first = next(row for row in world.rows() if row["offset"] == 0)
    assert json.loads(first["headers"]) == [
        {"key": "h", "value": "6f6c64"},
        {"key": "h", "value": "6e6577"},
        {"key": "other", "value": None},
    ]
    world.send("key", "a")
    world.step()
    assert world.errors() == ['a message without header "h"']


def test_a_topic_that_lost_what_was_read(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path)
    world.send('{"id": 1}', '{"amount": 1}')
    world.step()
    world.broker.partitions[0].clear()
    with pytest.raises(TopicLost, match=r"recreated: partition 0 ends at offset 0, .* up to 1"):
        world.step()
    assert [row["amount"] for row in world.rows()] == [1]
    world.broker.id = "b"
    with pytest.raises(TopicLost, match="was recreated"):
        world.step()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_was_lost_after_it_was_bound(
    spark: SparkSession, tmp_path: Path, restarted: bool
) -> None:
    world = World(spark, tmp_path)
    world.send('{"id": 1}', '{"amount": 1}')
    world.step()
    world.send('{"id": 1}', '{"amount": 2}')
    world.clock.advance(1_000)
    world.running.mint()
    if restarted:
        world.running = world.start()
    world.broker.partitions[0].clear()
    world.running._upstream._marks.clear()  # As after a write that failed.
    for _ in range(2):
        with pytest.raises(TopicLost, match=r"recreated: partition 0 ends at offset 0, .* to 2"):
            world.step()
    assert [row["amount"] for row in world.rows()] == [1]


def test_messages_deleted_before_they_were_read(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path)
    world.send('{"id": 1}', '{"amount": 1}')
    world.step()
    for number in range(5):
        world.send('{"id": 1}', json.dumps({"amount": number}))
    world.broker.low[0] = 3
    with pytest.raises(TopicLost, match=r"low watermark 3 .* past the resume offset 1"):
        world.step()


def test_a_source_starts_where_it_is_told(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path, start_offsets=(2,))
    for number in range(4):
        world.send(json.dumps({"id": number}), '{"amount": 1}')
        world.send(json.dumps({"id": 10 + number}), '{"amount": 1}', to=1)
    world.broker.low[1] = 1
    world.step()
    assert sorted(row["id"] for row in world.rows()) == [2, 3, 11, 12, 13]


def test_what_is_bound_is_written_before_more_is_bound(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path)
    world.send('{"id": 1}', '{"amount": 1}')
    world.clock.advance(1_000)
    world.running.mint()
    world.running = world.start()
    world.send('{"id": 1}', '{"amount": 2}')
    world.step()
    found = world.running.statistics
    assert (found.batches, found.inserts, found.retractions) == (2, 2, 1)


def test_messages_that_have_become_large_do_not_come_to_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MOST_BYTES", 3_000)
    taken = []
    many = KafkaUpstream._many
    monkeypatch.setattr(
        KafkaUpstream, "_many", lambda self, *args: taken.append(1) or many(self, *args)
    )
    world = World(spark, tmp_path)
    for amount in range(3):
        world.send('{"id": 1}', f'{{"amount": {amount}}}')
    world.step()
    assert not taken, "what is small comes"
    for _ in range(3):
        world.send('{"id": 2}', '{"amount": 7}' + " " * 1_500)
    world.step()
    assert taken == [1]
    world.send('{"id": 3}', '{"amount": 8}' + " " * 1_500)
    world.step()
    assert taken == [1], "one alone may be larger"
    assert [(row["id"], row["amount"]) for row in world.rows()] == [(1, 2), (2, 7), (3, 8)]


def test_what_changes_nothing_is_not_counted(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    world = World(spark, tmp_path)
    for _ in range(3):
        world.send('{"id": 1}', '{"amount": 1}')
        world.clock.advance(1_000)
        world.running.mint()
    world.step()
    found = world.running.statistics
    assert (found.inserts, found.retractions, found.updates_committed) == (1, 0, 1)


def test_statistics(spark: SparkSession, tmp_path: Path, path: str) -> None:
    world = World(spark, tmp_path)
    world.send('{"id": 1}', '{"amount": 1}')
    world.send('{"id": 1}', '{"amount": 2}')
    world.step()
    world.send('{"id": 1}', '{"amount": 3}')
    world.step()
    found = world.running.statistics
    assert (found.messages_received, found.bytes_received) == (3, 3 * (9 + 13))
    assert (found.updates_committed, found.updates_staged) == (3, 3)
    assert (found.offset_known, found.offset_committed) == (3, 3)
    assert (found.inserts, found.retractions) == (2, 1)
    assert (found.error_inserts, found.error_retractions) == (0, 0)
    assert found.snapshot_committed
    assert found.rehydration_ms is not None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"key": None}, "ENVELOPE UPSERT needs a key"),
        ({"envelope": "none", "inline_errors": "e"}, "only ENVELOPE UPSERT"),
        ({"include": (Include("offset", "amount"),)}, 'column "amount" would be there twice'),
    ],
)
def test_definitions_that_contradict_themselves(changes: dict, told: str) -> None:
    with pytest.raises(InvalidUsage, match=told):
        source(**changes).check()


KEYS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from(["", "a", "é"]))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 3))), max_size=12))
def test_keys_of_any_kind(spark: SparkSession, tmp_path_factory, sent: list[tuple]) -> None:
    """Keys with nulls in them, of two columns, in two stretches."""
    columns = (Column("n", BIGINT), Column("s", TEXT))
    world = World(
        spark,
        tmp_path_factory.mktemp("keys"),
        key=Format("json", columns),
        value=Format("json", (Column("v", JSONB),)),
    )
    expected: dict[tuple, int] = {}
    for at, (key, value) in enumerate(sent):
        parts = (key, None) if isinstance(key, int) else (None, key)
        text = json.dumps(dict(zip(("n", "s"), parts, strict=True)))
        world.send(text, None if value is None else json.dumps({"v": value}))
        expected.pop(parts, None)
        if value is not None:
            expected[parts] = value
        if at == len(sent) // 2:
            world.step()
    world.step()
    assert {(row["n"], row["s"]): int(row["v"]) for row in world.rows()} == expected
