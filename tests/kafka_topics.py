"""Topics of a real broker beside the collections that sources make of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kafka_histories import Sent, replayed, stored
from services import KafkaServer
from tidemark.dev.produce import send
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.storage.remap import Remap


def send_change(
    kafka: KafkaServer, registry: str, topic: str, key: dict[str, object], after: dict[str, object]
) -> None:
    """A row that came, as Debezium tells of it, to a topic of its own."""
    row = _record("row", after)
    types = {"before": ["null", row], "after": ["null", "row"]}
    event = {
        "type": "record",
        "name": "event",
        "fields": [{"name": n, "type": t} for n, t in types.items()],
    }
    kafka.create_topic(topic)
    client = SchemaRegistryClient({"url": registry})

    def coded(field: str, schema: dict[str, object], value: dict[str, object]) -> bytes | None:
        return AvroSerializer(client, json.dumps(schema))(value, SerializationContext(topic, field))

    sent = (
        coded(MessageField.KEY, _record("key", key), key),
        coded(MessageField.VALUE, event, {"before": None, "after": after}),
    )
    send(kafka.broker, topic, [sent])


def _record(name: str, example: dict[str, object]) -> dict[str, object]:
    types = {int: "long", str: "string"}
    fields = [{"name": field, "type": types[type(value)]} for field, value in example.items()]
    return {"type": "record", "name": name, "fields": fields}


def messages_of(kafka: KafkaServer, topic: str) -> list[dict[int, Sent]]:
    """What a consumer of committed messages sees: by partition, messages by offset."""
    settings = {**kafka.client_settings(), "bootstrap.servers": kafka.bootstrap}
    consumer = Consumer(
        {**settings, "group.id": uuid4().hex, "isolation.level": "read_committed"}
        | {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )
    partitions = sorted(consumer.list_topics(topic).topics[topic].partitions)
    found: list[dict[int, Sent]] = [{} for _ in partitions]
    for partition in partitions:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(60.0)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            found[partition][message.offset() or 0] = Sent(message.key(), message.value())
    consumer.close()
    return found


def check_every_binding(
    client: PersistClient,
    kafka: KafkaServer,
    topic: str,
    *,
    shard: str = "out",
    remap_shard: str = "remap",
) -> None:
    remap = Remap(client, remap_shard)
    upper = client.state(shard).upper
    assert upper <= remap.upper
    bindings = remap.bindings(Frontier.MIN, upper)
    reader = client.open_reader(shard)
    expected = replayed(messages_of(kafka, topic), bindings)
    for binding, wanted in zip(bindings, expected, strict=True):
        found = stored(reader.snapshot(binding.time))
        assert found == wanted, (binding, found.rows - wanted.rows, wanted.rows - found.rows)


def keep_history(client: PersistClient, shards: Iterable[str] = ("out", "remap")) -> None:
    for shard in shards:
        client.open_critical_since(shard, "test").downgrade(Frontier(0))


def producer_of(kafka: KafkaServer, **settings: object) -> Producer:
    return Producer(
        {**kafka.client_settings(), "bootstrap.servers": kafka.bootstrap, **settings}  # type: ignore[dict-item]
    )
