"""Parts: updates encoded for storage, and read back.

A part in Blob is a Parquet file of the shard's schema (zstd, statistics on every column). A small
part travels inside the shard's state as an Arrow IPC stream. Parts of an arranged shard are
sorted by the hash of its key.
"""

from __future__ import annotations

import io
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.errors import Corruption
from tidemark.ipc import decode_table, encode_table
from tidemark.persist.blob import Blob
from tidemark.persist.keyhash import key_hash
from tidemark.persist.state import Part
from tidemark.persist.updates import DIFF, TIME, diff_sum

INLINE_BYTES = 8 * 1024
"""A part that encodes to less than this may be kept inside the state."""

PART_ROWS = 1_000_000


def write_parts(
    blob: Blob, shard_id: str, updates: pa.Table, *, key: tuple[str, ...], inline: bool
) -> tuple[Part, ...]:
    """Store `updates`; the returned parts describe them, and nothing refers to them yet."""
    if not updates.num_rows:
        return ()
    if key:
        order = pa.array(key_hash(updates, key).argsort(kind="stable"))
        updates = updates.take(order)
    if inline and updates.nbytes < 4 * INLINE_BYTES:
        encoded = encode_inline(updates)
        if len(encoded) < INLINE_BYTES:
            return (describe(updates, size=len(encoded), inline=encoded),)
    parts = []
    for start in range(0, updates.num_rows, PART_ROWS):
        chunk = updates.slice(start, PART_ROWS)
        encoded = encode_parquet(chunk)
        name = f"{shard_id}/{uuid4().hex}.parquet"
        blob.set(name, encoded)
        parts.append(describe(chunk, size=len(encoded), key=name))
    return tuple(parts)


def read_part(blob: Blob, part: Part, schema: pa.Schema) -> pa.Table:
    if part.inline is not None:
        return decode_table(part.inline)
    assert part.key is not None
    data = blob.get(part.key)
    if data is None:
        raise MissingPart(f"part {part.key} is missing")
    try:
        table = pq.read_table(pa.BufferReader(data), schema=schema)
    except (pa.ArrowException, OSError) as error:
        raise Corruption(f"part {part.key} cannot be read: {error}") from error
    if table.num_rows != part.rows or diff_sum(table) != part.diffs:
        raise Corruption(f"part {part.key} does not hold what its shard says it holds")
    return table


class MissingPart(Corruption):
    """A part that is gone; harmless if the shard has meanwhile moved on to another."""


def describe(
    updates: pa.Table, *, size: int, key: str | None = None, inline: bytes | None = None
) -> Part:
    times = pc.min_max(updates[TIME])
    return Part(
        rows=updates.num_rows,
        size=size,
        diffs=pc.sum(updates[DIFF]).as_py(),
        min_time=times["min"].as_py(),
        max_time=times["max"].as_py(),
        key=key,
        inline=inline,
    )


def encode_inline(updates: pa.Table) -> bytes:
    # One compacted batch: a slice would drag its parent's buffers along.
    return encode_table(updates.combine_chunks(), compression="zstd")


def encode_parquet(updates: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(updates, buffer, compression="zstd", compression_level=1)
    return buffer.getvalue()
