"""`tidemark demo`: a server, a live auction, three maintained views, and a table to watch them by.

Everything it does, a user could type into psql. It stops on Ctrl-C; the next start continues.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import structlog
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from tidemark.control.coordinator import Coordinator
from tidemark.control.server import Options, serve
from tidemark.control.session import Session
from tidemark.logs import configure_logging

log = structlog.get_logger("demo")

SETUP = (
    """CREATE SOURCE IF NOT EXISTS auction
  FROM LOAD GENERATOR AUCTION (TICK INTERVAL '100ms', SEED 7) FOR ALL TABLES""",
    """CREATE MATERIALIZED VIEW IF NOT EXISTS bids_by_region AS
  SELECT u.region, count(*) AS bids, sum(b.amount) AS total, max(b.amount) AS highest
  FROM bids b JOIN users u ON b.buyer = u.id
  GROUP BY u.region""",
    """CREATE MATERIALIZED VIEW IF NOT EXISTS category_prices AS
  SELECT a.category, count(*) AS bids, min(b.amount) AS lowest, avg(b.amount) AS mean
  FROM auctions a JOIN bids b ON b.auction_id = a.id
  GROUP BY a.category""",
    """CREATE MATERIALIZED VIEW IF NOT EXISTS open_auctions AS
  SELECT a.id, a.item, a.category, u.name AS seller, u.region, a.end_time
  FROM auctions a JOIN users u ON a.seller = u.id
  WHERE a.status = 'open'""",
)

REFRESH = 1.0


def run(data: Path, listen: str, spark_master: str) -> None:
    logs = data / "log"
    logs.mkdir(parents=True, exist_ok=True)
    with open(logs / "control.log", "a") as file:
        configure_logging(logging.INFO, file)
        asyncio.run(_run(Options(data, listen, spark_master=spark_master)))


async def _run(options: Options) -> None:
    console = Console()
    console.print(f"Tidemark demo, data in [bold]{options.data}[/bold]; Ctrl-C stops it.")
    tasks: list[asyncio.Task] = []

    def ready(coordinator: Coordinator, port: int) -> None:
        console.print(
            f"\n  [bold]psql -h {options.address[0]} -p {port} -U tidemark tidemark[/bold]\n"
            "  try:  SELECT * FROM bids_by_region ORDER BY total DESC;\n"
            "        COPY (SUBSCRIBE category_prices) TO STDOUT;\n"
        )
        tasks.append(asyncio.create_task(_watch(coordinator, console)))

    try:
        await serve(options, ready)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
                console.print(f"[red]{result}[/red]")
        console.print("stopped; the next start continues where this one ended")


async def _watch(coordinator: Coordinator, console: Console) -> None:
    session = Session(coordinator, user="tidemark", database="tidemark", options={})
    for sql in SETUP:
        await session.execute(await session.prepare(sql, ()), ())
    if not sys.stdout.isatty():
        while True:
            console.print(_overview(coordinator))
            await asyncio.sleep(5 * REFRESH)
    with Live(_overview(coordinator), console=console, auto_refresh=False) as live:
        while True:
            live.update(_overview(coordinator), refresh=True)
            await asyncio.sleep(REFRESH)


def _overview(coordinator: Coordinator) -> Group | Table:
    table = Table(title=None)
    for name, justify in (
        ("relation", "left"),
        ("kind", "left"),
        ("rows", "right"),
        ("complete up to", "right"),
        ("lag ms", "right"),
        ("status", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    now = coordinator.clock.now_ms()
    for item in coordinator.catalog.items.values():
        if item.shard is None:
            continue
        state = coordinator.client.state(item.shard)
        rows = sum(batch.diffs for batch in state.batches)
        upper = state.upper.time
        started = bool(upper and upper > 1)
        table.add_row(
            item.name,
            item.kind,
            f"{rows:,}",
            str(upper) if started else "-",
            f"{now - upper:,}" if started and upper else "-",
            _status(coordinator, item.parent or item.id, item.kind),
        )
    return table


def _status(coordinator: Coordinator, id_: str, kind: str) -> str:
    if kind == "table":
        return "running"
    if not coordinator.cluster.is_ready:
        return "cluster is starting"
    status = coordinator.cluster.statuses.get(id_)
    if status is None:
        return "starting"
    if status.error:
        return status.error
    return "running" if status.hydrated else "hydrating"
