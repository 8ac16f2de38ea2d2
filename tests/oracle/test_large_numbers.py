"""Numbers at the edge of 38 digits: exact, or an error row that goes away with its row."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.compute.arrangements import Arrangements
from tidemark.compute.fragments import fragments_of
from tidemark.compute.plan import Get
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.view import Flows, View
from tidemark.errors import Unsupported
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, PersistClient, as_updates
from tidemark.types import INTEGER, Column, arrow_schema, numeric

COLUMNS = (Column("k", INTEGER), Column("n", numeric(38, 10)))
HUGE = Decimal("9999999999999999999999999999.9999999999")


class Tables:
    def resolve(self, parts: tuple[str, ...]) -> Get:
        return Get("t", COLUMNS)


def view_after(
    client: PersistClient, spark: SparkSession, folder: Path, sql: str, *steps: dict[Decimal, int]
) -> list[tuple[list, list]]:
    """The view's rows and errors after each step of (value, diff) changes."""
    writer = client.open_writer("t", schema=arrow_schema(COLUMNS))
    writer.advance_upper(Frontier(1))
    dataflow = View(
        "v",
        plan_query(parse_query(sql), Tables(), view=True),
        inputs={"t": "t"},
        output="v",
        as_of=0,
        flows=Flows(client, spark, Arrangements(client, folder)),
    )
    dataflow.start()
    found = []
    for time, step in enumerate(steps, 1):
        exact = pa.array(list(step), pa.decimal128(38, 10))
        table = pa.table({"k": [1] * len(step), "n": exact, DIFF: list(step.values())})
        writer.compare_and_append(
            as_updates(table, time=time, schema=writer.schema),
            lower=Frontier(time),
            upper=Frontier(time + 1),
        )
        dataflow.tick(dataflow.input_upper())
        view = client.open_reader("v").snapshot(time).to_pylist()
        found.append(
            (
                [row["v"] for row in view if row[ERR] is None],
                [row[ERR] for row in view if row[ERR] is not None],
            )
        )
    dataflow.stop()
    return found


@pytest.mark.parametrize("size", [HUGE, HUGE.copy_negate(), Decimal("0.0000000001")])
def test_signs_change_exactly(
    client: PersistClient, spark: SparkSession, tmp_path: Path, size: Decimal
) -> None:
    (step,) = view_after(client, spark, tmp_path / "c", "SELECT k, -n AS v FROM t", {size: 1})
    assert step == ([size.copy_negate()], [])


@pytest.mark.parametrize("aggregate", ["sum", "avg"])
def test_a_term_too_large_is_an_error_that_goes_away(
    client: PersistClient, spark: SparkSession, tmp_path: Path, aggregate: str
) -> None:
    sql = f"SELECT k, {aggregate}(n) AS v FROM t GROUP BY k"
    one = Decimal("1.5")
    first, second, third = view_after(
        client, spark, tmp_path / "c", sql, {one: 1}, {HUGE: 2}, {HUGE: -2}
    )
    assert first == ([one], [])
    assert second == ([one], [f"numeric field overflow in n::numeric(30,10) where n = {HUGE}"])
    assert third == ([one], [])


def test_sums_that_could_not_hold_their_terms_are_refused() -> None:
    class Wide:
        def resolve(self, parts: tuple[str, ...]) -> Get:
            return Get("t", (Column("n", numeric(38, 30)), Column("m", numeric(30, 28))))

    with pytest.raises(Unsupported, match="too few digits"):
        fragments_of(plan_query(parse_query("SELECT sum(n) AS v FROM t"), Wide(), view=True))
    fragments_of(plan_query(parse_query("SELECT sum(m) AS v FROM t"), Wide(), view=True))
