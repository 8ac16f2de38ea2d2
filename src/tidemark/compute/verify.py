"""VERIFY: is a view what its query says? Plain Spark SQL decides, over snapshots at one time.

    view's shard at t    rows, each with its count  ─┐
                                                     ├─ group by all columns: counts that differ
    inputs at t ──▶ batch_sql ──▶ each row once     ─┘

Nothing of the engine that maintains views takes part: the query is the text of a one-off SELECT,
and the view is what is stored. Nulls are equal here, and so are NaN, and 0.0 and -0.0, as in any
GROUP BY.

Errors are data, too. A view that holds error rows is right if its query fails with one of their
messages (Spark fails with whichever it meets first, and does not say for which row); any other
combination is a difference.

The totals are one Spark job. Only if there is a difference a second one fetches the first of its
rows; nothing is collected that grows with the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.compute.batch import batch_sql
from tidemark.compute.batch_text import names_of
from tidemark.compute.peek import at_time, data_error, explained
from tidemark.compute.plan import Get, Plan, inputs_of
from tidemark.compute.protocol import Finding, Verified, Verify
from tidemark.compute.recursion import Recursion, is_recursive
from tidemark.errors import AsOfBeforeSince, DataError
from tidemark.ipc import decode_table, encode_table
from tidemark.persist import DIFF, ERR, PersistClient
from tidemark.persist.holds import check_as_of
from tidemark.spark.frames import SMALL_ROWS, column, local_frame, rows, snapshot
from tidemark.spark.progress import Report, progress
from tidemark.spark.session import LARGE, SMALL, job_group, session_for
from tidemark.types import BIGINT, TEXT, Column, arrow_schema

IN_VIEW, IN_QUERY = Column("mz_in_view", BIGINT), Column("mz_in_query", BIGINT)
ERROR = Column("mz_error", TEXT)

MOST_SHOWN = 1_000
"""Differing rows that are fetched; all of them are counted."""


def difference_columns(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """A row of the difference: how often it is in the view and in the query, and what it is."""
    return (IN_VIEW, IN_QUERY, ERROR, *columns)


def differences(found: Verified) -> pa.Table:
    """The rows that differ, the first of them; errors come before rows."""
    return decode_table(found.differences)


def verdict_line(found: Verified) -> str:
    """What was found, in a line."""
    at, counted = found.as_of, f"{found.rows:,} row{'s' * (found.rows != 1)}"
    if found.verdict == "verified":
        return f"verified at {at}: {counted}, no difference"
    if found.verdict == "in error":
        return f"verified at {at}: the view is in error, and so is its query"
    shown = differences(found).num_rows
    text = (
        f"different at {at}: the query has {counted}, of which the view misses"
        f" {found.missing:,}, and the view has {found.unexpected:,} that the query has not"
    )
    return f"{text}; the first {shown:,} are shown" if shown >= MOST_SHOWN else text


def run_verify(
    spark: SparkSession, client: PersistClient, asked: Verify, *, report: Report | None = None
) -> Verified:
    """Compare a view with its query. Cancelled like a peek, by its id; `report` hears of it if it
    takes long."""
    shards = [asked.output, *asked.shards.values()]
    stored = sum(client.state(shard).rows for shard in shards)
    session = session_for(spark, SMALL if stored <= SMALL_ROWS else LARGE)
    try:
        with ExitStack() as stack:
            stack.enter_context(job_group(session, asked.id, "verify"))
            stack.enter_context(progress(session, f"verify {asked.name}", report=report))
            return _Comparison(session, client, asked, stack).verified()
    except PySparkException as error:
        raise explained(error) from error


class _Totals(NamedTuple):
    rows: int
    missing: int
    unexpected: int


class _Errors(NamedTuple):
    """A view's error rows: all of them, how many, and the first as rows of the difference."""

    frame: DataFrame | None = None
    total: int = 0
    shown: tuple[tuple[int, int, str], ...] = ()

    @staticmethod
    def of(frame: DataFrame, limit: int) -> _Errors:
        total = frame.agg(F.sum(column(DIFF))).first()
        first = frame.orderBy(column(ERR)).limit(limit).collect()
        shown = tuple((row[DIFF], 0, row[ERR]) for row in first)
        return _Errors(frame, (total[0] or 0) if total else 0, shown)

    def has(self, message: str) -> bool:
        """Whether one says the same; a view's say besides where it happened."""
        if self.frame is None:
            return False
        same = (column(ERR) == message) | column(ERR).startswith(f"{message} in ")
        return not self.frame.where(same).isEmpty()


