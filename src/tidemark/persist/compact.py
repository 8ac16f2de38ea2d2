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

from itertools import pairwise

import pyarrow as pa

from tidemark.frontier import Frontier
from tidemark.persist import commands
from tidemark.persist.blob import Blob
from tidemark.persist.config import Config
from tidemark.persist.machine import Machine
from tidemark.persist.part import MissingPart
from tidemark.persist.runs import is_ordered, split_runs, stream_runs
from tidemark.persist.staging import Staged, Stager
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


def compact(machine: Machine, blob: Blob, batches: tuple[Batch, ...] | None = None) -> bool:
    """Merge `batches`, or what is due; True if something was merged."""
    state, config = machine.refresh(), machine.config
    batches = due(state, config) if batches is None else batches
    if not batches or not state.schemas:
        return False
    runs = split_runs(batches)
    chosen, others = affordable(runs, config)
    stager = Stager(blob, machine, state.key)
    new: list[Part] = []
    last = batches[-1]
    merged = stream_runs(
        blob, state, chosen, horizon=_horizon(state.since, last.upper), config=config
    )
    try:
        for part in stager.write(merged, schema=len(state.schemas) - 1):
            new.append(part)
            pa.default_memory_pool().release_unused()
    except MissingPart:
        _discard(stager, new)
        live = {part.key for part in machine.refresh().parts}
        if live.issuperset(part.key for run in chosen for part in run if part.key is not None):
            raise
        return False  # Someone else merged them first, and what they were is deleted.
    except BaseException:
        _discard(stager, new)
        raise
    batch = Batch.of(batches[0].lower, last.upper, state.since, [tuple(new), *others])
    # Whatever is raised from here on may be raised after the commit: perhaps the shard consists
    # of the new parts by then. Only a plain False says that it does not.
    done = machine.apply("compact", lambda s: commands.replace_batches(s, batches, batch))
    if not done:
        _discard(stager, new)
    return done


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


def _discard(stager: Stager, parts: list[Part]) -> None:
    stager.discard(Staged(stager.shard_id, (tuple(parts),)))


def _inline_bytes(batch: Batch) -> int:
    return sum(part.size for part in batch.parts if part.inline is not None)


def _horizon(since: Frontier, upper: Frontier) -> int | None:
    """The time up to which history may be forgotten within a batch that ends at `upper`."""
    if since.is_empty or upper.is_empty or since < upper:
        return since.time
    assert upper.time is not None
    return upper.time - 1
