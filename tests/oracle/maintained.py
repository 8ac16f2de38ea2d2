"""Views kept by the engine beside what Spark SQL says they should contain.

    history ──▶ shards ──▶ Dataflow ──▶ output shard ──▶ snapshot(t) ─┐
       └──▶ rows at t (Python) ──▶ temp views ──▶ spark.sql(text) ────┴─ equal, for every t

The oracle reads no shard and uses none of the engine's SQL. One Spark job answers for all times:
the rows of all times lie side by side, told apart by a column `_v` that is in every join and every
group. A query that has a row even over nothing is repeated per time instead.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from histories import History, Row, Table
from pyspark.sql import SparkSession
from queries import Query

from tidemark.compute import dataflow, extremes, peek, run
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.fragments import fragments_of
from tidemark.compute.peek import run_peek
from tidemark.compute.plan import Get, Plan, collections_of
from tidemark.compute.protocol import Peek
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.view import Flows
from tidemark.compute.view import View as Maintained
from tidemark.errors import SqlError
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, Appended, PersistClient
from tidemark.persist.updates import row_names
from tidemark.spark import frames
from tidemark.spark.frames import local_frame
from tidemark.spark.session import SMALL, session_for

Contents = Counter[Row]


class Died(Exception):
    """What the tests let a dataflow die of."""


class Catalog:
    """A resolver of a history's tables; collection ids and shard ids are their names."""

    def __init__(self, tables: dict[str, Table]):
        self._tables = tables

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        if parts[-1] not in self._tables:
            raise SqlError(f"no table {parts}", sqlstate="42P01")
        table = self._tables[parts[-1]]
        return Get(parts[-1], table.columns, table.keys)


def plan_of(history: History, sql: str) -> Plan:
    return plan_query(parse_query(sql), Catalog(history.tables), view=True)


