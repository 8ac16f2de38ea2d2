"""The SQL logic tests of tests/slt: every query on PostgreSQL, on Tidemark, and as a view there.

`REWRITE=1 pytest …` records results anew, and they are PostgreSQL's: Tidemark's own only where a
record says `onlyif tidemark`. See slt_runner.py for the format and slt_views.py for the views.

A view over one table costs next to nothing beside others, but what groups, joins or nests has state
of its own, about half a second each. Of the files of those a part is chosen (by `SLT_SEED=n`, 0 if
nothing is said) to be views and to be asked alone; the others are asked many at a time. `make soak`
has all of them alone and as views.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import psycopg
import pytest
from serving import Serving

from services import PostgresServer
from slt_runner import ENGINES, Engine, Record, Run, parse, recorded, unparse
from slt_views import Views

FILES = sorted((Path(__file__).parents[1] / "slt").glob("*.slt"))
REWRITE = bool(os.environ.get("REWRITE"))
LEAST_QUERIES = 2_000
STATEFUL = ("aggregates", "joins", "queries", "subqueries", "types", "windows")
SHARE = 0.06
"""Of the queries in those files that are views in one run."""


@pytest.fixture(scope="module")
def slt_database(postgres_server: PostgresServer) -> str:
    """A database that orders texts by their bytes but knows what an é is; its address."""
    with psycopg.connect(postgres_server.uri(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS slt")
        connection.execute(
            "CREATE DATABASE slt TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
        )
    return f"{postgres_server.uri().rpartition('/')[0]}/slt"


@pytest.fixture
def postgres(slt_database: str) -> Iterator[Engine]:
    """Whatever a file makes is gone with it."""
    with psycopg.connect(slt_database, autocommit=True) as connection:
        connection.execute("SET timezone TO 'UTC'")
        connection.execute("CREATE SCHEMA slt")
        connection.execute("SET search_path TO slt")
        yield Engine("postgresql", connection)
        connection.execute("DROP SCHEMA slt CASCADE")


@pytest.fixture
def tidemark(server: Serving) -> Iterator[Engine]:
    with server.connect() as connection:
        yield Engine("tidemark", connection)


def test_there_are_enough_queries():
    queries = [record for path in FILES for record in read(path) if record.kind == "query"]
    everywhere = [each for each in queries if all(each.runs_on(engine) for engine in ENGINES)]
    assert len(everywhere) >= LEAST_QUERIES
    texts = {record.sql for record in queries}
    assert len(texts) == len(queries), "a query that is there twice proves nothing new"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_postgres(path: Path, postgres: Engine, request: pytest.FixtureRequest):
    records = read(path)
    if REWRITE:
        alone = any(record.only == {"tidemark"} for record in records if record.kind == "query")
        tidemark = request.getfixturevalue("tidemark") if alone else None
        path.write_text(unparse(recorded(records, postgres, tidemark)))
        return
    run = Run(postgres)
    for record in records:
        run.step(record)
    check(run)


@pytest.mark.skipif(REWRITE, reason="results are recorded from PostgreSQL")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_tidemark(path: Path, tidemark: Engine):
    seed = int(os.environ.get("SLT_SEED") or 0)
    print(f"replay with SLT_SEED={seed}")
    on_tidemark(path, tidemark, random.Random(f"{seed} {path.stem}"))


@pytest.mark.soak
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_view(path: Path, tidemark: Engine):
    on_tidemark(path, tidemark, None)


def on_tidemark(path: Path, tidemark: Engine, draw: random.Random | None) -> None:
    """Each query asked once and as a view; the views are there before the rows are."""
    records = read(path)
    few = draw is not None and path.stem in STATEFUL
    queries = [record for record in records if record.kind == "query"]
    chosen = {each.line for each in queries if not few or (draw and draw.random() < SHARE)}
    asked = Run(tidemark)
    kept = Run(Engine("view", tidemark.connection))
    views = Views(f"slt_{path.stem}", kept)
    together = Views(f"slt_{path.stem}_asked", asked, maintained=False)
    # Only what is asked alone can show its order.
    alone = chosen | {each.line for each in queries if each.sort == "nosort"}
    made = False
    for is_query, phase in groupby(records, key=lambda record: record.kind == "query"):
        batch = list(phase)
        for record in batch:
            if not made and (is_query or changes_rows(record)):
                made = True
                views.make(phases(records, "view", chosen))
                rest = {each.line for each in queries} - alone
                together.make(phases(records, "tidemark", rest))
            if not is_query or record.line in alone:
                asked.step(record)
        if is_query:
            views.check(batch)
            together.check(batch)
    views.drop()
    together.drop()
    for table in tables_of(records):
        tidemark.execute(f"DROP TABLE {table}")
    check(asked)
    check(kept)


def read(path: Path) -> list[Record]:
    return parse(path.read_text())


def check(run: Run) -> None:
    assert not run.problems, f"{len(run.problems)} problems:\n\n" + "\n\n".join(run.problems)


def phases(records: list[Record], engine: str, lines: set[int]) -> list[list[Record]]:
    """Some of the queries, those together that see the tables in one state."""
    return [
        [record for record in batch if record.runs_on(engine) and record.line in lines]
        for is_query, batch in groupby(records, key=lambda record: record.kind == "query")
        if is_query
    ]


def changes_rows(record: Record) -> bool:
    return record.sql.split(" ", 1)[0].upper() in ("INSERT", "UPDATE", "DELETE")


def tables_of(records: list[Record]) -> list[str]:
    return [
        record.sql.split()[2]
        for record in records
        if record.sql.upper().startswith("CREATE TABLE") and record.runs_on("tidemark")
    ]
