"""`tidemark demo`: a server, a live auction, views over it, three things to try, a table to watch.

Everything it does, a user could type into psql (`auction`). With `kafka` the auction goes through
a broker of the demo's own, in its data folder. It stops on Ctrl-C; the next start continues.

    auction     the statements
    overview    the table
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psycopg
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.server import Options, Ready, serve
from tidemark.demo import auction
from tidemark.demo.overview import overview, statuses
from tidemark.logs import configure_logging

REFRESH = 1.0

GUIDE = """
  [bold]{client}[/bold]
  console: [bold]{http}/[/bold]

  Three things to try, from another terminal. While the table below says that something starts or
  hydrates, queries of it wait:

  [bold]1. Change a table and watch a view.[/bold] Accounts 0, 1 and 2 belong together, and so do 3 and 4;
     whoever bids on an auction of their own ring is suspicious, for a minute. Join the two rings:
       COPY (SUBSCRIBE account_rings) TO STDOUT;              -- in one terminal
       INSERT INTO linked_accounts VALUES (2, 3);             -- in another
       SELECT * FROM suspicious_bidders ORDER BY bids DESC;
       DELETE FROM linked_accounts WHERE a = 2;               -- and apart again

  [bold]2. Kill a replica.[/bold] It comes back and goes on from what is stored; nothing is lost or doubled:
       kill -9 $({client} {value} \\
         "SELECT pid FROM mz_internal.mz_cluster_replica_statuses LIMIT 1")
     With a second one nobody would even wait:  ALTER CLUSTER quickstart SET (REPLICATION FACTOR = 2);

  [bold]3. Read the same collections from a plain PySpark script[/bold], all at one timestamp:
       {python} examples/joint_read.py {data}
"""


def run(
    data: Path | None, listen: str, spark_master: str, http: str, *, kafka: bool = False
) -> None:
    # What was begun one way is not continued the other: the relations have the same names.
    data = data or Path("demo-kafka.tidemark" if kafka else "demo.tidemark")
    logs = data / "log"
    logs.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    console.print(f"Tidemark demo, data in [bold]{data}[/bold]; Ctrl-C stops it.")
    with ExitStack() as stack:
        configure_logging(logging.INFO, stack.enter_context(open(logs / "control.log", "a")))
        setup = auction.PLAIN
        if kafka:
            setup = auction.through_kafka(_broker(data / "kafka", console, stack))
        options = Options(data, listen, spark_master=spark_master, http_listen=http)
        asyncio.run(_run(options, console, setup))
    console.print("stopped; the next start continues where this one ended")


def _broker(folder: Path, console: Console, stack: ExitStack) -> str:
    """Start the demo's own broker with its topics; it stops when `stack` is closed."""
    from tidemark.dev.kafka import Broker, Record

    record = folder / "broker.json"
    # The connection names the port, so that of the first start is kept.
    port = msgspec.json.decode(record.read_bytes(), type=Record).port if record.exists() else 0
    broker = Broker.at(folder, port=port)
    if broker.pid is not None:
        broker = Broker.running(folder)  # Of a demo that was killed.
    else:
        broker.start()
    stack.callback(broker.stop)
    for topic in set(auction.TABLES) - set(broker.topics()):
        broker.create_topic(topic, partitions=2, config={"cleanup.policy": "compact"})
    console.print(f"Kafka at [bold]{broker.bootstrap}[/bold], data in {folder}")
    return broker.bootstrap


async def _run(options: Options, console: Console, setup: tuple[str, ...]) -> None:
    tasks: list[asyncio.Task] = []

    def ready(at: Ready) -> None:
        tasks.append(asyncio.create_task(_show(at, console, setup, guide(at, options.data))))

    try:
        await serve(options, ready)
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                console.print(f"[red]{result}[/red]")


def guide(at: Ready, data: Path) -> str:
    """With the client that there is on this machine, and the options with which it prints a value."""
    python = Path(sys.executable)
    ours = f"{_short(python.with_name('tidemark'))} sql -h {at.host} -p {at.port}"
    client, value = (at.psql, "-Atc") if shutil.which("psql") else (ours, "-tc")
    return GUIDE.format(
        client=client, value=value, http=at.http, python=_short(python), data=_short(data)
    )


async def _show(at: Ready, console: Console, setup: tuple[str, ...], text: str) -> None:
    """Set the auction up, say what to try, and keep showing how it comes to life."""

    async def tried(step: Coroutine[object, object, None]) -> None:
        try:
            await step
        except psycopg.Error as error:
            console.print(f"[red]the auction was not set up: {escape(str(error))}[/red]")

    await tried(_set_up(at, setup))
    console.print(text, soft_wrap=True)  # What it names is there now.
    setting_clock = asyncio.create_task(tried(_set_clock(at)))
    try:
        if console.is_terminal:
            with Live(console=console, auto_refresh=False) as live:
                while True:
                    live.update(overview(at.coordinator), refresh=True)
                    await asyncio.sleep(REFRESH)
        said: list[tuple[str, str]] = []
        while True:  # A log wants what changes.
            now = [(item.shown, status) for item, status in statuses(at.coordinator)]
            if now != said:
                console.print(overview(at.coordinator))
            said = now
            await asyncio.sleep(REFRESH)
    finally:
        setting_clock.cancel()


async def _set_up(at: Ready, setup: tuple[str, ...]) -> None:
    """What a visitor could type: every statement is harmless where it was run before.

    None of them waits for a replica, which has only begun to start.
    """
    async with await _connected(at) as connection:
        for sql in (*setup, *auction.OWN_TABLES):
            await connection.execute(sql.encode())
        if not await _number(connection, "SELECT count(*) FROM mz_materialized_views"):
            await connection.execute(auction.FIRST_LINKS.encode())
        for name in auction.VIEWS:
            await connection.execute(auction.create_view(name).encode())


async def _set_clock(at: Ready) -> None:
    """The generator stood still while the demo did, so this is another time with each start."""
    async with await _connected(at) as connection:
        while (newest := await _number(connection, auction.NEWEST_BID)) is None:
            await asyncio.sleep(REFRESH)
        behind = SYSTEM_CLOCK.now_ms() // 1000 - newest
        async with connection.transaction():
            await connection.execute("DELETE FROM clock")
            await connection.execute("INSERT INTO clock VALUES (%s)", (behind,))


async def _connected(at: Ready) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(
        host=at.host, port=at.port, user="tidemark", dbname="tidemark", autocommit=True
    )


async def _number(connection: psycopg.AsyncConnection, sql: str) -> int | None:
    row = await (await connection.execute(sql.encode())).fetchone()
    return row[0] if row else None


def _short(path: Path) -> str:
    """As it would be typed here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