class Inputs:
    """A history's tables in shards, appended step by step."""

    def __init__(self, client: PersistClient, history: History):
        self._client = client
        self._history = history
        self._writers = {
            name: client.open_writer(name, schema=table.row_schema)
            for name, table in history.tables.items()
        }
        self._reached = dict.fromkeys(history.tables, 0)

    def load(self) -> None:
        """Everything up to `as_of`, in two batches."""
        upper = self._history.as_of + 1
        for until in sorted({max(upper // 2, 1), upper}):
            self.advance(dict.fromkeys(self._reached, until))

    def advance(self, step: dict[str, int]) -> None:
        for name, upper in step.items():
            lower = self._reached[name]
            if lower < upper:
                updates = self._history.tables[name].between(lower, upper)
                outcome = self._writers[name].compare_and_append(
                    updates, lower=Frontier(lower), upper=Frontier(upper)
                )
                assert outcome == Appended(Frontier(upper))
                self._reached[name] = upper


class View:
    """One view: what keeps it, and what it should contain at each time."""

    def __init__(
        self,
        id_: str,
        query: Query,
        history: History,
        *,
        client: PersistClient,
        spark: SparkSession,
        folder: Path,
        hold: bool = True,
    ):
        self.id = id_
        self.query = query
        self.history = history
        self.output = f"{id_}-out"
        self.plan = plan_of(history, query.ours)
        fragments_of(self.plan)  # Refuses what cannot be maintained.
        self.inputs = {name: name for name in collections_of(self.plan)}
        self._client = client
        self._spark = spark
        self._folder = folder
        self.flow: Maintained | None = None
        self.checked = history.as_of
        if hold:
            client.open_critical_since(self.output, "test").downgrade(Frontier.MIN)
        self.expected: dict[int, Contents] = {}

    def ask_oracle(self) -> None:
        times = range(self.history.as_of, self.history.end)
        self.expected = oracle(self._spark, self.history, self.query, times)

    def dataflow(self) -> Maintained:
        """A new dataflow with no memory of another, as a process makes it."""
        arrangements = Arrangements(self._client, self._folder / uuid4().hex)
        return Maintained(
            self.id,
            self.plan,
            inputs=self.inputs,
            output=self.output,
            as_of=self.history.as_of,
            flows=Flows(self._client, self._spark, arrangements),
        )

    def start(self) -> Maintained:
        self.flow = self.dataflow()
        self.flow.start()
        return self.flow

    def tick(self) -> None:
        assert self.flow is not None
        upper = self.flow.input_upper()
        while self.flow.lower < upper:
            self.flow.tick(upper)

    def check(self) -> None:
        """Compare every time that became readable since the last check."""
        upper = self._client.open_reader(self.output).upper.time
        assert upper is not None
        for time in range(self.checked, upper):
            self.compare(time)
        self.checked = upper

    def compare(self, time: int) -> None:
        found = contents(self._client, self.output, time)
        assert found == self.expected[time], self.explain(
            f"at time {time}",
            f"too much: {found - self.expected[time]}",
            f"missing:  {self.expected[time] - found}",
        )

    def check_peek(self) -> None:
        """The engine's own batch query over the shards agrees too, at the last time."""
        time = self.history.end - 1
        peek = Peek(f"peek-{self.id}", self.plan, time, self.inputs, {})
        found = counted(run_peek(self._spark, self._client, peek))
        assert found == self.expected[time], self.explain(
            f"peek at time {time}",
            f"too much: {found - self.expected[time]}",
            f"missing:  {self.expected[time] - found}",
        )

    def explain(self, *lines: str) -> str:
        tables = [f"{t.name}: {t.columns} {t.updates}" for t in self.history.tables.values()]
        about = [f"seed {self.history.seed}, view {self.id}", self.query.ours, self.query.spark]
        return "\n".join([*about, *lines, *tables])

    @property
    def shards(self) -> tuple[str, ...]:
        """All that the view reads and writes."""
        assert self.flow is not None
        written = (shard for flow in self.flow.dataflows for shard in flow.shards)
        return (*self.inputs.values(), *written)


def die_after(view: Maintained, which: int, appends: int) -> None:
    """Have the next flush of one of the view's dataflows write only that many of its shards."""
    flow = view.dataflows[which]
    flush = list(reversed(flow._sinks.values()))[:appends]

    def dying() -> None:
        for sink in flush:
            sink.flush()
        raise Died

    flow._flush = dying  # pyright: ignore[reportAttributeAccessIssue]


def oracle(
    spark: SparkSession, history: History, query: Query, times: Iterable[int]
) -> dict[int, Contents]:
    """What plain Spark SQL makes of the tables' rows at each time."""
    used = [t for t in history.tables.values() if re.search(rf"\b{t.name}\b", query.spark)]
    # Times at which all tables are the same need only one answer.
    states = {time: tuple(frozenset(t.rows(time).items()) for t in used) for time in times}
    first = {state: time for time, state in reversed(states.items())}
    session = session_for(spark, SMALL)
    versions = sorted(first.values())
    for table in used:
        local_frame(session, _versions(table, versions)).createOrReplaceTempView(table.name)
    found = session.sql(query.versioned or _one_by_one(used, query.spark, versions)).toArrow()
    results: dict[int, Contents] = {version: Counter() for version in versions}
    rows = _rows(found.drop_columns(["_v"]))
    for version, row in zip(found["_v"].to_pylist(), rows, strict=True):
        results[version][row] += 1
    return {time: results[first[state]] for time, state in states.items()}


def _one_by_one(tables: list[Table], sql: str, versions: list[int]) -> str:
    """The query as it is, over the tables as they are at one time; and over, for each time."""
    parts = []
    for version in versions:
        withs = ", ".join(
            f"{table.name} AS (SELECT {', '.join(column.name for column in table.columns)}"
            f" FROM {table.name} WHERE _v = {version})"
            for table in tables
        )
        parts.append(f"SELECT {version} AS _v, q.* FROM (WITH {withs} {sql}) q")
    return " UNION ALL ".join(parts)


def _versions(table: Table, times: list[int]) -> pa.Table:
    rows = [(time, *row) for time in times for row in table.rows(time).elements()]
    schema = pa.schema([pa.field("_v", pa.int32()), *table.row_schema])
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def contents(client: PersistClient, shard_id: str, time: int) -> Contents:
    """A shard's rows at `time`, each with its count; errors as rows of their message."""
    table = client.open_reader(shard_id).snapshot(time)
    found: Contents = Counter()
    rows = _rows(table.select(row_names(table.schema)))
    for row, diff, error in zip(rows, table[DIFF].to_pylist(), table[ERR].to_pylist(), strict=True):
        found[row if error is None else ("error", error)] += diff
    return found


def counted(table: pa.Table) -> Contents:
    return Counter(_rows(table))


def _rows(table: pa.Table) -> list[Row]:
    columns = [[normal(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def normal(value: Any) -> Any:
    """A value in a form in which ours and Spark's compare: see the list in `queries.py`."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | Decimal):
        return round(Decimal(value), 6).normalize() + 0
    if isinstance(value, float):
        return float(f"{value:.9g}") + 0.0
    if isinstance(value, list | tuple):
        return tuple(map(normal, value))
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    return value


def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change counts as large, and every snapshot."""
    monkeypatch.setattr(dataflow, "LARGE_ROWS", -1)
    monkeypatch.setattr(run, "SMALL_CHANGE", -1)
    monkeypatch.setattr(extremes, "MANY", 0)
    monkeypatch.setattr(extremes, "FEW", 1)
    monkeypatch.setattr(frames, "SMALL_ROWS", -1)
    monkeypatch.setattr(peek, "SMALL_ROWS", -1)
