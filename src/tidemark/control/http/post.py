"""`POST /api/sql`: all results in one body.

A short one is sent whole; a long one piece by piece, as fast as the client takes it, so that the
text of a large result is never in memory as a whole. That is why what is known last (`tag`) comes
last, and why the status is 200 also if a statement fails: its result has `error`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from tidemark.control.http import values
from tidemark.control.http.answer import answer, error_json, notice_json
from tidemark.control.http.requests import Request
from tidemark.control.pgwire import Session
from tidemark.errors import TidemarkError
from tidemark.types import Column

PIECE = 64 * 1024
SEND_WITHIN = 300.0
"""Seconds in which a client must take a piece; one that does not is gone."""


async def respond(http: web.Request, session: Session, request: Request) -> web.StreamResponse:
    session.parameter_changes()  # What it was opened with is no news.
    body = Body(http, session)
    await answer(session, request, body)
    return await body.end()


class Body:
    """An `Asker` that writes JSON."""

    takes_streams = False

    def __init__(self, http: web.Request, session: Session):
        self._http = http
        self._session = session
        self._out = bytearray(b'{"results":[')
        self._stream: web.StreamResponse | None = None
        self._is_first = True
        self._in_rows = False
        self._has_rows = False

    async def starting(self, *, has_rows: bool, is_streaming: bool) -> None:
        self._out += b"{" if self._is_first else b",{"
        self._is_first = False

    async def columns(self, columns: tuple[Column, ...]) -> None:
        self._out += b'"desc":' + _json(values.described(columns)) + b',"rows":['
        self._in_rows, self._has_rows = True, False

    async def rows(self, rows: list[list[Any]]) -> None:
        if rows:
            self._out += b"," if self._has_rows else b""
            self._out += _json(rows)[1:-1]
            self._has_rows = True
        if len(self._out) >= PIECE:
            await self._flush()

    async def complete(self, tag: str) -> None:
        if self._in_rows:
            self._finish({"tag": tag})
        else:
            changes = self._session.parameter_changes().items()
            parameters = [{"name": name, "value": value} for name, value in changes]
            self._finish({"ok": tag, "parameters": parameters})

    async def failed(self, error: TidemarkError) -> None:
        if not self._in_rows:
            await self.starting(has_rows=False, is_streaming=False)
        self._finish({"error": error_json(error)})

    async def end(self) -> web.StreamResponse:
        self._out += b"]}"
        if self._stream is None:
            return web.Response(body=bytes(self._out), content_type="application/json")
        await self._flush()
        await self._stream.write_eof()
        return self._stream

    def _finish(self, last: dict[str, Any]) -> None:
        """The end of a result, with what has come up."""
        last["notices"] = [notice_json(notice) for notice in self._session.notices()]
        self._out += b"]," if self._in_rows else b""
        self._out += _json(last)[1:]
        self._in_rows = False

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(SEND_WITHIN):
                if self._stream is None:
                    self._stream = web.StreamResponse(headers={"Content-Type": "application/json"})
                    await self._stream.prepare(self._http)
                await self._stream.write(bytes(self._out))
        except TimeoutError:
            raise ConnectionResetError("the client takes nothing") from None
        self._out.clear()


_json = msgspec.json.encode
