"""Peeks: a one-off query on Spark over snapshots of collections at one timestamp."""

from __future__ import annotations

import operator
from contextlib import ExitStack
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.compute.batch import batch_sql
from tidemark.compute.expr import Call, Lit
from tidemark.compute.plan import Get, Plan, inputs_of
from tidemark.compute.protocol import Peek
from tidemark.compute.recursion import Recursion, is_recursive
from tidemark.errors import Cancelled, Corruption, DataError, TidemarkError
from tidemark.ipc import decode_table
from tidemark.persist import DIFF, ERR, PersistClient
from tidemark.spark.frames import SMALL_ROWS, local_frame, rows
from tidemark.spark.session import LARGE, SMALL, session_for
from tidemark.types import BIGINT, Column, arrow_schema

_SQLSTATES = (
    ("division by zero", "22012"),
    ("out of range", "22003"),
    ("overflow", "22003"),
    ("invalid input syntax", "22P02"),
)


def data_error(message: str) -> DataError:
    """An error row's message as the error that a PostgreSQL client expects."""
    state = next((code for words, code in _SQLSTATES if words in message), "22000")
    return DataError(message, sqlstate=state)


def run_peek(spark: SparkSession, client: PersistClient, peek: Peek) -> pa.Table:
    stored = sum(client.state(shard).rows for shard in peek.shards.values())
    session = session_for(spark, SMALL if stored <= SMALL_ROWS else LARGE)
    session.sparkContext.setJobGroup(peek.id, "peek", interruptOnCancel=True)
    names: dict[Get, str] = {}
    with ExitStack() as stack:
        for get in dict.fromkeys(_gets(peek.plan)):
            names[get] = f"get{len(names)}"
            if get.id in peek.given:
                table = decode_table(peek.given[get.id])
                frame = local_frame(session, _positional(table, get.columns))
            else:
                shard = peek.shards[get.id]
                frame = _rows(session, client, shard, get.columns, peek.as_of, stack)
            frame.createOrReplaceTempView(names[get])
        try:
            plan = at_time(peek.plan, peek.as_of)
            if is_recursive(plan):
                plan = Recursion(session, names.__getitem__).without_recursion(plan)
            found = session.sql(batch_sql(plan, names.__getitem__)).toArrow()
        except PySparkException as error:
            raise _explained(error) from error
    labels = [f"c{i}" for i in range(len(peek.plan.columns))]
    types = pa.schema(
        [pa.field(n, c.type.arrow) for n, c in zip(labels, peek.plan.columns, strict=True)]
    )
    return found.select(labels).cast(types) if labels else found


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


def _rows(
    session: SparkSession,
    client: PersistClient,
    shard: str,
    columns: tuple[Column, ...],
    as_of: int,
    stack: ExitStack,
):
    """A collection's rows, each as often as it counts; an error row fails the query."""
    if client.state(shard).rows <= SMALL_ROWS:
        return local_frame(session, _positional(_snapshot(client, shard, as_of), columns))
    frames = stack.enter_context(rows(session, client, shard, as_of))
    try:
        found = frames.sound()
    except DataError as error:
        raise data_error(str(error)) from error
    return found.select(*(F.col(f"`{c.name}`").alias(f"c{i}") for i, c in enumerate(columns)))


def _snapshot(client: PersistClient, shard: str, as_of: int) -> pa.Table:
    table = client.open_reader(shard).snapshot(as_of)
    failed = table.filter(pc.is_valid(table[ERR]))
    if failed.num_rows:
        raise data_error(failed[ERR][0].as_py())
    copies = table[DIFF].to_numpy()
    if (copies < 0).any():
        raise Corruption(f"shard {shard} holds a row a negative number of times at {as_of}")
    if (copies != 1).any():
        table = table.take(pa.array(np.repeat(np.arange(table.num_rows), copies)))
    return table


def _positional(table: pa.Table, columns: tuple[Column, ...]) -> pa.Table:
    if not columns:
        return pa.table({"none": pa.nulls(table.num_rows, pa.int32())})
    picked = table.select([column.name for column in columns]).cast(arrow_schema(columns))
    return picked.rename_columns([f"c{i}" for i in range(len(columns))])


def _gets(plan: Plan) -> list[Get]:
    if isinstance(plan, Get):
        return [plan]
    return [get for input_ in inputs_of(plan) for get in _gets(input_)]


def _explained(error: PySparkException) -> TidemarkError:
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    if condition == "USER_RAISED_EXCEPTION":
        return data_error(parameters.get("errorMessage", "error in query"))
    if "cancel" in str(error).lower():
        return Cancelled("canceling statement due to user request")
    return TidemarkError(f"Spark could not run the query: {str(error).splitlines()[0]}")
