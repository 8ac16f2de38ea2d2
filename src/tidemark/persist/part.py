"""Parts: updates encoded for storage, and read back.

A part in Blob is a Parquet file of the shard's schema (zstd, statistics on every column). A small
part travels inside the shard's state as an Arrow IPC stream. The updates of a part are in run
order (`order`), so that merges can stream through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.errors import Corruption
from tidemark.ipc import decode_table, encode_table
from tidemark.persist import filters
from tidemark.persist.blob import Blob
from tidemark.persist.config import Config
from tidemark.persist.filters import Predicate
from tidemark.persist.state import Part
from tidemark.persist.updates import ERR, META_FIELDS, diff_sum, time_bounds, with_time

SAMPLE_ROWS = 512
"""By how many of its first rows it is judged how a column is best encoded."""

DAMAGED = (pa.ArrowException, OSError, ValueError)
"""What Arrow raises on bytes that are not what they should be."""


class MissingPart(Corruption):
    """A part that is gone; harmless if the shard has meanwhile moved on to another."""


def encode_small(updates: pa.Table, config: Config, *, schema: int) -> Part | None:
    """`updates` as a part to keep inside the state, if it is small enough.

    In no particular order: merges read such parts whole, and sort then.
    """
    limit = 4 * config.inline_bytes
    memory = updates.get_total_buffer_size()  # At once, but of all that a slice is a slice of.
    if memory >= limit:
        memory = updates.nbytes
    if memory >= limit:
        return None
    inline = encode_table(updates.combine_chunks(), compress=True)
    if len(inline) >= config.inline_bytes:
        return None
    return describe(updates, size=len(inline), inline=inline, schema=schema, memory=memory)


def write_part(
    blob: Blob,
    key: str,
    chunks: list[pa.Table],
    *,
    schema: int,
    first: tuple[int, int] | None,
    row_group_rows: int,
) -> Part:
    """Store `chunks` as one part; nothing refers to it yet. `first` is the position of the first
    update if they are in run order."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        chunks[0].schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=_repetitive(chunks[0]),  # pyright: ignore[reportArgumentType]
        write_page_checksum=True,
    ) as writer:
        for chunk in chunks:
            writer.write_table(chunk, row_group_size=row_group_rows)
    encoded = sink.getvalue()
    blob.set(key, memoryview(encoded))
    updates = pa.concat_tables(chunks)
    return describe(updates, size=encoded.size, key=key, schema=schema, first=first)


def _repetitive(updates: pa.Table) -> list[str]:
    """Columns whose values repeat: a dictionary of others would cost time and save nothing."""
    sample = updates.slice(0, SAMPLE_ROWS)
    return [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if not pa.types.is_nested(column.type)
        and pc.count_distinct(column, mode="all").as_py() <= sample.num_rows // 4
    ]


def describe(
    updates: pa.Table,
    *,
    size: int,
    schema: int,
    first: tuple[int, int] | None = None,
    key: str | None = None,
    inline: bytes | None = None,
    memory: int | None = None,
) -> Part:
    earliest, latest = time_bounds(updates)
    return Part(
        rows=updates.num_rows,
        size=size,
        diffs=diff_sum(updates),
        min_time=earliest,
        max_time=latest,
        memory=updates.nbytes if memory is None else memory,
        errors=updates.num_rows - updates[ERR].null_count,
        schema=schema,
        ordered=first is not None,
        first=first,
        key=key,
        inline=inline,
        stats=filters.statistics(updates) if key is not None else {},
    )


