"""Compaction: few batches of geometrically growing size, and no history before since.

A merge takes a run of adjacent batches, moves times up to since, sums equal updates and puts one
batch in their place, if they are still there. It changes no readable time's contents; the sums of
diffs before and after must agree, or the merge is thrown away.

    rows   1000000 | 90000 | 800 | 40 9 1 3 1 7 2 1        nine at the end are due
           1000000 | 90000 | 864                           after one merge
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from tidemark.frontier import Frontier
from tidemark.persist import state as commands
from tidemark.persist.blob import Blob
from tidemark.persist.machine import Machine
from tidemark.persist.part import MissingPart, write_parts
from tidemark.persist.source import PartSource
from tidemark.persist.state import Batch, State
from tidemark.persist.updates import advance, concat, consolidate, diff_sum

MAX_SMALL_BATCHES = 8
MAX_INLINE_BYTES = 64 * 1024
MAX_ROWS = 20_000_000
"""In-process merges stay below this; larger ones are for Spark."""


class Merge(NamedTuple):
    batches: tuple[Batch, ...]


def due(state: State) -> Merge | None:
    """The run of newest batches that should become one, if there are too many small ones.

    A batch larger than twice all that came after it is a *step*; steps stay where they are, and
    there are never more than about log3 of the shard's rows. Everything else is small.
    """
    steps, after = [], 0
    for at in reversed(range(len(state.batches))):
        rows = state.batches[at].rows
        if rows > 2 * after and after:
            steps.append(at)
        after += rows
    small = len(state.batches) - len(steps)
    if small <= MAX_SMALL_BATCHES and state.inline_bytes <= MAX_INLINE_BYTES:
        return None
    start = next((at + 1 for at in steps if len(state.batches) - at > MAX_SMALL_BATCHES), 0)
    run = state.batches[start:]
    return Merge(run) if sum(batch.rows for batch in run) <= MAX_ROWS else None


def compact(machine: Machine, blob: Blob, parts: PartSource, merge: Merge | None = None) -> bool:
    """Do one due merge; True if something was merged."""
    state = machine.refresh()
    merge = merge or due(state)
    if merge is None or state.schema is None:
        return False
    schema = pa.ipc.read_schema(pa.py_buffer(state.schema))
    try:
        tables = [parts.read(part, schema) for batch in merge.batches for part in batch.parts]
    except MissingPart:
        return False  # Someone else merged it first.
    last = merge.batches[-1]
    horizon = _horizon(state.since, last.upper)
    updates = concat(tables, schema)
    merged = consolidate(advance(updates, horizon) if horizon else updates)
    commands.check_diffs(machine.shard_id, merge.batches, diff_sum(merged))
    new = write_parts(blob, machine.shard_id, merged, key=state.key, inline=False)
    batch = Batch(merge.batches[0].lower, last.upper, state.since, new)
    # Only a plain False says that nothing refers to the new parts. After an error that is not
    # sure; better to leave some garbage than to delete what the shard now consists of.
    done = machine.apply(lambda s: commands.replace_batches(s, merge.batches, batch))
    if not done:
        for part in new:
            blob.delete(part.key or "")
    return done


def collect(machine: Machine, blob: Blob) -> int:
    """Delete retired parts that nobody can be reading any more; how many went."""
    keys = commands.collectable(machine.refresh(), machine.clock.now_ms())
    for key in keys:
        blob.delete(key)
    if keys:
        gone = frozenset(keys)
        machine.apply(lambda state: commands.forget_retired(state, gone))
    return len(keys)


def _horizon(since: Frontier, upper: Frontier) -> int | None:
    """The time up to which history may be forgotten within a batch that ends at `upper`."""
    if since.is_empty or upper.is_empty or since < upper:
        return since.time
    assert upper.time is not None
    return upper.time - 1
