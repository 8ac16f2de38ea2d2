"""What a client sees of changes, and of Spark: a view after an INSERT, a subscription, a query."""

from __future__ import annotations

import gc
import select
import statistics
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from tidemark.bench.serve_process import ServerProcess, until
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.catalog import read_items
from tidemark.spark.session import start_spark, stop_spark

AD_HOC = (
    "SELECT kind, count(*) AS n, sum(customer) AS c, max(amount) AS m FROM orders GROUP BY kind"
)
WARM_UPS = 5
ALLOWANCE_MS = 50.0
"""What the bar allows for the way from the client to Spark and back."""


def changes(console: Console, server: ServerProcess, *, inserts: int) -> dict[str, float]:
    console.print(f"{inserts} inserts, seen in a view and by a subscription ...")
    with server.connect() as connection:
        connection.execute("CREATE TABLE happened (k text, v bigint)")
        connection.execute(
            "CREATE MATERIALIZED VIEW counted AS"
            " SELECT k, count(*) AS n, sum(v) AS total FROM happened GROUP BY k"
        )
        found = _insert_to_view(connection, inserts)
        return found | _subscribe_lag(server, connection, inserts)


def _insert_to_view(connection: psycopg.Connection, inserts: int) -> dict[str, float]:
    for i in range(5):
        _inserted(connection, i + 1)
    took = [1000 * _inserted(connection, i + 6) for i in range(inserts)]
    return {
        "insert_to_view_p50_ms": statistics.median(took),
        "insert_to_view_max_ms": max(took),
    }


def _inserted(connection: psycopg.Connection, count: int) -> float:
    """Seconds for an INSERT and a SELECT of the view, which must show it."""
    begun = SYSTEM_CLOCK.monotonic()
    connection.execute("INSERT INTO happened VALUES ('a', 1)")
    row = connection.execute("SELECT n FROM counted WHERE k = 'a'").fetchone()
    took = SYSTEM_CLOCK.monotonic() - begun
    assert row == (count,), (row, count)
    return took


def _subscribe_lag(
    server: ServerProcess, connection: psycopg.Connection, inserts: int
) -> dict[str, float]:
    """From when the view's upper has passed a change, as another process sees it, to when the
    change is at the client."""
    passed: dict[int, float] = {}
    came: dict[int, float] = {}
    stop = threading.Event()
    with closing(server.open_shards()) as client:
        shard = next(i.shard for i in read_items(client).values() if i.name == "counted")
        assert shard is not None
        reader = client.open_reader(shard)

        def listen() -> None:
            upper = reader.upper
            while not stop.is_set() and upper is not None and upper.time is not None:
                found = reader.wait_for_upper_past(upper.time, timeout=1.0)
                if found is not None and found.time is not None:
                    passed[found.time] = SYSTEM_CLOCK.monotonic()
                    upper = found

        def subscribe() -> None:
            # Closed in the middle of it: a subscription has no end.
            with closing(server.connect()) as subscriber:
                sql = b"COPY (SUBSCRIBE counted WITH (SNAPSHOT = false)) TO STDOUT"
                subscriber.pgconn.send_query(sql)
                subscriber.pgconn.get_result()
                while not stop.is_set():
                    size, row = subscriber.pgconn.get_copy_data(1)
                    if size > 0:
                        time = int(bytes(row).split(b"\t")[0])
                        came.setdefault(time, SYSTEM_CLOCK.monotonic())
                        continue
                    # Not by waiting for data there: nothing else here could go on meanwhile.
                    select.select([subscriber.pgconn.socket], [], [], 1.0)
                    subscriber.pgconn.consume_input()

        threads = [threading.Thread(target=each, daemon=True) for each in (listen, subscribe)]
        for thread in threads:
            thread.start()

        def insert() -> None:
            """One more, when the one before it has come."""
            seen = len(came)
            connection.execute("INSERT INTO happened VALUES ('b', 1)")
            until(lambda: len(came) > seen, "a change of the subscription")

        _first(insert)
        for _ in range(inserts):
            insert()
        until(lambda: not _unseen(came, passed), "the upper that has passed the last change")
        stop.set()
        connection.execute("INSERT INTO happened VALUES ('b', 1)")
        for thread in threads:
            thread.join(timeout=60)
    lags = [
        1000 * (at - min(w for t, w in passed.items() if t > time)) for time, at in came.items()
    ]
    lags = lags[1 : inserts + 1]
    return {"subscribe_lag_ms": statistics.median(lags), "subscribe_lag_max_ms": max(lags)}


def _unseen(came: dict[int, float], passed: dict[int, float]) -> bool:
    return max(came) >= max(passed, default=0)


def _first(insert: Callable[[], None]) -> None:
    """The subscription begins somewhere around here; what is inserted before it is not its own."""
    SYSTEM_CLOCK.sleep(3.0)
    insert()


def ad_hoc(
    console: Console, server: ServerProcess, folder: Path, *, rows: int, runs: int, master: str
) -> dict[str, float]:
    """A query of all rows that Spark answers, and the same query in a Spark session of our own."""
    console.print(f"an ad-hoc query of {rows:,} rows, and plain Spark ...")
    with server.connect() as connection:
        spark = start_spark(master=master, app="tidemark-bench")
        try:
            ours, plain = _in_turn(connection, spark, folder, rows, runs)
            gc.collect()  # What is left of its frames would ask a Spark that is gone.
        finally:
            stop_spark(spark)
    adhoc, spark_ms = statistics.median(ours), statistics.median(plain)
    return {
        "adhoc_ms": adhoc,
        "spark_ms": spark_ms,
        "adhoc_vs_spark": (adhoc - ALLOWANCE_MS) / spark_ms,
    }


def _in_turn(
    connection: psycopg.Connection, spark: SparkSession, folder: Path, rows: int, runs: int
) -> tuple[list[float], list[float]]:
    """Milliseconds by way of the server, and of Spark, after a few runs of each to warm up."""
    path = str(folder / "orders.parquet")
    _plain_rows(spark, rows).write.parquet(path)
    spark.read.parquet(path).createOrReplaceTempView("orders")
    ours: list[float] = []
    plain: list[float] = []
    for _ in range(runs + WARM_UPS):
        begun = SYSTEM_CLOCK.monotonic()
        mine = connection.execute(AD_HOC).fetchall()
        ours.append(1000 * (SYSTEM_CLOCK.monotonic() - begun))
        begun = SYSTEM_CLOCK.monotonic()
        theirs = spark.sql(AD_HOC).collect()
        plain.append(1000 * (SYSTEM_CLOCK.monotonic() - begun))
        assert sorted(mine) == sorted(map(tuple, theirs)), (mine, theirs)
    return ours[WARM_UPS:], plain[WARM_UPS:]


def _plain_rows(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).selectExpr(
        "id",
        "id * 7919 % 1000 AS customer",
        "(id * 31 % 10007) / 4 AS amount",
        "element_at(array('bid', 'ask', 'fill', 'void'), cast(id % 4 + 1 AS int)) AS kind",
    )
