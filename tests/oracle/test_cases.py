"""Chosen cases: dying extremes, errors as data, replicas that race, a shard that someone spoiled."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from histories import MONEY, History, Table, Update
from maintained import Contents, Died, Inputs, View, contents, die_after
from pyspark.sql import SparkSession
from queries import Query

from tidemark.compute import dataflow
from tidemark.compute.peek import run_peek
from tidemark.compute.protocol import Peek
from tidemark.compute.view import keeping
from tidemark.errors import AsOfBeforeSince, DataError
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, Appended, PersistClient
from tidemark.persist.updates import updates_schema
from tidemark.types import BIGINT, DOUBLE, INTEGER, TEXT, Column

Make = Callable[..., View]

TABLE = (Column("k", INTEGER), Column("v", INTEGER), Column("s", TEXT))


@pytest.fixture
def make(client: PersistClient, spark: SparkSession, tmp_path: Path) -> Make:
    """A view of one's own text; Spark's is the same unless given."""

    def made(history: History, sql: str, *, spark_sql: str | None = None, id_: str = "v") -> View:
        query = Query(sql, spark_sql or sql)
        return View(id_, query, history, client=client, spark=spark, folder=tmp_path)

    return made


def history_of(*tables: Table, as_of: int, uppers: list[int]) -> History:
    steps = tuple({table.name: upper for table in tables} for upper in uppers)
    return History(0, {table.name: table for table in tables}, as_of, steps)


def follow(inputs: Inputs, view: View) -> None:
    """Start, and compare after every step."""
    inputs.load()
    view.start()
    view.check()
    for step in view.history.steps:
        inputs.advance(step)
        view.tick()
        view.check()


def test_every_extreme_dies(client: PersistClient, make: Make) -> None:
    """Each time takes the greatest and the least of every group, till all are gone; then again."""
    rng = random.Random(5)
    updates, time = [], 0
    for _ in range(2):
        live: dict[int, list[int]] = {}
        for key in range(3):
            # Groups of different depth, with repeated values and a value in several copies.
            live[key] = sorted(rng.choices(range(50), k=5 + 4 * key))
            updates += [Update((key, value, None), time, 1) for value in live[key]]
            updates.append(Update((key, None, None), time, 2))
        while any(live.values()):
            time += 1
            for key, values in live.items():
                for end in (-1, 0) if values else ():
                    if values:
                        updates.append(Update((key, values.pop(end), None), time, -1))
        time += 1
        updates += [Update((key, None, None), time, -2) for key in live]
        time += 2
    table = Table("t", TABLE, tuple(updates))
    history = history_of(table, as_of=0, uppers=[2, 3, 4, 8, 9, 14, 15, 19, time + 1])
    sql = "SELECT k, min(v) AS lo, max(v) AS hi, count(v) AS n FROM t GROUP BY k"
    view = make(history, sql)
    view.ask_oracle()
    follow(Inputs(client, history), view)
    assert view.expected[history.end - 1] == Counter()


def test_global_aggregates_over_nothing(client: PersistClient, make: Make) -> None:
    """One row before anything ever came, and one again after all has gone."""
    row, other = (1, 7, "a"), (2, None, "b")
    updates = (Update(row, 3, 2), Update(other, 5, 1), Update(row, 6, -2), Update(other, 9, -1))
    history = history_of(Table("t", TABLE, updates), as_of=1, uppers=[3, 4, 7, 8, 12])
    sql = "SELECT count(*) AS n, count(v) AS nv, sum(v) AS s, min(s) AS lo, max(v) AS hi FROM t"
    view = make(history, sql)
    view.ask_oracle()
    assert len(view.expected[history.end - 1]) == 1
    follow(Inputs(client, history), view)


def test_sums_of_doubles_forget_what_is_gone(client: PersistClient, make: Make) -> None:
    """Large beside small, infinities and NaN come and go, and leave nothing behind.

    The values are sums of few powers of two, so that plain Spark's sums are exact in any order."""
    inf, nan = float("inf"), float("nan")
    values = (0.5, -2.25, 2.0**-20, 2.0**31, -(2.0**32), 0.0, None, inf, -inf, nan)
    seed = 11
    rng = random.Random(seed)
    live: list[tuple[int, float | None]] = []
    updates: list[Update] = []
    for time in range(30):
        for _ in range(rng.randrange(4)):
            if live and rng.random() < 0.6:
                updates.append(Update(live.pop(rng.randrange(len(live))), time, -1))
            else:
                live.append((rng.randrange(2), rng.choice(values)))
                updates.append(Update(live[-1], time, 1))
    updates += [Update(row, 31, -1) for row in live]
    table = Table("t", (Column("k", INTEGER), Column("x", DOUBLE)), tuple(updates))
    history = history_of(table, as_of=1, uppers=[4, 5, 11, 12, 19, 27, 33])
    nan_of = {"ours": "'NaN'", "spark": "double('NaN')"}
    text = (
        "SELECT k, nullif(sum(x), {nan}) AS s, sum(x) = {nan} AS n, nullif(avg(x), {nan}) AS a"
        " FROM t GROUP BY k"
    )
    ours, spark_sql = (text.format(nan=nan_of[which]) for which in ("ours", "spark"))
    view = make(history, ours, spark_sql=spark_sql)
    view.ask_oracle()
    follow(Inputs(client, history), view)
    view.check_peek()


