"""Batches as streams: their runs, chunk by chunk, merged in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidemark.ipc import decode_schema
from tidemark.persist.blob import Blob
from tidemark.persist.config import Config
from tidemark.persist.merge import merge_runs
from tidemark.persist.order import sort
from tidemark.persist.part import read_part
from tidemark.persist.ranges import EVERYTHING, Range, overlapping, read_from
from tidemark.persist.state import Batch, Run, State
from tidemark.persist.updates import advance, between, concat, consolidate


def schema_of(state: State) -> pa.Schema:
    """The newest schema of the shard's updates."""
    return decode_schema(state.schemas[-1])


def split_runs(batches: Iterable[Batch]) -> list[Run]:
    """The runs of all batches, as merges see them. A part that came unordered is one of its own:
    it must be read and sorted whole."""
    runs: list[Run] = []
    for run in (run for batch in batches for run in batch.runs):
        runs += [run] if is_ordered(run) else [(part,) for part in run]
    return runs


def is_ordered(run: Run) -> bool:
    return all(part.ordered for part in run)


def stream_runs(
    blob: Blob,
    state: State,
    runs: list[Run],
    *,
    horizon: int | None,
    config: Config,
    until: int | None = None,
    within: Range = EVERYTHING,
) -> Iterator[pa.Table]:
    """The updates of `runs` (those before `until` that lie `within` a range of positions), merged,
    moved up to `horizon`, summed up."""
    runs = [found for run in runs if (found := overlapping(run, within))]
    rows = sum(part.rows for run in runs for part in run)
    memory = sum(part.memory for run in runs for part in run)
    chunk_rows = max(1, config.row_group_bytes * rows // max(memory, 1))
    if memory <= config.row_group_bytes and within == EVERYTHING:
        return _at_once(blob, state, runs, horizon, until)
    streams = [_chunks(blob, state, group, until, within) for group in _packed(runs, config)]
    return merge_runs(streams, key=state.key, horizon=horizon, chunk_rows=chunk_rows, within=within)


def in_order(
    blob: Blob, state: State, runs: list[Run], *, until: int, config: Config
) -> list[Iterator[pa.Table]]:
    """The updates of `runs` before `until` as a few streams, each in run order."""
    return [_chunks(blob, state, group, until, EVERYTHING) for group in _packed(runs, config)]


def _at_once(
    blob: Blob, state: State, runs: list[Run], horizon: int | None, until: int | None
) -> Iterator[pa.Table]:
    """The same for so few updates that streaming would only cost more."""
    updates = _gathered(blob, state, runs, until)
    updates = consolidate(advance(updates, horizon) if horizon is not None else updates)
    if updates.num_rows:
        yield sort(updates, state.key)


def _packed(runs: list[Run], config: Config) -> Iterator[list[Run]]:
    """Runs that are small together, to be read as one: a merge of many tiny streams is slow."""
    group: list[Run] = []
    size = 0
    for run in sorted(runs, key=memory_of):
        if group and size + memory_of(run) > config.row_group_bytes:
            yield group
            group, size = [], 0
        group.append(run)
        size += memory_of(run)
    if group:
        yield group


def memory_of(run: Run) -> int:
    return sum(part.memory for part in run)


def _chunks(
    blob: Blob, state: State, runs: list[Run], until: int | None, within: Range
) -> Iterator[pa.Table]:
    """One stream of them all, in order. What lies outside the range may still come with it."""
    if len(runs) > 1 or not is_ordered(runs[0]):
        yield sort(_gathered(blob, state, runs, until), state.key)
        return
    schema = schema_of(state)
    for part in runs[0]:
        if until is None or part.min_time < until:
            for chunk in read_from(blob, part, schema, key=state.key, start=within.start):
                yield chunk if until is None else between(chunk, 0, until)


def _gathered(blob: Blob, state: State, runs: list[Run], until: int | None) -> pa.Table:
    """All updates of `runs`, as they come."""
    schema = schema_of(state)
    parts = [p for run in runs for p in run if until is None or p.min_time < until]
    updates = concat([read_part(blob, part, schema) for part in parts], schema)
    return updates if until is None else between(updates, 0, until)
