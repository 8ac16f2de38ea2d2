"""COPY … TO STDOUT: rows as lines of text or CSV, or in PostgreSQL's binary COPY format.

A line is put together column by column, with Arrow's kernels. In CSV a value is quoted where it
would else be taken for something different: it has the delimiter, a quote or a line's end in it,
or it looks like a null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.control.pgwire import codec
from tidemark.control.pgwire.session import CopyOptions
from tidemark.control.pgwire.text import BINARY_FORMAT, arrays, rows, texts
from tidemark.types import Column

BINARY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""The signature, then no flags and no extension."""
BINARY_TRAILER = b"\xff\xff"

_STRING = pa.large_string()
_LETTERS = {"\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r"}
_END_MARKER = "\\."


class CopyEncoder:
    """CopyData messages: what comes before the rows, the rows, and what comes after them.

    The header of a binary COPY goes out with whatever comes next: clients expect a row, or the
    end, in every message."""

    def __init__(self, columns: tuple[Column, ...], options: CopyOptions):
        self._columns = columns
        self._options = options
        self._waiting = BINARY_HEADER

    def begin(self) -> Iterable[bytes]:
        if self._options.format != "binary" and self._options.header != "none":
            names = [pa.array([column.name], _STRING) for column in self._columns]
            yield from map(codec.copy_data, _lines(names, self._options))

    def rows(self, piece: pa.RecordBatch) -> Iterable[bytes]:
        if self._options.format == "binary":
            formats = (BINARY_FORMAT,) * len(self._columns)
            for row in rows(piece, self._columns, formats):
                yield self._binary(codec.row_values(row))
        else:
            yield from map(codec.copy_data, copy_lines(piece, self._columns, self._options))

    def end(self) -> Iterable[bytes]:
        if self._options.format == "binary":
            yield self._binary(BINARY_TRAILER)

    def _binary(self, data: bytes) -> bytes:
        data, self._waiting = self._waiting + data, b""
        return codec.copy_data(data)


def copy_lines(
    batch: pa.RecordBatch | pa.Table,
    columns: Sequence[Column],
    options: CopyOptions | None = None,
) -> list[bytes]:
    """The rows of `batch` as lines of text or CSV, each ending in a newline."""
    if not columns:
        return [b"\n"] * batch.num_rows
    found = [texts(array, column.type) for column, array in arrays(batch, columns)]
    return _lines(found, options or CopyOptions())


def _lines(found: list[pa.Array], options: CopyOptions) -> list[bytes]:
    if options.format == "csv":
        alone = len(found) == 1
        found = [_quoted(column.cast(_STRING), options, alone) for column in found]
    else:
        found = [_escaped(column.cast(_STRING), options.delimiter) for column in found]
    fields = [pc.fill_null(column, options.null) for column in found]
    fields[-1] = pc.binary_join_element_wise(fields[-1], _string("\n"), _string(""))
    lines = pc.binary_join_element_wise(*fields, _string(options.delimiter))
    return lines.cast(pa.large_binary()).to_pylist()


def _escaped(column: pa.Array, delimiter: str) -> pa.Array:
    special = "".join(["\\", *_LETTERS, delimiter])
    if not _any(pc.match_substring_regex(column, f"[{re.escape(special)}]")):
        return column
    column = pc.replace_substring(column, "\\", "\\\\")
    for raw, letter in _LETTERS.items():
        column = pc.replace_substring(column, raw, "\\" + letter)
    if delimiter not in _LETTERS:
        column = pc.replace_substring(column, delimiter, "\\" + delimiter)
    return column


def _quoted(column: pa.Array, options: CopyOptions, alone: bool) -> pa.Array:
    special = re.escape(options.delimiter + options.quote + "\r\n")
    needed = pc.or_(
        pc.match_substring_regex(column, f"[{special}]"), pc.equal(column, _string(options.null))
    )
    if alone:
        needed = pc.or_(needed, pc.equal(column, _string(_END_MARKER)))
    if not _any(needed):
        return column
    inner = column
    for raw in dict.fromkeys((options.escape, options.quote)):
        inner = pc.replace_substring(inner, raw, options.escape + raw)
    quote = _string(options.quote)
    quoted = pc.binary_join_element_wise(quote, inner, quote, _string(""))
    return pc.if_else(needed, quoted, column)


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())


def _string(value: str) -> pa.Scalar:
    return pa.scalar(value, _STRING)
