"""Large merges as Spark jobs: every task merges one range of positions of all the chosen runs.

The work of a task is persist's own merge (compact.merge_range), cut to its range and with the same
bound on its memory; it writes its parts straight into Blob. The driver puts the parts of all ranges
one behind the other, which is one run, and commits it as any merge is committed.

    runs            13 or fewer (merge_memory)    many                  unordered parts
    round 1         tasks: ranges -> one run      groups of smallest    groups
    round 2                                       ranges -> one run     ranges -> one run

Runs that cannot be merged at one time within the memory allowed are merged in groups first, small
ones before large ones; what a round wrote for the next is deleted after it. An unordered part has
no positions to cut at: such parts are small and sorting them is a merge of its own, so they are one
more group.

A task that fails deletes what it wrote. What is left by one that was killed, or of a job that
failed, nothing refers to, and the sweep for leftovers deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
from msgspec.structs import replace
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import Corruption, Unavailable
from tidemark.persist.blob import Blob
from tidemark.persist.client import PersistClient
from tidemark.persist.compact import (
    Merge,
    affordable,
    delete,
    due,
    install,
    is_current,
    merge_range,
)
from tidemark.persist.config import Config
from tidemark.persist.location import open_blob
from tidemark.persist.machine import Machine
from tidemark.persist.maintain import LargeMerge
from tidemark.persist.part import LOST, MissingPart
from tidemark.persist.ranges import EVERYTHING, Range, cut, overlapping
from tidemark.persist.runs import memory_of, split_runs
from tidemark.persist.state import Batch, Run
from tidemark.persist.throttle import Throttled
from tidemark.spark.progress import Report, progress

RANGES_PER_SLOT = 3
"""So that a range that came out too large does not keep everyone waiting."""

PARTS_PER_RANGE = 4
"""At the edges of a range some chunks are read twice; this keeps them few beside the rest."""


class Outcome(msgspec.Struct, frozen=True):
    """What a task found. Trying again mends neither a missing nor a damaged part."""

    run: Run = ()
    missing: str | None = None
    damaged: str | None = None


def merge(
    spark: SparkSession,
    client: PersistClient,
    shard_id: str,
    batches: tuple[Batch, ...] | None = None,
    *,
    slots: int | None = None,
    report: Report | None = None,
) -> bool:
    """Merge `batches`, or what is due, into one run; True if something was merged.

    `report` is told how far it is, if it takes long; else the log is. At most `slots` tasks run at one time, and as many as there is room for if it is not given.
    """
    address = client.shared_address()
    machine = client.machine(shard_id)
    state, config = machine.refresh(), client.config
    batches = due(state, config) if batches is None else batches
    if not batches or not state.schemas:
        return False
    whole = Merge.of(state, split_runs(batches), batches[-1].upper, config)
    spot = _Spot(spark, address.blob, slots, report)
    try:
        new = _merged(spot, machine, client.blob, whole)
    except _Gone:
        return False  # Someone else merged them first, and what they were is deleted.
    return install(machine, client.blob, batches, new, since=state.since)


def large_merges(spark: SparkSession, client: PersistClient) -> LargeMerge:
    """For `start_maintenance`: large merges on Spark, in half of its slots. The others are for
    those who wait for an answer."""
    slots = max(spark.sparkContext.defaultParallelism // 2, 1)
    return lambda shard_id, batches: merge(spark, client, shard_id, batches, slots=slots)


class _Gone(Exception):
    """The shard does not consist of these runs any more."""


def _merged(spot: _Spot, machine: Machine, blob: Blob, whole: Merge) -> Run:
    """All runs as one, in as many rounds as it takes."""
    runs, between = list(whole.runs), []
    try:
        while True:
            groups, rest = next_groups(runs, whole.config)
            new = _round(spot, machine, blob, whole, groups)
            if not rest and len(new) <= 1:
                return new[0] if new else ()
            between += new
            runs = rest + new
    finally:
        delete(machine, blob, between)


def next_groups(runs: list[Run], config: Config) -> tuple[list[list[Run]], list[Run]]:
    """Which runs to merge with which, each group into one run, and those to leave for later."""
    loose = [run for run in runs if not _has_positions(run)]
    if loose:
        return list(_affordable_groups(loose, config)), [r for r in runs if _has_positions(r)]
    groups, rest = [], sorted(runs, key=memory_of)
    # The largest run of a group stands for what will come of it.
    while len(rest) > 1 and affordable([*(group[-1] for group in groups), *rest], config)[1]:
        group, rest = affordable(rest, config)
        groups.append(group)
    return (groups, rest) if groups else ([rest], [])


def _affordable_groups(runs: list[Run], config: Config) -> Iterator[list[Run]]:
    while runs:
        group, runs = affordable(runs, config)
        yield group


def _has_positions(run: Run) -> bool:
    return all(part.first is not None for part in run)


def _round(
    spot: _Spot, machine: Machine, blob: Blob, whole: Merge, groups: list[list[Run]]
) -> list[Run]:
    """What became of the groups; of some perhaps nothing."""
    work = [
        (number, replace(whole, runs=_needed(group, within), within=within))
        for number, group in enumerate(groups)
        for within in _ranges(group, whole, spot.slots)
    ]
    outcomes = spot.collect([merge for _, merge in work])
    failed = next((each for each in outcomes if each.missing or each.damaged), None)
    if failed is not None:
        delete(machine, blob, [each.run for each in outcomes])
        if failed.damaged:
            raise Corruption(failed.damaged, hint=LOST)
        # If the floor was raised, it may be one that an earlier round wrote, and swept up.
        if is_current(machine, whole.runs) and machine.cached.floor == whole.shape.floor:
            raise MissingPart(failed.missing or "", hint=LOST)
        raise _Gone
    runs: list[Run] = [()] * len(groups)
    for (number, _), outcome in zip(work, outcomes, strict=True):
        runs[number] += outcome.run
    return [run for run in runs if run]


def _ranges(group: list[Run], whole: Merge, slots: int) -> list[Range]:
    """As many for each slot, so that all are busy to the end."""
    if not all(map(_has_positions, group)):
        return [EVERYTHING]
    parts = sum(map(memory_of, group)) // whole.config.part_bytes
    each = min(max(parts // (PARTS_PER_RANGE * slots), 1), RANGES_PER_SLOT)
    return cut(group, each * slots, key=whole.shape.key)


def _needed(group: list[Run], within: Range) -> tuple[Run, ...]:
    return tuple(found for run in group if (found := overlapping(run, within)))


class _Spot:
    """Where tasks run, how many at a time, and who is told how far they are."""

    def __init__(self, spark: SparkSession, blob: str, slots: int | None, report: Report | None):
        self.slots = slots or spark.sparkContext.defaultParallelism
        self._spark = spark
        self._blob = blob
        self._most = slots
        self._report = report

    def collect(self, work: list[Merge]) -> list[Outcome]:
        """What came of each, in the same order."""
        data = [msgspec.msgpack.encode(each) for each in work]
        slices = min(len(data), self._most or len(data))
        tasks = self._spark.sparkContext.parallelize(data, slices)
        label = f"merge {work[0].shape.shard_id}"
        try:
            with progress(self._spark, label, report=self._report):
                found = tasks.map(partial(carry_out, self._blob)).collect()
        except (Py4JError, PySparkException) as error:
            raise Unavailable(
                f"a merge of shard {work[0].shape.shard_id} failed on Spark: {_cause(error)}",
                hint="nothing was changed; what it wrote will be swept up",
            ) from error
        return [msgspec.msgpack.decode(each, type=Outcome) for each in found]


def carry_out(blob: str, data: bytes) -> bytes:
    """One task's work, in a worker process: the parts it wrote, described."""
    work = msgspec.msgpack.decode(data, type=Merge)
    try:
        store = Throttled(open_blob(blob), work.config, SYSTEM_CLOCK)
        outcome = Outcome(merge_range(work, store, SYSTEM_CLOCK))
    except MissingPart as error:
        outcome = Outcome(missing=error.message)
    except Corruption as error:
        outcome = Outcome(damaged=error.message)
    return msgspec.msgpack.encode(outcome)


def _cause(error: Py4JError | PySparkException) -> str:
    """The last line that the failed task said."""
    java = isinstance(error, Py4JJavaError)
    lines = str(error.java_exception.getMessage() if java else error).splitlines()
    said = [line for line in lines if line.strip() and not line[0].isspace()]
    said = [line for line in said if line != "Driver stacktrace:"]
    return said[-1][:500] if said else type(error).__name__
