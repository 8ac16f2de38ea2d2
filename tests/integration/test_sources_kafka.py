"""Kafka sources on a real broker, with real producers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession
from serving import DEADLINE, eventually

from kafka_child import ingestion, on_topic, open_client
from kafka_histories import random_message
from kafka_topics import check_every_binding, keep_history, messages_of, producer_of
from services import KafkaServer
from tidemark.errors import Unavailable
from tidemark.persist import PersistClient
from tidemark.storage.kafka.broker import TopicLost
from tidemark.storage.kafka.spec import Format, KafkaConnection, RegistryConnection
from tidemark.storage.source import Ingestion
from tidemark.types import BIGINT, TEXT, Column

SEEDS = [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 10))]


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:8]}"


def step_until(running: Ingestion, done: Callable[[], bool], seconds: float = DEADLINE) -> None:
    deadline = time.monotonic() + seconds
    while True:
        running.step()
        if done():
            return
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def send(producer: Producer, topic: str, key: object, value: object, **more: object) -> None:
    coded = [None if x is None else json.dumps(x).encode() for x in (key, value)]
    producer.produce(topic, key=coded[0], value=coded[1], **more)  # type: ignore[arg-type]
    producer.flush()


def rows(client: PersistClient) -> list[dict]:
    upper = client.state("out").upper.time or 0
    found = client.open_reader("out").snapshot(upper - 1)
    return found.drop_columns(["_time", "_diff"]).to_pylist()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories(
    kafka: KafkaServer, topic: str, spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Transactions that commit and abort, partitions that come later, restarts."""
    random = Random(f"history {seed}")
    kafka.create_topic(topic, partitions=2)
    client = open_client(tmp_path)
    keep_history(client)
    transactional = producer_of(kafka, **{"transactional.id": topic})
    transactional.init_transactions()
    plain = producer_of(kafka)
    definition = on_topic(kafka.bootstrap, topic)
    running = ingestion(spark, client, tmp_path, definition)
    partitions = 2
    for turn in range(8):
        for _ in range(random.randrange(4)):
            producer = random.choice([transactional, plain])
            if producer is transactional:
                transactional.begin_transaction()
            for _ in range(random.randrange(25)):
                sent = random_message(random, keys=10)
                to = random.randrange(partitions)
                producer.produce(topic, key=sent.key, value=sent.value, partition=to)
            producer.flush()
            if producer is transactional and random.random() < 0.4:
                transactional.abort_transaction()
            elif producer is transactional:
                transactional.commit_transaction()
        if turn == 4:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            for future in admin.create_partitions([NewPartitions(topic, 4)]).values():
                future.result(30)
            partitions = 4
            for each in (transactional, plain):
                while len(each.list_topics(topic, timeout=10).topics[topic].partitions) < 4:
                    time.sleep(0.1)
        if random.random() < 0.3:
            running = ingestion(spark, client, tmp_path, definition)
        running.step()
        time.sleep(0.2)
    high = {p: max(found, default=-1) + 1 for p, found in enumerate(messages_of(kafka, topic))}
    step_until(
        running, lambda: all(running.committed().get(p, 0) >= stop for p, stop in high.items())
    )
    check_every_binding(client, kafka, topic)


