"""The command line: `tidemark serve | config | sql | password | demo | view | shard | backup | restore |
doctor | bench | dev`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from tidemark.dev.commands import app as dev_app
from tidemark.errors import TidemarkError
from tidemark.settings import FIELDS, data_folder, exported, misspelt, resolve
from tidemark.shell.command import sql
from tidemark.tools.backup import backup, restore
from tidemark.tools.config import Config
from tidemark.tools.config import app as config_app
from tidemark.tools.shard import app as shard_app
from tidemark.tools.view import app as view_app

app = typer.Typer(
    help="Tidemark keeps SQL views over changing data correct, fresh and durable, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench_app = typer.Typer(help="Benchmarks; the last line is one JSON object.", no_args_is_help=True)
app.command()(sql)
app.add_typer(view_app, name="view")
app.add_typer(shard_app, name="shard")
app.add_typer(config_app, name="config")
app.command()(backup)
app.command()(restore)
app.add_typer(bench_app, name="bench")
app.add_typer(dev_app, name="dev")


Data = Annotated[Path, typer.Option(help="Folder that holds everything; created if missing.")]
Listen = Annotated[str, typer.Option(help="host:port for PostgreSQL clients.")]
Http = Annotated[str, typer.Option(help="host:port for HTTP and the console; port 0 is any.")]
Master = Annotated[str, typer.Option(help="Spark master of the cluster.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tidemark {version('tidemark')}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say which it is."),
    ] = False,
) -> None: ...


def setting(name: str, *flags: str) -> Any:
    """The option of a setting that is said in `settings.Settings`, and there only."""
    field = FIELDS[name]
    shown = "" if field.default is None or isinstance(field.default, bool) else str(field.default)
    help_ = f"{field.help[:-1]}: {field.takes}." if field.choices else field.help
    return typer.Option(*flags, help=help_, show_default=shown or False)


@app.command()
def serve(
    context: typer.Context,
    config: Config = None,
    data: Annotated[Path | None, setting("data")] = None,
    listen: Annotated[str | None, setting("listen")] = None,
    blob: Annotated[str | None, setting("blob")] = None,
    consensus: Annotated[str | None, setting("consensus")] = None,
    spark_master: Annotated[str | None, setting("spark-master")] = None,
    secrets_key: Annotated[Path | None, setting("secrets-key")] = None,
    http: Annotated[str | None, setting("http")] = None,
    no_http: Annotated[bool | None, setting("no-http", "--no-http")] = None,
    log_statements: Annotated[
        bool | None, setting("log-statements", "--log-statements/--no-log-statements")
    ] = None,
    log_format: Annotated[str | None, setting("log-format")] = None,
    log_level: Annotated[str | None, setting("log-level")] = None,
    tls_cert: Annotated[Path | None, setting("tls-cert")] = None,
    tls_key: Annotated[Path | None, setting("tls-key")] = None,
    tls: Annotated[str | None, setting("tls")] = None,
    passwords: Annotated[Path | None, setting("passwords")] = None,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Hydrate beside the server that runs, then take over from it: an upgrade.",
        ),
    ] = False,
    account: Annotated[str | None, setting("account")] = None,
    region: Annotated[str | None, setting("region")] = None,
) -> None:
    """Run the server in the foreground; SIGTERM or Ctrl-C stops it, the same command resumes.

    Each option can also be a variable, TIDEMARK_HTTP for --http, or a line of the file
    that --config names. Some settings are only that: `tidemark config show` lists all of them.
    """
    _run(lambda: _serve(context.params, config, standby))


def _serve(options: dict[str, Any], config: Path | None, standby: bool) -> None:
    from tidemark.control.server import Options, Ready
    from tidemark.control.server import serve as run
    from tidemark.logs import configure_logging

    resolved = resolve(options, file=config)
    told = resolved.settings
    data = data_folder(told)
    # Replicas, which inherit the environment, shall do the same.
    os.environ |= exported(resolved)
    configure_logging()
    for line in misspelt():
        structlog.get_logger("server").warning(line)
    server = Options(
        data,
        told.listen,
        told.blob,
        told.consensus,
        told.spark_master,
        told.secrets_key,
        http_listen=None if told.no_http else told.http,
        log_statements=told.log_statements,
        tls_certificate=told.tls_cert,
        tls_key=told.tls_key,
        tls_required=told.tls == "require",
        passwords=told.passwords,
        standby=standby,
        account=told.account,
        region=told.region,
    )

    def ready(at: Ready) -> None:
        print(f"ready: {at.psql}" + (f" | {at.http}" if at.http else ""), flush=True)

    asyncio.run(run(server, ready))


@app.command()
def password(
    user: Annotated[str, typer.Argument(help="Whose password it is.")] = "tidemark",
) -> None:
    """Print a user's line for `serve --passwords`; the password is typed here, or read from stdin."""
    from tidemark.control.pgwire.passwords import password_line

    if sys.stdin.isatty():
        typed = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        typed = sys.stdin.readline().rstrip("\r\n")
    _run(lambda: print(password_line(user, typed)))


@app.command()
def demo(
    data: Annotated[
        Path | None,
        typer.Option(help="Holds everything; default: demo.tidemark, or demo-kafka.tidemark."),
    ] = None,
    listen: Listen = "127.0.0.1:6875",
    spark_master: Master = "local[*]",
    http: Http = "127.0.0.1:6876",
    kafka: Annotated[
        bool, typer.Option("--kafka", help="The auction goes through a Kafka broker.")
    ] = False,
) -> None:
    """Start a server with a live auction and views over it, say what to try, and watch them."""
    from tidemark.demo import run

    _run(lambda: run(data, listen, spark_master, http, kafka=kafka))


@app.command()
def doctor(
    data: Annotated[Path | None, typer.Option(help="The folder that a server uses.")] = None,
    blob: Annotated[str | None, typer.Option(help="Blob URI, if not below --data.")] = None,
    consensus: Annotated[
        str | None, typer.Option(help="Consensus URI, if not below --data.")
    ] = None,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead.")] = False,
) -> None:
    """What is installed, what is missing, how to fix it. Exits with 1 if a needed thing is missing."""
    from tidemark.doctor import examine, is_healthy, print_checks
    from tidemark.tools.output import print_json, reporting

    with reporting():
        checks = examine(data, blob, consensus, config)
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


@bench_app.command()
def cluster(
    quick: Annotated[bool, typer.Option(help="Fewer views and orders.")] = False,
    spark_master: Master = "local[*]",
) -> None:
    """Replicas at rest, beside others, killed and followed by a twin; look-ups in an index."""
    from tidemark.bench.cluster import run
    from tidemark.logs import configure_logging

    configure_logging(logging.WARNING)
    _run(lambda: run(quick=quick, spark_master=spark_master))


@bench_app.command("serve")
def bench_serve(
    quick: Annotated[bool, typer.Option(help="A tenth of rows, sessions and views.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="A part, not all: points, adhoc, changes, sessions, ready, idle."),
    ] = None,
    spark_master: Master = "local[*]",
) -> None:
    """A server and its clients: look-ups beside PostgreSQL, queries beside Spark, rest, start."""
    from tidemark.bench.serve import run
    from tidemark.logs import configure_logging

    configure_logging(logging.WARNING)
    _run(lambda: run(quick=quick, spark_master=spark_master, only=tuple(only or ())))


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
