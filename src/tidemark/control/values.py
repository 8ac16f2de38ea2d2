"""Constants into Arrow: the rows of an INSERT, and small results that control makes itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.arrays import read_array, stored_text
from tidemark.compute.expr import Lit
from tidemark.compute.intervals import seconds_of
from tidemark.compute.literals import BYTEA_PREFIX
from tidemark.compute.plan import Constant, Plan, Project
from tidemark.control.pgwire import Rows
from tidemark.types import TEXT, Column, SqlType, arrow_schema


def folded(plan: Plan) -> Constant | None:
    """A query that says its own answer (`SELECT 1`, as clients ask to see if we live), or None."""
    match plan:
        case Constant(rows=rows) if all(isinstance(cell, Lit) for row in rows for cell in row):
            return plan
        case Project(input=Constant(rows=rows), outputs=outputs):
            literals = tuple(output for output in outputs if isinstance(output, Lit))
            if len(literals) == len(outputs):
                return Constant((literals,) * len(rows), plan.columns)
    return None


def constant_table(plan: Constant, columns: tuple[Column, ...]) -> pa.Table:
    """The rows of a constant, under the names of `columns`."""
    arrays = [
        literal_array([row[i] for row in plan.rows], column.type)
        for i, column in enumerate(columns)
    ]
    return pa.table(arrays, schema=arrow_schema(columns))


def literal_array(literals: Sequence[Lit], type_: SqlType) -> pa.Array:
    """Literals of one type; their texts are as PostgreSQL prints them."""
    texts = [literal.value for literal in literals]
    if type_.element is not None:
        kept = [None if t is None else stored_text(read_array(t), type_) for t in texts]
        return pa.array(kept, type_.arrow)
    match type_.name:
        case "boolean":
            values = [None if t is None else t in ("true", "t") for t in texts]
            return pa.array(values, type_.arrow)
        case "numeric":
            return pa.array([None if t is None else Decimal(t) for t in texts], type_.arrow)
        case "interval":
            seconds = [None if each.value is None else seconds_of(each) for each in literals]
            return pa.array(seconds, type_.arrow)
        case "bytea":
            values = [None if t is None else bytes.fromhex(t[len(BYTEA_PREFIX) :]) for t in texts]
            return pa.array(values, type_.arrow)
        case "double precision":
            return pa.array([None if t is None else float(t) for t in texts], type_.arrow)
        case _:
            return pc.cast(pa.array(texts, pa.string()), type_.arrow)


def text_rows(names: tuple[str, ...], rows: Iterable[Sequence[object]], tag: str) -> Rows:
    """A small result whose columns are all text."""
    columns = tuple(Column(name, TEXT) for name in names)
    listed = [tuple(None if v is None else str(v) for v in row) for row in rows]
    arrays = [pa.array([row[i] for row in listed], pa.string()) for i in range(len(names))]
    return table_rows(columns, pa.table(arrays, schema=arrow_schema(columns)), tag)


def table_rows(columns: tuple[Column, ...], table: pa.Table, tag: str | None = None) -> Rows:
    return Rows(columns, batches(table), tag)


async def batches(table: pa.Table) -> AsyncIterator[pa.RecordBatch]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield batch
