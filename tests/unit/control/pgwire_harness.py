"""A server over a scripted in-memory session, and a client that speaks raw protocol.

The script's statements (see `FakeSession.execute`) each stand for one behaviour of a SQL layer:
`range 5` gives rows, `half` fails after some, `wait` never ends, `copy wait` streams and then
never ends, `linger` takes its time to end when it is cancelled, `stubborn` then ends well,
`stalled` has begun and never ends, `load` takes lines, `impatient i` (or t, e) lets the client not be idle in that state, `crash` raises what
no session should.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self

import msgspec
import pyarrow as pa

from tidemark.control.pgwire import (
    Copy,
    CopyIn,
    CopyOptions,
    Done,
    Limits,
    Notice,
    Param,
    Result,
    Rows,
    Server,
    Statement,
    TransactionStatus,
)
from tidemark.control.pgwire.kept import Statements
from tidemark.control.turns import outcome
from tidemark.control.variables import check_known
from tidemark.errors import DataError, SqlError
from tidemark.types import BIGINT, INTEGER, TEXT, Column, SqlType, arrow_schema

PATIENCE = 60
"""Seconds until a test that would hang fails instead; nothing is measured against it."""

NUMBER = (Column("n", BIGINT),)


class FakeStatement(msgspec.Struct, frozen=True):
    sql: str
    param_oids: tuple[int, ...] = ()
    columns: tuple[Column, ...] | None = None


class Script(msgspec.Struct, eq=False):
    """What the tests and the sessions share; events are how a test knows where a session is."""

    tables: dict[str, tuple[tuple[Column, ...], pa.RecordBatch]] = {}
    started: threading.Event = msgspec.field(default_factory=threading.Event)
    stopped: threading.Event = msgspec.field(default_factory=threading.Event)
    let_go: threading.Event = msgspec.field(default_factory=threading.Event)
    lingered: threading.Event = msgspec.field(default_factory=threading.Event)
    closed: queue.Queue[FakeSession] = msgspec.field(default_factory=queue.Queue)
    opened: list[dict[str, Any]] = []
    implicit: list[str] = []
    refuses_commit: bool = False
    """Of the next implicit transaction."""

    def open_session(
        self, *, user: str, database: str, options: dict[str, str], demanded: tuple[str, ...] = ()
    ) -> FakeSession:
        check_known(demanded)
        if database == "missing":
            raise SqlError('database "missing" does not exist', sqlstate="3D000")
        if database == "crash":
            raise ValueError("no such luck")
        self.opened.append({"user": user, "database": database, "options": options})
        return FakeSession(self)


class FakeSession:
    def __init__(self, script: Script):
        self.script = script
        self.status: TransactionStatus = "I"
        self.implicit = False
        self.failures = 0
        self.patience: dict[str, float] = {}
        self.statements: dict[str, Statement | None] = Statements(most=20, most_text=1_000)
        self._notices: list[Notice] = []
        self._changes: dict[str, str] = {}

    @property
    def transaction_status(self) -> TransactionStatus:
        return "T" if self.implicit and self.status == "I" else self.status

    @property
    def idle_seconds(self) -> float | None:
        return self.patience.get(self.status)

    async def split(self, sql: str) -> list[str]:
        if "unsplittable" in sql:
            raise SqlError("cannot be split")
        return [text for part in sql.split(";") if (text := part.strip())]

    async def prepare(self, sql: str, param_oids: tuple[int, ...]) -> Statement:
        verb, _, rest = sql.lower().partition(" ")
        if self.status == "E" and verb not in ("rollback", "commit"):
            raise SqlError("current transaction is aborted", sqlstate="25P02")
        if verb == "unknown":
            raise SqlError('relation "unknown" does not exist', hint="create it", sqlstate="42P01")
        columns: tuple[Column, ...] | None = None
        if verb == "select":
            columns = (Column("?column?", INTEGER),)
        elif verb == "echo":
            count = rest.count("$")
            given = param_oids + (0,) * (count - len(param_oids))
            oids = tuple(oid or 25 for oid in given)
            return FakeStatement(sql, oids, tuple(Column(f"p{i}", TEXT) for i in range(count)))
        elif verb in ("range", "half", "rowswait"):
            columns = NUMBER
        elif verb == "changed":
            columns = (Column("n", TEXT),)
        elif verb == "table":
            columns = self.script.tables[rest][0]
        return FakeStatement(sql, (), columns)

    async def execute(self, statement: Statement, params: tuple[Param, ...]) -> Result:
        verb, _, rest = statement.sql.lower().partition(" ")
        columns = statement.columns or ()
        match verb:
            case "select":
                return Rows(columns, _once(_batch(columns, [[int(rest)]])))
            case "echo":
                return Rows(columns, _once(_batch(columns, [[p.value_text] for p in params])))
            case "range":
                return Rows(columns, _numbers(int(rest)))
            case "changed":
                return Rows(NUMBER, _numbers(1))
            case "table":
                return Rows(columns, _once(self.script.tables[rest][1]))
            case "half":
                return Rows(columns, self._half())
            case "rowswait":
                return Rows(columns, self._number_then_wait())
            case "copy" if rest == "wait":
                return Copy(NUMBER, self._number_then_wait())
            case "copy" if rest == "half":
                return Copy(NUMBER, self._half())
            case "copy" if rest.startswith("table "):
                table_columns, batch = self.script.tables[rest.removeprefix("table ")]
                return Copy(table_columns, _once(batch))
            case "copy" if rest.startswith("binary "):
                count = int(rest.removeprefix("binary "))
                return Copy(NUMBER, _numbers(count), CopyOptions(format="binary"))
            case "copy":
                return Copy(NUMBER, _numbers(int(rest)))
            case "wait":
                await self._wait()
            case "linger":
                try:
                    await self._wait()
                finally:
                    await asyncio.to_thread(self.script.let_go.wait, PATIENCE)
                    self.script.lingered.set()
            case "stubborn":
                with contextlib.suppress(asyncio.CancelledError):
                    await self._wait()
                await asyncio.to_thread(self.script.let_go.wait, PATIENCE)
            case "stalled":
                self.script.started.set()
                await outcome(asyncio.get_running_loop().create_future())
            case "crash":
                raise ValueError("unforeseen")
            case "begin":
                self.status = "T"
            case "commit" | "rollback":
                self.status = "I"
            case "notice":
                self._notices.append(Notice(message=rest, hint="a hint"))
            case "set":
                name, _, value = rest.partition("=")
                self._changes[name] = value
            case "insert":
                return Done("INSERT 0 3")
            case "deallocate" if rest == "all":
                self.statements.clear()
            case "deallocate":
                if rest not in self.statements:
                    raise SqlError("no such statement", sqlstate="26000")
                del self.statements[rest]
            case "impatient":
                self.patience[rest.upper()] = 0.0
            case "load":
                return CopyIn(2, False, self._load)
        return Done(verb.upper())

    async def _load(self, pieces: AsyncIterator[bytes]) -> Done:
        """Counts lines; one that says `bad` is an error."""
        data = b""
        async for piece in pieces:
            data += piece
            if b"bad" in data:
                raise DataError("a bad line", sqlstate="22P04")
        return Done(f"COPY {data.count(bytes((10,)))}")

    def begin_implicit(self) -> None:
        if self.status == "I" and not self.implicit:
            self.implicit = True
            self.script.implicit.append("begin")

    async def end_implicit(self) -> None:
        if self.implicit:
            self.implicit = False
            self.script.implicit.append("end")
            if self.script.refuses_commit:
                self.script.refuses_commit = False
                raise SqlError("could not serialize access", sqlstate="40001")

    def cursor_columns(self, name: str) -> tuple[Column, ...] | None:
        return NUMBER if name == "declared" else None

    def fail(self) -> None:
        self.failures += 1
        if self.status == "T":
            self.status = "E"

    def notices(self) -> list[Notice]:
        drained, self._notices = self._notices, []
        return drained

    def parameter_changes(self) -> dict[str, str]:
        drained, self._changes = self._changes, {}
        return drained

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.script.closed.put(self)

    async def _wait(self) -> None:
        self.script.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.script.stopped.set()

    async def _half(self) -> AsyncIterator[pa.RecordBatch]:
        yield _batch(NUMBER, [[1, 2]])
        raise DataError("division by zero", sqlstate="22012")

    async def _number_then_wait(self) -> AsyncIterator[pa.RecordBatch]:
        yield _batch(NUMBER, [[1]])
        await self._wait()


def _batch(columns: tuple[Column, ...], values: list[list[Any]]) -> pa.RecordBatch:
    schema = arrow_schema(columns)
    arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


async def _once(batch: pa.RecordBatch) -> AsyncIterator[pa.RecordBatch]:
    yield batch


async def _numbers(count: int) -> AsyncIterator[pa.RecordBatch]:
    for start in range(0, count, 2500):
        yield _batch(NUMBER, [list(range(start, min(start + 2500, count)))])


def table(**columns: tuple[SqlType, list[Any]]) -> tuple[tuple[Column, ...], pa.RecordBatch]:
    described = tuple(Column(name, kind) for name, (kind, _) in columns.items())
    return described, _batch(described, [values for _, values in columns.values()])


class Running(msgspec.Struct, eq=False):
    port: int
    script: Script
    server: Server
    loop: asyncio.AbstractEventLoop

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=alice dbname=db"

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.close(), self.loop).result(PATIENCE)

    def client(self, **parameters: str) -> RawClient:
        client = RawClient(self.port)
        client.startup(**({"user": "alice", "database": "db"} | parameters))
        client.until_ready()
        return client


@contextlib.contextmanager
def running_server(limits: Limits | None = None, **options: Any) -> Iterator[Running]:
    """A server on a thread of its own, on a free port."""
    script = Script()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pgwire-test-server")
    thread.start()
    server = Server(script.open_session, port=0, limits=limits, **options)
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(PATIENCE)
        running = Running(server.port, script, server, loop)
        yield running
        running.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


Message = tuple[str, bytes]


class RawClient:
    """Sends and receives bare messages, so that a test can say exactly what goes over."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.key: tuple[int, int] | None = None
        self.parameters: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def startup(self, *, version: int = 3 << 16, **parameters: str) -> None:
        self.send(startup(version, parameters))

    def receive(self) -> Message:
        header = self._exactly(5)
        (length,) = struct.unpack("!i", header[1:])
        message = chr(header[0]), self._exactly(length - 4)
        if message[0] == "K":
            self.key = struct.unpack("!II", message[1])
        if message[0] == "S":
            name, value, _ = message[1].decode().split("\0")
            self.parameters[name] = value
        return message

    def until_ready(self) -> list[Message]:
        """Everything up to and with the next ReadyForQuery."""
        messages = [self.receive()]
        while messages[-1][0] != "Z":
            messages.append(self.receive())
        return messages

    def until(self, tag: str) -> Message:
        while (message := self.receive())[0] != tag:
            pass
        return message

    def rest(self) -> bytes:
        """Everything up to the server's close."""
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(65536):
                data += piece
        return data

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError(f"the server closed after {data!r}")
            data += piece
        return data


