"""A Kafka source's part of an ingestion (storage/source.py): how far it is, and what lies between.

    few messages    one Spark job reads and decodes them; its result comes back as Arrow, what they
                    replace is looked up here, and all of it is one small batch
    many            the tasks of a Spark job order them, too, look up what theirs replace, in
                    arrangements of their own hosts, and write the parts

Offsets say how many messages there can be before any is read, so the choice is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tidemark.errors import InvalidUsage, Unsupported
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient, WriteHandle
from tidemark.persist.arrange import Arrangement, open_arrangement
from tidemark.persist.config import MIB
from tidemark.persist.staging import Staged, fuse
from tidemark.persist.updates import consolidate
from tidemark.spark.frames import column
from tidemark.spark.probe import Wanted, opened
from tidemark.spark.progress import progress
from tidemark.spark.session import LARGE, SMALL, session_for
from tidemark.spark.stage import Site
from tidemark.storage.kafka.broker import Broker, Marks, TopicLost
from tidemark.storage.kafka.decode import schema_ids
from tidemark.storage.kafka.registry import Registry
from tidemark.storage.kafka.spec import KafkaSource, RegistryConnection
from tidemark.storage.kafka.upsert import (
    SIZE,
    Appends,
    Envelope,
    Upserts,
    Writers,
    message_size,
    retracted,
)
from tidemark.storage.remap import Offsets
from tidemark.storage.source import (
    Batch,
    Counts,
    Output,
    Statistics,
    Stretch,
    held_from_the_beginning,
)
from tidemark.types import arrow_schema

FEW_MESSAGES = 50_000
"""Up to this many come back to the driver."""

FEW_BYTES = 64 * MIB
MOST_BYTES = 4 * FEW_BYTES
"""What they may have at most: as one of them has more than its share, they are many."""

TOO_LARGE = "tidemark: a message is too large for the driver"
UNKNOWN_BYTES = FEW_BYTES // 1_000
"""Taken for a message's size as long as none was ever seen."""

TABLE = "data"
WRITTEN = "staged binary, counts array<bigint>"

AGAIN = "what was read stays readable; drop the source and create it again to read anew"


