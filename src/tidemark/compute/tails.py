"""What a fragment does to the changes of its body: nothing, or one of the operators by group.

Each tail says which shards it keeps (`kept`), and turns the body's changes into the changes of the
output and of what it keeps. `change` does so for a tick, with look-ups in what it keeps;
`hydrate` for everything at once, on Spark, where nothing was there before.

    Plain       the body's changes are the output's
    Reducing    acc: accumulators by key · head0..: values of an argument, ordered within the key
    Grouping    rows: the body's rows by group, in order where only the first ones matter
    Timing      pending: what will appear or disappear later, by when (the future log)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute import accumulators as accumulated
from tidemark.compute.extremes import values_that_matter
from tidemark.compute.run import COUNT, RANK, RANKED, Runner, timed
from tidemark.compute.shape import Reduction, Shape, Temporal, Top, Whole, Windowed
from tidemark.persist import DIFF, ERR, TIME
from tidemark.persist.arrange import Arrangement
from tidemark.spark.frames import local_frame
from tidemark.types import BIGINT, BOOLEAN, TEXT, Column, SqlType, arrow_schema

BUCKET_MS = 4_096

MOST_BUCKETS = 10_000
"""That are looked up, unless more than that is pending: half a day of them."""


class Kept(NamedTuple):
    """A shard of state: its columns, and how it is arranged."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    order: tuple[str, ...] = ()


class Interval(NamedTuple):
    """A tick's: its distinct times, the time before it (-1: there is none), and where it ends."""

    times: np.ndarray
    prior: int
    upper: int


class Changes(NamedTuple):
    """Updates (with times) of the output's columns, of its errors, and of what is kept."""

    output: pa.Table
    errors: pa.Table
    kept: dict[str, pa.Table]


Look = Callable[[str], Arrangement]


Frames = Iterator[tuple[str, DataFrame]]

Written = Callable[[str], DataFrame | None]
"""The updates of what is kept under a name, once they are written; None if they cannot be read."""


class Tail(Protocol):
    kept: dict[str, Kept]

    def change(self, rows: pa.Table, over: Interval, look: Look, runner: Runner) -> Changes: ...

    def hydrate(self, good: DataFrame, as_of: int, runner: Runner, written: Written) -> Frames:
        """Of rows that are there (_d > 0) frames with `_d`: 'output' (o0..), 'errors' (_err), and
        one for each that is kept. Those come first for which nothing has to be run."""
        ...


def tail_of(shape: Shape) -> Tail:
    match shape.tail:
        case None:
            return Plain(shape)
        case Reduction():
            return Reducing(shape, shape.tail)
        case Temporal():
            return Timing(shape)
        case Top() | Windowed() | Whole():
            return Grouping(shape, shape.tail)


class Plain:
    def __init__(self, shape: Shape):
        self.kept: dict[str, Kept] = {}

    def change(self, rows: pa.Table, over: Interval, look: Look, runner: Runner) -> Changes:
        return Changes(_updates(rows, over.times), no_errors(), {})

    def hydrate(self, good: DataFrame, as_of: int, runner: Runner, written: Written) -> Frames:
        yield "output", good


