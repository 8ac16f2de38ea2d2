"""One query over one history, here and in PostgreSQL: where do they differ?

    planned      the plan's types alone, of many queries                  (planner)
    batch        the plan as one Spark query, at a few times at once      (planner, batch SQL)
    maintained   the view kept by the engine, at every time               (the delta engine too)

Where the maintained view is wrong and batch is right, the engine is; where both are, the planner.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec
import postgres
import pyarrow as pa
from histories import History, Table
from maintained import Contents, Inputs, View, contents, counted, normal, plan_of
from pyspark.sql import SparkSession
from queries import Query

from tidemark.compute.batch import batch_sql
from tidemark.compute.expr import Col, Lit
from tidemark.compute.peek import run_peek
from tidemark.compute.plan import Get, Plan, Project, Union, inputs_of, with_inputs
from tidemark.compute.protocol import Peek
from tidemark.errors import DataError
from tidemark.ipc import encode_table
from tidemark.persist import PersistClient
from tidemark.types import INTEGER


class Skipped(Exception):
    """The query cannot be compared: one side does not take it."""


class Difference(NamedTuple):
    time: int
    what: str


class Bench(NamedTuple):
    """What a check needs: Spark, PostgreSQL, and a folder for shards."""

    spark: SparkSession
    postgres: str
    folder: Path

    def client(self) -> PersistClient:
        folder = self.folder / uuid4().hex
        folder.mkdir(parents=True)
        return PersistClient.open(
            blob=f"file://{folder / 'blob'}", consensus=f"sqlite://{folder / 'consensus.db'}"
        )


def batch_difference(
    bench: Bench,
    history: History,
    sql: str,
    *,
    times: Iterable[int] | None = None,
    ours: str | None = None,
) -> Difference | None:
    """The first of a few times at which a peek and PostgreSQL disagree; by types at any.

    `ours` is the query in our language where that is not PostgreSQL's.
    """
    with postgres.tables_of(bench.postgres, history) as tables:
        chosen = list(times) if times is not None else some_times(history, tables)
        expected = {time: tables.ask(sql, time) for time in chosen}
    plan = plan_of(history, ours or sql)
    if problem := _types_differ(plan, expected.values()):
        return Difference(chosen[0], problem)
    found = _peeks(bench, history, plan, chosen)
    for time in chosen:
        if problem := _differ(found[time], expected[time]):
            return Difference(time, problem)
    return None


def planned_difference(bench: Bench, history: History, sql: str) -> Difference | None:
    """Whether the query is planned and written as Spark SQL, with PostgreSQL's types: no Spark."""
    time = history.end - 1
    with postgres.tables_of(bench.postgres, history) as tables:
        expected = tables.ask(sql, time)
    plan = plan_of(history, sql)
    batch_sql(plan, lambda get: get.id)
    problem = _types_differ(plan, [expected])
    return Difference(time, problem) if problem else None


def maintained_difference(bench: Bench, history: History, sql: str) -> Difference | None:
    """The first time at which the view that is kept and PostgreSQL disagree."""
    with postgres.tables_of(bench.postgres, history) as tables:
        expected = tables.all(sql, range(history.as_of, history.end))
    client = bench.client()
    try:
        view = View(
            "v", Query(sql, sql), history, client=client, spark=bench.spark, folder=bench.folder
        )
        inputs = Inputs(client, history)
        inputs.load()
        flow = view.start()
        try:
            checked = history.as_of
            for step in ({}, *history.steps):
                inputs.advance(step)
                view.tick()
                upper = client.open_reader(view.output).upper.time
                assert upper is not None
                for time in range(checked, upper):
                    found = _with_arrays(contents(client, view.output, time), view.plan)
                    if problem := _differ(found, expected[time]):
                        return Difference(time, problem)
                checked = upper
        finally:
            flow.stop()
    finally:
        client.close()
    return None


