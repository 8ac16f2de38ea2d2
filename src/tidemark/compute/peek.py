"""Peeks: a query that is asked once, over collections at one timestamp.

    a collection   looked up in an index, or in an arrangement that a view keeps by the same key;
                   read here, if it is small; else scanned by Spark, less what filters can skip
    the rest       Arrow, if it is simple enough; else Spark (`peek_plan.py` decides)

Each way gives the same rows. Whatever waits or runs long looks up now and then whether it was
cancelled; a Spark job is a job group of the peek's id, in the pool that goes before all others.
"""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.compute.arrangements import Arrangements
from tidemark.compute.batch import batch_sql
from tidemark.compute.error_rows import Errors
from tidemark.compute.expr import Call, Lit, columns_of
from tidemark.compute.index import MOST_BYTES, Indexes, await_shard
from tidemark.compute.lookup import look_up
from tidemark.compute.overlay import overlaid, overlaid_frame
from tidemark.compute.peek_arrow import answered, copied
from tidemark.compute.peek_plan import (
    Asked,
    Simple,
    asked_of,
    chosen_key,
    grows,
    reader_filter,
    simple,
)
from tidemark.compute.plan import Get, Plan
from tidemark.compute.protocol import LookUp, Peek
from tidemark.compute.recursion import Recursion, is_recursive
from tidemark.errors import Cancelled, DataError, TidemarkError
from tidemark.ipc import decode_table
from tidemark.persist import DIFF, ERR, PersistClient
from tidemark.spark.collect import collected
from tidemark.spark.frames import SMALL_ROWS, local_frame, rows
from tidemark.spark.session import (
    LARGE,
    PEEKS,
    SMALL,
    cancel_group,
    in_pool,
    job_group,
    session_for,
)
from tidemark.types import BIGINT, Column, arrow_schema

_SQLSTATES = (
    ("division by zero", "22012"),
    ("more than one row returned by a subquery", "21000"),
    ("field value out of range", "22008"),
    ("timestamp out of range", "22008"),
    ("date out of range", "22008"),
    ("interval out of range", "22008"),
    ("out of range", "22003"),
    ("overflow", "22003"),
    ("invalid input syntax", "22P02"),
    ("requested length too large", "54000"),
    ("requested character too large", "54000"),
    ("null character not permitted", "54000"),
    ("character number must be positive", "22023"),
    ("requested character not valid", "54000"),
    ("negative substring length", "22011"),
    ("LIKE pattern must not end", "22025"),
    ("square root of a negative number", "2201F"),
    ("raised to a ", "2201F"),
    ("cannot take logarithm", "2201E"),
    ("field position must not be zero", "22023"),
    ("step size cannot equal zero", "22023"),
    ("invalid data to decode", "22023"),
    ("cannot cast jsonb", "22023"),
    ("cannot get array length", "22023"),
    ("cannot extract elements", "22023"),
    ("cannot call jsonb_", "22023"),
    ("cannot delete from", "22023"),
)
"""By words of its message; PostgreSQL's, so that programs which go by them need not be changed."""

WHICH_SOURCE = (
    "a message of a source is not what its FORMAT says: mz_internal.mz_source_statuses tells which"
    " source, and `tidemark shard snapshot SOURCE --errors --data DIR` of which key"
)

REMEMBERED = 1_000
"""Peeks that were cancelled before they came; more are forgotten."""

IDLE_SESSIONS = 4
"""Spark sessions kept for the next peek: making one costs more than a small query."""


def data_error(message: str) -> DataError:
    """An error row's message as the error that a PostgreSQL client expects."""
    said = re.sub('".*"', "", message, flags=re.DOTALL)  # Without the value that it is about.
    state = next((code for words, code in _SQLSTATES if words in said), "22000")
    hint = WHICH_SOURCE if "Failed to decode" in message else None
    return DataError(message, hint=hint, sqlstate=state)