class Reducing:
    def __init__(self, shape: Shape, tail: Reduction):
        self._shape = shape
        self._threshold = tail.threshold
        self._acc = acc = accumulated.accumulators(shape.body, tail)
        self._keys = [column.name for column in acc.key_columns]
        key = tuple(self._keys)
        self.kept = {"acc": Kept(acc.state, key)}
        self.kept |= {f"head{arg}": Kept(acc.head(arg), key, ("v",)) for arg in acc.ordered}
        columns = (*acc.columns, *_results(shape))
        self._schema = pa.schema([*arrow_schema(columns), *RANKED])

    def change(self, rows: pa.Table, over: Interval, look: Look, runner: Runner) -> Changes:
        acc, keys = self._acc, self._keys
        args = [f"a{i}" for i in range(len(acc.args))]
        rows = rows.rename_columns([*keys, *args, RANK, COUNT])
        touched, lost = _touched(rows, keys)
        found = look("acc").lookup(touched, over.prior)
        leaves = {"acc": found.filter(pc.greater(found[DIFF], 0)).drop_columns([DIFF])}
        kept = {}
        for arg in acc.ordered:
            head, names = f"head{arg}", [*keys, "v", RANK, COUNT]
            values = rows.select([*keys, f"a{arg}", RANK, COUNT]).rename_columns(names)
            values = values.filter(pc.is_valid(values["v"]))
            leaves[f"values{arg}"] = values_that_matter(
                look(head), acc.ends(arg), touched, lost, values, over.prior
            )
            kept[head] = _updates(values, over.times)
        delta = rows
        for i in acc.summed:
            weight = _weight(rows[f"a{i}"], rows[COUNT], acc.args[i])
            delta = delta.append_column(f"w{i}", weight)
        versions = runner.tail({"delta": delta, **leaves}, self._schema)
        kept["acc"] = _updates(versions.select([*_names(acc.state), RANK, COUNT]), over.times)
        if self._threshold:
            versions = versions.filter(pc.greater(versions["n"], 0))
            count = pc.multiply(versions[COUNT], versions["n"])
            versions = versions.drop_columns([COUNT]).append_column(COUNT, count)
        output, errors = _sorted_out(versions, len(self._shape.outputs), over.times)
        return Changes(output, errors, kept)

    def hydrate(self, good: DataFrame, as_of: int, runner: Runner, written: Written) -> Frames:
        acc, keys = self._acc, self._keys
        args = [f"a{i}" for i in range(len(acc.args))]
        changes = good.toDF(*keys, *args, COUNT)
        if acc.ordered and any(block.negated for block in self._shape.blocks):
            changes = changes.groupBy(*keys, *args).agg(F.sum(COUNT).alias(COUNT)).where("_d > 0")
        weights = [
            F.expr(accumulated.weight_sql(f"a{i}", acc.args[i])).alias(f"w{i}") for i in acc.summed
        ]
        for arg in acc.ordered:
            values = changes.where(F.col(f"a{arg}").isNotNull())
            yield f"head{arg}", values.select(*keys, F.col(f"a{arg}").alias("v"), COUNT)
        if acc.ordered and len(acc.args) == 1 and (head := written("head0")) is not None:
            # To read what is there is cheaper than to compute it again; it lacks nulls alone.
            values = head.select(*keys, F.col("v").alias("a0"), F.col(DIFF).alias(COUNT))
            changes = values.unionAll(changes.where(F.col("a0").isNull()))
        changes.select("*", *weights).createOrReplaceTempView("delta")
        versions = runner.first_tail()
        yield "acc", versions.select(*_names(acc.state), COUNT)
        if self._threshold:
            versions = versions.where("n > 0").withColumn(COUNT, F.col(COUNT) * F.col("n"))
        yield from _large_sorted_out(versions, len(self._shape.outputs)).items()


class Grouping:
    def __init__(self, shape: Shape, tail: Top | Windowed | Whole):
        self._shape = shape
        group = tuple(range(tail.keys)) if isinstance(tail, Whole) else tail.group
        self._top = tail if isinstance(tail, Top) and tail.limit is not None else None
        self._always = isinstance(tail, Whole) and not tail.keys
        self._columns = tuple(Column(f"b{i}", type_) for i, type_ in enumerate(shape.body))
        self._keys = [f"b{i}" for i in group]
        order = tuple(f"b{i}" for i in self._top.sorts) if self._top else ()
        self.kept = {"rows": Kept(self._columns, tuple(self._keys), order)}
        self._schema = pa.schema([*arrow_schema(_results(shape)), *RANKED])

    def change(self, rows: pa.Table, over: Interval, look: Look, runner: Runner) -> Changes:
        rows = rows.rename_columns([*_names(self._columns), RANK, COUNT])
        touched, lost = _touched(rows, self._keys)
        if self._top is None:
            found = look("rows").lookup(touched, over.prior)
        else:
            assert self._top.limit is not None
            enough = lost + self._top.limit + self._top.offset
            found = look("rows").heads(touched, enough, over.prior, last=False)
        leaves = {"delta": rows, "rows": found}
        if self._always:
            since = 0 if over.prior < 0 else -1
            leaves["always"] = pa.table({RANK: pa.array([since], pa.int32())})
        results = runner.tail(leaves, self._schema)
        output, errors = _sorted_out(results, len(self._shape.outputs), over.times)
        return Changes(output, errors, {"rows": _updates(rows, over.times)})

    def hydrate(self, good: DataFrame, as_of: int, runner: Runner, written: Written) -> Frames:
        changes = good.toDF(*_names(self._columns), COUNT)
        changes.withColumn(RANK, F.lit(0)).createOrReplaceTempView("delta")
        _empty(runner, "rows", (*self._columns, Column(DIFF, BIGINT)))
        always = pa.table({RANK: pa.array([0], pa.int32())})
        local_frame(runner.large, always).createOrReplaceTempView("always")
        yield "rows", changes
        yield from _large_sorted_out(runner.first_tail(), len(self._shape.outputs)).items()