@pytest.mark.parametrize(
    "on", ["a.k = b.k AND b.k = a.k", "a.k = b.k AND a.k = b.v", "a.k = b.v AND a.v = b.v"]
)
def test_one_column_in_several_equalities(on: str, client: PersistClient, make: Make) -> None:
    """The probe's key names a column twice, on one side or on both."""
    rows = ((1, 1, "a"), (1, 2, "b"), (2, 2, "c"), (None, 1, "d"))
    updates = [Update(row, time, 1 + time % 2) for time, row in enumerate(rows)]
    updates += [Update(rows[0], 5, -1), Update(rows[2], 6, -1)]
    history = history_of(Table("t", TABLE, tuple(updates)), as_of=0, uppers=[2, 4, 9])
    view = make(history, f"SELECT a.s AS x, b.s AS y FROM t a JOIN t b ON {on}")
    view.ask_oracle()
    follow(Inputs(client, history), view)


# Errors are data ---------------------------------------------------------------------------------

ERRORS = {
    "projection": "SELECT k, 10 / v AS q FROM t",
    "predicate": "SELECT k FROM t WHERE 10 / v > 1",
    "group key": "SELECT 10 / v AS q, count(*) AS n FROM t GROUP BY 10 / v",
    "argument": "SELECT k, sum(10 / v) AS q FROM t GROUP BY k",
    "extreme": "SELECT k, max(10 / v) AS q FROM t GROUP BY k",
    "over an aggregate": "SELECT k, 10 / sum(v) AS q FROM t GROUP BY k",
    "having": "SELECT k, count(*) AS n FROM t GROUP BY k HAVING 10 / sum(v) > 1",
    "join": "SELECT a.k AS k, 10 / b.v AS q FROM t a JOIN t b ON a.k = b.k",
}


@pytest.mark.parametrize("where", sorted(ERRORS))
def test_an_error_comes_and_goes(
    where: str, client: PersistClient, spark: SparkSession, make: Make
) -> None:
    """While the bad row is there the view has an error row, and reads of it fail; not longer."""
    good, bad = (1, 5, "a"), (2, 0, "b")
    # The bad row: there from 3 to 4, twice from 7 on, once less at 9, gone at 10.
    updates = (
        Update(good, 0, 1),
        *(Update(bad, time, diff) for time, diff in ((3, 1), (5, -1), (7, 2), (9, -1), (10, -1))),
    )
    history = history_of(Table("t", TABLE, updates), as_of=0, uppers=[2, 4, 6, 8, 9, 12])
    view = make(history, ERRORS[where])
    inputs = Inputs(client, history)
    client.open_critical_since("t", "test").downgrade(Frontier.MIN)
    inputs.load()
    view.start()
    for at, step in enumerate(history.steps):
        inputs.advance(step)
        if at % 2:
            view.start()
        view.tick()
    healthy = contents(client, view.output, 0)
    assert healthy
    for time in range(history.end):
        found = contents(client, view.output, time)
        failing = time in (3, 4, 7, 8, 9)
        errors = [row[1] for row in found if row[:1] == ("error",)]
        assert bool(errors) == failing, (where, time, found)
        # It says of which row, or of which group.
        assert all(re.match(r"division by zero in .* where [vk] = ", e) for e in errors), errors
        assert +_good(found) == healthy, (where, time, found)
        assert min(found.values()) >= 0, (where, time, found)
        peek = Peek("p", view.plan, time, view.inputs, {})
        if failing:
            with pytest.raises(DataError, match="division by zero"):
                run_peek(spark, client, peek)


def _good(found: Contents) -> Contents:
    return Counter({row: count for row, count in found.items() if row[:1] != ("error",)})


