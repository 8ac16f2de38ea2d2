"""Tasks that do not hear that they are cancelled are found, and others are not."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from tidemark.clock import ManualClock
from tidemark.compute import reaper as reaping
from tidemark.compute.reaper import GRACE, SETTLED, Reaper, orphans
from tidemark.spark.session import cancel_group


class Spark:
    """Tasks that go on, by what a test says; and how often somebody looked."""

    def __init__(self) -> None:
        self.going_on: list[int] = []
        self.looked = 0


@pytest.fixture
def spark_with_orphans(monkeypatch: pytest.MonkeyPatch) -> Spark:
    def look(spark: Any) -> list[int]:
        spark.looked += 1
        return list(spark.going_on)

    monkeypatch.setattr(reaping, "orphans", look)
    return Spark()


def test_tasks_have_their_time_to_end(spark_with_orphans: Spark):
    clock, spark = ManualClock(), spark_with_orphans
    reaper = Reaper(cast(SparkSession, spark), clock)
    assert reaper.overdue() == []
    assert spark.looked == 0, "nothing was cancelled"
    reaper.suspect()
    spark.going_on = [7, 8]
    assert reaper.overdue() == []
    clock.advance(int(1000 * GRACE) - 1_000)
    spark.going_on = [8, 9]  # One has ended, and another one should have.
    assert reaper.overdue() == []
    clock.advance(2_000)
    assert reaper.overdue() == [8]
    spark.going_on = []
    assert reaper.overdue() == []
    seen = spark.looked
    clock.advance(int(1000 * SETTLED) + 1_000)
    assert [reaper.overdue() for _ in range(3)] == [[], [], []]
    assert spark.looked == seen, "all have ended: nobody need look any more"


def test_tasks_of_what_runs_are_nobodys_orphans(spark: SparkSession):
    context, begun, failed = spark.sparkContext, threading.Event(), []

    def run() -> None:
        context.setJobGroup("long", "long", interruptOnCancel=True)
        begun.set()
        try:
            spark.sql("SELECT sum(id * id % 7) FROM range(100000000000)").collect()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    tracker = context.statusTracker()
    while not any(_runs(tracker, stage) for stage in tracker.getActiveStageIds()):
        assert thread.is_alive(), failed
    assert orphans(spark) == []
    cancel_group(spark, "long")
    thread.join()
    assert "cancelled" in str(failed[0])


def _runs(tracker, stage: int) -> bool:
    info = tracker.getStageInfo(stage)
    return info is not None and info.numActiveTasks > 0
