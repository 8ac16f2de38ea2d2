"""Batches as streams: their runs, chunk by chunk, merged in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidemark.ipc import decode_schema
from tidemark.persist.blob import Blob
from tidemark.persist.config import Config
from tidemark.persist.merge import merge_runs
from tidemark.persist.order import sort
from tidemark.persist.part import read_chunks, read_part
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
) -> Iterator[pa.Table]:
    """The updates of `runs` (those before `until`), merged, moved up to `horizon`, summed up."""
    rows = sum(part.rows for run in runs for part in run)
    memory = sum(part.memory for run in runs for part in run)
    chunk_rows = max(1, config.row_group_bytes * rows // max(memory, 1))
    if memory <= config.row_group_bytes:
        return _at_once(blob, state, runs, horizon, until)
    streams = [_chunks(blob, state, group, until) for group in _packed(runs, config)]
    return merge_runs(streams, key=state.key, horizon=horizon, chunk_rows=chunk_rows)


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
    for run in sorted(runs, key=_memory):
        if group and size + _memory(run) > config.row_group_bytes:
            yield group
            group, size = [], 0
        group.append(run)
        size += _memory(run)
    if group:
        yield group


def _memory(run: Run) -> int:
    return sum(part.memory for part in run)


def _chunks(blob: Blob, state: State, runs: list[Run], until: int | None) -> Iterator[pa.Table]:
    if len(runs) > 1 or not is_ordered(runs[0]):
        yield sort(_gathered(blob, state, runs, until), state.key)
        return
    schema = schema_of(state)
    for part in runs[0]:
        if until is None or part.min_time < until:
            for chunk in read_chunks(blob, part, schema):
                yield chunk if until is None else between(chunk, 0, until)


def _gathered(blob: Blob, state: State, runs: list[Run], until: int | None) -> pa.Table:
    """All updates of `runs`, as they come."""
    schema = schema_of(state)
    parts = [p for run in runs for p in run if until is None or p.min_time < until]
    updates = concat([read_part(blob, part, schema) for part in parts], schema)
    return updates if until is None else between(updates, 0, until)
