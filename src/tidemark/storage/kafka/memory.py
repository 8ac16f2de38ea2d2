"""A topic in memory: the twin of `KafkaBroker`, for tests that need no broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.spark.frames import local_frame
from tidemark.storage.kafka.broker import Marks, Ranges

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)

Header = tuple[str, bytes | None]


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class MemoryBroker:
    """`partitions[p][o]` is the message at offset o of partition p; None where there is none."""

    def __init__(self, partitions: int = 1):
        self.partitions: list[list[Message | None]] = [[] for _ in range(partitions)]
        self.low = [0] * partitions
        self.id = "a"

    def topic_id(self) -> str:
        return self.id

    def marks(self) -> dict[int, Marks]:
        return {
            at: Marks(low, len(messages))
            for at, (low, messages) in enumerate(zip(self.low, self.partitions, strict=True))
        }

    def read(self, spark: SparkSession, ranges: Ranges) -> DataFrame:
        found = [
            (partition, offset, message)
            for partition, (start, stop) in ranges.items()
            for offset, message in enumerate(self.partitions[partition][start:stop], start)
            if message is not None
        ]
        table = pa.table(
            {
                "key": [message.key for _, _, message in found],
                "value": [message.value for _, _, message in found],
                "partition": [partition for partition, _, _ in found],
                "offset": [offset for _, offset, _ in found],
                "timestamp": [datetime.fromtimestamp(offset, UTC) for _, offset, _ in found],
            },
            schema=SCHEMA,
        )
        pairs = [[{"key": k, "value": v} for k, v in message.headers] for _, _, message in found]
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        frame = local_frame(spark, table.append_column("headers", pa.array(pairs, kind)))
        # As the connector has it: no headers at all are null.
        return frame.withColumn("headers", F.when(F.size("headers") > 0, F.col("headers")))

    def close(self) -> None:
        pass
