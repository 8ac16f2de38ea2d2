"""Subscriptions to queries through a real server: they follow, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg.errors import QueryCanceled, UndefinedTable
from serving import Serving, eventually

from tidemark.control.catalog import is_ours, read_items
from tidemark.persist import PersistClient


@pytest.fixture
def client(server: Serving) -> Iterator[PersistClient]:
    opened = PersistClient.open(
        blob=f"file://{server.data / 'blob'}",
        consensus=f"sqlite://{server.data / 'consensus.db'}",
    )
    with closing(opened):
        yield opened


def left_over(client: PersistClient) -> set[str]:
    """Shards that belong to no object, and holds of dataflows that keep none."""
    ids = {item.id for item in read_items(client).values()} | {"catalog", "storage", "txns"}
    shards = {key: client.state(key) for key in client.consensus.keys() if is_ours(key)}  # noqa: SIM118
    live = {key: state for key, state in shards.items() if not state.is_tombstone}
    found = {key for key in live if key.split("-")[0] not in ids}
    for state in live.values():
        holders = (h.removeprefix("dataflow-") for h in state.holds if h.startswith("dataflow-"))
        found |= {holder for holder in holders if holder.split("-")[0] not in ids}
    return found


class Subscriber:
    """A subscription in a session and a thread of its own."""

    def __init__(self, server: Serving, sql: str):
        self.rows: list[tuple] = []
        self.error: Exception | None = None
        self.connection = server.connect()
        self._sql = sql
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self.connection.cursor() as cursor:
                for row in cursor.stream(self._sql):
                    self.rows.append(row[1:])
        except Exception as error:
            self.error = error

    def vanish(self) -> None:
        """Go away without a word, as a client that is killed does."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as its:
            its.shutdown(socket.SHUT_RDWR)
        self.thread.join()


@pytest.fixture
def table(connection: psycopg.Connection) -> Iterator[psycopg.Connection]:
    connection.execute("CREATE TABLE sq_t (k int, n int)")
    connection.execute("INSERT INTO sq_t VALUES (1, 10), (2, 20)")
    yield connection
    connection.execute("DROP TABLE IF EXISTS sq_t CASCADE")


GROUPED = "SUBSCRIBE (SELECT k, sum(n) AS s FROM sq_t GROUP BY k)"


def test_it_follows_and_leaves_nothing_when_cancelled(
    server: Serving, client: PersistClient, table: psycopg.Connection
):
    one = Subscriber(server, GROUPED)
    eventually("a snapshot", lambda: sorted(one.rows) == [(1, 1, 10), (1, 2, 20)])
    table.execute("INSERT INTO sq_t VALUES (1, 5)")
    eventually("a change", lambda: sorted(one.rows[2:]) == [(-1, 1, 10), (1, 1, 15)])
    assert left_over(client)
    one.connection.cancel()
    one.thread.join()
    assert isinstance(one.error, QueryCanceled)
    one.connection.close()
    eventually("an end of its shards and holds", lambda: not left_over(client))


def test_a_client_that_goes_away_takes_its_dataflow_along(
    server: Serving, client: PersistClient, table: psycopg.Connection
):
    one = Subscriber(server, GROUPED)
    other = Subscriber(server, GROUPED)
    eventually("two snapshots", lambda: len(one.rows) == len(other.rows) == 2)
    one.vanish()
    table.execute("INSERT INTO sq_t VALUES (2, 1)")
    eventually("a change", lambda: sorted(other.rows[2:]) == [(-1, 2, 20), (1, 2, 21)])
    other.vanish()
    eventually("an end of its shards and holds", lambda: not left_over(client))


def test_dropping_what_it_reads_ends_it(
    server: Serving, client: PersistClient, table: psycopg.Connection
):
    one = Subscriber(server, GROUPED)
    eventually("a snapshot", lambda: len(one.rows) == 2)
    table.execute("DROP TABLE sq_t")
    one.thread.join()
    assert isinstance(one.error, UndefinedTable)
    assert "a relation of this query was dropped" in str(one.error)
    one.connection.close()
    eventually("an end of its shards and holds", lambda: not left_over(client))


def test_parameters(server: Serving, table: psycopg.Connection):
    (now,) = table.execute(
        "SELECT write_frontier - 1 FROM mz_internal.mz_frontiers f JOIN mz_objects o"
        " ON f.object_id = o.id WHERE name = 'sq_t'"
    ).fetchone()  # type: ignore[misc]
    sql = f"SUBSCRIBE (SELECT n + %s AS n FROM sq_t WHERE k = %s) AS OF {now} UP TO {now + 1}"
    found = table.execute(sql, (100, 2)).fetchall()
    assert [row[1:] for row in found] == [(1, 120)]
