"""A JVM that has just started is slow: what makes it quicker, once per machine and once per start.

archive     Spark's classes as the JVM has them in memory, in a file that it maps when it
            starts (class data sharing). `make setup` writes it; a JVM of another version, or
            with other jars, does without it by itself
warm_up     one small job with a bit of everything: the first job of a JVM takes seconds,
            whatever it does, and whoever waits for Spark to be up had better wait for that

python -m tidemark.spark.warm       writes the archive
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from py4j.protocol import Py4JError
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

ROWS = 2_000


def warm_up(spark: SparkSession) -> None:
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
    ids = spark.range(0, ROWS, 1, 1)
    text = F.to_json(F.struct(F.col("id").alias("a"), F.lit("b").alias("b")))
    parsed = F.transform(
        F.array(F.when(F.is_valid_utf8(text), text)),
        lambda each: F.from_json(each, "a BIGINT, b VARIANT"),
    )[0]
    rows = ids.select("id", parsed.alias("found")).select(
        F.col("found.a").alias("a"),
        F.try_variant_get("found.b", "$", "string").alias("b"),
        F.when(F.col("id") % 2 == 0, F.col("id").cast("string")).alias("c"),
    )
    newest = F.row_number().over(Window.partitionBy("a").orderBy(F.col("c").desc()))
    sums = rows.groupBy("b").agg(F.count("*").alias("n"), F.max("c").alias("most"))
    return rows.withColumn("rank", newest).where("rank = 1").join(sums, "b").drop("b")


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
    with contextlib.suppress(Py4JError, Exception):
        reader.load().toArrow()


if __name__ == "__main__":
    print("setup: keeping Spark's classes ready for the JVM")
    write_archive(class_archive())
    sys.exit(0 if class_archive().exists() else "setup: no archive came of it")
