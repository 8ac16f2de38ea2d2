"""What a transaction has not committed yet, on top of what is there.

Changes are rows with `_diff`. A look-up or a filter may have left out rows that nobody asked for; of
these the changes may take away what was never there, which then counts as nothing.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from tidemark.compute.peek_arrow import copied
from tidemark.persist.updates import DIFF, consolidate, negate, row_names
from tidemark.spark.frames import local_frame
from tidemark.types import Column, arrow_schema


def overlaid(found: pa.Table, changes: pa.Table) -> pa.Table:
    """Both, summed up; the columns are those of `found` that rows have."""
    names = [*row_names(found.schema), DIFF]
    there = found.select(names)
    both = pa.concat_tables([there, changes.select(names).cast(there.schema)])
    if len(names) == 1:
        total = pc.sum(both[DIFF], min_count=0).as_py()
        return pa.table({DIFF: pa.array([total] if total > 0 else [], pa.int64())})
    summed = consolidate(both)
    return summed.filter(pc.greater(summed[DIFF], 0))


def overlaid_frame(
    session: SparkSession, found: DataFrame, changes: pa.Table, columns: tuple[Column, ...]
) -> DataFrame:
    """The same of rows c0, c1, ... that only Spark can hold."""
    names = [column.name for column in columns]
    changes = consolidate(changes.select([*names, DIFF]))

    def frame(rows: pa.Table) -> DataFrame:
        picked = copied(rows).select(names).cast(arrow_schema(columns))
        return local_frame(session, picked.rename_columns([f"c{i}" for i in range(len(names))]))

    come = changes.filter(pc.greater(changes[DIFF], 0))
    go = changes.filter(pc.less(changes[DIFF], 0))
    if come.num_rows:
        found = found.unionAll(frame(come))
    return found.exceptAll(frame(negate(go))) if go.num_rows else found
