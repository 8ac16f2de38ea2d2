"""Lines from control to a replica, for look-ups: plain sockets, one question at a time on each.

A look-up of a few keys takes less than a Flight call around it, most of which is threads that wake
each other (decision 24). Here one thread is woken for a question, and control for its answer.

    control                                        replica
    Lines.ask ────── length, LookUp ─────────────▶ Listener: a thread for each line
              ◀───── length, Answered ────────────

Lengths are four bytes, the rest is MessagePack. The first that is said on a line is the replica's
token, which it welcomes with one byte: the system takes a connection whether or not anybody serves
it. A line on which something went wrong is closed: what still comes there is nobody's answer.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import msgspec
import structlog

from tidemark.compute.protocol import Failure, LookUp
from tidemark.errors import TidemarkError

log = structlog.get_logger("lines")

MOST_LINES = 8
"""Of one replica; who finds none free waits for one."""

_LENGTH = 4
_MOST_BYTES = 1 << 30
_TOKEN_BYTES = 64
_TOKEN_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
_WELCOME = b"\n"


class Answered(msgspec.Struct, frozen=True):
    """The rows as Arrow IPC, None if it takes a peek to know; or why there are none."""

    found: bytes | None = None
    failure: Failure | None = None


_ASKED = msgspec.msgpack.Decoder(LookUp)
_ANSWERED = msgspec.msgpack.Decoder(Answered)


class Listener:
    """The replica's end. `look_up` is called by several threads, and raises TidemarkErrors only."""

    def __init__(self, look_up: Callable[[LookUp], bytes | None], token: str):
        self._look_up = look_up
        self._token = token.encode()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="lines", daemon=True).start()

    def close(self) -> None:
        """Nobody new comes in; the threads of lines end with the process."""
        self._socket.close()

    def _accept(self) -> None:
        while self._socket.fileno() >= 0:
            try:
                self._begin(self._socket.accept()[0])
            except (OSError, RuntimeError) as error:  # Closed; or no descriptor, no thread is left.
                log.warning("no line could be opened", error=str(error))
                time.sleep(_PAUSE_SECONDS)

    def _begin(self, line: socket.socket) -> None:
        serve = threading.Thread(target=self._serve, args=(line,), name="line", daemon=True)
        try:
            serve.start()
        except RuntimeError:
            line.close()
            raise

    def _serve(self, line: socket.socket) -> None:
        try:
            with line, line.makefile("rb") as said:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                line.settimeout(_TOKEN_SECONDS)
                if not secrets.compare_digest(_heard(said, _TOKEN_BYTES), self._token):
                    log.warning("a line with a wrong token")
                    return
                line.settimeout(None)
                line.sendall(_WELCOME)
                while asked := _heard(said):
                    line.sendall(_said(self._answered(_ASKED.decode(asked))))
        except (OSError, msgspec.DecodeError) as error:
            log.debug("a line has ended", error=str(error))

    def _answered(self, asked: LookUp) -> Answered:
        try:
            return Answered(self._look_up(asked))
        except TidemarkError as error:
            return Answered(failure=Failure.of(error))


class Lines:
    """Control's end. What happens to a line is an OSError."""

    def __init__(self, port: int, token: str):
        self._port = port
        self._token = token.encode()
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._turns = asyncio.Semaphore(MOST_LINES)

    async def ask(self, asked: LookUp) -> bytes | None:
        async with self._turns:
            reader, writer = self._free.pop() if self._free else await self._open()
            with _closed_on_failure(writer):
                writer.write(_said(asked))
                length = int.from_bytes(await reader.readexactly(_LENGTH))
                answer = _ANSWERED.decode(await reader.readexactly(length))
            self._free.append((reader, writer))
        if answer.failure is not None:
            raise answer.failure.error
        return answer.found

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()
        self._free.clear()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_TOKEN_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            with _closed_on_failure(writer):
                writer.write(len(self._token).to_bytes(_LENGTH) + self._token)
                await reader.readexactly(len(_WELCOME))
        return reader, writer


@contextmanager
def _closed_on_failure(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        writer.close()
        if isinstance(error, EOFError):
            raise ConnectionResetError("the replica has hung up") from error
        raise


def _said(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_LENGTH) + body


def _heard(said: BinaryIO, most: int = _MOST_BYTES) -> bytes:
    """Nothing when the other end has hung up."""
    length = int.from_bytes(said.read(_LENGTH))
    if length > most:
        raise OSError(f"a message of {length} bytes where {most} are allowed")
    return said.read(length)
