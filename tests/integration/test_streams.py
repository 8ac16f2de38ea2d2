"""What runs on and on: SUBSCRIBE, statements that wait, and what becomes of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest
from psycopg import errors
from serving import DEADLINE, Serving, eventually

FAR_AWAY = 99_999_999_999_999
"""Nothing will be complete up to here in our time, so reading at it waits."""

END = -99
"""The key of the row that tells a reader to stop."""

Row = tuple[str, ...]


class Enough(Exception):
    pass


@pytest.fixture
def table(connection: psycopg.Connection) -> Iterator[str]:
    connection.execute("CREATE TABLE st_t (k int NOT NULL, v text)")
    yield "st_t"
    connection.execute("DROP TABLE IF EXISTS st_t CASCADE")


@contextlib.contextmanager
def in_background(work: Callable[[], object]) -> Iterator[Future]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


def subscribed(connection: psycopg.Connection, sql: str, seen: list[Row]) -> None:
    """Append the rows of a SUBSCRIBE to `seen`, until one with the key END.

    Leaving the block by an exception is how psycopg is told to cancel a COPY and live on.
    """
    with (
        contextlib.suppress(Enough),
        connection.cursor() as cursor,
        cursor.copy(f"COPY ({sql}) TO STDOUT") as copy,
    ):
        for row in copy.rows():
            seen.append(row)  # type: ignore[arg-type]
            if str(END) in row[2:]:
                raise Enough


def cancelled(connection: psycopg.Connection, running: Future) -> BaseException | None:
    """Cancel what the connection runs; a request that comes too early is ignored, so repeat."""

    def stopped() -> bool:
        connection.cancel_safe()
        return running.done()

    eventually("the end of a cancelled statement", stopped, every=0.02)
    return running.exception()


def test_subscribe_sees_every_change_once_and_in_order(
    server: Serving, connection: psycopg.Connection, table: str
):
    connection.execute("INSERT INTO st_t VALUES (1, 'one'), (2, 'two'), (2, 'two')")
    seen: list[Row] = []
    with server.connect() as reader:
        sql = "SUBSCRIBE st_t WITH (PROGRESS)"
        with in_background(lambda: subscribed(reader, sql, seen)) as reading:
            eventually("the snapshot", lambda: len(seen) >= 3 or reading.done())
            connection.execute("INSERT INTO st_t VALUES (3, 'three')")
            connection.execute("UPDATE st_t SET v = 'deux' WHERE k = 2")
            connection.execute("DELETE FROM st_t WHERE k = 1")
            with connection.transaction():
                connection.execute("INSERT INTO st_t VALUES (4, 'four')")
                connection.execute("INSERT INTO st_t VALUES (5, 'five')")
            connection.execute("INSERT INTO st_t VALUES (%s, 'end')", [END])
            reading.result(DEADLINE)
        assert reader.execute("SELECT 'alive'").fetchone() == ("alive",)

    as_of = int(seen[0][0])
    assert seen[0][1] == "t", "the first row is progress at AS OF"
    done = as_of
    steps: dict[int, Counter] = {}
    for time, progressed, diff, *row in seen:
        assert int(time) >= done, "a time that progress has passed"
        if progressed == "t":
            done = int(time)
        else:
            steps.setdefault(int(time), Counter())[tuple(row)] += int(diff)
    assert list(steps) == sorted(steps)
    assert list(steps.values()) == [
        {("1", "one"): 1, ("2", "two"): 2},
        {("3", "three"): 1},
        {("2", "two"): -2, ("2", "deux"): 2},
        {("1", "one"): -1},
        {("4", "four"): 1, ("5", "five"): 1},
        {(str(END), "end"): 1},
    ]
    assert next(iter(steps)) == as_of


def test_subscribe_to_a_maintained_view_adds_up(
    server: Serving, connection: psycopg.Connection, table: str
):
    connection.execute(
        "CREATE MATERIALIZED VIEW st_m AS SELECT v, count(*) AS n, min(k) AS k FROM st_t GROUP BY v"
    )
    connection.execute("INSERT INTO st_t VALUES (1, 'a'), (2, 'a'), (3, 'b')")
    seen: list[Row] = []
    with server.connect() as reader:
        with in_background(lambda: subscribed(reader, "SUBSCRIBE st_m", seen)) as reading:
            for k in range(10, 15):
                connection.execute("INSERT INTO st_t VALUES (%s, 'b')", [k])
            connection.execute("DELETE FROM st_t WHERE k = 1")
            connection.execute("INSERT INTO st_t VALUES (%s, 'end')", [END])
            reading.result(DEADLINE)
        total: Counter = Counter()
        times = [int(row[0]) for row in seen]
        for _, diff, *row in seen:
            total[tuple(row)] += int(diff)
        assert times == sorted(times)
        assert {row: n for row, n in total.items() if n} == {
            ("a", "1", "2"): 1,
            ("b", "6", "3"): 1,
            ("end", "1", str(END)): 1,
        }
        # The same from the server itself, in the session that has just left its SUBSCRIBE.
        found = reader.execute("SELECT v, n, k FROM st_m").fetchall()
        assert sorted(found) == [("a", 1, 2), ("b", 6, 3), ("end", 1, END)]


def test_cancel_a_subscribe(server: Serving, connection: psycopg.Connection, table: str):
    with server.connect() as reader:
        with in_background(lambda: subscribed(reader, "SUBSCRIBE st_t", [])) as reading:
            assert isinstance(cancelled(reader, reading), errors.QueryCanceled)
        with in_background(lambda: reader.execute("SUBSCRIBE st_t")) as reading:
            assert isinstance(cancelled(reader, reading), errors.QueryCanceled)
        assert reader.execute("SELECT count(*) FROM st_t").fetchone() == (0,)


def test_cancel_a_waiting_select(server: Serving, connection: psycopg.Connection, table: str):
    sql = f"SELECT * FROM st_t AS OF {FAR_AWAY}"
    with server.connect() as waiter:
        with in_background(lambda: waiter.execute(sql)) as waiting:
            assert isinstance(cancelled(waiter, waiting), errors.QueryCanceled)
        assert waiter.execute("SELECT count(*) FROM st_t").fetchone() == (0,)

        # In a transaction, a cancelled statement fails the transaction, not the session.
        waiter.execute("BEGIN")
        with in_background(lambda: waiter.execute(sql)) as waiting:
            assert isinstance(cancelled(waiter, waiting), errors.QueryCanceled)
        with pytest.raises(errors.InFailedSqlTransaction):
            waiter.execute("SELECT 1")
        waiter.execute("ROLLBACK")
        assert waiter.execute("SELECT 'alive'").fetchone() == ("alive",)


def test_a_transaction_that_is_left_open_holds_up_nobody(
    server: Serving, connection: psycopg.Connection, table: str
):
    connection.execute("INSERT INTO st_t VALUES (1, 'one')")
    with server.connect() as holder, server.connect() as other:
        holder.execute("BEGIN")
        holder.execute("UPDATE st_t SET v = 'held'")
        other.execute("INSERT INTO st_t VALUES (2, 'two')")
        with pytest.raises(errors.SerializationFailure):
            holder.execute("COMMIT")
        rows = other.execute("SELECT * FROM st_t ORDER BY k").fetchall()
        assert rows == [(1, "one"), (2, "two")]


def test_statement_timeout(connection: psycopg.Connection, table: str):
    connection.execute("SET statement_timeout = '50ms'")
    with pytest.raises(errors.QueryCanceled, match="statement timeout"):
        connection.execute(f"SELECT * FROM st_t AS OF {FAR_AWAY}")
    connection.execute("RESET statement_timeout")
    assert connection.execute("SELECT count(*) FROM st_t").fetchone() == (0,)


def test_drop_while_subscribed(server: Serving, connection: psycopg.Connection, table: str):
    connection.execute("INSERT INTO st_t VALUES (1, 'one')")
    connection.execute("CREATE MATERIALIZED VIEW st_m AS SELECT k FROM st_t")
    for name in ("st_t", "st_m"):
        seen: list[Row] = []
        with server.connect() as reader:
            with in_background(lambda: subscribed(reader, f"SUBSCRIBE {name}", seen)) as reading:  # noqa: B023
                eventually("the snapshot", lambda: seen or reading.done())  # noqa: B023
                if name == "st_t":
                    connection.execute("DROP TABLE st_t CASCADE")
                    connection.execute("CREATE TABLE st_t (k int NOT NULL, v text)")
                    connection.execute("INSERT INTO st_t VALUES (1, 'one')")
                    connection.execute("CREATE MATERIALIZED VIEW st_m AS SELECT k FROM st_t")
                else:
                    connection.execute("DROP MATERIALIZED VIEW st_m")
                with pytest.raises(errors.UndefinedTable, match=f'"{name}" was dropped'):
                    reading.result(DEADLINE)
            assert reader.execute("SELECT count(*) FROM st_t").fetchone() == (1,)


def test_drop_while_a_select_waits(server: Serving, connection: psycopg.Connection, table: str):
    sql = f"SELECT * FROM st_t AS OF {FAR_AWAY}"
    with server.connect() as waiter:
        with in_background(lambda: waiter.execute(sql)) as waiting:
            connection.execute("DROP TABLE st_t")
            with pytest.raises(errors.UndefinedTable):
                waiting.result(DEADLINE)
        assert waiter.execute("SELECT 'alive'").fetchone() == ("alive",)


def test_drop_what_another_session_has_prepared(
    server: Serving, connection: psycopg.Connection, table: str
):
    select, insert = "SELECT k FROM st_t WHERE k = %s", "INSERT INTO st_t (k) VALUES (%s)"
    with server.connect() as other:
        other.execute(insert, [1], prepare=True)
        assert other.execute(select, [1], prepare=True).fetchall() == [(1,)]
        connection.execute("DROP TABLE st_t")
        for sql in (select, insert):
            with pytest.raises(errors.UndefinedTable, match='"st_t" does not exist'):
                other.execute(sql, [1], prepare=True)
        connection.execute("CREATE TABLE st_t (v text, k int)")
        assert other.execute(select, [1], prepare=True).fetchall() == []
        other.execute(insert, [2], prepare=True)
        every = "SELECT k FROM st_t"
        assert other.execute(every, prepare=True).fetchall() == [(2,)]
        connection.execute("DROP TABLE st_t")
        connection.execute("CREATE TABLE st_t (k text)")
        with pytest.raises(errors.FeatureNotSupported, match="must not change result type"):
            other.execute(every, prepare=True)
        assert other.execute(every, prepare=False).fetchall() == []


def test_drop_what_a_transaction_has_written_to(
    server: Serving, connection: psycopg.Connection, table: str
):
    with server.connect() as other:
        other.execute("BEGIN")
        other.execute("INSERT INTO st_t VALUES (1, 'one')")
        connection.execute("DROP TABLE st_t")
        with pytest.raises(errors.UndefinedTable, match="was dropped"):
            other.execute("COMMIT")
        assert other.execute("SELECT 'alive'").fetchone() == ("alive",)


def test_a_client_that_vanishes_leaves_nothing_behind(
    server: Serving, connection: psycopg.Connection, table: str
):
    """A session that holds every writer up and hangs up lets go."""
    gone = server.connect()
    gone.execute("BEGIN")
    gone.execute("DELETE FROM st_t")
    gone.pgconn.finish()
    connection.execute("INSERT INTO st_t VALUES (1, 'one')")
    assert connection.execute("SELECT count(*) FROM st_t").fetchone() == (1,)
