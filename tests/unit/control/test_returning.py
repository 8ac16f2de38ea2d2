"""INSERT, UPDATE and DELETE with RETURNING."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from session_harness import Client, serving
from tidemark.control.pgwire import Param, Rows
from tidemark.errors import TidemarkError

Body = Callable[[Client], Awaitable[None]]
Run = Callable[[Body], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(body: Body) -> None:
        async def with_client() -> None:
            async with serving(tmp_path) as coordinator:
                client = Client(coordinator)
                await client("CREATE TABLE t (k int NOT NULL, v int DEFAULT 7, tags text[])")
                await client("INSERT INTO t VALUES (1, 10), (2, 20)")
                await body(client)
                await client.session.close()

        asyncio.run(with_client())

    return run


def test_the_rows_that_were_made_or_went(run: Run) -> None:
    async def body(client: Client) -> None:
        insert = "INSERT INTO t (k, tags) VALUES (3, '{a,b}') RETURNING *"
        assert await client(insert) == [(3, 7, '["a","b"]')]
        assert await client("UPDATE t SET v = 11 WHERE k = 1 RETURNING t.v AS now, k") == [(11, 1)]
        assert await client("DELETE FROM t x WHERE k = 2 RETURNING x.*, k again") == [
            (2, 20, None, 2)
        ]
        assert await client("DELETE FROM t WHERE k = 2 RETURNING k") == []
        assert await client("SELECT k, v FROM t ORDER BY k") == [(1, 11), (3, 7)]

    run(body)


def test_the_tag_and_what_is_described(run: Run) -> None:
    async def body(client: Client) -> None:
        session = client.session
        prepared = await session.prepare("INSERT INTO t VALUES ($1, $2) RETURNING v, k AS key", ())
        assert prepared.columns is not None
        assert [(c.name, str(c.type)) for c in prepared.columns] == [
            ("v", "integer"),
            ("key", "integer"),
        ]
        result = await session.execute(prepared, (Param("5", 0), Param("50", 0)))
        assert isinstance(result, Rows)
        assert result.completed(1) == "INSERT 0 1"
        (batch,) = [batch async for batch in result.batches]
        assert batch.to_pydict() == {"v": [50], "key": [5]}

    run(body)


def test_a_table_that_was_made_anew_is_not_written_to_if_its_rows_would_look_otherwise(
    run: Run,
) -> None:
    async def body(client: Client) -> None:
        session = client.session
        for sql in ("INSERT INTO u VALUES (2) RETURNING *", "DELETE FROM u RETURNING x"):
            await client("CREATE TABLE u (x int)")
            prepared = await session.prepare(sql, ())
            await client(f"PREPARE p AS {sql}")
            execute = await session.prepare("EXECUTE p", ())
            await client("DROP TABLE u")
            await client("CREATE TABLE u (x bigint)")
            await client("INSERT INTO u VALUES (1)")
            for each in (prepared, execute, await session.prepare("EXECUTE p", ())):
                with pytest.raises(TidemarkError, match="must not change result type"):
                    await session.execute(each, ())
            await client("DEALLOCATE p")
            await client(f"PREPARE p AS {sql}")
            with pytest.raises(TidemarkError, match="must not change result type"):
                await session.execute(execute, ())
            await client("DEALLOCATE p")
            assert await client("SELECT x FROM u") == [(1,)]
            await client("DROP TABLE u")

    run(body)


def test_in_a_transaction_it_is_what_the_transaction_will_write(run: Run) -> None:
    async def body(client: Client) -> None:
        await client("BEGIN")
        assert await client("INSERT INTO t VALUES (3, 30) RETURNING k") == [(3,)]
        assert await client("UPDATE t SET v = 31 WHERE k = 3 RETURNING v") == [(31,)]
        await client("ROLLBACK")
        assert await client("SELECT k FROM t WHERE k = 3") == []

    run(body)


REFUSED = {
    "INSERT INTO t VALUES (9) RETURNING k + 1": ("0A000", "RETURNING takes columns only"),
    "INSERT INTO t VALUES (9) RETURNING lower(k)": ("0A000", "RETURNING takes columns only"),
    "INSERT INTO t VALUES (9) RETURNING 1": ("0A000", "RETURNING takes columns only"),
    "INSERT INTO t VALUES (9) RETURNING": ("42601", "syntax error at end of input"),
    "INSERT INTO t VALUES (9) RETURNING nope": ("42703", 'column "nope" does not exist'),
    "DELETE FROM t RETURNING u.k": ("42P01", 'missing FROM-clause entry for table "u"'),
    "UPDATE t SET v = 1 FROM t u WHERE t.k = u.k RETURNING *": (
        "0A000",
        "RETURNING * would be the columns of FROM or USING, too, which cannot be returned",
    ),
    "DELETE FROM t x RETURNING t.k": ("42P01", 'missing FROM-clause entry for table "t"'),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_refused_writes_nothing(run: Run, sql: str) -> None:
    async def body(client: Client) -> None:
        with pytest.raises(TidemarkError) as caught:
            await client(sql)
        assert (caught.value.sqlstate, caught.value.message) == REFUSED[sql]
        assert await client("SELECT k FROM t ORDER BY k") == [(1,), (2,)]

    run(body)
