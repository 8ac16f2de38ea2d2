"""Look-ups of prepared statements: as right as the usual way, asked together, and only when it is
sure that they are look-ups. A cluster in this process answers, without Spark."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.expr import Lit
from tidemark.compute.index import Indexes
from tidemark.compute.literals import UNKNOWN
from tidemark.compute.lookup import places
from tidemark.compute.peek import Peeks
from tidemark.compute.protocol import LookUp, Peek
from tidemark.control.catalog import CLUSTER, ClusterItem
from tidemark.control.coordinator import Coordinator
from tidemark.control.pgwire import Done, Param, Rows
from tidemark.control.points import point_of
from tidemark.control.prepared import Prepared
from tidemark.control.session import Session
from tidemark.errors import SqlError, TidemarkError, Unavailable
from tidemark.persist import PersistClient
from tidemark.types import BIGINT as BIGINT_
from tidemark.types import numeric

SMALLINT, INTEGER, BIGINT, TEXT, NUMERIC = 21, 23, 20, 25, 1700
DEADLINE = 60.0


class Here:
    """A cluster that is this process: indexes and small reads, no Spark."""

    def __init__(self, client: PersistClient, folder: Path, coordinator: Coordinator):
        arrangements = Arrangements(client, folder / "cache")
        self.indexes = Indexes(client, arrangements)
        self.peeks = Peeks(None, client, arrangements, self.indexes)  # type: ignore[arg-type]
        self.asked: list[LookUp] = []
        self.peeked = 0
        self.away = False
        self.held: asyncio.Event | None = None
        self.coordinator = coordinator

    async def peek(self, peek: Peek) -> pa.Table:
        self.peeked += 1
        found = await asyncio.to_thread(self.peeks.without_spark, peek)
        assert found is not None
        return found

    async def look_up(self, asked: LookUp) -> pa.Table | None:
        self.asked.append(asked)
        if self.held is not None:
            await self.held.wait()
        if self.away:
            raise Unavailable("it is away")
        return await asyncio.to_thread(self.peeks.look_up, asked)

    async def hydrated(self) -> None:
        """All indexes that there are in the catalog."""
        self.indexes.configure(self.coordinator._wanted[CLUSTER].indexes)
        deadline = SYSTEM_CLOCK.monotonic() + DEADLINE
        while not all(status.hydrated for status in self.indexes.statuses()):
            assert SYSTEM_CLOCK.monotonic() < deadline
            await asyncio.sleep(0.01)


class World:
    def __init__(self, coordinator: Coordinator, here: Here):
        self.coordinator = coordinator
        self.here = here

    def session(self) -> Session:
        return Session(self.coordinator, user="tidemark", database="tidemark", options={})

    async def run(self, *statements: str) -> None:
        session = self.session()
        for sql in statements:
            result = await session.execute(await session.prepare(sql, ()), ())
            assert isinstance(result, Done)
        await session.close()


@asynccontextmanager
async def world(client: PersistClient, folder: Path) -> AsyncIterator[World]:
    coordinator = Coordinator(client, data=folder, blob="", consensus="", spark_master="local[1]")
    coordinator.catalog.set_cluster(ClusterItem("s1", CLUSTER))
    coordinator.clusters.start(coordinator.catalog.clusters, {})
    coordinator.timelines.start()
    here = Here(client, folder, coordinator)
    cluster: Any = coordinator.clusters.named(CLUSTER)
    cluster.peek, cluster.look_up = here.peek, here.look_up
    made = World(coordinator, here)
    try:
        await made.run(
            "CREATE TABLE t (k bigint, s smallint, name text, v int)",
            "INSERT INTO t VALUES (1, 1, 'a', 10), (2, 2, 'b', 20), (2, 2, 'b', 20),"
            " (3, 3, 'c', 30), (3, 4, '7', 31), (40000, 5, NULL, 40), (NULL, 6, 'd', 50)",
            "CREATE INDEX by_k ON t (k)",
            "CREATE INDEX by_s ON t (s)",
            "CREATE INDEX by_name ON t (name)",
            "CREATE INDEX by_both ON t (name, k)",
            "CREATE INDEX by_numbers ON t (s, k)",
        )
        await here.hydrated()
        yield made
    finally:
        here.indexes.stop()
        await coordinator.timelines.stop()
        await coordinator.clusters.stop()
        coordinator.engine.close()


def in_a_world(client: PersistClient, folder: Path, test: Callable[[World], Awaitable[None]]):
    async def run() -> None:
        async with world(client, folder) as made:
            await test(made)

    asyncio.run(run())


async def rows_of(session: Session, prepared: Prepared, *values: str | None) -> list[tuple]:
    params = tuple(
        Param(value, oid) for value, oid in zip(values, prepared.param_oids, strict=True)
    )
    result = await session.execute(prepared, params)
    assert isinstance(result, Rows)
    assert result.columns == prepared.columns
    found = [tuple(row.values()) async for b in result.batches for row in b.to_pylist()]
    if result.ready is not None:
        encoded = result.ready.encoded((0,) * len(result.columns))
        assert result.ready.count == len(encoded) == len(found)
    return sorted(found, key=repr)


async def known(session: Session, sql: str, oids: tuple[int, ...], *values: str | None) -> Prepared:
    """A statement that was run often enough for all that can be known of it to be known."""
    prepared = await session.prepare(sql, oids)
    for _ in range(2):
        await rows_of(session, prepared, *values)
    return prepared


LOOK_UPS: list[tuple[str, tuple[int, ...], list[tuple[str | None, ...]]]] = [
    ("SELECT * FROM t WHERE k = $1", (BIGINT,), [("1",), ("2",), ("9",), ("40000",), (None,)]),
    ("SELECT v, k, v FROM t WHERE $1 = k", (SMALLINT,), [("3",), ("-3",), ("2",)]),
    ("SELECT v FROM t WHERE k = $1", (TEXT,), [("2",), (" 2 ",), ("02",), ("-0",)]),
    ("SELECT v FROM t WHERE k = $1", (), [("2",), ("9223372036854775807",)]),
    ("SELECT v FROM t WHERE s = $1", (BIGINT,), [("2",), ("70000",), ("-70000",)]),
    ("SELECT v FROM t AS x WHERE x.name = $1", (TEXT,), [("b",), ("7",), ("",), (None,)]),
    ("SELECT v FROM t WHERE k = $1 LIMIT 1", (INTEGER,), [("2",), ("1",)]),
    ("SELECT v FROM t WHERE k = $1 AND name = $2", (BIGINT, TEXT), [("3", "7"), ("2", "b")]),
    ("SELECT v FROM t WHERE name = $1 AND k = 3", (TEXT,), [("7",), ("c",), ("3",)]),
]


def test_a_look_up_is_what_the_usual_way_gives(client: PersistClient, tmp_path: Path):
    async def test(made: World) -> None:
        session = made.session()
        for sql, oids, asked in LOOK_UPS:
            made.here.asked.clear()
            prepared = await known(session, sql, oids, *asked[0])
            assert prepared.remembered.point is not None, sql
            for values in asked:
                usual = await rows_of(session, await session.prepare(sql, oids), *values)
                assert await rows_of(session, prepared, *values) == usual, (sql, values)
            assert made.here.asked, sql

    in_a_world(client, tmp_path, test)


NO_LOOK_UPS = [
    ("SELECT v FROM t WHERE k = abs($1)", Lit("2", BIGINT_)),
    ("SELECT v FROM t WHERE k = $1 AND $1 > 100", Lit("2", BIGINT_)),
    ("SELECT v FROM t WHERE k = $1 AND v = 20", Lit("2", BIGINT_)),
    ("SELECT v FROM t WHERE k > $1", Lit("2", BIGINT_)),
    ("SELECT v + 1 FROM t WHERE k = $1", Lit("2", BIGINT_)),
    ("SELECT count(*) FROM t WHERE k = $1", Lit("2", BIGINT_)),
    ("SELECT v FROM t WHERE k = $1 ORDER BY v", Lit("2", BIGINT_)),
    ("SELECT v FROM t WHERE k = $1 OR name = 'a'", Lit("2", BIGINT_)),
    ("SELECT v FROM t WHERE k = $1::smallint", Lit("2", BIGINT_)),
    ("SELECT v FROM t WHERE v = $1", Lit("20", BIGINT_)),
    ("SELECT v FROM t WHERE k = $1", Lit("2.0", numeric(10, 2))),
    ("SELECT name FROM t WHERE k = 2 LIMIT $1", Lit("1", BIGINT_)),
    ("SELECT v FROM t WHERE k = 2 AND k = $1", Lit("2", BIGINT_)),
    ("SELECT v FROM t WHERE s = 70000 AND k = $1", Lit("2", BIGINT_)),
    ("SELECT oid FROM pg_class WHERE relname = $1", Lit("t", UNKNOWN)),
    ("INSERT INTO t SELECT * FROM t WHERE k = $1", Lit("2", BIGINT_)),
]


def test_what_is_no_look_up_is_not_taken_for_one(client: PersistClient, tmp_path: Path):
    async def test(made: World) -> None:
        session = made.session()
        for sql, param in NO_LOOK_UPS:
            prepared = await session.prepare(
                sql, (param.type.oid if param.type.name != "unknown" else 0,)
            )
            assert point_of(session, prepared.statement, (param,)) is None, sql

    in_a_world(client, tmp_path, test)


def test_those_that_come_together_are_asked_together_and_get_their_own(
    client: PersistClient, tmp_path: Path
):
    async def test(made: World) -> None:
        sessions = [made.session() for _ in range(60)]
        keys = ["1", "2", "3", "40000", "77"]
        expected = {
            "1": [(10,)],
            "2": [(20,), (20,)],
            "3": [(30,), (31,)],
            "40000": [(40,)],
            "77": [],
        }
        prepared = [
            await known(each, "SELECT v FROM t WHERE k = $1", (BIGINT,), "1") for each in sessions
        ]
        made.here.asked.clear()
        for _ in range(3):
            asked = [keys[at % 5] for at in range(60)]
            calls = zip(sessions, prepared, asked, strict=True)
            found = await asyncio.gather(*(rows_of(s, p, key) for s, p, key in calls))
            assert found == [expected[key] for key in asked]
        assert len(made.here.asked) < 60

    in_a_world(client, tmp_path, test)


def test_an_error_of_several_says_to_each_where_in_its_own_statement_it_is(
    client: PersistClient, tmp_path: Path
):
    async def test(made: World) -> None:
        texts = ("SELECT v FROM t WHERE k = $1", "SELECT   v   FROM   t   WHERE   k = $1")
        sessions = [made.session() for _ in texts]
        calls = [
            (session, await known(session, text, (BIGINT,), "1"))
            for session, text in zip(sessions, texts, strict=True)
        ]

        async def dropped(_: object) -> None:
            raise SqlError('relation "t" was dropped', sqlstate="42P01")

        cluster: Any = made.coordinator.clusters.named(CLUSTER)
        cluster.look_up = dropped
        told = await asyncio.gather(
            *(rows_of(session, prepared, "1") for session, prepared in calls),
            return_exceptions=True,
        )
        assert [getattr(each, "position", None) for each in told] == [15, 21]

    in_a_world(client, tmp_path, test)


def test_what_was_acknowledged_is_seen(client: PersistClient, tmp_path: Path):
    """Each of several sessions reads its own writes, and counts that only grow."""

    async def one(made: World, seed: int) -> None:
        session, rng = made.session(), random.Random(seed)
        await made.run(f"INSERT INTO t VALUES ({1000 + seed}, 0, 'x', 0)")
        read = await known(session, "SELECT v FROM t WHERE k = $1", (BIGINT,), str(1000 + seed))
        write = await session.prepare("INSERT INTO t VALUES ($1, 0, 'x', $2)", (BIGINT, INTEGER))
        seen: dict[int, int] = {}
        for step in range(1, 15):
            params = (Param(str(1000 + seed), BIGINT), Param(str(step), INTEGER))
            await session.execute(write, params)
            mine = await rows_of(session, read, str(1000 + seed))
            assert sorted(v for (v,) in mine) == list(range(step + 1))
            other = rng.randrange(4)
            count = len(await rows_of(session, read, str(1000 + other)))
            assert count >= seen.get(other, 0)
            seen[other] = count

    async def test(made: World) -> None:
        await asyncio.gather(*(one(made, seed) for seed in range(4)))
        assert made.here.asked

    in_a_world(client, tmp_path, test)


def test_what_changes_in_the_catalog_is_noticed(client: PersistClient, tmp_path: Path):
    async def test(made: World) -> None:
        session = made.session()
        sql = "SELECT v FROM t WHERE k = $1"
        prepared = await known(session, sql, (BIGINT,), "1")
        await made.run("DROP INDEX by_k")
        await rows_of(session, prepared, "1")
        asked = len(made.here.asked)
        assert await rows_of(session, prepared, "2") == [(20,), (20,)]
        assert len(made.here.asked) == asked
        await made.run("DROP TABLE t", "CREATE TABLE t (k bigint, v int)")
        assert await rows_of(session, prepared, "1") == []
        await made.run("DROP TABLE t")
        with pytest.raises(SqlError, match="does not exist"):
            await rows_of(session, prepared, "1")

    in_a_world(client, tmp_path, test)


def test_each_database_by_its_own_clock_and_each_path_by_its_own_names(
    client: PersistClient, tmp_path: Path
):
    async def test(made: World) -> None:
        await made.run(
            "CREATE DATABASE d",
            "CREATE TABLE d.public.t (k bigint, v int)",
            "CREATE INDEX ON d.public.t (k)",
            "CREATE SCHEMA s",
            "CREATE TABLE s.t (k bigint, v int)",
            "CREATE INDEX ON s.t (k)",
        )
        await made.here.hydrated()
        session = made.session()
        there = await known(session, "SELECT v FROM d.public.t WHERE k = $1", (BIGINT,), "1")
        here = await known(session, "SELECT v FROM t WHERE k = $1", (BIGINT,), "1")
        for step in range(1, 8):
            # The first database commits less often: its clock says nothing of the other one's.
            await made.run(f"INSERT INTO d.public.t VALUES (1, {step})")
            found = await rows_of(session, there, "1")
            assert sorted(v for (v,) in found) == list(range(1, step + 1))
        shard = made.coordinator.item(("d", "public", "t")).shard
        assert {asked.shard for asked in made.here.asked} == {shard}
        # What a name means is asked again when it may mean something else.
        await made.run("INSERT INTO s.t VALUES (1, 77)")
        await session.execute(await session.prepare("SET search_path = s, public", ()), ())
        for _ in range(4):
            assert await rows_of(session, here, "1") == [(77,)]
        await session.execute(await session.prepare("SET database = d", ()), ())
        await session.execute(await session.prepare("RESET search_path", ()), ())
        for _ in range(4):
            assert len(await rows_of(session, here, "1")) == 7

    in_a_world(client, tmp_path, test)


def test_a_statement_that_fails_is_not_remembered(client: PersistClient, tmp_path: Path):
    async def test(made: World) -> None:
        session = made.session()
        prepared = await session.prepare("SELECT v FROM t WHERE k = $1", (TEXT,))
        for _ in range(3):
            with pytest.raises(TidemarkError):
                await rows_of(session, prepared, "one")
        assert prepared.remembered.point is None
        assert not made.here.asked

    in_a_world(client, tmp_path, test)


def test_transactions_and_other_isolation_levels_go_the_usual_way(
    client: PersistClient, tmp_path: Path
):
    async def test(made: World) -> None:
        session = made.session()
        prepared = await known(session, "SELECT v FROM t WHERE k = $1", (BIGINT,), "1")
        asked = len(made.here.asked)
        for begin, end in (
            ("BEGIN", "COMMIT"),
            ("SET transaction_isolation = serializable", "RESET transaction_isolation"),
        ):
            await session.execute(await session.prepare(begin, ()), ())
            assert await rows_of(session, prepared, "1") == [(10,)]
            await session.execute(await session.prepare(end, ()), ())
            assert len(made.here.asked) == asked

    in_a_world(client, tmp_path, test)


def test_an_index_that_is_away_is_no_error(client: PersistClient, tmp_path: Path):
    async def test(made: World) -> None:
        session = made.session()
        prepared = await known(session, "SELECT v FROM t WHERE k = $1", (BIGINT,), "1")
        made.here.away = True
        assert await rows_of(session, prepared, "1") == [(10,)]
        made.here.away = False
        made.here.indexes.configure(())
        assert await rows_of(session, prepared, "2") == [(20,), (20,)]

    in_a_world(client, tmp_path, test)


def test_one_that_is_cancelled_or_times_out_disturbs_no_other(
    client: PersistClient, tmp_path: Path
):
    async def test(made: World) -> None:
        sessions = [made.session() for _ in range(3)]
        sql = "SELECT v FROM t WHERE k = $1"
        prepared = [await known(each, sql, (BIGINT,), "1") for each in sessions]
        sessions[1].variables.set("statement_timeout", "1ms")
        made.here.held = asyncio.Event()
        made.here.asked.clear()
        running = [
            asyncio.ensure_future(rows_of(s, p, "3"))
            for s, p in zip(sessions, prepared, strict=True)
        ]
        while not made.here.asked:
            await asyncio.sleep(0)
        running[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await running[0]
        with pytest.raises(TidemarkError, match="statement timeout"):
            await running[1]
        made.here.held.set()
        assert await running[2] == [(30,), (31,)]

    in_a_world(client, tmp_path, test)


def test_the_limit_on_results(client: PersistClient, tmp_path: Path):
    async def test(made: World) -> None:
        session = made.session()
        prepared = await known(session, "SELECT * FROM t WHERE k = $1", (BIGINT,), "1")
        session.variables.set("max_result_size", "10B")
        with pytest.raises(TidemarkError, match="max_result_size"):
            await rows_of(session, prepared, "2")

    in_a_world(client, tmp_path, test)


def test_places_of_keys_of_several_columns():
    keys = [pa.chunked_array([[3, 1, 1]]), pa.chunked_array([["x", "y", "x"]])]
    found = [pa.chunked_array([[1, 1, 3, 1]]), pa.chunked_array([["x", "y", "x", "x"]])]
    assert places(found, keys).tolist() == [2, 1, 0, 2]
    assert places([pa.chunked_array([[]], pa.int64())] * 2, [keys[0]] * 2).tolist() == []
