"""A server without Spark in a thread: the real wire and sessions, for what clients do with them.

Queries that look-ups and Arrow can answer are answered; tables, transactions, COPY and SUBSCRIBE to
a table are as they are. What needs a cluster belongs into `integration/`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from session_harness import serving
from tidemark.clock import SystemClock
from tidemark.control.pgwire import Server
from tidemark.control.pgwire.passwords import Passwords
from tidemark.control.session import Session
from tidemark.control.variables import check_known

PATIENCE = 60


@contextmanager
def spark_free_server(folder: Path, passwords: Passwords | None = None) -> Iterator[int]:
    """The port it listens on."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ports: list[int] = []
    ready = threading.Event()

    async def run() -> None:
        async with serving(folder, SystemClock()) as coordinator:

            def session(
                *, user: str, database: str, options: dict[str, str], demanded: tuple[str, ...] = ()
            ) -> Session:
                check_known(demanded)
                return Session(
                    coordinator, user=user, database=database, options=options, demanded=demanded
                )

            server = Server(session, host="127.0.0.1", port=0, passwords=passwords)
            await server.start()
            ports.append(server.port)
            ready.set()
            await stop.wait()
            await server.close()

    def main() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            ready.set()

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    assert ports, "the server did not start"
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
