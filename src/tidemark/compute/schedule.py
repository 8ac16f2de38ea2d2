"""The schedule: many views share one Spark.

One thread looks, whenever a shard that some view reads has moved, what each view has to do:

    progress    its inputs did not change: one commit, no Spark job, done by the thread itself, for
                all that rest as one
    tick        by one of the maintainers; of those that are due, the one furthest behind first
    resume      by one of them, too: it takes a moment, and the view is behind
    hydrate     by one of the hydrators, in a pool of Spark's that yields to the others

A view that reads another one is due as soon as that has moved on, and so follows it in the same
round. Views that take long may have half of the maintainers between them, so that there is always
one for the others: a slow view is stale, its neighbours are not.

One that fails is thrown away and, after a pause, resumes from the shards, as after a crash. So does,
without a pause the first times, one that a twin has left behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Literal

import structlog
from pyspark.sql import SparkSession

from tidemark.clock import Clock
from tidemark.compute.protocol import Status
from tidemark.compute.view import View
from tidemark.compute.worker import LOOK_UP_EVERY, PATIENCE, PAUSES, Health
from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import Appended, PersistClient, UpperMismatch
from tidemark.persist.machine import Step, apply_together
from tidemark.spark.session import (
    HYDRATION,
    MAINTENANCE,
    cancel_tagged,
    cancellable,
    use_pool,
)

log = structlog.get_logger("schedule")

MAINTAINERS = max(4, os.cpu_count() or 1)
HYDRATORS = 2
SLOW = 1.0
"""Seconds of a tick from which on a view counts as slow."""

CANCEL_EVERY = 0.25
"""Seconds."""

OVERTAKEN = 3
"""Times in a row that a view may be left behind before that counts as a failure."""

Work = Literal["progress", "tick", "resume", "hydrate"]


class Job(Health):
    """A view on the schedule. What it does, one thread does at a time."""

    def __init__(self, id_: str, make: Callable[[], View]):
        super().__init__(id_)
        self.make = make
        self.view: View | None = None
        self.started = False
        self.busy = False
        """Given to a thread; `running` from when that has begun."""
        self.running = False
        self.dropped = False
        self.overtaken = 0
        self.resume_at = 0.0
        self.tick_s = 0.0
        self.busy_s = 0.0
        self.unsubscribe: list[Callable[[], None]] = []
        self.awaits_refresh = False
        self._ticks, self._corrected, self._written = 0, 0, 0

    @property
    def tag(self) -> str:
        """Of the Spark jobs that it starts."""
        return f"tidemark-view-{self.id}"

    @property
    def lower(self) -> Frontier:
        return self.view.lower if self.view is not None and self.started else Frontier.MIN

    @property
    def is_slow(self) -> bool:
        return self.tick_s > SLOW

    def status(self) -> Status:
        view = self.view
        ticks, corrected, written = (0, 0, 0)
        if view is not None:
            ticks, corrected, written = view.ticks, view.corrected, view.written
        return Status(
            self.id,
            self.hydrated,
            self._ticks + ticks,
            self.error,
            self.failures,
            corrections=self._corrected + corrected,
            updates=self._written + written,
            tick_ms=1000 * self.tick_s,
            busy_ms=1000 * self.busy_s,
            awaits_refresh=self.awaits_refresh,
        )

    def throw_away(self) -> None:
        view, self.view, self.started = self.view, None, False
        for stop in self.unsubscribe:
            stop()
        self.unsubscribe.clear()
        if view is not None:
            self._ticks += view.ticks
            self._corrected += view.corrected
            self._written += view.written
            view.stop()


class Schedule:
    def __init__(self, client: PersistClient, spark: SparkSession):
        self._client = client
        self._spark = spark
        self._clock: Clock = client.clock
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._idle = threading.Condition(self._lock)
        self._rung = threading.Event()
        self._stopping = False
        self._running = 0
        self._slow = 0
        self._maintainers = _pool(spark, MAINTAINERS, MAINTENANCE)
        self._hydrators = _pool(spark, HYDRATORS, HYDRATION)
        self._thread = threading.Thread(target=self._loop, name="schedule", daemon=True)
        self._thread.start()

    def add(self, id_: str, make: Callable[[], View]) -> None:
        with self._lock:
            self._jobs[id_] = Job(id_, make)
        self.wake()

    def remove(self, ids: Iterable[str]) -> None:
        """Stop them together, waiting no longer than for one; what they run on Spark is cancelled."""
        with self._lock:
            gone = [self._jobs.pop(id_) for id_ in ids if id_ in self._jobs]
            for job in gone:
                job.dropped = True
            deadline = self._clock.monotonic() + PATIENCE
            while (left := deadline - self._clock.monotonic()) > 0:
                running = [job for job in gone if job.running]
                if not running:
                    break
                for job in running:
                    cancel_tagged(self._spark, job.tag)
                self._idle.wait(min(CANCEL_EVERY, left))  # It may have begun another one.
        for job in gone:
            if not job.busy:  # If it is, it is thrown away when it comes to that.
                job.throw_away()

    def statuses(self) -> list[Status]:
        with self._lock:
            return [job.status() for job in self._jobs.values()]

    def wake(self) -> None:
        """Look again: something may have become due."""
        self._rung.set()

    def stop(self) -> None:
        self._stopping = True
        self.wake()
        self._thread.join(PATIENCE)
        self.remove(list(self._jobs))
        for pool in (self._maintainers, self._hydrators):
            pool.shutdown(wait=False, cancel_futures=True)

    def _loop(self) -> None:
        while not self._stopping:
            self._rung.clear()
            try:
                self._round()
            except Exception:
                log.exception("could not look what is due")
            self._rung.wait(LOOK_UP_EVERY)

    def _round(self) -> None:
        with self._lock:
            jobs = [job for job in self._jobs.values() if not job.busy]
        uppers: dict[str, Frontier] = {}
        due: list[tuple[Job, Work, Frontier]] = []
        now = self._clock.monotonic()
        for job in jobs:
            try:
                found = self._due(job, uppers) if job.resume_at <= now else None
            except Exception as error:
                self._failed(job, error)
                continue
            if found is not None:
                due.append((job, *found))
        # What needs no Spark first: it takes milliseconds.
        due.sort(key=lambda one: (one[1] != "progress", one[0].lower))
        resting = [(job, upper) for job, work, upper in due if work == "progress"]
        rested = self._rest(resting)
        for job, work, upper in due:
            if self._stopping:
                return
            if job.id in rested:
                continue
            if work == "progress":
                self._start(job, work, upper, _at_once)
            elif work == "hydrate":
                self._start(job, work, upper, self._hydrators.submit)
            elif self._has_room_for(job):
                self._start(job, work, upper, self._maintainers.submit)

    def _rest(self, resting: list[tuple[Job, Frontier]]) -> set[str]:
        """Take those on for which that is one append, with one commit for all of them; whose turn
        that was. Whoever loses, or has more to do than that, goes on in the usual way."""
        begun = self._clock.monotonic()
        with self._lock:
            mine = [(job, upper) for job, upper in resting if not job.dropped]
            for job, _ in mine:
                job.busy = job.running = True
        rested: set[str] = set()
        try:
            asked = [(job, upper, step) for job, upper in mine if (step := _rest_of(job, upper))]
            outcomes = apply_together([step for _, _, step in asked])
            for (job, upper, _), outcome in zip(asked, outcomes, strict=True):
                if isinstance(outcome, Appended):
                    self._rested(job, upper)
                    rested.add(job.id)
        finally:
            took = self._clock.monotonic() - begun
            with self._lock:
                for job, _ in mine:
                    job.busy = job.running = False
                    job.busy_s += took / len(mine)
                self._idle.notify_all()
            for job, _ in mine:
                if job.dropped:
                    job.throw_away()
        return rested

    def _rested(self, job: Job, upper: Frontier) -> None:
        assert job.view is not None
        try:
            job.view.rested(upper)
        except Exception as error:
            self._failed(job, error)
            return
        job.healthy()
        job.overtaken = 0

    def _due(self, job: Job, uppers: dict[str, Frontier]) -> tuple[Work, Frontier] | None:
        """What a view has to do, and up to where."""
        view = job.view
        if view is None:
            return "resume", Frontier.MIN
        if not job.started:
            if not view.startable():
                job.awaits_refresh = view.awaits_refresh()
                return None
            job.awaits_refresh = False
            return ("resume" if view.is_resumable else "hydrate"), Frontier.MIN
        for shard in view.input_shards:
            if shard not in uppers:
                uppers[shard] = self._client.state(shard).upper
        upper = min(uppers[shard] for shard in view.input_shards)
        if not view.wants(upper):
            return None
        return ("progress" if view.is_plain and not view.changed(upper) else "tick"), upper

    def _has_room_for(self, job: Job) -> bool:
        with self._lock:
            slow = job.is_slow and self._slow >= MAINTAINERS // 2
            return self._running < MAINTAINERS and not slow

    def _start(
        self,
        job: Job,
        work: Work,
        upper: Frontier,
        submit: Callable[[Callable[[], None]], object],
    ) -> None:
        maintains = work in ("tick", "resume")
        sparkless = work == "progress"
        with self._lock:
            if job.dropped or job.busy:
                return
            job.busy = True
            slow = maintains and job.is_slow
            self._running += maintains
            self._slow += slow

        def run() -> None:
            begun = self._clock.monotonic()
            with self._lock:
                job.running = not job.dropped
            try:
                if job.running:
                    with nullcontext() if sparkless else cancellable(self._spark, job.tag):
                        self._step(job, upper)
                    if work in ("tick", "progress"):  # To have resumed is not yet to have gone on.
                        job.healthy()
                        job.overtaken = 0
            except Exception as error:
                if job.dropped:
                    log.info("stopped in the middle", id=job.id, reason=type(error).__name__)
                else:
                    self._failed(job, error)
            finally:
                took = self._clock.monotonic() - begun
                with self._lock:
                    job.busy = job.running = False
                    job.busy_s += took
                    if work == "tick":
                        job.tick_s = took
                    self._running -= maintains
                    self._slow -= slow
                    self._idle.notify_all()
                if job.dropped:
                    job.throw_away()
                if work != "progress":
                    self.wake()

        submit(run)

    def _step(self, job: Job, upper: Frontier) -> None:
        if job.view is None:
            job.view = view = job.make()
            shards = dict.fromkeys((*view.input_shards, *view.output_shards))
            job.unsubscribe = [self._client.watch.subscribe(s, self.wake) for s in shards]
            if not view.is_resumable:
                return  # A hydrator's work.
        if job.started:
            job.view.tick(upper)
            return
        if job.view.startable():
            job.started = job.view.start()
            job.hydrated = job.hydrated or job.started
        if not job.started:
            job.resume_at = self._clock.monotonic() + PAUSES[0]

    def _failed(self, job: Job, error: Exception) -> None:
        if isinstance(error, AsOfBeforeSince) and job.overtaken < OVERTAKEN:
            job.overtaken += 1
            pause = 0.0
            log.info("overtaken by a twin, will resume", id=job.id, reason=str(error))
        else:
            job.failed(error)
            pause = PAUSES[min(job.failures, len(PAUSES)) - 1]
        try:
            job.throw_away()
        except Exception:
            log.exception("could not stop a view", id=job.id)
        job.resume_at = self._clock.monotonic() + pause


def _rest_of(job: Job, upper: Frontier) -> Step[Appended | UpperMismatch] | None:
    try:
        return job.view.rest(upper) if job.view is not None else None
    except Exception:
        return None  # The usual way fails as well, and says so.


def _at_once(run: Callable[[], None]) -> None:
    run()


def _pool(spark: SparkSession, threads: int, pool: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        threads, thread_name_prefix=pool, initializer=use_pool, initargs=(spark, pool)
    )