def test_what_is_filtered_out_does_not_fail(client: PersistClient, make: Make) -> None:
    """WHERE comes before the select list, HAVING before what is computed from groups."""
    rows = ((1, 5, "a"), (2, 0, "b"), (3, None, "c"))
    updates = tuple(Update(row, time, 1) for time, row in enumerate(rows))
    history = history_of(Table("t", TABLE, updates), as_of=0, uppers=[2, 5])
    inputs = Inputs(client, history)
    texts = (
        "SELECT k, 10 / v AS q FROM t WHERE v <> 0",
        "SELECT k, 10 / sum(v) AS q FROM t GROUP BY k HAVING sum(v) <> 0",
        "SELECT k, count(*) AS n FROM t GROUP BY k HAVING sum(v) <> 0 AND 10 / sum(v) > 1",
        "SELECT k, CASE WHEN v = 0 THEN -1 ELSE 10 / v END AS q FROM t WHERE v IS NOT NULL",
    )
    inputs.load()
    views = [make(history, sql, id_=f"v{at}") for at, sql in enumerate(texts)]
    for view in views:
        view.start()
    for step in history.steps:
        inputs.advance(step)
        for view in views:
            view.tick()
    for view in views:
        for time in range(history.end):
            found = contents(client, view.output, time)
            assert found == _good(found), (view.query.ours, time, found)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k FROM t WHERE v > 1",
        "SELECT count(*) AS n FROM t",
        "SELECT a.k AS k FROM t a JOIN t b ON a.k = b.k",
    ],
)
def test_errors_of_an_input_pass_on(sql: str, client: PersistClient, make: Make) -> None:
    """An input's error rows become the view's, whatever it selects: none is lost, none doubled."""
    history = history_of(Table("t", TABLE, (Update((1, 5, "a"), 0, 1),)), as_of=0, uppers=[9])
    view = make(history, sql)
    writer = client.open_writer("t", schema=history.tables["t"].row_schema)
    schema = writer.schema
    good = history.tables["t"].between(0, 1)
    assert isinstance(
        writer.compare_and_append(good, lower=Frontier(0), upper=Frontier(1)), Appended
    )
    errors = pa.table(
        {
            **{column.name: pa.nulls(3, column.type.arrow) for column in TABLE},
            TIME: [2, 4, 6],
            DIFF: [2, -1, -1],
            ERR: ["boom"] * 3,
        },
        schema=schema,
    )
    view.start()
    for lower, upper in ((1, 3), (3, 5), (5, 9)):
        within = errors.filter(
            pa.array([lower <= time < upper for time in errors[TIME].to_pylist()])
        )
        writer.compare_and_append(within, lower=Frontier(lower), upper=Frontier(upper))
        if lower == 3:
            view.start()
        view.tick()
    counts = [contents(client, view.output, time)[("error", "boom")] for time in range(9)]
    assert counts == [0, 0, 2, 2, 1, 1, 0, 0, 0]
    # A dataflow that begins while the error is there finds it in the snapshot.
    late = make(history_of(history.tables["t"], as_of=4, uppers=[9]), sql, id_="late")
    late.start()
    assert contents(client, late.output, 4)[("error", "boom")] == 1


# Replicas ----------------------------------------------------------------------------------------

SALES = (Column("k", INTEGER), Column("g", TEXT), Column("n", BIGINT), Column("m", MONEY))
TOTALS = (
    "SELECT b.g AS g, count(*) AS n, sum(a.n) AS total, max(a.m) AS hi, min(a.k) AS lo"
    " FROM sales a JOIN sales b ON a.k = b.k GROUP BY b.g"
)


def sales(seed: int, *, steps: int) -> History:
    rng = random.Random(seed)
    updates: list[Update] = []
    live: list[tuple] = []
    for time in range(1 + 2 * steps):
        for _ in range(3):
            row = (rng.randrange(3), rng.choice("xyz"), rng.randrange(9), None)
            live.append(row)
            updates.append(Update(row, time, 1))
        for _ in range(rng.choice((0, 2, 3))):
            updates.append(Update(live.pop(rng.randrange(len(live))), time, -1))
    uppers = [1 + 2 * (at + 1) for at in range(steps)]
    return history_of(Table("sales", SALES, tuple(updates)), as_of=0, uppers=uppers)


