"""`tidemark bench serve`: what a client sees of a server, and what the server costs at rest.

A real `tidemark serve` with its cluster, real clients in other processes, and beside them, in the
same run: PostgreSQL for look-ups, plain Spark for a query of everything.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tidemark.bench.serve_points import points, prepare
from tidemark.bench.serve_process import ServerProcess, cpu_seconds
from tidemark.bench.serve_rest import idle_views, sessions
from tidemark.bench.serve_views import ad_hoc, changes

BARS = {
    "point_p50_ms": "≤ 5",
    "point_qps": "≥ 1,000",
    "point_vs_postgres": "≥ 0.2",
    "adhoc_vs_spark": "≤ 1.5",
    "insert_to_view_p50_ms": "≤ 1,000",
    "subscribe_lag_ms": "≤ 100",
    "sessions_mib": "< 1,024",
    "ready_s": "≤ 15",
    "idle_core_share": "< 0.25",
}
PARTS = ("points", "adhoc", "changes", "sessions", "ready", "idle")


def run(*, quick: bool, spark_master: str, only: tuple[str, ...] = ()) -> None:
    """`only` some of the parts, in their order; all of them if none are named."""
    if unknown := set(only) - set(PARTS):
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    wanted = only or PARTS
    console = Console()
    rows = 100_000 if quick else 1_000_000
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as name:
        folder = Path(name)
        with ServerProcess(folder, spark_master=spark_master) as server:
            console.print("starting a server ...")
            _, found["first_ready_s"] = server.start()
            if {"points", "adhoc"} & set(wanted):
                prepare(server, rows)
            if "points" in wanted:
                seconds = 2.0 if quick else 5.0
                found |= points(console, server, folder, rows=rows, seconds=seconds)
            if "adhoc" in wanted:
                runs = 5 if quick else 15
                found |= ad_hoc(console, server, folder, rows=rows, runs=runs, master=spark_master)
            if {"changes", "sessions"} & set(wanted):
                found |= changes(console, server, inserts=10 if quick else 40)
            if "sessions" in wanted:
                counts = (200, 40) if quick else (1_000, 200)
                found |= sessions(console, server, idle=counts[0], subscriptions=counts[1])
            if "ready" in wanted:
                console.print("starting it again ...")
                server.stop()
                found["listening_s"], found["ready_s"] = server.start()
                found["ready_cpu_s"] = cpu_seconds([*server.control, *server.cluster])
            if "idle" in wanted:
                found |= idle_views(
                    console, server, views=50 if quick else 500, seconds=10.0 if quick else 30.0
                )
    _show(console, found, quick, only)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


def _show(console: Console, found: dict[str, float], quick: bool, only: tuple[str, ...]) -> None:
    table = Table(title="a server, its clients and its rest")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("bar", justify="right")
    for name, value in found.items():
        table.add_row(name, f"{value:,.3f}", BARS.get(name, ""))
    console.print(table)
    options = "".join(f" --only {each}" for each in only)
    console.print(f"`tidemark bench serve{' --quick' if quick else ''}{options}`")
