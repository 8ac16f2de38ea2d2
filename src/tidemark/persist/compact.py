"""Compaction: few batches of geometrically growing size, and no history before since.

A merge takes adjacent batches, moves times up to since, sums equal updates and puts one batch in
their place, if they are still there. It changes no readable time's contents; the sums of diffs
before and after must agree, or the merge is thrown away.

    level   2 2 1 1 1 0 0 0 0 i i i i i i i i i       nine inline batches are due
            2 2 1 1 1 0 0 0 0 0                       after one merge

A merge streams through its inputs, so it holds a row group of each and one part of its output,
whatever their size. If even that would be too much, it merges as many runs as fit and leaves the
others in the new batch for the next time.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec
import pyarrow as pa

from tidemark.clock import Clock
from tidemark.frontier import Frontier
from tidemark.persist import commands
from tidemark.persist.blob import Blob
from tidemark.persist.config import Config
from tidemark.persist.machine import Machine
from tidemark.persist.part import MissingPart
from tidemark.persist.ranges import EVERYTHING, Range
from tidemark.persist.runs import is_ordered, split_runs, stream_runs
from tidemark.persist.staging import Staged, Stager, discard
from tidemark.persist.state import Batch, Part, Run, State

COPIES = 6
"""How much memory goes into holding something: itself, its hashes, its sorted copy, and what the
allocator keeps for the next."""


def due(state: State, config: Config, *, after: Frontier = Frontier.MIN) -> tuple[Batch, ...]:
    """Adjacent batches that should become one, if there are too many of a size.

    What travels in the state makes every rollup dearer, so it goes to Blob soon. What is in Blob
    can wait: batches are of a *level* by their size, one level is `small_batches` times larger
    than the one below, and more than so many of a level become one of the next. So there are
    about that many batches for each power of it that the shard is large, and each update is
    rewritten about as many times.

    Batches before `after` are left alone: someone is merging them already.
    """
    batches = tuple(batch for batch in state.batches if after <= batch.lower)
    if not batches:
        return ()
    fan = max(config.small_batches, 2)
    levels = [_level(batch, fan, config.level_bytes) for batch in batches]
    inline = [at for at, batch in enumerate(batches) if _inline_bytes(batch)]
    newest = _segments(levels, 0)[-1].start
    if len([at for at in inline if at >= newest]) > config.inline_batches:
        return batches[next(at for at in inline if at >= newest) :]
    if sum(_inline_bytes(batches[at]) for at in inline) > config.inline_due:
        return batches[inline[0] :]
    for level in sorted(set(levels)):
        for segment in reversed(_segments(levels, level)):
            if sum(levels[at] == level for at in segment) > fan:
                return batches[segment.start : segment.stop]
    # A batch staged by many tasks has as many runs.
    return next(((b,) for b in reversed(batches) if len(b.runs) > fan), ())


def _level(batch: Batch, fan: int, least: int) -> int:
    """0 up to `fan` times the least size, 1 up to `fan` times that, and so on."""
    memory, level = sum(part.memory for part in batch.parts), 0
    while memory > least * fan:
        memory, level = memory // fan, level + 1
    return level


def _segments(levels: list[int], most: int) -> list[range]:
    """The stretches of batches of a level up to `most`, the last one up to the end (or empty)."""
    edges = [-1, *(at for at, level in enumerate(levels) if level > most), len(levels)]
    return [range(a + 1, b) for a, b in pairwise(edges)]


class Merge(msgspec.Struct, frozen=True):
    """Some runs, of which one range of positions is to be merged: all that a process needs to
    know for it, this one or another."""

    shape: State
    """The shard's name, schemas, key and floor."""
    runs: tuple[Run, ...]
    horizon: int | None
    config: Config
    within: Range = EVERYTHING

    @staticmethod
    def of(state: State, runs: list[Run], upper: Frontier, config: Config) -> Merge:
        """Of runs from batches that end at `upper`."""
        shape = State(state.shard_id, schemas=state.schemas, key=state.key, floor=state.floor)
        return Merge(shape, tuple(runs), _horizon(state.since, upper), config)