class Peeks:
    """The peeks of a replica: what they run on, and which of them are not wanted any more."""

    def __init__(
        self,
        spark: SparkSession,
        client: PersistClient,
        arrangements: Arrangements | None = None,
        indexes: Indexes | None = None,
    ):
        self._spark = spark
        self._client = client
        self._arrangements = arrangements
        self._indexes = indexes
        self._errors: dict[str, Errors] = {}
        self._idle: dict[int, list[SparkSession]] = {}
        self._cancelled: dict[str, None] = {}
        self._lock = threading.Lock()

    def cancel(self, id_: str) -> None:
        with self._lock:
            self._cancelled[id_] = None
            for old in list(self._cancelled)[:-REMEMBERED]:
                del self._cancelled[old]
        cancel_group(self._spark, id_)
        self._client.watch.ring(None)

    def run(self, peek: Peek) -> pa.Table:
        """The rows, as columns c0, c1, ... of the plan's types."""
        try:
            found = self.without_spark(peek)
            return self.with_spark(peek) if found is None else found
        finally:
            with self._lock:
                self._cancelled.pop(peek.id, None)

    def look_up(self, asked: LookUp) -> pa.Table | None:
        """What an index has of some keys; None if only a peek can tell."""
        if self._indexes is None:
            return None
        with _as_queried():
            return look_up(self._indexes, asked)

    # The ways.

    def without_spark(self, peek: Peek) -> pa.Table | None:
        """The answer, if it takes no more than look-ups and Arrow."""
        query = simple(at_time(peek.plan, peek.as_of))
        if query is None:
            return None
        found = self._here(Asked(query.get, query.predicates), peek, _needed(query))
        if found is None:
            return None
        try:
            return answered(query, found, max_bytes=peek.max_bytes)
        except pa.ArrowInvalid:
            return None  # A date too far away for Arrow's timestamps, say: Spark has a word on it.

    def with_spark(self, peek: Peek) -> pa.Table:
        plan = at_time(peek.plan, peek.as_of)
        wanted = asked_of(plan)
        here = {asked.get: self._here(asked, peek) for asked in wanted}
        few = sum(table.num_rows for table in here.values() if table is not None) <= SMALL_ROWS
        small = few and all(table is not None for table in here.values())
        with self._session(small=small) as session, ExitStack() as stack:
            names: dict[Get, str] = {}
            for asked in wanted:
                names[asked.get] = f"get{len(names)}"
                table = here[asked.get]
                if table is not None:
                    frame = local_frame(session, _positional(copied(table), asked.get.columns))
                else:
                    frame = self._scanned(session, asked, peek, stack)
                frame.createOrReplaceTempView(names[asked.get])
                stack.callback(session.catalog.dropTempView, names[asked.get])
            return self._queried(session, plan, names, peek, few=small and not grows(plan))

    def _queried(
        self, session: SparkSession, plan: Plan, names: dict[Get, str], peek: Peek, *, few: bool
    ) -> pa.Table:
        context = session.sparkContext
        try:
            with job_group(session, peek.id, "peek"), in_pool(session, PEEKS):
                self._check(peek)
                if is_recursive(plan):
                    plan = Recursion(session, names.__getitem__).without_recursion(plan)
                frame = session.sql(batch_sql(plan, names.__getitem__))
                found = collected(
                    frame,
                    max_bytes=peek.max_bytes,
                    stop=lambda: context.cancelJobGroup(peek.id),
                    few=few,
                )
        except PySparkException as error:
            raise explained(error) from error
        except Py4JError:
            self._check(peek)  # Whoever is interrupted does not always say so.
            raise
        labels = [f"c{i}" for i in range(len(plan.columns))]
        kinds = [pa.field(n, c.type.arrow) for n, c in zip(labels, plan.columns, strict=True)]
        return found.select(labels).cast(pa.schema(kinds)) if labels else found

    # Collections.

    def _here(self, asked: Asked, peek: Peek, columns: list[str] | None = None) -> pa.Table | None:
        """What is asked of a collection, and perhaps more, with `_diff`; None if only a scan by
        Spark can tell."""
        with _as_queried():
            return self._read(asked, peek, columns)

    def _read(self, asked: Asked, peek: Peek, columns: list[str] | None) -> pa.Table | None:
        self._check(peek)
        get = asked.get
        if get.id in peek.given:
            table = decode_table(peek.given[get.id])
            return table.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))
        shard = peek.shards[get.id]
        found = self._looked_up(shard, asked, peek)
        if found is None and self._client.state(shard).rows <= SMALL_ROWS:
            await_shard(self._client, shard, peek.as_of, lambda: self._is_cancelled(peek))
            found = snapshot(self._client, shard, peek.as_of, columns)
        if found is not None and get.id in peek.changes:
            found = overlaid(found, decode_table(peek.changes[get.id]))
        return found

    def _looked_up(self, shard: str, asked: Asked, peek: Peek) -> pa.Table | None:
        if self._indexes is None or self._arrangements is None:
            return None
        indexes = {index.spec.key: index for index in self._indexes.of_shard(shard)}
        chosen = chosen_key(asked, indexes)
        if chosen is not None:
            key, values = chosen
            index = indexes[key]
            found = index.lookup(values, peek.as_of, lambda: self._is_cancelled(peek))
            if found is not None:
                return found
        chosen = chosen_key(asked, self._arrangements.keys_of(shard))
        if chosen is None:
            return None
        await_shard(self._client, shard, peek.as_of, lambda: self._is_cancelled(peek))
        key, values = chosen
        borrowed = self._arrangements.borrow(shard, key, holder=peek.id, as_of=peek.as_of)
        if borrowed is None:
            return None
        try:
            found = borrowed.lookup_within(values, peek.as_of, MOST_BYTES)
            self._errors_of(shard).check(peek.as_of)
            return found
        finally:
            self._arrangements.release(borrowed, peek.id)

    def _errors_of(self, shard: str) -> Errors:
        with self._lock:
            return self._errors.setdefault(shard, Errors(self._client, shard))

    def _scanned(
        self, session: SparkSession, asked: Asked, peek: Peek, stack: ExitStack
    ) -> DataFrame:
        shard = peek.shards[asked.get.id]
        pushed = reader_filter(asked)
        scan = rows(session, self._client, shard, peek.as_of, filter=pushed or None)
        with _as_queried():
            found = stack.enter_context(scan).sound()
        get = asked.get
        named = (F.col(f"`{c.name}`").alias(f"c{i}") for i, c in enumerate(get.columns))
        frame = found.select(*named)
        if get.id not in peek.changes:
            return frame
        return overlaid_frame(session, frame, decode_table(peek.changes[get.id]), get.columns)

    # Sessions, and whether anybody still waits.

    @contextmanager
    def _session(self, *, small: bool) -> Iterator[SparkSession]:
        """A session with the settings for the size, that nobody else uses meanwhile."""
        with self._lock:
            idle = self._idle.setdefault(small, [])
            session = idle.pop() if idle else None
        session = session or session_for(self._spark, SMALL if small else LARGE)
        yield session
        # Not one that has failed: who knows what is left in it.
        with self._lock:
            if len(idle) < IDLE_SESSIONS:
                idle.append(session)

    def _is_cancelled(self, peek: Peek) -> bool:
        with self._lock:
            return peek.id in self._cancelled

    def _check(self, peek: Peek) -> None:
        if self._is_cancelled(peek):
            raise Cancelled("canceling statement due to user request")


