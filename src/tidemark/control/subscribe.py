"""SUBSCRIBE: what a relation contains, then every change, as rows with a time and a diff."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.peek import data_error
from tidemark.control.catalog import Item
from tidemark.control.coordinator import Coordinator
from tidemark.errors import SqlError
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, consolidate
from tidemark.types import BIGINT, BOOLEAN, Column, arrow_schema, numeric

MZ_TIMESTAMP = Column("mz_timestamp", numeric(38, 0))
MZ_PROGRESSED = Column("mz_progressed", BOOLEAN)
MZ_DIFF = Column("mz_diff", BIGINT)


def subscribe_columns(item: Item, *, progress: bool) -> tuple[Column, ...]:
    head = (MZ_TIMESTAMP, MZ_PROGRESSED, MZ_DIFF) if progress else (MZ_TIMESTAMP, MZ_DIFF)
    return (*head, *item.columns)


async def subscribe(
    coordinator: Coordinator,
    item: Item,
    *,
    as_of: int,
    up_to: int | None,
    snapshot: bool,
    progress: bool,
) -> AsyncIterator[pa.RecordBatch]:
    """Batches of changes in order of time: first all rows at `as_of`, then what comes after.

    With `progress`, a row that says "nothing more before this time" follows each step.
    """
    assert item.shard is not None
    columns = subscribe_columns(item, progress=progress)
    reader = coordinator.client.open_reader(item.shard)
    hold = coordinator.holds.acquire(as_of)
    try:
        if up_to is not None and up_to <= as_of:
            return
        if progress:
            yield _progress(as_of, columns)
        await coordinator.wait_readable(item.shard, as_of)
        if snapshot:
            for batch in _changes(await asyncio.to_thread(reader.snapshot, as_of), columns):
                yield batch
        lower = Frontier(as_of + 1)
        while up_to is None or lower < Frontier(up_to):
            assert lower.time is not None
            upper = await reader.wait_for_upper_past_async(lower.time)
            if upper is None or upper.is_empty:
                raise SqlError(f'relation "{item.name}" was dropped', sqlstate="42P01")
            if up_to is not None:
                upper = min(upper, Frontier(up_to))
            found = consolidate(await asyncio.to_thread(reader.updates, lower, upper))
            for batch in _changes(found, columns):
                yield batch
            if progress:
                assert upper.time is not None
                yield _progress(upper.time, columns)
            lower = upper
            assert lower.time is not None
            coordinator.holds.release(hold)
            hold = coordinator.holds.acquire(lower.time - 1)
    finally:
        coordinator.holds.release(hold)


def _changes(updates: pa.Table, columns: tuple[Column, ...]) -> list[pa.RecordBatch]:
    if not updates.num_rows:
        return []
    failed = updates.filter(pc.is_valid(updates[ERR]))
    if failed.num_rows:
        raise data_error(failed[ERR][0].as_py())
    # Within a time what goes comes before what comes, and else as the rows sort.
    order = [TIME, DIFF, *(n for n in updates.column_names if n not in (TIME, DIFF, ERR))]
    updates = updates.sort_by([(name, "ascending") for name in order])
    head = [pc.cast(updates[TIME], pa.decimal128(38, 0)), updates[DIFF]]
    if columns[1] == MZ_PROGRESSED:
        head.insert(1, pa.array([False] * updates.num_rows))
    rows = [updates[column.name] for column in columns[len(head) :]]
    return pa.table([*head, *rows], schema=arrow_schema(columns)).to_batches(max_chunksize=10_000)


def _progress(time: int, columns: tuple[Column, ...]) -> pa.RecordBatch:
    nulls = [pa.nulls(1, column.type.arrow) for column in columns[2:]]
    head = [pa.array([time], pa.int64()).cast(pa.decimal128(38, 0)), pa.array([True])]
    return pa.record_batch([*head, *nulls], schema=arrow_schema(columns))
