"""Several users on one server: who may do what, on the wire and over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec
import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from serving import DEADLINE, Serving

PASSWORD = "hush now"


@pytest.fixture(scope="module")
def shop(server: Serving) -> Iterator[Serving]:
    """A table and two views of the superuser's, a writer, and a reader with a password."""
    with server.connect() as admin:
        admin.execute("CREATE TABLE rt_orders (id int NOT NULL, amount int)")
        admin.execute("INSERT INTO rt_orders VALUES (1, 10), (2, 20)")
        admin.execute("CREATE VIEW rt_large AS SELECT id FROM rt_orders WHERE amount > 15")
        admin.execute(
            "CREATE MATERIALIZED VIEW rt_totals AS SELECT sum(amount) AS total FROM rt_orders"
        )
        admin.execute("CREATE ROLE rt_readers")
        admin.execute("CREATE USER rt_writer")
        admin.execute(f"CREATE USER rt_reader PASSWORD '{PASSWORD}'")
        admin.execute("GRANT rt_readers TO rt_reader")
        admin.execute("GRANT SELECT ON rt_large, rt_totals TO rt_readers")
        admin.execute("GRANT SELECT, INSERT ON rt_orders TO rt_writer")
    yield server
    with server.connect() as admin:
        admin.execute("DROP OWNED BY rt_writer, rt_reader, rt_readers CASCADE")
        admin.execute("DROP TABLE rt_orders CASCADE")
        admin.execute("DROP ROLE rt_writer, rt_reader, rt_readers")


def logged_in(server: Serving, user: str, password: str = "") -> psycopg.Connection:
    return psycopg.connect(
        host="127.0.0.1",
        port=server.port,
        user=user,
        password=password,
        dbname="tidemark",
        autocommit=True,
    )


def test_a_reader_reads_views_and_not_what_they_read(shop: Serving) -> None:
    with logged_in(shop, "rt_reader", PASSWORD) as reader:
        assert reader.info.parameter_status("is_superuser") == "off"
        assert reader.execute("SELECT * FROM rt_large").fetchall() == [(2,)]
        assert reader.execute("SELECT * FROM rt_totals").fetchall() == [(30,)]
        # The same by parameters, and prepared on the server.
        query = "SELECT id FROM rt_large WHERE id > %s"
        for _ in range(3):
            assert reader.execute(query, (1,), prepare=True).fetchall() == [(2,)]
        for sql in (
            "SELECT * FROM rt_orders",
            "SELECT l.id FROM rt_large l JOIN rt_orders o ON o.id = l.id",
            "WITH rt_large AS (SELECT id FROM rt_orders) SELECT * FROM rt_large",
            "SUBSCRIBE rt_orders",
            "COPY rt_orders TO STDOUT",
            "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM rt_orders",
            "EXPLAIN SELECT * FROM rt_orders",
            "CREATE VIEW rt_mine AS SELECT id FROM rt_orders",
        ):
            with pytest.raises(InsufficientPrivilege, match="for table rt_orders") as raised:
                reader.execute(sql)  # pyright: ignore[reportArgumentType]
            hint = raised.value.diag.message_hint
            assert hint == "GRANT SELECT ON TABLE rt_orders TO rt_reader"
        for sql in (
            "INSERT INTO rt_orders VALUES (3, 1)",
            "DELETE FROM rt_orders",
            "UPDATE rt_orders SET amount = 0",
            "DROP TABLE rt_orders",
            "CREATE INDEX rt_index ON rt_orders (id)",
            "CREATE ROLE rt_other",
            "GRANT SELECT ON rt_orders TO rt_reader",
            "SET ROLE tidemark",
        ):
            with pytest.raises(InsufficientPrivilege):
                reader.execute(sql)  # pyright: ignore[reportArgumentType]


