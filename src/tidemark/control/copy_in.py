"""COPY … FROM STDIN: the client's bytes into one table of rows, a block at a time.

Blocks are parsed on a thread, so that others are served meanwhile; what has been parsed is kept
as Arrow, and nothing is written before all of it has been read. An error is that of the first
bad line, and says which line that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.expr import Lit
from tidemark.compute.sql.dialect import hint_of
from tidemark.control.copy_values import BadValue, read_column
from tidemark.control.defaults import NO_DEFAULTS, Defaults
from tidemark.control.pgwire import CopyOptions
from tidemark.control.pgwire.codec import utf8
from tidemark.control.pgwire.copy_binary import BinaryReader
from tidemark.control.pgwire.copy_fields import FieldReader, Records
from tidemark.control.values import literal_array
from tidemark.errors import DataError, SqlError, TidemarkError, TooLarge
from tidemark.types import Column, arrow_schema

_BLOCK_BYTES = 4 * 1024 * 1024
_SHOWN = 100
"""How much of a bad line or value an error quotes, in characters."""


class Reader:
    """Bytes in, rows out; `names` says which columns the records have, in what order."""

    def __init__(
        self,
        table: str,
        columns: tuple[Column, ...],
        names: tuple[str, ...],
        options: CopyOptions,
        *,
        max_bytes: int,
        defaults: Defaults = NO_DEFAULTS,
    ):
        self._table = table
        self._columns = columns
        self._given = _given(table, columns, names)
        self._header = options.header
        self._max_bytes = max_bytes
        self._defaults = defaults
        if options.format == "binary":
            self._fields = BinaryReader([column.type.oid for column in self._given])
        else:
            self._fields = FieldReader(options)
        self._pieces: list[bytes] = []
        self._size = self._pending = 0
        self._parsed: list[pa.Table] = []

    def add(self, piece: bytes) -> bool:
        """Take bytes; true if it is time to `parse`."""
        self._size += len(piece)
        if self._size > self._max_bytes:
            raise TooLarge(
                f"COPY from stdin has more than {self._max_bytes} bytes",
                hint="copy in several parts, or raise it: SET max_copy_from_size = '4GB'",
            )
        if not self._fields.ended:
            self._pieces.append(piece)
            self._pending += len(piece)
        # A record of many blocks is looked at again only when it has doubled.
        return self._pending >= max(_BLOCK_BYTES, self._fields.waiting)

    def parse(self) -> None:
        block = b"".join(self._pieces)
        self._pieces.clear()
        self._pending = 0
        with _Context(self._table):
            self._take(self._fields.read(block))

    def finish(self) -> pa.Table:
        """Parse what is left: all rows, with every column of the table."""
        self.parse()
        with _Context(self._table):
            self._take(self._fields.finish())
        return pa.concat_tables([arrow_schema(self._columns).empty_table(), *self._parsed])

    def _take(self, records: Records) -> None:
        first = 0
        if self._header != "none" and len(records.widths):
            first = 1
            if self._header == "match":
                self._match_header(records)
            self._header = "none"
        width = len(self._given)
        wrong = np.flatnonzero(records.widths[first:] != width)
        end = first + int(wrong[0]) if len(wrong) else len(records.widths)
        offset = int(records.widths[:first].sum())
        fields = records.fields.slice(offset, (end - first) * width)
        if end > first:
            self._parsed.append(self._rows(fields, records, first))
        if len(wrong):
            raise self._wrong_width(records, end)

    def _rows(self, fields: pa.Array, records: Records, first: int) -> pa.Table:
        texts = self._texts(fields, records, first)
        count = len(fields) // len(self._given)
        made: dict[str, pa.Array] = {}
        bad: tuple[int, TidemarkError] | None = None
        for at, column in enumerate(self._given):
            mine = texts.take(pa.array(np.arange(at, len(texts), len(self._given))))
            try:
                made[column.name] = read_column(mine, column.type)
                self._check_nulls(column, mine)
            except BadValue as error:
                if bad is None or error.at < bad[0]:
                    value = mine[error.at].as_py()
                    where = f"line {records.lines[first + error.at]}"
                    error.error.context = (
                        f"{where}: {_shown(records.texts[first + error.at])}"
                        if value is None
                        else f'{where}, column {column.name}: "{value[:_SHOWN]}"'
                    )
                    bad = error.at, error.error
        if bad is not None:
            raise bad[1]
        schema = arrow_schema(self._columns)
        arrays = [
            made[column.name] if column.name in made else self._default(column, count)
            for column in self._columns
        ]
        return pa.table(arrays, schema=schema)

    def _default(self, column: Column, count: int) -> pa.Array:
        default = self._defaults.get(column.name) or Lit(None, column.type)
        return pa.repeat(literal_array([default], column.type)[0], count)

    def _texts(self, fields: pa.Array, records: Records, first: int) -> pa.Array:
        """The fields as text: UTF-8, and without zero bytes."""
        try:
            texts = fields.cast(pa.large_string())
            if not pc.any(pc.match_substring(texts, "\0")).as_py():
                return texts
        except pa.ArrowInvalid:
            pass
        for at, field in enumerate(fields.to_pylist()):
            try:
                if field is not None and b"\0" in field:
                    raise DataError(
                        'invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021"
                    )
                utf8(field or b"")
            except DataError as error:
                error.context = f"line {records.lines[first + at // len(self._given)]}"
                raise
        raise AssertionError("unreachable: some field is no text")

    def _check_nulls(self, column: Column, texts: pa.Array) -> None:
        if not column.nullable and texts.null_count:
            message = (
                f'null value in column "{column.name}" of relation "{self._table}" '
                "violates not-null constraint"
            )
            at = pc.index(texts.is_null(), pa.scalar(True)).as_py()
            raise BadValue(at, SqlError(message, sqlstate="23502"))

    def _match_header(self, records: Records) -> None:
        names = [utf8(each or b"") for each in records.fields[: records.widths[0]].to_pylist()]
        wanted = [column.name for column in self._given]
        if names != wanted:
            error = DataError(
                f"the header line has the columns {', '.join(names)}, not {', '.join(wanted)}",
                hint="HEADER MATCH compares the names; HEADER does not",
                sqlstate="22P04",
            )
            error.context = "line 1"
            raise error

    def _wrong_width(self, records: Records, at: int) -> DataError:
        width = int(records.widths[at])
        message = "extra data after last expected column"
        if width < len(self._given):
            message = f'missing data for column "{self._given[width].name}"'
        error = DataError(message, sqlstate="22P04")
        error.context = f"line {records.lines[at]}: {_shown(records.texts[at])}"
        return error


class _Context:
    """Puts the table's name in front of where an error says it happened."""

    def __init__(self, table: str):
        self._table = table

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, TidemarkError) and error.context is not None:
            error.context = f"COPY {self._table}, {error.context}"


async def read_all(reader: Reader, pieces: AsyncIterator[bytes]) -> pa.Table:
    async for piece in pieces:
        if reader.add(piece):
            await asyncio.to_thread(reader.parse)
    return await asyncio.to_thread(reader.finish)


def _given(table: str, columns: tuple[Column, ...], names: tuple[str, ...]) -> tuple[Column, ...]:
    if not names:
        return columns
    known = {column.name: column for column in columns}
    for name in names:
        if name not in known:
            raise SqlError(
                f'column "{name}" of relation "{table}" does not exist',
                hint=hint_of(name, known),
                sqlstate="42703",
            )
        if names.count(name) > 1:
            raise SqlError(f'column "{name}" specified more than once', sqlstate="42701")
    return tuple(known[name] for name in names)


def _shown(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    return f'"{text[:_SHOWN]}..."' if len(text) > _SHOWN else f'"{text}"'