def merge_range(work: Merge, blob: Blob, clock: Clock) -> Run:
    """Write the result of a merge as a run. If that fails, nothing of it stays behind."""
    shape = work.shape
    stager = Stager(
        blob,
        shape.shard_id,
        key=shape.key,
        config=work.config,
        clock=clock,
        floor=lambda: shape.floor,
    )
    merged = stream_runs(
        blob, shape, list(work.runs), horizon=work.horizon, config=work.config, within=work.within
    )
    new: list[Part] = []
    try:
        for part in stager.write(merged, schema=len(shape.schemas) - 1):
            new.append(part)
            pa.default_memory_pool().release_unused()
    except BaseException:
        stager.delete(Staged(shape.shard_id, (tuple(new),)))
        raise
    return tuple(new)


def compact(machine: Machine, blob: Blob, batches: tuple[Batch, ...] | None = None) -> bool:
    """Merge `batches`, or what is due; True if something was merged."""
    state, config = machine.refresh(), machine.config
    batches = due(state, config) if batches is None else batches
    if not batches or not state.schemas:
        return False
    chosen, others = affordable(split_runs(batches), config)
    try:
        work = Merge.of(state, chosen, batches[-1].upper, config)
        new = merge_range(work, blob, machine.clock)
    except MissingPart:
        if is_current(machine, chosen):
            raise
        return False  # Someone else merged them first, and what they were is deleted.
    return install(machine, blob, batches, new, others, since=state.since)


def is_current(machine: Machine, runs: Iterable[Run]) -> bool:
    """Whether the shard still consists of the parts of `runs`, among others."""
    live = {part.key for part in machine.refresh().parts}
    return live.issuperset(part.key for run in runs for part in run if part.key is not None)


def install(
    machine: Machine,
    blob: Blob,
    batches: tuple[Batch, ...],
    new: Run,
    others: Iterable[Run] = (),
    *,
    since: Frontier,
) -> bool:
    """Put the run `new`, into which all of `batches` but `others` was merged, in their place. If
    they are not there any more it is deleted."""
    batch = Batch.of(batches[0].lower, batches[-1].upper, since, [new, *others])
    try:
        commands.check_diffs(machine.shard_id, batches, batch.diffs)
    except BaseException:
        delete(machine, blob, [new])
        raise
    # Whatever is raised from here on may be raised after the commit: perhaps the shard consists
    # of the new parts by then. Only a plain False says that it does not.
    done = machine.apply("compact", lambda s: commands.replace_batches(s, batches, batch))
    if not done:
        delete(machine, blob, [new])
    return done


def delete(machine: Machine, blob: Blob, runs: Iterable[Run]) -> None:
    """Delete runs that a merge wrote, unless the shard has come to have them."""
    stager = Stager.of(machine, blob, machine.cached.key)
    discard(machine, stager, Staged(machine.shard_id, tuple(runs)))


def affordable(runs: list[Run], config: Config) -> tuple[list[Run], list[Run]]:
    """The first runs that can be merged within the memory allowed (two at least), and the rest."""
    left = config.merge_memory - 3 * config.part_bytes
    for at, run in enumerate(runs):
        held = max(part.memory for part in run)
        if is_ordered(run):
            held = min(held, config.row_group_bytes)
        left -= COPIES * held
        if left < 0 and at >= 2:
            return runs[:at], runs[at:]
    return runs, []


def _inline_bytes(batch: Batch) -> int:
    return sum(part.size for part in batch.parts if part.inline is not None)


def _horizon(since: Frontier, upper: Frontier) -> int | None:
    """The time up to which history may be forgotten within a batch that ends at `upper`."""
    if since.is_empty or upper.is_empty or since < upper:
        return since.time
    assert upper.time is not None
    return upper.time - 1
