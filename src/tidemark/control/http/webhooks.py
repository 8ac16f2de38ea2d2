"""`POST /api/webhook/<database>/<schema>/<source>`: requests that become rows of a source.

A request is read in pieces and counted as it comes: one that is too large is refused at the first
byte too many, and all that are under way take no more memory together than they may.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from tidemark.control.webhook.body import headers_of
from tidemark.control.webhook.receive import GONE, PATH, Webhooks
from tidemark.errors import SqlError, TidemarkError, TooLarge, Unavailable

ROUTE = PATH + "/{database}/{schema}/{name}"

BUSY = "53400"

_STATUS = {GONE: 404, "42501": 403, TooLarge.sqlstate: 413, BUSY: 429, "08P01": 408}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    requests: int = 250
    """Under way at once."""
    body_bytes: int = 5 * 1024 * 1024
    """Of one request."""
    held_bytes: int = 128 * 1024 * 1024
    """Of all requests under way."""
    read_seconds: float = 75.0
    """For a request to come in whole."""


def is_webhook(http: web.Request) -> bool:
    return http.path.startswith(f"{PATH}/")


def status_of(error: TidemarkError) -> int:
    """What a sender is told: 4xx is theirs to mend, 429 and 503 are to be sent again."""
    if isinstance(error, SqlError) or error.sqlstate in _STATUS:
        return _STATUS.get(error.sqlstate, 400)
    return 503 if isinstance(error, Unavailable) else 500


class Posts:
    """The requests under way."""

    def __init__(self, webhooks: Callable[[], Webhooks], limits: Limits):
        self._webhooks = webhooks
        self._limits = limits
        self._open = 0
        self._held = 0

    async def respond(self, http: web.Request) -> web.Response:
        """200, when what was sent is durable; else raises, and `status_of` says what to answer."""
        webhooks = self._webhooks()
        item = webhooks.named(*(http.match_info[part] for part in ("database", "schema", "name")))
        try:
            async with self._body(http) as body:
                await webhooks.accept(item, headers_of(http.raw_headers), body)
        except TidemarkError as error:
            webhooks.of(item).refused[status_of(error)] += 1
            raise
        return web.Response()

    @asynccontextmanager
    async def _body(self, http: web.Request) -> AsyncIterator[bytes]:
        if self._open >= self._limits.requests:
            raise _busy(f"more than {self._limits.requests} requests are under way")
        self._open += 1
        taken = 0
        pieces: list[bytes] = []
        try:
            self._check_size(http.content_length or 0)
            async with asyncio.timeout(self._limits.read_seconds):
                async for piece in http.content.iter_any():
                    taken += len(piece)
                    self._held += len(piece)
                    self._check_size(taken)
                    if self._held > self._limits.held_bytes:
                        raise _busy("the requests under way are too large together")
                    pieces.append(piece)
            yield b"".join(pieces)
        except TimeoutError:
            raise SqlError("the request did not come in time", sqlstate="08P01") from None
        except web.RequestPayloadError as error:
            raise SqlError(f"the body cannot be read: {error}", sqlstate="22P02") from None
        finally:
            self._open -= 1
            self._held -= taken

    def _check_size(self, size: int) -> None:
        if size > self._limits.body_bytes:
            raise TooLarge(
                f"the body has more than {self._limits.body_bytes} bytes",
                hint="send less at a time",
            )


def _busy(message: str) -> Unavailable:
    return Unavailable(message, hint="send it again in a moment", sqlstate=BUSY)
