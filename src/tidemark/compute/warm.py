"""A JVM that has just started is slow: what makes it quicker, once per machine and once per start.

archive     Spark's classes as the JVM has them in memory, in a file that it maps when it
            starts (class data sharing). `make setup` writes it; a JVM of another version, or
            with other jars, does without it by itself
warm_up     one small job with a bit of everything: the first job of a JVM takes seconds,
            whatever it does, and whoever waits for Spark to be up had better wait for that

python -m tidemark.compute.warm       writes the archive
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.spark.session import (
    LARGE,
    SMALL,
    class_archive,
    kafka_jars,
    session_for,
    start_spark,
    stop_spark,
)
from tidemark.storage.kafka.spec import Format, KafkaConnection, KafkaSource
from tidemark.storage.kafka.upsert import Upserts
from tidemark.storage.remap import Binding
from tidemark.types import BIGINT, DOUBLE, TEXT, Column

ROWS = 2_000

SOURCE = KafkaSource(
    id="warm",
    connection=KafkaConnection("nowhere"),
    topic="warm",
    key=Format("json", (Column("k", BIGINT),)),
    value=Format("json", (Column("v", TEXT), Column("n", DOUBLE))),
    envelope="upsert",
    remap="warm",
    output="warm",
)


def warm_up(spark: SparkSession) -> None:
    """Not on a cluster, which may have no executor for it yet."""
    if (spark.sparkContext.master or "").startswith("local"):
        _bit_of_everything(session_for(spark, SMALL)).toArrow()


def write_archive(target: Path) -> None:
    """Run what our jobs are made of, and have the JVM keep the classes that this has loaded."""
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    options = f"-XX:ArchiveClassesAtExit={draft} -Xlog:disable -Xlog:all=error:stderr"
    spark = start_spark(app="tidemark-warm", java_options=options)
    try:
        warm_up(spark)
        large = session_for(spark, LARGE)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/rows"
            _bit_of_everything(large).write.parquet(path)
            large.read.parquet(path).toArrow()
        if kafka_jars():
            _read_nothing(large)
    finally:
        stop_spark(spark)
    if draft.exists():
        draft.replace(target)


def _bit_of_everything(spark: SparkSession) -> DataFrame:
    """Messages decoded as a source does it, and a view of them."""
    number = F.col("id")
    key, value = F.struct(number.alias("k")), F.struct(F.lit("v").alias("v"), number.alias("n"))
    messages = spark.range(0, ROWS, 1, 1).select(
        F.to_json(key).cast("binary").alias("key"),
        F.to_json(value).cast("binary").alias("value"),
        F.lit(0).alias("partition"),
        number.alias("offset"),
        F.timestamp_millis(number).alias("timestamp"),
        F.array().cast("array<struct<key:string,value:binary>>").alias("headers"),
    )
    rows = Upserts(SOURCE).rows(messages, [Binding(0, {0: ROWS})])
    newest = F.row_number().over(Window.partitionBy("k").orderBy(F.col("_offset").desc()))
    sums = rows.groupBy("v").agg(F.count("*").alias("count"), F.max("n").alias("most"))
    return rows.withColumn("rank", newest).where("rank = 1").join(sums, "v")


def _read_nothing(spark: SparkSession) -> None:
    """From a broker that is not there: all that matters is what this loads."""
    patience = {f"kafka.{name}.timeout.ms": "300" for name in ("default.api", "request")}
    reader = spark.read.format("kafka").options(
        **{
            "assign": '{"none":[0]}',
            "startingOffsets": '{"none":{"0":0}}',
            "endingOffsets": '{"none":{"0":1}}',
            "includeHeaders": "true",
            "kafka.bootstrap.servers": "127.0.0.1:9",
            "fetchOffset.numRetries": "1",
            **patience,
        }
    )
    with contextlib.suppress(Exception):
        reader.load().toArrow()


if __name__ == "__main__":
    print("setup: keeping Spark's classes ready for the JVM")
    write_archive(class_archive())
    sys.exit(0 if class_archive().exists() else "setup: no archive came of it")
