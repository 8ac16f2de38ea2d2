"""The data source `tidemark`: collections and shards as DataFrames, and DataFrames as shards.

    spark.read.format("tidemark").option("data", folder).option("collection", "bids").load()

A read is of one time (`as_of`, or the newest that is complete) and is cut into ranges of
positions, one for each task. A task merges what all batches hold of its range, as compaction
does, so rows come out exact whatever shape the shard is in. They travel as Arrow from Spark's
Python workers; `Region.at` is the faster way, in which Spark reads the Parquet parts itself.

Spark plans a read in a process of its own that ends when it has planned, so the lease on the
parts is left to the tasks, each of which renews it while it reads; then it ends by itself.

A write stages parts in tasks and appends them as one batch when all are done (`append`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidemark.errors import InvalidUsage, Unavailable
from tidemark.persist import DIFF, TIME, PersistClient, Staged, filters
from tidemark.persist.filters import Predicate
from tidemark.persist.holds import check_as_of
from tidemark.persist.staging import fuse
from tidemark.persist.updates import row_names
from tidemark.region.append import Target
from tidemark.region.options import Options
from tidemark.region.plan import Piece, plan_snapshot, repeated
from tidemark.spark.frames import check_sound, spark_schema
from tidemark.spark.stage import Site


class TidemarkSource(DataSource):
    """What Spark makes of `.format("tidemark")`."""

    @classmethod
    def name(cls) -> str:
        return "tidemark"

    def __init__(self, options: Mapping[str, str]):
        self._options = Options.of(options)

    def schema(self) -> StructType:
        """The row's columns; with the option `updates` also `_time` and `_diff`."""
        client = self._options.open()
        try:
            found = client.open_reader(self._options.shard_id(client)).schema
        finally:
            client.close()
        names = self._options.names("columns") or row_names(found)
        unknown = [name for name in names if name not in row_names(found)]
        if unknown:
            raise InvalidUsage(
                f"no such columns: {', '.join(unknown)}",
                hint=f"columns: {', '.join(row_names(found))}",
            )
        names = [*names, TIME, DIFF] if self._options.updates else names
        return spark_schema(pa.schema([found.field(name) for name in names]))

    def _check(self, schema: StructType) -> None:
        """A schema that the user gave names columns that there are."""
        known = {field.name for field in self.schema()} | {TIME, DIFF}
        if unknown := [field.name for field in schema if field.name not in known]:
            raise InvalidUsage(f"no such columns: {', '.join(unknown)}")

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check(schema)
        return SnapshotReader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(*prepared(self._options, schema, overwrite))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidemark.region.stream import ChangeReader

        self._check(schema)
        return ChangeReader(self._options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from tidemark.region.stream import StreamWriter

        if not self._options.given.get("name"):
            raise InvalidUsage(
                "a stream that is written needs a name of its own",
                hint='.option("name", "scorer"): the shard remembers under it what was written',
            )
        return StreamWriter(*prepared(self._options, schema, overwrite))


@dataclass
class Work(InputPartition):
    piece: Piece


class SnapshotReader(DataSourceReader):
    """The rows of a collection at one time."""

    def __init__(self, options: Options, schema: StructType):
        self._options = options
        self._schema = schema
        self._clauses: list[list[Predicate]] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Parts that no row of passes are not read. Spark still looks at the rows itself."""
        known = [found for each in filters if (found := _predicate(each)) is not None]
        self._clauses = [known] if known else None
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        client = self._options.open()
        try:
            shard_id = self._options.shard_id(client)
            as_of = self._options.number("as_of")
            if as_of is None:
                as_of = newest(client, shard_id)
            reader = client.open_reader(shard_id)
            check_as_of(client.state(shard_id), as_of)
            if reader.wait_for_upper_past(as_of, timeout=WAIT) is None:
                raise Unavailable(
                    f"shard {shard_id} is complete to {reader.upper}, not at {as_of} yet",
                    hint="read at an earlier time, or wait",
                )
            clauses = filters.clauses(self._clauses, reader.schema) if self._clauses else None
            lease = reader.lease(as_of)
            lease.detach()
            check_sound(client.blob, lease.state, as_of)
            return [Work(piece) for piece in plan_snapshot(client, lease, as_of, clauses)]
        finally:
            client.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Work)
        return rows_of(partition.piece, self._schema)


WAIT = 60.0
"""Seconds that a read waits for a time that is not complete yet."""


def rows_of(piece: Piece, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a piece as Spark wants them."""
    target = to_arrow_schema(schema, timezone="UTC")
    for table in piece.read():
        if DIFF not in target.names:
            table = repeated(table, pruned=piece.pruned)
        for batch in table.select(target.names).cast(target).to_batches():
            yield pa.RecordBatch.from_arrays(batch.columns, schema=target)


def newest(client: PersistClient, shard_id: str) -> int:
    """The last time that is complete."""
    upper = client.state(shard_id).upper
    if upper.time == 0:
        raise InvalidUsage(
            f"shard {shard_id} is not complete at any time yet", hint="try again in a moment"
        )
    if upper.time is None:
        return max((part.max_time for part in client.state(shard_id).parts), default=0)
    return upper.time - 1


_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


def _predicate(given: Filter) -> Predicate | None:
    """A filter that statistics can say something about."""
    operator = _OPERATORS.get(type(given))
    attribute = getattr(given, "attribute", ())
    value = getattr(given, "value", None)
    if operator is None or len(attribute) != 1 or value is None or attribute[0].startswith("_"):
        return None
    if operator == "in" and (not value or None in value):
        return None
    return attribute[0], operator, list(value) if operator == "in" else value


@dataclass
class Parts(WriterCommitMessage):
    staged: bytes
    query: str | None
    """The stream that the task was of, as its checkpoint names it."""


def staged_by_task(site: Site, batches: Iterator[pa.RecordBatch]) -> Parts:
    staged = site.stage(batches)
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    return Parts(staged.to_bytes(), query)


def prepared(options: Options, schema: StructType, overwrite: bool) -> tuple[Target, Site]:
    """Where tasks stage, and where the driver appends."""
    if overwrite:
        raise InvalidUsage(
            "a shard cannot be overwritten: its history stays", hint='use .mode("append")'
        )
    client = options.open()
    try:
        target = Target.of(options, to_arrow_schema(schema, timezone="UTC"))
        return target, target.site(client)
    finally:
        client.close()


class BatchWriter(DataSourceArrowWriter):
    """One batch: all of it or nothing."""

    def __init__(self, target: Target, site: Site):
        self._target = target
        self._site = site

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return staged_by_task(self._site, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self._target, messages, token=self._target.options.given.get("token"))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: a commit that failed may yet have happened, and then the parts are the shard's.
        If it has not, the sweep finds them."""


def commit(
    target: Target, messages: list[WriterCommitMessage | None], *, token: str | None
) -> None:
    client = target.options.open()
    try:
        shard_id = target.options.shard or ""
        target.append(client, staged_of(shard_id, messages), token=token)
        client.maintain_small(shard_id)
    finally:
        client.close()


def staged_of(shard_id: str, messages: list[WriterCommitMessage | None]) -> Staged:
    found = [Staged.from_bytes(each.staged) for each in messages if isinstance(each, Parts)]
    return fuse(shard_id, found)