class _Comparison:
    """One view against its query; frames are valid while `stack` is open."""

    def __init__(
        self, session: SparkSession, client: PersistClient, asked: Verify, stack: ExitStack
    ):
        self._session, self._client = session, client
        self._asked, self._stack = asked, stack
        self._columns = asked.plan.columns
        self._names = names_of(self._columns) or ["none"]

    def verified(self) -> Verified:
        stored, errors = self._view()
        try:
            counted = self._counted(stored, self._query())
            totals = _totals(counted)
        except (DataError, PySparkException) as error:
            failure = explained(error) if isinstance(error, PySparkException) else error
            if not isinstance(failure, DataError):
                raise failure from error
            return self._failed(failure.message, errors)
        found = [self._of_errors(errors.shown)]
        if totals.missing or totals.unexpected:
            found.append(self._of_rows(counted))
        totals = totals._replace(unexpected=totals.unexpected + errors.total)
        same = not (totals.missing or totals.unexpected)
        return self._said(totals, "verified" if same else "different", found)

    def _failed(self, message: str, errors: _Errors) -> Verified:
        """The query failed; so should the view."""
        if errors.has(message):
            return self._said(_Totals(0, 0, 0), "in error", [])
        wrong = [(0, 1, message), *errors.shown]
        return self._said(_Totals(0, 1, errors.total), "different", [self._of_errors(wrong)])

    def _said(self, totals: _Totals, verdict: Finding, found: list[pa.Table]) -> Verified:
        schema = arrow_schema(difference_columns(self._columns))
        table = pa.concat_tables([schema.empty_table(), *found]).slice(0, self._asked.limit)
        return Verified(self._asked.as_of, *totals, verdict, encode_table(table))

    # The two sides, as columns c0, c1, ... and how often each row is there.

    def _view(self) -> tuple[DataFrame, _Errors]:
        """The view's rows, not summed up, with `_diff`; and its errors."""
        asked = self._asked
        if not self._has_rows(asked.output):
            none = self._nothing(self._columns).withColumn(DIFF, F.lit(0).cast("bigint"))
            return none, _Errors()
        frames = self._stack.enter_context(
            snapshot(self._session, self._client, asked.output, asked.as_of, consolidated=False)
        )
        errors = _Errors.of(frames.err, asked.limit) if frames.may_err else _Errors()
        return frames.ok.select(*self._positional(self._columns), column(DIFF)), errors

    def _query(self) -> DataFrame:
        asked = self._asked
        names: dict[Get, str] = {}
        for get in dict.fromkeys(_gets(asked.plan)):
            names[get] = f"get{len(names)}"
            self._input(get).createOrReplaceTempView(names[get])
        plan = at_time(asked.plan, asked.query_at)
        if is_recursive(plan):
            plan = Recursion(self._session, names.__getitem__).without_recursion(plan)
        return self._session.sql(batch_sql(plan, names.__getitem__))

    def _input(self, get: Get) -> DataFrame:
        shard, time = self._asked.shards[get.id], self._asked.query_at
        if not self._has_rows(shard):
            return self._nothing(get.columns)
        frames = self._stack.enter_context(rows(self._session, self._client, shard, time))
        try:
            return frames.sound().select(*self._positional(get.columns))
        except DataError as error:
            raise data_error(str(error)) from error

    def _has_rows(self, shard: str) -> bool:
        """False for a shard to which only progress was ever written: its schema is not known."""
        state = self._client.state(shard)
        check_as_of(state, None)
        return bool(state.schemas)

    def _nothing(self, columns: tuple[Column, ...]) -> DataFrame:
        fields = [pa.field(f"c{i}", each.type.arrow) for i, each in enumerate(columns)]
        schema = pa.schema(fields or [pa.field("none", pa.int32())])
        return local_frame(self._session, schema.empty_table())

    def _positional(self, columns: tuple[Column, ...]) -> list[SparkColumn]:
        if not columns:
            return [F.lit(1).alias("none")]
        return [column(each.name).alias(f"c{i}") for i, each in enumerate(columns)]

    def _counted(self, stored: DataFrame, asked: DataFrame) -> DataFrame:
        """Every row of either side with its counts."""
        none, once = F.lit(0).cast("bigint"), F.lit(1).cast("bigint")
        values = self._values()
        sides = stored.select(*values, column(DIFF).alias("v"), none.alias("q")).unionAll(
            asked.select(*values, none.alias("v"), once.alias("q"))
        )
        return sides.groupBy(*self._names).agg(F.sum("v").alias("v"), F.sum("q").alias("q"))

    def _values(self) -> list[SparkColumn]:
        if not self._columns:
            return [F.lit(1).alias("none")]
        pairs = zip(self._names, self._columns, strict=True)
        return [column(name).cast(each.type.spark).alias(name) for name, each in pairs]

    # What is shown.

    def _of_rows(self, counted: DataFrame) -> pa.Table:
        wrong = counted.where("v != q").orderBy(*self._names).limit(self._asked.limit)
        table = wrong.select("v", "q", *names_of(self._columns)).toArrow()
        table = table.add_column(2, "e", pa.nulls(table.num_rows, pa.string()))
        schema = arrow_schema(difference_columns(self._columns))
        return table.rename_columns(schema.names).cast(schema)

    def _of_errors(self, found: Sequence[tuple[int, int, str]]) -> pa.Table:
        schema = arrow_schema(difference_columns(self._columns))
        head = list(zip(*found, strict=True)) if found else [(), (), ()]
        arrays = [pa.array(v, f.type) for v, f in zip(head, list(schema)[:3], strict=True)]
        nulls = [pa.nulls(len(found), field.type) for field in list(schema)[3:]]
        return pa.table([*arrays, *nulls], schema=schema)


