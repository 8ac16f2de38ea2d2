"""The judge of the crash tests is itself judged: it sees what is wrong, and when."""

from __future__ import annotations

import pyarrow as pa
import pytest
from replay import Query, Span, check_every_time

from tidemark.control.catalog import Item
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, TIME, PersistClient, as_updates
from tidemark.types import BIGINT, Column, arrow_schema

ITEMS = {
    "t": Item("u1", "t", "table", "", columns=(Column("a", BIGINT),), shard="t"),
    "v": Item("u2", "v", "materialized-view", "", columns=(Column("n", BIGINT),), shard="v"),
    "w": Item("u3", "w", "materialized-view", "", columns=(Column("a", BIGINT),), shard="w"),
}
QUERIES = {
    "v": Query("SELECT count(*) AS n FROM t", ("t",)),
    "w": Query("SELECT a FROM t WHERE :now >= a", ("t",), ticking=(("t", "a"),)),
}
SPAN = Span(1, 20)
ROWS = [(5, 1, 1), (12, 3, 1), (5, 7, -1)]
"""Value, time, diff."""

COUNTS = [(1, 1, 1), (1, 3, -1), (2, 3, 1), (2, 7, -1), (1, 7, 1)]
LATELY = [(5, 5, 1), (5, 7, -1), (12, 12, 1)]


def test_what_is_right_at_every_time_passes(client: PersistClient):
    write(client, t=ROWS, v=COUNTS, w=LATELY)
    compared = check_every_time(client, ITEMS, QUERIES, SPAN, {})
    assert compared["v"] == 3
    assert compared["w"] >= 5, "also just before and at 5 and 12"


@pytest.mark.parametrize(
    ("counts", "lately", "at"),
    [
        ([*COUNTS, (9, 3, 1), (9, 4, -1)], LATELY, "v at 3"),  # for a moment
        (COUNTS[:3], LATELY, "v at 7"),  # not seen
        ([(1, 1, 1), (1, 3, -1), (2, 3, 1), (2, 8, -1), (1, 8, 1)], LATELY, "v at 7"),  # late
        ([*COUNTS, (1, 9, 1)], LATELY, "v at 9"),  # twice
        (COUNTS, [(5, 6, 1), (5, 7, -1), (12, 12, 1)], "w at 5"),  # nothing else happens then
        (COUNTS, [(5, 5, 1), (5, 7, -1), (12, 11, 1)], "w at 11"),
    ],
)
def test_what_is_wrong_at_any_time_is_found(client: PersistClient, counts, lately, at: str):
    write(client, t=ROWS, v=counts, w=lately)
    with pytest.raises(AssertionError, match=at):
        check_every_time(client, ITEMS, QUERIES, SPAN, {})


def test_damage_may_be_seen_until_it_is_put_right_and_no_longer(client: PersistClient):
    damage, repair = (7, 4, 2), (7, 7, -2)
    write(client, t=ROWS, v=[*COUNTS, damage, repair], w=LATELY)
    check_every_time(client, ITEMS, QUERIES, SPAN, {"v": [4]})
    with pytest.raises(AssertionError, match="v at 4"):
        check_every_time(client, ITEMS, QUERIES, SPAN, {"w": [4]})


def test_damage_that_stays_is_found(client: PersistClient):
    write(client, t=ROWS, v=[*COUNTS, (7, 4, 2)], w=LATELY)
    with pytest.raises(AssertionError, match="never put right"):
        check_every_time(client, ITEMS, QUERIES, SPAN, {"v": [4]})


def write(client: PersistClient, **updates: list[tuple[int, int, int]]) -> None:
    for name, rows in updates.items():
        schema = arrow_schema(ITEMS[name].columns)
        writer = client.open_writer(name, schema=schema)
        values, times, diffs = zip(*rows, strict=True)
        table = pa.table({schema.names[0]: values, TIME: times, DIFF: diffs})
        full = as_updates(table, schema=writer.schema)
        writer.compare_and_append(full, lower=Frontier(0), upper=Frontier(SPAN.last + 1))
