"""How a subscription shows changes: as rows with a diff, or as what happened to keys.

    (none)      mz_diff, columns                one row for each row that came or went
    UPSERT      mz_state, key, values           what a key is now: 'upsert', or 'delete'
    DEBEZIUM    mz_state, key, before, after    what it was, too: 'insert', 'upsert' or 'delete'

Before them stand the time and, with PROGRESS, whether the row only says how far things are.

The KEY must be one: at no time may there be two rows of it. Nothing is kept of what a key was, so
that this is checked only as far as the changes of one time tell: a key of which several rows come, or
several go, at one time (the snapshot is one) is a 'key_violation' then, without values. A second row
that comes later is shown as if it were the only one, and one of two that goes as a 'delete'.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.peek import data_error
from tidemark.control import statements as s
from tidemark.errors import SqlError
from tidemark.persist import DIFF, ERR, TIME, consolidate
from tidemark.types import BIGINT, BOOLEAN, TEXT, Column, arrow_schema, numeric

MZ_TIMESTAMP = Column("mz_timestamp", numeric(38, 0))
MZ_PROGRESSED = Column("mz_progressed", BOOLEAN)
MZ_DIFF = Column("mz_diff", BIGINT)
MZ_STATE = Column("mz_state", TEXT)
CHUNK_ROWS = 10_000


def envelope_of(statement: s.Subscribe, columns: tuple[Column, ...]) -> Envelope:
    """What a subscription to `columns` shows."""
    progress = statement.progress
    if statement.keyed is None:
        return Diffs(columns, statement.order_by, progress=progress)
    kind = Upserts if statement.keyed.kind == "upsert" else Debezium
    return kind(columns, statement.keyed.key, progress=progress)


class Envelope:
    def __init__(self, shown: tuple[Column, ...], *, progress: bool):
        self.progresses = progress
        self._shown = shown
        head = (MZ_TIMESTAMP, MZ_PROGRESSED) if progress else (MZ_TIMESTAMP,)
        self.columns = (*head, *shown)

    def batches(self, updates: pa.Table) -> list[pa.RecordBatch]:
        """`updates`, consolidated, in order of time."""
        updates = sound(updates)
        if not updates.num_rows:
            return []
        rows = self._rows(updates)
        head = [pc.cast(rows[TIME], pa.decimal128(38, 0))]
        if self.progresses:
            head.append(pa.array(np.zeros(rows.num_rows, dtype=bool)))
        columns = [*head, *rows.drop_columns([TIME]).columns]
        table = pa.table(columns, schema=arrow_schema(self.columns))
        return table.to_batches(max_chunksize=CHUNK_ROWS)

    def progress(self, time: int) -> pa.RecordBatch:
        """A row that says: nothing more before `time`."""
        head = [pa.array([time], pa.int64()).cast(pa.decimal128(38, 0)), pa.array([True])]
        nulls = [pa.nulls(1, column.type.arrow) for column in self._shown]
        return pa.record_batch([*head, *nulls], schema=arrow_schema(self.columns))

    def _rows(self, updates: pa.Table) -> pa.Table:
        """The time, then the columns that are shown."""
        raise NotImplementedError


class Diffs(Envelope):
    def __init__(
        self, columns: tuple[Column, ...], order_by: tuple[s.OrderBy, ...], *, progress: bool
    ):
        super().__init__((MZ_DIFF, *columns), progress=progress)
        self._names = [column.name for column in columns]
        for by in order_by:
            if by.column not in (MZ_DIFF.name, *self._names):
                raise _undefined(by.column)
        self._order_by = order_by

    def _rows(self, updates: pa.Table) -> pa.Table:
        keys = [(TIME, "ascending")]
        for by in self._order_by:
            name = DIFF if by.column == MZ_DIFF.name else by.column
            # Arrow has all nulls at one end; which end that is, is a key of its own.
            is_null = f"_null_{name}"
            if is_null not in updates.column_names:
                updates = updates.append_column(is_null, pc.is_null(updates[name]).cast(pa.int8()))
            keys.append((is_null, "descending" if by.nulls_first else "ascending"))
            keys.append((name, "descending" if by.descending else "ascending"))
        # What was not asked for: what goes before what comes, and else as the rows sort.
        keys += [(name, "ascending") for name in (DIFF, *self._names)]
        return updates.sort_by(keys).select([TIME, DIFF, *self._names])


class _Keyed(Envelope):
    def __init__(
        self,
        columns: tuple[Column, ...],
        key: tuple[str, ...],
        shown: tuple[Column, ...],
        *,
        progress: bool,
    ):
        by_name = {column.name: column for column in columns}
        for at, name in enumerate(key):
            if name not in by_name:
                raise _undefined(name)
            if name in key[:at]:
                raise SqlError(f'column "{name}" is twice in the KEY', sqlstate="42701")
        self._key = list(key)
        self._values = [column.name for column in columns if column.name not in key]
        super().__init__((MZ_STATE, *(by_name[name] for name in key), *shown), progress=progress)

    def _grouped(self, updates: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
        """By time and key: how many rows went and came; the last of the one and the other, without
        values where there is none, or more than one."""
        at = pa.array(np.arange(updates.num_rows))
        came = pc.greater(updates[DIFF], 0)
        nothing = pa.scalar(None, pa.int64())
        marked = updates.select([TIME, *self._key])
        for name, of, values in (
            ("_came", came, updates[DIFF]),
            ("_went", pc.invert(came), pc.negate(updates[DIFF])),
        ):
            marked = marked.append_column(name, pc.if_else(of, values, 0))
            marked = marked.append_column(f"{name}_at", pc.if_else(of, at, nothing))
        sums = [("_came", "sum"), ("_went", "sum"), ("_came_at", "max"), ("_went_at", "max")]
        groups = marked.group_by([TIME, *self._key], use_threads=False).aggregate(sums)
        order = [(name, "ascending") for name in (TIME, *self._key)]
        groups = groups.sort_by(order)
        values = updates.select(self._values)
        one = pc.and_(pc.less_equal(groups["_came_sum"], 1), pc.less_equal(groups["_went_sum"], 1))
        before, after = (
            values.take(pc.if_else(one, groups[f"{name}_at_max"], nothing))
            for name in ("_went", "_came")
        )
        return groups, before, after

    def _states(self, groups: pa.Table, created: str) -> pa.ChunkedArray:
        came, went = groups["_came_sum"], groups["_went_sum"]
        state = pc.if_else(pc.equal(went, 0), created, "upsert")
        state = pc.if_else(pc.equal(came, 0), "delete", state)
        violated = pc.or_(pc.greater(came, 1), pc.greater(went, 1))
        return pc.if_else(violated, "key_violation", state)

    def _assembled(self, groups: pa.Table, state: pa.ChunkedArray, *values: pa.Table) -> pa.Table:
        columns = [groups[TIME], state, *(groups[name] for name in self._key)]
        columns += [column for table in values for column in table.columns]
        names = [TIME, *(column.name for column in self._shown)]
        return pa.table(columns, names=names)


class Upserts(_Keyed):
    def __init__(self, columns: tuple[Column, ...], key: tuple[str, ...], *, progress: bool):
        values = tuple(column for column in columns if column.name not in key)
        super().__init__(columns, key, values, progress=progress)

    def _rows(self, updates: pa.Table) -> pa.Table:
        groups, _, after = self._grouped(updates)
        return self._assembled(groups, self._states(groups, "upsert"), after)


class Debezium(_Keyed):
    def __init__(self, columns: tuple[Column, ...], key: tuple[str, ...], *, progress: bool):
        shown = tuple(
            Column(f"{when}_{column.name}", column.type)
            for when in ("before", "after")
            for column in columns
            if column.name not in key
        )
        super().__init__(columns, key, shown, progress=progress)

    def _rows(self, updates: pa.Table) -> pa.Table:
        groups, before, after = self._grouped(updates)
        return self._assembled(groups, self._states(groups, "insert"), before, after)


def sound(updates: pa.Table) -> pa.Table:
    """`updates` after a time at which nothing was in error, without errors.

    At a time with errors there are no rows to show: what changes meanwhile comes when the last error
    goes, as a sink does it. One that stays is raised.

        time   3          4    5          6
        was    +error     +a   -error     +b
        is                     +a         +b
    """
    is_error = pc.is_valid(updates[ERR])
    if not pc.any(is_error).as_py():
        return updates
    errors = updates.filter(is_error)
    times, first = np.unique(errors[TIME].to_numpy(), return_inverse=True)
    live = np.bincount(first, errors[DIFF].to_numpy()).cumsum()
    if live[-1] > 0:
        counts = errors.group_by(ERR).aggregate([(DIFF, "sum")])
        stays = counts.filter(pc.greater(counts[f"{DIFF}_sum"], 0))
        raise data_error(stays[ERR][0].as_py())
    rows = updates.filter(pc.invert(is_error))
    since = np.searchsorted(times, rows[TIME].to_numpy(), side="right") - 1
    # The next time from each on at which none is left.
    whole = np.minimum.accumulate(np.where(live > 0, times[-1], times)[::-1])[::-1]
    late = (since >= 0) & (live[since] > 0)
    if not late.any():
        return rows
    moved = pa.array(np.where(late, whole[since], rows[TIME].to_numpy()))
    at = rows.column_names.index(TIME)
    return consolidate(rows.set_column(at, rows.schema.field(at), moved))


def _undefined(column: str) -> SqlError:
    return SqlError(f'column "{column}" does not exist', sqlstate="42703")
