"""Databases, schemas and regions through a real server, and what of them survives it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import Request, urlopen

import msgspec
import psycopg
import pytest
from psycopg.errors import InvalidCatalogName
from serving import DEADLINE, Serving

from tidemark.control.catalog import Catalog
from tidemark.persist import PersistClient


def open_client(data: Path) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{data / 'blob'}", consensus=f"sqlite://{data / 'consensus.db'}"
    )


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Serving]:
    running = Serving(tmp_path / "data", "--account", "acme")
    try:
        yield running
    finally:
        running.destroy()


def connected(server: Serving, database: str) -> psycopg.Connection:
    address = f"host=127.0.0.1 port={server.port} user=tidemark dbname={database}"
    return psycopg.connect(address, autocommit=True)


def test_a_database_to_connect_to(server: Serving, connection: psycopg.Connection):
    connection.execute("CREATE DATABASE hi_d")
    try:
        with connected(server, "hi_d") as there:
            there.execute("CREATE SCHEMA hi_s")
            there.execute("SET search_path = hi_s")
            there.execute("CREATE TABLE hi_t (a int)")
            there.execute("INSERT INTO hi_t VALUES (1)")
            there.execute("CREATE TABLE hi_names (n text)")
            there.execute("INSERT INTO hi_names SELECT tablename FROM pg_tables, hi_t")
            assert there.execute("SELECT n FROM hi_names ORDER BY n").fetchall() == [
                ("hi_names",),
                ("hi_t",),
            ]
            there.execute("BEGIN")
            there.execute("DECLARE c CURSOR FOR SUBSCRIBE hi_t")
            assert [row[1:] for row in there.execute("FETCH 1 c")] == [(1, 1)]
            connection.execute("INSERT INTO hi_d.hi_s.hi_t VALUES (2)")
            assert [row[1:] for row in there.execute("FETCH 1 c")] == [(1, 2)]
            there.execute("ROLLBACK")
        with pytest.raises(InvalidCatalogName):
            connection.execute("SET database = hi_none")
        body = {"query": "SELECT current_database(), a FROM hi_s.hi_t ORDER BY a"}
        request = Request(
            f"{server.http}/api/sql?options=%7B%22database%22%3A%22hi_d%22%7D",
            data=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=DEADLINE) as answer:
            (result,) = msgspec.json.decode(answer.read())["results"]
        assert result["rows"] == [["hi_d", "1"], ["hi_d", "2"]]
    finally:
        connection.execute("DROP DATABASE hi_d")
    with pytest.raises(psycopg.OperationalError, match='database "hi_d" does not exist'):
        connected(server, "hi_d")


def test_all_of_it_is_there_after_a_crash(own: Serving):
    own.start()
    with own.connect() as connection:
        connection.execute("CREATE DATABASE d")
        connection.execute("CREATE SCHEMA d.s")
        connection.execute("CREATE TABLE d.s.t (a int)")
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("CREATE VIEW d.s.v AS SELECT a FROM d.s.t")
        connection.execute("ALTER SCHEMA d.s RENAME TO z")
        connection.execute("INSERT INTO d.z.t VALUES (1), (2)")
        connection.execute("INSERT INTO t VALUES (3)")
        objects = "SELECT o.id, o.name, s.name, d.name FROM mz_objects o JOIN mz_schemas s ON s.id = o.schema_id JOIN mz_databases d ON d.id = s.database_id ORDER BY 1"
        before = connection.execute(objects).fetchall()
        assert [row[1:] for row in before] == [
            ("t", "z", "d"),
            ("t", "public", "tidemark"),
            ("v", "z", "d"),
        ]
    own.kill_all()
    own.start()
    with connected(own, "d") as connection:
        assert connection.execute(objects).fetchall() == before
        assert connection.execute("SELECT * FROM mz_regions").fetchall() == [("acme", "local")]
        connection.execute("INSERT INTO z.t VALUES (4)")
    own.kill_all()
    with closing(open_client(own.data)) as client:
        stored = {row[1:]: row[0] for row in before}
        shard = stored["t", "z", "d"]
        reader = client.open_reader(shard)
        assert reader.upper.time is not None
        assert sorted(reader.snapshot(reader.upper.time - 1)["a"].to_pylist()) == [1, 2, 4]


def test_data_of_another_region_are_refused(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    with closing(open_client(data)) as client:
        Catalog(client).region("acme", "eu")
    command = [sys.executable, "-m", "tidemark.cli", "serve", "--data", str(data), "--no-http"]
    done = subprocess.run(
        [*command, "--listen", "127.0.0.1:0", "--account", "acme", "--region", "us"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode != 0
    assert 'these data belong to region "eu", not "us"' in done.stderr
    assert "leave --region out" in done.stderr
