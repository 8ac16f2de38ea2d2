"""The bytes of a COPY … FROM STDIN, in text or CSV, cut into records and fields as PostgreSQL does.

Everything is done on whole blocks with numpy, so that a million lines cost no Python loop:

    bytes      1  ,  "  a  ,  "  "  b  "  \\n
    inside     0  0  1  1  1  0  1  1  0  0     an odd number of quotes so far
    ends          ^                       ^     of fields: delimiters and newlines not inside
    kept       1        a  ,  "     b           without ends and quotes, but one of a doubled pair

What is kept, with the offsets at which fields end, is an Arrow array of all the block's fields.
In text format backslashes take the place of the quotes. A block ends anywhere; its last,
unfinished record is cut again together with the next block.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.control.pgwire.session import CopyOptions
from tidemark.errors import DataError

_NEWLINE, _RETURN, _BACKSLASH, _DOT = b"\n\r\\."
_CONTROL = {ord(letter): ord(byte) for letter, byte in zip("bfnrtv", "\b\f\n\r\t\v", strict=True)}
_CORRUPT_MARKER = "end-of-copy marker corrupt"
_BY_NUMBER = re.compile(rb"x([0-9A-Fa-f]{1,2})|([0-7]{1,3})")


class Records(NamedTuple):
    """The complete records of a block."""

    fields: pa.Array
    """Of all records, one after the other: binary, null where the null string stood."""
    widths: np.ndarray
    """How many fields each record has."""
    lines: np.ndarray
    """The line on which each record ends, counted from the start of all data."""
    texts: list[bytes] | _Slices
    """Each record as it came."""


class _Slices(NamedTuple):
    """Pieces of a block, cut when somebody looks."""

    block: bytes
    starts: np.ndarray
    ends: np.ndarray

    def __getitem__(self, at: int) -> bytes:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.block[self.starts[at] : self.ends[at]]


class _Marks(NamedTuple):
    """What the bytes of a block are."""

    values: np.ndarray
    """The bytes, with those that stand for another one replaced."""
    data: np.ndarray
    """Which are data even if they look like a delimiter or a line's end."""
    dropped: np.ndarray
    """Which are there only for the sake of others: quotes and escapes."""
    quotes: np.ndarray | None = None
    """Of csv: which open or close a quoted piece."""
    dots: np.ndarray | None = None
    """Of text: where escaped dots are, which only an end-of-data marker has."""


class FieldReader:
    """Takes blocks in order; each gives the records that it completes."""

    def __init__(self, options: CopyOptions):
        self._options = options
        self._rest = b""
        self._line = 0
        self._returns: bool | None = None
        """Whether lines end in \\r\\n; the first line says it for all."""
        self.ended = False
        """An end-of-data marker has been read: what comes after it is nothing."""

    @property
    def waiting(self) -> int:
        """The size of the unfinished record."""
        return len(self._rest)

    def read(self, data: bytes) -> Records:
        block = self._rest + data
        return self._records(block, self._marks(block))

    def finish(self) -> Records:
        """The last record may lack its newline, but nothing else."""
        block, csv = self._rest, self._options.format == "csv"
        marks = self._marks(block)
        if csv and block and marks.data[-1]:
            raise _bad_format("unterminated CSV quoted field", self._line + 1 + block.count(b"\n"))
        if not block:
            return _nothing()
        if not csv and block.endswith(b"\\") and marks.dropped[-1]:
            block = block[:-1]  # an escape of nothing
        if block == b"\\.":
            raise _bad_format(_CORRUPT_MARKER, self._line + 1)
        block += b"\r\n" if self._returns and not block.endswith(b"\r") else b"\n"
        return self._records(block, self._marks(block))

    def _marks(self, block: bytes) -> _Marks:
        values = np.frombuffer(block, np.uint8)
        if self._options.format == "text":
            return _text_marks(block, values)
        quote, escape = self._options.quote.encode(), self._options.escape.encode()
        if escape == quote or escape not in block:
            return _csv_marks(values, quote[0], doubled=escape == quote)
        return _escaping_csv_marks(block, values, quote, escape)

    def _records(self, block: bytes, marks: _Marks) -> Records:
        raw = np.frombuffer(block, np.uint8)
        newlines = raw == _NEWLINE
        ending = ((raw == ord(self._options.delimiter)) | newlines) & ~marks.data
        ends = np.flatnonzero(ending)
        last_fields = np.flatnonzero(raw[ends] == _NEWLINE)
        if not len(last_fields):
            self._rest = block
            return _nothing()
        ends = ends[: last_fields[-1] + 1]
        size = int(ends[-1]) + 1
        self._rest = block[size:]
        record_ends = ends[last_fields]
        if self._options.format == "csv":
            lines = self._line + np.cumsum(newlines[:size])[record_ends]
        else:
            lines = self._line + 1 + np.arange(len(record_ends))  # an escaped newline is data
        dropped = marks.dropped[:size].copy()
        returns = self._check_returns(raw[:size], marks.data[:size], record_ends, lines)
        if returns:
            dropped[record_ends - 1] = True
        self._line = int(lines[-1])

        starts = np.concatenate(([0], ends[:-1] + 1))
        field_ends = ends.copy()
        if returns:
            field_ends[last_fields] -= 1
        widths = np.diff(np.concatenate(([-1], last_fields)))
        first_fields = last_fields - widths + 1
        texts = _Slices(block, starts[first_fields], field_ends[last_fields])
        marker = np.flatnonzero(
            (widths == 1) & _equal(raw, texts.starts, texts.ends, bytes((_BACKSLASH, _DOT)))
        )
        count = len(widths)
        if len(marker):
            self.ended, self._rest = True, b""
            count = int(marker[0])
        if marks.dots is not None:
            end = texts.starts[count] if len(marker) else size
            stray = marks.dots[marks.dots < end]
            if len(stray):
                at = np.searchsorted(record_ends, stray[0])
                raise _bad_format(_CORRUPT_MARKER, int(lines[at]))
        field_count = int(last_fields[count - 1]) + 1 if count else 0

        kept = ~dropped
        kept[ends] = False
        nulls = _equal(raw, starts, field_ends, self._options.null.encode())
        if marks.quotes is not None:
            quotes = np.concatenate(([0], np.cumsum(marks.quotes[:size])))
            nulls &= quotes[field_ends] == quotes[starts]
        offsets = np.concatenate(([0], np.cumsum(kept)[ends]))
        fields = pa.Array.from_buffers(
            pa.large_binary(),
            field_count,
            [
                pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes()),
                pa.py_buffer(offsets.astype(np.int64).tobytes()),
                pa.py_buffer(marks.values[:size][kept].tobytes()),
            ],
        )
        return Records(fields, widths[:count], lines[:count], texts)

    def _check_returns(
        self, raw: np.ndarray, data: np.ndarray, record_ends: np.ndarray, lines: np.ndarray
    ) -> bool:
        """Whether lines end in \\r\\n: all of them, or none, and there is no other bare \\r."""
        returns = np.flatnonzero((raw == _RETURN) & ~data)
        before = record_ends - 1
        ends_so = (before >= 0) & (raw[before] == _RETURN) & ~data[before]
        if self._returns is None:
            self._returns = bool(ends_so[0])
        stray = np.setdiff1d(returns, before[ends_so]) if len(returns) else returns
        strays = np.searchsorted(record_ends, stray[:1])
        others = np.flatnonzero(ends_so != self._returns)[:1]
        if len(strays) or len(others):
            at = min([*strays, *others])
            what = "newline" if self._returns and at not in strays else "carriage return"
            literal = "literal" if self._options.format == "text" else "unquoted"
            raise _bad_format(f"{literal} {what} found in data", int(lines[at]))
        return self._returns


