"""What names mean: search path, schemas, databases, regions; without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tidemark.control.catalog import CLUSTER, ClusterItem, Item
from tidemark.control.connections import KafkaTarget, RegistryTarget
from tidemark.control.coordinator import Coordinator
from tidemark.control.hierarchy import path_of, path_text, shown
from tidemark.control.hierarchy_ddl import renamed_sql
from tidemark.control.pgwire import Rows
from tidemark.control.session import Session
from tidemark.errors import TidemarkError
from tidemark.persist import MemBlob, MemConsensus, PersistClient

Test = Callable[[Session], Coroutine[Any, Any, None]]


class Region:
    """A server's data, and sessions in lives of a coordinator on them."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._stores = MemBlob(), MemConsensus()

    def run(self, test: Test, database: str = "tidemark", **options: str) -> None:
        asyncio.run(self._run(test, database, options))

    async def _run(self, test: Test, database: str, options: dict[str, str]) -> None:
        async with self.coordinator() as coordinator:
            session = Session(coordinator, user="me", database=database, options=options)
            await test(session)
            await session.close()

    @asynccontextmanager
    async def coordinator(self) -> AsyncIterator[Coordinator]:
        client = PersistClient(*self._stores)
        made = Coordinator(
            client,
            data=self._folder / "data",
            blob="",
            consensus="",
            spark_master="",
            secrets_key=self._folder / "key",
        )
        # A cluster without replicas: what control cannot answer by itself fails.
        made.catalog.set_cluster(ClusterItem("s1", CLUSTER))
        made.clusters.start(made.catalog.clusters, {})
        made.timelines.start()
        try:
            yield made
        finally:
            await made.stop()


@pytest.fixture
def region(tmp_path: Path) -> Region:
    return Region(tmp_path)


async def do(session: Session, *statements: str) -> list[tuple]:
    """The rows of the last one."""
    found: list[tuple] = []
    for sql in statements:
        result = await session.execute(await session.prepare(sql, ()), ())
        if isinstance(result, Rows):
            batches = [batch async for batch in result.batches]
            found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return found


async def refused(session: Session, sql: str, sqlstate: str, message: str) -> None:
    with pytest.raises(TidemarkError, match=message) as raised:
        await do(session, sql)
    assert raised.value.sqlstate == sqlstate


async def read(session: Session, sql: str) -> str:
    """The one relation that a query reads, as EXPLAIN calls it."""
    lines = [line for (line,) in await do(session, f"EXPLAIN {sql}")]
    (get,) = [line.split()[1] for line in lines if line.strip().startswith("Get ")]
    return get


