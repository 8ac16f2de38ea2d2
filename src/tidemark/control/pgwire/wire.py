"""One client's socket: frames in, messages out, and the news that the client has gone.

A pump reads ahead into a bounded inbox for as long as the socket lives, also while a statement
runs. That is how a hang-up is noticed in the middle of an endless COPY, and how pipelined
messages wait their turn instead of being lost. When the inbox is full the pump stops reading, so
TCP holds the client back; a client that hangs up then is noticed at the next write instead.

A hang-up calls `on_hangup` at once and drops what is still queued: a client that wants its
statements done waits for their answers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable

from tidemark.control.pgwire.codec import (
    ACCEPT_ENCRYPTION,
    MAX_SMALL_MESSAGE,
    Frame,
    Framer,
    ProtocolViolation,
    StartupMessage,
    decode_startup,
    startup_length,
)

_READ_SIZE = 64 * 1024
_INBOX_BYTES = 1024 * 1024
_FRAME_OVERHEAD = 64
_WRITE_BUFFER = 256 * 1024


class HungUp(Exception):
    """The client is gone; nobody is left to answer."""


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader = reader
        self._writer = writer
        self._writer.transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        self._outbox = bytearray()
        self._inbox: deque[Frame | ProtocolViolation] = deque()
        self._inbox_bytes = 0
        self._changed = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    async def receive_startup(self) -> StartupMessage:
        """Startup packets come first, and unframed; call this only before `start_pump`."""
        try:
            length = startup_length(await self._reader.readexactly(4))
            return decode_startup(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            raise HungUp from None

    async def receive_password(self) -> bytes:
        """An answer to an authentication request; it too comes before `start_pump`."""
        try:
            tag = await self._reader.readexactly(1)
            length = int.from_bytes(await self._reader.readexactly(4))
            if tag != b"p" or not 4 <= length <= MAX_SMALL_MESSAGE:
                raise ProtocolViolation(f"expected a SASL response, got message type {tag!r}")
            return await self._reader.readexactly(length - 4)
        except (asyncio.IncompleteReadError, OSError):
            raise HungUp from None

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Agree to encrypt, and do so from here on. Nothing may have been sent ahead of that: it would be taken for
        something that came encrypted."""
        try:
            async with asyncio.timeout(0):
                await self._reader.read(1)
        except TimeoutError:
            pass
        else:
            raise ProtocolViolation("received unencrypted data after SSL request")
        self.send(ACCEPT_ENCRYPTION)
        await self.flush()
        try:
            await self._writer.start_tls(context)
        except OSError:  # what TLS itself finds wrong is one too
            raise HungUp from None
        self._writer.transport.set_write_buffer_limits(high=_WRITE_BUFFER)

    def start_pump(self, on_hangup: Callable[[], None]) -> None:
        self._pump = asyncio.create_task(self._read_ahead(on_hangup))

    async def receive(self) -> Frame:
        """The next frame, in order; raises the ProtocolViolation that stands in its place."""
        while (frame := self.take()) is None:
            self._changed.clear()
            await self._changed.wait()
        return frame

    def take(self) -> Frame | None:
        """The same, if one is there."""
        if not self._inbox:
            return None
        item = self._inbox.popleft()
        if isinstance(item, ProtocolViolation):
            raise item
        self._inbox_bytes -= _cost(item)
        self._changed.set()
        return item

    def send(self, *messages: bytes) -> None:
        """Queue whole messages for the next `flush`."""
        for message in messages:
            self._outbox += message

    async def flush(self) -> None:
        """Hand everything queued to the socket, and wait while the client is behind."""
        if self._outbox:
            self._writer.write(bytes(self._outbox))
            self._outbox.clear()
        try:
            await self._writer.drain()
        except OSError:
            raise HungUp from None

    async def close(self, *, timeout: float) -> None:
        """Send what is queued and close; a client that does not take it in time is dropped."""
        if self._pump is not None:
            self._pump.cancel()
        if not self._writer.is_closing():
            self._writer.write(bytes(self._outbox))
        self._outbox.clear()
        self._writer.close()
        try:
            async with asyncio.timeout(timeout):
                await self._writer.wait_closed()
        except OSError:  # a timeout is one too
            self.abort()

    def abort(self) -> None:
        """Drop the connection at once, with whatever the client has not taken yet."""
        self._writer.transport.abort()

    async def _read_ahead(self, on_hangup: Callable[[], None]) -> None:
        framer = Framer()
        try:
            while data := await self._reader.read(_READ_SIZE):
                try:
                    for frame in framer.feed(data):
                        self._inbox.append(frame)
                        self._inbox_bytes += _cost(frame)
                        self._changed.set()
                        await self._until_room()
                except ProtocolViolation as violation:
                    self._inbox.append(violation)
                    self._changed.set()
                    await self._discard_rest()
        except OSError:
            pass  # a reset is a hang-up too
        on_hangup()

    async def _until_room(self) -> None:
        while self._inbox_bytes > _INBOX_BYTES:
            self._changed.clear()
            await self._changed.wait()

    async def _discard_rest(self) -> None:
        """Nothing after a violation counts, but a hang-up must still be noticed."""
        while await self._reader.read(_READ_SIZE):
            pass


def _cost(frame: Frame) -> int:
    return len(frame.payload) + _FRAME_OVERHEAD
