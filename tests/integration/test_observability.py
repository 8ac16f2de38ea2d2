"""What a server says of itself, after something was done that it should show; through the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from serving import Serving, eventually


def rows(connection: psycopg.Connection, sql: str, *params: object) -> list[tuple]:
    return connection.execute(sql, params or None).fetchall()


def test_a_source_is_seen_to_start_run_and_lag(connection: psycopg.Connection):
    connection.execute("CREATE SOURCE om_c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '200ms')")
    connection.execute("CREATE MATERIALIZED VIEW om_n AS SELECT count(*) AS n FROM om_c")
    try:
        ((id_, type_, cluster),) = rows(
            connection, "SELECT id, type, cluster_id FROM mz_sources WHERE name = 'om_c'"
        )
        assert (type_, cluster) == ("load-generator", "s1")
        status = (
            "SELECT status, error, last_status_change_at <= now() FROM mz_internal.mz_source_statuses"
            " WHERE id = %s"
        )
        eventually("it runs", lambda: rows(connection, status, id_) == [("running", None, True)])
        shown = [row for row in rows(connection, "SHOW SOURCES") if row[0] == "om_c"]
        assert shown == [("om_c", "load-generator", "quickstart", "running", None)]
        # Seen every few seconds, and kept.
        history = (
            "SELECT count(*) FROM mz_internal.mz_wallclock_global_lag_recent_history"
            " WHERE object_id = %s AND lag >= 0 AND occurred_at <= now()"
        )
        eventually("a lag in the history", lambda: rows(connection, history, id_) != [(0,)])
        lag = (
            "SELECT local_lag >= 0, global_lag >= 0, slowest_local_input_id, slowest_global_input_id"
            " FROM mz_internal.mz_materialization_lag JOIN mz_objects ON id = object_id"
            " WHERE name = 'om_n'"
        )
        eventually("the view's lag", lambda: rows(connection, lag) == [(True, True, id_, id_)])
        connection.execute("SELECT * FROM om_n")
        statistics = (
            "SELECT updates_committed > 0 FROM mz_internal.mz_source_statistics WHERE id = %s"
        )
        eventually("its counts", lambda: rows(connection, statistics, id_) == [(True,)])
    finally:
        connection.execute("DROP SOURCE om_c CASCADE")
    assert rows(connection, status, id_) == []


def test_subscriptions_are_listed_while_they_last(server: Serving, connection: psycopg.Connection):
    connection.execute("CREATE TABLE os_t (a int)")
    listed = (
        "SELECT session_id, array_to_string(referenced_object_ids, ',')"
        " FROM mz_internal.mz_subscriptions"
    )
    try:
        ((id_,),) = rows(connection, "SELECT id FROM mz_tables WHERE name = 'os_t'")
        with server.connect(application_name="follower") as other:
            ((session,),) = rows(
                connection,
                "SELECT id FROM mz_internal.mz_sessions WHERE application_name = 'follower'",
            )
            stream = other.cursor().stream("SUBSCRIBE (SELECT a + 1 AS b FROM os_t)")
            connection.execute("INSERT INTO os_t VALUES (1)")
            next(stream)
            assert (session, id_) in rows(connection, listed)
            other.cancel()
            with pytest.raises(psycopg.errors.QueryCanceled):
                list(stream)
        eventually("its end", lambda: (session, id_) not in rows(connection, listed))
    finally:
        connection.execute("DROP TABLE os_t CASCADE")


def test_what_replicas_cost(server: Serving, connection: psycopg.Connection):
    metrics = (
        "SELECT m.process_id, m.memory_bytes, m.cpu_nano_cores, u.memory_percent, u.cpu_percent"
        " FROM mz_internal.mz_cluster_replica_metrics m"
        " JOIN mz_internal.mz_cluster_replica_utilization u ON u.replica_id = m.replica_id"
        " JOIN mz_cluster_replicas r ON r.id = m.replica_id WHERE r.name = 'r1'"
    )

    def looked_twice() -> tuple | None:
        found = rows(connection, metrics)
        return found[0] if found and found[0][2] is not None else None

    pid, memory, cores, memory_percent, cpu_percent = eventually("two looks", looked_twice)
    assert pid == server.clusterd_pid
    assert memory > 100_000_000  # There is a JVM among it.
    assert cores >= 0
    assert 0 < memory_percent < 100
    assert cpu_percent >= 0


def test_a_moved_default_is_every_new_sessions_own(server: Serving, connection: psycopg.Connection):
    connection.execute("ALTER SYSTEM SET statement_timeout = '77s'")
    try:
        with server.connect() as other:
            assert rows(other, "SHOW statement_timeout") == [("77s",)]
            other.execute("SET statement_timeout = '5s'")
            other.execute("RESET statement_timeout")
            assert rows(other, "SHOW statement_timeout") == [("77s",)]
        assert rows(connection, "SHOW statement_timeout") == [("0",)]
    finally:
        connection.execute("ALTER SYSTEM RESET statement_timeout")


def test_one_session_too_many_is_refused(server: Serving, connection: psycopg.Connection):
    # This one is there; who has just left may be counted for a moment.
    connection.execute("ALTER SYSTEM SET max_connections = 1")
    try:
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            server.connect()
    finally:
        connection.execute("ALTER SYSTEM RESET max_connections")
    server.connect().close()


@pytest.fixture(scope="module")
def a_table(server: Serving) -> Iterator[psycopg.Connection]:
    with server.connect() as opened:
        opened.execute("CREATE TABLE oe_t (a int NOT NULL, b text)")
        yield opened
        opened.execute("DROP TABLE oe_t")


@pytest.mark.parametrize(
    ("sql", "sqlstate", "near"),
    [
        ("SELECT * FROM oe_none", "42P01", "oe_none"),
        ("SELECT none FROM mz_objects", "42703", None),
        ("SELECT none FROM oe_t", "42703", "none FROM"),
        ("SELECT nofn(a) FROM oe_t", "42883", "nofn"),
        ("SELECT a + b FROM oe_t", "42883", "a + b"),
        ("SELECT a FROM oe_t WHERE b", "42804", "b"),
        ("SELECT a FROM oe_t ORDER BY", "42601", ""),
        ("SELECT 'x'::int", "22P02", "'x'"),
        ("SELECT 1 / 0", "22012", None),
        ("SELECT 2147483647 + 1", "22003", None),
        ("SELECT a, count(*) FROM oe_t", "42803", None),
        ("SELECT x.a FROM oe_t x, oe_t x", "42712", None),
        ("SELECT a FROM oe_t x, oe_t y", "42702", "a FROM"),
        ("INSERT INTO oe_t (a) VALUES (NULL)", "23502", None),
        ("CREATE TABLE oe_t (a int)", "42P07", None),
        ("CREATE TABLE oe_u (a int PRIMARY KEY)", "0A000", None),
        ("DROP VIEW oe_t", "42809", "oe_t"),
        ("SHOW nothing_such", "42704", "nothing_such"),
    ],
)
def test_errors_have_their_code_and_their_place(
    a_table: psycopg.Connection, sql: str, sqlstate: str, near: str | None
):
    with pytest.raises(psycopg.Error) as caught:
        a_table.execute(sql)
    assert caught.value.sqlstate == sqlstate
    if near is not None:
        place = caught.value.diag.statement_position
        assert place is not None
        assert sql[int(place) - 1 :].startswith(near)


def test_explain_as_json_can_be_read(connection: psycopg.Connection):
    connection.execute("CREATE TABLE oj_t (a int)")
    try:
        ((text,),) = rows(connection, "EXPLAIN TIMESTAMP AS JSON FOR SELECT a FROM oj_t")
        found = json.loads(text)
        assert found["query_timestamp"] >= found["since"][0]
        assert found["query_timestamp"] >= found["oracle_read_timestamp"]
        assert [each["write_frontier"] for each in found["sources"]] == [found["upper"]]
        ((text,),) = rows(connection, "EXPLAIN RAW PLAN AS JSON FOR SELECT a FROM oj_t WHERE a > 1")
        plan = json.loads(text)["plan"]
        assert [plan["node"], plan["inputs"][0]["node"]] == ["Project", "Filter"]
    finally:
        connection.execute("DROP TABLE oj_t")


def test_explain_says_what_a_filter_leaves_to_be_read(connection: psycopg.Connection):
    connection.execute("CREATE TABLE of_t (a int)")
    try:
        # Enough for a part of its own: small ones are kept without bounds.
        connection.execute("INSERT INTO of_t SELECT g FROM generate_series(1, 100000) g")
        pushdown = "EXPLAIN FILTER PUSHDOWN FOR SELECT a FROM of_t"
        ((name, size, selected, total, kept),) = rows(connection, pushdown)
        assert (name, size, total) == ("of_t", selected, kept)
        assert int(total) > 0
        ((_, _, selected, _, kept),) = rows(connection, f"{pushdown} WHERE a > 200000")
        assert int(kept) < int(total)
        assert int(selected) < int(size)
        ((_, _, _, _, kept),) = rows(connection, f"{pushdown} WHERE a >= 0")
        assert kept == total
    finally:
        connection.execute("DROP TABLE of_t")


def test_what_lies_in_shards_and_what_a_view_has_written(connection: psycopg.Connection):
    connection.execute("CREATE TABLE om_s (a int)")
    connection.execute("INSERT INTO om_s VALUES (1), (2), (2)")
    connection.execute(
        "CREATE MATERIALIZED VIEW om_g AS SELECT a, count(*) AS n FROM om_s GROUP BY a"
    )
    try:
        written = (
            "SELECT updates FROM mz_internal.mz_view_statistics JOIN mz_objects ON id = object_id"
            " WHERE mz_objects.name = 'om_g'"
        )
        eventually("two rows", lambda: rows(connection, written) == [(2,)])
        connection.execute("INSERT INTO om_s VALUES (1)")
        eventually("one went, one came", lambda: rows(connection, written) == [(4,)])
        shards = (
            "SELECT is_collection, rows, updates > 0, error_updates, batches > 0, bytes > 0, error"
            " FROM mz_internal.mz_storage_shards JOIN mz_objects ON id = object_id"
            " WHERE name = %s ORDER BY is_collection DESC"
        )
        assert rows(connection, shards, "om_s") == [(True, 4, True, 0, True, True, None)]
        own, *state = rows(connection, shards, "om_g")
        assert own[:2] == (True, 2)
        assert [each[0] for each in state] == [False] * len(state)
        assert state
        # Batches follow each other, and make up what the shard says; a view holds what it reads.
        batches = (
            "SELECT b.lower, b.upper, b.diffs FROM mz_internal.mz_storage_batches b JOIN mz_objects o"
            " ON o.id = b.object_id WHERE b.shard_id = o.id AND o.name = 'om_s' ORDER BY b.number"
        )
        found = rows(connection, batches)
        assert [upper for _, upper, _ in found[:-1]] == [lower for lower, *_ in found[1:]]
        assert sum(diffs for *_, diffs in found) == 4
        holds = (
            "SELECT DISTINCT h.kind FROM mz_internal.mz_storage_holds h JOIN mz_objects o"
            " ON o.id = h.object_id WHERE o.name = 'om_s' AND h.since > 0"
        )
        assert ("critical",) in rows(connection, holds)
    finally:
        connection.execute("DROP TABLE om_s CASCADE")
