"""The listener: routes, limits, and how everyone is shown out."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Self

import msgspec
import structlog
from aiohttp import WSCloseCode, web

from tidemark import console
from tidemark.control.http import guard
from tidemark.control.http.answer import error_json
from tidemark.control.http.post import respond
from tidemark.control.http.requests import options_of, request_of
from tidemark.control.http.webhooks import ROUTE, Posts, is_webhook, status_of
from tidemark.control.http.webhooks import Limits as WebhookLimits
from tidemark.control.http.websocket import converse, introduction, refuse
from tidemark.control.pgwire import Session, SessionFactory
from tidemark.control.pgwire.passwords import Guard
from tidemark.control.turns import leave
from tidemark.control.webhook.receive import Webhooks
from tidemark.errors import SqlError, TidemarkError, Unavailable

log = structlog.get_logger("http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

USER = DATABASE = "tidemark"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ASKS_ITSELF = "X-Tidemark-Console"
"""A page that has its own sign-in says so: the browser shall not ask for a password as well."""

CHECKS = 2
"""Threads that check passwords: whoever tries many keeps only others who log in waiting."""

_QUIET = logging.getLogger("aiohttp.server")
"""What clients do wrong is theirs to hear, not the log's; our own errors are logged here."""
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    sessions: int = 200
    """Requests and websockets under way at once, of those who are who they say."""
    strangers: int = 50
    """Websockets on which that has not been said yet."""
    body_bytes: int = 64 * 1024 * 1024
    """As on the wire."""
    message_bytes: int = 4 * 1024 * 1024
    """Of a websocket; several may wait."""
    idle_seconds: float = 75.0
    """For a connection on which nothing is asked, and for a request to come in whole."""
    close_seconds: float = 5.0
    """For what is on its way when a connection, or all of them, are to end."""
    webhooks: WebhookLimits = WebhookLimits()


