"""The websocket: one session, requests in turn, answers as messages; SUBSCRIBE row by row.

Messages are received also while a statement runs: that is how a close is noticed in the middle of
an endless SUBSCRIBE. What comes meanwhile waits its turn, up to a few; then nothing more is read,
and TCP holds the client back. Sending waits while the client is behind, which holds back the
statement, not anybody else; a client that takes nothing for minutes is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from tidemark.control.http import values
from tidemark.control.http.answer import answer, error_json, notice_json
from tidemark.control.http.post import SEND_WITHIN
from tidemark.control.http.requests import Hello, hello_of, request_of
from tidemark.control.pgwire import SERVER_VERSION, Session
from tidemark.control.pgwire.session import idle_for_too_long
from tidemark.control.turns import leave
from tidemark.errors import TidemarkError
from tidemark.types import Column

log = structlog.get_logger("http")

HELLO_WITHIN = 20.0
WAITING = 16
"""Requests that may wait while one is answered."""

AT_ONCE = 64
"""Rows after which others get their turn: a message costs more than a row on the wire."""


class Talk:
    """An `Asker` that sends messages."""

    takes_streams = True

    def __init__(self, socket: web.WebSocketResponse, session: Session):
        self._socket = socket
        self._session = session

    async def run(self, requests: asyncio.Queue[WSMessage]) -> None:
        """Answer requests until cancelled, or idle for too long; each ends with ReadyForQuery."""
        await self._send("ParameterStatus", {"name": "server_version", "value": SERVER_VERSION})
        while True:
            await self._news()
            await self._send("ReadyForQuery", self._session.transaction_status)
            try:
                async with asyncio.timeout(self._session.idle_seconds):
                    message = await requests.get()
            except TimeoutError:
                await self.failed(idle_for_too_long(self._session.transaction_status))
                return
            try:
                request = request_of(message.data)
            except TidemarkError as error:
                await self.failed(error)
            else:
                await answer(self._session, request, self)

    async def starting(self, *, has_rows: bool, is_streaming: bool) -> None:
        payload = {"has_rows": has_rows, "is_streaming": is_streaming}
        await self._send("CommandStarting", payload)

    async def columns(self, columns: tuple[Column, ...]) -> None:
        await self._send("Rows", values.described(columns))

    async def rows(self, rows: list[list[Any]]) -> None:
        async with asyncio.timeout(SEND_WITHIN):
            for n, row in enumerate(rows, 1):
                await self._socket.send_str(_message("Row", row))
                if n % AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def complete(self, tag: str) -> None:
        await self._news()
        await self._send("CommandComplete", tag)

    async def failed(self, error: TidemarkError) -> None:
        await self._news()
        await self._send("Error", error_json(error))

    async def _news(self) -> None:
        for notice in self._session.notices():
            await self._send("Notice", notice_json(notice))
        for name, value in self._session.parameter_changes().items():
            await self._send("ParameterStatus", {"name": name, "value": value})

    async def _send(self, type_: str, payload: object) -> None:
        async with asyncio.timeout(SEND_WITHIN):
            await self._socket.send_str(_message(type_, payload))


async def introduction(socket: web.WebSocketResponse) -> Hello | None:
    """The first message; None if the client has gone."""
    async with asyncio.timeout(HELLO_WITHIN):
        message = await socket.receive()
    return hello_of(message.data) if _is_data(message) else None


async def refuse(socket: web.WebSocketResponse, error: TidemarkError) -> None:
    await socket.send_str(_message("Error", error_json(error)))
    await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"see the error")


async def converse(socket: web.WebSocketResponse, session: Session) -> None:
    """Until the client closes, or goes away, or this is cancelled."""
    requests: asyncio.Queue[WSMessage] = asyncio.Queue(WAITING)
    sides = {
        asyncio.create_task(Talk(socket, session).run(requests)),
        asyncio.create_task(_receive(socket, requests)),
    }
    try:
        await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for side in sides:
            leave(side)
        for problem in await asyncio.gather(*sides, return_exceptions=True):
            # Not being able to send is no news: the client has gone, or is too slow (TimeoutError).
            if isinstance(problem, Exception) and not isinstance(problem, OSError):
                log.error("internal error in a websocket", exc_info=problem)


async def _receive(socket: web.WebSocketResponse, requests: asyncio.Queue[WSMessage]) -> None:
    while _is_data(message := await socket.receive()):
        await requests.put(message)


def _is_data(message: WSMessage) -> bool:
    return message.type in (WSMsgType.TEXT, WSMsgType.BINARY)


def _message(type_: str, payload: object) -> str:
    return msgspec.json.encode({"type": type_, "payload": payload}).decode()