def test_the_first_schema_of_the_path_that_has_it(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE SCHEMA s", "CREATE TABLE s.t (a int)", "CREATE TABLE t (a int)")
        await do(session, "CREATE TABLE s.lone (a int)")
        assert await read(session, "SELECT * FROM t") == "t"
        await refused(session, "SELECT * FROM lone", "42P01", 'relation "lone" does not exist')
        await do(session, "SET search_path = nowhere, s, public")
        assert await read(session, "SELECT * FROM t") == "s.t"
        assert await read(session, "SELECT * FROM public.t") == "t"
        assert await read(session, "SELECT * FROM tidemark.s.lone") == "s.lone"
        await do(session, "CREATE TABLE made (a int)", "DROP TABLE t")
        assert await do(session, "SHOW TABLES FROM s") == [("lone",), ("made",)]
        assert await do(session, "SHOW TABLES FROM public") == [("t",)]
        assert await read(session, "SELECT * FROM t") == "t"

    region.run(test)


def test_a_hint_says_more_than_the_name_that_was_not_found(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE TABLE t (a int)", "CREATE DATABASE d", "SET database = d")
        with pytest.raises(TidemarkError) as raised:
            await do(session, "SELECT * FROM t")
        assert raised.value.hint == "did you mean tidemark.public.t?"

    region.run(test)


def test_two_that_make_the_same_at_once_if_it_is_not_there(region: Region):
    async def test(session: Session) -> None:
        other = Session(session.coordinator, user="other", database="tidemark", options={})
        for sql, refused in (
            ("CREATE TABLE IF NOT EXISTS t (a int)", []),
            ("CREATE TABLE u (a int)", ["42P07"]),
        ):
            found = await asyncio.gather(do(session, sql), do(other, sql), return_exceptions=True)
            assert [each.sqlstate for each in found if isinstance(each, TidemarkError)] == refused
        await other.close()

    region.run(test)


def test_a_session_without_a_schema_creates_nothing(region: Region):
    async def test(session: Session) -> None:
        await do(session, "SET search_path = ''")
        assert await do(session, "SELECT current_schema(), current_schemas(false)") == [
            (None, "[]")
        ]
        await refused(session, "CREATE TABLE t (a int)", "3F000", "no schema has been selected")
        await do(session, "CREATE TABLE public.t (a int)")

    region.run(test)


def test_the_path_that_a_client_connects_with_is_the_one_to_go_back_to(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE SCHEMA me", "SET search_path = public", "DISCARD ALL")
        assert await do(session, "SHOW search_path") == [('"$user", public',)]
        assert await do(session, "SELECT current_schema()") == [("me",)]

    region.run(test, search_path='"$user", public')


def test_a_path_as_text():
    assert path_of('"$user", Public , "A, ""b"') == ["$user", "public", 'A, "b']
    assert path_text(["$user", "public", 'A, "b']) == '"$user", public, "A, ""b"'
    assert path_of('""') == []
    assert path_text([]) == '""'
    with pytest.raises(TidemarkError, match='invalid value for parameter "search_path"'):
        path_of('"open')


def test_names_in_messages_are_as_short_as_they_can_be():
    assert shown(("tidemark", "public", "A b")) == "A b"
    assert shown(("tidemark", "s", "A b")) == 's."A b"'
    assert shown(("d", "public", "t")) == "d.public.t"


def test_relations_of_one_name_in_two_schemas(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE SCHEMA s", "CREATE TABLE s.t (a int)", "CREATE TABLE t (a int)")
        await do(session, "EXPLAIN SELECT s.t.a, public.t.a FROM s.t, public.t")
        await refused(session, "SELECT t.a FROM s.t, t", "42P09", 'reference "t" is ambiguous')
        await refused(session, "SELECT 1 FROM s.t, s.t", "42712", "specified more than once")
        rows = await do(
            session,
            "SELECT c.oid::regclass::text, pg_table_is_visible(c.oid) FROM pg_class c"
            " WHERE relname = 't' ORDER BY 1",
        )
        assert rows == [("s.t", False), ("t", True)]
        await do(session, "SET search_path = s")
        rows = await do(session, "SELECT 't'::regclass::oid = 's.t'::regclass::oid")
        assert rows == [(True,)]

    region.run(test)


def test_what_has_another_name_is_still_read(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE SCHEMA s", "CREATE TABLE t (a int)")
        await do(session, "CREATE VIEW v AS SELECT a FROM t", "CREATE INDEX i ON t (a)")
        await do(session, "ALTER TABLE t RENAME TO u", "ALTER TABLE u SET SCHEMA s")
        assert await read(session, "SELECT * FROM v") == "s.u"
        assert await do(session, "SHOW INDEXES ON s.u") == [("i", "u", CLUSTER, "a")]
        await do(session, "ALTER SCHEMA s RENAME TO z")
        assert await read(session, "SELECT * FROM v") == "z.u"
        assert await do(session, "SHOW CREATE TABLE z.u") == [("u", "CREATE TABLE z.u (a int)")]
        drop = "DROP SCHEMA z"
        await refused(session, drop, "2BP01", "because other objects are in it: z.i, z.u")
        await do(session, f"{drop} CASCADE")
        assert await do(session, "SHOW OBJECTS") == []

    region.run(test)


def test_a_statement_with_another_name():
    item = Item("u1", "n", "view", "", schema="S s")
    made = {
        'CREATE OR REPLACE VIEW a."b" AS SELECT 1': 'CREATE OR REPLACE VIEW "S s".n AS SELECT 1',
        "create materialized view if not exists v AS SELECT v": (
            'create materialized view if not exists "S s".n AS SELECT v'
        ),
        "CREATE TABLE t(a int)": 'CREATE TABLE "S s".n(a int)',
    }
    for sql, wanted in made.items():
        assert renamed_sql(sql, item) == wanted
    index = Item("u2", "i", "index", "")
    assert renamed_sql("CREATE INDEX ON t (a)", index) == "CREATE INDEX ON t (a)"


def test_each_database_has_a_clock_and_a_log_of_its_own(region: Region):
    async def make(session: Session) -> None:
        await do(session, "CREATE DATABASE d", "CREATE TABLE d.public.t (a int)")
        await do(session, "CREATE TABLE t (a int)")
        timelines = session.coordinator.timelines
        here, there = timelines["tidemark"], timelines["d"]
        await do(session, "INSERT INTO d.public.t VALUES (1)", "INSERT INTO d.public.t VALUES (2)")
        assert (here.writes, there.writes) == (0, 2)
        # A lock on one is not a lock on the other.
        async with here.exclusively():
            await do(session, "INSERT INTO d.public.t VALUES (3)")
        assert (here.writes, there.writes) == (0, 3)
        logs = {d.name: d.log for d in session.coordinator.catalog.databases.values()}
        assert logs["tidemark"] == "txns"
        assert logs["d"].endswith("-txns")

    async def again(session: Session) -> None:
        assert await do(session, "SELECT current_database()") == [("d",)]
        (item,) = session.coordinator.catalog.within("d")
        timeline = session.coordinator.timelines["d"]
        reader = session.coordinator.client.open_reader(item.shard or "")
        rows = reader.snapshot(timeline.read_ts)
        assert sorted(rows["a"].to_pylist()) == [1, 2, 3]
        await do(session, "INSERT INTO t VALUES (4)")
        assert timeline.writes == 1

    region.run(make)
    region.run(again, database="d")


def test_what_touches_two_databases_is_refused(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE TABLE t (a int)", "CREATE DATABASE d")
        await do(session, "CREATE TABLE d.public.u (a int)")
        await do(session, "CREATE CONNECTION k TO KAFKA (BROKER 'localhost:1')")
        for sql in (
            "SELECT * FROM t, d.public.u",
            "SELECT * FROM t WHERE a IN (SELECT a FROM d.public.u)",
            "EXPLAIN SELECT * FROM t UNION ALL SELECT * FROM d.public.u",
            "CREATE VIEW v AS SELECT * FROM d.public.u",
            "CREATE VIEW d.public.v AS SELECT * FROM t",
            "CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM d.public.u",
            "SUBSCRIBE (SELECT * FROM t JOIN d.public.u USING (a))",
            "INSERT INTO t SELECT a FROM d.public.u",
            "COPY (SELECT * FROM t, d.public.u) TO STDOUT",
            "CREATE SINK x FROM d.public.u INTO KAFKA CONNECTION k (TOPIC 'x')"
            " KEY (a) FORMAT JSON ENVELOPE UPSERT",
        ):
            await refused(session, sql, "0A000", "cannot be used together: each database is a")
        await do(session, "BEGIN", "INSERT INTO t VALUES (1)")
        await refused(session, "INSERT INTO d.public.u VALUES (1)", "0A000", 'and "d" cannot be')
        await do(session, "ROLLBACK")
        await refused(
            session, "ALTER TABLE t SET SCHEMA d.public", "0A000", "that is another timeline"
        )
        # One of them alone is fine, wherever the session is.
        await do(session, "BEGIN", "INSERT INTO d.public.u VALUES (1)", "COMMIT")
        await do(session, "CREATE VIEW d.public.v AS SELECT * FROM d.public.u")

    region.run(test)


def test_a_database_goes_when_nobody_is_in_it(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE DATABASE d", "CREATE SCHEMA d.s", "CREATE TABLE d.s.t (a int)")
        coordinator = session.coordinator
        log = coordinator.catalog.databases["d"].log
        other = Session(coordinator, user="you", database="d", options={})
        await refused(session, "DROP DATABASE d", "55006", "is being accessed by other users")
        await refused(other, "DROP DATABASE d", "55006", "currently open database")
        await other.close()
        await refused(session, "DROP DATABASE d RESTRICT", "2BP01", "are in it: d.s.t")
        await do(session, "DROP DATABASE d")
        assert await do(session, "SHOW DATABASES") == [("tidemark",)]
        assert coordinator.client.state(log).is_tombstone
        assert [key for key in coordinator.catalog.schemas if key[0] == "d"] == []
        await do(session, "CREATE DATABASE d")
        assert await do(session, "SHOW SCHEMAS FROM d") != []

    region.run(test)
    with pytest.raises(TidemarkError, match='database "e" does not exist'):
        region.run(test, database="e")


def test_every_database_has_its_own_catalog(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE DATABASE d", "CREATE TABLE t (a int)", "CREATE SCHEMA d.s")
        await do(session, "CREATE TABLE d.s.u (a int)")
        query = (
            "SELECT table_catalog, table_schema, table_name FROM information_schema.tables"
            " WHERE table_schema IN ('public', 's') ORDER BY 3"
        )
        assert await do(session, query) == [("tidemark", "public", "t")]
        await do(session, "SET database = D")
        assert await do(session, query) == [("d", "s", "u")]
        assert await do(session, "SELECT datname FROM pg_database") == [("tidemark",), ("d",)]
        assert await do(session, "SELECT 1 FROM d.pg_catalog.pg_class WHERE relname = 'u'") == [
            (1,)
        ]
        other = "SELECT 1 FROM tidemark.pg_catalog.pg_class"
        await refused(session, other, "42P01", "does not exist")
        names = "SELECT o.name FROM mz_objects o JOIN mz_schemas s ON s.id = o.schema_id"
        assert await do(session, f"{names} WHERE s.name = 's'") == [("u",)]

    region.run(test)


def test_names_of_other_regions(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE TABLE t (a int)")
        assert await read(session, "SELECT * FROM local.tidemark.public.t") == "t"
        for sql in (
            "SELECT * FROM eu.tidemark.public.t",
            "INSERT INTO eu.tidemark.public.t VALUES (1)",
            "DROP TABLE eu.tidemark.public.t",
            "CREATE TABLE eu.tidemark.public.t (a int)",
        ):
            await refused(session, sql, "0A000", "data does not cross regions")
        await refused(session, "DROP TABLE a.b.c.d.e", "42601", "too many dotted names")

    region.run(test)


def test_a_connection_is_altered_option_by_option(region: Region):
    async def test(session: Session) -> None:
        def target() -> KafkaTarget:
            found = session.coordinator.catalog.find(("tidemark", "s", "Quoted one"))
            assert found is not None
            assert isinstance(found.connection, KafkaTarget)
            return found.connection

        async def said() -> str:
            ((_, sql),) = await do(session, 'SHOW CREATE CONNECTION s."Quoted one"')
            return sql

        await do(
            session,
            "CREATE SCHEMA s",
            "CREATE SECRET p AS '1'",
            "CREATE SECRET s.p AS '2'",
            "CREATE CONNECTION s.\"Quoted one\" TO KAFKA (BROKER 'a:1', SASL USERNAME = 'it''s',"
            " SASL PASSWORD = SECRET s.p)",
            "ALTER CONNECTION s.\"Quoted one\" SET (BROKERS ('b:1', 'c:1'), SASL PASSWORD SECRET p),"
            " SET (SECURITY PROTOCOL 'SASL_PLAINTEXT')",
        )
        assert target().brokers == "b:1,c:1"
        assert target().secrets == {"sasl.password": "p"}
        sasl = "SASL USERNAME = 'it''s', SECURITY PROTOCOL = 'SASL_PLAINTEXT'"
        before = 'CREATE CONNECTION s."Quoted one" TO KAFKA ('
        assert sorted((await said())[len(before) : -1].split(", ")) == sorted(
            f"BROKERS = ('b:1', 'c:1'), {sasl}, SASL PASSWORD = SECRET p".split(", ")
        )
        assert (await said()).startswith(before)

        # What it no longer needs can go, what it needs now cannot.
        await do(session, "DROP SECRET s.p")
        await refused(session, "DROP SECRET p", "2BP01", "other objects depend on it")

        again = session.coordinator.catalog.find(("tidemark", "s", "Quoted one"))
        await refused(
            session,
            'ALTER CONNECTION s."Quoted one" RESET (SASL PASSWORD)',
            "22023",
            "SASL_PLAINTEXT needs SASL PASSWORD",
        )
        await refused(
            session, 'ALTER CONNECTION s."Quoted one" RESET (BROKERS)', "42601", "needs BROKER"
        )
        await refused(
            session,
            "ALTER CONNECTION s.\"Quoted one\" SET (URL 'http://r')",
            "0A000",
            'connection "Quoted one" has no option URL',
        )
        await refused(
            session,
            "ALTER CONNECTION s.\"Quoted one\" SET (SASL PASSWORD 'hunter2')",
            "22023",
            "takes a secret, not a text",
        )
        await refused(
            session,
            "ALTER CONNECTION s.\"Quoted one\" SET (BROKER 'a:1'), RESET (BROKER)",
            "42601",
            "BROKER is changed more than once",
        )
        assert session.coordinator.catalog.find(("tidemark", "s", "Quoted one")) == again

        await do(
            session,
            'ALTER CONNECTION s."Quoted one" RESET (SASL PASSWORD, SASL USERNAME, SECURITY PROTOCOL),'
            " SET (BROKER = 'd:1')",
            "DROP SECRET p",
            'ALTER CONNECTION s."Quoted one" RENAME TO plain',
            "ALTER CONNECTION IF EXISTS s.nothing SET (BROKER 'a:1')",
        )
        ((_, sql),) = await do(session, "SHOW CREATE CONNECTION s.plain")
        assert sql == "CREATE CONNECTION s.plain TO KAFKA (BROKER = 'd:1')"
        assert [str(notice.message) for notice in session.notices()] == [
            'connection "s.nothing" does not exist, skipping'
        ]

        await do(
            session,
            "CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL 'http://r:1')",
            "CREATE SECRET p AS '3'",
            "ALTER CONNECTION r SET (URL = 'http://r:2', USERNAME = 'u', PASSWORD = SECRET p)",
            "ALTER CONNECTION r SET (USERNAME = 'v')",
        )
        found = session.coordinator.catalog.find(("tidemark", "public", "r"))
        assert found is not None
        assert found.connection == RegistryTarget("http://r:2", "v", "p")

    region.run(test)


def test_secrets_of_one_name_keep_their_values_apart(region: Region):
    async def test(session: Session) -> None:
        await do(session, "CREATE SCHEMA s", "CREATE SECRET p AS '1'", "CREATE SECRET s.p AS '2'")
        secrets = session.coordinator.secrets
        assert (secrets.read("p"), secrets.read("s.p")) == ("1", "2")
        await refused(session, "CREATE SECRET \"s.p\" AS '3'", "42P07", "already exists")
        await refused(session, "ALTER SCHEMA s RENAME TO z", "0A000", 'secret "s.p" cannot get')
        await do(session, "DROP SECRET p", "ALTER SECRET s.p AS '4'")
        assert secrets.read("s.p") == "4"

    region.run(test)
