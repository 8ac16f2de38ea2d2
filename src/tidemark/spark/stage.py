"""DataFrames as batches: executors write the parts, the driver appends them as one batch.

Every task collects what it gets into sorted parts of the configured size and writes them straight
into Blob under names of their own, with their statistics. What comes back to the driver is a
description. Nothing is renamed and nothing is found by listing, so a task that fails, is repeated
or runs twice leaves parts that nobody refers to, and a driver that dies leaves no more than that;
the sweep for leftovers deletes them (`Config.leak_after_ms`).

A result that the optimiser knows to be small does not go through tasks' hands: it comes back as
Arrow and travels inside the shard's state, or as one part. Of a result that turns out small, each
task sends its rows back in its description, and the append makes one part of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import InvalidUsage
from tidemark.ipc import decode_schema, encode_schema
from tidemark.persist.blob import Blob
from tidemark.persist.client import PersistClient
from tidemark.persist.config import MIB, Config
from tidemark.persist.location import open_blob
from tidemark.persist.staging import Builder, Staged, Stager, fuse
from tidemark.persist.updates import as_updates
from tidemark.persist.write import WriteHandle
from tidemark.spark.frames import column, spark_schema
from tidemark.spark.progress import progress

SMALL_BYTES = 4 * MIB
"""Results that the optimiser expects to be smaller come back as Arrow."""


UNBOUNDED = ("Generate", "MapIn", "FlatMap", "MapPartitions", "Python", "repeat(", "pad(", "UDF")
"""What in a plan makes its size impossible to foresee."""


class Site(msgspec.Struct, frozen=True):
    """All that another process needs to know to stage parts of a shard; picklable."""

    blob: str
    shard_id: str
    schema: bytes
    number: int
    key: tuple[str, ...]
    config: Config
    floor: int

    @staticmethod
    def of(client: PersistClient, writer: WriteHandle, *, number: int | None = None) -> Site:
        """Where the parts of `writer` are staged. They are of its schema, or, with a `number` that
        is not known yet, of one that their append makes known (`Staged.of_schema`)."""
        return Site(
            client.shared_address().blob,
            writer.shard_id,
            encode_schema(writer.schema),
            writer.register() if number is None else number,
            writer.key,
            client.config,
            client.state(writer.shard_id).floor,
        )

    def stage(self, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Write `batches` as parts. Updates, or rows to be placed in time by `Staged.at`."""
        stager = self.stager()
        schema = decode_schema(self.schema)
        builder = Builder(stager, schema, self.number, self.config)
        try:
            for batch in batches:
                builder.add(as_updates(pa.Table.from_batches([batch]), time=0, schema=schema))
            return builder.finish()
        except BaseException:
            builder.discard()
            raise

    def stager(self) -> Stager:
        return Stager(
            _blob(self.blob),
            self.shard_id,
            key=self.key,
            config=self.config,
            clock=SYSTEM_CLOCK,
            floor=lambda: self.floor,
        )


@lru_cache(maxsize=8)
def _blob(uri: str) -> Blob:
    """One per worker process and address."""
    return open_blob(uri)


def stage(
    frame: DataFrame, client: PersistClient, writer: WriteHandle, *, small: bool | None = None
) -> Staged:
    """`frame` as a batch to append: updates of the shard, or its rows alone (then `Staged.at`
    says when they come). `small` overrides the optimiser's guess at its size."""
    frame = conformed(frame, writer.schema)
    if is_small(frame) if small is None else small:
        table = frame.toArrow()
        return writer.stage(as_updates(table, time=0, schema=writer.schema))
    site = Site.of(client, writer)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged = site.stage(batches)
        yield pa.record_batch({"staged": pa.array([staged.to_bytes()], pa.binary())})

    with progress(frame.sparkSession, f"write to {writer.shard_id}"):
        found = frame.mapInArrow(write, "staged binary").toArrow()["staged"].to_pylist()
    return fuse(writer.shard_id, map(Staged.from_bytes, found))


def conformed(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The columns of the shard in its order and types; what of `_time`, `_diff` and `_err` is
    missing stays so."""
    wanted = [name for name in schema.names if not name.startswith("_") or name in frame.columns]
    missing = [name for name in wanted if name not in frame.columns]
    unknown = [name for name in frame.columns if name not in schema.names]
    if missing or unknown:
        trouble = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)} as well"
        raise InvalidUsage(
            f"the frame {trouble}", hint=f"columns of the shard: {', '.join(schema.names)}"
        )
    kinds = {field.name: field.dataType for field in spark_schema(schema)}
    have = {field.name: field.dataType for field in frame.schema}
    if list(have.items()) == [(name, kinds[name]) for name in wanted]:
        return frame
    return frame.select(
        *(column(n) if have[n] == kinds[n] else column(n).cast(kinds[n]).alias(n) for n in wanted)
    )


def is_small(frame: DataFrame) -> bool:
    """Whether the optimiser is sure that the result is small. Its estimates are upper bounds but
    for what makes many rows of one, or large values of small ones."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()  # pyright: ignore[reportOptionalCall]
    if int(plan.stats().sizeInBytes()) > SMALL_BYTES:
        return False
    return not any(word in text for text in _nodes(plan) for word in UNBOUNDED)


def _nodes(plan: Any) -> Iterator[str]:
    """What each node of a plan says; once something is cached its size is known, however it came
    about."""
    if plan.nodeName() == "InMemoryRelation" and plan.cacheBuilder().isCachedColumnBuffersLoaded():
        return
    # With what it was cached from, if it is a relation that is cached but not yet filled.
    yield plan.simpleString(2**31 - 1) if plan.children().length() else plan.toString()
    children = plan.children()
    for at in range(children.length()):
        yield from _nodes(children.apply(at))
