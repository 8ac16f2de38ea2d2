"""Arrow rows as JSON values, printed as the PostgreSQL wire prints them.

boolean                   true
numbers of every kind     "1.50"      JavaScript would round what is not text; NaN has no JSON
jsonb                     {"a": 1}    as it is stored, digit by digit
arrays                    ["1", null]
everything else           "2024-05-01 10:00:00+00"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tidemark.compute.arrays import read_array
from tidemark.control.pgwire import text
from tidemark.types import Column, SqlType


def rows(batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterable[list[Any]]:
    """What `msgspec.json.encode` makes JSON of."""
    readers = [_reader(column.type) for column in columns]
    for row in text.rows(batch, columns, [text.TEXT_FORMAT] * len(columns)):
        yield [
            None if cell is None else read(cell) for read, cell in zip(readers, row, strict=True)
        ]


def described(columns: Sequence[Column]) -> dict[str, Any]:
    """Columns as RowDescription has them."""
    return {
        "columns": [
            {
                "name": column.name,
                "type_oid": column.type.oid,
                "type_len": column.type.wire_size,
                "type_mod": column.type.modifier,
            }
            for column in columns
        ]
    }


def _reader(type_: SqlType) -> Callable[[bytes], Any]:
    if type_.element is not None:
        read = _reader(type_.element)
        return lambda cell: [
            None if each is None else read(each.encode()) for each in read_array(cell.decode())
        ]
    return _READERS.get(type_.name, bytes.decode)


_READERS: dict[str, Callable[[bytes], Any]] = {
    "boolean": lambda cell: cell == b"t",
    "jsonb": msgspec.Raw,
}
