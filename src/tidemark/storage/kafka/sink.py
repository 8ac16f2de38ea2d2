"""A collection out to a Kafka topic, exactly once across restarts.

    shard [lower, upper) -> messages in order (messages.py) -> one transaction
                                                                 topic       the messages
                                                                 progress    {"upper": ...}

The progress record is committed with the messages, so the two cannot disagree: whoever starts next
reads it and goes on from there. For example, with as_of 5 and a shard that is complete to 9:

    step()   topic     all rows at 5         progress of sink u1   {"epoch":1,"upper":6}
    step()   topic     changes at 6, 7, 8    progress of sink u1   {"epoch":1,"upper":9}

Invariants:
    K1  a message is committed together with a record that says so, or not at all
    K2  which messages there are and in which order follows from the shard alone, so that those
        after a recorded place are the same in every attempt
    K3  one epoch at a time: a start shuts out the producer before it (Kafka's transactional.id) and
        records a new epoch; one that finds a newer epoch than its own stops for good (`Fenced`)
    K4  the hold `sink-<id>` on the shard stays before all that is not recorded as sent
    K5  nothing is sent of times at which the collection is in error or a key has several rows

A step is one transaction, and a consumer that reads only what is committed sees each time wholly
or not at all. But a transaction must end before the broker loses patience (`transaction.timeout.ms`,
five minutes here), and a snapshot can be of any size: past `TRANSACTION_BYTES` it is committed with
a record {"upper": 5, "after": key} that says how far in time 5 it has come, and goes on in the next.

Whatever goes wrong, `step()` is called again: it makes a new producer, which ends the transaction
that the old one left, and reads the progress, which tells whether a commit of unknown outcome was
made. An unsound collection (K5) stalls the sink. When it is sound again, all that has happened in
between is sent at once, as if it had happened then:

    k   a at 5, a and b at 6, b at 7, c at 8     sent: a, and when 8 is complete: c

The debezium envelope is {"before", "after", "op", "ts_ms"}, without "source", "transaction" and the
null message after a delete; the rows of the snapshot are created (op c). Partitions are those that
Java clients choose for the same key. Upserts do not tell their time: Kafka's timestamp is when a
message was sent, as `produce_batch` takes neither timestamps nor headers.

Which topic it has written to is recorded, too: one that was made anew lacks what was sent, and is
not written to. What it does not do: it does not notice that its topic was emptied, and it writes
JSON only. Consumers must set isolation.level to read_committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec
import pyarrow as pa
import structlog
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import OFFSET_BEGINNING, NewTopic
from msgspec.structs import replace
from pyspark.sql import SparkSession

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import (
    AsOfBeforeSince,
    DataError,
    Fenced,
    InvalidUsage,
    TidemarkError,
    Unavailable,
)
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.storage.kafka.broker import KafkaBroker, TopicLost
from tidemark.storage.kafka.messages import AT, CLASH, KEY, VALUE, Messages, Place, Unsound
from tidemark.storage.kafka.spec import KafkaSink, sink_holder
from tidemark.storage.source import SinkStatistics

log = structlog.get_logger("sink")

REQUEST_SECONDS = 30.0
"""How long the brokers have for an answer."""

ABORT_SECONDS = 5.0

TRANSACTION_MS = 300_000
TRANSACTION_BYTES = 64 << 20
SLICE_BYTES = 8 << 20
SLICE_ROWS = 50_000
"""Handed to the producer at once; then it is waited for, so that little is in memory."""

PRODUCER = {
    "transaction.timeout.ms": str(TRANSACTION_MS),
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    # How large a message may be is for the topic to say.
    "message.max.bytes": str(256 << 20),
}
"""Unless the connection's settings say otherwise."""

UNCOMMITTED = {"isolation.level": "read_uncommitted", "enable.auto.commit": "false"}
COMMITTED = {
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
}

AGAIN = "nothing is lost, the next step tries again"

SHUT_OUT = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """All before `upper` is in the topic (None: all there will ever be), and of the messages at
    `upper` those with keys up to `after`. `topic` tells the topic from others of its name."""

    epoch: int
    upper: int | None
    after: str | None = None
    topic: str | None = None


