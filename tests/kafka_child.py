"""A process that runs the histories' source until it is killed: `kafka_child.py FOLDER BROKERS TOPIC`.

FEW_MESSAGES in the environment says up to how many messages the driver takes. What it reads it
notes down in `reads` before it does: how far the collection was when the process was started, and
where it begins in each partition.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from kafka_histories import source
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import Unavailable
from tidemark.logs import configure_logging
from tidemark.persist import PersistClient
from tidemark.spark.session import start_spark
from tidemark.storage.kafka import ingest
from tidemark.storage.kafka.broker import KafkaBroker, Ranges
from tidemark.storage.kafka.ingest import KafkaUpstream
from tidemark.storage.kafka.spec import KafkaConnection, KafkaSource
from tidemark.storage.source import Ingestion

INTERVAL_MS = 200


def open_client(folder: Path) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{folder / 'blob'}", consensus=f"sqlite://{folder / 'consensus.db'}"
    )


def on_topic(brokers: str, topic: str, **changes: object) -> KafkaSource:
    return source(**{"connection": KafkaConnection(brokers), "topic": topic, **changes})


def ingestion(
    spark: SparkSession, client: PersistClient, folder: Path, definition: KafkaSource
) -> Ingestion:
    broker = Noting(definition, client, folder / "reads")
    upstream = KafkaUpstream(
        definition, broker, client=client, spark=spark, folder=folder / "cache"
    )
    return Ingestion(
        "s",
        upstream,
        client=client,
        remap=definition.remap,
        shards={"data": definition.output},
        interval_ms=INTERVAL_MS,
    )


class Noting(KafkaBroker):
    """Notes what is read."""

    def __init__(self, definition: KafkaSource, client: PersistClient, notes: Path):
        super().__init__(definition.connection, definition.topic)
        self._upper = client.state(definition.output).upper.time
        self._notes = notes

    def read(self, spark: SparkSession, ranges: Ranges) -> DataFrame:
        begins = {partition: start for partition, (start, _) in ranges.items()}
        note = {"process": os.getpid(), "upper": self._upper, "begins": begins}
        with open(self._notes, "a") as notes:
            notes.write(json.dumps(note) + "\n")
        return super().read(spark, ranges)


def main(folder: str, brokers: str, topic: str) -> None:
    configure_logging()
    ingest.FEW_MESSAGES = int(os.environ.get("FEW_MESSAGES", ingest.FEW_MESSAGES))
    client = open_client(Path(folder))
    spark = start_spark(master="local[1]")
    running = ingestion(spark, client, Path(folder), on_topic(brokers, topic))
    print("running", flush=True)
    while True:
        try:
            running.step()
        except Unavailable:
            SYSTEM_CLOCK.sleep(0.5)
        SYSTEM_CLOCK.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
