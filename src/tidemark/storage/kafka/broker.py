"""What is asked of Kafka itself: which partitions there are, how far they reach, and the messages
of a range.

The driver asks the first two with librdkafka; messages are read by Spark's connector, in its
tasks. Only committed transactions count: a partition reaches to its last stable offset.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from pyspark.sql import DataFrame, SparkSession

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import TidemarkError, Unavailable
from tidemark.spark.session import kafka_jars
from tidemark.storage.kafka.refusal import SILENCES, refusal
from tidemark.storage.kafka.spec import KafkaConnection

REQUEST_SECONDS = 10.0

MOVING = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
"""A partition has just come, or has another leader now: soon the answer is another."""

Ranges = Mapping[int, tuple[int, int]]
"""By partition, the offsets [start, stop)."""


class Marks(NamedTuple):
    """The first offset that is still there, and the one that comes next."""

    low: int
    high: int


class TopicLost(TidemarkError):
    """The topic is not the one that was read before; what was read stays readable."""

    sqlstate = "XX001"


class _Moving(Unavailable):
    pass


class Broker(Protocol):
    def topic_id(self) -> str:
        """What tells the topic from another of the same name."""
        ...

    def marks(self) -> dict[int, Marks]:
        """How far each partition reaches."""
        ...

    def read(self, spark: SparkSession, ranges: Ranges) -> DataFrame:
        """key, value, partition, offset, timestamp and headers of the messages that are there."""
        ...

    def close(self) -> None: ...


class KafkaBroker:
    """A topic of a real broker."""

    def __init__(self, connection: KafkaConnection, topic: str, *, group: str = "tidemark"):
        self._connection = connection
        self._topic = topic
        self._group = group
        given = repr(sorted({**connection.settings, **connection.secrets}.items()))
        self._digest = hashlib.blake2b(given.encode(), digest_size=6).hexdigest()
        try:
            self._admin = AdminClient(
                {
                    "bootstrap.servers": connection.brokers,
                    # What it cannot do it says when it is asked; its lines would go to stderr.
                    "log_level": "0",
                    "allow.auto.create.topics": "false",
                    "socket.timeout.ms": str(int(1000 * REQUEST_SECONDS)),
                    **connection.settings,
                    **connection.secrets,
                }
            )
        except KafkaException as error:
            raise Unavailable(
                f"the connection cannot be used: {error.args[0].str()}",
                hint="look at its options, secrets and certificates",
            ) from None

    def topic_id(self) -> str:
        found = self._asked(self._admin.describe_topics(TopicCollection([self._topic])))
        return str(found[self._topic].topic_id)

    def marks(self) -> dict[int, Marks]:
        for pause in (0.1, 0.3, 1.0):
            try:
                return self._marks()
            except _Moving:
                SYSTEM_CLOCK.sleep(pause)
        return self._marks()

    def _marks(self) -> dict[int, Marks]:
        try:
            metadata = self._admin.list_topics(self._topic, timeout=REQUEST_SECONDS)
        except KafkaException as error:
            raise self._unavailable(error) from None
        topic = metadata.topics[self._topic]
        if topic.error is not None:
            raise self._failed(topic.error)
        places = [TopicPartition(self._topic, partition) for partition in topic.partitions]
        low = self._offsets(places, OffsetSpec.earliest())
        high = self._offsets(places, OffsetSpec.latest())
        return {place: Marks(low[place], high[place]) for place in sorted(high)}

    def offsets_at(self, timestamp: int) -> dict[int, int]:
        """Of each partition, the first offset whose message is not older than `timestamp`."""
        marks = self.marks()
        places = [TopicPartition(self._topic, partition) for partition in marks]
        found = self._offsets(places, OffsetSpec.for_timestamp(timestamp))
        return {p: o if o >= 0 else marks[p].high for p, o in sorted(found.items())}

    def read(self, spark: SparkSession, ranges: Ranges) -> DataFrame:
        if not kafka_jars():
            raise Unavailable("Spark's Kafka connector is missing", hint="`make kafka` fetches it")
        first = {str(partition): start for partition, (start, _) in ranges.items()}
        last = {str(partition): stop for partition, (_, stop) in ranges.items()}
        reader = spark.read.format("kafka").options(
            **{
                "assign": json.dumps({self._topic: list(ranges)}),
                "startingOffsets": json.dumps({self._topic: first}),
                "endingOffsets": json.dumps({self._topic: last}),
                "includeHeaders": "true",
                "kafka.bootstrap.servers": self._connection.brokers,
                "kafka.isolation.level": "read_committed",
                # With a group of its own every query would connect anew. Spark keeps consumers by
                # their group and wants all their settings to be the same; offsets are not kept.
                "kafka.group.id": f"{self._group}-{self._digest}",
                # A consumer that has reached the end has already asked for more, and is not
                # answered again before that has timed out.
                "kafka.fetch.max.wait.ms": "5",
                **java_settings(self._connection),
            }
        )
        return reader.load()

    def close(self) -> None:
        pass

    def _offsets(self, places: list[TopicPartition], at: Any) -> dict[int, int]:
        wanted: dict[TopicPartition, Any] = dict.fromkeys(places, at)
        asked = self._admin.list_offsets(
            wanted,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=REQUEST_SECONDS,
        )
        return {place.partition: found.offset for place, found in self._asked(asked).items()}

    def _asked(self, futures: Mapping[Any, Any]) -> dict[Any, Any]:
        try:
            return {of: future.result(REQUEST_SECONDS + 5) for of, future in futures.items()}
        except KafkaException as error:
            raise self._unavailable(error) from None
        except TimeoutError:
            raise self._failed(KafkaError(KafkaError._TIMED_OUT)) from None

    def _unavailable(self, error: KafkaException) -> TidemarkError:
        return self._failed(error.args[0])

    def _failed(self, error: KafkaError) -> TidemarkError:
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION):
            return TopicLost(
                f'topic "{self._topic}" does not exist',
                hint="if it was deleted, drop the source and create it again",
            )
        if error.code() in SILENCES and (why := refusal(self._connection)) is not None:
            return Unavailable(
                f"Kafka at {self._connection.brokers} does not let us in: {why}",
                hint="look at the connection's user, secrets and certificates",
            )
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return Unavailable(
                f'Kafka at {self._connection.brokers} does not let us read topic "{self._topic}"',
                hint="let the connection's user describe and read it",
            )
        kind = _Moving if error.code() in MOVING else Unavailable
        return kind(
            f"Kafka at {self._connection.brokers} does not answer: {error.str()}",
            hint="the source goes on by itself when it does",
        )


def java_settings(connection: KafkaConnection) -> dict[str, str]:
    """librdkafka's settings as the Java client calls them, as options of Spark's connector."""
    given = {**connection.settings, **connection.secrets}
    result: dict[str, str] = {}
    user, password = given.pop("sasl.username", None), given.pop("sasl.password", None)
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "PLAIN"
    if user is not None:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        result["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f"username={_quoted(user)} password={_quoted(password or '')};"
        )
        result["sasl.mechanism"] = mechanism
    for name, value in given.items():
        match name:
            case "ssl.ca.location":
                result |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": value}
            case "ssl.ca.pem":
                result |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": value}
            case "ssl.certificate.pem":
                result |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": value}
            case "ssl.key.pem":
                result["ssl.keystore.key"] = value
            case "ssl.endpoint.identification.algorithm":
                result[name] = "" if value == "none" else value
            case "security.protocol":
                result[name] = value.upper()
    return {f"kafka.{name}": value for name, value in result.items()}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
