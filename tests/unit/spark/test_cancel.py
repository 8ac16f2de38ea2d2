"""Work that is cancelled ends, whatever it was about to do."""

from __future__ import annotations

import threading

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.errors import TooLarge
from tidemark.spark import collect
from tidemark.spark.session import LARGE, cancel_group, job_group, session_for


def test_a_query_cancelled_between_two_jobs_begins_no_shuffle(spark: SparkSession):
    session = session_for(spark, LARGE)
    cancelled, failed = threading.Event(), []

    def run() -> None:
        with job_group(session, "between", "between"):
            cancel_group(spark, "between")
            cancelled.set()
            try:
                # More than a day's work, and all of it before the shuffle.
                session.sql("SELECT count(DISTINCT id % 7) FROM range(1000000000000000)").collect()
            except (PySparkException, Py4JError) as error:
                failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert cancelled.wait(60)
    thread.join(60)
    try:
        assert not thread.is_alive(), "the shuffle goes on"
        assert "cancel" in str(failed[0]).lower()
    finally:
        while thread.is_alive():
            spark.sparkContext.cancelJobGroup("between")
            thread.join(0.2)


def test_a_group_that_has_ended_is_not_asked_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(threading, "Timer", None)
    with job_group(spark, "ended", "ended"):
        assert spark.range(3).count() == 3
    cancel_group(spark, "ended")


def test_a_thread_is_not_of_the_group_any_more_when_that_has_ended(spark: SparkSession):
    with job_group(spark, "over", "over"):
        cancel_group(spark, "over")
    assert spark.range(3).count() == 3


def test_a_result_that_is_too_large_says_so_however_its_query_ends(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
):
    def ended(*_: object) -> None:
        raise Py4JError("An error occurred while calling getResult")

    monkeypatch.setattr(collect, "_hear_out", ended)
    with pytest.raises(TooLarge):
        collect.collected(spark.range(1000), max_bytes=1, stop=lambda: None, few=True)
    with pytest.raises(Py4JError):
        collect.collected(spark.range(1000), max_bytes=1 << 20, stop=lambda: None, few=True)
