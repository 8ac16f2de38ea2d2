"""The 22 queries of TPC-H as maintained views, under the benchmark's refreshes.

    time      0        1 2          3 4
              load     RF1 + RF2    RF1 + RF2
              start    a tick       a tick

Each time equals the query's own text in plain Spark SQL over the generator's rows; the end of each
tick equals a peek of the same plan, too. The tables are the smallest that the generator makes, and
some parameters are relaxed, so that nearly every query has an answer that the refreshes change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from maintained import Contents, contents, counted
from pyspark.sql import SparkSession

from tidemark.bench.tpch import QUERIES, Tables, plan_of
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.peek import run_peek
from tidemark.compute.plan import Plan, collections_of
from tidemark.compute.protocol import Peek
from tidemark.compute.view import Flows, View
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.spark.frames import local_frame
from tidemark.spark.session import SMALL, session_for
from tidemark.storage.generators.tpch import Tpch

GENERATOR = Tpch(scale_factor=Decimal("0.001"), seed=3, refresh=60)
STEPS = (1, 3, 5)
"""Uppers: what is loaded, and two ticks of two refreshes each."""

RELAXED: dict[str, tuple[tuple[str, str], ...]] = {
    "q2": (("p_size = 15", "p_size < 25"),),
    "q8": (("p_type = 'ECONOMY ANODIZED STEEL'", "p_type LIKE '%STEEL'"),),
    "q17": (("'Brand#23'", "'Brand#55'"), ("p_container = 'MED BOX'", "p_container LIKE 'M%'")),
    "q18": (("> 300", "> 200"),),
    "q19": (
        ("'Brand#12'", "'Brand#55'"),
        ("'Brand#23'", "'Brand#41'"),
        ("'Brand#34'", "'Brand#51'"),
        ("IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')", "LIKE 'SM%'"),
        ("IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')", "LIKE 'MED%'"),
        ("IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')", "LIKE 'LG%'"),
        ("p_size BETWEEN 1 AND 5", "p_size BETWEEN 1 AND 50"),
        ("p_size BETWEEN 1 AND 10", "p_size BETWEEN 1 AND 50"),
        ("p_size BETWEEN 1 AND 15", "p_size BETWEEN 1 AND 50"),
        ("l_shipinstruct = 'DELIVER IN PERSON'", "l_shipinstruct <> 'NONE'"),
    ),
    "q20": (("'forest%'", "'metallic%'"), ("n_name = 'CANADA'", "n_name <> 'CANADA'")),
    "q21": (("'SAUDI ARABIA'", "'JAPAN'"),),
    "q22": (("o_custkey = c_custkey", "o_custkey = c_custkey AND o_orderdate > '1997-07-01'"),),
}

LOADED_ONLY = {"q2", "q11", "q16"}
"""Queries that look at no table which is refreshed."""


def text_of(name: str) -> str:
    text = QUERIES[name]
    for old, new in RELAXED.get(name, ()):
        assert old in text, (name, old)
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Kept:
    """The views after the last tick, readable at every time, and the tables beside them."""

    spark: SparkSession
    client: PersistClient
    plans: dict[str, Plan]
    oracle: dict[int, SparkSession]

    def at(self, name: str, time: int) -> Contents:
        return contents(self.client, _output(name), time)

    def expected(self, name: str, time: int) -> Contents:
        return counted(self.oracle[time].sql(text_of(name)).toArrow())

    def peeked(self, name: str, time: int) -> Contents:
        plan = self.plans[name]
        shards = {table: table for table in collections_of(plan)}
        peek = Peek(f"peek-{name}", plan, time, shards, {})
        return counted(run_peek(self.spark, self.client, peek))


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("tpch")
    client = PersistClient.open(
        blob=f"file://{folder / 'blob'}", consensus=f"sqlite://{folder / 'consensus.db'}"
    )
    plans = {name: plan_of(text_of(name)) for name in QUERIES}
    _maintain(spark, client, folder, plans)
    yield Kept(spark, client, plans, _sessions(spark))
    client.close()


@pytest.mark.parametrize("name", QUERIES)
def test_view_equals_batch_at_every_time(kept: Kept, name: str) -> None:
    for time in range(STEPS[-1]):
        found, expected = kept.at(name, time), kept.expected(name, time)
        assert found == expected, _difference(f"{name} at {time}", found, expected)
        if time + 1 in STEPS:
            peeked = kept.peeked(name, time)
            assert peeked == expected, _difference(f"peek of {name} at {time}", peeked, expected)


def test_answers_are_there_and_change(kept: Kept) -> None:
    """Otherwise the comparison would say little."""
    answers = {name: [kept.at(name, time) for time in range(STEPS[-1])] for name in QUERIES}
    empty = {name for name, seen in answers.items() if not any(map(_says_something, seen))}
    still = {name for name, seen in answers.items() if all(each == seen[0] for each in seen)}
    assert empty == set()
    assert still == LOADED_ONLY


def _maintain(
    spark: SparkSession, client: PersistClient, folder: Path, plans: dict[str, Plan]
) -> None:
    tables = Tables(client, GENERATOR)
    tables.advance(STEPS[0])
    flows = Flows(client, spark, Arrangements(client, folder / "cache"))
    views = []
    for name, plan in plans.items():
        client.open_critical_since(_output(name), "test").downgrade(Frontier.MIN)
        inputs = {table: table for table in collections_of(plan)}
        view = View(name, plan, inputs=inputs, output=_output(name), as_of=0, flows=flows)
        view.start()
        views.append(view)
    for table in GENERATOR.tables:
        # Peeks look back to the first time.
        client.open_critical_since(table, "test").downgrade(Frontier.MIN)
    for upper in STEPS[1:]:
        tables.advance(upper)
        for view in views:
            assert view.tick(view.input_upper()) == Frontier(upper)
    for view in views:
        view.stop()


def _output(name: str) -> str:
    return f"{name}-out"


def _sessions(spark: SparkSession) -> dict[int, SparkSession]:
    """For each time a session in which the tables' names stand for their rows then."""
    sessions = {time: session_for(spark, SMALL) for time in range(STEPS[-1])}
    for name, updates in GENERATOR.updates(0, STEPS[-1]).items():
        for time, session in sessions.items():
            local_frame(session, _rows(updates, time)).createOrReplaceTempView(name)
    return sessions


def _rows(updates: pa.Table, time: int) -> pa.Table:
    until = updates.filter(pc.less_equal(updates["_offset"], time))
    names = [name for name in updates.column_names if name not in ("_offset", "_diff")]
    summed = until.group_by(names, use_threads=False).aggregate([("_diff", "sum")])
    return summed.filter(pc.equal(summed["_diff_sum"], 1)).select(names)


def _says_something(answer: Contents) -> bool:
    return any(value != "None" for row in answer for value in row)


def _difference(what: str, found: Contents, expected: Contents) -> str:
    return f"{what}: too much {found - expected}, missing {expected - found}"
