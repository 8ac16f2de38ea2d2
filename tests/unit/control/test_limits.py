"""Limits that protect the server: each is a clear error, and the session goes on after it."""

from __future__ import annotations

import asyncio
import gc
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pgwire_harness as client
import psycopg
import pyarrow as pa
import pytest
from pgwire_harness import Running, errors, fields, running_server, tags

from session_harness import Client, serving
from tidemark.clock import ManualClock
from tidemark.control import cursors
from tidemark.control.aside import LARGE
from tidemark.control.pgwire import Param, Rows, kept
from tidemark.control.prepared import Prepared
from tidemark.control.server import OTHER_FILES, Options, allowed_connections
from tidemark.control.session import Session
from tidemark.errors import Cancelled, InvalidUsage, SqlError, TidemarkError
from tidemark.types import TEXT
from wire_harness import spark_free_server


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running_server() as running:
        yield running


def hint(messages: list[client.Message]) -> str:
    return next(fields(payload)["H"] for tag, payload in messages if tag == "E")


def test_prepared_statements_that_are_too_many(server: Running):
    with server.client() as raw:
        for at in range(20):
            raw.send(client.parse("select 1", name=f"s{at}"))
        raw.send(client.parse("select 1", name="one too many") + client.SYNC)
        answer = raw.until_ready()
        assert errors(answer) == ["54000"]
        assert "DEALLOCATE" in hint(answer)
        # The unnamed one is always allowed, and so is another in the place of one that went.
        raw.send(client.parse("select 1") + client.close("S", "s3") + client.SYNC)
        assert tags(raw.until_ready()) == "13Z"
        raw.send(client.parse("select 1", name="s20") + client.SYNC)
        assert tags(raw.until_ready()) == "1Z"


def test_prepared_statements_that_are_too_long(server: Running):
    with server.client() as raw:
        long = f"select 1 {' ' * 600}x"
        raw.send(client.parse(long, name="a") + client.parse(long, name="b") + client.SYNC)
        answer = raw.until_ready()
        assert tags(answer) == "1EZ"
        assert errors(answer) == ["54000"]
        raw.send(client.close("S", "a") + client.parse(long, name="b") + client.SYNC)
        assert tags(raw.until_ready()) == "31Z"


@pytest.mark.parametrize(("limit", "most"), [("MOST_PORTALS", 5), ("MOST_PARAMETERS", 5_000)])
def test_portals_that_are_too_many_or_too_large(
    server: Running, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
):
    monkeypatch.setattr(kept, limit, most)
    with server.client() as raw:
        raw.send(client.query("begin") + client.parse("echo $1", name="e", oids=(25,)))
        raw.until_ready()
        for at in range(5):
            raw.send(client.bind(b"x" * 1_000, portal=f"p{at}", statement="e"))
        raw.send(client.SYNC)
        assert tags(raw.until_ready()) == "1" + "2" * 5 + "Z"
        raw.send(client.bind(b"x", portal="one too many", statement="e") + client.SYNC)
        assert errors(raw.until_ready()) == ["54000"]
        raw.send(client.query("rollback"))
        raw.send(client.bind(b"x", portal="another", statement="e") + client.SYNC)
        assert tags(raw.until_ready()) == "CZ"
        assert tags(raw.until_ready()) == "2Z"


def test_cursors_that_are_too_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cursors, "MOST", 2)
    declared = cursors.Cursors()

    async def nothing():
        return
        yield

    for name in ("a", "b"):
        declared.declare(name, Rows((), nothing()), live=False, hold=False, binary=False)
    with pytest.raises(SqlError, match="2 cursors at most") as caught:
        declared.check_free("c")
    assert caught.value.sqlstate == "54000"


