"""Updates as Arrow tables: the row's columns, then `_time`, `_diff` and `_err`.

An update says that `_diff` copies of a row came (or, negative, went) at `_time`. An update whose
`_err` is not null is an error row: of its other columns only those that say whose error it is are
not null. All arithmetic here is on whole columns.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import InvalidUsage

TIME, DIFF, ERR = "_time", "_diff", "_err"

META_FIELDS = (
    pa.field(TIME, pa.int64()),
    pa.field(DIFF, pa.int64()),
    pa.field(ERR, pa.string()),
)


_STORABLE = (
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
"""Types that can be hashed, grouped and written as Parquet: rows of others could not be summed."""


def updates_schema(row: pa.Schema) -> pa.Schema:
    """The schema of updates of rows of schema `row`."""
    for name in row.names:
        if name.startswith("_"):
            raise InvalidUsage(f'column "{name}": names that begin with _ are reserved')
    if len(set(row.names)) != len(row.names):
        raise InvalidUsage(f"column names repeat: {', '.join(row.names)}")
    for field in row:
        if not any(accepts(field.type) for accepts in _STORABLE):
            raise InvalidUsage(
                f'column "{field.name}": values of type {field.type} cannot be stored',
                hint="lists and structs can be kept as JSON text",
            )
    return pa.schema([*row, *META_FIELDS])


def row_names(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name not in (TIME, DIFF, ERR)]


def as_updates(
    rows: pa.Table, *, time: int | None = None, diff: int = 1, schema: pa.Schema | None = None
) -> pa.Table:
    """`rows` with whichever of the three columns they lack."""
    count = rows.num_rows
    if TIME not in rows.column_names:
        if time is None:
            raise InvalidUsage("rows carry no _time and none was given")
        rows = rows.append_column(META_FIELDS[0], pa.repeat(pa.scalar(time, pa.int64()), count))
    if DIFF not in rows.column_names:
        rows = rows.append_column(META_FIELDS[1], pa.repeat(pa.scalar(diff, pa.int64()), count))
    if ERR not in rows.column_names:
        rows = rows.append_column(META_FIELDS[2], pa.nulls(count, pa.string()))
    return rows.select(schema.names).cast(schema) if schema is not None else rows


def consolidate(updates: pa.Table) -> pa.Table:
    """Equal rows at equal times summed into one update, and zeros dropped."""
    updates = canonical(updates)
    if updates.num_rows < 2:
        return updates.filter(pc.not_equal(updates[DIFF], 0)) if updates.num_rows else updates
    keys = [name for name in updates.column_names if name != DIFF]
    grouped = updates.group_by(keys, use_threads=False).aggregate([(DIFF, "sum")])
    grouped = grouped.filter(pc.not_equal(grouped[f"{DIFF}_sum"], 0))
    return grouped.rename_columns([*keys, DIFF]).select(updates.column_names)


def canonical(updates: pa.Table) -> pa.Table:
    """-0.0 as 0.0 and every NaN as one: SQL holds them equal, Arrow groups by their bits."""
    for at, field in enumerate(updates.schema):
        if pa.types.is_floating(field.type):
            values = pc.add(updates.column(at), pa.scalar(0.0, field.type))
            values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), field.type), values)
            updates = updates.set_column(at, field, values)
    return updates


def advance(updates: pa.Table, time: int) -> pa.Table:
    """Times before `time` moved up to it."""
    return with_time(updates, pc.max_element_wise(updates[TIME], pa.scalar(time, pa.int64())))


def with_time(updates: pa.Table, times: pa.ChunkedArray | pa.Array) -> pa.Table:
    return updates.set_column(updates.schema.get_field_index(TIME), META_FIELDS[0], times)


def between(updates: pa.Table, lower: int, upper: int | None) -> pa.Table:
    """Updates with lower <= time < upper (None: no bound)."""
    mask = pc.greater_equal(updates[TIME], lower)
    if upper is not None:
        mask = pc.and_(mask, pc.less(updates[TIME], upper))
    return updates if pc.all(mask).as_py() else updates.filter(mask)


def negate(updates: pa.Table) -> pa.Table:
    at = updates.schema.get_field_index(DIFF)
    return updates.set_column(at, META_FIELDS[1], pc.negate(updates[DIFF]))


def concat(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    tables = [table for table in tables if table.num_rows]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def split_errors(updates: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Good updates and error updates."""
    if updates[ERR].null_count == updates.num_rows:
        return updates, updates.slice(0, 0)
    good = pc.is_null(updates[ERR])
    return updates.filter(good), updates.filter(pc.invert(good))


def time_bounds(updates: pa.Table) -> tuple[int, int]:
    """The least and the greatest time; there must be some."""
    times = updates[TIME].to_numpy()
    return int(times.min()), int(times.max())


def diff_sum(updates: pa.Table) -> int:
    return int(updates[DIFF].to_numpy().sum())
