"""`tidemark view`: views without a server, maintained by the command itself.

Imports wait until a command runs: `tidemark --help` must not load Spark.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.errors import InvalidUsage
from tidemark.tools.location import locate, open_client, resolve
from tidemark.tools.output import FAILED, failed, frontier, print_json, print_table, reporting, warn

if TYPE_CHECKING:
    from tidemark.compute.definition import AsOf
    from tidemark.compute.library import Maintained, Statistics
    from tidemark.persist import PersistClient
    from tidemark.spark.progress import Progress

app = typer.Typer(
    help="Maintain SQL views from shards into shards. Needs no server, and works beside one.",
    no_args_is_help=True,
)

CANCEL_AFTER = 2.0
"""Seconds that a tick has to end by itself when the command is told to stop."""

GIVE_UP_AFTER = 20.0

Data = Annotated[Path | None, typer.Option(help="The folder that `tidemark serve` uses.")]
Blob = Annotated[str | None, typer.Option(help="Blob URI, if not below --data.")]
Consensus = Annotated[str | None, typer.Option(help="Consensus URI, if not below --data.")]
Sql = Annotated[str, typer.Option(help="The query: its text, a file that has it, or - for stdin.")]
Input = Annotated[
    list[str],
    typer.Option(
        "--input",
        help="NAME=SHARD: what the query calls a shard (its id, or a relation's name); "
        "NAME alone if they are the same. Repeat it for each.",
    ),
]
Dialect = Annotated[str, typer.Option(help="Of the query: postgres or spark.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead.")]


@app.command()
def run(
    sql: Sql,
    input_: Input,
    output: Annotated[str, typer.Option(help="The shard that holds the view; made if missing.")],
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    once: Annotated[
        bool, typer.Option("--once", help="Up to where the inputs are now, then stop.")
    ] = False,
    as_of: Annotated[
        str,
        typer.Option(help="Where a new view begins: a time, `earliest` or `latest`."),
    ] = "earliest",
    dialect: Dialect = "postgres",
    spark_master: Annotated[str, typer.Option(help="Where Spark runs its jobs.")] = "local[*]",
    cache: Annotated[
        Path | None, typer.Option(help="Folder for arrangements; default: below --data.")
    ] = None,
    json: Json = False,
) -> None:
    """Maintain a view until Ctrl-C or SIGTERM; the same command goes on where it was.

    While the view exists its inputs stay readable from where it is, whether it runs or not, and
    so keep history: `tidemark view drop` ends that.
    """
    with reporting(), ExitStack() as stack:
        where = locate(data, blob, consensus)
        client = open_client(where)
        stack.callback(client.close)
        inputs = _inputs(client, input_)
        _check_output(output)

        from tidemark.compute.definition import define
        from tidemark.compute.library import Maintained
        from tidemark.spark.compact import large_merges
        from tidemark.spark.session import start_spark, stop_spark

        # All that is refused is refused before Spark starts.
        query, definition = define(
            client, _text(sql), inputs, output, dialect=dialect, as_of=_as_of(as_of)
        )
        for name in sorted(inputs.keys() - query.inputs.keys()):
            warn(f"the query does not read {name}")
        stop = threading.Event()
        _listen(stop)
        spark = start_spark(master=spark_master, app=f"tidemark-view-{output}", blob=where.blob)
        stack.callback(stop_spark, spark)
        _listen(stop)  # Spark has taken Ctrl-C for itself.
        client.start_maintenance(large=large_merges(spark, client))
        folder = cache or (data / "cache" if data is not None else None)
        with Maintained(
            query, definition, client=client, spark=spark, cache=folder, report=_spark_line()
        ) as view:
            _run(view, once=once, stop=stop)
            found = view.statistics
        if json:
            print_json({"output": output, **_document(found)})
        else:
            print(f"{output}: complete to {found.lower}, {found.ticks} ticks")


@app.command()
def explain(
    sql: Sql,
    input_: Input,
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    dialect: Dialect = "postgres",
) -> None:
    """The plan of a query, what would be kept for it, and the Spark SQL of a tick."""
    with reporting(), ExitStack() as stack:
        client = open_client(locate(data, blob, consensus))
        stack.callback(client.close)
        inputs = _inputs(client, input_)

        from tidemark.compute.definition import planned
        from tidemark.control.explain import delta_lines, plan_lines

        query = planned(client, _text(sql), inputs, dialect=dialect)
        lines = [*plan_lines(query.plan, query.names), "", *delta_lines(query.plan, query.names)]
        print("\n".join(lines))


@app.command("list")
def list_(
    data: Data = None, blob: Blob = None, consensus: Consensus = None, json: Json = False
) -> None:
    """The views there are: how far they and their inputs have come."""
    with reporting(), ExitStack() as stack:
        client = open_client(locate(data, blob, consensus))
        stack.callback(client.close)

        from tidemark.compute.definition import all_defined

        rows = [
            {
                "output": each.output,
                "upper": client.state(each.output).upper.time,
                "inputs": {
                    name: {"shard": shard, "upper": client.state(shard).upper.time}
                    for name, shard in each.inputs.items()
                },
                "sql": " ".join(each.sql.split()),
            }
            for each in all_defined(client)
        ]
        if json:
            print_json({"views": rows})
            return
        shown = [
            (
                row["output"],
                frontier(row["upper"]),
                ", ".join(
                    f"{n}={i['shard']} {frontier(i['upper'])}" for n, i in row["inputs"].items()
                ),
                row["sql"],
            )
            for row in rows
        ]
        print_table(("output", "upper>", "inputs", "query"), shown)


@app.command()
def verify(
    output: Annotated[str, typer.Argument(help="The shard that holds the view.")],
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    as_of: Annotated[
        int | None, typer.Option(help="At this time; default: the newest that can be read.")
    ] = None,
    spark_master: Annotated[str, typer.Option(help="Where Spark runs its jobs.")] = "local[*]",
    json: Json = False,
) -> None:
    """Recompute a view with plain Spark SQL and compare; exit code 1 if it is not the same.

    The view need not be running, and nothing is changed.
    """
    with reporting(), ExitStack() as stack:
        where = locate(data, blob, consensus)
        client = open_client(where)
        stack.callback(client.close)

        from tidemark.compute import definition
        from tidemark.compute.library import verify_view
        from tidemark.compute.verify import differences, verdict_line
        from tidemark.spark.session import start_spark, stop_spark

        definition.found(client, output)  # Before Spark starts.
        spark = start_spark(master=spark_master, app=f"tidemark-verify-{output}", blob=where.blob)
        stack.callback(stop_spark, spark)
        found = verify_view(output, client=client, spark=spark, as_of=as_of, report=_spark_line())
        wrong = differences(found)
        if json:
            numbers = {name: getattr(found, name) for name in _VERDICT}
            print_json({"output": output, **numbers, "differences": wrong.to_pylist()})
        else:
            if wrong.num_rows:
                rows = (row.values() for row in wrong.to_pylist())
                print_table(wrong.column_names, rows)
            print(f"{output}: {verdict_line(found)}")
        if found.verdict == "different":
            raise typer.Exit(FAILED)


_VERDICT = ("as_of", "verdict", "rows", "missing", "unexpected")


@app.command()
def drop(
    output: Annotated[str, typer.Argument(help="The shard that holds the view.")],
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    with_output: Annotated[
        bool, typer.Option("--with-output", help="Its rows, too; the shard's name is then used up.")
    ] = False,
) -> None:
    """End a view: release what it holds, drop what it keeps. Its rows stay as they are."""
    with reporting(), ExitStack() as stack:
        client = open_client(locate(data, blob, consensus))
        stack.callback(client.close)

        from tidemark.compute import definition

        definition.drop(client, output, with_output=with_output)
        print(f"{output}: dropped" + ("" if with_output else "; its rows stay"))


# What is given.


def _inputs(client: PersistClient, given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, _, shard = each.partition("=")
        if not name or each.endswith("="):
            raise InvalidUsage(f"not an input: {each!r}", hint="use --input NAME=SHARD")
        if name in found:
            raise InvalidUsage(f"two inputs are called {name}")
        found[name] = resolve(client, shard or name)
    return found


def _text(sql: str) -> str:
    if sql == "-":
        return sys.stdin.read()
    if any(mark in sql for mark in " \n"):
        return sql
    if not Path(sql).is_file():
        raise InvalidUsage(f"{sql!r} is neither a query nor a file", hint="quote the query")
    return Path(sql).read_text()


def _as_of(text: str) -> AsOf:
    if text == "earliest" or text == "latest":
        return text
    if not text.isdecimal():
        raise InvalidUsage(f"--as-of {text!r} is not a time", hint="a number, earliest or latest")
    return int(text)


def _check_output(output: str) -> None:
    from tidemark.control.catalog import is_ours

    if is_ours(output):
        raise InvalidUsage(
            f"shard {output} is the server's, or may become so", hint="choose another name"
        )


# Running.


def _listen(stop: threading.Event) -> None:
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())


def _run(view: Maintained, *, once: bool, stop: threading.Event) -> None:
    """The view in a thread of its own, so that this one can listen, and cancel a long job."""
    from tidemark.spark.session import jvm_of

    failures: list[BaseException] = []
    said = _Said(view.definition.output)

    def body() -> None:
        try:
            if once:
                view.catch_up(stop=stop, on_tick=said)
            else:
                view.run(stop=stop, on_tick=said)
        except BaseException as error:
            failures.append(error)

    spark, clock = view.spark, view.client.clock
    jvm = jvm_of(spark)
    said.begin(view)
    thread = threading.Thread(target=body, name="view", daemon=True)
    thread.start()
    stopped_at: float | None = None
    while thread.is_alive():
        thread.join(0.1)
        if jvm.poll() is not None:
            said.end()
            failed("Spark's JVM is gone", "the same command goes on where it was", FAILED)
            os._exit(FAILED)  # To close anything would be to ask the JVM.
        if stop.is_set():
            stopped_at = stopped_at or clock.monotonic()
            waited = clock.monotonic() - stopped_at
            if waited > CANCEL_AFTER:
                spark.sparkContext.cancelAllJobs()
            if waited > GIVE_UP_AFTER:  # Nothing is lost: it is as after a crash.
                said.end()
                os._exit(0)
    said.end()
    if failures and not stop.is_set():
        raise failures[0]


class _Said:
    """What is said of a view while it runs: a line that changes on a terminal, else lines."""

    def __init__(self, output: str):
        self._output = output
        self._terminal = sys.stderr.isatty()
        self._ticks = 0
        self._begun = False

    def begin(self, view: Maintained) -> None:
        states = [view.client.state(shard) for shard in view.query.inputs.values()]
        updates = sum(state.rows for state in states)
        self._say(f"starting, {updates:,} stored updates in {', '.join(view.query.inputs)}")

    def __call__(self, now: Statistics) -> None:
        if not self._begun:
            self._begun = True
            self._say(f"hydrated, complete to {now.lower}, inputs to {now.inputs}")
        elif self._terminal or now.ticks > self._ticks:
            self._say(f"complete to {now.lower}, inputs to {now.inputs}, tick {now.ticks}")
        self._ticks = now.ticks

    def end(self) -> None:
        if self._terminal:
            from tidemark.spark.progress import terminal

            terminal.say(self._output, None)

    def _say(self, text: str) -> None:
        line = f"{self._output}: {text}"
        if self._terminal:
            from tidemark.spark.progress import terminal

            terminal.say(self._output, line)
        else:
            print(line, file=sys.stderr, flush=True)


def _spark_line():
    """Spark's progress among our lines; on a terminal it has one of its own."""
    from tidemark.spark.progress import default_report

    def plain(found: Progress) -> None:
        print(found, file=sys.stderr, flush=True)

    return default_report() if sys.stderr.isatty() else plain


def _document(found: Statistics) -> dict[str, object]:
    return {
        "as_of": found.as_of,
        "lower": found.lower.time,
        "inputs": found.inputs.time,
        "ticks": found.ticks,
        "hydrated": found.hydrated,
    }
