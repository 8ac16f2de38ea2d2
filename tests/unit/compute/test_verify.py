"""VERIFY: a view that is what its query says passes, and every way in which it is not is found."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.compute import maintain, verify
from tidemark.compute.definition import Query, planned
from tidemark.compute.library import Maintained
from tidemark.compute.protocol import Verified, Verify
from tidemark.compute.verify import differences, newest_readable, run_verify, verdict_line
from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient
from tidemark.spark import frames

ORDERS = pa.schema([("id", pa.int64()), ("region", pa.string()), ("amount", pa.float64())])
COUNTS = pa.schema([("region", pa.string()), ("n", pa.int64())])
BY_REGION = "SELECT region, count(*) AS n FROM orders GROUP BY region"


def append(
    client: PersistClient,
    shard: str,
    rows: list[tuple],
    *,
    at: int,
    upper: int,
    schema: pa.Schema = ORDERS,
    diffs: list[int] | None = None,
    errors: list[str] | None = None,
) -> None:
    """Whatever it is, at one time: as a view's own writer would, or as nobody should."""
    writer = client.open_writer(shard, schema=schema)
    rows = rows + [(None,) * len(schema)] * len(errors or [])
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    good = len(rows) - len(errors or [])
    table = pa.table(
        [
            *arrays,
            pa.array([None] * good + (errors or []), pa.string()),
            pa.array([at] * len(rows), pa.int64()),
            pa.array(diffs or [1] * len(rows), pa.int64()),
        ],
        names=[*schema.names, ERR, TIME, DIFF],
    ).select(writer.schema.names)
    table = table.cast(writer.schema)
    writer.compare_and_append(table, lower=writer.fetch_upper(), upper=Frontier(upper))


class Views:
    """Views over the shard `o`, each caught up, and what VERIFY says of them."""

    def __init__(self, client: PersistClient, spark: SparkSession, folder: Path):
        self.client, self._spark, self._folder = client, spark, folder

    def make(self, sql: str) -> Query:
        with self._maintained(sql) as view:
            view.catch_up()
            return view.query

    def _maintained(self, sql: str) -> Maintained:
        return maintain(
            sql,
            inputs={"orders": "o"},
            output="v",
            client=self.client,
            spark=self._spark,
            cache=self._folder,
        )

    def verify(self, query: Query, as_of: int | None = None) -> Verified:
        if as_of is None:
            as_of = newest_readable(self.client, ["o", "v"])
        asked = Verify("verify-1", "v", query.plan, {"o": "o"}, "v", as_of, as_of, 1_000)
        return run_verify(self._spark, self.client, asked)


