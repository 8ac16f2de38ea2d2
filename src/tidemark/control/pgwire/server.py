"""The listener: who may come in, under which key, and how everyone is shown out.

Without `passwords` everybody who reaches the port is believed to be who they say they are; without
`tls` everybody on the way can read along.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from typing import Self

import msgspec
import structlog

from tidemark.control.pgwire import codec
from tidemark.control.pgwire.codec import ProtocolViolation
from tidemark.control.pgwire.connection import Connection
from tidemark.control.pgwire.options import demanded, session_options
from tidemark.control.pgwire.passwords import Guard, authenticate
from tidemark.control.pgwire.session import Session, SessionFactory
from tidemark.control.pgwire.tls import Tls
from tidemark.control.pgwire.wire import HungUp, Wire
from tidemark.control.turns import leave
from tidemark.errors import TidemarkError

log = structlog.get_logger(__name__)

SERVER_VERSION = "16.0 (Tidemark 0.1.0)"
"""libpq and drivers read the leading number to decide what they may send."""

MZ_VERSION = "v0.130.0 (Tidemark 0.1.0)"
"""The version of Materialize whose catalog its tools find here; dbt asks for it."""

_FIXED_PARAMETERS = {
    "server_version": SERVER_VERSION,
    "mz_version": MZ_VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "on",
    "in_hot_standby": "off",
    "default_transaction_read_only": "off",
}

_SPARE_SOCKETS = 32
"""Sockets beyond the connection limit: for cancel requests, and to say no politely."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 5_000
    startup_seconds: float = 60.0
    """A client that has not introduced itself by then is dropped."""
    close_seconds: float = 5.0
    """How long a session may take to close, and a client to take its last bytes."""


class _Peer(msgspec.Struct, eq=False):
    """A socket; `connection` and `secret` are set once it is in a session."""

    wire: Wire
    task: asyncio.Task[None]
    connection: Connection | None = None
    secret: int = 0
    encrypted: bool = False
    leaving: bool = False
    """On its way out; cancelling it (again) would only disturb the session's `close`."""


