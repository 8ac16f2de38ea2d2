"""A region in a Spark session: the data source, and a table for each collection."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import structlog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.region.read import Region, open_region
from tidemark.region.source import TidemarkSource
from tidemark.spark.frames import quoted

log = structlog.get_logger("region")

DATABASE = "tidemark"


def attach(
    spark: SparkSession,
    data: str | Path | None = None,
    *,
    blob: str | None = None,
    consensus: str | None = None,
    database: str = DATABASE,
) -> Region:
    """Make `.format("tidemark")` known to `spark`, and the region's collections its tables.

    `select * from tidemark.bids` then reads the newest complete time, anew in each query. Call it
    again to see collections that were created since.
    """
    register(spark)
    region = open_region(data, blob=blob, consensus=consensus)
    # Spark forgets a table's options when it plans a scan of a source written in Python, so users
    # are given views that repeat them.
    hidden = f"_{database}"
    for each in (database, hidden):
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {_name(each)}")
    # Temporary views are listed with every database.
    for old in spark.sql(f"SHOW TABLES IN {_name(hidden)}").where("not isTemporary").collect():
        spark.sql(f"DROP VIEW IF EXISTS {_name(database, old.tableName)}")
        spark.sql(f"DROP TABLE {_name(hidden, old.tableName)}")
    for collection in region.collections():
        given = {**region.address._asdict(), "collection": collection}
        options = ", ".join(f"'{name}' = '{_escaped(value)}'" for name, value in given.items())
        stored, view = _name(hidden, collection), _name(database, collection)
        try:
            spark.sql(f"CREATE TABLE {stored} USING tidemark OPTIONS ({options})")
            spark.sql(f"CREATE VIEW {view} AS SELECT * FROM {stored} WITH ({options})")
        except PySparkException as error:
            # Names that Spark has no room for: the collection can still be read in other ways.
            log.warning("not a table in Spark", collection=collection, reason=reason(error))
    return region


def reason(error: PySparkException) -> str:
    """Spark's own first line, or, of an error of ours, what that says behind its traceback."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = next((line for line in lines if line.startswith("tidemark.errors.")), None)
    return ours.partition(": ")[2] if ours else next(iter(lines), "")


def register(spark: SparkSession) -> None:
    """Make `.format("tidemark")` known to a session, and the session this thread's active one."""
    # Spark's workers run this very Python, which has this very package; the context has already
    # looked at the variable and settled for whatever `python3` is on the PATH.
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = spark.sparkContext.pythonExec = sys.executable
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(TidemarkSource)
    # A write looks its format up in the thread's active session, whichever the frame is of.
    sessions: Any = spark._jvm
    sessions.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


def _name(*parts: str) -> str:
    return ".".join(map(quoted, parts))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")
