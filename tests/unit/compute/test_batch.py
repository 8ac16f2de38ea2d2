"""Every node of a plan as batch SQL, on Spark: small plans built by hand, and their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.compute.expr import Call, Col, Expr, Lit
from tidemark.compute.functions import call
from tidemark.compute.peek import run_peek
from tidemark.compute.plan import (
    Aggregate,
    Binding,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    Local,
    Negate,
    OrderBy,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
    distinct,
    except_all,
    intersect_all,
)
from tidemark.compute.protocol import Peek
from tidemark.errors import DataError
from tidemark.ipc import encode_table
from tidemark.persist import PersistClient
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    NUMERIC,
    TEXT,
    Column,
    SqlType,
    arrow_schema,
)

COLUMNS = (Column("k", INTEGER), Column("s", TEXT))
K, S = Col(0, INTEGER), Col(1, TEXT)
LEFT = Get("left", COLUMNS)
RIGHT = Get("right", COLUMNS)
ROWS = {
    "left": [(1, "a"), (1, "a"), (1, "b"), (2, None), (None, "c")],
    "right": [(1, "a"), (2, "x"), (2, "y"), (None, "c"), (3, "z")],
}
NOTHING = Constant((), COLUMNS)


class Asker:
    def __init__(self, spark: SparkSession, client: PersistClient):
        self._spark = spark
        self._client = client

    def __call__(self, plan: Plan, *, as_of: int = 7) -> list[tuple[Any, ...]]:
        given = {name: encode_table(_table(rows, COLUMNS)) for name, rows in ROWS.items()}
        found = run_peek(self._spark, self._client, Peek("p", plan, as_of, {}, given))
        assert found.num_columns == len(plan.columns)
        rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
        return sorted(rows, key=repr)


def _table(rows: list[tuple[Any, ...]], columns: tuple[Column, ...]) -> pa.Table:
    arrays = {c.name: [row[i] for row in rows] for i, c in enumerate(columns)}
    return pa.table(arrays, schema=arrow_schema(columns))


@pytest.fixture(scope="module")
def ask(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Asker:
    folder: Path = tmp_path_factory.mktemp("shards")
    client = PersistClient.open(
        blob=f"file://{folder / 'blob'}", consensus=f"sqlite://{folder / 'consensus.db'}"
    )
    return Asker(spark, client)


def lit(value: int | str | None, type_: SqlType = INTEGER) -> Lit:
    return Lit(None if value is None else str(value), type_)


def same(left: Expr, right: Expr) -> Expr:
    return call("=", (left, right))


def aggregate(fn: str, type_: SqlType, *args: Expr, **more: Any) -> Aggregate:
    return Aggregate(fn, args, type_, **more)


def sort(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def test_union_all_and_what_is_taken_away(ask: Asker):
    assert ask(Union((LEFT, RIGHT))) == sort(ROWS["left"] + ROWS["right"])
    assert ask(except_all(LEFT, RIGHT)) == sort([(1, "a"), (1, "b"), (2, None)])
    assert ask(intersect_all(LEFT, RIGHT)) == sort([(1, "a"), (None, "c")])
    assert ask(except_all(distinct(LEFT), distinct(RIGHT))) == sort([(1, "b"), (2, None)])


def test_signs_anywhere_in_a_union(ask: Asker):
    twice = Union((LEFT, LEFT, Negate(Union((RIGHT, Negate(NOTHING))))))
    assert ask(Threshold(twice)) == sort(
        [(1, "a")] * 3 + [(1, "b")] * 2 + [(2, None)] * 2 + [(None, "c")]
    )
    ones = Filter(Union((LEFT, Negate(distinct(LEFT)))), same(K, lit(1)))
    assert ask(Project(ones, (S,), ("s",))) == [("a",)]
    assert ask(Threshold(Threshold(LEFT))) == sort(ROWS["left"])


def test_outer_joins(ask: Asker):
    on = (same(K, Col(2, INTEGER)),)
    inner = [(1, "a", 1, "a")] * 2 + [(1, "b", 1, "a"), (2, None, 2, "x"), (2, None, 2, "y")]
    lone = (None, "c", None, None)
    assert ask(OuterJoin("left", LEFT, RIGHT, on)) == sort([*inner, lone])
    assert ask(OuterJoin("full", LEFT, RIGHT, on)) == sort(
        [*inner, lone, (None, None, None, "c"), (None, None, 3, "z")]
    )
    assert ask(OuterJoin("semi", LEFT, RIGHT, on)) == sort(ROWS["left"][:4])
    assert ask(OuterJoin("anti", LEFT, RIGHT, on)) == [(None, "c")]
    less = (call("<", (K, Col(2, INTEGER))), same(Col(3, TEXT), lit("z", TEXT)))
    assert ask(OuterJoin("full", LEFT, distinct(LEFT), less)) == sort(
        [(*row, None, None) for row in ROWS["left"]]
        + [(None, None, *row) for row in set(ROWS["left"])]
    )
    assert ask(OuterJoin("left", LEFT, NOTHING, ())) == sort(
        [(*row, None, None) for row in ROWS["left"]]
    )


def test_errors_only_where_evaluated(ask: Asker):
    quotient = call("/", (lit(1), call("-", (K, lit(1)))))
    with pytest.raises(DataError, match="division by zero"):
        ask(OuterJoin("left", LEFT, RIGHT, (same(quotient, Col(2, INTEGER)),)))
    guarded = Filter(LEFT, call("<>", (K, lit(1))))
    assert ask(Project(guarded, (quotient,), ("q",))) == [(1,)]
    one = aggregate("sum", BIGINT, quotient, filter=call("<>", (K, lit(1))))
    assert ask(Reduce(LEFT, (), (one,), ("sum",))) == [(1,)]


def test_generate_series(ask: Asker):
    def series(*args: Expr) -> Plan:
        return FlatMap(
            Project(LEFT, (K,), ("k",)), "generate_series", args, (Column("g", INTEGER),)
        )

    assert ask(series(K, lit(2), lit(1))) == sort([(1, 1), (1, 2)] * 3 + [(2, 2)])
    assert ask(series(lit(3), K, lit(-1))) == sort([(1, 3), (1, 2), (1, 1)] * 3 + [(2, 3), (2, 2)])
    assert ask(series(lit(3), K, lit(1))) == []


def test_aggregates(ask: Asker):
    found = Reduce(
        LEFT,
        (S,),
        (
            aggregate("count", BIGINT),
            aggregate("count", BIGINT, K, distinct=True),
            aggregate("sum", BIGINT, K),
            aggregate("sum", BIGINT, K, distinct=True),
            aggregate("avg", NUMERIC, K),
            aggregate("max", INTEGER, K),
            aggregate("bool_and", BOOLEAN, same(K, lit(1))),
            aggregate("bool_or", BOOLEAN, same(K, lit(1))),
            aggregate("count", BIGINT, filter=call("<>", (K, lit(2)))),
        ),
        tuple("abcdefghij"),
    )
    assert ask(found) == sort(
        [
            ("a", 2, 1, 2, 1, 1, 1, True, True, 2),
            ("b", 1, 1, 1, 1, 1, 1, True, True, 1),
            (None, 1, 1, 2, 2, 2, 2, False, False, 0),
            ("c", 1, 0, None, None, None, None, None, None, 0),
        ]
    )
    over_nothing = (aggregate("count", BIGINT), aggregate("sum", BIGINT, K))
    assert ask(Reduce(NOTHING, (), over_nothing, ("n", "s"))) == [(0, None)]


def test_top_k(ask: Asker):
    assert ask(TopK(LEFT, (), (OrderBy(0),), 2)) == [(1, "a"), (1, "a")]
    assert ask(TopK(LEFT, (), (OrderBy(0, descending=True),), 2)) == sort([(None, "c"), (2, None)])
    assert ask(TopK(LEFT, (0,), (OrderBy(1, descending=True),), 1)) == sort(
        [(1, "b"), (2, None), (None, "c")]
    )
    assert ask(TopK(LEFT, (0,), (), None, 2)) == [(1, "b")]


def test_windows(ask: Asker):
    def window(fn: str, type_: SqlType, *args: Expr, frame: str | None = None) -> list[Any]:
        made = WindowFunction(fn, args, type_, frame)
        plan = Window(LEFT, (), (OrderBy(0),), (made,), ("w",))
        order = {row: at for at, row in enumerate(ROWS["left"])}
        found = sorted(ask(plan), key=lambda row: (order[row[:2]], row[2]))
        return [row[2] for row in found]

    assert window("row_number", BIGINT) == [1, 2, 3, 4, 5]
    assert window("rank", BIGINT) == [1, 1, 1, 4, 5]
    assert window("dense_rank", BIGINT) == [1, 1, 1, 2, 3]
    assert window("cume_dist", DOUBLE) == [0.6, 0.6, 0.6, 0.8, 1.0]
    assert window("ntile", INTEGER, lit(2)) == [1, 1, 1, 2, 2]
    assert window("sum", BIGINT, K) == [3, 3, 3, 5, 5]
    assert window("sum", BIGINT, K, frame="ROWS UNBOUNDED PRECEDING") == [1, 2, 3, 5, 5]
    assert window("avg", NUMERIC, K) == [1, 1, 1, 1.25, 1.25]
    assert window("first_value", TEXT, S) == ["a"] * 5
    # Peers share their last one.
    assert [
        w or "-" for w in window("last_value", TEXT, call("coalesce", (S, lit("?", TEXT))))
    ] == (["b", "b", "b", "?", "c"])
    fifth = window("nth_value", TEXT, call("coalesce", (S, lit("?", TEXT))), lit(3))
    assert fifth == ["b"] * 5
    lagged = window("lag", TEXT, call("coalesce", (S, lit("?", TEXT))), lit(1), lit("!", TEXT))
    assert lagged == ["!", "a", "a", "b", "?"]


def test_let_is_read_twice_and_may_be_bound_again(ask: Asker):
    x = Local("x", COLUMNS)
    ones = Filter(LEFT, same(K, lit(1)))
    assert ask(Let("x", ones, Union((x, x)))) == sort(ROWS["left"][:3] * 2)
    again = Let("x", Filter(x, same(S, lit("b", TEXT))), x)
    assert ask(Let("x", ones, Union((x, again)))) == sort([*ROWS["left"][:3], (1, "b")])


def test_relations_without_columns(ask: Asker):
    none = Project(LEFT, (), ())
    assert ask(Reduce(none, (), (aggregate("count", BIGINT),), ("n",))) == [(5,)]
    crossed = Join((none, Project(RIGHT, (), ())), ())
    assert ask(Reduce(crossed, (), (aggregate("count", BIGINT),), ("n",))) == [(25,)]


def test_now_is_the_time_that_is_asked_about(ask: Asker):
    now = Call("mz_now", (), BIGINT)
    recent = Filter(LEFT, call("<", (call("+", (K, lit(5, BIGINT))), now)))
    assert ask(recent, as_of=7) == sort(ROWS["left"][:3])
    assert ask(recent, as_of=6) == []


PAIR = (Column("a", INTEGER), Column("b", INTEGER))
EDGES = Constant(tuple((lit(a), lit(b)) for a, b in ((1, 2), (2, 3), (3, 4), (4, 2))), PAIR)


def _reach(**more: Any) -> LetRec:
    reach = Local("reach", PAIR)
    joined = Join((reach, EDGES), (same(Col(1, INTEGER), Col(2, INTEGER)),))
    step = Project(joined, (Col(0, INTEGER), Col(3, INTEGER)), ("a", "b"))
    return LetRec((Binding("reach", PAIR, distinct(Union((EDGES, step)))),), reach, **more)


def test_recursion_ends_where_nothing_changes(ask: Asker):
    expected = [(a, b) for a in (1, 2, 3, 4) for b in (2, 3, 4)]
    assert ask(_reach()) == sort(expected)
    assert ask(_reach(limit=10)) == sort(expected)


def test_recursion_stops_at_its_limit(ask: Asker):
    with pytest.raises(DataError, match="recursion limit of 2 reached"):
        ask(_reach(limit=2))
    two = ask(_reach(limit=2, return_at_limit=True))
    assert two == sort([(1, 2), (2, 3), (3, 4), (4, 2), (1, 3), (2, 4), (3, 2), (4, 3)])


def test_bindings_see_the_newest_values_of_all(ask: Asker):
    one = (Column("n", INTEGER),)
    a, b = Local("a", one), Local("b", one)
    start = Constant(((lit(1),),), one)

    def next_of(plan: Plan) -> Plan:
        small = Filter(plan, call("<", (Col(0, INTEGER), lit(4))))
        return Project(small, (call("+", (Col(0, INTEGER), lit(1))),), ("n",))

    bindings = (
        Binding("a", one, distinct(Union((start, next_of(b))))),
        Binding("b", one, next_of(a)),
    )
    body = Union((a, Negate(b)))
    first = LetRec(bindings, Let("d", body, Local("d", one)), limit=1, return_at_limit=True)
    # After one round b has already seen the new a.
    assert ask(
        Project(LetRec(bindings, b, limit=1, return_at_limit=True), (Col(0, INTEGER),), ("n",))
    ) == [(2,)]
    assert ask(first) == [(1,)]
    assert ask(LetRec(bindings, Union((a, b)))) == sort([(1,), (3,), (2,), (4,)])


def test_recursion_beside_other_bindings(ask: Asker):
    """An outer binding is visible inside; a recursion within a recursion begins anew."""
    outer = Let("edges", EDGES, Filter(_reach(), same(Col(0, INTEGER), lit(1))))
    twice = Let("x", outer, Union((Local("x", PAIR), _reach())))
    assert len(ask(twice)) == 3 + 12
