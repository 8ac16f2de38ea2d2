"""Progress of long jobs: who is reported, when, and as what; by hand and on Spark."""

from __future__ import annotations

import threading

import pytest
from pyspark.core.status import SparkJobInfo, SparkStageInfo
from pyspark.sql import SparkSession

from tidemark.clock import ManualClock
from tidemark.spark import progress as module
from tidemark.spark.progress import EVERY, FIRST_AFTER, Block, Progress, Watch, progress


class Scripted:
    """A tracker of jobs that the test makes up."""

    def __init__(self) -> None:
        self.of_tag: dict[int, SparkJobInfo] = {}
        self.stages: dict[int, SparkStageInfo] = {}
        self.asked: list[int] = []

    def set_job(self, job: int, stages: list[int], status: str = "RUNNING") -> None:
        self.of_tag[job] = SparkJobInfo(job, stages, status)  # type: ignore[arg-type]

    def set_stage(self, stage: int, tasks: int, *, active: int = 0, completed: int = 0) -> None:
        self.stages[stage] = SparkStageInfo(stage, 0, "", tasks, active, completed, 0)

    def jobs(self, tag: str) -> list[int]:
        assert tag == "tag"
        return list(self.of_tag)

    def job(self, job: int) -> SparkJobInfo | None:
        self.asked.append(job)
        return self.of_tag[job]

    def stage(self, stage: int) -> SparkStageInfo | None:
        return self.stages.get(stage)

    def active_stages(self) -> list[int]:
        return [99, *(each.stageId for each in self.stages.values() if each.numActiveTasks)]


def look(tracker: Scripted, seconds: float = 12.0) -> str:
    return str(Block("hydrate", "tag", tracker, lambda _: None).look(seconds))


def test_what_is_said_of_a_stage_that_runs():
    tracker = Scripted()
    tracker.set_job(7, [1, 2, 3])
    tracker.set_stage(1, 4, completed=4)
    tracker.set_stage(2, 200, active=2, completed=57)
    assert look(tracker) == "hydrate: stage 2 of 3, 57 of 200 tasks, 12 s"


def test_stages_of_a_job_that_is_over_are_over_even_if_skipped():
    tracker = Scripted()
    tracker.set_job(1, [1, 2], "SUCCEEDED")
    tracker.set_job(2, [2, 3])
    tracker.set_stage(3, 10, active=1)
    assert look(tracker) == "hydrate: stage 3 of 3, 0 of 10 tasks, 12 s"


def test_nothing_known_yet():
    assert look(Scripted()) == "hydrate: 12 s"


def test_between_two_jobs():
    tracker = Scripted()
    tracker.set_job(1, [1], "SUCCEEDED")
    assert look(tracker) == "hydrate: stage 1 of 1, 12 s"


def test_a_job_that_is_over_is_not_asked_about_again():
    tracker = Scripted()
    tracker.set_job(1, [1], "SUCCEEDED")
    tracker.set_job(2, [2])
    block = Block("hydrate", "tag", tracker, lambda _: None)
    block.look(1.0)
    block.look(2.0)
    assert tracker.asked == [1, 2, 2]


def test_short_blocks_are_never_looked_at():
    clock, tracker, heard = ManualClock(), Scripted(), []
    watch = Watch(clock, threaded=False)
    block = Block("short", "tag", tracker, heard.append)
    watch.add(block)
    clock.advance(int(FIRST_AFTER * 1000) - 1)
    assert watch.step() == pytest.approx(0.001)
    watch.remove(block)
    clock.advance(10_000)
    assert watch.step() is None
    assert heard == []


def test_long_blocks_are_reported_and_their_end_is():
    clock, heard = ManualClock(), []
    watch = Watch(clock, threaded=False)
    block = Block("long", "tag", Scripted(), heard.append)
    watch.add(block)
    assert watch.step() == FIRST_AFTER
    clock.advance(2_000)
    assert watch.step() == EVERY
    clock.advance(500)
    assert watch.step() == EVERY / 2
    clock.advance(500)
    watch.step()
    watch.remove(block)
    assert [str(each) for each in heard] == ["long: 2 s", "long: 3 s", "long: finished, 3 s"]


def test_a_report_that_fails_does_not_harm_the_others():
    clock, heard = ManualClock(), []
    watch = Watch(clock, threaded=False)

    def fail(_: Progress) -> None:
        raise RuntimeError("no")

    failing = Block("failing", "tag", Scripted(), fail)
    watch.add(failing)
    watch.add(Block("other", "tag", Scripted(), heard.append))
    clock.advance(2_000)
    watch.step()
    watch.remove(failing)
    assert [each.label for each in heard] == ["other"]


def test_the_jobs_of_a_block_on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch):
    """A job that runs until it has been reported: the thread, the tag and Spark's own numbers."""
    monkeypatch.setattr(module, "FIRST_AFTER", 0.0)
    monkeypatch.setattr(module, "EVERY", 0.01)
    monkeypatch.setattr(module, "_watch", Watch())
    context = spark.sparkContext
    seen = threading.Event()
    heard: list[Progress] = []

    def report(found: Progress) -> None:
        heard.append(found)
        if found.tasks:
            seen.set()
            context.cancelJobsWithTag("until-seen")

    context.addJobTag("until-seen")
    try:
        with progress(spark, "endless", report=report):
            try:
                spark.range(10**10, numPartitions=3).selectExpr("sum(hash(id))").collect()
            except Exception:
                assert seen.is_set()
    finally:
        context.removeJobTag("until-seen")
    running = next(each for each in heard if each.tasks)
    assert (running.label, running.stage, running.tasks, running.tasks_done) == ("endless", 1, 3, 0)
    assert heard[-1].finished
    assert not list(context.getJobTags())


def test_a_block_starts_no_job(spark: SparkSession):
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    with progress(spark, "nothing"):
        pass
    assert set(tracker.getJobIdsForGroup()) == before
