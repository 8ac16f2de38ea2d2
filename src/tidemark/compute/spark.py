"""Spark sessions, configured in one place.

Ticks are many and tiny, hydrations are few and large; what is right for one is wrong for the
other (measured: code generation off makes a small tick half again as fast and a large scan twice
as slow). So a replica keeps one Spark context and gives each piece of work a session with the
settings for its size. Sessions have their own temporary views, so nothing is shared by accident.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.errors import Unavailable

MIN_JAVA = 17

COMMON = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Sort-merge joins in one partition need no exchange and no broadcast job.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}

SMALL = {
    **COMMON,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

LARGE = {
    **COMMON,
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.autoBroadcastJoinThreshold": str(32 * 1024 * 1024),
}


def start_spark(*, master: str = "local[*]", app: str = "tidemark") -> SparkSession:
    """Start this process's Spark context, quietly."""
    find_java()
    # Workers must run this very Python, not whatever `python3` is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(master)
        .appName(app)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", os.environ.get("TIDEMARK_DRIVER_MEMORY", "2g"))
        .config("spark.driver.maxResultSize", "0")
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.sql.codegen.cache.maxEntries", "5000")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.log.level", "FATAL")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for name, value in SMALL.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def session_for(spark: SparkSession, settings: dict[str, str]) -> SparkSession:
    """A session of its own on the same context, with `settings`."""
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def find_java() -> str:
    """Make sure that PySpark finds a Java of at least 17; returns where."""
    home = os.environ.get("JAVA_HOME")
    if home and java_version(Path(home) / "bin" / "java") >= MIN_JAVA:
        return home
    on_path = shutil.which("java")
    if not home and on_path and java_version(Path(on_path)) >= MIN_JAVA:
        return on_path
    recorded = Path(sys.prefix) / "java-home"
    if recorded.is_file():
        os.environ["JAVA_HOME"] = recorded.read_text().strip()
        return os.environ["JAVA_HOME"]
    raise Unavailable(
        f"Spark needs Java {MIN_JAVA} or later and none was found",
        hint="run `make setup`, which brings one, or set JAVA_HOME",
    )


def java_version(java: Path) -> int:
    """The major version that `java -version` prints, 0 if it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:
        return 0
    words = done.stderr.split('"')
    major = words[1].split(".")[0] if len(words) > 1 else ""
    return int(major) if major.isdigit() else 0
