"""UPDATE, DELETE and TRUNCATE with subqueries and other tables: as PostgreSQL does them.

Every statement runs on both; after it both have the same rows, have said the same count, or the same
SQLSTATE. Tables have duplicates and nulls, which is where a rewriting goes wrong.
"""

from __future__ import annotations

from collections import Counter

import psycopg

from services import PostgresServer

TABLES = (
    "CREATE TABLE changed (id int, n int, word text)",
    "CREATE TABLE beside (id int, m int, word text)",
)
ROWS = (
    "INSERT INTO changed VALUES (1, 10, 'a'), (1, 10, 'a'), (2, 20, 'b'), (3, null, null),"
    " (null, 40, 'd'), (5, 50, 'e'), (6, 60, 'f'), (7, 70, 'g')",
    "INSERT INTO beside VALUES (1, 100, 'a'), (2, 200, 'z'), (2, 201, 'b'), (5, null, 'e'),"
    " (null, 1, null)",
)
STATEMENTS = (
    "UPDATE changed SET n = n + 1 WHERE id IN (SELECT id FROM beside)",
    "UPDATE changed SET word = 'no' WHERE id NOT IN (SELECT id FROM beside WHERE id IS NOT NULL)",
    "UPDATE changed SET word = 'never' WHERE id NOT IN (SELECT id FROM beside)",
    "UPDATE changed SET word = 'yes' WHERE EXISTS"
    " (SELECT 1 FROM beside b WHERE b.id = changed.id AND b.m > 100)",
    "UPDATE changed c SET n = (SELECT max(m) FROM beside b WHERE b.id = c.id), word = word || '!'",
    "UPDATE changed SET n = (SELECT m FROM beside WHERE beside.id = changed.id)",
    "UPDATE changed SET n = (SELECT count(*) FROM changed) WHERE id > (SELECT min(id) FROM beside)",
    "UPDATE changed SET n = b.m, word = 'from' FROM beside b WHERE b.id = changed.id AND b.m < 201",
    "UPDATE changed SET n = 7 FROM beside b WHERE b.id = changed.id",
    "UPDATE changed c SET word = b.word || d.word FROM beside b JOIN beside d ON b.m = d.m"
    " WHERE c.id = b.id AND b.id = 1",
    "UPDATE changed SET n = 1 FROM beside WHERE id = 1",
    "UPDATE changed SET n = 1 FROM changed WHERE true",
    "UPDATE changed SET n = nothing FROM beside",
    "UPDATE changed SET n = (SELECT id, m FROM beside)",
    "DELETE FROM changed WHERE id IN (SELECT id FROM beside WHERE m = 100)",
    "DELETE FROM changed c USING beside b WHERE c.id = b.id AND b.word = 'z'",
    "DELETE FROM changed USING beside WHERE id = 1",
    "DELETE FROM changed WHERE n > ALL (SELECT m FROM beside WHERE m < 10) AND word IS NULL",
    "DELETE FROM changed WHERE id = (WITH least AS (SELECT min(id) AS id FROM changed)"
    " SELECT id FROM least)",
    "TRUNCATE TABLE changed",
    "TRUNCATE nothing",
)


def outcome(connection: psycopg.Connection, sql: str) -> object:
    try:
        return connection.execute(sql).rowcount
    except psycopg.Error as error:
        return error.sqlstate


def contents(connection: psycopg.Connection) -> Counter:
    return Counter(connection.execute("SELECT * FROM changed").fetchall())


def test_changes_by_what_other_tables_have(
    connection: psycopg.Connection, postgres_server: PostgresServer
):
    with psycopg.connect(postgres_server.uri(), autocommit=True) as postgres:
        for each in (connection, postgres):
            each.execute("CREATE SCHEMA changes")
            each.execute("SET search_path TO changes")
            for sql in (*TABLES, *ROWS):
                each.execute(sql)
        try:
            for sql in STATEMENTS:
                expected, found = outcome(postgres, sql), outcome(connection, sql)
                assert found == expected, sql
                assert contents(connection) == contents(postgres), sql
        finally:
            for each in (connection, postgres):
                each.execute("DROP SCHEMA changes CASCADE")


def test_a_row_with_two_partners_in_an_update_is_an_error(connection: psycopg.Connection):
    """PostgreSQL takes any of the two."""
    connection.execute("CREATE TABLE partnered (id int, n int)")
    connection.execute("INSERT INTO partnered VALUES (1, 1), (2, 2)")
    try:
        sql = "UPDATE partnered p SET n = f.n FROM (VALUES (1, 5), (1, 6)) AS f(id, n) WHERE f.id = p.id"
        assert outcome(connection, sql) == "21000"
        rows = connection.execute("SELECT id, n FROM partnered ORDER BY id").fetchall()
        assert rows == [(1, 1), (2, 2)]
        with connection.transaction():
            connection.execute("INSERT INTO partnered VALUES (3, 0)")
            mine = "UPDATE partnered SET n = 9 WHERE id = (SELECT max(id) FROM partnered)"
            assert connection.execute(mine).rowcount == 1
        found = connection.execute("SELECT n FROM partnered WHERE id = 3").fetchall()
        assert found == [(9,)]
    finally:
        connection.execute("DROP TABLE partnered")
