"""Protocol 3.0 messages to and from bytes; no I/O here.

    after startup   | tag: 1 byte | length: 4 bytes, counts itself | payload |
    at startup                    | length: 4 bytes, counts itself | code: 4 bytes | payload |

Bytes become `Frame`s (cut at the lengths, `Framer`), and a frame becomes a frontend message
(`decode`). Cutting and decoding are apart because frames are read ahead while a statement runs,
but a bad payload must be answered in its turn. What breaks the protocol raises
`ProtocolViolation`: after it nothing the client sends can be trusted, so the connection ends.
Lengths are checked against a limit per tag before anything is stored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from tidemark.errors import DataError, TidemarkError
from tidemark.types import Column

MAX_MESSAGE = 64 * 1024 * 1024
MAX_SMALL_MESSAGE = 10_000
MAX_STARTUP = 10_000

_TAG_LIMITS = {
    "Q": MAX_MESSAGE,
    "P": MAX_MESSAGE,
    "B": MAX_MESSAGE,
    "d": MAX_MESSAGE,
    "D": MAX_SMALL_MESSAGE,
    "E": MAX_SMALL_MESSAGE,
    "C": MAX_SMALL_MESSAGE,
    "H": MAX_SMALL_MESSAGE,
    "S": MAX_SMALL_MESSAGE,
    "X": MAX_SMALL_MESSAGE,
    "c": MAX_SMALL_MESSAGE,
    "f": MAX_SMALL_MESSAGE,
    "p": MAX_SMALL_MESSAGE,
}

_PROTOCOL_MAJOR = 3
_CANCEL_REQUEST = 80877102
_SSL_REQUEST = 80877103
_GSSENC_REQUEST = 80877104

_INT16 = struct.Struct("!h")
_UINT16 = struct.Struct("!H")
_INT32 = struct.Struct("!i")
_UINT32 = struct.Struct("!I")


class ProtocolViolation(TidemarkError):
    """The client broke the protocol; the connection ends."""

    sqlstate = "08P01"


# ---- from the client -------------------------------------------------------------------------


class Startup(msgspec.Struct, frozen=True):
    minor: int
    parameters: dict[str, str]


class SslRequest(msgspec.Struct, frozen=True):
    pass


class GssEncRequest(msgspec.Struct, frozen=True):
    pass


class CancelRequest(msgspec.Struct, frozen=True):
    pid: int
    secret: int


class Query(msgspec.Struct, frozen=True):
    sql: str


class Parse(msgspec.Struct, frozen=True):
    name: str
    sql: str
    param_oids: tuple[int, ...]


class Bind(msgspec.Struct, frozen=True):
    portal: str
    statement: str
    param_formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


class Describe(msgspec.Struct, frozen=True):
    kind: Literal["S", "P"]
    name: str


class Execute(msgspec.Struct, frozen=True):
    portal: str
    max_rows: int


class Close(msgspec.Struct, frozen=True):
    kind: Literal["S", "P"]
    name: str


class Flush(msgspec.Struct, frozen=True):
    pass


class Sync(msgspec.Struct, frozen=True):
    pass


class Terminate(msgspec.Struct, frozen=True):
    pass


class CopyData(msgspec.Struct, frozen=True):
    data: bytes


class CopyDone(msgspec.Struct, frozen=True):
    pass


class CopyFail(msgspec.Struct, frozen=True):
    reason: str


class PasswordMessage(msgspec.Struct, frozen=True):
    data: bytes


StartupMessage = Startup | SslRequest | GssEncRequest | CancelRequest
FrontendMessage = (
    Query
    | Parse
    | Bind
    | Describe
    | Execute
    | Close
    | Flush
    | Sync
    | Terminate
    | CopyData
    | CopyDone
    | CopyFail
    | PasswordMessage
)


class Frame(msgspec.Struct, frozen=True):
    """One message, cut out but not yet understood."""

    tag: str
    payload: bytes


class Framer:
    """Cuts a stream of bytes into frames; keeps at most one unfinished message."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= 5:
                tag = chr(buffer[start])
                (length,) = _INT32.unpack_from(buffer, start + 1)
                limit = _TAG_LIMITS.get(tag)
                if limit is None:
                    raise ProtocolViolation(f"invalid frontend message type {buffer[start]}")
                if not 4 <= length <= limit:
                    raise ProtocolViolation(
                        f"invalid length {length} of message {tag!r}: it must be 4 to {limit}"
                    )
                end = start + 1 + length
                if len(buffer) < end:
                    break
                frame = Frame(tag, bytes(memoryview(buffer)[start + 5 : end]))
                start = end
                yield frame
        finally:
            del buffer[:start]


