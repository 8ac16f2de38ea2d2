"""A session in which `.format("tidemark")` is known."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tidemark.region.attach import register


@pytest.fixture
def sourced(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark
