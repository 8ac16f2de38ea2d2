"""`tidemark serve`: one control process, its listeners, and its life from start to stop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import shlex
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

import structlog

from tidemark.control.coordinator import Coordinator
from tidemark.control.health import unready
from tidemark.control.http import HttpServer
from tidemark.control.logins import Logins
from tidemark.control.metrics import exposition
from tidemark.control.pgwire import Limits, Server
from tidemark.control.pgwire.passwords import read_passwords
from tidemark.control.pgwire.tls import Tls, load_tls
from tidemark.control.replica import Place
from tidemark.control.roles import SUPERUSER
from tidemark.control.session import Session
from tidemark.control.standby import begin_generation, generation, hydrate
from tidemark.control.variables import check_known
from tidemark.errors import Fenced, InvalidUsage, Unavailable
from tidemark.persist import PersistClient

log = structlog.get_logger("server")

DEFAULT_LISTEN = "127.0.0.1:6875"
DEFAULT_HTTP = "127.0.0.1:6876"

OTHER_FILES = 300
"""Open at once for other things than clients: shards, pipes, connections to replicas."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")

LAST_WORDS = 1.0
"""Seconds for telling clients that another process leads."""


LET_GO_EVERY = 0.2

T = TypeVar("T")


class Options(NamedTuple):
    """Where everything is; blob and consensus default to places below `data`. `http_listen` None
    is no HTTP."""

    data: Path
    listen: str = DEFAULT_LISTEN
    blob: str | None = None
    consensus: str | None = None
    spark_master: str = "local[*]"
    secrets_key: Path | None = None
    http_listen: str | None = DEFAULT_HTTP
    log_statements: bool = False
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_required: bool = False
    passwords: Path | None = None
    standby: bool = False
    account: str | None = None
    region: str | None = None

    @property
    def blob_uri(self) -> str:
        return self.blob or f"file://{(self.data / 'blob').resolve()}"

    @property
    def consensus_uri(self) -> str:
        return self.consensus or f"sqlite://{(self.data / 'consensus.db').resolve()}"

    @property
    def address(self) -> tuple[str, int]:
        return _address("--listen", self.listen)

    @property
    def http_address(self) -> tuple[str, int] | None:
        return None if self.http_listen is None else _address("--http", self.http_listen)

    @property
    def open_to_others(self) -> list[str]:
        """Those of its addresses that are not of this machine alone."""
        found = {self.listen: self.address, self.http_listen: self.http_address}
        return [said for said, at in found.items() if said and at and at[0] not in LOOPBACK]

    @property
    def tls(self) -> Tls | None:
        if self.tls_certificate is None or self.tls_key is None:
            if self.tls_certificate or self.tls_key or self.tls_required:
                raise InvalidUsage(
                    "TLS takes both a certificate and its key",
                    hint="give --tls-cert FILE and --tls-key FILE",
                )
            return None
        return load_tls(self.tls_certificate, self.tls_key, required=self.tls_required)


def _address(option: str, said: str) -> tuple[str, int]:
    host, _, port = said.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidUsage(f"{option} takes host:port, not {said!r}")
    return host.strip("[]"), int(port)


class Ready(NamedTuple):
    """Where a server that has started can be reached."""

    coordinator: Coordinator
    host: str
    port: int
    http_address: tuple[str, int] | None
    https: bool = False
    user: str = SUPERUSER.name
    """Somebody who may come in."""

    @property
    def psql(self) -> str:
        return f"psql -h {self.host} -p {self.port} -U {shlex.quote(self.user)} tidemark"

    @property
    def http(self) -> str | None:
        if self.http_address is None:
            return None
        host, port = self.http_address
        scheme = "https" if self.https else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


