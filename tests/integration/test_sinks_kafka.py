"""A sink on a real broker: every message once, whatever stops it and whenever.

Run as a program (`child`) it is a sink that sends until it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.cimpl import OFFSET_BEGINNING
from pyspark.sql import SparkSession
from serving import eventually

from tidemark.errors import DataError, Fenced, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.persist.updates import DIFF, ERR, TIME
from tidemark.spark.session import start_spark
from tidemark.storage.kafka import sink as sinks
from tidemark.storage.kafka.sink import SinkRun
from tidemark.storage.kafka.spec import KafkaConnection, KafkaSink
from tidemark.types import BIGINT, TEXT, Column, arrow_schema

COLUMNS = (Column("k", BIGINT), Column("v", TEXT))
START = 1_700_000_000_000
KEYS = 20


class Message(NamedTuple):
    key: str
    value: str | None
    partition: int


class Writer:
    """Changes a collection at random, one time after the other, and remembers what it was."""

    def __init__(self, client: PersistClient, *, seed: int = 1):
        self._writer = client.open_writer("s", schema=arrow_schema(COLUMNS), key=("k",))
        self._chance = random.Random(seed)
        self.rows: dict[int, str] = {}
        self.history: dict[tuple[int, int], str | None] = {}
        """What became of a key at a time."""
        self.upper = START
        self._writer.advance_upper(Frontier(START))

    def write(self, times: int = 1, *, keys: int = 4) -> int:
        """A few keys at each of the next times; returns the upper."""
        updates = []
        for at in range(self.upper, self.upper + times):
            for key in self._chance.sample(range(KEYS), keys):
                old = self.rows.pop(key, None)
                new = None if self._chance.random() < 0.3 else f"v{at - START}-{key}"
                if old is not None:
                    updates.append((key, old, at, -1, None))
                if new is not None:
                    updates.append((key, new, at, 1, None))
                    self.rows[key] = new
                if old is not None or new is not None:
                    self.history[key, at] = new
        return self.append(updates, self.upper + times)

    def append(self, updates: list[tuple], upper: int) -> int:
        names = ["k", "v", TIME, DIFF, ERR]
        columns = {name: [update[i] for update in updates] for i, name in enumerate(names)}
        table = pa.table(columns, schema=self._writer.schema)
        self._writer.append(table, lower=Frontier(self.upper), upper=Frontier(upper))
        self.upper = upper
        return upper

    def expected(self, as_of: int) -> dict[int, list[str | None]]:
        """What a sink from `as_of` on must send of every key, in this order."""
        changes = sorted((at, key, value) for (key, at), value in self.history.items())
        there = {key: value for at, key, value in changes if at <= as_of}
        sent: dict[int, list[str | None]] = {
            key: [value] for key, value in there.items() if value is not None
        }
        for at, key, value in changes:
            if at > as_of:
                sent.setdefault(key, []).append(value)
        return sent


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "sink-" + "".join(c if c.isalnum() else "-" for c in request.node.name)


def sink(kafka: Any, topic: str, **options: Any) -> KafkaSink:
    given = {
        "id": topic,
        "connection": KafkaConnection(kafka.bootstrap),
        "as_of": START + 4,
        "progress_topic": f"{topic}-progress",
        "partitions": 3,
        **options,
    }
    return KafkaSink(topic=topic, shard="s", columns=COLUMNS, key=("k",), **given)


def consume(kafka: Any, topic: str) -> list[Message]:
    """All that is committed."""
    settings = {
        **kafka.client_settings(),
        "group.id": "test",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    found, open_ = [], set(partitions)
    while open_:
        message = consumer.poll(30)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            open_.discard(message.partition())
            continue
        key, value, partition = message.key(), message.value(), message.partition()
        assert key is not None
        assert partition is not None
        found.append(Message(key.decode(), None if value is None else value.decode(), partition))
    consumer.close()
    return found


def check(kafka: Any, made: KafkaSink, writer: Writer) -> list[Message]:
    """Every message that there must be is there once, in order; the last ones are the rows.

    No value comes twice in a row in a key's history, and none but null comes twice at all.
    """
    messages = consume(kafka, made.topic)
    sent: dict[int, list[str | None]] = {}
    for message in messages:
        value = None if message.value is None else json.loads(message.value)["v"]
        sent.setdefault(json.loads(message.key)["k"], []).append(value)
    assert sent == writer.expected(made.as_of)
    assert {key: found[-1] for key, found in sent.items() if found[-1]} == writer.rows
    return messages


@pytest.fixture
def writer(client: PersistClient) -> Writer:
    made = Writer(client)
    made.write(8)
    return made


def again(client: PersistClient) -> PersistClient:
    address = client.shared_address()
    return PersistClient.open(blob=address.blob, consensus=address.consensus)


def test_snapshot_then_changes(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer
) -> None:
    made = sink(kafka, topic)
    run = SinkRun(made, client=client, spark=spark)
    assert run.step() == Frontier(START + 5)
    keys = [m.key for m in consume(kafka, topic)]
    assert 0 < len(keys) == len(set(keys))
    assert run.step() == run.step() == Frontier(START + 8)
    writer.write(10)
    assert run.step() == Frontier(START + 18)
    assert len({m.partition for m in check(kafka, made, writer)}) > 1


def test_debezium_events(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer
) -> None:
    made = sink(kafka, topic, envelope="debezium", unique=True)
    run = SinkRun(made, client=client, spark=spark)
    while run.step() < Frontier(writer.upper):
        pass
    rows: dict[str, Any] = {}
    for message in consume(kafka, topic):
        event = json.loads(message.value or "")
        assert event["before"] == rows.get(message.key)
        rows[message.key] = event["after"]
        assert event["op"] in "cud"
    assert {row["k"]: row["v"] for row in rows.values() if row} == writer.rows


def test_waits_for_a_collection_that_is_not_there_yet(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession
) -> None:
    writer = Writer(client)
    run = SinkRun(sink(kafka, topic), client=client, spark=spark)
    assert run.step() == run.step() == Frontier(START + 4)
    writer.write(8)
    assert [run.step(), run.step()] == [Frontier(START + 5), Frontier(START + 8)]
    check(kafka, sink(kafka, topic), writer)


class Crash(Exception):
    """The process ends here, as far as the test is concerned."""


@contextlib.contextmanager
def crash_at(point: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is cleaned up: neither the transaction nor the hold."""
    produce, commit = sinks._Topics._produce, sinks._Topics._commit

    def crash(*_: object) -> None:
        raise Crash

    def after(work: Any) -> Any:
        def both(*arguments: object) -> None:
            work(*arguments)
            raise Crash

        return both

    def committed(topics: Any, progress: Any) -> None:
        """The first transaction of several, and not the one that takes over."""
        commit(topics, progress)
        if progress.after is not None:
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(sinks._Topics, "close", lambda _: None)
        match point:
            case "before anything was sent":
                patch.setattr(sinks._Topics, "_produce", crash)
            case "after it was sent, before the commit":
                patch.setattr(sinks._Topics, "_produce", after(produce))
            case "after the commit, before that is known":
                patch.setattr(sinks._Topics, "_commit", after(commit))
            case "between two transactions of a step":
                patch.setattr(sinks, "TRANSACTION_BYTES", 1)
                patch.setattr(sinks, "SLICE_ROWS", 2)
                patch.setattr(sinks._Topics, "_commit", committed)
            case "before the hold moves":
                patch.setattr(SinkRun, "_let_go", crash)
        with pytest.raises(Crash):
            yield


