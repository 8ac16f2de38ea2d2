"""`tidemark shard`: the commands. What they do is in the modules beside; here is what they take.

Imports wait until a command runs: `tidemark --help` must not load Arrow.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.errors import InvalidUsage
from tidemark.tools.location import locate, open_client, resolve, sql_names
from tidemark.tools.output import (
    FAILED,
    TRUNCATED,
    UNCHECKED,
    counted,
    duration_ms,
    print_json,
    progress,
    reporting,
    warn,
    without_pandas,
)

if TYPE_CHECKING:
    from tidemark.persist import PersistClient

app = typer.Typer(
    help="Look at stored shards, merge them, collect garbage, check them. Needs no server, and "
    "works beside a running one.",
    no_args_is_help=True,
)

Data = Annotated[Path | None, typer.Option(help="The folder that `tidemark serve` uses.")]
Blob = Annotated[str | None, typer.Option(help="Blob URI, if not below --data.")]
Consensus = Annotated[str | None, typer.Option(help="Consensus URI, if not below --data.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")]
Shard = Annotated[str, typer.Argument(help="Id of a shard, or name of a relation.")]
MaybeShard = Annotated[str | None, typer.Argument(help="Id of a shard, or name of a relation.")]
All = Annotated[bool, typer.Option("--all", help="Every shard there is.")]


@app.command("list")
def list_(
    pattern: Annotated[
        str | None, typer.Argument(help="Beginning of an id or a relation's name, or a glob.")
    ] = None,
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    all_: Annotated[bool, typer.Option("--all", help="Dropped shards, too.")] = False,
    sort: Annotated[str, typer.Option(help="id, name, updates, bytes, batches, ...")] = "id",
    json: Json = False,
) -> None:
    """All shards: how far they have come, how large they are, who holds them."""
    with reporting():
        without_pandas()
        from tidemark.tools.describe import listed, print_list

        client = open_client(locate(data, blob, consensus))
        rows = listed(client, pattern=pattern, dropped=all_, sort=sort)
        print_json({"shards": rows}) if json else print_list(rows)
        client.close()


@app.command()
def inspect(
    shard: Shard,
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    parts: Annotated[bool, typer.Option("--parts", help="Every part with statistics.")] = False,
    json: Json = False,
) -> None:
    """Everything about one shard's state: schemas, batches, holds, writers, log."""
    with reporting():
        without_pandas()
        from tidemark.tools.describe import inspected, print_inspected

        client = open_client(locate(data, blob, consensus))
        shard_id = resolve(client, shard)
        name = sql_names(client).get(shard_id)
        found = inspected(client, shard_id, name=name, parts=parts)
        print_json(found) if json else print_inspected(found)
        client.close()


@app.command()
def snapshot(
    shard: Shard,
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    as_of: Annotated[str, typer.Option(help="A time, or `latest`: the newest one.")] = "latest",
    columns: Annotated[str | None, typer.Option(help="Only these: a,b,c.")] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option("--filter", help='Only rows like "price > 100"; repeat it to add more.'),
    ] = None,
    errors: Annotated[
        bool, typer.Option("--errors", help="Only rows in error: their keys, what is wrong.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=0, help="Rows at most; a table: 100.")] = None,
    format_: Annotated[
        str, typer.Option("--format", help="table, json, csv, arrow or parquet.")
    ] = "table",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
    json: Json = False,
) -> None:
    """The shard's contents at one time. Exits with 3 if --limit left rows out."""
    with reporting():
        from tidemark.tools.snapshot import FORMATS, query, write

        chosen = "json" if json else format_
        if chosen not in FORMATS:
            raise InvalidUsage(f"no format {chosen!r}", hint=f"formats: {', '.join(FORMATS)}")
        client = open_client(locate(data, blob, consensus))
        shard_id = resolve(client, shard)
        names = [name.strip() for name in columns.split(",")] if columns else None
        found = query(
            client, shard_id, as_of=as_of, columns=names, filters=filter_ or [], errors=errors
        )
        more = write(found, shard_id=shard_id, format=chosen, limit=limit, output=output)
        found.chunks.close()  # Gives its lease up.
        client.close()
        if found.errors and not errors:
            are = "is" if found.errors == 1 else "are"
            warn(f"{counted(found.errors, 'row')} {are} in error; --errors shows only those")
        if more:
            warn("there are more rows; --limit sets how many are shown")
            raise typer.Exit(TRUNCATED)


@app.command()
def history(
    shard: Shard,
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="And new ones as they come.")
    ] = False,
    json: Json = False,
) -> None:
    """The versions still in the shard's log: when, by which command, what changed.

    --follow with --json prints one document a line.
    """
    with reporting():
        import msgspec

        from tidemark.tools import history as log

        client = open_client(locate(data, blob, consensus))
        shard_id = resolve(client, shard)
        if follow:
            for row in log.follow(client, shard_id, 0):
                print(msgspec.json.encode(row).decode() if json else log.line(row), flush=True)
        else:
            rows = log.versions(client, shard_id)
            print_json({"shard": shard_id, "versions": rows}) if json else log.print_versions(rows)
        client.close()


