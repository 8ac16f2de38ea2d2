"""A view that is refreshed now and then, in a running server: what it shows is its query as of the
last refresh, at every time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from serving import Serving

EVERY_MS = 2_000


@pytest.fixture
def table(connection: psycopg.Connection) -> Iterator[psycopg.Connection]:
    connection.execute("CREATE TABLE rfe_t (k int)")
    connection.execute("INSERT INTO rfe_t VALUES (0)")
    yield connection
    connection.execute("DROP TABLE IF EXISTS rfe_t CASCADE")


def test_every_refresh_is_the_query_as_of_then(server: Serving, table: psycopg.Connection):
    table.execute(
        "CREATE MATERIALIZED VIEW rfe_v WITH (REFRESH EVERY '2 seconds'"
        " ALIGNED TO '2020-01-01 00:00:01') AS SELECT count(*) AS n FROM rfe_t"
    )
    table.execute("SELECT * FROM rfe_v")
    with server.history_kept(), server.connect() as reader, server.connect() as watcher:
        # Complete up to here; the next refreshes are to come.
        begin = table.execute("SELECT mz_now() FROM rfe_v").fetchone()[0]  # type: ignore[index]
        end = begin + 4 * EVERY_MS
        changes = _Subscription(watcher, f"SUBSCRIBE rfe_t AS OF {begin} UP TO {end}")
        shown = _Subscription(reader, f"SUBSCRIBE rfe_v AS OF {begin} UP TO {end}")
        for k in range(1, 60):
            if not shown.thread.is_alive():
                break
            table.execute("INSERT INTO rfe_t VALUES (%s)", (k,))
            shown.thread.join(0.2)
        versions, updates = shown.rows(), changes.rows()
    counts: dict[int, int] = {}
    for time, diff, n in versions:
        counts[time] = counts.get(time, 0) + diff * n
    later = sorted(time for time in counts if time > begin)
    assert len(later) >= 2
    assert {time % EVERY_MS for time in later} == {1_000}
    n = counts[begin]
    for time in later:
        n += counts[time]
        assert n == sum(diff for at, diff, _ in updates if at <= time), time


class _Subscription:
    """One that ends by itself, read in a thread of its own."""

    def __init__(self, connection: psycopg.Connection, sql: str):
        self._rows: list[tuple[int, int, int]] = []
        self._error: Exception | None = None
        self._connection, self._sql = connection, sql
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            for time, diff, value in self._connection.cursor().stream(self._sql):
                self._rows.append((int(time), diff, value))
        except Exception as error:
            self._error = error

    def rows(self) -> list[tuple[int, int, int]]:
        self.thread.join()
        assert self._error is None
        return self._rows