def test_replicas_take_turns(
    client: PersistClient, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two dataflows on the same shards: now one is ahead, now the other, now both at once."""
    # Replicas share their hold: moved by one, it would take away what the other reads next.
    monkeypatch.setattr(dataflow, "HOLD_EVERY_MS", 10**9)
    history = sales(7, steps=6)
    view = make(history, TOTALS)
    view.ask_oracle()
    inputs = Inputs(client, history)
    inputs.load()
    one, two = view.dataflow(), view.dataflow()
    one.start()
    two.start()
    view.check()
    for at, step in enumerate(history.steps):
        inputs.advance(step)
        first, second = (one, two) if at % 2 else (two, one)
        if at % 3 == 2:
            # The second gets its turn when the first has computed, but not yet written.
            last = first.dataflows[-1]
            flush = type(last)._flush

            def in_between(last=last, second=second, flush=flush) -> None:
                second.tick(second.input_upper())
                flush(last)

            last._flush = in_between
            first.tick(first.input_upper())
            del last._flush
        elif at % 3 == 1:
            first.tick(first.input_upper())  # The second stays behind.
        else:
            first.tick(first.input_upper())
            second.tick(second.input_upper())
        view.check()
    two.tick(two.input_upper())
    one.tick(one.input_upper())
    assert one.lower == two.lower == Frontier(history.end)
    view.checked = history.as_of
    view.check()


def test_replicas_race(client: PersistClient, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that run as fast as they can; a replica whose history was compacted away by the
    other's progress begins again, as a worker does."""
    monkeypatch.setattr(dataflow, "HOLD_EVERY_MS", 0)
    history = sales(8, steps=5)
    view = make(history, TOTALS)
    view.ask_oracle()
    inputs = Inputs(client, history)
    inputs.load()
    failures: list[BaseException] = []
    advanced = threading.Barrier(3, timeout=120)

    def replica() -> None:
        try:
            flow = view.dataflow()
            flow.start()
            for _ in history.steps:
                advanced.wait()
                upper = flow.input_upper()
                while flow.lower < upper:
                    try:
                        flow.tick(upper)
                    except AsOfBeforeSince:
                        flow = view.dataflow()
                        flow.start()
        except BaseException as error:
            failures.append(error)
            advanced.abort()

    threads = [threading.Thread(target=replica) for _ in range(2)]
    for thread in threads:
        thread.start()
    for step in history.steps:
        inputs.advance(step)
        advanced.wait()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert client.open_reader(view.output).upper == Frontier(history.end)
    view.check()


@pytest.mark.parametrize("appends", [0, 1, 2, 3])
def test_dying_while_hydrating(appends: int, client: PersistClient, make: Make) -> None:
    """A first start that wrote only some of its shards; more came before the next."""
    history = sales(10, steps=2)
    view = make(history, TOTALS)
    view.ask_oracle()
    inputs = Inputs(client, history)
    inputs.load()
    flow = view.dataflow()
    assert len(flow.dataflows[0].shards) == 4
    die_after(flow, 0, appends)
    with pytest.raises(Died):
        flow.start()
    inputs.advance(history.steps[0])
    view.start()
    view.tick()
    view.check()
    inputs.advance(history.steps[1])
    view.tick()
    view.check()


# A spoiled shard ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [TOTALS, "SELECT g, n FROM sales WHERE k > 0"])
def test_a_spoiled_output_is_corrected_from_scratch(
    sql: str, client: PersistClient, spark: SparkSession, tmp_path: Path, make: Make
) -> None:
    """Sink.start: at the minimum nothing is agreed upon, what is not desired is retracted.

    A dataflow that resumes trusts what was written before its lower. One that begins from scratch
    compares all; times that are already complete stay as they were read, later ones are right.
    """
    history = sales(9, steps=4)
    view = make(history, sql)
    view.ask_oracle()
    inputs = Inputs(client, history)
    inputs.load()
    view.start()
    inputs.advance(history.steps[0])
    view.tick()
    view.check()
    spoiled = view.checked
    columns = view.plan.columns
    schema = pa.schema([pa.field(column.name, column.type.arrow) for column in columns])
    wrong = pa.table(
        {
            **{column.name: pa.nulls(2, column.type.arrow) for column in columns},
            TIME: [spoiled, spoiled],
            DIFF: [3, 1],
            ERR: [None, "nonsense"],
        },
        schema=updates_schema(schema),
    )
    writer = client.open_writer(view.output, schema=schema)
    outcome = writer.compare_and_append(wrong, lower=Frontier(spoiled), upper=Frontier(spoiled + 1))
    assert isinstance(outcome, Appended)
    inputs.advance(history.steps[1])
    # The running dataflow loses its append, reads the stranger's rows back and takes them out.
    view.tick()
    assert contents(client, view.output, spoiled) != view.expected[spoiled]
    view.checked = spoiled + 1
    view.check()

    # Spoiled again, behind the back of a dataflow that is not running.
    spoiled = view.checked
    inputs.advance(history.steps[2])
    wrong = wrong.set_column(
        wrong.column_names.index(TIME), TIME, pa.array([spoiled, spoiled], pa.int64())
    )
    writer.compare_and_append(wrong, lower=Frontier(spoiled), upper=Frontier(spoiled + 1))
    if not keeping(view.id, view.plan, {}, client).shards:
        return  # Its output is all that it could resume from: it has no scratch to begin from.
    again = make(history, sql, id_="afresh")
    again.output, again.expected = view.output, view.expected
    again.start()
    again.tick()
    again.checked = spoiled + 1
    again.check()
    inputs.advance(history.steps[3])
    again.tick()
    again.check()
