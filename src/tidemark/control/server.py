"""`tidemark serve`: one control process, its listeners, and its life from start to stop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from tidemark.control.coordinator import Coordinator
from tidemark.control.pgwire import Server
from tidemark.control.session import Session
from tidemark.errors import Fenced, InvalidUsage, Unavailable
from tidemark.persist import PersistClient

log = structlog.get_logger("server")

DEFAULT_LISTEN = "127.0.0.1:6875"

LAST_WORDS = 1.0
"""Seconds for telling clients that another process leads."""


class Options(NamedTuple):
    """Where everything is; blob and consensus default to places below `data`."""

    data: Path
    listen: str = DEFAULT_LISTEN
    blob: str | None = None
    consensus: str | None = None
    spark_master: str = "local[*]"

    @property
    def blob_uri(self) -> str:
        return self.blob or f"file://{(self.data / 'blob').resolve()}"

    @property
    def consensus_uri(self) -> str:
        return self.consensus or f"sqlite://{(self.data / 'consensus.db').resolve()}"

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            raise InvalidUsage(f"--listen takes host:port, not {self.listen!r}")
        if host not in ("127.0.0.1", "localhost", "::1", "[::1]"):
            raise InvalidUsage(
                f"cannot listen on {host}: there is no authentication yet, so loopback only",
                hint="use 127.0.0.1",
            )
        return host.strip("[]"), int(port)


async def serve(options: Options, on_ready: Callable[[Coordinator, int], None]) -> None:
    """Run until SIGTERM or SIGINT (then stop cleanly), or until another process takes over."""
    host, port = options.address
    try:
        options.data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidUsage(f"--data {options.data} cannot be a folder: {error.strerror}") from error
    lock = _lock(options.data)
    leading: list[Coordinator] = []

    def session(*, user: str, database: str, options: dict[str, str]) -> Session:
        if not leading:
            raise Unavailable("the server is starting", hint="try again in a moment")
        return Session(leading[0], user=user, database=database, options=options)

    # The port first: who cannot listen must not take the lead from someone who can.
    server = Server(session, host=host, port=port)
    try:
        await server.start()
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {options.listen}: {error.strerror}",
            hint="is another server running there? choose another with --listen",
        ) from error
    client = PersistClient.open(blob=options.blob_uri, consensus=options.consensus_uri)
    client.start_maintenance(sweep_all=True)
    coordinator = Coordinator(
        client,
        data=options.data.resolve(),
        blob=options.blob_uri,
        consensus=options.consensus_uri,
        spark_master=options.spark_master,
    )
    leading.append(coordinator)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    coordinator.start()
    on_ready(coordinator, server.port)
    stopping = asyncio.create_task(stop.wait())
    lost = asyncio.create_task(coordinator.timeline.lost.wait())
    await asyncio.wait({stopping, lost}, return_when=asyncio.FIRST_COMPLETED)
    if lost.done():
        log.error("another control process has taken over, stopping")
        # Writes are refused by now; let their sessions hear why before they are closed.
        await asyncio.sleep(LAST_WORDS)
    await server.close()
    await coordinator.stop()
    lock.close()
    if lost.done() and not stopping.done():
        raise Fenced(
            "another control process has taken over, so this one has stopped",
            hint="one control process at a time may lead a region",
        )


def _lock(data: Path):
    """One control process per data folder on one machine; across machines epochs fence."""
    lock = open(data / "control.lock", "a+")  # noqa: SIM115 (held until the process ends)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        raise Unavailable(
            f"another tidemark server (pid {owner}) runs on {data}",
            hint="stop it first, or choose another --data folder",
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
