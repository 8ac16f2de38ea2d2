"""The hash by which arrangements are laid out: 64 bits over the key columns of an Arrow table.

It is part of the stored format (parts of an arranged shard are sorted by it), so it is defined
here bit by bit instead of borrowed from a library whose next release may differ:

    fixed-width value   its 64-bit pattern (decimals: both halves), mixed by splitmix64
    string, binary      sum of (byte[i] + 1) * P^(i+1) modulo 2^64, plus the length, mixed
    null                a constant
    several columns     h = mix(h * P + column hash), from the left

Everything works on whole columns with numpy; a million keys take tens of milliseconds.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import InvalidUsage

HASH = "_hash"

_PRIME = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xC2B2AE3D27D4EB4F)


def key_hash(table: pa.Table, columns: tuple[str, ...] | list[str]) -> np.ndarray:
    """One uint64 per row over `columns`; with no columns every row hashes alike."""
    result = np.zeros(table.num_rows, dtype=np.uint64)
    for name in columns:
        with np.errstate(over="ignore"):
            result = _mix(result * _PRIME + _column_hash(table.column(name)))
    return result


def _column_hash(column: pa.ChunkedArray) -> np.ndarray:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    with np.errstate(over="ignore"):
        hashed = _values_hash(array)
    if array.null_count:
        hashed = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, hashed)
    return hashed


def _values_hash(array: pa.Array) -> np.ndarray:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _bytes_hash(array)
    if pa.types.is_decimal128(kind):
        # A decimal's two halves, without what a null slot happens to hold.
        halves = np.frombuffer(array.buffers()[1], dtype=np.uint64)
        halves = halves[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2)
        return _mix(_mix(halves[:, 0]) * _PRIME + halves[:, 1])
    if pa.types.is_floating(kind):
        values = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        # -0.0 equals 0.0 and every NaN equals every other.
        values = np.where(np.isnan(values), np.nan, values + 0.0)
        return _mix(values.view(np.uint64))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        values = pc.cast(array, pa.int64())
    elif pa.types.is_date32(kind):
        values = pc.cast(pc.cast(array, pa.int32()), pa.int64())
    elif pa.types.is_timestamp(kind):
        values = pc.cast(array, pa.int64())
    else:
        raise InvalidUsage(f"cannot arrange by a column of type {kind}")
    return _mix(pc.fill_null(values, 0).to_numpy(zero_copy_only=False).view(np.uint64))


def _bytes_hash(array: pa.Array) -> np.ndarray:
    array = pc.fill_null(array, "" if pa.types.is_string(array.type) else b"")
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    data = array.buffers()[2]
    if data is None or not len(array) or offsets[-1] == offsets[0]:
        return _mix(lengths.astype(np.uint64))
    octets = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64)
    starts = offsets - offsets[0]
    position = np.arange(len(octets)) - np.repeat(starts[:-1], lengths)
    powers = np.cumprod(np.full(int(lengths.max()), _PRIME, dtype=np.uint64))
    sums = np.concatenate(([np.uint64(0)], np.cumsum((octets + np.uint64(1)) * powers[position])))
    return _mix(sums[starts[1:]] - sums[starts[:-1]] + lengths.astype(np.uint64))


def _mix(values: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser: every input bit reaches every output bit."""
    values = values + _PRIME
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