class Server:
    """Serves sessions made by `sessions` until closed; use as `async with Server(...) as it`."""

    def __init__(
        self,
        sessions: SessionFactory,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
        tls: Tls | None = None,
        passwords: Guard | None = None,
        new_secret: Callable[[], int] = lambda: secrets.randbits(32),
    ):
        self._sessions = sessions
        self._host = host
        self._port = port
        self._limits = limits or Limits()
        self._tls = tls
        self._passwords = passwords
        self._new_secret = new_secret
        self._listener: asyncio.Server | None = None
        self._peers: dict[int, _Peer] = {}
        self._last_pid = 0
        self._closing = False

    @property
    def port(self) -> int:
        """The port listened on; the one the system picked if 0 was asked for."""
        assert self._listener is not None, "the server is not started"
        return self._listener.sockets[0].getsockname()[1]

    @property
    def session_count(self) -> int:
        return sum(peer.connection is not None for peer in self._peers.values())

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Wire(self._accepted), self._host, self._port
        )

    async def close(self) -> None:
        """Stop listening, cancel what runs, and tell every session why."""
        self._closing = True
        if self._listener is not None:
            self._listener.close()
        tasks = [peer.task for peer in self._peers.values()]
        for peer in self._peers.values():
            _leave(peer)
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=2 * self._limits.close_seconds)
            for peer in list(self._peers.values()):
                peer.wire.abort()
            for task in stuck:
                leave(task)
            await asyncio.gather(*stuck, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _accepted(self, wire: Wire) -> None:
        if self._closing or len(self._peers) >= self._limits.connections + _SPARE_SOCKETS:
            wire.abort()
            return
        socket_ = wire.transport.get_extra_info("socket")
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._last_pid += 1
        pid = self._last_pid
        task = asyncio.create_task(self._serve(wire, pid), name=f"client-{pid}")
        self._peers[pid] = _Peer(wire, task)

    async def _serve(self, wire: Wire, pid: int) -> None:
        peer = self._peers[pid]
        try:
            await self._converse(peer, pid)
        except HungUp:
            pass
        except TimeoutError:
            log.info("dropped a client that did not introduce itself", pid=pid)
        except TidemarkError as error:
            wire.send(_fatal(error.message, error.sqlstate, error.hint))
        except asyncio.CancelledError:
            if self._closing:  # otherwise the client has hung up
                message = "terminating connection due to administrator command"
                wire.send(_fatal(message, "57P01"))
        except Exception as error:
            log.error("internal error in a connection", pid=pid, exc_info=error)
            wire.send(_fatal(f"internal error: {type(error).__name__}: {error}", "XX000"))
        finally:
            peer.leaving = True
            try:
                await wire.close(timeout=self._limits.close_seconds)
            finally:
                del self._peers[pid]

    async def _converse(self, peer: _Peer, pid: int) -> None:
        async with asyncio.timeout(self._limits.startup_seconds):
            startup = await self._introduction(peer)
            if startup is None:
                return
            await self._authenticate(peer, startup)
        session = self._open_session(startup)
        session.pid = pid
        try:
            peer.connection = Connection(peer.wire, session)
            peer.secret = self._new_secret()
            self._welcome(peer, pid, startup)
            peer.wire.start_listening(on_hangup=lambda: _leave(peer, leave))
            await peer.connection.run()
        finally:
            peer.connection = None
            peer.leaving = True
            await session.close()

    async def _introduction(self, peer: _Peer) -> codec.Startup | None:
        """Up to the startup message; None if the client came only to cancel."""
        wire = peer.wire
        while True:
            match await wire.receive_startup():
                case codec.Startup() as startup:
                    return startup
                case codec.CancelRequest(pid, secret):
                    self._cancel(pid, secret)
                    return None
                case codec.SslRequest() if self._tls is not None and not peer.encrypted:
                    await wire.start_tls(self._tls.context)
                    peer.encrypted = True
                case _:
                    wire.send(codec.REFUSE_ENCRYPTION)
                    await wire.flush()

    async def _authenticate(self, peer: _Peer, startup: codec.Startup) -> None:
        if self._tls is not None and self._tls.required and not peer.encrypted:
            raise ProtocolViolation(
                "this server takes encrypted connections only",
                hint="connect with sslmode=require, or stricter",
                sqlstate="28000",
            )
        user = startup.parameters.get("user")
        if not user:
            raise ProtocolViolation(
                "no PostgreSQL user name specified in startup packet", sqlstate="28000"
            )
        unrecognized = [name for name in startup.parameters if name.startswith("_pq_.")]
        if startup.minor > 0 or unrecognized:
            peer.wire.send(codec.negotiate_protocol_version(unrecognized))
        if self._passwords is not None and self._passwords.asks(user):
            bound = self._tls if peer.encrypted else None
            certificate = None if bound is None else bound.certificate_hash
            await authenticate(peer.wire, user, self._passwords, certificate)

    def _open_session(self, startup: codec.Startup) -> Session:
        parameters = startup.parameters
        user = parameters["user"]
        if "replication" in parameters and parameters["replication"] not in ("false", "off", "0"):
            raise ProtocolViolation("replication is not supported", sqlstate="0A000")
        if self.session_count >= self._limits.connections:
            raise ProtocolViolation(
                "sorry, too many clients already",
                hint=f"At most {self._limits.connections} sessions are allowed; close some.",
                sqlstate="53300",
            )
        return self._sessions(
            user=user,
            database=parameters.get("database") or user,
            options=session_options(parameters),
            demanded=demanded(parameters),
        )

    def _welcome(self, peer: _Peer, pid: int, startup: codec.Startup) -> None:
        send = peer.wire.send
        send(codec.AUTHENTICATION_OK)
        reported = _FIXED_PARAMETERS | {
            "session_authorization": startup.parameters["user"],
            "application_name": startup.parameters.get("application_name", ""),
        }
        for name, value in reported.items():
            send(codec.parameter_status(name, value))
        send(codec.backend_key_data(pid, peer.secret))

    def _cancel(self, pid: int, secret: int) -> None:
        peer = self._peers.get(pid)
        if peer is None or peer.connection is None:
            return
        if secrets.compare_digest(peer.secret.to_bytes(4), secret.to_bytes(4)):
            peer.connection.cancel_statement()


def _leave(peer: _Peer, how: Callable[[asyncio.Task], object] = asyncio.Task.cancel) -> None:
    """`how` says whether they still wait for the outcome of what has begun."""
    if not peer.leaving:
        peer.leaving = True
        how(peer.task)


def _fatal(message: str, sqlstate: str, hint: str | None = None) -> bytes:
    return codec.error_response(message=message, sqlstate=sqlstate, severity="FATAL", hint=hint)