@pytest.fixture(params=["small", "large"])
def views(
    client: PersistClient,
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Views:
    if request.param == "large":
        monkeypatch.setattr(frames, "SMALL_ROWS", -1)
        monkeypatch.setattr(verify, "SMALL_ROWS", -1)
    append(
        client,
        "o",
        [(1, "a", 1.5), (2, "a", float("nan")), (3, None, -0.0), (4, None, None), (4, None, None)],
        at=5,
        upper=6,
    )
    return Views(client, spark, tmp_path / "cache")


def rows(found: Verified) -> list[tuple]:
    return [tuple(row.values()) for row in differences(found).to_pylist()]


def test_a_view_that_is_right(views: Views):
    found = views.verify(views.make(BY_REGION))
    assert (found.verdict, found.rows, found.missing, found.unexpected) == ("verified", 2, 0, 0)
    assert rows(found) == []
    assert verdict_line(found) == "verified at 5: 2 rows, no difference"


def test_nulls_nans_and_signs_of_zero_are_equal_and_copies_count(views: Views):
    query = views.make("SELECT id, region, amount FROM orders")
    append(
        views.client,
        "v",
        [(3, None, -0.0), (3, None, 0.0), (2, "a", float("nan")), (2, "a", -float("nan"))],
        at=6,
        upper=7,
        diffs=[-1, 1, -1, 1],
    )
    append(views.client, "o", [], at=6, upper=7)
    found = views.verify(query)
    assert (found.as_of, found.verdict, found.rows) == (6, "verified", 5)
    # One copy too few is a difference of one.
    append(views.client, "v", [(4, None, None)], at=7, upper=8, diffs=[-1])
    append(views.client, "o", [], at=7, upper=8)
    found = views.verify(query)
    assert rows(found) == [(1, 2, None, 4, None, None)]
    assert (found.missing, found.unexpected) == (1, 0)


def test_every_kind_of_damage_is_found(views: Views):
    query = views.make(BY_REGION)
    damage = [("a", 2), ("b", 7), (None, 3)]
    append(views.client, "v", damage, at=6, upper=7, schema=COUNTS, diffs=[-1, 3, 1])
    append(views.client, "o", [], at=6, upper=7)
    found = views.verify(query)
    assert rows(found) == [(2, 1, None, None, 3), (0, 1, None, "a", 2), (3, 0, None, "b", 7)]
    assert (found.verdict, found.rows, found.missing, found.unexpected) == ("different", 2, 1, 4)
    assert verdict_line(found) == (
        "different at 6: the query has 2 rows, of which the view misses 1,"
        " and the view has 4 that the query has not"
    )
    # As it was before it is still right.
    assert views.verify(query, 5).verdict == "verified"


def test_of_many_differences_the_first_are_shown_and_all_are_counted(
    views: Views, monkeypatch: pytest.MonkeyPatch
):
    query = views.make("SELECT id FROM orders")
    extra = [(i,) for i in range(100, 160)]
    append(views.client, "v", extra, at=6, upper=7, schema=pa.schema([("id", pa.int64())]))
    append(views.client, "o", [], at=6, upper=7)
    asked = Verify("verify-1", "v", query.plan, {"o": "o"}, "v", 6, 6, limit=3)
    monkeypatch.setattr(verify, "MOST_SHOWN", 3)
    found = run_verify(views._spark, views.client, asked)
    assert rows(found) == [(1, 0, None, 100), (1, 0, None, 101), (1, 0, None, 102)]
    assert found.unexpected == 60
    assert verdict_line(found).endswith("; the first 3 are shown")


def test_a_view_in_error_is_right_if_its_query_fails_alike(views: Views):
    append(views.client, "o", [(0, "z", 1.0)], at=6, upper=7)
    query = views.make("SELECT 10 / id AS n FROM orders")
    found = views.verify(query)
    assert rows(found) == []
    assert found.verdict == "in error"
    assert verdict_line(found) == "verified at 6: the view is in error, and so is its query"
    # It has not heard of it, or not got over it, or it is another one.
    append(views.client, "o", [(0, "z", 1.0)], at=7, upper=8, diffs=[-1])
    one = pa.schema([("n", pa.int64())])
    append(views.client, "v", [], at=7, upper=8, schema=one)
    found = views.verify(query)
    said = "division by zero in (10 / id) where id = 0"
    assert rows(found) == [(1, 0, said, None)]
    assert (found.verdict, found.missing, found.unexpected) == ("different", 0, 1)
    append(views.client, "o", [(0, "z", 1.0)], at=8, upper=9)
    wrong = [said, "something else"]
    append(views.client, "v", [], at=8, upper=9, schema=one, diffs=[-1, 1], errors=wrong)
    found = views.verify(query)
    assert rows(found) == [(0, 1, "division by zero", None), (1, 0, "something else", None)]
    append(views.client, "v", [], at=9, upper=10, schema=one, diffs=[-1], errors=wrong[1:])
    append(views.client, "o", [], at=9, upper=10)
    found = views.verify(query)
    assert rows(found) == [(0, 1, "division by zero", None)]
    assert (found.verdict, found.missing, found.unexpected) == ("different", 1, 0)


def test_an_input_in_error(views: Views):
    query = views.make(BY_REGION)
    append(views.client, "o", [], at=6, upper=7, errors=["bad message"])
    append(views.client, "v", [], at=6, upper=7, schema=COUNTS)
    assert rows(views.verify(query)) == [(0, 1, "bad message", None, None)]
    append(views.client, "v", [], at=7, upper=8, schema=COUNTS, errors=["bad message"])
    append(views.client, "o", [], at=7, upper=8)
    assert views.verify(query).verdict == "in error"


def test_a_recursive_view(views: Views):
    sql = """WITH MUTUALLY RECURSIVE up (id bigint) AS (
        SELECT id FROM orders UNION SELECT id + 1 FROM up WHERE id < 9) SELECT id FROM up"""
    query = views.make(sql)
    found = views.verify(query)
    assert (found.verdict, found.rows) == ("verified", 9)
    append(views.client, "v", [(9,)], at=6, upper=7, schema=pa.schema([("id", pa.int64())]))
    append(views.client, "o", [], at=6, upper=7)
    assert rows(views.verify(query)) == [(2, 1, None, 9)]


def test_a_view_that_has_never_had_a_row_and_mz_now(views: Views):
    query = views.make("SELECT id FROM orders WHERE mz_now() > 100 + id")
    found = views.verify(query)
    assert (found.verdict, found.rows) == ("verified", 0)


def test_times_that_cannot_be_read(views: Views):
    query = views.make(BY_REGION)
    with pytest.raises(AsOfBeforeSince):
        views.verify(query, 2)
    client = views.client
    append(client, "late", [(1, "a", 1.0)], at=90, upper=91)
    client.open_critical_since("late", "test").downgrade(Frontier(90))
    with pytest.raises(AsOfBeforeSince, match="no time yet"):
        newest_readable(client, ["o", "late"])


def test_finished_inputs_are_verified_at_their_end(views: Views):
    client = views.client
    query = planned(client, BY_REGION, {"orders": "o"})
    client.open_writer("o", schema=ORDERS).advance_upper(Frontier.EMPTY)
    with views._maintained(BY_REGION) as view:
        view.run()
    client.open_writer("v", schema=COUNTS).advance_upper(Frontier.EMPTY)
    assert newest_readable(client, ["o", "v"]) == 5
    assert views.verify(query).verdict == "verified"


def test_a_view_of_many_rows(client: PersistClient, spark: SparkSession):
    """Nothing is patched here: this many go through Spark with full parallelism."""
    many = [(i, f"r{i % 7}", i / 3) for i in range(60_000)]
    append(client, "o", many, at=5, upper=6)
    append(client, "v", many[:-1], at=5, upper=6)
    query = planned(client, "SELECT id, region, amount FROM orders", {"orders": "o"})
    assert client.state("o").rows > frames.SMALL_ROWS
    found = run_verify(
        spark, client, Verify("verify-2", "v", query.plan, {"o": "o"}, "v", 5, 5, limit=10)
    )
    assert (found.verdict, found.rows, found.missing) == ("different", 60_000, 1)
    assert rows(found) == [(0, 1, None, *many[-1])]