class HttpServer:
    """Serves until closed. `unready` says why queries cannot be answered, or None; `metrics` are
    in Prometheus' text format, or raise that there are none yet. With `passwords`, who asks says
    one; with `tls`, it is HTTPS. `webhooks` takes in what is posted to sources."""

    def __init__(
        self,
        sessions: SessionFactory,
        *,
        unready: Callable[[], str | None],
        metrics: Callable[[], Awaitable[bytes]],
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
        passwords: Guard | None = None,
        tls: ssl.SSLContext | None = None,
        webhooks: Callable[[], Webhooks] | None = None,
    ):
        self._sessions = sessions
        self._unready = unready
        self._metrics = metrics
        self._host = host
        self._port = port
        self._limits = limits or Limits()
        self._passwords = passwords
        self._tls = tls
        self._names = tuple(dict.fromkeys((host, *guard.LOOPBACK)))
        self._places = _Places(self._limits.sessions)
        self._strangers = _Places(self._limits.strangers)
        self._handling: set[asyncio.Task] = set()
        self._checks = ThreadPoolExecutor(CHECKS, thread_name_prefix="password")
        app = web.Application(
            client_max_size=self._limits.body_bytes, middlewares=[self._tracked, self._guarded]
        )
        app.on_response_prepare.append(_say_what_it_is)
        if webhooks is not None:
            self._posts = Posts(webhooks, self._limits.webhooks)
            app.add_routes([web.post(ROUTE, self._webhook)])
        app.add_routes(
            [
                web.post("/api/sql", self._sql),
                web.get("/api/experimental/sql", self._websocket),
                web.get("/api/ws", self._websocket),
                web.get("/metrics", self._scrape),
                web.get("/api/livez", self._live),
                web.get("/api/readyz", self._ready),
                *console.routes(),
            ]
        )
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            logger=_QUIET,
            keepalive_timeout=self._limits.idle_seconds,
            lingering_time=self._limits.close_seconds,
            shutdown_timeout=self._limits.close_seconds,
        )

    @property
    def port(self) -> int:
        """The port listened on; the one the system picked if 0 was asked for."""
        return self._runner.addresses[0][1]

    async def start(self) -> None:
        """May be tried again if the port is taken."""
        if self._runner.server is None:
            await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls)
        try:
            await site.start()
        except OSError:
            await site.stop()
            raise

    async def close(self) -> None:
        """Stop listening, cancel what runs, and close the websockets."""
        for site in list(self._runner.sites):
            await site.stop()
        for task in self._handling:
            task.cancel()
        if self._handling:
            _, stuck = await asyncio.wait(self._handling, timeout=self._limits.close_seconds)
            for task in stuck:
                leave(task)
        await self._runner.cleanup()
        self._checks.shutdown(wait=False, cancel_futures=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Around everything.

    @web.middleware
    async def _tracked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Who is being answered, so that a shutdown need not wait for them."""
        task = asyncio.current_task()
        assert task is not None
        self._handling.add(task)
        try:
            return await handler(request)
        finally:
            self._handling.discard(task)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Foreign pages are refused; what cannot be answered is said in JSON."""
        try:
            asks_all = self._passwords is not None and self._passwords.always
            check = guard.check_machine if is_webhook(request) else guard.check
            check(request, () if asks_all else self._names)
            return await handler(request)
        except web.HTTPException as refused:
            error = SqlError(refused.reason, sqlstate="08P01")
            return _refused(refused.status, error, refused.headers.get("Allow"))
        except TidemarkError as error:
            answer = _refused(_STATUS.get(error.sqlstate, 400), error)
            if ASKS_ITSELF in request.headers:
                answer.headers.popall("WWW-Authenticate", None)
            return answer
        except TimeoutError:
            return _refused(408, SqlError("the request did not come in time", sqlstate="08P01"))
        except OSError:
            raise  # The client has gone.
        except Exception as error:
            log.error("internal error in a request", path=request.path, exc_info=error)
            said = TidemarkError(f"internal error: {type(error).__name__}: {error}")
            return _refused(500, said)

    # What is asked.

    async def _sql(self, http: web.Request) -> web.StreamResponse:
        guard.check_json(http)
        options = options_of(http.query.get("options"))
        user = await self._authenticated(*_credentials(http))
        with self._places.one():
            async with asyncio.timeout(self._limits.idle_seconds):
                body = await http.read()
            request = request_of(body)
            async with self._session(user, options) as session:
                return await respond(http, session, request)

    async def _webhook(self, http: web.Request) -> web.StreamResponse:
        try:
            return await self._posts.respond(http)
        except TidemarkError as error:
            return _refused(status_of(error), error)

    async def _websocket(self, http: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            max_msg_size=self._limits.message_bytes,
            timeout=self._limits.close_seconds,
            compress=False,
        )
        self._places.check()  # While a status can say so.
        with ExitStack() as place:
            place.enter_context(self._strangers.one())
            await socket.prepare(http)
            try:
                await self._converse(socket, place)
            finally:
                await socket.close(code=WSCloseCode.GOING_AWAY)
        return socket

    async def _converse(self, socket: web.WebSocketResponse, place: ExitStack) -> None:
        try:
            hello = await introduction(socket)
            if hello is not None:
                user = await self._authenticated(hello.user, hello.password)
                place.close()
                place.enter_context(self._places.one())
                async with self._session(user, hello.options) as session:
                    await converse(socket, session)
        except TidemarkError as error:
            await refuse(socket, error)
        except TimeoutError:
            await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"no first message")

    async def _authenticated(self, user: str | None, password: str | None) -> str:
        """The user, if they are who they say; everybody is where there are no passwords."""
        name = user or USER
        if self._passwords is not None and self._passwords.asks(name):
            loop, check = asyncio.get_running_loop(), self._passwords.check
            await loop.run_in_executor(self._checks, check, name, password or "")
        return name

    async def _scrape(self, http: web.Request) -> web.Response:
        await self._authenticated(*_credentials(http))
        return web.Response(body=await self._metrics(), headers={"Content-Type": METRICS_TYPE})

    async def _live(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        reason = self._unready()
        if reason is not None:
            return web.Response(status=503, text=f"{reason}\n")
        return web.Response(text="ready\n")

    @asynccontextmanager
    async def _session(self, user: str, options: dict[str, str]) -> AsyncIterator[Session]:
        settings = dict(options)
        database = settings.pop("database", DATABASE)
        session = self._sessions(user=user, database=database, options=settings)
        try:
            yield session
        finally:
            await session.close()


class _Places:
    """So many at once, each taken before anything is read: also what is read takes memory."""

    def __init__(self, most: int):
        self._most = most
        self._taken = 0

    def check(self) -> None:
        if self._taken >= self._most:
            raise Unavailable(
                "sorry, too many clients already",
                hint=f"At most {self._most} may ask at once; try again.",
                sqlstate="53300",
            )

    @contextmanager
    def one(self) -> Iterator[None]:
        self.check()
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


async def _say_what_it_is(_: web.Request, response: web.StreamResponse) -> None:
    """Names of objects are in answers, and no browser shall take them for a page."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Server"] = "Tidemark"


_STATUS = {"28P01": 401, "42501": 403, "57P03": 503, "53300": 503}


def _refused(status: int, error: TidemarkError, allow: str | None = None) -> web.Response:
    headers = {"Allow": allow} if allow else {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="Tidemark", charset="UTF-8"'
    if status == 429:
        headers["Retry-After"] = "1"
    return web.Response(
        status=status,
        body=msgspec.json.encode({"error": error_json(error)}),
        content_type="application/json",
        headers=headers,
    )


def _credentials(http: web.Request) -> tuple[str | None, str | None]:
    """User and password as the header has them."""
    scheme, _, encoded = http.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None, None
    try:
        name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        return name, password
    except ValueError:
        raise SqlError("malformed header Authorization", sqlstate="28000") from None
