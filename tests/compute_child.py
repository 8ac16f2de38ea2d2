"""A process that keeps four views over shards in a folder until it is killed: `compute_child.py FOLDER`.

    best     a join, reduced with max                        state: accumulators, heads
    top      top-k over a reduction over a left join         several fragments
    lately   a temporal filter                               state: what is pending
    paths    a recursion                                     rounds

LARGE in the environment has everything hydrated by Spark's tasks; TIDEMARK_FAILPOINT says where it
dies (compute/failpoints.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute import dataflow
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.plan import Get, Plan, collections_of
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.view import Flows, View
from tidemark.errors import SqlError
from tidemark.logs import configure_logging
from tidemark.persist import PersistClient
from tidemark.spark.session import start_spark
from tidemark.types import BIGINT, INTEGER, TEXT, Column

TABLES = {
    "t": (Column("a", INTEGER), Column("b", TEXT)),
    "u": (Column("a", INTEGER), Column("d", INTEGER)),
    "s": (Column("id", INTEGER), Column("lo", BIGINT), Column("hi", BIGINT)),
    "e": (Column("f", INTEGER), Column("t", INTEGER)),
}

VIEWS = {
    "best": "SELECT b, count(*) AS n, sum(d) AS s, max(d) AS m FROM t JOIN u ON t.a = u.a GROUP BY b",
    "top": (
        "SELECT a, n, s FROM (SELECT t.a, count(*) AS n, sum(u.d) AS s "
        "FROM t LEFT JOIN u ON t.a = u.a GROUP BY t.a) q ORDER BY s DESC, n LIMIT 2"
    ),
    "lately": "SELECT id, hi FROM s WHERE mz_now() >= lo AND mz_now() < hi",
    "paths": (
        "WITH MUTUALLY RECURSIVE path (f int, t int) AS ("
        "SELECT f, t FROM e UNION SELECT path.f, e.t FROM path JOIN e ON path.t = e.f) "
        "SELECT f, t FROM path"
    ),
}


class Catalog:
    """Tables, collections and shards have the same names."""

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        if parts[-1] not in TABLES:
            raise SqlError(f"no table {parts}", sqlstate="42P01")
        return Get(parts[-1], TABLES[parts[-1]])


def plan_of(view: str) -> Plan:
    return plan_query(parse_query(VIEWS[view]), Catalog(), view=True)


def open_client(folder: Path) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{folder / 'blob'}", consensus=f"sqlite://{folder / 'consensus.db'}"
    )


def main(folder: str) -> None:
    configure_logging()
    dataflow.HOLD_EVERY_MS = 0
    if os.environ.get("LARGE"):
        dataflow.LARGE_ROWS = -1
    client = open_client(Path(folder))
    spark = start_spark(master="local[1]")
    flows = Flows(client, spark, Arrangements(client, Path(folder) / "cache"))
    views = []
    for name in VIEWS:
        plan = plan_of(name)
        inputs = {each: each for each in collections_of(plan)}
        view = View(name, plan, inputs=inputs, output=name, as_of=0, flows=flows)
        view.start()
        views.append(view)
    print("running", flush=True)
    while True:
        for view in views:
            upper = view.input_upper()
            if view.lower < upper:
                view.tick(upper)
        SYSTEM_CLOCK.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