class _Payload:
    """Reads a payload from left to right; running past the end breaks the protocol."""

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise ProtocolViolation("insufficient data left in message")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def uint16(self) -> int:
        return _UINT16.unpack(self.take(2))[0]

    def int32(self) -> int:
        return _INT32.unpack(self.take(4))[0]

    def uint32(self) -> int:
        return _UINT32.unpack(self.take(4))[0]

    def string(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ProtocolViolation("invalid string in message: no terminator")
        raw = self.take(end - self._at)
        self._at += 1
        return utf8(raw)

    def int16s(self) -> tuple[int, ...]:
        count = self.uint16()
        return struct.unpack(f"!{count}h", self.take(2 * count))

    def uint32s(self) -> tuple[int, ...]:
        count = self.uint16()
        return struct.unpack(f"!{count}I", self.take(4 * count))

    def value(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self.take(size)

    def end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolViolation("invalid message format: bytes left over")


def utf8(raw: bytes) -> str:
    """Client text. Bad UTF-8 breaks the statement, not the protocol."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f'invalid byte sequence for encoding "UTF8": 0x{raw[error.start]:02x}',
            hint="Tidemark speaks UTF-8 only; set client_encoding to UTF8 and send UTF-8.",
            sqlstate="22021",
        ) from None


def decode_startup(packet: bytes) -> StartupMessage:
    """The packet after its length word: a startup, or one of the requests in its place."""
    payload = _Payload(packet)
    code = payload.uint32()
    if code == _SSL_REQUEST:
        payload.end()
        return SslRequest()
    if code == _GSSENC_REQUEST:
        payload.end()
        return GssEncRequest()
    if code == _CANCEL_REQUEST:
        request = CancelRequest(payload.uint32(), payload.uint32())
        payload.end()
        return request
    major, minor = divmod(code, 1 << 16)
    if major != _PROTOCOL_MAJOR:
        raise ProtocolViolation(
            f"unsupported frontend protocol {major}.{minor}: the server supports 3.0",
            sqlstate="0A000",
        )
    parameters = {}
    while name := payload.string():
        parameters[name] = payload.string()
    payload.end()
    return Startup(minor, parameters)


def startup_length(word: bytes) -> int:
    """How many bytes follow the length word of a startup packet."""
    (length,) = _INT32.unpack(word)
    if not 8 <= length <= MAX_STARTUP:
        raise ProtocolViolation("invalid length of startup packet")
    return length - 4


def decode(frame: Frame) -> FrontendMessage:
    payload = _Payload(frame.payload)
    message = _DECODERS[frame.tag](payload)
    payload.end()
    return message


def _bind(payload: _Payload) -> Bind:
    portal, statement = payload.string(), payload.string()
    param_formats = payload.int16s()
    values = tuple(payload.value() for _ in range(payload.uint16()))
    return Bind(portal, statement, param_formats, values, payload.int16s())


def _kind(payload: _Payload) -> Literal["S", "P"]:
    match payload.take(1):
        case b"S":
            return "S"
        case b"P":
            return "P"
        case other:
            raise ProtocolViolation(f"invalid subtype {other!r}: it must be 'S' or 'P'")


_DECODERS: dict[str, Callable[[_Payload], FrontendMessage]] = {
    "Q": lambda payload: Query(payload.string()),
    "P": lambda payload: Parse(payload.string(), payload.string(), payload.uint32s()),
    "B": _bind,
    "D": lambda payload: Describe(_kind(payload), payload.string()),
    "E": lambda payload: Execute(payload.string(), payload.int32()),
    "C": lambda payload: Close(_kind(payload), payload.string()),
    "H": lambda _: Flush(),
    "S": lambda _: Sync(),
    "X": lambda _: Terminate(),
    "d": lambda payload: CopyData(payload.rest()),
    "c": lambda _: CopyDone(),
    "f": lambda payload: CopyFail(payload.string()),
    "p": lambda payload: PasswordMessage(payload.rest()),
}


def decode_sasl_initial(payload: bytes) -> tuple[str, bytes]:
    """A client's first answer to AuthenticationSASL: a mechanism, and what that begins with."""
    reader = _Payload(payload)
    mechanism, size = reader.string(), reader.int32()
    response = b"" if size == -1 else reader.take(size)
    reader.end()
    return mechanism, response


# ---- to the client ---------------------------------------------------------------------------


def _message(tag: bytes, payload: bytes = b"") -> bytes:
    return tag + _INT32.pack(len(payload) + 4) + payload


def _cstring(text: str) -> bytes:
    return text.encode(errors="replace").replace(b"\0", b"") + b"\0"


AUTHENTICATION_OK = _message(b"R", _INT32.pack(0))
PARSE_COMPLETE = _message(b"1")
BIND_COMPLETE = _message(b"2")
CLOSE_COMPLETE = _message(b"3")
NO_DATA = _message(b"n")
EMPTY_QUERY = _message(b"I")
PORTAL_SUSPENDED = _message(b"s")
COPY_DONE = _message(b"c")
REFUSE_ENCRYPTION = b"N"
ACCEPT_ENCRYPTION = b"S"


def authentication_sasl(mechanisms: Sequence[str]) -> bytes:
    names = b"".join(_cstring(name) for name in mechanisms) + b"\0"
    return _message(b"R", _INT32.pack(10) + names)


def authentication_sasl_continue(data: bytes) -> bytes:
    return _message(b"R", _INT32.pack(11) + data)


def authentication_sasl_final(data: bytes) -> bytes:
    return _message(b"R", _INT32.pack(12) + data)


def parameter_status(name: str, value: str) -> bytes:
    return _message(b"S", _cstring(name) + _cstring(value))


def backend_key_data(pid: int, secret: int) -> bytes:
    return _message(b"K", _UINT32.pack(pid) + _UINT32.pack(secret))


def negotiate_protocol_version(unrecognized: Sequence[str]) -> bytes:
    """Offer 3.0 to a client that asked for a later minor version or for `_pq_.` options."""
    names = b"".join(_cstring(name) for name in unrecognized)
    newest = _INT32.pack(_PROTOCOL_MAJOR << 16)  # As PostgreSQL says it, and libpq reads it.
    return _message(b"v", newest + _INT32.pack(len(unrecognized)) + names)


def ready_for_query(status: str) -> bytes:
    return _message(b"Z", status.encode())


def parameter_description(oids: Sequence[int]) -> bytes:
    return _message(b"t", struct.pack(f"!H{len(oids)}I", len(oids), *oids))


def row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    parts = [_UINT16.pack(len(columns))]
    for column, wire_format in zip(columns, formats, strict=True):
        kind = column.type
        no_table, no_attribute = 0, 0
        parts.append(_cstring(column.name))
        parts.append(
            struct.pack(
                "!IhIhih",
                no_table,
                no_attribute,
                kind.oid,
                kind.wire_size,
                kind.modifier,
                wire_format,
            )
        )
    return _message(b"T", b"".join(parts))


def data_row(values: Sequence[bytes | None]) -> bytes:
    return _message(b"D", row_values(values))


def row_values(values: Sequence[bytes | None]) -> bytes:
    """A row as a DataRow and a binary COPY have it."""
    parts = [_UINT16.pack(len(values))]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts.append(_INT32.pack(len(value)))
            parts.append(value)
    return b"".join(parts)


def command_complete(tag: str) -> bytes:
    return _message(b"C", _cstring(tag))


def copy_out_response(column_count: int, *, binary: bool) -> bytes:
    return _message(b"H", _copy_formats(column_count, binary))


def copy_in_response(column_count: int, *, binary: bool) -> bytes:
    return _message(b"G", _copy_formats(column_count, binary))


def _copy_formats(column_count: int, binary: bool) -> bytes:
    formats = (int(binary),) * column_count
    return struct.pack(f"!bH{column_count}h", int(binary), column_count, *formats)


def copy_data(data: bytes) -> bytes:
    return _message(b"d", data)


def error_response(
    *,
    message: str,
    sqlstate: str,
    severity: str = "ERROR",
    hint: str | None = None,
    context: str | None = None,
    position: int | None = None,
) -> bytes:
    return _message(b"E", _report(message, sqlstate, severity, hint, context, position))


def notice_response(
    *, message: str, sqlstate: str = "00000", severity: str = "NOTICE", hint: str | None = None
) -> bytes:
    return _message(b"N", _report(message, sqlstate, severity, hint))


def _report(
    message: str,
    sqlstate: str,
    severity: str,
    hint: str | None,
    context: str | None = None,
    position: int | None = None,
) -> bytes:
    fields = {
        "S": severity,
        "V": severity,
        "C": sqlstate,
        "M": message,
        "H": hint,
        "P": str(position) if position is not None else None,
        "W": context,
    }
    return (
        b"".join(
            code.encode() + _cstring(value) for code, value in fields.items() if value is not None
        )
        + b"\0"
    )
