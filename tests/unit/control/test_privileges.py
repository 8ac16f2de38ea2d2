"""What statements need, and who has it: roles, owners and grants on a server without clusters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import pytest

from tidemark.control import statements as s
from tidemark.control.access import LETTERS, PRIVILEGES
from tidemark.control.catalog import CLUSTER, Catalog, ClusterItem, Item
from tidemark.control.coordinator import Coordinator
from tidemark.control.logins import Logins
from tidemark.control.parse import parse
from tidemark.control.pgwire import Rows
from tidemark.control.pgwire.passwords import Passwords, password_line, read_passwords
from tidemark.control.privileges import NEEDS, Asked, May, Owns
from tidemark.control.roles import SUPERUSER
from tidemark.control.session import Session
from tidemark.errors import TidemarkError
from tidemark.persist import PersistClient


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PersistClient]:
    blob, consensus = f"file://{tmp_path / 'blob'}", f"sqlite://{tmp_path / 'consensus.db'}"
    opened = PersistClient.open(blob=blob, consensus=consensus)
    yield opened
    opened.close()


class World:
    """A coordinator, and sessions of users as they are asked for."""

    def __init__(self, coordinator: Coordinator):
        self.coordinator = coordinator
        self._sessions: dict[str, Session] = {}

    def session(self, user: str) -> Session:
        if user not in self._sessions:
            self._sessions[user] = Session(
                self.coordinator, user=user, database="tidemark", options={}
            )
        return self._sessions[user]

    async def run(self, sql: str, user: str = "tidemark") -> list[tuple] | str:
        """The rows of the last statement, or its tag."""
        session = self.session(user)
        found: list[tuple] | str = ""
        for each in await session.split(sql):
            prepared = await session.prepare(each, ())
            result = await session.execute(prepared, ())
            if isinstance(result, Rows):
                found = [
                    tuple(row.values())
                    async for batch in result.batches
                    for row in batch.to_pylist()
                ]
            else:
                found = getattr(result, "tag", "")
        return found

    async def refused(self, sql: str, user: str = "tidemark") -> str:
        with pytest.raises(TidemarkError) as raised:
            await self.run(sql, user)
        error = raised.value
        return f"{error.sqlstate}: {error.message} ({error.hint})"


@asynccontextmanager
async def world(client: PersistClient, folder: Path) -> AsyncIterator[World]:
    coordinator = Coordinator(
        client, data=folder / "data", blob="", consensus="", spark_master="local[1]"
    )
    # Without replicas: nothing is run there.
    coordinator.catalog.set_cluster(ClusterItem("s1", CLUSTER))
    coordinator.clusters.start(coordinator.catalog.clusters, {})
    coordinator.timelines.start()
    try:
        yield World(coordinator)
    finally:
        await coordinator.timelines.stop()
        await coordinator.clusters.stop()
        coordinator.engine.close()


OBJECTS = """
CREATE TABLE orders (id int, amount int);
CREATE TABLE others (id int);
CREATE VIEW large AS SELECT id FROM orders WHERE amount > 100;
CREATE MATERIALIZED VIEW totals AS SELECT sum(amount) AS total FROM orders;
CREATE SECRET password AS 'x';
CREATE CONNECTION broker TO KAFKA (BROKER 'nowhere:9092');
CREATE CONNECTION guarded TO KAFKA (
  BROKER 'nowhere:9092', SECURITY PROTOCOL 'SASL_SSL', SASL MECHANISMS 'PLAIN', SASL USERNAME 'u',
  SASL PASSWORD SECRET password
);
CREATE ROLE alice LOGIN;
CREATE SCHEMA apart;
"""

READ = "USAGE on schema public, SELECT on table orders"
RUN = f"{READ}, USAGE on cluster quickstart"

STATEMENTS = {
    "SELECT * FROM orders": RUN,
    "SELECT 1": "",
    "SELECT relname FROM pg_class": "",
    "SELECT has_table_privilege('orders', 'SELECT')": "",
    "SELECT * FROM large": RUN.replace("table orders", "view large"),
    "TABLE public.orders": RUN,
    "WITH orders AS (SELECT * FROM orders) SELECT * FROM orders": RUN,
    "WITH orders AS (SELECT 1 AS id) SELECT * FROM orders": "USAGE on cluster quickstart",
    "SELECT (SELECT max(id) FROM orders) AS most": RUN,
    "SELECT * FROM others WHERE id IN (SELECT id FROM orders)": "USAGE on schema public,"
    " SELECT on table others, USAGE on schema public, SELECT on table orders,"
    " USAGE on cluster quickstart",
    "SUBSCRIBE orders": RUN,
    "SUBSCRIBE (SELECT id FROM orders)": RUN,
    "COPY orders TO STDOUT": RUN,
    "COPY (SELECT id FROM orders) TO STDOUT": RUN,
    "COPY (SUBSCRIBE orders) TO STDOUT": RUN,
    "DECLARE c CURSOR FOR SELECT * FROM orders": RUN,
    "EXPLAIN SELECT * FROM orders": READ,
    "EXPLAIN MATERIALIZED VIEW totals": READ.replace("table orders", "materialized view totals"),
    "VERIFY totals": READ.replace("table orders", "materialized view totals"),
    "INSERT INTO orders VALUES (1, 2)": READ.replace("SELECT", "INSERT"),
    "INSERT INTO orders VALUES (1 + 1, 2)": READ.replace("SELECT", "INSERT"),
    "INSERT INTO others SELECT id FROM orders": "USAGE on schema public,"
    f" INSERT on table others, {RUN}",
    "INSERT INTO orders VALUES (1, 2) RETURNING id": f"{READ.replace('SELECT', 'INSERT')}, {READ}",
    "COPY orders FROM STDIN": READ.replace("SELECT", "INSERT"),
    "UPDATE orders SET amount = 1": "USAGE on schema public, UPDATE on table orders,"
    " USAGE on cluster quickstart",
    "UPDATE orders SET amount = amount + 1": f"{READ.replace('SELECT', 'UPDATE')}, {RUN}",
    "UPDATE orders SET amount = 1 WHERE id = 1": f"{READ.replace('SELECT', 'UPDATE')}, {RUN}",
    "DELETE FROM orders": "USAGE on schema public, DELETE on table orders,"
    " USAGE on cluster quickstart",
    "DELETE FROM orders WHERE id = 1": f"{READ.replace('SELECT', 'DELETE')}, {RUN}",
    "DELETE FROM others WHERE EXISTS (SELECT 1 FROM orders)": "USAGE on schema public,"
    f" DELETE on table others, USAGE on schema public, SELECT on table others, {RUN}",
    "UPDATE others o SET id = orders.id FROM orders": "USAGE on schema public,"
    f" UPDATE on table others, USAGE on schema public, SELECT on table others, {RUN}",
    "TRUNCATE orders": "USAGE on schema public, DELETE on table orders, USAGE on cluster quickstart",
    "CREATE TABLE t (a int)": "CREATE on schema public",
    "CREATE TABLE t AS SELECT id FROM orders": f"CREATE on schema public, {RUN}",
    "CREATE SECRET s AS 'x'": "CREATE on schema public",
    "CREATE VIEW v AS SELECT id FROM orders": f"CREATE on schema public, {READ}",
    "CREATE OR REPLACE VIEW large AS SELECT id FROM orders": f"CREATE on schema public, {READ},"
    " owns view large",
    "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders": "CREATE on schema public,"
    f" CREATE on cluster quickstart, {READ}",
    "CREATE INDEX ON orders (id)": "CREATE on cluster quickstart, owns table orders",
    "CREATE INDEX public.i ON orders (id)": "CREATE on cluster quickstart, owns table orders",
    "CREATE INDEX apart.i ON orders (id)": "USAGE on database tidemark, CREATE on schema apart,"
    " CREATE on cluster quickstart, owns table orders",
    "CREATE SOURCE g FROM LOAD GENERATOR COUNTER": "CREATE on schema public,"
    " CREATE on cluster quickstart",
    "CREATE CONNECTION c TO KAFKA (BROKER 'b', SASL USERNAME 'u', SASL PASSWORD SECRET password)": (
        "CREATE on schema public, USAGE on schema public, USAGE on secret password"
    ),
    "CREATE SOURCE k FROM KAFKA CONNECTION broker (TOPIC 't') FORMAT TEXT": "CREATE on schema"
    " public, CREATE on cluster quickstart, USAGE on schema public, USAGE on connection broker",
    "CREATE SOURCE k FROM KAFKA CONNECTION broker (TOPIC 't') FORMAT TEXT"
    " EXPOSE PROGRESS AS apart.p": "CREATE on schema public, CREATE on cluster quickstart,"
    " USAGE on database tidemark, CREATE on schema apart, USAGE on schema public, USAGE on connection broker",
    "CREATE SINK k FROM orders INTO KAFKA CONNECTION broker (TOPIC 't') KEY (id) FORMAT JSON"
    " ENVELOPE UPSERT": f"CREATE on schema public, CREATE on cluster quickstart, {READ},"
    " USAGE on schema public, USAGE on connection broker",
    "CREATE SOURCE w FROM WEBHOOK BODY FORMAT JSON CHECK (WITH (SECRET password AS p) p = 'x')": (
        "CREATE on schema public, CREATE on cluster quickstart, USAGE on schema public,"
        " USAGE on secret password"
    ),
    "ALTER TABLE orders SET (RETAIN HISTORY FOR '1 hour')": "owns table orders",
    "ALTER MATERIALIZED VIEW totals SET CLUSTER quickstart": "owns materialized view totals,"
    " CREATE on cluster quickstart",
    "ALTER TABLE orders RENAME TO more": "owns table orders",
    "ALTER TABLE orders SET SCHEMA public": "owns table orders, CREATE on schema public",
    "CREATE DATABASE d": "has createdb",
    "DROP DATABASE tidemark": "owns database tidemark",
    "CREATE SCHEMA s": "CREATE on database tidemark",
    "DROP SCHEMA public, nothing": "owns schema public",
    "ALTER SCHEMA tidemark.public RENAME TO s": "owns schema public",
    "COMMENT ON TABLE orders IS 'x'": "owns table orders",
    "COMMENT ON COLUMN orders.id IS 'x'": "owns table orders",
    "ALTER SYSTEM SET max_connections = 10": "has superuser",
    "SHOW TABLES LIKE 'o%'": "",
    "SHOW CREATE CLUSTER quickstart": "",
    "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT id FROM orders": READ,
    "DROP TABLE orders, others": "owns table orders, owns table others",
    "DROP TABLE IF EXISTS nothing": "",
    "ALTER SECRET password AS 'y'": "owns secret password",
    "ALTER CONNECTION broker SET (SASL PASSWORD = SECRET password)": (
        "owns connection broker, USAGE on schema public, USAGE on secret password"
    ),
    "ALTER CONNECTION guarded SET (BROKER = 'elsewhere:9092')": (
        "owns connection guarded, USAGE on secret password"
    ),
    "ALTER TABLE orders OWNER TO tidemark": "owns table orders, is tidemark",
    "CREATE CLUSTER c": "has createcluster",
    "ALTER CLUSTER quickstart SET (REPLICATION FACTOR = 0)": "owns cluster quickstart",
    "CREATE CLUSTER REPLICA quickstart.r2": "owns cluster quickstart",
    "ALTER CLUSTER REPLICA quickstart.r1 SET (READ ONLY = false)": "owns cluster quickstart",
    "DROP CLUSTER REPLICA quickstart.r1": "owns cluster quickstart",
    "DROP CLUSTER quickstart": "owns cluster quickstart",
    "CREATE ROLE bob LOGIN": "has createrole",
    "CREATE ROLE bob SUPERUSER": "has createrole, has superuser",
    "ALTER ROLE bob NOLOGIN": "has createrole",
    "ALTER ROLE tidemark PASSWORD 'x'": "has createrole, has superuser",
    "ALTER ROLE alice PASSWORD 'x'": "",
    "ALTER ROLE alice LOGIN PASSWORD 'x'": "has createrole",
    "ALTER ROLE alice SUPERUSER": "has createrole, has superuser",
    "ALTER ROLE alice CREATEDB": "has createrole, has createdb",
    "ALTER ROLE alice SET cluster = quickstart": "",
    "ALTER ROLE bob SET cluster = quickstart": "has createrole",
    "ALTER ROLE alice RENAME TO bob": "has createrole",
    "DROP ROLE tidemark": "has createrole, has superuser",
    "GRANT bob TO alice": "has createrole",
    "REVOKE tidemark FROM alice": "has createrole, has superuser",
    "GRANT SELECT ON orders TO alice": "owns table orders",
    "REVOKE ALL ON CLUSTER quickstart FROM PUBLIC": "owns cluster quickstart",
    "GRANT USAGE ON SCHEMA public TO alice": "owns schema public",
    "GRANT CREATE ON DATABASE tidemark TO alice": "owns database tidemark",
    "GRANT USAGE ON SECRET password TO alice": "owns secret password",
    "GRANT USAGE ON CONNECTION broker TO alice": "owns connection broker",
    "GRANT SELECT ON ALL TABLES IN SCHEMA public TO alice": "owns table orders, owns table others,"
    " owns view large, owns materialized view totals",
    "REASSIGN OWNED BY tidemark TO alice": "is tidemark, is alice",
    "DROP OWNED BY tidemark": "is tidemark",
    "SHOW CREATE TABLE orders": "USAGE on schema public",
    "SHOW TABLES": "",
    "SHOW COLUMNS FROM orders": "",
    "SHOW INDEXES": "",
    "SHOW cluster": "",
    "SHOW PRIVILEGES": "",
    "PREPARE p AS SELECT * FROM orders": "",
    "EXECUTE p": "",
    "FETCH 1 FROM c": "",
    "CLOSE c": "",
    "SET cluster = quickstart": "",
    "RESET cluster": "",
    "BEGIN": "",
    "COMMIT": "",
    "ROLLBACK": "",
    "SAVEPOINT p": "",
    "RELEASE p": "",
    "ROLLBACK TO p": "",
    "DISCARD ALL": "",
    "DEALLOCATE ALL": "",
    "UNLISTEN *": "",
}


def shown(need: object) -> str:
    match need:
        case May(privilege, what):
            return f"{privilege} on {what.kind} {what.name}"
        case Owns(what):
            return f"owns {what.kind} {what.name}"
    attribute = getattr(need, "attribute", None)
    return f"has {attribute}" if attribute else f"is {need.role.name}"  # type: ignore[attr-defined]


def test_what_each_statement_needs(client: PersistClient, tmp_path: Path) -> None:
    async def looked() -> dict[str, str]:
        async with world(client, tmp_path) as there:
            await there.run(OBJECTS)
            asked = Asked(there.session("alice"))
            found = {}
            for sql in STATEMENTS:
                statement = parse(sql)
                needs = NEEDS[type(statement)](asked, statement)
                found[sql] = ", ".join(shown(need) for need in needs)
            return found

    # What is in a schema is in a database, too, and who uses the one uses the other.
    there = {
        sql: needs.replace(
            "USAGE on schema", "USAGE on database tidemark, USAGE on schema"
        ).replace("CREATE on schema public", "USAGE on database tidemark, CREATE on schema public")
        if not sql.startswith("ALTER TABLE orders SET SCHEMA")
        else needs
        for sql, needs in STATEMENTS.items()
    }
    assert asyncio.run(looked()) == there


def test_every_statement_is_in_the_table() -> None:
    """One that is not would be for superusers only; and here is an example of each."""
    assert set(get_args(s.Statement)) == set(NEEDS)
    assert {type(parse(sql)) for sql in STATEMENTS} == set(NEEDS)


def test_every_privilege_has_a_letter() -> None:
    assert {each for kind in PRIVILEGES.values() for each in kind} == set(LETTERS)


def test_tables_are_their_owners_until_granted(client: PersistClient, tmp_path: Path) -> None:
    async def played() -> None:
        async with world(client, tmp_path) as there:
            await there.run(OBJECTS)
            said = await there.refused("SELECT * FROM orders", "alice")
            assert said == (
                "42501: permission denied for table orders (GRANT SELECT ON TABLE orders TO alice)"
            )
            assert await there.refused("DROP TABLE orders", "alice") == (
                "42501: must be owner of table orders (it is tidemark's:"
                " ALTER TABLE orders OWNER TO alice)"
            )
            await there.run("GRANT SELECT ON orders TO alice")
            await there.run("EXPLAIN SELECT * FROM orders", "alice")
            said = await there.refused("INSERT INTO orders VALUES (1, 2)", "alice")
            assert "GRANT INSERT ON TABLE orders TO alice" in said
            await there.run("GRANT INSERT ON orders TO PUBLIC")
            assert await there.run("INSERT INTO orders VALUES (1, 2)", "alice") == "INSERT 0 1"
            # A view needs what it reads when it is made, and only itself when it is read.
            await there.run("CREATE VIEW mine AS SELECT id FROM orders", "alice")
            await there.run("REVOKE SELECT ON orders FROM alice")
            await there.run("EXPLAIN SELECT * FROM mine", "alice")
            assert "table orders" in await there.refused("EXPLAIN SELECT * FROM orders", "alice")
            said = await there.refused("CREATE VIEW other AS SELECT id FROM orders", "alice")
            assert "permission denied for table orders" in said
            assert "must be owner" in await there.refused(
                "GRANT SELECT ON orders TO alice", "alice"
            )
            # Replaced, a view is still whose it was, and granted to whom it was.
            await there.run("GRANT SELECT ON mine TO PUBLIC", "alice")
            await there.run("CREATE OR REPLACE VIEW mine AS SELECT id FROM others")
            assert await there.run("DROP VIEW mine", "alice") == "DROP VIEW"

    asyncio.run(played())


def test_prepared_statements_are_checked_when_they_run(
    client: PersistClient, tmp_path: Path
) -> None:
    async def played() -> None:
        async with world(client, tmp_path) as there:
            await there.run(OBJECTS)
            await there.run("GRANT INSERT ON others TO alice")
            session = there.session("alice")
            prepared = await session.prepare("INSERT INTO others VALUES (1)", ())
            await session.execute(prepared, ())
            await there.run("PREPARE p AS INSERT INTO others VALUES (2); EXECUTE p", "alice")
            await there.run("REVOKE INSERT ON others FROM alice")
            with pytest.raises(TidemarkError, match="permission denied for table others"):
                await session.execute(prepared, ())
            assert "table others" in await there.refused("EXECUTE p", "alice")

    asyncio.run(played())


def test_members_have_what_their_roles_have(client: PersistClient, tmp_path: Path) -> None:
    async def played() -> None:
        async with world(client, tmp_path) as there:
            await there.run(OBJECTS)
            await there.run(
                "CREATE ROLE readers; CREATE ROLE staff; GRANT readers TO staff;"
                "GRANT staff TO alice; GRANT SELECT ON orders TO readers"
            )
            await there.run("EXPLAIN SELECT * FROM orders", "alice")
            said = await there.refused("GRANT alice TO readers")
            assert said.startswith('0LP01: role "alice" is a member of role "readers"')
            assert "cannot be the other way" in await there.refused("GRANT staff TO staff")
            assert "not permitted to log in" in await there.refused("SELECT 1", "staff")
            # SET ROLE, and what the session then says of itself.
            names = "SELECT current_user, session_user, current_role"
            assert await there.run(f"SET ROLE readers; {names}", "alice") == [
                ("readers", "alice", "readers")
            ]
            await there.run("CREATE TABLE of_readers (a int)", "alice")
            assert await there.run(f"RESET ROLE; {names}", "alice") == [("alice", "alice", "alice")]
            assert await there.run("DROP TABLE of_readers", "alice") == "DROP TABLE"
            said = await there.refused("SET ROLE tidemark", "alice")
            assert said.startswith('42501: permission denied to set role "tidemark"')
            # Nor by any other way to change a setting, nor after the membership has ended.
            said = await there.refused("SELECT set_config('role', 'tidemark', false)", "alice")
            assert said.startswith('42501: permission denied to set role "tidemark"')
            assert await there.run(names, "alice") == [("alice", "alice", "alice")]
            await there.run("SET ROLE staff", "alice")
            await there.run("REVOKE staff FROM alice")
            assert "permission denied to set role" in await there.refused("SELECT 1", "alice")
            await there.run("RESET ROLE", "alice")
            said = await there.refused("EXPLAIN SELECT * FROM orders", "alice")
            assert "permission denied for table orders" in said
            with pytest.raises(TidemarkError, match="permission denied to set role"):
                Session(
                    there.coordinator,
                    user="alice",
                    database="tidemark",
                    options={"role": "tidemark"},
                )

    asyncio.run(played())


def test_nobody_becomes_a_superuser_by_managing_roles(
    client: PersistClient, tmp_path: Path
) -> None:
    async def played() -> None:
        async with world(client, tmp_path) as there:
            await there.run("CREATE USER manager CREATEROLE; CREATE USER admin")
            await there.run("GRANT tidemark TO admin")
            await there.run("CREATE ROLE other LOGIN; GRANT other TO manager", "manager")
            for sql in (
                "CREATE ROLE another SUPERUSER",
                "ALTER ROLE other SUPERUSER",
                "ALTER ROLE manager CREATECLUSTER",
                "GRANT tidemark TO manager",
                "GRANT admin TO manager",
                "ALTER ROLE tidemark PASSWORD 'x'",
                "ALTER ROLE admin PASSWORD 'x'",
                "ALTER ROLE admin RENAME TO y",
                "DROP ROLE admin",
                "SET ROLE admin",
                "REASSIGN OWNED BY tidemark TO manager",
            ):
                assert (await there.refused(sql, "manager")).startswith("42501"), sql
            assert await there.run("DROP ROLE other", "manager") == "DROP ROLE"

    asyncio.run(played())


def test_what_is_owned_keeps_a_role(client: PersistClient, tmp_path: Path) -> None:
    async def played() -> None:
        async with world(client, tmp_path) as there:
            await there.run(OBJECTS)
            await there.run("CREATE ROLE bob")
            await there.run("CREATE TABLE mine (a int); GRANT SELECT ON mine TO bob", "alice")
            await there.run("GRANT SELECT ON orders TO alice")
            said = await there.refused("DROP ROLE alice")
            assert said.startswith(
                '2BP01: role "alice" cannot be dropped because some objects depend on it:'
                " privileges for table orders, owner of table mine (REASSIGN OWNED BY alice"
            )
            await there.run("REASSIGN OWNED BY alice TO bob")
            assert await there.run("SELECT tableowner FROM pg_tables WHERE tablename = 'mine'") == [
                ("bob",)
            ]
            assert "privileges for table orders" in await there.refused("DROP ROLE alice")
            await there.run("DROP OWNED BY alice; DROP ROLE alice")
            # Who was connected is nobody now, and no superuser.
            assert "was dropped" in await there.refused("SELECT 1", "alice")
            await there.run("DROP OWNED BY bob")
            assert await there.run("SHOW TABLES") == [("orders",), ("others",)]
            assert await there.run("DROP ROLE IF EXISTS alice, bob") == "DROP ROLE"
            assert await there.run("SELECT name FROM mz_roles") == [("tidemark",)]
            for wrong in ("DROP ROLE tidemark", "ALTER ROLE tidemark NOSUPERUSER"):
                assert (await there.refused(wrong)).startswith("42939")
            assert "does not exist" in await there.refused("DROP ROLE nobody")

    asyncio.run(played())


def test_owners_change_and_clusters_have_them(client: PersistClient, tmp_path: Path) -> None:
    async def played() -> None:
        async with world(client, tmp_path) as there:
            await there.run(OBJECTS)
            said = await there.refused("CREATE CLUSTER c (REPLICATION FACTOR = 0)", "alice")
            assert said.startswith("42501: permission denied to create cluster")
            await there.run("ALTER ROLE alice CREATECLUSTER; CREATE ROLE bob LOGIN")
            await there.run("CREATE CLUSTER c (REPLICATION FACTOR = 0)", "alice")
            view = "CREATE MATERIALIZED VIEW v IN CLUSTER c AS SELECT count(*) AS n FROM orders"
            await there.run("GRANT SELECT ON orders TO bob")
            assert "GRANT CREATE ON CLUSTER c TO bob" in await there.refused(view, "bob")
            await there.run("GRANT CREATE ON CLUSTER c TO bob", "alice")
            await there.run(view, "bob")
            assert "must be owner of cluster c" in await there.refused("DROP CLUSTER c", "bob")
            owners = "JOIN mz_roles r ON r.id = o.owner_id WHERE o.name IN ('c', 'v', 'orders')"
            assert await there.run(f"SELECT r.name FROM mz_clusters o {owners}") == [("alice",)]
            assert await there.run(f"SELECT r.name FROM mz_objects o {owners} ORDER BY o.id") == [
                ("tidemark",),
                ("bob",),
            ]
            await there.run("ALTER CLUSTER c OWNER TO bob")
            assert await there.run("DROP CLUSTER c CASCADE", "bob") == "DROP CLUSTER"
            source = "CREATE SOURCE g FROM LOAD GENERATOR AUCTION FOR ALL TABLES"
            await there.run(f"{source}; ALTER SOURCE g OWNER TO bob")
            await there.run("EXPLAIN SELECT * FROM bids", "bob")
            assert 'belongs to source "g"' in await there.refused("ALTER SOURCE bids OWNER TO bob")
            assert "not a view" in await there.refused("ALTER VIEW orders OWNER TO bob")
            await there.run("DROP SOURCE g", "bob")

    asyncio.run(played())


def test_what_the_catalog_shows(client: PersistClient, tmp_path: Path) -> None:
    async def played() -> None:
        async with world(client, tmp_path) as there:
            await there.run(OBJECTS)
            await there.run("CREATE ROLE readers; GRANT readers TO alice")
            await there.run("GRANT SELECT, INSERT ON orders TO readers, PUBLIC")
            await there.run("GRANT CREATE ON DATABASE tidemark TO alice")
            acl = "SELECT array_to_string(relacl, ' ') FROM pg_class WHERE relname = 'orders'"
            assert await there.run(acl) == [
                ("tidemark=arwd/tidemark readers=ar/tidemark =ar/tidemark",)
            ]
            has = {
                "has_table_privilege('orders', 'SELECT')": True,
                "has_table_privilege('orders', 'DELETE')": False,
                "has_table_privilege('orders', 'DELETE, INSERT')": True,
                "has_table_privilege('others', 'SELECT')": False,
                "has_table_privilege('tidemark', 'others', 'SELECT')": True,
                "has_table_privilege(current_user, 'others'::regclass, 'SELECT')": False,
                "has_table_privilege('pg_class', 'SELECT')": True,
                "has_column_privilege('orders', 'id', 'SELECT')": True,
                "has_any_column_privilege('others', 'SELECT')": False,
                "has_schema_privilege('public', 'CREATE')": True,
                "has_schema_privilege('readers', 'public', 'USAGE')": True,
                "has_database_privilege('tidemark', 'CREATE')": True,
                "has_database_privilege('readers', 'tidemark', 'CREATE')": False,
                "has_database_privilege('tidemark', 'CONNECT')": True,
                "has_cluster_privilege('quickstart', 'USAGE')": True,
                "has_secret_privilege('password', 'USAGE')": False,
                "pg_has_role('readers', 'USAGE')": True,
                "pg_has_role('tidemark', 'MEMBER')": False,
                "pg_has_role(10, 'MEMBER')": False,
                "current_setting('is_superuser') = 'on'": False,
                "pg_has_role('tidemark', 'readers', 'MEMBER')": True,
            }
            found = {call: await there.run(f"SELECT {call} AS has", "alice") for call in has}
            assert found == {call: [(truth,)] for call, truth in has.items()}
            said = await there.refused("SELECT has_table_privilege('nobody', 'orders', 'SELECT')")
            assert said.startswith('42704: role "nobody" does not exist')
            members = (
                "SELECT r.rolname, m.rolname AS member FROM pg_auth_members a JOIN pg_roles r"
                " ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member"
            )
            assert await there.run(members) == [("readers", "alice")]
            assert await there.run("SHOW ROLES") == [
                ("tidemark", "t", "t", ""),
                ("alice", "t", "f", "readers"),
                ("readers", "f", "f", ""),
            ]
            assert await there.run("SHOW PRIVILEGES FOR readers") == [
                ("tidemark", "readers", "orders", "table", privilege)
                for privilege in ("SELECT", "INSERT")
            ]
            # What others have asked is not everybody's to know.
            log = "SELECT count(*) FROM mz_internal.mz_recent_activity_log"
            assert "permission denied for view mz_recent" in await there.refused(log, "alice")

    asyncio.run(played())


def test_roles_outlive_a_restart(client: PersistClient, tmp_path: Path) -> None:
    async def before() -> None:
        async with world(client, tmp_path) as there:
            await there.run(OBJECTS)
            await there.run("CREATE ROLE readers; GRANT readers TO alice")
            await there.run("GRANT SELECT ON orders TO readers; ALTER TABLE others OWNER TO alice")
            await there.run("ALTER ROLE alice SET statement_timeout = '10s'")
            await there.run("ALTER ROLE alice PASSWORD 'open sesame'")
            await there.run("ALTER ROLE alice RENAME TO eve")

    async def after() -> None:
        async with world(client, tmp_path) as there:
            await there.run("EXPLAIN SELECT * FROM orders", "eve")
            assert "orders" in await there.refused("DELETE FROM orders", "eve")
            # What its sessions begin with, and go back to.
            shown = "SHOW statement_timeout"
            assert await there.run(shown, "eve") == [("10s",)]
            assert await there.run(f"SET statement_timeout = 0; {shown}", "eve") == [("0",)]
            assert await there.run(f"RESET statement_timeout; {shown}", "eve") == [("10s",)]
            assert "invalid value" in await there.refused(
                "ALTER ROLE eve SET statement_timeout = x"
            )
            assert await there.run("DROP TABLE others", "eve") == "DROP TABLE"

    asyncio.run(before())
    rows = Catalog(client)._definitions.rows.values()
    assert not any("sesame" in text for text in rows)
    asyncio.run(after())


def test_a_catalog_from_before_there_were_roles(client: PersistClient, tmp_path: Path) -> None:
    Catalog(client).add(Item("u1", "old", "view", "CREATE VIEW old AS SELECT 1 AS a"))

    async def played() -> None:
        async with world(client, tmp_path) as there:
            assert await there.run("SELECT viewowner FROM pg_views WHERE viewname = 'old'") == [
                ("tidemark",)
            ]
            await there.run("CREATE ROLE alice LOGIN")
            assert "view old" in await there.refused("DROP VIEW old", "alice")
            assert await there.run("SELECT current_user", "somebody") == [("somebody",)]
            assert await there.run("DROP VIEW old", "somebody") == "DROP VIEW"

    asyncio.run(played())


def test_who_has_to_say_a_password(client: PersistClient, tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(password_line("carol", "from the file"))

    async def played() -> None:
        async with world(client, tmp_path) as there:
            roles = lambda: there.coordinator.catalog.roles  # noqa: E731
            logins = Logins(None, roles)
            await there.run("CREATE ROLE alice LOGIN PASSWORD 'one'; CREATE USER bob")
            assert [logins.asks(name) for name in ("alice", "bob", "tidemark", "x")] == [
                *(True, False, False, False)
            ]
            logins.check("alice", "one")
            _refuses(logins, "alice", "two")
            await there.run("ALTER ROLE alice PASSWORD 'two'")
            logins.check("alice", "two")
            # Who is nobody acts as tidemark: once that has a password, everybody needs one.
            await there.run("ALTER ROLE tidemark PASSWORD 'three'")
            assert logins.always
            assert all(logins.asks(name) for name in ("alice", "bob", "tidemark", "x"))
            for name in ("bob", "x"):
                _refuses(logins, name, "three")
            await there.run("ALTER ROLE tidemark PASSWORD NULL")
            assert not logins.always
            both = Logins(read_passwords(path), roles)
            both.check("carol", "from the file")
            both.check("alice", "two")
            _refuses(both, "bob", "")
            # The role's own counts before the file's.
            await there.run("CREATE USER carol PASSWORD 'from SQL'")
            both.check("carol", "from SQL")
            _refuses(both, "carol", "from the file")
            there.coordinator.file_users = frozenset(["carol"])
            for sql in ("DROP ROLE carol", "ALTER ROLE carol RENAME TO dave"):
                assert "acts as tidemark" in await there.refused(sql)

    asyncio.run(played())


def _refuses(logins: Logins | Passwords, user: str, password: str) -> None:
    with pytest.raises(TidemarkError, match="password authentication failed"):
        logins.check(user, password)


def test_passwords_are_kept_from_the_statement_log(client: PersistClient, tmp_path: Path) -> None:
    async def played() -> None:
        async with world(client, tmp_path) as there:
            await there.run("CREATE ROLE alice LOGIN PASSWORD 'sesame'")
            await there.run("ALTER ROLE alice ENCRYPTED PASSWORD 'sesame'")
            assert "sesame" not in await there.refused("ALTER ROLE alice PASSWORD sesame")
            await there.refused("CREATE ROLE alice PASSWORD 'sesame'")
            ran = list(there.coordinator.activity.recent)
            assert len(ran) == 3
            assert not any("sesame" in f"{each.sql} {each.error}" for each in ran)
            assert "sesame" not in repr(parse("ALTER ROLE alice PASSWORD 'sesame'"))

    asyncio.run(played())


REFUSED = {
    "CREATE ROLE public": "42939",
    "CREATE ROLE pg_me": "42939",
    "CREATE ROLE a NOINHERIT": "0A000",
    "CREATE ROLE a LOGIN NOLOGIN": "42601",
    "CREATE ROLE a IN ROLE b": "0A000",
    "GRANT SELECT ON CLUSTER c TO a": "0LP01",
    "GRANT USAGE ON TABLE c TO a": "0LP01",
    "GRANT TRUNCATE ON c TO a": "42601",
    "GRANT SELECT (a) ON c TO a": "0A000",
    "GRANT SELECT ON c TO a WITH GRANT OPTION": "0A000",
    "GRANT a TO b WITH ADMIN OPTION": "0A000",
    "REVOKE GRANT OPTION FOR SELECT ON c FROM a": "0A000",
    "GRANT EXECUTE ON FUNCTION f TO a": "42601",
    "GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO a": "0A000",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_no_grant(sql: str) -> None:
    with pytest.raises(TidemarkError) as raised:
        parse(sql)
    assert raised.value.sqlstate == REFUSED[sql]


def test_the_first_role_is_a_superuser() -> None:
    assert (SUPERUSER.name, SUPERUSER.oid, SUPERUSER.superuser) == ("tidemark", 10, True)


def test_schemas_and_databases_have_owners(client: PersistClient, tmp_path: Path) -> None:
    async def played() -> None:
        async with world(client, tmp_path) as there:
            await there.run("CREATE USER alice; CREATE USER bob CREATEDB")
            said = await there.refused("CREATE SCHEMA shop", "alice")
            assert said == (
                "42501: permission denied for database tidemark"
                " (GRANT CREATE ON DATABASE tidemark TO alice)"
            )
            await there.run("GRANT CREATE ON DATABASE tidemark TO alice")
            await there.run("CREATE SCHEMA shop; CREATE TABLE shop.t (a int)", "alice")
            await there.run("GRANT SELECT ON ALL TABLES IN SCHEMA shop TO bob", "alice")
            said = await there.refused("EXPLAIN SELECT * FROM shop.t", "bob")
            assert said.startswith("42501: permission denied for schema shop (GRANT USAGE")
            await there.run("GRANT USAGE ON SCHEMA shop TO bob", "alice")
            await there.run("EXPLAIN SELECT * FROM shop.t", "bob")
            assert "for schema shop" in await there.refused("CREATE TABLE shop.u (a int)", "bob")
            for sql in (
                "DROP SCHEMA shop CASCADE",
                "ALTER SCHEMA shop RENAME TO s",
                "ALTER TABLE shop.t RENAME TO u",
                "ALTER TABLE shop.t SET SCHEMA public",
            ):
                assert (await there.refused(sql, "bob")).startswith("42501: must be owner"), sql
            assert "to create database" in await there.refused("CREATE DATABASE sales", "alice")
            await there.run("CREATE DATABASE sales; SET database = sales", "bob")
            await there.run("CREATE TABLE t (a int)", "bob")
            said = await there.refused("EXPLAIN SELECT * FROM sales.public.t", "alice")
            assert "for table sales.public.t" in said
            await there.run("REVOKE USAGE ON DATABASE sales FROM PUBLIC", "bob")
            await there.run("GRANT SELECT ON t TO alice", "bob")
            said = await there.refused("EXPLAIN SELECT * FROM sales.public.t", "alice")
            assert "for database sales" in said
            assert "must be owner" in await there.refused("DROP DATABASE sales", "alice")
            assert await there.run(
                "SELECT s.name, r.name AS owner FROM mz_schemas s JOIN mz_roles r ON r.id = s.owner_id"
                " WHERE s.id LIKE 'u%' ORDER BY 1"
            ) == [("public", "bob"), ("shop", "alice")]
            assert "owner of schema shop" in await there.refused("DROP ROLE alice")
            await there.run("DROP OWNED BY alice CASCADE; DROP ROLE alice")
            assert await there.run("SELECT name FROM mz_schemas WHERE name = 'shop'") == []
            await there.run("RESET database; DROP DATABASE sales", "bob")

    asyncio.run(played())
