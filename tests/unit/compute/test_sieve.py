"""What is dropped before look-ups, and what is left for Spark to decide."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tidemark.compute.fragments import fragments_of
from tidemark.compute.plan import Get
from tidemark.compute.sieve import Sieve
from tidemark.compute.sql import parse_query, plan_query
from tidemark.types import BIGINT, DATE, DOUBLE, TEXT, Column, arrow_schema, numeric

COLUMNS = (
    Column("k", BIGINT),
    Column("s", TEXT),
    Column("n", numeric(10, 2)),
    Column("d", DATE),
    Column("f", DOUBLE),
)
ROWS = pa.table(
    {
        "k": [1, 2, 3, None],
        "s": ["a", "ab", None, "b"],
        "n": [Decimal("1.50"), None, Decimal("2.00"), Decimal("0.00")],
        "d": [datetime.date(2024, 1, 1), datetime.date(2024, 2, 1), None, datetime.date.max],
        "f": [1.0, float("nan"), None, 0.0],
    },
    schema=arrow_schema(COLUMNS),
)
ALL = [1, 2, 3, None]


class _Tables:
    def resolve(self, parts: tuple[str, ...]) -> Get:
        return Get(parts[-1], COLUMNS)


@pytest.mark.parametrize(
    ("predicate", "passed"),
    [
        ("k = 2", [2]),
        ("k <> 2", [1, 3]),
        ("k < 3", [1, 2]),
        ("k IN (1, 3)", [1, 3]),
        ("NOT k IN (1, 3)", [2]),
        ("s LIKE 'a%'", [1, 2]),
        ("NOT s LIKE 'a%'", [None]),
        ("n >= 1.50", [1, 3]),
        ("d >= '2024-02-01'", [2, None]),
        ("d < date '2024-01-01' + interval '1' month", [1]),
        ("k = 1 OR s = 'b'", [1, None]),
        ("k = 1 AND s = 'b'", []),
        ("NOT (k = 1 AND s = 'b')", [1, 2, 3]),
        ("s < 'b'", [1, 2]),
        ("f > 0", [1, 2]),
        ("d < date '2024-01-01' + interval '1' month OR s > 'a'", [1, 2, None]),
        # Left to Spark: what may fail.
        ("10 / k = 5", ALL),
        ("k = 1 OR 10 / k = 5", ALL),
    ],
)
def test_drops_what_fails_for_sure(predicate: str, passed: list[int | None]) -> None:
    plan = plan_query(
        parse_query(f"SELECT k, s, n, d, f FROM t WHERE {predicate}"), _Tables(), view=True
    )
    (block,) = fragments_of(plan)[-1].shape.blocks
    found = Sieve(block, 0).passed(ROWS)
    assert found["k"].to_pylist() == passed


def test_a_join_asks_each_leaf_its_own() -> None:
    sql = "SELECT a.k FROM t a JOIN t b ON a.k = b.k AND a.s < b.s WHERE a.k = 2 AND b.s = 'ab'"
    plan = plan_query(parse_query(sql), _Tables(), view=True)
    (block,) = fragments_of(plan)[-1].shape.blocks
    assert [Sieve(block, leaf).passed(ROWS)["k"].to_pylist() for leaf in (0, 1)] == [[2], [2]]


@pytest.mark.parametrize(
    ("condition", "predicates"),
    [
        ("(a.k = b.k AND a.s = 'x') OR (a.k = b.k AND b.s = 'y')", 2),
        ("(a.k = b.k AND a.s = 'x') OR a.k = b.k", 1),
        ("(a.k = b.k AND a.s = 'x') OR (b.s = 'y' AND a.k = b.k) OR (a.k = b.k AND a.n = 1)", 2),
        ("(a.k = b.k AND a.s = 'x') OR b.s = 'y'", 1),
    ],
)
def test_what_all_branches_of_an_or_ask_is_asked_once(condition: str, predicates: int) -> None:
    plan = plan_query(
        parse_query(f"SELECT a.k FROM t a, t b WHERE {condition}"), _Tables(), view=True
    )
    (block,) = fragments_of(plan)[-1].shape.blocks
    assert len(block.predicates) == predicates