def some_times(history: History, tables: postgres.Tables) -> list[int]:
    """The last state, and another."""
    times = sorted(set(tables.first.values()))
    rng = random.Random(f"times {history.seed}")
    return sorted({times[-1], *rng.sample(times, min(1, len(times)))})


def _types_differ(plan: Plan, answers: Iterable[postgres.Answer]) -> str | None:
    ours = tuple(column.type.oid for column in plan.columns)
    for answer in answers:
        if answer.error is None and answer.oids != ours:
            types = [str(column.type) for column in plan.columns]
            return f"types: {types} here, {answer.oids} there"
    return None


def _differ(found: Contents | None, expected: postgres.Answer) -> str | None:
    """None for `found` is an error, as is a row of an error."""
    failed = found is None or any(row[:1] == ("error",) for row in found)
    if failed or expected.error is not None:
        if failed and expected.error is not None:
            return None
        return f"here: {found}, there: {expected.error or expected.rows}"
    assert found is not None
    if found == expected.rows:
        return None
    return f"too much: {dict(found - expected.rows)}, missing: {dict(expected.rows - found)}"


def _peeks(
    bench: Bench, history: History, plan: Plan, times: list[int]
) -> dict[int, Contents | None]:
    """The query at each time, in one go if nothing fails; None where it fails."""
    try:
        return _peek(bench, history, plan, times)
    except DataError:
        if len(times) == 1:
            return {times[0]: None}
    return {time: _peeks(bench, history, plan, [time])[time] for time in times}


def _peek(
    bench: Bench, history: History, plan: Plan, times: list[int]
) -> dict[int, Contents | None]:
    client = bench.client()
    given: dict[str, bytes] = {}
    try:
        branches = tuple(_at(plan, history, time, given) for time in times)
        peek = Peek("fuzz", Union(branches), history.end, {}, given)
        table = run_peek(bench.spark, client, peek)
    finally:
        client.close()
    found: dict[int, Contents | None] = {time: Counter() for time in times}
    for row, count in _with_arrays(counted(table), plan).items():
        at = found[int(row[-1])]
        assert at is not None
        at[row[:-1]] += count
    return found


def _with_arrays(rows: Contents, plan: Plan) -> Contents:
    """Arrays are kept as the JSON of their elements' texts."""
    elements = {i: c.type.element for i, c in enumerate(plan.columns) if c.type.element}
    if not elements:
        return rows
    found: Contents = Counter()
    for row, count in rows.items():
        cells = list(row)
        for at, type_ in elements.items() if len(row) >= len(plan.columns) else ():
            if cells[at] != normal(None):
                texts = json.loads(cells[at])
                cells[at] = tuple(normal(_element(text, type_.is_number)) for text in texts)
        found[tuple(cells)] += count
    return found


def _element(text: str | None, is_number: bool) -> Decimal | str | None:
    return Decimal(text) if is_number and text is not None else text


def _at(plan: Plan, history: History, time: int, given: dict[str, bytes]) -> Plan:
    """The plan over the tables as they are at `time`, with the time behind its columns."""

    def moved(node: Plan) -> Plan:
        if isinstance(node, Get):
            name = f"{node.id}@{time}"
            if name not in given:
                given[name] = encode_table(_rows(history.tables[node.id], time))
            return msgspec.structs.replace(node, id=name)
        return with_inputs(node, tuple(moved(input_) for input_ in inputs_of(node)))

    columns = tuple(Col(i, column.type) for i, column in enumerate(plan.columns))
    names = tuple(column.name for column in plan.columns)
    return Project(moved(plan), (*columns, Lit(str(time), INTEGER)), (*names, "_time"))


def _rows(table: Table, time: int) -> pa.Table:
    rows = list(table.rows(time).elements())
    arrays = {c.name: [row[at] for row in rows] for at, c in enumerate(table.columns)}
    return pa.table(arrays, schema=table.row_schema)
