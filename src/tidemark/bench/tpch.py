"""TPC-H: all 22 queries as maintained views, against recomputing them.

    load, hydrate 22 views
    warm-up       a few refreshes, absorbed by all views
    measured      a refresh (RF1 + RF2, 0.1% of the orders) absorbed by each view in turn
    recomputed    the 22 queries as plain Spark SQL over the shards' Parquet, at the last time

A fragment that several views share is kept up to date by the first of them, so the total is what a
refresh costs, and a single query's share depends on who came before it.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from tidemark.bench.tpch_queries import QUERIES
from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.fragments import fragments_of
from tidemark.compute.plan import Get, Plan, collections_of
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.view import Flows, View
from tidemark.errors import SqlError
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, TIME, Appended, PersistClient, as_updates
from tidemark.spark.frames import rows
from tidemark.spark.session import LARGE, session_for
from tidemark.storage.generators.tpch import TABLES, Tpch
from tidemark.types import arrow_schema

__all__ = ["QUERIES", "Tables", "plan_of", "run_tpch"]

SCALE, QUICK_SCALE = Decimal("0.1"), Decimal("0.01")
WARM, MEASURED, RECOMPUTED = 8, 7, 3


class _Catalog:
    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        spec = TABLES.get(parts[-1])
        if spec is None:
            raise SqlError(f'table "{parts[-1]}" does not exist', sqlstate="42P01")
        names = [column.name for column in spec.columns]
        return Get(parts[-1], spec.columns, (tuple(names.index(key) for key in spec.key),))


def plan_of(sql: str) -> Plan:
    return plan_query(parse_query(sql), _Catalog(), view=True)


class Tables:
    """The generator's tables in shards of their names; its steps are their times."""

    def __init__(self, client: PersistClient, generator: Tpch):
        self._generator = generator
        self._writers = {
            name: client.open_writer(name, schema=arrow_schema(spec.columns), key=spec.key)
            for name, spec in TABLES.items()
        }
        self.upper = 0

    def advance(self, upper: int) -> None:
        for name, made in self._generator.updates(self.upper, upper).items():
            writer = self._writers[name]
            renamed = {"_offset": TIME, "_diff": DIFF}
            updates = made.rename_columns([renamed.get(n, n) for n in made.column_names])
            outcome = writer.compare_and_append(
                as_updates(updates, schema=writer.schema),
                lower=Frontier(self.upper),
                upper=Frontier(upper),
            )
            assert outcome == Appended(Frontier(upper)), outcome
        self.upper = upper


def run_tpch(spark: SparkSession, console: Console, quick: bool) -> dict[str, float]:
    scale = QUICK_SCALE if quick else SCALE
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder,
        console.status(f"TPC-H {scale}: loading") as status,
    ):
        client = PersistClient.open(
            blob=f"file://{folder}/blob", consensus=f"sqlite://{folder}/consensus.db"
        )
        tables = Tables(client, Tpch(scale_factor=scale))
        tables.advance(1)
        flows = Flows(client, spark, Arrangements(client, Path(folder) / "cache"))
        views: dict[str, View] = {}
        hydrate = 0.0
        for name, sql in QUERIES.items():
            status.update(f"TPC-H {scale}: hydrating {name}")
            plan = plan_of(sql)
            inputs = {table: table for table in collections_of(plan)}
            view = View(name, plan, inputs=inputs, output=f"{name}-out", as_of=0, flows=flows)
            hydrate += _seconds(view.start)
            views[name] = view
        client.start_maintenance()
        ticks: dict[str, list[float]] = {name: [] for name in QUERIES}
        for done in range(WARM + MEASURED):
            status.update(f"TPC-H {scale}: refresh {done + 1} of {WARM + MEASURED}")
            tables.advance(tables.upper + 1)
            for name, view in views.items():
                ticks[name].append(1000 * _absorb(view))
        status.update(f"TPC-H {scale}: recomputing with plain Spark")
        batch = _recompute(spark, client, tables.upper - 1)
        for name, (_, expected) in batch.items():
            _verify(name, client.open_reader(f"{name}-out").snapshot(tables.upper - 1), expected)
        for view in views.values():
            view.stop()
        client.close()
    measured = {name: statistics.median(times[WARM:]) for name, times in ticks.items()}
    recomputed = {name: ms for name, (ms, _) in batch.items()}
    totals = [sum(times[at] for times in ticks.values()) for at in range(WARM, WARM + MEASURED)]
    _print(console, scale, measured, recomputed, statistics.median(totals))
    found = {
        "tpch_scale": float(scale),
        "tpch_hydrate_s": hydrate,
        "tpch_refresh_ms": statistics.median(totals),
        "tpch_recompute_ms": sum(recomputed.values()),
        "tpch_speedup": sum(recomputed.values()) / statistics.median(totals),
    }
    return found | {f"tpch_{name}_speedup": recomputed[name] / measured[name] for name in QUERIES}


