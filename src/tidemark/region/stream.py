"""Streams: a collection's snapshot and then its changes, and streams that become shards.

Reading. An offset is an upper: everything before it has been given out. The first batch is the
collection at one time, every later one what happened since; Spark's checkpoint remembers the
offsets, so each batch is given out once, also over restarts, if what lies between two offsets is
still there. A stream with a `name` makes sure of that by a durable hold of that name on the
collection's since; one without is held by a lease that outlives it for five minutes.

Writing. A batch becomes one append whose token is the stream and the batch's number in it. The
shard remembers the last token of each name in the same commit as the rows, so a batch that Spark
repeats after a crash is not appended twice, and a stream that began anew under an old name, with
another checkpoint, is refused: nobody could tell what of it is there already.

Passing through. The stream is written to a shard, and what others go on with is read from there:
they see what is durable and nothing else, and after a restart begin with what there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import Lease, PersistClient
from tidemark.region.append import OF_BATCH, Target
from tidemark.region.options import Options
from tidemark.region.plan import plan_changes, plan_snapshot
from tidemark.region.source import Parts, Work, commit, prepared, rows_of, staged_by_task
from tidemark.spark.frames import check_sound
from tidemark.spark.stage import Site

UPPER = "upper"
HOLDER = "stream-"
"""How the durable holds of streams begin."""


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process that Spark starts for the stream; copies of it read, in tasks."""

    def __init__(self, options: Options, schema: StructType):
        self._options = options
        self._schema = schema
        self._client: PersistClient | None = None
        self._held: _Held | None = None
        self._reading: Lease | None = None
        self._target: int | None = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_client": None, "_held": None, "_reading": None}

    def initialOffset(self) -> dict:
        self._hold(0)
        return {UPPER: 0}

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        """The shard's upper; but while nothing happens, Spark need not know that time goes on."""
        self._hold(start[UPPER])
        last, upper = self._reached()
        if self._target is not None:
            upper = min(upper, self._target)
        return start if last < start[UPPER] or upper <= start[UPPER] else {UPPER: upper}

    def prepareForTriggerAvailableNow(self) -> None:
        """The stream is to end when it has come as far as the shard is now. Without this, Spark
        would end it after one batch, be that only the one that a crash has left to be repeated."""
        _, self._target = self._reached()

    def _reached(self) -> tuple[int, int]:
        """The time of the last update, and the upper."""
        client, shard_id = self._opened()
        state = client.state(shard_id)
        last = max((p.max_time for p in state.parts), default=-1)
        return last, last + 1 if state.upper.time is None else state.upper.time

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        client, shard_id = self._opened()
        lower, upper = start[UPPER], end[UPPER]
        self._hold(lower)
        if lower >= upper:
            return []
        # The parts of one batch are pinned until the next is planned.
        lease = client.open_reader(shard_id).lease(lower - 1 if lower else upper - 1)
        if self._reading is not None:
            self._reading.release()
        self._reading = lease
        check_sound(client.blob, lease.state, upper - 1)
        if lower == 0:
            return [Work(piece) for piece in plan_snapshot(client, lease, upper - 1)]
        return [Work(piece) for piece in plan_changes(client, lease, lower, upper)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Work)
        return rows_of(partition.piece, self._schema)

    def commit(self, end: dict) -> None:
        """Everything before `end` has been processed and will not be asked for again."""
        self._hold(end[UPPER])

    def stop(self) -> None:
        if self._held is not None:
            self._held.leave()
        if self._client is not None:
            self._client.close()

    def _opened(self) -> tuple[PersistClient, str]:
        if self._client is None:
            self._client = self._options.open()
        return self._client, self._options.shard_id(self._client)

    def _hold(self, upper: int) -> None:
        """Keep the updates from `upper` on apart from those before it."""
        client, shard_id = self._opened()
        if self._held is None:
            self._held = _Held(client, shard_id, self._options.given.get("name"), upper)
        self._held.advance(upper)


class _Held:
    """What a stream may still ask for: a durable hold if it has a name, else a lease."""

    def __init__(self, client: PersistClient, shard_id: str, name: str | None, upper: int):
        as_of = upper - 1 if upper else None
        try:
            self._lease = client.open_reader(shard_id).hold(as_of)
        except AsOfBeforeSince as error:
            raise AsOfBeforeSince(
                f"the stream stopped at {as_of}, and shard {shard_id} has forgotten what came next: "
                f"{error}",
                hint="begin with a new checkpoint; a stream with a name is waited for",
            ) from error
        self._hold = client.open_critical_since(shard_id, HOLDER + name) if name else None
        self._upper = -1
        self.advance(upper)
        if self._hold is not None:
            self._lease.release()

    def advance(self, upper: int) -> None:
        if upper <= self._upper:
            return
        self._upper = upper
        since = Frontier(max(upper - 1, 0))
        if self._hold is not None:
            self._hold.downgrade(since)
        else:
            self._lease.downgrade(since)

    def leave(self) -> None:
        """The stream has stopped; it may come back within the time that a lease is kept."""
        self._lease.detach()


class StreamWriter(DataSourceStreamArrowWriter):
    """One append for each batch, made once."""

    def __init__(self, target: Target, site: Site):
        self._target = target
        self._site = site

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return staged_by_task(self._site, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        query = next((each.query for each in messages if isinstance(each, Parts)), None)
        if query is not None:  # Without a task there are no rows.
            commit(self._target, messages, token=f"{query}{OF_BATCH}{batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing, as in `BatchWriter`."""


class PassedThrough(NamedTuple):
    query: StreamingQuery
    """Writes the stream down. Stop it to stop."""
    frame: DataFrame
    """The stream, as far as it is durable: rows with `_time` and `_diff`."""


def pass_through(
    stream: DataFrame,
    *,
    shard: str,
    name: str,
    checkpoint: str | Path,
    data: str | Path | None = None,
    blob: str | None = None,
    consensus: str | None = None,
) -> PassedThrough:
    """Persist `stream` in `shard` and go on with what is durable of it.

    `name` and `checkpoint` identify the writing stream: give the same ones after a restart.
    """
    spark = stream.sparkSession
    given = {"data": data, "blob": blob, "consensus": consensus, "shard": shard}
    where = {option: str(value) for option, value in given.items() if value is not None}
    # The shard must be there, with its schema, before anyone can read it.
    options = Options.of({**where, "name": name})
    target, _ = prepared(options, stream.schema, overwrite=False)
    client = options.open()
    try:
        target.open_writer(client).register()
    finally:
        client.close()
    writing = stream.writeStream.format("tidemark").options(**where).option("name", name)
    query = writing.option("checkpointLocation", str(checkpoint)).start()
    frame = spark.readStream.format("tidemark").options(**where).option("updates", "true").load()
    return PassedThrough(query, frame)
