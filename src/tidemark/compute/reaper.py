"""Spark tasks that go on although nobody wants them any more.

To cancel a query is to ask its tasks to end. One that is in a loop which never looks up, over the
product of two long lists, say, does not hear it, and keeps its core from everybody else. There is no
way to end a thread of a JVM: if it has not ended by itself after a while, the replica ends, with its
JVM, and is started again. All that it had to remember is in shards.

Executors of their own are ended by Spark (`spark.task.reaper`); this is for a Spark that is here.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

from tidemark.clock import Clock

GRACE = 30.0
"""Seconds that a task has to end once its stage is over."""

SETTLED = 5.0
"""Seconds after a cancel without such a task, and there will be none."""

_TASK = re.compile(r"Executor task launch worker for task \S+ in stage (\d+)\.\d+ \(TID (\d+)\)")


class Reaper:
    def __init__(self, spark: SparkSession, clock: Clock, *, grace: float = GRACE):
        self._spark = spark
        self._clock = clock
        self._grace = grace
        self._suspected_at: float | None = None
        self._since: dict[int, float] = {}

    def suspect(self) -> None:
        """Something was cancelled."""
        self._suspected_at = self._clock.monotonic()

    def overdue(self) -> list[int]:
        """Ids of tasks that should have ended long ago; asks Spark only if there may be some."""
        now, suspected_at = self._clock.monotonic(), self._suspected_at
        if suspected_at is None:
            return []
        found = orphans(self._spark)
        self._since = {task: self._since.get(task, now) for task in found}
        if not found and now - suspected_at > SETTLED:
            self._suspected_at = None
        return [task for task, since in self._since.items() if now - since > self._grace]


def orphans(spark: SparkSession) -> list[int]:
    """Tasks that run here though their stage does not."""
    context: Any = spark.sparkContext
    threads = context._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
    named = [_TASK.match(thread.getName()) for thread in threads]
    # Asked last: a stage that has begun since has no thread in the list.
    active = set(context.statusTracker().getActiveStageIds())
    return [int(name[2]) for name in named if name is not None and int(name[1]) not in active]