class SinkRun:
    """Sends one sink's messages, a step at a time. One thread uses it."""

    def __init__(self, sink: KafkaSink, *, client: PersistClient, spark: SparkSession):
        sink.check()
        self._sink = sink
        self._reader = client.open_reader(sink.shard)
        self._messages = Messages(sink, client, spark)
        self._topics = _Topics(sink)
        self._hold = client.open_critical_since(sink.shard, sink_holder(sink.id))
        if self._hold.since is None:
            self._hold.downgrade(Frontier(sink.as_of))

    @property
    def sent(self) -> SinkStatistics:
        return self._topics.sent

    def step(self) -> Frontier:
        """Send what has become complete; returns the time up to which the topic is complete."""
        done = self._topics.progress or self._start()
        if done.upper is None:
            return Frontier.EMPTY
        place, upper = Place(done.upper, done.after), self._reader.upper
        if place.time == self._sink.as_of and upper.covers(place.time):
            upper = Frontier(place.time + 1)
        if upper <= Frontier(place.time):
            return Frontier(place.time)
        try:
            with self._messages.read(place, upper) as chunks:
                upper = chunks.upper
                self._topics.send(chunks.tables, upper)
        except AsOfBeforeSince:
            # One that has taken over lets go of what this one would read next.
            self._topics.check_epoch()
            raise
        except Unsound as error:
            upper = self._settle(place, error)
        self._let_go(upper)
        return upper

    def _settle(self, place: Place, error: Unsound) -> Frontier:
        """Go on behind what is unsound at `place`; raises `error` if it is no better now."""
        upper = self._reader.upper
        if place.after is not None or upper.time is None or upper.time - 1 <= place.time:
            raise error
        if self._topics.progress is None:
            self._start()
        with self._messages.settled(place, upper) as chunks:
            self._topics.send(chunks.tables, upper, whole=True)
        log.info("sound again", sink=self._sink.id, since=place.time, upper=upper.time)
        return upper

    def drop(self) -> None:
        """The sink is no more: history is not held for it any longer. The topics stay."""
        self.close()
        self._hold.release()

    def close(self) -> None:
        self._topics.close()

    def _start(self) -> Progress:
        held = self._hold.since or Frontier.MIN
        done = self._topics.open()
        if done.upper is not None and held > Frontier(max(done.upper - 1, self._sink.as_of)):
            self.close()
            raise DataError(
                f"sink {self._sink.id} would have to go on at time {done.upper}, "
                f"but its shard is held from {held} on only",
                hint=f"topic {self._sink.progress_topic} has lost its progress, or as_of was too "
                "old: drop the sink and create it again",
            )
        return done

    def _let_go(self, upper: Frontier) -> None:
        # A finished collection stays readable: to let go of its end would be to let go of it all.
        if upper.time is not None:
            self._hold.downgrade(Frontier(max(upper.time - 1, self._sink.as_of)))