class Timing:
    """Rows that count only for a time: in the output from when it begins until it ends.

    What lies ahead of the time at which it is known waits in `pending`, as a row that says when
    (`at`) and, by its diff, whether it will appear or disappear; there it is until then.
    """

    def __init__(self, shape: Shape):
        self._row = tuple(Column(f"o{i}", type_) for i, type_ in enumerate(shape.body[:-2]))
        meta = (Column("at", BIGINT), Column("bucket", BIGINT))
        self.kept = {"pending": Kept((*self._row, *meta), ("bucket",))}

    def change(self, rows: pa.Table, over: Interval, look: Look, runner: Runner) -> Changes:
        names = _names(self._row)
        known = timed(rows, over.times).to_numpy()
        begin, end = f"o{len(names)}", f"o{len(names) + 1}"
        never = np.iinfo(np.int64).max
        first = np.maximum(known, pc.fill_null(rows[begin], 0).to_numpy())
        last = pc.fill_null(rows[end], never).to_numpy()
        lives = last > first
        row = rows.select(names)
        events = [
            _event(row, first, rows[COUNT], known, lives),
            _event(row, last, pc.negate(rows[COUNT]), known, lives & (last < never)),
        ]
        learnt = pa.concat_tables(events)
        ahead = learnt.filter(pc.greater(learnt["at"], learnt[TIME]))
        due = self._due(look("pending"), over)
        soon = ahead.filter(pc.less(ahead["at"], over.upper)).drop_columns([TIME])
        now = learnt.filter(pc.less_equal(learnt["at"], learnt[TIME])).drop_columns([TIME])
        leaving = pa.concat_tables([due, soon])
        output = pa.concat_tables([now, leaving]).rename_columns([*names, TIME, DIFF])
        pending = pa.concat_tables(
            [
                _pending(ahead, ahead[TIME]),
                _pending(
                    leaving.set_column(len(names) + 1, DIFF, pc.negate(leaving[DIFF])),
                    leaving["at"],
                ),
            ]
        )
        return Changes(output, no_errors(), {"pending": pending})

    def _due(self, pending: Arrangement, over: Interval) -> pa.Table:
        """What happens in the interval, of what was pending before it."""
        names = [*_names(self._row), "at", DIFF]
        lower = over.prior + 1
        first, last = max(lower, 0) // BUCKET_MS, (over.upper - 1) // BUCKET_MS
        if over.prior < 0:
            first, last = 0, -1
        if last - first > max(pending.rows, MOST_BUCKETS):
            found = pending.everything(over.prior)
        else:
            buckets = pa.table({"bucket": pa.array(np.arange(first, last + 1), pa.int64())})
            found = pending.lookup(buckets, over.prior)
        chosen = pc.and_(pc.greater_equal(found["at"], lower), pc.less(found["at"], over.upper))
        return found.filter(chosen).select(names)

    def hydrate(self, good: DataFrame, as_of: int, runner: Runner, written: Written) -> Frames:
        names = _names(self._row)
        begin, end = f"o{len(names)}", f"o{len(names) + 1}"
        rows = good.toDF(*names, begin, end, COUNT).withColumns(
            {
                "first": F.greatest(F.coalesce(begin, F.lit(0)), F.lit(as_of)),
                "last": F.coalesce(end, F.lit(np.iinfo(np.int64).max)),
            }
        )
        lives = rows.where("last > first")
        bucket = F.floor(F.col("at") / BUCKET_MS).cast("long").alias("bucket")
        later = lives.where(F.col("first") > as_of).withColumn("at", F.col("first"))
        ends = lives.where(F.col(end).isNotNull()).withColumns(
            {"at": F.col("last"), COUNT: -F.col(COUNT)}
        )
        pending = later.select(*names, "at", bucket, COUNT).unionAll(
            ends.select(*names, "at", bucket, COUNT)
        )
        now = lives.where(F.col("first") == as_of).select(*names, COUNT)
        yield "pending", pending
        yield "output", now