def test_results_that_nobody_reads_keep_others_from_asking(tmp_path: Path):
    async def scenario() -> None:
        async with serving(tmp_path) as coordinator:
            run = Client(coordinator)
            await run("CREATE TABLE t (n int)")
            await run("INSERT INTO t VALUES (1)")
            unread = pa.allocate_buffer(8 << 20)
            await run("ALTER SYSTEM SET max_memory = '4MB'")
            for sql in ("SELECT n FROM t WHERE n > 0", "SUBSCRIBE t", "COPY t FROM STDIN"):
                with pytest.raises(SqlError, match="max_memory") as caught:
                    await run(sql)
                assert caught.value.sqlstate == "53200"
            del unread
            await run("ALTER SYSTEM RESET max_memory")
            assert await run("SELECT n FROM t WHERE n > 0") == [(1,)]
            with pytest.raises(SqlError, match="cannot be changed"):
                await run("SET max_memory = '1TB'")

    asyncio.run(scenario())


@pytest.fixture
def no_collections() -> Iterator[None]:
    """What goes, goes with the last who has it: an idle server collects no garbage."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("sql", ["INSERT INTO t VALUES (2, %s)", "UPDATE t SET b = %s WHERE n = 1"])
def test_a_transaction_that_writes_too_much_is_refused_and_the_others_are_not(
    tmp_path: Path, sql: str
):
    def write(one: psycopg.Connection) -> None:
        for _ in range(20):
            one.execute(sql.encode(), ("x" * (4 << 20),))

    with spark_free_server(tmp_path) as port:
        dsn = f"host=127.0.0.1 port={port} user=tidemark dbname=tidemark"
        with (
            psycopg.connect(dsn, autocommit=True) as one,
            psycopg.connect(dsn, autocommit=True) as two,
        ):
            one.execute("CREATE TABLE t (n int, b text)")
            one.execute("INSERT INTO t VALUES (1, 'a')")
            most = (pa.total_allocated_bytes() >> 20) + 32
            one.execute(f"ALTER SYSTEM SET max_memory = '{most}MB'".encode())
            one.execute("BEGIN")
            with pytest.raises(psycopg.errors.OutOfMemory, match="max_memory"):
                write(one)
            assert two.execute("SELECT n FROM t WHERE n > 0").fetchall() == [(1,)]
            assert one.execute("COMMIT").statusmessage == "ROLLBACK"


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "raised", "allowed"),
    [
        (256, resource.RLIM_INFINITY, 1_000, 1_000 + OTHER_FILES, 1_000),
        (1_024, 1_024, 5_000, None, 1_024 - OTHER_FILES),
        (1_024, 100_000, 5_000, 5_000 + OTHER_FILES, 5_000),
        (50_000, 100_000, 5_000, None, 5_000),
        (100, 200, 5_000, 200, 1),
    ],
)
def test_connections_are_as_many_as_there_can_be_files(
    monkeypatch: pytest.MonkeyPatch,
    soft: int,
    hard: int,
    wanted: int,
    raised: int | None,
    allowed: int,
):
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    assert allowed_connections(wanted) == allowed
    assert asked == ([] if raised is None else [(raised, hard)])


LARGE_STATEMENTS = {
    "a list": f"SELECT n FROM t WHERE n IN ({', '.join(map(str, range(20_000)))})",
    "a condition": f"SELECT n FROM t WHERE true{' and true' * 10_000}",
    "rows": f"INSERT INTO t VALUES {', '.join(f'({n})' for n in range(40_000))}",
}


@pytest.mark.parametrize("large", LARGE_STATEMENTS.values(), ids=LARGE_STATEMENTS)
def test_others_are_answered_while_a_large_statement_is_parsed_and_planned(
    tmp_path: Path, large: str
):
    async def scenario() -> None:
        async with serving(tmp_path) as coordinator:
            run, other = Client(coordinator), Client(coordinator)
            await run("CREATE TABLE t (n bigint)")
            await run("INSERT INTO t VALUES (1)")

            async def answered_during(stage: asyncio.Task) -> int:
                times = 0
                while not stage.done():
                    assert await other("SELECT 1") == [(1,)]
                    await asyncio.sleep(0)
                    times += 1
                await stage
                return times

            preparing = asyncio.create_task(run.session.prepare(large, ()))
            assert await answered_during(preparing) > 3
            executing = asyncio.create_task(run.session.execute(preparing.result(), ()))
            assert await answered_during(executing) > 3

            await run("SET statement_timeout = '1ms'")
            with pytest.raises(Cancelled, match="statement timeout") as caught:
                await run.session.prepare(large, ())
            assert caught.value.sqlstate == "57014"
            await run("RESET statement_timeout")
            assert await run("SELECT 1") == [(1,)]

    asyncio.run(scenario())


def test_a_statement_is_as_large_as_it_may_be_and_values_are_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    values = ", ".join(f"({n})" for n in range(20_000))
    monkeypatch.setattr("tidemark.control.parse.MOST_PARSED", len(values))

    async def scenario() -> None:
        async with serving(tmp_path) as coordinator:
            run = Client(coordinator)
            await run("CREATE TABLE t (b text)")
            listed = f"SELECT b FROM t WHERE b IN ({values})"
            for sql in (listed, f"INSERT INTO t SELECT * FROM (VALUES {values}) v"):
                with pytest.raises(SqlError, match="characters is too large") as caught:
                    await run(sql)
                assert caught.value.sqlstate == "54000"
                assert "COPY" in (caught.value.hint or "")
            assert await run(f"INSERT INTO t VALUES {values}") == "INSERT 0 20000"
            insert = await run.session.prepare("INSERT INTO t VALUES ($1)", ())
            await run.session.execute(insert, (Param(values, TEXT.oid),))

    asyncio.run(scenario())


LONG = "1" * 5_000

LARGE_NUMBERS = {
    f"SELECT {LONG}": "22003",
    f"SELECT -{LONG}": "22003",
    f"SELECT '{LONG}'::int": "22003",
    f"INSERT INTO t VALUES ({LONG})": "22003",
    f"INSERT INTO t VALUES ('{LONG}')": "22003",
    f"SELECT n FROM t LIMIT {LONG}": "22003",
    f"SELECT n FROM t ORDER BY {LONG}": "22003",
    f"SELECT n FROM t AS OF {LONG}": "22003",
    f"SELECT n FROM t AS OF '{LONG}'": "22P02",
    f"SELECT ${LONG}": "22003",
    f"SELECT 1::numeric({LONG})": "22003",
    "SELECT 1e9999999": "22003",
    "SELECT '1e9999999'::numeric": "22003",
    f"SELECT 1e{LONG}": "22003",
    "INSERT INTO t VALUES (1e9999999)": "22003",
    f"SET statement_timeout = '{LONG}'": "22023",
    f"SET max_result_size = '{LONG}'": "22023",
    f"ALTER SYSTEM SET max_connections = '{LONG}'": "22023",
    f"FETCH '{LONG}' FROM c": "42601",
    f"CREATE CLUSTER c (REPLICATION FACTOR = '{LONG}')": "22023",
    f"CREATE SOURCE g FROM LOAD GENERATOR COUNTER (TICK INTERVAL '{LONG}s')": "22023",
}


def test_numbers_that_are_too_large_to_be_read(tmp_path: Path):
    async def scenario() -> None:
        async with serving(tmp_path) as coordinator:
            run = Client(coordinator)
            await run("CREATE TABLE t (n int)")
            for sql, sqlstate in LARGE_NUMBERS.items():
                with pytest.raises(TidemarkError) as caught:
                    await run(sql)
                assert caught.value.sqlstate == sqlstate, sql[:60]

    asyncio.run(scenario())


def test_a_condition_of_show_that_takes_long_holds_up_nobody(tmp_path: Path):
    endless = "SHOW TABLES WHERE (SELECT count(*) FROM range(9000000) a, range(9000000) b) > 0"

    async def scenario() -> None:
        async with serving(tmp_path) as coordinator:
            run, other = Client(coordinator), Client(coordinator)
            await run("SET statement_timeout = '3s'")
            asked = asyncio.create_task(run(endless))
            for _ in range(4):
                assert await other("SELECT 1") == [(1,)]
                await asyncio.sleep(0.01)
                assert not asked.done()
            with pytest.raises(Cancelled, match="statement timeout"):
                await asked
            assert await run("SHOW TABLES WHERE name = 't'") == []

    asyncio.run(scenario())


def test_a_large_statement_is_planned_anew_if_the_catalog_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    planned, changed = threading.Event(), threading.Event()
    prepare = Session._prepare

    def waits_for_the_change(session: Session, *given) -> Prepared:
        prepared = prepare(session, *given)
        if "IN (" in given[1]:
            planned.set()
            assert changed.wait(60)
        return prepared

    monkeypatch.setattr(Session, "_prepare", waits_for_the_change)

    async def scenario() -> None:
        async with serving(tmp_path) as coordinator:
            run, other = Client(coordinator), Client(coordinator)
            await run("CREATE TABLE t (n bigint)")
            large = f"SELECT * FROM t WHERE n IN ({', '.join(map(str, range(8_000)))})"
            preparing = asyncio.create_task(run.session.prepare(large, ()))
            assert await asyncio.to_thread(planned.wait, 60)
            await other("DROP TABLE t")
            await other("CREATE TABLE t (n bigint, more text)")
            changed.set()
            prepared = await preparing
            assert [column.name for column in prepared.columns or ()] == ["n", "more"]

    asyncio.run(scenario())


def test_whom_a_server_is_open_to_is_asked_of_both_its_addresses(tmp_path: Path):
    def open_to(listen: str, http: str | None) -> list[str]:
        return Options(tmp_path, listen, http_listen=http).open_to_others

    assert open_to("127.0.0.1:1", "[::1]:2") == []
    assert open_to("0.0.0.0:1", None) == ["0.0.0.0:1"]
    assert open_to("localhost:1", "0.0.0.0:2") == ["0.0.0.0:2"]
    with pytest.raises(InvalidUsage, match="--http takes host:port, not '6876'"):
        open_to("localhost:1", "6876")


def test_a_statement_that_is_nested_too_deeply_is_not_kept(tmp_path: Path):
    async def scenario() -> None:
        async with serving(tmp_path) as coordinator:
            run = Client(coordinator)
            deep = f"SELECT {'(' * 3000}1{')' * 3000}"
            raised = []
            for _ in range(2):
                with pytest.raises(SqlError, match="nested too deeply") as caught:
                    await run(deep)
                raised.append(caught.value)
            assert raised[0] is not raised[1]

    asyncio.run(scenario())


def test_a_server_that_stops_stops_what_runs(tmp_path: Path):
    async def scenario() -> None:
        async with serving(tmp_path) as coordinator:
            asked = asyncio.create_task(
                Client(coordinator)(
                    "SHOW TABLES WHERE (SELECT count(*) FROM range(9000000) a, range(9000000) b) > 0"
                )
            )
            while not coordinator.engine._running:
                await asyncio.sleep(0.01)
        await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(scenario())


def test_what_a_large_query_reads_is_held_while_it_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def scenario() -> None:
        clock = ManualClock(100_000)
        async with serving(tmp_path / "data", clock) as coordinator:
            one, other, timeline = Client(coordinator), Client(coordinator), coordinator.timeline
            await one("CREATE TABLE t (k int)")
            await one("INSERT INTO t VALUES (1)")
            read_at, aside = Session.read_at, coordinator.aside.run
            chosen = False

            async def choose(*args: Any, **options: Any) -> Any:
                nonlocal chosen
                found = await read_at(*args, **options)
                chosen = True
                return found

            async def slowly(work: Any) -> Any:
                if chosen:
                    clock.advance(5_000)
                    await other("INSERT INTO t VALUES (2)")
                    least = coordinator.holds.least()
                    await timeline.run(coordinator._allow_compaction, timeline.read_ts, least)
                return await aside(work)

            monkeypatch.setattr(Session, "read_at", choose)
            monkeypatch.setattr(coordinator.aside, "run", slowly)
            numbers = ", ".join(map(str, range(LARGE // 4)))
            assert await one(f"SELECT k FROM t WHERE k IN ({numbers})") == [(1,)]
            assert coordinator.holds.least() is None

    asyncio.run(scenario())