class _Topics:
    """The sink's two topics: transactions, and what they have recorded."""

    def __init__(self, sink: KafkaSink):
        self._sink = sink
        self._name = f"tidemark-sink-{sink.id}"
        self._epoch = 0
        self.sent = SinkStatistics()
        self._producer: Producer | None = None
        self._broker: KafkaBroker | None = None
        self.progress: Progress | None = None
        """What is recorded; None while that is not known."""

    def open(self) -> Progress:
        """Shut out whoever sent before, and find out how far it came (K3)."""
        with self._explained():
            empty = self._create(self._sink.progress_topic, 1, {"cleanup.policy": "compact"})
            if self._epoch:
                # After trouble: another one may be at work by now, which must not be disturbed.
                self._check(self._recorded())
            self._producer = Producer(self._settings(PRODUCER, {"transactional.id": self._name}))
            self._producer.init_transactions(REQUEST_SECONDS)
            found = None if empty else self._recorded()
            self._check(found)
            found = found or Progress(0, self._sink.as_of)
            self._create_topic(found)
            found = replace(found, topic=self._checked(found))
            if not self._epoch:
                self._producer.begin_transaction()
                self._commit(replace(found, epoch=found.epoch + 1))
                self._epoch = found.epoch + 1
            else:
                self.progress = found
        assert self.progress is not None
        return self.progress

    def send(self, tables: Iterable[pa.Table], upper: Frontier, *, whole: bool = False) -> None:
        """Messages, which are in order and all there are before `upper`, and that they are (K1);
        `whole`: in one transaction, however many they are."""
        assert self._producer is not None
        assert self.progress is not None
        with self._explained():
            topic = self._checked(self.progress)
            self._producer.begin_transaction()
            size = 0
            for table in _slices(tables):
                self._check_keys(table)
                self._produce(table)
                self.sent = self.sent.staged(table.num_rows, table.select([KEY, VALUE]).nbytes)
                size += table.nbytes
                if size > TRANSACTION_BYTES and not whole:
                    time, key = (table[name][-1].as_py() for name in (AT, KEY))
                    self._commit(Progress(self._epoch, time, key, topic))
                    self._producer.begin_transaction()
                    size = 0
            self._commit(Progress(self._epoch, upper.time, topic=topic))

    def check_epoch(self) -> None:
        """Stop here if another one has taken over (K3)."""
        with self._explained():
            self._check(self._recorded())

    def close(self) -> None:
        producer, self._producer, self.progress = self._producer, None, None
        if producer is not None:
            # If it cannot be said now, the next start ends the transaction.
            with suppress(KafkaException):
                producer.abort_transaction(ABORT_SECONDS)

    def _check_keys(self, table: pa.Table) -> None:
        clashing = table.filter(table[CLASH])
        if clashing.num_rows:
            raise Unsound(
                f"the key is not unique: {clashing[KEY][0]} has several rows "
                f"at time {clashing[AT][0]}",
                hint=f"sink {self._sink.id} waits until it is; better choose a key that always is",
            )

    def _produce(self, table: pa.Table) -> None:
        assert self._producer is not None
        messages = table.select([KEY, VALUE]).to_pylist()
        if self._producer.produce_batch(self._sink.topic, messages) < len(messages):
            raise KafkaException(next(m["_error"] for m in messages if "_error" in m))
        if self._producer.flush(REQUEST_SECONDS):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _commit(self, progress: Progress) -> None:
        assert self._producer is not None
        self._producer.produce(
            self._sink.progress_topic,
            key=self._sink.id,
            value=msgspec.json.encode(progress),
            partition=0,
        )
        self._producer.commit_transaction(REQUEST_SECONDS)
        self.sent = self.sent.committed
        self.progress = progress

    def _recorded(self) -> Progress | None:
        """The last progress that was committed.

        All that is in the topic must have been decided first. A transaction of another sink that
        is still open hides what comes after it, and our own last record may be there.
        """
        topic, found, position = self._sink.progress_topic, None, 0
        uncommitted = Consumer(self._settings({}, {"group.id": self._name, **UNCOMMITTED}))
        try:
            last = TopicPartition(topic, 0)
            end = uncommitted.get_watermark_offsets(last, timeout=REQUEST_SECONDS)[1]
        finally:
            uncommitted.close()
        consumer = Consumer(self._settings({}, {"group.id": self._name, **COMMITTED}))
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while position < end:
                message = consumer.poll(REQUEST_SECONDS)
                if message is None:
                    raise Unavailable(
                        f"topic {topic} cannot be read past offset {position} of {end}",
                        hint="a transaction is open: the broker ends one that a dead sink left "
                        f"within {TRANSACTION_MS // 1000} s; if it does not, "
                        "`kafka-transactions.sh find-hanging` shows which it is",
                    )
                error, offset = message.error(), message.offset()
                if error is None and offset is not None:
                    position = offset + 1
                    if message.key() == self._sink.id.encode():
                        found = msgspec.json.decode(message.value() or b"", type=Progress)
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    position = offset or 0
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return found

    def _check(self, recorded: Progress | None) -> None:
        if not self._epoch:
            return
        if recorded is None:
            raise DataError(
                f"topic {self._sink.progress_topic} has lost the progress of sink {self._sink.id}",
                hint="drop the sink and create it again",
            )
        if recorded.epoch > self._epoch:
            raise Fenced(
                f"sink {self._sink.id}: another process has taken over (epoch {recorded.epoch}, "
                f"this one is {self._epoch}); nothing of what was under way was sent",
                hint="stop this process, or the other one",
            )

    def _fresh(self, progress: Progress) -> bool:
        """Whether nothing was sent yet."""
        return (progress.upper, progress.after) == (self._sink.as_of, None)

    def _checked(self, progress: Progress) -> str:
        """The topic's id; it must be the one that has what was sent."""
        self._broker = self._broker or KafkaBroker(self._sink.connection, self._sink.topic)
        try:
            found = (
                self._known_id(self._broker) if self._fresh(progress) else self._broker.topic_id()
            )
        except TopicLost:
            raise self._gone() from None
        except Unavailable as error:
            raise Unavailable(f"sink {self._sink.id}: {error.message}", hint=AGAIN) from None
        if progress.topic not in (None, found) and not self._fresh(progress):
            raise self._gone()
        return found

    def _known_id(self, broker: KafkaBroker) -> str:
        """A broker may take a moment to know the topic that was just made."""
        for pause in (0.1, 0.3, 1.0, 3.0):
            with suppress(TopicLost):
                return broker.topic_id()
            SYSTEM_CLOCK.sleep(pause)
        raise Unavailable(f"the broker does not know topic {self._sink.topic} yet")

    def _gone(self) -> DataError:
        return DataError(
            f"topic {self._sink.topic} is gone or was made anew, and with it went what sink "
            f"{self._sink.id} has sent",
            hint="drop the sink and create it again",
        )

    def _create_topic(self, progress: Progress) -> None:
        sink, fresh = self._sink, self._fresh(progress)
        policy = {"cleanup.policy": "compact"} if sink.envelope == "upsert" else {}
        if self._create(sink.topic, sink.partitions, policy | sink.topic_config, fresh=fresh):
            log.info("topic created", sink=sink.id, topic=sink.topic)

    def _create(
        self, topic: str, partitions: int, config: dict[str, str], *, fresh: bool = True
    ) -> bool:
        """Create the topic if there is none; whether there was none."""
        admin = AdminClient(self._settings())
        if topic in admin.list_topics(timeout=REQUEST_SECONDS).topics:
            return False
        if not fresh:
            raise self._gone()
        new = NewTopic(topic, partitions, self._sink.replication, config=config)
        try:
            admin.create_topics([new])[topic].result(REQUEST_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def _settings(self, *more: dict[str, str]) -> dict[str, str | int | float | bool]:
        connection = self._sink.connection
        defaults, own = more or ({}, {})
        return {
            "bootstrap.servers": connection.brokers,
            "log_level": 0,
            "allow.auto.create.topics": "false",
            **defaults,
            **connection.settings,
            **connection.secrets,
            **own,
        }

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Trouble ends the producer, and comes as an error of ours."""
        try:
            yield
        except KafkaException as error:
            cause = self._cause(error)
            self.close()
            if cause.code() in SHUT_OUT and self._epoch:
                # Brokers say the same of a transaction that took too long. The epoch tells.
                with suppress(KafkaException):
                    self._check(self._recorded())
            raise self._error(cause) from None
        except BaseException:
            self.close()
            raise

    def _cause(self, error: KafkaException) -> KafkaError:
        cause = error.args[0]
        if cause.code() == KafkaError._FATAL and self._producer is not None:
            # That there was one is all that is said of a fatal error, but to transactions.
            try:
                self._producer.abort_transaction(ABORT_SECONDS)
            except KafkaException as fatal:
                return fatal.args[0]
        return cause

    def _error(self, cause: KafkaError) -> TidemarkError:
        said = cause.str()
        for secret in self._sink.connection.secrets.values():
            said = said.replace(secret, "***") if secret else said
        said = f"sink {self._sink.id}: {said}"
        match cause.code():
            case KafkaError.MSG_SIZE_TOO_LARGE:
                return DataError(said, hint="raise max.message.bytes of the topic")
            case KafkaError._INVALID_ARG:
                return InvalidUsage(said, hint="change the settings of the connection")
            case _:
                hint = f"are the brokers at {self._sink.connection.brokers} up? "
                return Unavailable(said, hint=hint + AGAIN)


def _slices(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Pieces of about `SLICE_BYTES`."""
    for table in tables:
        rows = max(1, table.num_rows * SLICE_BYTES // max(table.nbytes, 1))
        rows = min(rows, SLICE_ROWS)
        for start in range(0, table.num_rows, rows):
            yield table.slice(start, rows)