class KafkaUpstream:
    def __init__(
        self,
        source: KafkaSource,
        broker: Broker,
        *,
        client: PersistClient,
        spark: SparkSession,
        folder: Path | str,
    ):
        """`folder` is for arrangements."""
        source.check()
        self._source = source
        self._broker = broker
        self._client = client
        self._folder = str(folder)
        self._topic_id = source.topic_id
        self._small, self._large = _sessions(spark)
        self._key = tuple(c.name for c in source.key_columns) if source.envelope != "none" else ()
        self.outputs = {TABLE: Output(arrow_schema(source.columns), self._key)}
        self._hold = held_from_the_beginning(client, source.output, source.id)
        self._marks: dict[int, Marks] = {}
        self._writers: dict[str, dict[int, str]] = {"key": {}, "value": {}}
        self._most_few = FEW_MESSAGES
        self._making = Lock()
        self._envelopes: dict[tuple[Writers, Writers], Envelope] = {}
        self._stack = ExitStack()
        self._arrangement: Arrangement | None = None
        self._aside = ThreadPoolExecutor(1, f"aside-{source.id}")
        self._begin()

    def _begin(self) -> None:
        """What takes a while and will be needed is begun right away."""
        if not self._registered():
            self._aside.submit(self._envelope, ((), ()))
        upper = self._client.state(self._source.output).upper
        if self._key and upper.time:
            self._aside.submit(self._arranged, upper.time - 1)

    def close(self) -> None:
        self._aside.shutdown(cancel_futures=True)
        self._stack.close()
        self._broker.close()

    # How far it is.

    def probe(self, bound: Offsets, since: int, now: int) -> Offsets:
        self._marks = self._broker.marks()
        self._check_topic(bound)
        return {partition: marks.high for partition, marks in self._marks.items()}

    def _check_topic(self, bound: Offsets) -> None:
        """Refuse a topic that does not have what was bound any more."""
        self._check_identity()
        topic = self._source.topic
        for partition, offset in bound.items():
            marks = self._marks.get(partition)
            if marks is None or marks.high < offset:
                reaches = "is gone" if marks is None else f"ends at offset {marks.high}"
                raise TopicLost(
                    f'topic "{topic}" was recreated: partition {partition} {reaches}, '
                    f"but was read up to {offset}",
                    hint=AGAIN,
                )

    def _check_identity(self) -> None:
        current = self._broker.topic_id()
        if self._topic_id is None:
            self._topic_id = current
        if current != self._topic_id:
            raise TopicLost(f'topic "{self._source.topic}" was recreated', hint=AGAIN)

    def _ranges(self, stretch: Stretch) -> dict[int, tuple[int, int]]:
        """What to read; it must all still be there."""
        if not self._marks:
            # It was bound a while ago: the topic may be another by now.
            self._marks = self._broker.marks()
            self._check_topic(stretch.stop)
        known, self._marks = self._marks, {}
        given = self._source.start_offsets
        found = {}
        for partition, stop in stretch.stop.items():
            low = known[partition].low if partition in known else 0
            begun = partition in stretch.start
            asked = given[partition] if partition < len(given) else None
            start = max(stretch.start.get(partition, 0), asked or 0)
            named = begun or asked is not None
            if named and start < min(low, stop):
                raise TopicLost(
                    f'low watermark {low} of topic "{self._source.topic}", partition '
                    f"{partition}, is past the {'resume' if begun else 'start'} offset {start}",
                    hint="messages were deleted before they were read; what was read stays "
                    "readable; drop the source and create it again to go on without them",
                )
            start = start if named else max(start, low)
            if start < stop:
                found[partition] = (start, stop)
        return found

    # What lies between.

    def write(
        self, stretch: Stretch, writers: Mapping[str, WriteHandle], statistics: Statistics
    ) -> Mapping[str, Batch]:
        assert stretch.lower.time is not None
        writer = writers[TABLE]
        ranges = self._ranges(stretch)
        if not ranges:
            return {TABLE: Batch(Staged(writer.shard_id), Counts())}
        messages = sum(stop - start for start, stop in ranges.values())
        few = messages <= self._most_few and messages * self._size(statistics) <= FEW_BYTES
        frame = self._broker.read(self._small if few else self._large, ranges)
        envelope = self._envelope(self._schemas(frame))
        try:
            if few:
                most = MOST_BYTES // messages
                batch, count, size = self._few(frame, envelope, writer, stretch, most)
            else:
                batch, count, size = self._many(frame, envelope, writer, stretch)
        except _TooLarge:
            self._most_few = messages // 2
            return self.write(stretch, writers, statistics)
        try:
            self._check_identity()
            self._let_go(stretch.lower.time - 1)
        except BaseException:
            writer.discard(batch.updates)
            raise
        statistics.messages_received += count
        statistics.bytes_received += size
        return {TABLE: batch}

    def _size(self, statistics: Statistics) -> int:
        """What a message takes, as far as is known: those that were read, or what earlier ones
        have left in the collection."""
        if statistics.messages_received:
            return statistics.bytes_received // statistics.messages_received + 1
        parts = list(self._client.state(self._source.output).parts)
        rows = sum(part.rows for part in parts)
        return (
            sum(part.memory or part.size for part in parts) // rows + 1 if rows else UNKNOWN_BYTES
        )

    def _let_go(self, as_of: int) -> None:
        """Of history before `as_of`, as far as the arrangement's base does not need it: a base
        that history does not reach would have to be made anew."""
        if self._arrangement is not None:
            as_of = min(as_of, self._arrangement.base_as_of)
        self._hold.downgrade(Frontier(max(as_of, 0)))

    def _envelope(self, schemas: tuple[Writers, Writers]) -> Envelope:
        with self._making:
            if schemas not in self._envelopes:
                kind = Appends if self._source.envelope == "none" else Upserts
                self._envelopes[schemas] = kind(self._source, *schemas)
            return self._envelopes[schemas]

    def _few(
        self,
        frame: DataFrame,
        envelope: Envelope,
        writer: WriteHandle,
        stretch: Stretch,
        most: int,
    ) -> tuple[Batch, int, int]:
        """Of messages that have no more than `most` bytes each."""
        as_of = (stretch.lower.time or 0) - 1
        # One task reads them all: small jobs are made of exchanges more than of anything else.
        decoded = envelope.rows(frame.coalesce(1), stretch.bindings)
        decoded = decoded.withColumn(SIZE, _at_most(most))
        # What the collection holds is brought up to date while Spark is at work.
        arranged = self._aside.submit(self._arranged, as_of) if self._key else None
        try:
            rows = decoded.toArrow()
        except (PySparkException, Py4JJavaError) as error:
            raise _TooLarge if TOO_LARGE in str(error) else error from None
        updates = envelope.changes(rows)
        if arranged is not None:
            updates = retracted(updates, self._key, arranged.result(), as_of)
        updates = consolidate(updates.cast(writer.schema))
        size = pc.sum(rows[SIZE], min_count=0).as_py()
        return Batch(writer.stage(updates), Counts.of(updates)), rows.num_rows, size

    def _many(
        self, frame: DataFrame, envelope: Envelope, writer: WriteHandle, stretch: Stretch
    ) -> tuple[Batch, int, int]:
        assert stretch.lower.time is not None
        site = Site.of(self._client, writer)
        wanted = None
        if self._key and stretch.lower.time:
            wanted = Wanted(
                *(self._client.shared_address(), self._client.config, writer.shard_id),
                *(self._key, stretch.lower.time - 1, self._folder),
                errors=True,
            )
        seen = Observation()
        frame = frame.observe(
            seen, F.count(F.lit(1)).alias("n"), F.sum(message_size()).alias("size")
        )
        updates = envelope.updates(frame, stretch.bindings)
        write = partial(_written, site=site, key=self._key, wanted=wanted)
        with progress(self._large, f"source {self._source.id}: {self._source.topic}"):
            found = updates.mapInArrow(write, WRITTEN).toArrow()
        staged = fuse(writer.shard_id, map(Staged.from_bytes, found["staged"].to_pylist()))
        counts = Counts.sum(Counts(*each) for each in found["counts"].to_pylist())
        return Batch(staged, counts), *_observed(seen)

    def _arranged(self, as_of: int) -> Arrangement | None:
        """The collection by its key as it was at `as_of`; None before its first time."""
        if as_of < 0:
            return None
        if self._arrangement is None:
            opening = open_arrangement(
                self._client,
                self._source.output,
                self._key,
                folder=self._folder,
                as_of=as_of,
                errors=True,
            )
            self._arrangement = self._stack.enter_context(opening)
        self._arrangement.hold("opened", as_of)
        return self._arrangement

    def _registered(self) -> dict[str, RegistryConnection]:
        """Of what (key, value) messages name the writers' schemas, and where these are."""
        formats = {"key": self._source.key, "value": self._source.value}
        return {
            name: format.registry
            for name, format in formats.items()
            if format is not None and format.registry is not None and format.kind == "avro"
        }

    def _schemas(self, messages: DataFrame) -> tuple[Writers, Writers]:
        """The writers' schemas of keys and of values, where messages name them."""
        for name, where in self._registered().items():
            known = self._writers[name]
            ids = messages.select(schema_ids(column(name)).alias("id")).where("id IS NOT NULL")
            registry = Registry(where)
            for (found,) in ids.distinct().collect():
                if found not in known:
                    # An id that the registry does not know is an error of its message: writers
                    # register their schemas before they use them.
                    with suppress(InvalidUsage, Unsupported):
                        known[found] = registry.avro(found)
        keys, values = (tuple(sorted(self._writers[name].items())) for name in ("key", "value"))
        return keys, values


