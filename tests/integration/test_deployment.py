"""What docs/deployment.md describes, as one piece: parts in S3, logs in PostgreSQL, jobs on a Spark
cluster of two workers; a replica is killed, everything is, and the server starts again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from serving import Serving, eventually

from cluster import SparkCluster
from services import PostgresServer, S3Server, missing
from tidemark.compute.dataflow import LARGE_ROWS
from tidemark.spark.session import s3a_jars

ROWS = 2 * LARGE_ROWS

SPARK_DEFAULTS = """
spark.cores.max                  2
spark.executor.memory            512m
spark.executor.extraJavaOptions  -XX:TieredStopAtLevel=1
"""


class Deployed(Serving):
    """With Spark's own settings beside it, as on the page."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "SPARK_CONF_DIR": str(self.data.with_name("spark"))}


@pytest.fixture
def server(
    tmp_path: Path,
    spark_cluster: SparkCluster,
    s3_server: S3Server,
    postgres_server: PostgresServer,
) -> Iterator[Deployed]:
    if not s3a_jars():
        missing("Spark on S3 (run make s3a)")
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "spark-defaults.conf").write_text(SPARK_DEFAULTS)
    name = f"d{uuid4().hex[:12]}"
    where = ("--blob", s3_server.uri(name), "--consensus", postgres_server.uri(name))
    running = Deployed(tmp_path / "region", *where, "--spark-master", spark_cluster.master)
    try:
        yield running.start()
    finally:
        running.destroy()


def totals(server: Deployed) -> list[tuple[int, int, int]]:
    with server.connect() as connection:
        return connection.execute("SELECT k, n, total FROM totals ORDER BY k").fetchall()


def expected(rows: int) -> list[tuple[int, int, int]]:
    groups = [range(k or 3, rows + 1, 3) for k in range(3)]
    return [(k, len(group), sum(group)) for k, group in enumerate(groups)]


def test_a_server_on_a_spark_cluster_with_s3_and_postgres(server: Deployed) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE orders (id bigint, k int)")
        rows = f"SELECT g, g % 3 FROM generate_series(1, {ROWS}) AS g"
        connection.execute(f"INSERT INTO orders {rows}".encode())
        connection.execute(
            "CREATE MATERIALIZED VIEW totals AS"
            " SELECT k, count(*) AS n, sum(id)::bigint AS total FROM orders GROUP BY k"
        )
    assert totals(server) == expected(ROWS)
    with server.connect() as connection:
        connection.execute(f"INSERT INTO orders VALUES ({ROWS + 1}, {(ROWS + 1) % 3})".encode())
    assert totals(server) == expected(ROWS + 1)

    killed = server.clusterd_pid
    os.kill(killed, signal.SIGKILL)
    eventually("another replica", lambda: server.clusterd_pid != killed)
    assert totals(server) == expected(ROWS + 1)

    server.kill_all()
    server.start()
    with server.connect() as connection:
        connection.execute(f"INSERT INTO orders VALUES ({ROWS + 2}, {(ROWS + 2) % 3})".encode())
        assert connection.execute("VERIFY MATERIALIZED VIEW totals").fetchall() == []
    assert totals(server) == expected(ROWS + 2)
    assert not (server.data / "blob").exists(), "parts beside the server instead of in S3"
    assert server.stop() == 0