def run_peek(spark: SparkSession, client: PersistClient, peek: Peek) -> pa.Table:
    """The peek by plain Spark over snapshots, whatever quicker ways there are."""
    return Peeks(spark, client).with_spark(peek)


@contextmanager
def _as_queried() -> Iterator[None]:
    """An error row of a collection fails the query, with the code for its message."""
    try:
        yield
    except DataError as error:
        raise data_error(error.message) from error


def snapshot(
    client: PersistClient, shard: str, as_of: int, columns: list[str] | None = None
) -> pa.Table:
    """A small collection at `as_of` with `_diff`, if there is no error in it."""
    table = client.open_reader(shard, columns=columns).snapshot(as_of)
    failed = table.filter(pc.is_valid(table[ERR]))
    if failed.num_rows:
        raise DataError(failed[ERR][0].as_py())
    return table


def at_time(plan: Plan, as_of: int) -> Plan:
    """The plan with `mz_now()` as the time that the query is asked about."""
    return _replaced(plan, Lit(str(as_of), BIGINT))


def _replaced(value: Any, now: Lit) -> Any:
    if isinstance(value, Call) and value.fn == "mz_now":
        return now
    if isinstance(value, tuple):
        items = tuple(_replaced(item, now) for item in value)
        return items if any(map(operator.is_not, items, value)) else value
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        replaced = {name: _replaced(field, now) for name, field in fields.items()}
        changed = {name: new for name, new in replaced.items() if new is not fields[name]}
        return msgspec.structs.replace(value, **changed) if changed else value
    return value


def _needed(query: Simple) -> list[str]:
    """The columns that a simple query looks at."""
    used = set[int]().union(*map(columns_of, (*query.predicates, *query.outputs)))
    return [column.name for at, column in enumerate(query.get.columns) if at in used]


def _positional(table: pa.Table, columns: tuple[Column, ...]) -> pa.Table:
    if not columns:
        return pa.table({"none": pa.nulls(table.num_rows, pa.int32())})
    picked = table.select([column.name for column in columns]).cast(arrow_schema(columns))
    return picked.rename_columns([f"c{i}" for i in range(len(columns))])


def explained(error: PySparkException) -> TidemarkError:
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    if condition == "USER_RAISED_EXCEPTION":
        return data_error(parameters.get("errorMessage", "error in query"))
    if "cancel" in str(error).lower():
        return Cancelled("canceling statement due to user request")
    return TidemarkError(f"Spark could not run the query: {str(error).splitlines()[0]}")
