"""What a long Spark job is doing, said once a second; short jobs are left alone.

    with progress(spark, "hydrate orders"):
        frame.write...

    hydrate orders: stage 2 of 3, 57 of 200 tasks, 12 s

Jobs that the block's thread starts carry a tag. One thread for all blocks asks Spark about the
tags of those that have been running for two seconds, and sleeps while there are none: a short
block costs two calls to the JVM and no job. Lines go to a terminal's last lines, or to the log.

Stages of jobs that Spark has not submitted yet are not known: with adaptive execution, the number
of stages grows while the block runs.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.core.status import SparkJobInfo, SparkStageInfo
from pyspark.sql import SparkSession

from tidemark.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

FIRST_AFTER = 2.0
EVERY = 1.0

log = structlog.get_logger()


class Progress(NamedTuple):
    """Stages are those of all jobs so far; tasks are those of the stages that run now."""

    label: str
    seconds: float
    stage: int = 0
    stages: int = 0
    tasks_done: int = 0
    tasks: int = 0
    finished: bool = False

    def __str__(self) -> str:
        if self.finished:
            return f"{self.label}: finished, {self.seconds:.0f} s"
        stage = f"stage {self.stage} of {self.stages}, " if self.stages else ""
        tasks = f"{self.tasks_done} of {self.tasks} tasks, " if self.tasks else ""
        return f"{self.label}: {stage}{tasks}{self.seconds:.0f} s"


Report = Callable[[Progress], None]
"""Called from the watching thread; once more, with `finished`, if it was called at all."""


class Tracker(Protocol):
    """What Spark knows about jobs; any of it may be missing."""

    def jobs(self, tag: str) -> list[int]: ...
    def job(self, job: int) -> SparkJobInfo | None: ...
    def stage(self, stage: int) -> SparkStageInfo | None: ...
    def active_stages(self) -> list[int]: ...


@contextmanager
def progress(spark: SparkSession, label: str, *, report: Report | None = None) -> Iterator[None]:
    """Report what the Spark jobs of this block do, if they take long."""
    context = spark.sparkContext
    tag = f"tidemark-progress-{next(_numbers)}"
    context.addJobTag(tag)
    block = Block(label, tag, SparkTracker(context), report or default_report())
    _watch.add(block)
    try:
        yield
    finally:
        _watch.remove(block)
        # Where the JVM is gone or the context stopped, so is the tag.
        if context._jsc is not None:
            with suppress(Py4JError, OSError):
                context.removeJobTag(tag)


class Block:
    """One `with progress(...)`: which of its jobs are over, and what to say now."""

    def __init__(self, label: str, tag: str, tracker: Tracker, report: Report):
        self.label = label
        self.begun = 0.0
        self.due = 0.0
        self._spoken = False
        self._closed = False
        self._lock = threading.Lock()
        self._tag = tag
        self._tracker = tracker
        self._report = report
        self._over: dict[int, frozenset[int]] = {}

    def look(self, now: float) -> Progress:
        stages: set[int] = set()
        ended: set[int] = set()
        tasks = tasks_done = 0
        for number in self._tracker.jobs(self._tag):
            if number in self._over:
                continue
            job = self._tracker.job(number)
            if job is None:
                continue
            stages.update(job.stageIds)
            if job.status != "RUNNING":
                self._over[number] = frozenset(job.stageIds)
        # The stages of a job that is over have run or were not needed.
        ended.update(*self._over.values())
        stages |= ended
        active = set(self._tracker.active_stages())
        for number in stages - ended:
            stage = self._tracker.stage(number)
            if stage is None:
                continue
            if number in active:
                tasks += stage.numTasks
                tasks_done += stage.numCompletedTasks
            elif stage.numTasks and stage.numCompletedTasks == stage.numTasks:
                ended.add(number)
        current = min(len(ended) + 1, len(stages))
        return Progress(self.label, now - self.begun, current, len(stages), tasks_done, tasks)

    def report(self, now: float) -> None:
        with self._lock:
            if self._closed:
                return
            # The JVM may be going away, of which the block itself will hear; and whatever fails
            # here must not end the thread that serves the other blocks.
            with suppress(Exception):
                self._report(self.look(now))
                self._spoken = True

    def finish(self, now: float) -> None:
        with self._lock:
            self._closed = True
            if self._spoken:
                self._report(Progress(self.label, now - self.begun, finished=True))


class Watch:
    """The blocks that run, and the thread that looks after those that have run for long."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, threaded: bool = True):
        self._clock = clock
        self._threaded = threaded
        self._blocks: list[Block] = []
        self._changed = threading.Condition()
        self._idle = True
        self._thread: threading.Thread | None = None

    def add(self, block: Block) -> None:
        block.begun = self._clock.monotonic()
        block.due = block.begun + FIRST_AFTER
        with self._changed:
            self._blocks.append(block)
            if self._threaded and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self._thread.start()
            elif self._idle:
                self._changed.notify()

    def remove(self, block: Block) -> None:
        # The thread is not woken for that: it finds out when it next looks.
        with self._changed:
            self._blocks.remove(block)
        block.finish(self._clock.monotonic())

    def step(self) -> float | None:
        """Report what is due; returns the seconds until something is, None if nothing runs."""
        now = self._clock.monotonic()
        with self._changed:
            due = [block for block in self._blocks if block.due <= now]
        for block in due:
            block.report(now)
            block.due = now + EVERY
        with self._changed:
            return min((block.due - now for block in self._blocks), default=None)

    def _run(self) -> None:
        while True:
            pause = self.step()
            with self._changed:
                self._idle = pause is None and not self._blocks
                # A block that came since the step is due no sooner than that.
                self._changed.wait(FIRST_AFTER if pause is None and self._blocks else pause)


class SparkTracker:
    def __init__(self, context: SparkContext):
        self._context = context

    def jobs(self, tag: str) -> list[int]:
        # PySpark wraps the question by group only, and a thread has but one group.
        context = self._context._jsc.sc()  # pyright: ignore
        return sorted(context.statusTracker().getJobIdsForTag(tag))

    def job(self, job: int) -> SparkJobInfo | None:
        return self._context.statusTracker().getJobInfo(job)

    def stage(self, stage: int) -> SparkStageInfo | None:
        return self._context.statusTracker().getStageInfo(stage)

    def active_stages(self) -> list[int]:
        return self._context.statusTracker().getActiveStageIds()


def default_report() -> Report:
    return terminal.report if sys.stderr.isatty() else to_log


def to_log(found: Progress) -> None:
    log.info(str(found))


class Terminal:
    """The blocks that run as the last lines of a terminal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, Spinner] = {}
        self._live: Live | None = None

    def report(self, found: Progress) -> None:
        self.say(found.label, None if found.finished else str(found))

    def say(self, label: str, text: str | None) -> None:
        """Set the line of `label`, or (None) take it away."""
        with self._lock:
            if text is None:
                self._lines.pop(label, None)
            else:
                self._show(label, text)
            if not self._lines and self._live is not None:
                self._live.stop()
                self._live = None

    def _show(self, label: str, text: str) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.spinner import Spinner

        if label in self._lines:
            self._lines[label].update(text=text)
        else:
            self._lines[label] = Spinner("dots", text)
        if self._live is None:
            self._live = Live(console=Console(stderr=True), transient=True, refresh_per_second=4)
            self._live.start()
        self._live.update(Group(*self._lines.values()))


_numbers = itertools.count()
_watch = Watch()
terminal = Terminal()