def _absorb(view: View) -> float:
    upper = view.input_upper()

    def absorb() -> None:
        while view.lower < upper:
            view.tick(upper)

    return _seconds(absorb)


def _recompute(
    spark: SparkSession, client: PersistClient, as_of: int
) -> dict[str, tuple[float, pa.Table]]:
    """Each query's median time in ms and its answer; the first run of each only warms up."""
    session = session_for(spark, LARGE)
    found = {}
    with ExitStack() as stack:
        for name in TABLES:
            frames = stack.enter_context(rows(session, client, name, as_of))
            frames.sound().createOrReplaceTempView(name)
        for name, sql in QUERIES.items():
            answer = session.sql(sql).toArrow()
            times = [
                1000 * _seconds(lambda sql=sql: session.sql(sql).toArrow())
                for _ in range(RECOMPUTED)
            ]
            found[name] = statistics.median(times), answer
    return found


def _verify(name: str, view: pa.Table, expected: pa.Table) -> None:
    copies = view.take(_repeated(view[DIFF])).select(range(expected.num_columns))
    found, wanted = _counted(copies), _counted(expected)
    if found != wanted:
        raise SystemExit(
            f"the view {name} is wrong: too much {found - wanted}, missing {wanted - found}"
        )


def _repeated(copies: pa.ChunkedArray) -> pa.Array:
    return pa.array(np.repeat(np.arange(len(copies)), copies.to_numpy()))


def _counted(table: pa.Table) -> Counter[tuple[object, ...]]:
    columns = [[_normal(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def _normal(value: object) -> object:
    """Numbers to four digits: Spark keeps fewer of a quotient than we do."""
    return round(Decimal(value), 4) + 0 if isinstance(value, int | Decimal) else value


def _print(
    console: Console,
    scale: Decimal,
    measured: dict[str, float],
    recomputed: dict[str, float],
    total: float,
) -> None:
    table = Table(title=f"TPC-H at scale factor {scale}, a refresh of 0.1% of the orders")
    for title in ("", "fragments", "refresh, ms", "recompute, ms", "recompute / refresh"):
        table.add_column(title, justify="right")
    for name, sql in QUERIES.items():
        pieces = len(fragments_of(plan_of(sql)))
        _add_row(table, name, str(pieces), measured[name], recomputed[name])
    table.add_section()
    _add_row(table, "all", "", total, sum(recomputed.values()))
    console.print(table)


def _add_row(table: Table, name: str, pieces: str, refresh: float, recompute: float) -> None:
    table.add_row(
        name, pieces, f"{refresh:,.0f}", f"{recompute:,.0f}", f"{recompute / refresh:,.1f}"
    )


def _seconds(body: Callable[[], object]) -> float:
    start = SYSTEM_CLOCK.monotonic()
    body()
    return SYSTEM_CLOCK.monotonic() - start