def _event(
    row: pa.Table, at: np.ndarray, count: pa.ChunkedArray, known: np.ndarray, happens: np.ndarray
) -> pa.Table:
    table = row.append_column("at", pa.array(at, pa.int64())).append_column(DIFF, count)
    return table.append_column(TIME, pa.array(known, pa.int64())).filter(pa.array(happens))


def _pending(events: pa.Table, time: pa.ChunkedArray) -> pa.Table:
    """Events as updates at `time` of what is pending."""
    bucket = pa.array(events["at"].to_numpy() // BUCKET_MS, pa.int64())
    names = [name for name in events.column_names if name not in (TIME, DIFF)]
    columns = [*(events[name] for name in names), bucket, time, events[DIFF]]
    return pa.table(columns, names=[*names, "bucket", TIME, DIFF])


def no_errors() -> pa.Table:
    return pa.table(
        {
            ERR: pa.nulls(0, pa.string()),
            TIME: pa.nulls(0, pa.int64()),
            DIFF: pa.nulls(0, pa.int64()),
        }
    )


def _results(shape: Shape) -> tuple[Column, ...]:
    outputs = (Column(f"o{i}", expr.type) for i, expr in enumerate(shape.outputs))
    return (*outputs, Column("_keep", BOOLEAN), Column(ERR, TEXT))


def _sorted_out(found: pa.Table, width: int, times: np.ndarray) -> tuple[pa.Table, pa.Table]:
    """The view's updates and its errors, of versions that begin or end."""
    failed = pc.is_valid(found[ERR])
    kept = found.filter(pc.and_(found["_keep"], pc.invert(failed)))
    output = _updates(kept.select([*(f"o{i}" for i in range(width)), RANK, COUNT]), times)
    return output, _updates(found.filter(failed).select([ERR, RANK, COUNT]), times)


def _large_sorted_out(found: DataFrame, width: int) -> dict[str, DataFrame]:
    fine = found.where(F.col(ERR).isNull() & F.col("_keep"))
    return {
        "output": fine.select(*(f"o{i}" for i in range(width)), COUNT),
        "errors": found.where(F.col(ERR).isNotNull()).select(ERR, COUNT),
    }


def _updates(table: pa.Table, times: np.ndarray) -> pa.Table:
    """Ranks turned back into times; equal updates are summed by who writes them."""
    names = [name for name in table.column_names if name not in (RANK, COUNT)]
    columns = [*(table[name] for name in names), timed(table, times), table[COUNT]]
    return pa.table(columns, names=[*names, TIME, DIFF])


def errors_of(table: pa.Table, times: np.ndarray) -> pa.Table:
    return _updates(table.select([ERR, RANK, COUNT]), times)


def _touched(rows: pa.Table, keys: list[str]) -> tuple[pa.Table, np.ndarray]:
    """The groups that changed, and how many updates of each take something away."""
    lost = pc.cast(pc.less(rows[COUNT], 0), pa.int64())
    if not keys:
        return pa.table({"all": [0]}), np.array([pc.sum(lost).as_py() or 0])
    counted = rows.select(keys).append_column("lost", lost)
    counted = counted.group_by(keys, use_threads=False).aggregate([("lost", "sum")])
    return counted.select(keys), counted["lost_sum"].to_numpy()


def _weight(values: pa.ChunkedArray, diffs: pa.ChunkedArray, type_: SqlType) -> pa.ChunkedArray:
    """Values times diffs as wide decimals, nulls as nothing."""
    exact = accumulated.sum_type(type_)
    wide = pc.cast(pc.fill_null(values, 0), pa.decimal256(38, exact.decimal[1]))
    product = pc.multiply(wide, pc.cast(diffs, pa.decimal256(19, 0)))
    return pc.cast(product, exact.arrow)


def _empty(runner: Runner, name: str, columns: tuple[Column, ...]) -> None:
    local_frame(runner.large, arrow_schema(columns).empty_table()).createOrReplaceTempView(name)


def _names(columns: tuple[Column, ...]) -> list[str]:
    return [column.name for column in columns]