async def serve(options: Options, on_ready: Callable[[Ready], None]) -> None:
    """Run until SIGTERM or SIGINT (then stop cleanly), or until another process takes over."""
    (host, port), http_address = options.address, options.http_address
    tls = options.tls
    file = read_passwords(options.passwords) if options.passwords else None
    open_to = " and ".join(options.open_to_others)
    if open_to and (tls is None or not tls.required):
        log.warning(f"clients of {open_to} may connect without encryption; see --tls")
    try:
        options.data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidUsage(f"--data {options.data} cannot be a folder: {error.strerror}") from error
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    leading: list[Coordinator] = []

    def leader() -> Coordinator:
        if not leading:
            raise Unavailable("the server is starting", hint="try again in a moment")
        return leading[0]

    def session(
        *, user: str, database: str, options: dict[str, str], demanded: tuple[str, ...] = ()
    ) -> Session:
        check_known(demanded)
        return Session(leader(), user=user, database=database, options=options, demanded=demanded)

    passwords = Logins(file, lambda: leader().catalog.roles)
    limits = Limits(connections=allowed_connections(Limits().connections))
    server = Server(session, host=host, port=port, limits=limits, tls=tls, passwords=passwords)
    http = None
    if http_address is not None:
        http = HttpServer(
            session,
            unready=lambda: unready(leader()),
            metrics=lambda: exposition(leader()),
            host=http_address[0],
            port=http_address[1],
            passwords=passwords,
            tls=tls.context if tls else None,
            webhooks=lambda: leader().webhooks,
        )

    async def listen() -> None:
        await _listen(server, options.listen, "--listen")
        if http is not None:
            await _listen(http, str(options.http_listen), "--http")

    with ExitStack() as locks:
        if not options.standby:
            # The ports first: who cannot listen must not take the lead from someone who can.
            locks.enter_context(_lock(options.data))
            await listen()
        client = PersistClient.open(blob=options.blob_uri, consensus=options.consensus_uri)
        if options.standby:
            locks.enter_context(_lock(options.data, "standby.lock"))
            if not await _hydrated(client, options, stop):
                client.close()
                return
        client.start_maintenance(sweep_all=True)
        coordinator = Coordinator(
            client,
            data=options.data.resolve(),
            blob=options.blob_uri,
            consensus=options.consensus_uri,
            spark_master=options.spark_master,
            secrets_key=options.secrets_key,
            account=options.account,
            region=options.region,
        )
        coordinator.activity.is_logged = options.log_statements
        coordinator.file_users = frozenset(file.verifiers if file is not None else ())
        leading.append(coordinator)
        if not passwords.always and open_to:
            log.warning(
                f"NO AUTHENTICATION: anybody who reaches {open_to} may do anything here; give "
                "--passwords FILE, or ALTER ROLE tidemark PASSWORD '...', or listen on 127.0.0.1"
            )
        if passwords.always:
            # Spark's pages ask nobody, and show what is asked of all.
            os.environ.setdefault("TIDEMARK_SPARK_UI", "off")
        coordinator.start()
        if options.standby:
            await _patiently(listen)
        reached = (http_address[0], http.port) if http_address and http else None
        known = SUPERUSER.name, *coordinator.file_users
        user = next((name for name in known if passwords.may_enter(name)), SUPERUSER.name)
        ready = Ready(coordinator, host, server.port, reached, tls is not None, user)
        coordinator.webhooks.url = ready.http
        coordinator.webhooks.asks_passwords = lambda: passwords.always
        on_ready(ready)
        stopping = asyncio.create_task(stop.wait())
        if options.standby:
            locking = asyncio.create_task(
                _patiently(lambda: asyncio.to_thread(_lock, options.data))
            )
            locks.callback(_let_go, locking)
        lost = asyncio.create_task(coordinator.timelines.lost.wait())
        await asyncio.wait({stopping, lost}, return_when=asyncio.FIRST_COMPLETED)
        if lost.done():
            log.error("another control process has taken over, stopping")
            # Writes are refused by now; let their sessions hear why before they are closed.
            await asyncio.sleep(LAST_WORDS)
        await asyncio.gather(server.close(), *([http.close()] if http else []))
        await coordinator.stop()
    if lost.done() and not stopping.done():
        raise Fenced(
            "another control process has taken over, so this one has stopped",
            hint="one control process at a time may lead a region",
        )


async def _hydrated(client: PersistClient, options: Options, stop: asyncio.Event) -> bool:
    """Wait beside the one that leads until all is fresh here, too; False if told to stop before."""
    place = Place(
        options.data.resolve(),
        options.blob_uri,
        options.consensus_uri,
        options.spark_master,
        client.clock,
        generation(options.data) + 1,
    )
    log.info("standing by: hydrating", generation=place.generation)
    if not await hydrate(client, place, stop):
        return False
    begin_generation(place)
    log.info("all is fresh: taking over")
    return True


async def _patiently(begin: Callable[[], Awaitable[T]]) -> T:
    """What the one that led before has to let go of first."""
    while True:
        try:
            return await begin()
        except Unavailable as error:
            log.info("waiting for the one that led", error=error.message)
            await asyncio.sleep(LET_GO_EVERY)


def _let_go(locking: asyncio.Task[IO[str]]) -> None:
    if not locking.cancel():
        locking.result().close()


def allowed_connections(wanted: int) -> int:
    """So many, or fewer if there cannot be as many open files; the system's soft limit on those is
    raised as far as it lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    allowed = max(1, min(wanted, most - OTHER_FILES))
    if allowed < wanted:
        log.warning(
            f"at most {allowed} clients can be connected, not {wanted}: "
            f"the system allows {hard} open files (ulimit -Hn)"
        )
    return allowed


async def _listen(server: Server | HttpServer, address: str, option: str) -> None:
    try:
        await server.start()
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {address}: {error.strerror}",
            hint=f"is another server running there? choose another with {option}",
        ) from error


def _lock(data: Path, name: str = "control.lock") -> IO[str]:
    """One control process per data folder on one machine; across machines epochs fence."""
    lock = open(data / name, "a+")  # noqa: SIM115 (held until the process ends)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise Unavailable(
            f"another tidemark server (pid {owner}) runs on {data}",
            hint="stop it first, or choose another --data folder",
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