class _TooLarge(Exception):
    """Messages are larger than they were, too large to come to the driver."""


def _at_most(size: int) -> Expression:
    """A message's size, if it is no more than that: what they were says little of what they are."""
    found = column(SIZE)
    return F.when(found > size, F.raise_error(F.lit(TOO_LARGE))).otherwise(found)


def _observed(seen: Observation) -> tuple[int, int]:
    """Messages and their bytes."""
    try:
        found = seen.get
    except Py4JJavaError:
        return 0, 0  # A plan that Spark found to be empty observes nothing, and has no row to show.
    return found["n"], found["size"] or 0


@lru_cache(maxsize=4)
def _sessions(spark: SparkSession) -> tuple[SparkSession, SparkSession]:
    """For few messages, and for many; shared by all sources."""
    return session_for(spark, SMALL), session_for(spark, LARGE)


def _written(
    batches: Iterator[pa.RecordBatch],
    *,
    site: Site,
    key: tuple[str, ...],
    wanted: Wanted | None,
) -> Iterator[pa.RecordBatch]:
    """One task's updates as staged parts, in a worker process."""
    counts: list[Counts] = []

    def updates() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if key:
                arrangement = opened(wanted) if wanted is not None else None
                table = retracted(table, key, arrangement, wanted.as_of if wanted else -1)
            table = consolidate(table)
            counts.append(Counts.of(table))
            yield from table.combine_chunks().to_batches()

    staged = site.stage(updates())
    total = pa.array([list(Counts.sum(counts))], pa.list_(pa.int64()))
    yield pa.record_batch({"staged": pa.array([staged.to_bytes()], pa.binary()), "counts": total})