def test_what_is_revoked_is_refused_also_where_it_was_prepared(shop: Serving) -> None:
    with shop.connect() as admin, logged_in(shop, "rt_writer") as writer:
        insert = "INSERT INTO rt_orders VALUES (%s, 5)"
        writer.execute(insert, (7,), prepare=True)
        admin.execute("REVOKE INSERT ON rt_orders FROM rt_writer")
        with pytest.raises(InsufficientPrivilege, match="permission denied for table rt_orders"):
            writer.execute(insert, (8,), prepare=True)
        with (
            pytest.raises(InsufficientPrivilege),
            writer.cursor() as cursor,
            cursor.copy("COPY rt_orders FROM STDIN") as copy,
        ):
            copy.write(b"9\t1\n")
        admin.execute("GRANT INSERT ON rt_orders TO PUBLIC")
        writer.execute(insert, (8,), prepare=True)
        admin.execute("REVOKE INSERT ON rt_orders FROM PUBLIC")
        admin.execute("GRANT INSERT ON rt_orders TO rt_writer")
        assert writer.execute("SELECT id FROM rt_orders WHERE id > 6 ORDER BY id").fetchall() == [
            (7,),
            (8,),
        ]
        admin.execute("DELETE FROM rt_orders WHERE id > 6")


def test_what_one_creates_is_ones_own(shop: Serving) -> None:
    with logged_in(shop, "rt_writer") as writer, logged_in(shop, "rt_reader", PASSWORD) as reader:
        writer.execute("CREATE MATERIALIZED VIEW rt_count AS SELECT count(*) FROM rt_orders")
        with pytest.raises(InsufficientPrivilege, match="for materialized view rt_count"):
            reader.execute("SELECT * FROM rt_count")
        writer.execute("GRANT SELECT ON rt_count TO rt_readers")
        assert reader.execute("SELECT * FROM rt_count").fetchone() == (2,)
        with pytest.raises(InsufficientPrivilege, match="must be owner"):
            reader.execute("DROP MATERIALIZED VIEW rt_count")
        writer.execute("DROP MATERIALIZED VIEW rt_count")


def test_clusters_are_granted_too(shop: Serving) -> None:
    with shop.connect() as admin, logged_in(shop, "rt_reader", PASSWORD) as reader:
        admin.execute("REVOKE USAGE ON CLUSTER quickstart FROM PUBLIC")
        try:
            with pytest.raises(InsufficientPrivilege, match="for cluster quickstart"):
                reader.execute("SELECT * FROM rt_large")
            assert reader.execute("SELECT 1").fetchone() == (1,)
            assert reader.execute("SELECT count(*) > 0 FROM pg_class").fetchone() == (True,)
        finally:
            admin.execute("GRANT USAGE ON CLUSTER quickstart TO PUBLIC")


def test_a_role_with_a_password_has_to_say_it(shop: Serving) -> None:
    for wrong in ("", "hush"):
        with pytest.raises(psycopg.OperationalError, match=r"password|no password supplied"):
            logged_in(shop, "rt_reader", wrong)
    with shop.connect() as admin:
        # As psql's \password does it: the server never sees the password.
        made = admin.pgconn.encrypt_password(PASSWORD.encode(), b"rt_reader").decode()
        assert made.startswith("SCRAM-SHA-256$")
        admin.execute(f"ALTER USER rt_reader PASSWORD '{made}'".encode())
    logged_in(shop, "rt_reader", PASSWORD).close()
    with pytest.raises(psycopg.OperationalError, match="is not permitted to log in"):
        logged_in(shop, "rt_readers")
    with logged_in(shop, "rt_stranger") as stranger:  # No role, and no passwords asked: as ever.
        assert stranger.execute("SELECT current_user").fetchone() == ("rt_stranger",)
        assert stranger.execute("SELECT count(*) FROM rt_orders").fetchone() == (2,)
    with shop.connect() as admin:
        log = "SELECT sql FROM mz_internal.mz_recent_activity_log"
        assert not any(PASSWORD in sql for (sql,) in admin.execute(log).fetchall())
    assert PASSWORD not in shop.log


def test_over_http(shop: Serving) -> None:
    assert posted(shop, "SELECT * FROM rt_large", "rt_reader", PASSWORD)["rows"] == [["2"]]
    refused = posted(shop, "SELECT * FROM rt_orders", "rt_reader", PASSWORD)["error"]
    assert (refused["code"], refused["message"]) == (
        "42501",
        "permission denied for table rt_orders",
    )
    with pytest.raises(HTTPError) as raised:
        posted(shop, "SELECT 1", "rt_reader", "wrong")
    assert raised.value.code == 401


def posted(server: Serving, query: str, user: str, password: str) -> dict:
    request = Request(
        f"{server.http}/api/sql",
        data=msgspec.json.encode({"query": query}),
        headers={
            "Content-Type": "application/json",
            "Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}",
        },
    )
    with urlopen(request, timeout=DEADLINE) as answer:
        (result,) = msgspec.json.decode(answer.read())["results"]
    return result
