"""Shards as Spark DataFrames: exact snapshots out, large batches in.

Parts are Parquet files of the shard's own schema, so Spark's vectorised reader takes them as
they are; what the state carries inline joins in as a local relation. A lease keeps the parts in
place while Spark reads them. Small snapshots come through Arrow instead: a Spark job that opens
files costs more than the rows do.

A large result is written by Spark's tasks straight into the blob folder, under a name that
nothing refers to; the driver then makes it durable and describes it as parts, which an append
adopts. A job that dies leaves the shard as it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidemark.errors import InvalidUsage
from tidemark.ipc import decode_table, encode_schema
from tidemark.persist.blob import FileBlob, sync_folder
from tidemark.persist.client import PersistClient
from tidemark.persist.names import part_prefix
from tidemark.persist.part import conform, describe
from tidemark.persist.staging import Staged
from tidemark.persist.state import Batch, Part
from tidemark.persist.updates import DIFF, ERR, TIME, concat

SMALL_ROWS = 50_000
"""Snapshots up to this many stored updates are read through Arrow."""

MAX_PART_ROWS = 1_000_000
"""Rows of one part that Spark writes: a merge sorts it in memory."""


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


@contextmanager
def snapshot_frame(
    spark: SparkSession, client: PersistClient, shard_id: str, as_of: int
) -> Iterator[DataFrame]:
    """The collection at `as_of`: its row columns, `_err` and `_diff`, consolidated.

    Valid inside the `with` block only: the lease on its parts ends with it.
    """
    reader = client.open_reader(shard_id)
    reader.wait_for_upper_past(as_of)
    with reader.lease(as_of) as lease:
        batches = lease.batches()
        schema = reader.schema
        if lease.state.rows <= SMALL_ROWS:
            yield local_frame(spark, reader.snapshot(as_of).drop_columns([TIME]))
            return
        frame = _updates_frame(spark, client, batches, schema).where(F.col(TIME) <= as_of)
        rows = [name for name in schema.names if name not in (TIME, DIFF)]
        summed = frame.groupBy(*(F.col(f"`{name}`") for name in rows)).agg(F.sum(DIFF).alias(DIFF))
        yield summed.where(F.col(DIFF) != 0)


def local_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A small table as a local relation: projecting or filtering it needs no Spark job."""
    return spark.createDataFrame(table, schema=spark_schema(table.schema))


def _updates_frame(
    spark: SparkSession, client: PersistClient, batches: tuple[Batch, ...], schema: pa.Schema
) -> DataFrame:
    parts = [part for batch in batches for part in batch.parts]
    files = [client.blob.uri(part.key) for part in parts if part.key is not None]
    inline = [
        conform(decode_table(part.inline), schema) for part in parts if part.inline is not None
    ]
    frames = []
    if files:
        frames.append(spark.read.schema(spark_schema(schema)).parquet(*files))
    if inline or not files:
        frames.append(local_frame(spark, concat(inline, schema)))
    return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])


def stage_frame(
    frame: DataFrame, client: PersistClient, shard_id: str, schema: pa.Schema
) -> Staged:
    """Have Spark's tasks write `frame` (of the shard's schema) as parts; append adopts them."""
    blob = client.blob.inner
    if not isinstance(blob, FileBlob):
        raise InvalidUsage("large batches can so far be staged into a file:// blob only")
    schemas = client.state(shard_id).schemas
    encoded = encode_schema(schema)
    number = schemas.index(encoded) if encoded in schemas else len(schemas)
    prefix = part_prefix(shard_id, client.clock.now_ms())
    folder = blob.path(prefix)
    folder.parent.mkdir(parents=True, exist_ok=True)
    columns = (F.col(f"`{name}`") for name in schema.names)
    frame.select(*columns).write.option("maxRecordsPerFile", MAX_PART_ROWS).parquet(
        folder.as_uri(), compression="zstd"
    )
    parts = []
    for path in sorted(folder.iterdir()):
        if path.suffix != ".parquet" or path.name.startswith("."):
            path.unlink()
            continue
        part = _adopted(path, key=f"{prefix}/{path.name}", schema=number)
        if part is not None:
            parts.append(part)
    sync_folder(folder)
    sync_folder(folder.parent)
    # Spark knows nothing of the run order: each part is a run, to be sorted when it is merged.
    return Staged(shard_id, tuple((part,) for part in parts))


def _adopted(path: Path, *, key: str, schema: int) -> Part | None:
    """Make a file that Spark wrote durable, and describe it; an empty one is removed."""
    file = pq.ParquetFile(path)
    groups = (file.metadata.row_group(group) for group in range(file.num_row_groups))
    memory = sum(group.total_byte_size for group in groups)
    measures = file.read(columns=[TIME, DIFF, ERR])
    if not measures.num_rows:
        path.unlink()
        return None
    with open(path, "rb") as written:
        os.fsync(written.fileno())
    size = path.stat().st_size
    return describe(measures, size=size, key=key, schema=schema, ordered=False, memory=memory)
