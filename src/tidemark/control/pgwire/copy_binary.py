"""PostgreSQL's binary COPY format, read: rows of values as in Bind, turned into what each prints.

"PGCOPY\\n\\377\\r\\n\\0"  flags  size of an extension, extension      once
number of fields, then for each: its size or -1, its bytes          per row
-1                                                                  at the end
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidemark.control.pgwire.copy_fields import Records
from tidemark.control.pgwire.copy_out import BINARY_HEADER
from tidemark.control.pgwire.params import decode_binary
from tidemark.errors import DataError, TidemarkError

_SIGNATURE = BINARY_HEADER[:11]
_INT32 = struct.Struct("!i")
_INT16 = struct.Struct("!h")


class BinaryReader:
    """As FieldReader, for rows of values of types `oids`; lines are rows."""

    def __init__(self, oids: Sequence[int]):
        self._oids = oids
        self._rest = b""
        self._started = False
        self._row = 0
        self.ended = False

    @property
    def waiting(self) -> int:
        return len(self._rest)

    def read(self, data: bytes) -> Records:
        self._rest += data
        at = 0 if self._started else self._header()
        fields: list[bytes | None] = []
        while not self.ended and (row := self._next(at)) is not None:
            values, at = row
            fields += values
            self._row += 1
        self._rest = b"" if self.ended else self._rest[at:]
        rows = len(fields) // len(self._oids)
        return Records(
            pa.array(fields, pa.large_binary()),
            np.full(rows, len(self._oids)),
            np.arange(self._row - rows, self._row) + 1,
            [b""] * rows,
        )

    def finish(self) -> Records:
        if not self.ended:
            raise self._bad("unexpected EOF in COPY data", 0)
        return self.read(b"")

    def _header(self) -> int:
        """Where the rows begin, or 0 while that has not come."""
        if not self._rest.startswith(_SIGNATURE[: len(self._rest)]):
            raise self._bad("COPY file signature not recognized", 0)
        if len(self._rest) < len(BINARY_HEADER):
            return 0
        flags, extension = struct.unpack_from("!II", self._rest, len(_SIGNATURE))
        if flags:
            raise self._bad(f"unrecognized flags in COPY file header: {flags:#x}", 0)
        at = len(BINARY_HEADER) + extension
        self._started = len(self._rest) >= at
        return at if self._started else 0

    def _next(self, at: int) -> tuple[list[bytes | None], int] | None:
        """The values of the row at `at` and where it ends; None if it is not all there."""
        data, size = self._rest, len(self._rest)
        if not self._started or size < at + 2:
            return None
        (count,) = _INT16.unpack_from(data, at)
        if count == -1:
            self.ended = True
            return None
        if count != len(self._oids):
            raise self._bad(f"row field count is {count}, expected {len(self._oids)}", 1)
        at += 2
        values: list[bytes | None] = []
        for oid in self._oids:
            if size < at + 4:
                return None
            (length,) = _INT32.unpack_from(data, at)
            at += 4
            if length < -1:
                raise self._bad("invalid field size", 1)
            if length == -1:
                values.append(None)
                continue
            if size < at + length:
                return None
            try:
                values.append(decode_binary(data[at : at + length], oid).encode())
            except TidemarkError as error:
                error.context = f"line {self._row + 1}"
                raise
            at += length
        return values, at

    def _bad(self, message: str, ahead: int) -> DataError:
        error = DataError(message, sqlstate="22P04")
        error.context = f"line {self._row + ahead}"
        return error
