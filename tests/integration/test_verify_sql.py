"""VERIFY through a real server: damage that is found, verdicts that stay, statements that stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from psycopg.errors import QueryCanceled
from serving import Serving

from tidemark.frontier import Frontier
from tidemark.persist import DIFF, PersistClient, UpperMismatch, as_updates


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Serving]:
    running = Serving(tmp_path / "data")
    try:
        yield running.start()
    finally:
        running.destroy()


def open_client(server: Serving) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{server.data / 'blob'}",
        consensus=f"sqlite://{server.data / 'consensus.db'}",
    )


def damage(client: PersistClient, shard: str, rows: list[tuple[int, int, int]]) -> int:
    """Rows (k, n, diff) that no view has computed, at the time at which they happened to go in."""
    schema = pa.schema([("k", pa.int32()), ("n", pa.int64())])
    writer = client.open_writer(shard, schema=schema)
    columns, fields = list(zip(*rows, strict=True)), [*schema, pa.field(DIFF, pa.int64())]
    table = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)],
        names=["k", "n", DIFF],
    )
    while True:
        lower = writer.fetch_upper()
        assert lower.time is not None
        updates = as_updates(table, time=lower.time, schema=writer.schema)
        outcome = writer.compare_and_append(updates, lower=lower, upper=Frontier(lower.time + 1))
        if not isinstance(outcome, UpperMismatch):
            return lower.time


def test_damage_is_found_and_the_verdict_survives_a_restart(own: Serving):
    with own.connect() as connection, closing(open_client(own)) as client:
        connection.execute("CREATE TABLE t (k int, n bigint)")
        connection.execute("INSERT INTO t VALUES (1, 10), (1, 20), (2, 5)")
        connection.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT k, sum(n)::bigint AS n FROM t GROUP BY k"
        )
        connection.execute("SELECT * FROM v")
        (shard,) = connection.execute("SELECT id FROM mz_objects WHERE name = 'v'").fetchone()  # type: ignore[misc]
        with own.connect() as holder:
            # Keeps the damage readable when the running view has corrected it.
            holder.execute("BEGIN")
            holder.execute("SELECT * FROM v")
            notices: list[str] = []
            connection.add_notice_handler(
                lambda notice: notices.append(f"{notice.severity}: {notice.message_primary}")
            )
            at = damage(client, shard, [(1, 30, -1), (7, 7, 2)])
            found = connection.execute(f"VERIFY MATERIALIZED VIEW v AS OF {at}").fetchall()
            assert found == [(0, 1, None, 1, 30), (2, 0, None, 7, 7)]
            (said,) = notices
            assert said.startswith(f"WARNING: different at {at}: the query has 2 rows")
            # The view corrects itself with its next tick, and verifies from there on.
            connection.execute("INSERT INTO t VALUES (3, 1)")
            assert connection.execute("SELECT * FROM v ORDER BY k").fetchall() == [
                (1, 30),
                (2, 5),
                (3, 1),
            ]
            assert connection.execute("VERIFY MATERIALIZED VIEW v").fetchall() == []
            again = connection.execute(f"VERIFY MATERIALIZED VIEW v AS OF {at}").fetchall()
            assert again == found
    kept = "SELECT at, rows, missing, unexpected, verdict FROM mz_internal.mz_verifications ORDER BY verified_at"
    with own.connect() as connection:
        before = connection.execute(kept).fetchall()
    assert [row[1:] for row in before] == [
        (2, 1, 2, "different"),
        (3, 0, 0, "verified"),
        (2, 1, 2, "different"),
    ]
    own.kill_all()
    own.start()
    with own.connect() as connection:
        assert connection.execute(kept).fetchall() == before
        connection.execute("DROP TABLE t CASCADE")
        assert connection.execute(kept).fetchall() == []


def test_it_is_cancelled_and_times_out_like_a_query(
    server: Serving, connection: psycopg.Connection
):
    connection.execute("CREATE TABLE vc_t (k int)")
    connection.execute("INSERT INTO vc_t SELECT g FROM generate_series(1, 3000) AS g")
    connection.execute(
        "CREATE MATERIALIZED VIEW vc_v AS SELECT count(*) AS n FROM vc_t WHERE k < 0"
    )
    connection.execute("SELECT * FROM vc_v")
    slow = "VERIFY MATERIALIZED VIEW vc_v"
    connection.execute("SET statement_timeout = '1ms'")
    with pytest.raises(QueryCanceled):
        connection.execute(slow)
    connection.execute("RESET statement_timeout")
    assert connection.execute(slow).fetchall() == []
    connection.execute("DROP TABLE vc_t CASCADE")
