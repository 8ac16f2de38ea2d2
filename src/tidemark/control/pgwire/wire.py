"""One client's socket: frames in, messages out, and the news that the client has gone.

What the client sends is read for as long as the socket lives, also while a statement runs, and cut
into frames as it comes (a task that did that would cost as much as a small statement). That is how
a hang-up is noticed in the middle of an endless COPY, and how pipelined messages wait their turn
instead of being lost. When the inbox is full nothing more is read, so TCP holds the client back; a
client that hangs up then is noticed at the next write instead.

A hang-up calls `on_hangup` at once and drops what is still queued: a client that wants its
statements done waits for their answers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

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

_INBOX_BYTES = 1024 * 1024
_EARLY_BYTES = 128 * 1024
_FRAME_OVERHEAD = 64
_WRITE_BUFFER = 256 * 1024
_SMALL = 4 * 1024


class HungUp(Exception):
    """The client is gone; nobody is left to answer."""


class Wire(asyncio.Protocol):
    """`accepted` is told when there is a client."""

    transport: asyncio.Transport

    def __init__(self, accepted: Callable[[Wire], None]):
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._early = bytearray()
        """What has come before `start_listening`, and is not in frames."""
        self._framer: Framer | None = None
        self._inbox: deque[Frame | ProtocolViolation] = deque()
        self._inbox_bytes = 0
        self._outbox = bytearray()
        self._will_hand_over = False
        self._on_hangup: Callable[[], None] | None = None
        self._has_hung_up = False
        self._holding_back = False
        self._arrival: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        """The one who waits for the client to take something, or to take note that it has gone."""
        self._is_behind = False
        self._closed = self._loop.create_future()

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._adopt(cast(asyncio.Transport, transport))
        self._accepted(self)

    def data_received(self, data: bytes) -> None:
        if self._framer is None:
            self._early += data
            if len(self._early) > _EARLY_BYTES:
                self._hold_back()
        elif not self._has_ended:
            try:
                for frame in self._framer.feed(data):
                    self._inbox.append(frame)
                    self._inbox_bytes += _cost(frame)
            except ProtocolViolation as violation:
                self._inbox.append(violation)  # Nothing after it counts.
            if self._inbox_bytes > _INBOX_BYTES:
                self._hold_back()
        _wake(self._arrival)

    def eof_received(self) -> bool:
        """It stays open for what is still to be said, where that is possible."""
        self._hang_up()
        return self.transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        self._is_behind = True

    def resume_writing(self) -> None:
        self._is_behind = False
        _wake(self._room)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
        self._hang_up()
        _wake(self._room)

    # Before frames.

    async def receive_startup(self) -> StartupMessage:
        """Startup packets come first, and unframed; call this only before `start_listening`."""
        length = startup_length(await self._exactly(4))
        return decode_startup(await self._exactly(length))

    async def receive_password(self) -> bytes:
        """An answer to an authentication request; it too comes before `start_listening`."""
        tag = await self._exactly(1)
        length = int.from_bytes(await self._exactly(4))
        if tag != b"p" or not 4 <= length <= MAX_SMALL_MESSAGE:
            raise ProtocolViolation(f"expected a SASL response, got message type {tag!r}")
        return await self._exactly(length - 4)

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Agree to encrypt, and do so from here on. Nothing may have been sent ahead of that: it
        would be taken for something that came encrypted."""
        self.transport.pause_reading()
        if self._early:
            raise ProtocolViolation("received unencrypted data after SSL request")
        self.send(ACCEPT_ENCRYPTION)
        await self.flush()
        try:
            encrypted = await self._loop.start_tls(self.transport, self, context, server_side=True)
        except OSError:  # what TLS itself finds wrong is one too
            raise HungUp from None
        if encrypted is None:
            raise HungUp
        self._adopt(encrypted)

    async def _exactly(self, size: int) -> bytes:
        while len(self._early) < size:
            if self._has_hung_up:
                raise HungUp
            await self._wait_for_arrival()
        piece = bytes(self._early[:size])
        del self._early[:size]
        self._let_come()
        return piece

    # Frames.

    def start_listening(self, on_hangup: Callable[[], None]) -> None:
        self._framer, self._on_hangup = Framer(), on_hangup
        early, self._early = bytes(self._early), bytearray()
        self._let_come()
        self.data_received(early)
        if self._has_hung_up:
            on_hangup()

    async def receive(self) -> Frame:
        """The next frame, in order; raises the ProtocolViolation that stands in its place."""
        while (frame := self.take()) is None:
            await self._wait_for_arrival()
        return frame

    def take(self) -> Frame | None:
        """The same, if one is there."""
        if not self._inbox:
            return None
        item = self._inbox[0]
        if isinstance(item, ProtocolViolation):
            raise item
        self._inbox.popleft()
        self._inbox_bytes -= _cost(item)
        if self._holding_back and self._inbox_bytes <= _INBOX_BYTES:
            self._let_come()
        return item

    # Messages.

    def send(self, *messages: bytes) -> None:
        """Queue whole messages for the next `flush`."""
        for message in messages:
            self._outbox += message

    @property
    def is_full(self) -> bool:
        """Whether so much is queued that it should be flushed, though nobody has asked for that."""
        return len(self._outbox) > _WRITE_BUFFER

    async def flush(self) -> None:
        """Hand everything queued to the socket, and wait while the client is behind.

        What is small is handed over a moment later: when many are answered at once all answers are
        made first, and then sent in a row. The other way around each would wake a processor for
        one client.
        """
        if self.transport.is_closing():
            raise HungUp
        if len(self._outbox) > _SMALL:
            self._hand_over()
        elif self._outbox and not self._will_hand_over:
            self._will_hand_over = True
            self._loop.call_soon(self._hand_over)
        while self._is_behind:
            self._room = self._loop.create_future()
            await self._room
            if self._closed.done():
                raise HungUp

    async def close(self, *, timeout: float) -> None:
        """Send what is queued and close; a client that does not take it in time is dropped."""
        self._hand_over()
        self._on_hangup = None
        self.transport.close()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Drop the connection at once, with whatever the client has not taken yet."""
        self.transport.abort()

    # How it is done.

    def _hand_over(self) -> None:
        self._will_hand_over = False
        if self._outbox and not self.transport.is_closing():
            self.transport.write(bytes(self._outbox))
            self._outbox.clear()

    def _adopt(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER)

    @property
    def _has_ended(self) -> bool:
        return bool(self._inbox) and isinstance(self._inbox[-1], ProtocolViolation)

    async def _wait_for_arrival(self) -> None:
        self._arrival = self._loop.create_future()
        await self._arrival

    def _hang_up(self) -> None:
        if self._has_hung_up:
            return
        self._has_hung_up = True
        _wake(self._arrival)
        if self._on_hangup is not None:
            self._on_hangup()

    def _hold_back(self) -> None:
        if not self._holding_back:
            self._holding_back = True
            self.transport.pause_reading()

    def _let_come(self) -> None:
        if self._holding_back:
            self._holding_back = False
            self.transport.resume_reading()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _cost(frame: Frame) -> int:
    return len(frame.payload) + _FRAME_OVERHEAD