def _totals(counted: DataFrame) -> _Totals:
    none = F.lit(0).cast("bigint")
    # A view should not hold a row less than no times: what is below that is not missing.
    below = F.greatest(-F.col("v"), none)
    held = F.col("v") + below
    found = counted.agg(
        F.sum("q"),
        F.sum(F.greatest(F.col("q") - held, none)),
        F.sum(F.greatest(held - F.col("q"), none) + below),
    ).first()
    assert found is not None
    return _Totals(*(value or 0 for value in found))


def _gets(plan: Plan) -> list[Get]:
    if isinstance(plan, Get):
        return [plan]
    return [get for input_ in inputs_of(plan) for get in _gets(input_)]


def newest_readable(client: PersistClient, shards: Iterable[str]) -> int:
    """The newest time at which all of these can be read; of finished ones, their last change."""
    states = [client.state(shard) for shard in shards]
    for state in states:
        check_as_of(state, None)
    since = max((state.since.time or 0 for state in states), default=0)
    upper = min(state.upper for state in states)
    if upper.time is None:
        times = (part.max_time for state in states for part in state.parts)
        return max([since, *times])
    if upper.time <= since:
        raise AsOfBeforeSince(
            f"there is no time yet at which a view and all that it reads can be read: the first"
            f" is {since}, and they are complete to {upper}",
            hint="try again when the view has caught up",
        )
    return upper.time - 1