def message(tag: str, payload: bytes = b"") -> bytes:
    return tag.encode() + struct.pack("!i", len(payload) + 4) + payload


def cstr(text: str) -> bytes:
    return text.encode() + b"\0"


def startup(version: int, parameters: dict[str, str]) -> bytes:
    body = struct.pack("!I", version)
    body += b"".join(cstr(name) + cstr(value) for name, value in parameters.items()) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def query(sql: str) -> bytes:
    return message("Q", cstr(sql))


def parse(sql: str, *, name: str = "", oids: tuple[int, ...] = ()) -> bytes:
    return message("P", cstr(name) + cstr(sql) + struct.pack(f"!H{len(oids)}I", len(oids), *oids))


def bind(
    *values: bytes | None,
    portal: str = "",
    statement: str = "",
    formats: tuple[int, ...] = (),
    results: tuple[int, ...] = (),
) -> bytes:
    encoded = b"".join(
        struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
        for value in values
    )
    return message(
        "B",
        cstr(portal)
        + cstr(statement)
        + struct.pack(f"!H{len(formats)}h", len(formats), *formats)
        + struct.pack("!H", len(values))
        + encoded
        + struct.pack(f"!H{len(results)}h", len(results), *results),
    )


def describe(kind: str, name: str = "") -> bytes:
    return message("D", kind.encode() + cstr(name))


def execute(portal: str = "", max_rows: int = 0) -> bytes:
    return message("E", cstr(portal) + struct.pack("!i", max_rows))


def close(kind: str, name: str = "") -> bytes:
    return message("C", kind.encode() + cstr(name))


def copy_data(data: bytes) -> bytes:
    return message("d", data)


COPY_DONE = message("c")
SYNC = message("S")
FLUSH = message("H")
TERMINATE = message("X")


def tags(messages: list[Message]) -> str:
    return "".join(tag for tag, _ in messages)


def fields(payload: bytes) -> dict[str, str]:
    """An ErrorResponse or NoticeResponse by its field codes."""
    return {part[:1].decode(): part[1:].decode() for part in payload.split(b"\0") if part}


def errors(messages: list[Message]) -> list[str]:
    return [fields(payload)["C"] for tag, payload in messages if tag == "E"]
