"""The pools that jobs share Spark by."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidemark.spark.session import PEEKS, POOLS, in_pool


def test_spark_knows_the_pools(spark: SparkSession):
    context = spark.sparkContext._jsc.sc()  # type: ignore[union-attr]
    for name, (weight, share) in POOLS.items():
        pool = context.getPoolForName(name).get()
        assert (pool.weight(), pool.minShare()) == (weight, share), name


def test_a_thread_is_in_a_pool_for_a_while(spark: SparkSession):
    context = spark.sparkContext
    with in_pool(spark, PEEKS):
        assert context.getLocalProperty("spark.scheduler.pool") == PEEKS
        assert spark.range(3).count() == 3
    assert context.getLocalProperty("spark.scheduler.pool") is None