def test_a_transaction_is_seen_whole_or_not_at_all(
    kafka: KafkaServer, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    kafka.create_topic(topic, partitions=2)
    client = open_client(tmp_path)
    running = ingestion(spark, client, tmp_path, on_topic(kafka.bootstrap, topic))
    producer = producer_of(kafka, **{"transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(4):
        key, value = json.dumps({"id": number}), json.dumps({"amount": number})
        producer.produce(topic, key=key, value=value, partition=number % 2)
    producer.flush()
    running.step()
    time.sleep(0.3)
    running.step()
    assert rows(client) == []
    producer.commit_transaction()
    step_until(running, lambda: len(rows(client)) == 4)


@pytest.mark.parametrize(
    "security", ["sasl_scram", "tls", pytest.param("sasl_plain", marks=pytest.mark.soak)]
)
def test_brokers_that_ask_who_we_are(
    kafka_folder: Path, topic: str, spark: SparkSession, tmp_path: Path, security: str
) -> None:
    server = KafkaServer(kafka_folder / f"source-{security}", security=security)
    try:
        server.create_topic(topic)
        send(producer_of(server), topic, {"id": 1}, {"amount": 2})
        settings = dict(server.client_settings())
        settings.pop("bootstrap.servers", None)
        hidden = {k: settings.pop(k) for k in ("sasl.password",) if k in settings}
        connection = KafkaConnection(server.bootstrap, settings, hidden)
        if hidden:
            assert hidden["sasl.password"] not in repr(connection)
        client = open_client(tmp_path)
        definition = on_topic("", topic, connection=connection)
        running = ingestion(spark, client, tmp_path, definition)
        step_until(running, lambda: [row["amount"] for row in rows(client)] == [2])
    finally:
        server.stop()


def test_a_broker_that_is_away(
    kafka_folder: Path, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    """It says so, loses nothing, and goes on by itself."""
    server = KafkaServer(kafka_folder / "away")
    try:
        server.create_topic(topic)
        send(producer_of(server), topic, {"id": 1}, {"amount": 1})
        client = open_client(tmp_path)
        running = ingestion(spark, client, tmp_path, on_topic(server.bootstrap, topic))
        step_until(running, lambda: len(rows(client)) == 1)
        server.kill()
        time.sleep(0.3)
        with pytest.raises(Unavailable, match="does not answer"):
            running.step()
        assert [row["amount"] for row in rows(client)] == [1]
        server.start()
        send(producer_of(server), topic, {"id": 1}, {"amount": 2})

        def caught_up() -> bool:
            return [row["amount"] for row in rows(client)] == [2]

        step_until(running, caught_up)
    finally:
        server.stop()


def test_topics_that_lost_messages(
    kafka: KafkaServer, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    kafka.create_topic(topic)
    producer = producer_of(kafka)
    send(producer, topic, {"id": 1}, {"amount": 1})
    client = open_client(tmp_path)
    running = ingestion(spark, client, tmp_path, on_topic(kafka.bootstrap, topic))
    step_until(running, lambda: len(rows(client)) == 1)
    for number in range(5):
        send(producer, topic, {"id": number}, {"amount": 2})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(30)
    time.sleep(0.3)
    with pytest.raises(TopicLost, match=r"low watermark 4 .*past the resume offset 1"):
        running.step()
    assert [row["amount"] for row in rows(client)] == [1]
    for future in admin.delete_topics([topic]).values():
        future.result(30)
    eventually("an end of the topic", lambda: topic not in kafka.broker.topics())
    time.sleep(1.0)
    with pytest.raises(TopicLost, match="does not exist"):
        running.step()
    kafka.create_topic(topic)
    for number in range(9):
        send(producer_of(kafka), topic, {"id": number}, {"amount": 2})
    time.sleep(0.3)
    with pytest.raises(TopicLost, match="was recreated"):
        running.step()


def test_compacted_topics_have_gaps(
    kafka: KafkaServer, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    kafka.create_topic(
        topic,
        cleanup_policy="compact",
        segment_ms="200",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="200",
        delete_retention_ms="0",
    )
    producer = producer_of(kafka)
    for number in range(40):
        send(producer, topic, {"id": number % 3}, {"amount": number})
        if number % 10 == 9:
            time.sleep(0.4)
    client = open_client(tmp_path)
    running = ingestion(spark, client, tmp_path, on_topic(kafka.bootstrap, topic))
    running.step()
    for number in range(40, 50):
        send(producer, topic, {"id": number % 3}, {"amount": number})
    step_until(running, lambda: running.committed() == {0: 50})
    assert sorted(row["amount"] for row in rows(client)) == [47, 48, 49]


def test_avro_with_a_registry(
    kafka: KafkaServer, registry: str, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The reader's schema is pinned; writers' may evolve."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    def schema(*fields: dict) -> str:
        return json.dumps({"type": "record", "name": "r", "fields": list(fields)})

    amount = {"name": "amount", "type": "int"}
    note = {"name": "note", "type": ["null", "string"], "default": None}
    more = {"name": "more", "type": "string", "default": "-"}
    schemas = [schema(amount), schema(amount, note), schema({**amount, "type": "long"}, note, more)]
    kafka.create_topic(topic)
    producer = producer_of(kafka)
    client = SchemaRegistryClient({"url": registry})
    context = SerializationContext(topic, MessageField.VALUE)
    values = [
        {"amount": 1},
        {"amount": 2, "note": "two"},
        {"amount": 2**40, "note": "x", "more": "y"},
    ]
    reader = Format(
        "avro",
        (Column("amount", BIGINT), Column("note", TEXT)),
        schema=schema({**amount, "type": "long"}, note),
        registry=RegistryConnection(registry),
    )
    shards = open_client(tmp_path)
    definition = on_topic(kafka.bootstrap, topic, value=reader)
    running = ingestion(spark, shards, tmp_path, definition)
    for number, (text, value) in enumerate(zip(schemas, values, strict=True)):
        data = AvroSerializer(client, text)(value, context)
        producer.produce(topic, key=json.dumps({"id": number}), value=data)
        producer.produce(topic, key=json.dumps({"id": 10}), value=b"\x00\x00")
        producer.flush()
        step_until(running, lambda n=number: len(rows(shards)) == n + 2)
    good = [row for row in rows(shards) if row["_err"] is None]
    assert [(r["amount"], r["note"]) for r in sorted(good, key=lambda r: r["id"])] == [
        (1, None),
        (2, "two"),
        (2**40, "x"),
    ]
