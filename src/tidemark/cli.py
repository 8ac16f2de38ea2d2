"""The command line: `tidemark serve | demo | view | shard | doctor | bench | dev`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tidemark.dev.commands import app as dev_app
from tidemark.errors import TidemarkError
from tidemark.tools.shard import app as shard_app
from tidemark.tools.view import app as view_app

app = typer.Typer(
    help="Tidemark keeps SQL views over changing data correct, fresh and durable, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench_app = typer.Typer(help="Benchmarks; the last line is one JSON object.", no_args_is_help=True)
app.add_typer(view_app, name="view")
app.add_typer(shard_app, name="shard")
app.add_typer(bench_app, name="bench")
app.add_typer(dev_app, name="dev")

Data = Annotated[Path, typer.Option(help="Folder that holds everything; created if missing.")]
Listen = Annotated[str, typer.Option(help="host:port for PostgreSQL clients (loopback only).")]
Master = Annotated[str, typer.Option(help="Spark master of the cluster.")]


@app.command()
def serve(
    data: Data,
    listen: Listen = "127.0.0.1:6875",
    blob: Annotated[str | None, typer.Option(help="Blob URI; default: below --data.")] = None,
    consensus: Annotated[
        str | None, typer.Option(help="Consensus URI; default: below --data.")
    ] = None,
    spark_master: Master = "local[*]",
) -> None:
    """Run the server in the foreground; SIGTERM or Ctrl-C stops it, the same command resumes."""
    from tidemark.control.server import Options
    from tidemark.control.server import serve as run
    from tidemark.logs import configure_logging

    configure_logging()
    options = Options(data, listen, blob, consensus, spark_master)

    def ready(_: object, port: int) -> None:
        host = options.address[0]
        print(f"ready: psql -h {host} -p {port} -U tidemark tidemark", flush=True)

    _run(lambda: asyncio.run(run(options, ready)))


@app.command()
def demo(
    data: Data = Path("demo.tidemark"),
    listen: Listen = "127.0.0.1:6875",
    spark_master: Master = "local[*]",
) -> None:
    """Start a server with a live auction and three views over it, and watch them."""
    from tidemark.demo import run

    _run(lambda: run(data, listen, spark_master))


@app.command()
def doctor(
    data: Annotated[Path | None, typer.Option(help="The folder that a server uses.")] = None,
    blob: Annotated[str | None, typer.Option(help="Blob URI, if not below --data.")] = None,
    consensus: Annotated[
        str | None, typer.Option(help="Consensus URI, if not below --data.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead.")] = False,
) -> None:
    """What is installed, what is missing, how to fix it. Exits with 1 if a needed thing is missing."""
    from tidemark.doctor import examine, is_healthy, print_checks
    from tidemark.tools.output import print_json, reporting

    with reporting():
        checks = examine(data, blob, consensus)
        healthy = is_healthy(checks)
        print_json({"healthy": healthy, "checks": checks}) if json else print_checks(checks)
        sys.stdout.flush()
        os._exit(0 if healthy else 1)  # A check may still be waiting for an answer.


@bench_app.command()
def persist(
    quick: Annotated[bool, typer.Option(help="Fewer appends, smaller shards.")] = False,
    postgres: Annotated[
        str | None, typer.Option(help="postgres://… to show the latencies for, too.")
    ] = None,
) -> None:
    """What an append, a listener, a merge and a gigabyte cost beside bare SQLite and Parquet."""
    from tidemark.bench.persist import run
    from tidemark.logs import configure_logging

    configure_logging(logging.WARNING)
    _run(lambda: run(quick=quick, postgres=postgres))


@bench_app.command("spark-io")
def spark_io(
    quick: Annotated[bool, typer.Option(help="A tenth of the rows.")] = False,
) -> None:
    """Shards on Spark: writes, reads, look-ups and merges, beside plain Spark on the same rows."""
    from tidemark.bench.spark_io import run
    from tidemark.logs import configure_logging

    configure_logging(logging.WARNING)
    _run(lambda: run(quick=quick))


@bench_app.command()
def kafka(
    quick: Annotated[bool, typer.Option(help="A tenth of the messages.")] = False,
) -> None:
    """A Kafka source: catching up beside plain Spark, freshness, restart, cost of an interval."""
    from tidemark.bench.kafka import run
    from tidemark.logs import configure_logging

    configure_logging(logging.WARNING)
    _run(lambda: run(quick=quick))


@bench_app.command()
def tables(
    quick: Annotated[bool, typer.Option(help="Fewer commits.")] = False,
) -> None:
    """A commit of one row, and of nothing, with 2 tables and with 200."""
    from tidemark.bench.tables import run
    from tidemark.logs import configure_logging

    configure_logging(logging.WARNING)
    _run(lambda: run(quick=quick))


@bench_app.command()
def views(
    quick: Annotated[bool, typer.Option(help="Fewer ticks, smaller state.")] = False,
    spark_master: Master = "local[*]",
) -> None:
    """Tick cost of orders ⋈ customers by region: jobs per tick, and time against Spark's floor."""
    from tidemark.bench.views import run
    from tidemark.logs import configure_logging

    configure_logging(logging.WARNING)
    _run(lambda: run(quick=quick, spark_master=spark_master))


def _run(body) -> None:
    try:
        body()
    except TidemarkError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.stdout.flush()
        os._exit(1)


if __name__ == "__main__":
    app()
