"""What generators build their tables from: columns as Arrow, and updates in the order of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.errors import InvalidUsage
from tidemark.storage.generators.draws import Ints
from tidemark.types import BIGINT, Column, SqlType, arrow_schema

MAX_STEP = 10**11
"""Ids still fit a BIGINT, and times a four-digit year."""

_SLICE_BYTES = 1 << 26


class TableSpec(NamedTuple):
    """A table's columns, and which of them tell its rows apart."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def keys(self) -> tuple[tuple[int, ...], ...]:
        """The key by the places of its columns."""
        names = [column.name for column in self.columns]
        return (tuple(map(names.index, self.key)),)


def check_steps(start: int, stop: int) -> None:
    if not 0 <= start <= stop <= MAX_STEP:
        raise InvalidUsage(
            f"steps [{start}, {stop}) are out of range: need 0 <= start <= stop <= {MAX_STEP}"
        )


def ids(start: int, stop: int, per_step: int) -> Ints:
    """The ids given out in steps [start, stop); steps before 0 give out none."""
    return np.arange(max(start, 0) * per_step, max(stop, 0) * per_step)


def by_offset(offset: Ints) -> Ints:
    """The order of the steps. The sort is stable, so it does not depend on the chunking."""
    return np.argsort(offset, kind="stable")


def updates(
    spec: TableSpec, rows: Sequence[pa.Array | pa.ChunkedArray], offset: Ints, diff: Ints
) -> pa.Table:
    columns = (*spec.columns, Column("_offset", BIGINT), Column("_diff", BIGINT))
    return pa.Table.from_arrays(
        [*rows, pa.array(offset), pa.array(diff)], schema=arrow_schema(columns)
    )


def cents(amount: Ints, type_: SqlType) -> pa.Array:
    """Cents as a numeric with two digits: Arrow's 128-bit little-endian layout, directly."""
    words = np.empty((len(amount), 2), dtype="<i8")
    words[:, 0] = amount
    words[:, 1] = amount >> 63
    return pa.Array.from_buffers(type_.arrow, len(amount), [None, pa.py_buffer(words)])


def substrings(pool: npt.NDArray[np.uint8], start: Ints, length: Ints) -> pa.ChunkedArray:
    """ASCII text cut out of a pool, a slice of the rows at a time to bound the scratch memory."""
    count = max(1, _SLICE_BYTES // max(1, int(length.max(initial=1))) // 8)
    return pa.chunked_array(
        [
            _substrings(pool, start[at : at + count], length[at : at + count])
            for at in range(0, len(start), count)
        ],
        type=pa.string(),
    )


def _substrings(pool: npt.NDArray[np.uint8], start: Ints, length: Ints) -> pa.Array:
    end = np.cumsum(length)
    # Byte i of the result is byte i + shift of the pool, with one shift per string.
    shift = np.repeat(start - (end - length), length)
    data = pool[shift + np.arange(len(shift))]
    return _strings(np.concatenate([[0], end]), data)


def fixed_width(chars: npt.NDArray[np.uint8]) -> pa.Array:
    """One ASCII string per row of a matrix of characters."""
    rows, width = chars.shape
    return _strings(np.arange(rows + 1) * width, chars)


def _strings(offsets: Ints, data: npt.NDArray[np.uint8]) -> pa.Array:
    buffers = [pa.py_buffer(offsets.astype("<i4")), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.StringArray.from_buffers(len(offsets) - 1, *buffers)
