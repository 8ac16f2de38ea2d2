"""Fixtures that several suites share: a Spark session, a folder of shards, real servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from cluster import spark_cluster
from services import (
    kafka,
    kafka_folder,
    postgres_server,
    postgres_uri,
    registry,
    s3_server,
    s3_uri,
    tiny_disk,
)
from tidemark.persist import PersistClient
from tidemark.spark.session import start_spark

__all__ = [
    "client",
    "kafka",
    "kafka_folder",
    "postgres_server",
    "postgres_uri",
    "registry",
    "s3_server",
    "s3_uri",
    "spark",
    "spark_cluster",
    "tiny_disk",
]

# Of this process's JVM and of those of the servers that it starts: hardly one of them lives long
# enough to earn back what its optimising compiler costs.
os.environ.setdefault("TIDEMARK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(autouse=True)
def logging() -> None:
    """As if nobody had configured it: commands that tests run in here say what is logged."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_spark(master="local[2]", app="tidemark-tests")
    yield session
    session.stop()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PersistClient]:
    opened = PersistClient.open(
        blob=f"file://{tmp_path / 'blob'}", consensus=f"sqlite://{tmp_path / 'consensus.db'}"
    )
    yield opened
    opened.close()
