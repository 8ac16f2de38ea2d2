"""Lines as messages of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, Producer

from tidemark.dev.kafka import explained
from tidemark.errors import Unavailable

if TYPE_CHECKING:
    from tidemark.dev.kafka import Broker

SEND_SECONDS = 30.0


def messages(
    lines: Iterable[bytes], separator: bytes, *, tombstones: bool
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """The key and the value of each line; a line without a separator is a value."""
    for line in lines:
        key, found, value = line.removesuffix(b"\n").partition(separator)
        if not found:
            # With neither, it takes back what a source says of a message without a key.
            yield None, None if tombstones and not key else key
        else:
            yield key, None if tombstones and not value else value


def send(broker: Broker, topic: str, given: Iterable[tuple[bytes | None, bytes | None]]) -> int:
    """How many were stored, which are all, each once and in their order, or it is an error."""
    stored, problems = 0, []

    def delivered(error: KafkaError | None, _: Message) -> None:
        nonlocal stored
        if error is None:
            stored += 1
        else:
            problems.append(error.str())

    producer = Producer(
        {
            **broker.client_settings(),
            "enable.idempotence": True,
            "delivery.timeout.ms": int(SEND_SECONDS * 1000),
            "log_level": 0,
        }
    )
    with explained(f"nothing was sent to {topic}"):
        if topic not in producer.list_topics(timeout=SEND_SECONDS).topics:
            raise Unavailable(
                f"there is no topic {topic}", hint=f"create it: tidemark dev kafka topic {topic}"
            )
        for key, value in given:
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(1)
            producer.poll(0)
        producer.flush()
    if problems:
        raise Unavailable(f"{len(problems)} messages were not stored: {problems[0]}")
    return stored