def _text_marks(block: bytes, values: np.ndarray) -> _Marks:
    data = np.zeros(len(values), bool)
    dropped = np.zeros(len(values), bool)
    slashes = np.flatnonzero(values == _BACKSLASH)
    if not len(slashes):
        return _Marks(values, data, dropped)
    # In a run of backslashes every other one, from the first, is an escape.
    starts = np.concatenate(([True], np.diff(slashes) != 1))
    run_start = np.maximum.accumulate(np.where(starts, np.arange(len(slashes)), 0))
    escapes = slashes[(np.arange(len(slashes)) - run_start) % 2 == 0]
    dropped[escapes] = True
    escaped = escapes[escapes + 1 < len(values)] + 1
    data[escaped] = True
    values = values.copy()
    letters = values[escaped]
    for letter, byte in _CONTROL.items():
        values[escaped[letters == letter]] = byte
    numbered = escaped[(letters == ord("x")) | ((letters >= ord("0")) & (letters <= ord("7")))]
    for at in numbered.tolist():
        number = _BY_NUMBER.match(block, at)
        if number is not None:
            code = int(number[1], 16) if number[1] else int(number[2], 8) & 0xFF
            values[at] = code
            dropped[at + 1 : number.end()] = True
    return _Marks(values, data, dropped, dots=escaped[letters == _DOT])


def _csv_marks(values: np.ndarray, quote: int, *, doubled: bool) -> _Marks:
    quotes = values == quote
    inside = np.logical_xor.accumulate(quotes) if len(quotes) else quotes
    dropped = quotes.copy()
    if doubled and len(quotes):
        # A quote that closes and is followed by one that opens again: the pair is one quote.
        dropped[:-1] &= ~(quotes[:-1] & ~inside[:-1] & quotes[1:])
    return _Marks(values, inside, dropped, quotes)


def _escaping_csv_marks(block: bytes, values: np.ndarray, quote: bytes, escape: bytes) -> _Marks:
    """ESCAPE other than QUOTE is rare enough for a look at each quoted piece that has one."""
    q, e = re.escape(quote), re.escape(escape)
    pieces = re.compile(rb"%s(?:[^%s%s]|%s[%s%s]?)*%s?" % (q, q, e, e, q, e, q), re.DOTALL)
    pairs = re.compile(rb"%s([%s%s])" % (e, q, e), re.DOTALL)
    escaped: list[int] = []
    for piece in pieces.finditer(block):
        if escape in piece[0]:
            escaped += [
                pair.start(1) for pair in pairs.finditer(block, piece.start() + 1, piece.end())
            ]
    quotes = values == quote[0]
    quotes[escaped] = False
    inside = np.logical_xor.accumulate(quotes)
    dropped = quotes.copy()
    dropped[np.array(escaped, int) - 1] = True
    return _Marks(values, inside, dropped, quotes)


def _equal(raw: np.ndarray, starts: np.ndarray, ends: np.ndarray, what: bytes) -> np.ndarray:
    """Which of the pieces of `raw` are exactly `what`."""
    same = (ends - starts) == len(what)
    for at, byte in enumerate(what):
        candidates = np.flatnonzero(same)
        same[candidates] = raw[starts[candidates] + at] == byte
    return same


def _nothing() -> Records:
    none = np.zeros(0, np.int64)
    return Records(pa.array([], pa.large_binary()), none, none, [])


def _bad_format(message: str, line: int) -> DataError:
    error = DataError(message, sqlstate="22P04")
    error.context = f"line {line}"
    return error
