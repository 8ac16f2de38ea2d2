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
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
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
WARM, MEASURED, RECOMPUTED = 5, 5, 3


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