def read_part(
    blob: Blob,
    part: Part,
    schema: pa.Schema,
    *,
    columns: list[str] | None = None,
    clauses: list[list[Predicate]] | None = None,
) -> pa.Table:
    """The part's updates in the shard's newest `schema`, of `columns` and rows that pass only."""
    names = list(columns if columns is not None else schema.names)
    names += [field.name for field in META_FIELDS if field.name not in names]
    if part.inline is not None:
        table = _read_inline(part, schema)
        _check_contents(part, table)
        table = table.filter(filters.expression(clauses)) if clauses else table
        return table.select(names)
    assert part.key is not None
    wanted = [n for n in schema.names if n in {*names, *filters.columns_of(clauses or [])}]
    with open_part(blob, part) as file:
        try:
            # With a schema, columns that the part was written without come as nulls.
            table = pq.read_table(
                file,
                schema=pa.schema([schema.field(n) for n in wanted]),
                page_checksum_verification=True,
            )
        except DAMAGED as error:
            raise unreadable(part, error) from error
    table = placed(part, table)
    _check_contents(part, table)
    table = table.filter(filters.expression(clauses)) if clauses else table
    return table.select(names)


def read_chunks(
    blob: Blob,
    part: Part,
    schema: pa.Schema,
    *,
    begin: Callable[[pq.ParquetFile], int] = lambda _: 0,
) -> Iterator[pa.Table]:
    """The same, whole but one row group after the other, from the one that `begin` chooses."""
    if part.inline is not None:
        yield _read_inline(part, schema)
        return
    with open_part(blob, part) as source:
        try:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            if file.metadata.num_rows != part.rows:
                raise ValueError(f"it holds {file.metadata.num_rows} updates")
            for group in range(begin(file), file.num_row_groups):
                chunk = placed(part, conform(file.read_row_group(group, use_threads=False), schema))
                first, last = time_bounds(chunk)
                if first < part.min_time or last > part.max_time:
                    raise ValueError(f"it holds updates at times {first} to {last}")
                yield chunk
        except DAMAGED as error:
            raise unreadable(part, error) from error


def _read_inline(part: Part, schema: pa.Schema) -> pa.Table:
    assert part.inline is not None
    try:
        return placed(part, conform(decode_table(part.inline), schema))
    except DAMAGED as error:
        raise unreadable(part, error) from error


def open_part(blob: Blob, part: Part) -> pa.NativeFile:
    assert part.key is not None
    file = blob.open(part.key)
    if file is None:
        raise MissingPart(f"part {part.key} ({held(part)}) is missing", hint=LOST)
    if file.size() != part.size:
        with file:
            raise Corruption(
                f"part {part.key} ({held(part)}) has {file.size()} bytes, not {part.size}",
                hint=LOST,
            )
    return file


def conform(updates: pa.Table, schema: pa.Schema) -> pa.Table:
    """Updates of an earlier schema in a later one: new columns are null."""
    if updates.schema.equals(schema):
        return updates
    have = set(updates.column_names)
    columns = [
        updates[field.name] if field.name in have else pa.nulls(updates.num_rows, field.type)
        for field in schema
    ]
    return pa.table(dict(zip(schema.names, columns, strict=True))).cast(schema)


def placed(part: Part, updates: pa.Table) -> pa.Table:
    """The part's updates at the time that it says, if it does."""
    if part.at is None:
        return updates
    return with_time(updates, pa.repeat(pa.scalar(part.at, pa.int64()), updates.num_rows))


LOST = "restore that blob from a backup; until then reads that need it fail"


def unreadable(part: Part, error: Exception) -> Corruption:
    reason = next(iter(str(error).splitlines()), "")
    name = part.key or "inside the state"
    return Corruption(f"part {name} ({held(part)}) cannot be read: {reason}", hint=LOST)


def held(part: Part) -> str:
    return f"{part.rows} updates at times {part.min_time} to {part.max_time}"


def _check_contents(part: Part, table: pa.Table) -> None:
    bounds = time_bounds(table) if table.num_rows else None
    expected = (part.rows, part.diffs, (part.min_time, part.max_time))
    if (table.num_rows, diff_sum(table), bounds) != expected:
        name = part.key or "inside the state"
        times = f" at times {bounds[0]} to {bounds[1]}" if bounds else ""
        raise Corruption(
            f"part {name} ({held(part)}, sum of diffs {part.diffs}) holds {table.num_rows} "
            f"updates{times}, sum of diffs {diff_sum(table)}",
            hint=LOST,
        )
