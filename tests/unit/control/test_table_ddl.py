"""CREATE TABLE with defaults, and of what a query gives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path

import pytest

from session_harness import Client, serving
from tidemark.clock import ManualClock
from tidemark.control.pgwire import CopyIn
from tidemark.errors import SqlError, TidemarkError, Unavailable
from tidemark.persist import MemBlob, MemConsensus, PersistClient
from tidemark.storage.tables import Tables

Body = Callable[[Client], Awaitable[None]]
Run = Callable[[Body], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(body: Body) -> None:
        async def with_client() -> None:
            async with serving(tmp_path) as coordinator:
                client = Client(coordinator)
                await client(
                    "CREATE TABLE t (k int NOT NULL DEFAULT 7, s text DEFAULT 'new', n numeric(10, 2)"
                    " DEFAULT -1.5, b boolean DEFAULT false NOT NULL, x int)"
                )
                await body(client)
                await client.session.close()

        asyncio.run(with_client())

    return run


ALL = "SELECT k, s, n, b, x FROM t"


def test_what_is_not_said_is_the_default(run: Run) -> None:
    async def body(client: Client) -> None:
        await client("INSERT INTO t DEFAULT VALUES")
        await client("INSERT INTO t (x) VALUES (1), (2)")
        await client("INSERT INTO t (x, k) VALUES (3, DEFAULT), (DEFAULT, 4)")
        await client("INSERT INTO t (k, s) VALUES (5, NULL)")
        assert sorted(await client(ALL), key=str) == [
            (4, "new", Decimal("-1.5"), False, None),
            (5, None, Decimal("-1.5"), False, None),
            *((7, "new", Decimal("-1.5"), False, x) for x in (1, 2, 3)),
            (7, "new", Decimal("-1.5"), False, None),
        ]

    run(body)


def test_now_is_one_time_for_all_rows_and_columns(run: Run) -> None:
    async def body(client: Client) -> None:
        await client("CREATE TABLE u (k int, a timestamptz DEFAULT now(), b timestamptz)")
        await client("BEGIN")
        await client("INSERT INTO u (k, b) VALUES (1, now()), (2, now())")
        await client("INSERT INTO u (k, b) VALUES (3, now())")
        await client("COMMIT")
        rows = await client("SELECT a, b FROM u")
        assert len(rows) == 3
        assert len({moment for row in rows for moment in row}) == 1

    run(body)


def test_update_to_default(run: Run) -> None:
    async def body(client: Client) -> None:
        await client("INSERT INTO t VALUES (1, 'a', 2, true, 3)")
        await client("UPDATE t SET s = DEFAULT, x = default, n = 4")
        assert await client(ALL) == [(1, "new", Decimal(4), True, None)]

    run(body)


def test_an_interval_by_default_is_text_as_it_is_printed(run: Run) -> None:
    async def body(client: Client) -> None:
        await client(
            "CREATE TABLE u (k int, s text DEFAULT interval '26 hours', a int[] DEFAULT ARRAY[1, 2], l int)"
        )
        await client("INSERT INTO u VALUES (1)")
        assert await client("SELECT s FROM u") == [("1 day 02:00:00",)]

    run(body)


def test_copy_gives_columns_that_are_left_out_their_defaults(run: Run) -> None:
    async def body(client: Client) -> None:
        session = client.session
        prepared = await session.prepare("COPY t (x, k) FROM STDIN", ())
        copy = await session.execute(prepared, ())
        assert isinstance(copy, CopyIn)

        async def lines():
            yield b"1\t10\n2\t20\n"

        assert (await copy.load(lines())).tag == "COPY 2"
        assert sorted(await client(ALL)) == [
            (10, "new", Decimal("-1.5"), False, 1),
            (20, "new", Decimal("-1.5"), False, 2),
        ]

    run(body)


def test_the_catalog_has_defaults_as_they_were_written(run: Run) -> None:
    async def body(client: Client) -> None:
        assert await client(
            "SELECT column_name, column_default FROM information_schema.columns"
            " WHERE table_name = 't' ORDER BY ordinal_position"
        ) == [("k", "7"), ("s", "'new'"), ("n", "-1.5"), ("b", "false"), ("x", None)]
        assert await client(
            "SELECT a.attname, pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a"
            " JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef"
            " WHERE a.attrelid = 't'::regclass ORDER BY a.attnum"
        ) == [("k", "7"), ("s", "'new'"), ("n", "-1.5"), ("b", "false")]

    run(body)


REFUSED = {
    "k interval DEFAULT '1 month'": ("0A000", "an interval of months cannot be a value"),
    "k int DEFAULT 'abc'": ("22P02", 'invalid input syntax for type integer: "abc"'),
    "k int DEFAULT 1 DEFAULT 2": ("42601", 'multiple default values specified for column "k"'),
    "k int DEFAULT now()": ("42804", 'column "k" is of type integer'),
    "k smallint DEFAULT 70000": ("22003", "smallint out of range"),
    "k int DEFAULT 1 + 1": ("0A000", 'DEFAULT of column "k" is to be computed'),
    "k int, l int DEFAULT k": ("42703", 'column "k" does not exist'),
    "k int DEFAULT (SELECT 1)": ("0A000", "subqueries in expressions"),
    "k int DEFAULT count(*)": ("42803", "aggregate functions are not allowed in DEFAULT"),
    "k int DEFAULT 1 FROM t": ("42601", "syntax error at or near"),
    "k int DEFAULT 1 WHERE true": ("42601", "syntax error at or near"),
    "k int DEFAULT , l int": ("42601", 'syntax error at or near ","'),
}


@pytest.mark.parametrize("columns", REFUSED)
def test_a_default_that_is_none_is_refused_when_the_table_is_made(run: Run, columns: str) -> None:
    async def body(client: Client) -> None:
        with pytest.raises(TidemarkError) as caught:
            await client(f"CREATE TABLE u ({columns})")
        sqlstate, message = REFUSED[columns]
        assert caught.value.sqlstate == sqlstate
        assert caught.value.message.startswith(message)

    run(body)


def test_a_table_of_what_a_query_gives(run: Run) -> None:
    async def body(client: Client) -> None:
        await client("INSERT INTO t (k) VALUES (1), (2)")
        assert await client("CREATE TABLE u AS SELECT k, s FROM t") == "SELECT 2"
        assert sorted(await client("SELECT * FROM u")) == [(1, "new"), (2, "new")]
        await client("INSERT INTO u VALUES (3, 'x')")
        assert await client("SELECT s FROM u WHERE k = 3") == [("x",)]
        (shown,) = await client("SHOW CREATE TABLE u")
        assert shown[1] == "CREATE TABLE tidemark.public.u (k integer, s text)"
        await client("CREATE SCHEMA s")
        await client("CREATE TABLE s.u AS SELECT 1 AS k")
        (shown,) = await client("SHOW CREATE TABLE s.u")
        assert shown[1] == "CREATE TABLE tidemark.s.u (k integer)"

    run(body)


def test_numbers_that_only_doubles_can_hold(run: Run) -> None:
    async def body(client: Client) -> None:
        await client("CREATE TABLE u (k int, f double precision DEFAULT 1e300)")
        await client("INSERT INTO u (k) VALUES (1)")
        await client("INSERT INTO u VALUES (2, -2e300)")
        await client("UPDATE u SET f = -3e-300 WHERE k = 2")
        assert await client("SELECT f FROM u ORDER BY k") == [(1e300,), (-3e-300,)]

    run(body)


def test_names_options_and_no_data(run: Run) -> None:
    async def body(client: Client) -> None:
        created = "CREATE TABLE u (a) WITH (RETAIN HISTORY FOR '1 hour') AS VALUES (1, 'x') WITH"
        assert await client(f"{created} NO DATA") == "CREATE TABLE AS"
        assert await client("SELECT a, column2 FROM u") == []
        assert await client("SHOW CREATE TABLE u") == [
            (
                "u",
                "CREATE TABLE tidemark.public.u (a integer, column2 text)"
                " WITH (RETAIN HISTORY FOR '1 hour')",
            )
        ]
        with pytest.raises(SqlError, match='relation "u" already exists'):
            await client(f"{created} DATA")
        skipped = "CREATE TABLE IF NOT EXISTS u AS SELECT 1 AS a"
        assert await client(skipped) == "CREATE TABLE AS"
        notices = [each.message for each in client.session.notices()]
        assert notices == ['relation "u" already exists, skipping']

    run(body)


NOT_OF_A_QUERY = {
    "CREATE TABLE u (a, b) AS SELECT 1": ("42601", "too many column names were specified"),
    "CREATE TABLE u AS SELECT 1, 2": ("42701", 'column "?column?" specified more than once'),
    "CREATE TABLE u AS SELECT oid FROM pg_class": ("0A000", "no table can have columns of type"),
    "CREATE TABLE u AS SELECT k FROM nowhere": ("42P01", 'relation "nowhere" does not exist'),
}


@pytest.mark.parametrize("sql", NOT_OF_A_QUERY)
def test_what_no_table_can_be_made_of(run: Run, sql: str) -> None:
    async def body(client: Client) -> None:
        with pytest.raises(TidemarkError) as caught:
            await client(sql)
        sqlstate, message = NOT_OF_A_QUERY[sql]
        assert (caught.value.sqlstate, caught.value.message[: len(message)]) == (sqlstate, message)
        assert await client("SELECT 1 FROM pg_class WHERE relname = 'u'") == []

    run(body)


def test_rows_that_cannot_be_written_leave_no_table(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(self: Tables, writes, **_: int) -> int:
        raise Unavailable("the disk is full")

    async def body(client: Client) -> None:
        tables = client.session.coordinator.timeline.tables
        before = dict(tables._tables)
        with monkeypatch.context() as patched:
            patched.setattr(Tables, "commit", unavailable)
            with pytest.raises(Unavailable, match="the disk is full"):
                await client("CREATE TABLE u AS SELECT 1 AS a")
        assert tables._tables == before
        assert await client("CREATE TABLE u AS SELECT 2 AS a") == "SELECT 1"
        assert await client("SELECT a FROM u") == [(2,)]

    run(body)


def test_a_crash_before_the_table_is_in_the_catalog_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = PersistClient(MemBlob(), MemConsensus(), clock=ManualClock(100_000))

    async def dies() -> None:
        async with serving(tmp_path, client=stores) as coordinator:
            monkeypatch.setattr(coordinator, "_add", _die)
            with pytest.raises(_Died):
                await Client(coordinator)("CREATE TABLE u AS SELECT 1 AS a")

    async def starts_again() -> None:
        async with serving(tmp_path, client=stores) as coordinator:
            await asyncio.to_thread(coordinator._sweep)
            assert stores.state("u1").is_tombstone
            client = Client(coordinator)
            assert await client("CREATE TABLE u AS SELECT 2 AS a") == "SELECT 1"
            assert await client("SELECT a FROM u") == [(2,)]

    asyncio.run(dies())
    assert not stores.state("u1").is_tombstone
    asyncio.run(starts_again())


class _Died(Exception):
    """Of the process, as far as it knows."""


async def _die(*_: object) -> None:
    raise _Died
