"""What is named twice by what is named twice: queries that would be too large are refused soon."""

from __future__ import annotations

import pytest

from tidemark.compute.optimise import optimised
from tidemark.compute.plan import MOST_NODES, Get, Plan, size
from tidemark.compute.sql import parse_query, plan_query
from tidemark.errors import SqlError, Unsupported
from tidemark.types import INTEGER, Column

SAID = "too large once its views and WITH queries are written out"


class Views:
    """Views over table t, each over those before it."""

    def __init__(self) -> None:
        self.known: dict[str, Plan] = {"t": Get("t", (Column("a", INTEGER),))}

    def resolve(self, parts: tuple[str, ...]) -> Plan:
        return self.known[parts[-1]]

    def plan(self, sql: str, *, view: bool = False) -> Plan:
        return plan_query(parse_query(sql), self, view=view)


def doubled(levels: int) -> Views:
    """`most`, and whatever else there can be of so many."""
    views = Views()
    views.known["v0"] = views.plan("SELECT a FROM t", view=True)
    for n in range(1, levels):
        sql = f"SELECT x.a FROM v{n - 1} x, v{n - 1} y"
        views.known[f"v{n}"] = views.plan(sql, view=True)
    return views


def test_views_that_read_views_twice_have_an_end() -> None:
    with pytest.raises(Unsupported, match=SAID) as caught:
        doubled(40)
    assert isinstance(caught.value.position, int)
    assert caught.value.hint == "make some of them materialized views of their own"


def test_what_can_be_made_can_be_read() -> None:
    views = doubled(10)
    for plan in views.known.values():
        assert size(plan) < MOST_NODES
    assert size(views.plan("SELECT * FROM v9")) > size(views.known["v9"]) > 1_000
    with pytest.raises(Unsupported, match=SAID):
        views.plan("SELECT 1 FROM v9 a, v9 b, v9 c, v9 d")
    more = ", ".join(f"t c{n}" for n in range(1_000))
    with pytest.raises(Unsupported, match=SAID):
        views.plan(f"SELECT a.a FROM v9 a, v9 b, {more}", view=True)


def test_names_of_with_that_are_read_twice_have_an_end() -> None:
    names = ["v0 AS (SELECT a FROM t)"]
    names += [f"v{n} AS (SELECT x.a FROM v{n - 1} x, v{n - 1} y)" for n in range(1, 40)]
    plan = Views().plan(f"WITH {', '.join(names)} SELECT a FROM v39")
    with pytest.raises(SqlError, match=SAID):
        optimised(plan)
