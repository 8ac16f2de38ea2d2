"""Queries of the catalog: PostgreSQL's SQL in, rows in PostgreSQL's types out; no cluster needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from tidemark.control.catalog import CLUSTER, ClusterItem, Item
from tidemark.control.coordinator import Coordinator
from tidemark.control.parse import parse
from tidemark.control.pg import engine
from tidemark.control.pg.messages import explained_error
from tidemark.control.pgwire import Param, Rows
from tidemark.control.session import Session
from tidemark.control.statements import Select
from tidemark.errors import TidemarkError, TooLarge
from tidemark.persist import PersistClient
from tidemark.types import INTEGER, OID, TEXT, Column, array_of, numeric

COLUMNS = (Column("id", INTEGER, False), Column("Name", TEXT), Column("price", numeric(10, 2)))
ITEMS = (
    Item("u1", "orders", "table", "CREATE TABLE orders ...", COLUMNS, shard="u1"),
    Item("u2", "large", "view", "CREATE VIEW large AS SELECT id FROM orders", COLUMNS[:1]),
    Item("u3", "by_id", "index", "...", key=("id", "Name"), depends=("u1",)),
    Item("u4", "broker", "connection", "..."),
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PersistClient]:
    blob, consensus = f"file://{tmp_path / 'blob'}", f"sqlite://{tmp_path / 'consensus.db'}"
    opened = PersistClient.open(blob=blob, consensus=consensus)
    yield opened
    opened.close()


def asked(client: PersistClient, folder: Path, sql: str, *params: str | None) -> list[dict]:
    """The rows of a query, with the names of their columns."""
    return asyncio.run(_asked(client, folder, sql, params))[1]


def columns(client: PersistClient, folder: Path, sql: str) -> list[Column]:
    return asyncio.run(_asked(client, folder, sql, ()))[0]


async def _asked(client: PersistClient, folder: Path, sql: str, params: tuple):
    async with _session(client, folder) as session:
        prepared = await session.prepare(sql, (0,) * len(params))
        bound = tuple(
            Param(value, oid) for value, oid in zip(params, prepared.param_oids, strict=True)
        )
        result = await session.execute(prepared, bound)
        assert isinstance(result, Rows)
        assert result.columns == prepared.columns
        rows = [row async for batch in result.batches for row in batch.to_pylist()]
        return list(result.columns), rows


@asynccontextmanager
async def _session(client: PersistClient, folder: Path) -> AsyncIterator[Session]:
    coordinator = Coordinator(client, data=folder, blob="", consensus="", spark_master="local[1]")
    missing = [item for item in ITEMS if item.id not in coordinator.catalog.items]
    coordinator.catalog.add(*missing)
    # A cluster without replicas: nothing else could answer.
    coordinator.catalog.set_cluster(ClusterItem("s1", CLUSTER))
    coordinator.clusters.start(coordinator.catalog.clusters, {})
    session = Session(coordinator, user="tidemark", database="tidemark", options={})
    try:
        yield session
    finally:
        await session.close()
        await coordinator.clusters.stop()
        coordinator.engine.close()


def values(client: PersistClient, folder: Path, sql: str, *params: str | None) -> list[tuple]:
    return [tuple(row.values()) for row in asked(client, folder, sql, *params)]


QUERIES = {
    "SELECT relname, relkind FROM pg_class WHERE relnamespace = 2200 ORDER BY oid": [
        ("orders", "r"),
        ("large", "v"),
        ("by_id", "i"),
    ],
    "SELECT pg_catalog.pg_class.oid FROM pg_catalog.pg_class WHERE relname = 'orders'": [(16385,)],
    "SELECT c.oid FROM tidemark.pg_catalog.pg_class AS C WHERE C.RelName = 'large'": [(16386,)],
    "SELECT relname FROM pg_class WHERE relname OPERATOR(pg_catalog.~) '^(ord.*)$'"
    " COLLATE pg_catalog.default": [("orders",)],
    "SELECT relname FROM pg_class WHERE oid = '16385'": [("orders",)],
    "SELECT typname FROM pg_type WHERE oid = ANY (ARRAY[23, 25]) ORDER BY 1": [
        ("int4",),
        ("text",),
    ],
    "SELECT typname FROM pg_type WHERE oid = ANY ('{23,25}'::oid[]) ORDER BY 1": [
        ("int4",),
        ("text",),
    ],
    "SELECT typname FROM pg_type WHERE oid = ANY ('{23}')": [("int4",)],
    "SELECT array(SELECT nspname FROM pg_namespace WHERE oid < 3000 ORDER BY 1)": [
        ('["pg_catalog","public"]',)
    ],
    "SELECT a.attname, (i.keys).n FROM pg_attribute a JOIN (SELECT indrelid,"
    " information_schema._pg_expandarray(indkey) AS keys FROM pg_index) i"
    " ON a.attnum = (i.keys).x AND a.attrelid = i.indrelid ORDER BY 2": [("id", 1), ("Name", 2)],
    "SELECT indkey, unnest(indkey), pg_get_indexdef(indexrelid) FROM pg_index LIMIT 1": [
        ("1 2", 1, 'CREATE INDEX by_id ON public.orders USING btree (id, "Name")')
    ],
    "SELECT pg_get_indexdef(indexrelid, 2, true) FROM pg_index": [('"Name"',)],
    "SELECT array_length(indkey, 1) AS n, array_length(indkey, 2), array_upper(indkey, 2),"
    " array_lower(indkey, 0) FROM pg_index": [(2, None, None, None)],
    "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 16385": [
        ("integer",),
        ("text",),
        ("numeric(10,2)",),
    ],
    "SELECT pg_get_viewdef('large'::regclass)": [(" SELECT id FROM orders;",)],
    "SELECT pg_get_viewdef('large')": [(" SELECT id FROM orders;",)],
    "SELECT tableoid = 'pg_class'::regclass FROM pg_class LIMIT 1": [(True,)],
    "WITH names AS (SELECT relname FROM pg_class) SELECT count(*) FROM names"
    " WHERE relname = 'orders'": [(1,)],
    "SELECT current_user, current_schema(), pg_catalog.current_database() FROM pg_am LIMIT 1": [
        ("tidemark", "public", "tidemark")
    ],
    "SELECT relname FROM pg_class WHERE relname LIKE 'o%' AND pg_table_is_visible(oid)": [
        ("orders",)
    ],
    "SELECT 'mz_objects'::regclass AS a, 'pg_class'::regclass AS b": [
        ("mz_catalog.mz_objects", "pg_class")
    ],
    r"SELECT relname FROM pg_class WHERE relname LIKE 'by\_%'": [("by_id",)],
    "SELECT relname FROM pg_class WHERE relname ILIKE 'BY/_%' ESCAPE '/'": [("by_id",)],
    "SELECT t.x, t.n FROM pg_index i, unnest(i.indkey, i.indoption) WITH ORDINALITY"
    " AS t(x, y, n) ORDER BY n": [(1, 1), (2, 2)],
    "SELECT s[i] FROM generate_series(1, 2) AS i, string_to_array('a,b', ',') AS s, pg_am"
    " WHERE amname = 'heap' ORDER BY i": [("a",), ("b",)],
    "SELECT n.nspname AS n, count(*) FROM pg_namespace n WHERE oid = 11 GROUP BY n ORDER BY n": [
        ("pg_catalog", 1)
    ],
    "SELECT avg(CASE WHEN relname LIKE (SELECT min(amname) FROM pg_am WHERE amname LIKE 'h%')"
    " THEN 1 ELSE 3 END) AS a FROM pg_class WHERE oid = 16385": [(Decimal(3),)],
    "SELECT to_regclass((SELECT 'orders'::regclass::text))::text AS a": [("orders",)],
    "SELECT name FROM mz_objects WHERE type = 'connection'": [("broker",)],
    "SELECT pg_typeof(1.5) AS a, pg_typeof(NULL) AS b, pg_typeof(1::double precision) AS c,"
    " pg_typeof('a') AS d, pg_typeof(now()::timestamp) AS e, pg_typeof(ARRAY['a']) AS f,"
    " pg_typeof(sum(1)) AS g, pg_typeof(1::oid) AS h": [
        (
            *("numeric", "unknown", "double precision", "text"),
            *("timestamp without time zone", "text[]", "numeric", "oid"),
        )
    ],
    # \deu, \dFp, \dFt and \dAp of psql
    "SELECT count(*) FROM pg_user_mappings, pg_ts_parser, pg_ts_template, pg_amproc": [(0,)],
    "SELECT generate_series(1, 2) FROM pg_am WHERE amname = 'heap'": [(1,), (2,)],
}


@pytest.mark.parametrize("sql", QUERIES)
def test_answers(sql: str, client: PersistClient, tmp_path: Path):
    assert values(client, tmp_path, sql) == QUERIES[sql]


@pytest.mark.parametrize(
    "call", ["cardinality(ARRAY[1])", "array_remove(ARRAY[1, 2], 1)", "quote_literal('a')"]
)
def test_what_views_can_call_is_not_answered_as_duckdb_has_it(
    call: str, client: PersistClient, tmp_path: Path
):
    async def taken() -> bool:
        async with _session(client, tmp_path) as session:
            # DuckDB rounds 2.5 to 3.
            statement = parse(f"SELECT {call}, round(2.5::double precision)")
            assert isinstance(statement, Select)
            return session.catalog_query(statement, ()) is not None

    assert not asyncio.run(taken())


def test_names_and_types_of_columns(client: PersistClient, tmp_path: Path):
    sql = (
        "SELECT oid, relname::text AS Name, count(*) OVER (), 'x'::regclass IS NULL, 1::oid,"
        " array_agg(oid) OVER (), CASE WHEN true THEN 'x' END FROM pg_class"
    ).replace("'x'::regclass", "'orders'::regclass")
    found = [(column.name, column.type) for column in columns(client, tmp_path, sql)]
    names = ["oid", "name", "count", "?column?", "oid", "array_agg", "case"]
    assert [name for name, _ in found] == names
    assert (found[0][1], found[1][1], found[5][1]) == (OID, TEXT, array_of(OID))


def test_parameters(client: PersistClient, tmp_path: Path):
    sql = "SELECT relname FROM pg_class WHERE relname = $1 AND oid = ANY ($2::oid[])"
    assert values(client, tmp_path, sql, "orders", "{16385,1}") == [("orders",)]
    assert values(client, tmp_path, sql, None, None) == []


ERRORS = {
    "SELECT nothing FROM pg_class": ("42703", 'column "nothing" does not exist'),
    "SELECT nothing(1) FROM pg_class": ("42883", "function nothing does not exist"),
    "SELECT 'nothing'::regclass": ("42P01", 'relation "nothing" does not exist'),
    "SELECT current_setting('nothing')": (
        "42704",
        'unrecognized configuration parameter "nothing"',
    ),
    "SELECT 1 / (oid::int - oid::int) FROM pg_class": ("22012", "division by zero"),
    "SELECT 2147483647 + 1 FROM pg_namespace": ("22003", "integer out of range"),
    "SELECT 9223372036854775807 + 1 FROM pg_namespace": ("22003", "bigint out of range"),
    "SELECT 99999999999::int FROM pg_class": ("22003", "integer out of range"),
    "SELECT relname::int FROM pg_class WHERE relname = 'orders'": (
        "22P02",
        'invalid input syntax for type integer: "orders"',
    ),
    "SELECT lpad(1, 2, 3) FROM pg_class": (
        "42883",
        "function lpad(integer, integer, integer) does not exist",
    ),
    "SELECT (SELECT oid FROM pg_type) FROM pg_class": (
        "21000",
        "more than one row returned by a subquery used as an expression",
    ),
    "SELECT * FROM read_text('/etc/hostname'), pg_class": ("0A000", None),
    "SELECT * FROM duckdb_settings(), pg_class": ("0A000", None),
}


@pytest.mark.parametrize("sql", ERRORS)
def test_errors(sql: str, client: PersistClient, tmp_path: Path):
    with pytest.raises(TidemarkError) as caught:
        asked(client, tmp_path, sql)
    state, message = ERRORS[sql]
    assert caught.value.sqlstate == state
    assert message in (None, caught.value.message)


def test_advice_about_duckdb_is_left_out():
    told = explained_error(
        duckdb.InvalidInputException(
            "Invalid Input Error: Bad thing (1 # 0). Use TRY(...), or SET error_on_bad_thing=false."
        )
    )
    assert told.message == "this query of the catalog cannot be answered: Bad thing (1 # 0)"
    assert told.sqlstate == "22023"


def test_what_the_session_answers_keeps_its_name(client: PersistClient, tmp_path: Path):
    sql = "SELECT current_user, session_user, pg_backend_pid(), oid FROM pg_class LIMIT 1"
    found = [column.name for column in columns(client, tmp_path, sql)]
    assert found == ["current_user", "session_user", "pg_backend_pid", "oid"]


def test_a_query_of_the_catalog_in_sparks_dialect(client: PersistClient, tmp_path: Path):
    async def ask() -> list[dict]:
        async with _session(client, tmp_path) as session:
            session.variables.set("dialect", "spark")
            sql = "SELECT nvl(relname, 'x') AS r, count(*) / 2 AS n FROM pg_class GROUP BY relname"
            result = await session.execute(await session.prepare(sql, ()), ())
            assert isinstance(result, Rows)
            return [row async for batch in result.batches for row in batch.to_pylist()]

    assert {"r": "orders", "n": 0.5} in asyncio.run(ask())


def test_a_view_stays_in_its_dialect_for_whoever_comes_next(client: PersistClient, tmp_path: Path):
    query = """SELECT concat("a;b", 'it\\'s') AS n FROM orders"""
    sql = f"CREATE VIEW spoken AS {query}"

    async def create() -> None:
        async with _session(client, tmp_path) as session:
            view = Item("u9", "spoken", "view", sql, (Column("n", TEXT),), dialect="spark")
            session.coordinator.catalog.add(view)

    asyncio.run(create())
    shown = values(client, tmp_path, "SELECT pg_get_viewdef('spoken'::regclass)")
    assert shown == [(f" {query};",)]


def test_max_result_size_is_for_queries_of_the_catalog_too(client: PersistClient, tmp_path: Path):
    async def ask() -> None:
        async with _session(client, tmp_path) as session:
            session.variables.set("max_result_size", "1kB")
            few = await session.prepare("SELECT oid, relname FROM pg_class LIMIT 2", ())
            assert isinstance(await session.execute(few, ()), Rows)
            all_ = await session.prepare("SELECT oid, relname FROM pg_class", ())
            with pytest.raises(TooLarge, match="max_result_size"):
                await session.execute(all_, ())

    asyncio.run(ask())


def test_a_query_that_is_cancelled_when_it_is_through(
    client: PersistClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def ask() -> None:
        async with _session(client, tmp_path) as session:
            prepared = await session.prepare("SELECT name FROM mz_objects", ())
            closed, cancelled = threading.Event(), threading.Event()

            def through(cursor: duckdb.DuckDBPyConnection, *_: object) -> None:
                cursor.close()
                closed.set()
                cancelled.wait(60)

            monkeypatch.setattr(engine, "fetched", through)
            asking = asyncio.create_task(session.execute(prepared, ()))
            assert await asyncio.to_thread(closed.wait, 60)
            asking.cancel()
            cancelled.set()
            with pytest.raises(asyncio.CancelledError):
                await asking

    asyncio.run(ask())


def test_oids_are_of_one_object_each(client: PersistClient, tmp_path: Path):
    for relation in ("pg_class", "pg_type", "pg_namespace"):
        sql = f"SELECT oid FROM {relation} GROUP BY oid HAVING count(*) > 1"
        assert asked(client, tmp_path, sql) == []