@app.command()
def compact(
    shard: MaybeShard = None,
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    all_: All = False,
    full: Annotated[bool, typer.Option("--full", help="Into one batch, even if not due.")] = False,
    on_spark: Annotated[
        bool, typer.Option("--spark", help="Into one batch, by the tasks of a Spark job.")
    ] = False,
    spark_master: Annotated[
        str | None, typer.Option(help="Implies --spark; local[*] if not given.")
    ] = None,
    json: Json = False,
) -> None:
    """Merge batches until nothing is due."""
    with reporting(), ExitStack() as stack:
        from tidemark.tools.upkeep import merge, print_merged

        where = locate(data, blob, consensus)
        client = open_client(where)
        shards = _chosen(client, shard, all_)
        spark = None
        if on_spark or spark_master is not None:
            from tidemark.spark.session import start_spark

            spark = start_spark(
                master=spark_master or "local[*]", app="tidemark-compact", blob=where.blob
            )
            stack.callback(spark.stop)
        with progress("merging", quiet=json) as moved:
            rows = [
                merge(client, each, full=full or spark is not None, progress=moved, spark=spark)
                for each in shards
            ]
        print_json({"shards": rows}) if json else print_merged(rows)
        client.close()


@app.command()
def gc(
    shard: MaybeShard = None,
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    all_: All = False,
    older_than: Annotated[
        str, typer.Option(help="Parts that nobody appended for so long are given up.")
    ] = "24h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: Json = False,
) -> None:
    """Delete what nobody needs: replaced parts, parts never appended, half-written files."""
    with reporting():
        from tidemark.tools.upkeep import leftovers, print_swept, sweep

        age = duration_ms(older_than)
        client = open_client(locate(data, blob, consensus))
        shards = _chosen(client, shard, all_)
        if age < 3_600_000 and not dry_run:
            warn(f"writers that stage parts for longer than {older_than} will have to do it again")
        rows = []
        with progress("collecting", quiet=json) as moved:
            for at, each in enumerate(shards):
                moved(at, len(shards), each)
                rows.append(sweep(client, each, older_than_ms=age, dry_run=dry_run))
        found = leftovers(client, older_than_ms=age, dry_run=dry_run) if all_ else None
        if json:
            print_json({"shards": rows, "dry_run": dry_run, "leftovers": found})
        else:
            print_swept(rows, found, dry_run=dry_run)
        client.close()


@app.command()
def fsck(
    shard: MaybeShard = None,
    data: Data = None,
    blob: Blob = None,
    consensus: Consensus = None,
    all_: All = False,
    json: Json = False,
) -> None:
    """Check everything that is stored of a shard; changes nothing.

    Exits with 0 if it is clean, 1 if errors were found, 2 if it could not be checked.
    """
    with reporting(UNCHECKED):
        from tidemark.persist import fsck as checking
        from tidemark.tools.upkeep import found_strays, print_reports

        client = open_client(locate(data, blob, consensus))
        reports = []
        for each in _chosen(client, shard, all_):
            with progress(f"checking {each}", quiet=json) as moved:
                reports.append(checking.fsck(client, each, clock=client.clock, progress=moved))
        stray = found_strays(client) if all_ else None
        if json:
            documents = [
                {"id": each.shard_id, "clean": each.is_clean, **_fields(each)} for each in reports
            ]
            strays = None if stray is None else [{"key": k, "bytes": n} for k, n in stray]
            print_json({"shards": documents, "strays": strays})
        else:
            print_reports(reports, stray)
        client.close()
        if not all(report.complete for report in reports):
            raise typer.Exit(UNCHECKED)
        if any(report.errors for report in reports):
            raise typer.Exit(FAILED)


def _fields(report) -> dict[str, object]:
    names = ("complete", "versions", "parts", "rows", "bytes", "findings")
    return {name: getattr(report, name) for name in names}


def _chosen(client: PersistClient, shard: str | None, all_: bool) -> list[str]:
    if (shard is None) != all_:
        raise InvalidUsage("name a shard, or all of them with --all")
    return client.consensus.keys() if shard is None else [resolve(client, shard)]
