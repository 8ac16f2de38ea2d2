"""Compaction: few batches of geometrically growing size, and no history before since.

A merge takes a run of adjacent batches, moves times up to since, sums equal updates and puts one
batch in their place, if they are still there. It changes no readable time's contents; the sums of
diffs before and after must agree, or the merge is thrown away.

    rows   1000000 | 90000 | 800 | 40 9 1 3 1 7 2 1        nine at the end are due
           1000000 | 90000 | 864                           after one merge

A merge streams through its inputs, so it holds a row group of each and one part of its output,
whatever their size. If even that would be too much, it merges as many runs as fit and leaves the
others in the new batch for the next time.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from tidemark.errors import Indeterminate
from tidemark.frontier import Frontier
from tidemark.persist import commands
from tidemark.persist.blob import Blob
from tidemark.persist.config import Config
from tidemark.persist.machine import Machine
from tidemark.persist.part import MissingPart
from tidemark.persist.runs import Run, is_ordered, split_runs, stream_runs
from tidemark.persist.staging import Staged, Stager
from tidemark.persist.state import Batch, Part, State

log = structlog.get_logger("persist")


def due(state: State, config: Config, *, after: Frontier = Frontier.MIN) -> tuple[Batch, ...]:
    """The run of newest batches that should become one, if there are too many small ones.

    A batch larger than twice all that came after it is a *step*; steps stay where they are, and
    there are never more than about log3 of the shard's rows. Everything else is small. Batches
    before `after` are left alone: someone is merging them already.
    """
    batches = tuple(batch for batch in state.batches if after <= batch.lower)
    steps, behind = [], 0
    for at in reversed(range(len(batches))):
        rows = batches[at].rows
        if rows > 2 * behind and behind:
            steps.append(at)
        behind += rows
    small = len(batches) - len(steps)
    if small > config.small_batches or _inline_bytes(batches) > config.inline_due:
        limit = config.small_batches
        start = next((at + 1 for at in steps if len(batches) - at > limit), 0)
        return batches[start:]
    # A batch staged by many tasks has as many runs.
    return next(((b,) for b in reversed(batches) if len(b.runs) > config.small_batches), ())


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
        parts, splits = _laid_out([tuple(new), *others])
        batch = Batch(batches[0].lower, last.upper, state.since, parts, splits)
        done = machine.apply("compact", lambda s: commands.replace_batches(s, batches, batch))
    except Indeterminate:
        # Perhaps the shard now consists of these parts. Better to leave some garbage, which the
        # floor will reach one day, than to delete them.
        raise
    except MissingPart:
        _discard(stager, new)
        live = {part.key for part in machine.refresh().parts}
        if live.issuperset(part.key for run in chosen for part in run):
            raise
        return False  # Someone else merged them first, and what they were is deleted.
    except BaseException:
        _discard(stager, new)
        raise
    if not done:
        _discard(stager, new)
    return done


def affordable(runs: list[Run], config: Config) -> tuple[list[Run], list[Run]]:
    """The first runs that can be merged within the memory allowed (two at least), and the rest."""
    left = config.merge_memory - 2 * config.part_bytes
    for at, run in enumerate(runs):
        held = max(part.memory for part in run)
        if is_ordered(run):
            held = min(held, config.row_group_bytes)
        left -= 3 * held
        if left < 0 and at >= 2:
            return runs[:at], runs[at:]
    return runs, []


def _laid_out(runs: Iterable[Run]) -> tuple[tuple[Part, ...], tuple[int, ...]]:
    parts: list[Part] = []
    splits = []
    for run in runs:
        if run and parts:
            splits.append(len(parts))
        parts += run
    return tuple(parts), tuple(splits)


def _discard(stager: Stager, parts: list[Part]) -> None:
    stager.discard(Staged(stager.shard_id, (tuple(parts),)))


def _inline_bytes(batches: tuple[Batch, ...]) -> int:
    return sum(p.size for batch in batches for p in batch.parts if p.inline is not None)


def _horizon(since: Frontier, upper: Frontier) -> int | None:
    """The time up to which history may be forgotten within a batch that ends at `upper`."""
    if since.is_empty or upper.is_empty or since < upper:
        return since.time
    assert upper.time is not None
    return upper.time - 1