POINTS = [
    "before anything was sent",
    "after it was sent, before the commit",
    "after the commit, before that is known",
    "between two transactions of a step",
    "before the hold moves",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at(
    point: str,
    kafka: Any,
    topic: str,
    client: PersistClient,
    spark: SparkSession,
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = sink(kafka, topic)
    for _ in range(3):
        with crash_at(point, monkeypatch):
            run = SinkRun(made, client=again(client), spark=spark)
            while run.step() < Frontier(writer.upper):
                pass
        writer.write(3, keys=8)
        hold = client.open_critical_since("s", f"sink-{made.id}").since
        assert hold is not None
        assert hold < Frontier(writer.upper - 1)
        client.maintain("s")
    run = SinkRun(made, client=client, spark=spark)
    while run.step() < Frontier(writer.upper):
        pass
    check(kafka, made, writer)
    assert client.state("s").since == Frontier(writer.upper - 1)


def test_one_that_was_replaced_is_shut_out(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer
) -> None:
    made = sink(kafka, topic)
    old = SinkRun(made, client=client, spark=spark)
    old.step()
    new = SinkRun(made, client=again(client), spark=spark)
    new.step()
    writer.write(3)
    for _ in range(2):
        with pytest.raises(Fenced, match="another process has taken over"):
            old.step()
    assert new.step() == Frontier(writer.upper)
    check(kafka, made, writer)


def test_one_that_is_replaced_in_the_middle_of_a_transaction_is_shut_out(
    kafka: Any,
    topic: str,
    client: PersistClient,
    spark: SparkSession,
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = sink(kafka, topic)
    old = SinkRun(made, client=client, spark=spark)
    old.step()
    produce = sinks._Topics._produce
    others: list[SinkRun] = []

    def overtaken(topics: Any, table: pa.Table) -> None:
        produce(topics, table)
        if not others:
            others.append(SinkRun(made, client=again(client), spark=spark))
            others[0].step()

    with monkeypatch.context() as patch:
        patch.setattr(sinks._Topics, "_produce", overtaken)
        with pytest.raises(Fenced):
            old.step()
    writer.write(3)
    assert others[0].step() == Frontier(writer.upper)
    check(kafka, made, writer)


def test_a_transaction_of_another_sink_hides_no_progress(
    kafka: Any,
    topic: str,
    client: PersistClient,
    spark: SparkSession,
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = sink(kafka, topic)
    run = SinkRun(made, client=client, spark=spark)
    run.step()
    other = Producer(
        {**kafka.client_settings(), "log_level": 0, "transactional.id": f"{topic}-other"}
    )
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(made.progress_topic, key="other", value=b"{}", partition=0)
    other.flush(30)
    run.step()
    run.close()
    restarted = SinkRun(made, client=client, spark=spark)
    # Long enough for all else that is asked of the broker.
    monkeypatch.setattr(sinks, "REQUEST_SECONDS", 10.0)
    with pytest.raises(Unavailable, match="cannot be read past"):
        restarted.step()
    other.abort_transaction(30)
    monkeypatch.undo()
    writer.write(2)
    assert restarted.step() == Frontier(writer.upper)
    check(kafka, made, writer)


def test_a_key_that_is_not_unique_stalls(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer
) -> None:
    made = sink(kafka, topic)
    run = SinkRun(made, client=client, spark=spark)
    run.step()
    run.step()
    key = min(writer.rows)
    at = writer.upper
    writer.append([(key, "another", at, 1, None)], at + 1)
    for _ in range(2):
        with pytest.raises(DataError, match=rf'not unique: {{"k":{key}}} has several rows at'):
            run.step()
    check(kafka, made, writer)
    # Which of the two it was does not matter, nor what else has happened meanwhile.
    writer.append([(key, writer.rows[key], at + 1, -1, None)], at + 2)
    writer.append([(99, "came and went", at + 2, 1, None)], at + 3)
    writer.append([(99, "came and went", at + 3, -1, None)], at + 4)
    writer.rows[key] = writer.history[key, at + 3] = "another"
    run = SinkRun(made, client=client, spark=spark)
    assert run.step() == Frontier(at + 4)
    check(kafka, made, writer)
    writer.write()
    run.step()
    check(kafka, made, writer)


def test_an_error_stalls(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer
) -> None:
    made = sink(kafka, topic)
    run = SinkRun(made, client=client, spark=spark)
    run.step()
    at = writer.upper
    writer.append([(None, None, at, 1, "division by zero")], at + 1)
    assert run.step() == Frontier(at)
    for _ in range(2):
        with pytest.raises(DataError, match="division by zero"):
            run.step()
    check(kafka, made, writer)
    writer.write()
    with pytest.raises(DataError, match="division by zero"):
        run.step()
    now = writer.upper
    writer.append([(None, None, now, -1, "division by zero")], now + 1)
    assert run.step() == Frontier(now + 1)
    check(kafka, made, writer)


def test_a_snapshot_in_error_is_of_a_later_time(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer
) -> None:
    at = writer.upper
    writer.append([(None, None, at, 1, "division by zero")], at + 1)
    made = sink(kafka, topic, as_of=at)
    run = SinkRun(made, client=client, spark=spark)
    with pytest.raises(DataError, match="division by zero"):
        run.step()
    writer.append([(None, None, at + 1, -1, "division by zero")], at + 2)
    assert run.step() == Frontier(at + 2)
    writer.write()
    run.step()
    check(kafka, made, writer)


def delete_topic(kafka: Any, topic: str) -> None:
    """Until the broker knows, too, what its controller has done."""
    kafka.broker.delete_topic(topic)
    eventually(f"an end of {topic}", lambda: topic not in kafka.broker.topics())


def test_lost_topics_are_noticed(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer
) -> None:
    made = sink(kafka, topic)
    run = SinkRun(made, client=client, spark=spark)
    run.step()
    run.step()
    run.close()
    delete_topic(kafka, made.progress_topic)
    with pytest.raises(DataError, match="has lost its progress"):
        SinkRun(made, client=client, spark=spark).step()
    run.drop()
    assert client.open_critical_since("s", f"sink-{made.id}").since is None


@pytest.mark.parametrize("while_it_runs", [True, False])
def test_a_topic_that_was_made_anew_is_not_written_to(
    kafka: Any,
    topic: str,
    client: PersistClient,
    spark: SparkSession,
    writer: Writer,
    while_it_runs: bool,
) -> None:
    made = sink(kafka, topic)
    run = SinkRun(made, client=client, spark=spark)
    run.step()
    delete_topic(kafka, made.topic)
    writer.write()
    if while_it_runs:
        with pytest.raises(DataError, match="is gone or was made anew"):
            run.step()
    kafka.broker.create_topic(made.topic, partitions=1)
    if not while_it_runs:
        run.close()
        run = SinkRun(made, client=client, spark=spark)
    with pytest.raises(DataError, match="is gone or was made anew"):
        run.step()
    run.close()
    assert consume(kafka, made.topic) == []


def test_a_large_row_is_for_the_topic_to_refuse(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer
) -> None:
    made = sink(kafka, topic, topic_config={"max.message.bytes": str(4 << 20)})
    run = SinkRun(made, client=client, spark=spark)
    run.step()
    writer.append([(77, "x" * (2 << 20), writer.upper, 1, None)], writer.upper + 1)
    run.step()
    run.close()
    assert any(len(message.value or "") > 2 << 20 for message in consume(kafka, made.topic))


def test_brokers_that_are_away_are_waited_for(
    kafka_folder: Path,
    topic: str,
    client: PersistClient,
    spark: SparkSession,
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from services import KafkaServer

    kafka = KafkaServer(kafka_folder / "sink")
    try:
        made = sink(kafka, topic)
        run = SinkRun(made, client=client, spark=spark)
        run.step()
        wait_until_decided(kafka, made)
        with monkeypatch.context() as patch:
            patch.setattr(sinks, "REQUEST_SECONDS", 2.0)
            kafka.kill()
            for _ in range(2):
                with pytest.raises(Unavailable, match="tries again"):
                    run.step()
            produce = sinks._Topics._produce
            kafka.start()

            def killed(topics: Any, table: pa.Table) -> None:
                produce(topics, table)
                kafka.kill()

            patch.setattr(sinks, "REQUEST_SECONDS", 30.0)
            assert settled(run) == Frontier(writer.upper)
            writer.write(3)
            patch.setattr(sinks._Topics, "_produce", killed)
            patch.setattr(sinks, "REQUEST_SECONDS", 3.0)
            with pytest.raises(Unavailable):
                run.step()
        kafka.start()
        assert settled(run) == Frontier(writer.upper)
        check(kafka, made, writer)
    finally:
        kafka.stop()


def wait_until_decided(kafka: Any, made: KafkaSink) -> None:
    """Until the broker has written down in every partition that the last transaction is committed.

    It does so soon after it has said so. Kafka 4.3.1, where it is the only broker, forgets it if it
    is killed in between: the messages stay undecided until somebody aborts them by hand.
    """

    def ends(isolation: str) -> list[int]:
        settings = {"group.id": "test", "isolation.level": isolation}
        consumer = Consumer(kafka.client_settings() | settings)
        topics = {made.topic: made.partitions, made.progress_topic: 1}
        found = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30.0)[1]
            for topic, partitions in topics.items()
            for partition in range(partitions)
        ]
        consumer.close()
        return found

    eventually("all decided", lambda: ends("read_committed") == ends("read_uncommitted"))


def settled(run: SinkRun, attempts: int = 10) -> Frontier:
    """A step of a sink whose broker has just come back."""
    for _ in range(attempts):
        with contextlib.suppress(Unavailable):
            return run.step()
    return run.step()


def test_secrets_are_not_shown(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer
) -> None:
    connection = KafkaConnection(
        kafka.bootstrap, {"sasl.mechanism": "PLAIN"}, {"security.protocol": "hunter2"}
    )
    run = SinkRun(sink(kafka, topic, connection=connection), client=client, spark=spark)
    with pytest.raises(Exception, match=r"\*\*\*") as caught:
        run.step()
    assert "hunter2" not in repr(caught.value) + str(caught.value) + repr(run)


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_again_and_again_while_a_writer_goes_on(
    kafka: Any, topic: str, client: PersistClient, spark: SparkSession, writer: Writer, kills: int
) -> None:
    made = sink(kafka, topic)
    seed = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CRASH_SEED={seed}")
    chance = random.Random(seed)
    for _ in range(kills):
        with child(made, client) as process:
            for _ in range(chance.randrange(1, 8)):
                writer.write(1)
                assert process.stdout.readline(), "the sink ended by itself"
            writer.write(2)
            time.sleep(chance.random() / 2)
    run = SinkRun(made, client=client, spark=spark)
    while run.step() < Frontier(writer.upper):
        pass
    check(kafka, made, writer)


@contextlib.contextmanager
def child(made: KafkaSink, client: PersistClient) -> Iterator[Any]:
    """A process that sends; SIGKILL ends it and its JVM."""
    address = client.shared_address()
    given = [msgspec.json.encode(made).decode(), address.blob, address.consensus]
    process = subprocess.Popen(
        [sys.executable, __file__, *given], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_until_killed(made: str, blob: str, consensus: str) -> None:
    run = SinkRun(
        msgspec.json.decode(made, type=KafkaSink),
        client=PersistClient.open(blob=blob, consensus=consensus),
        spark=start_spark(master="local[1]"),
    )
    while True:
        with contextlib.suppress(Unavailable):
            print(run.step(), flush=True)


if __name__ == "__main__":
    run_until_killed(*sys.argv[1:])
