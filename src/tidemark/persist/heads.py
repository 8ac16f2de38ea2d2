"""The first (or last) live rows of each group, found at its head however large the group is.

Deleted rows may stand in the way, so the reach into each run grows until enough live rows are
known. A run that was cut short may hold anything beyond the last row read, and more of that very
row: only what lies strictly before it, in the order of the runs, is known. A group is done when
enough live rows are known, or when no run has more of it.

Where keys collide, a group has more than one key and so no one order: it is read whole.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.persist.hot import Run
from tidemark.persist.keys import Keys
from tidemark.persist.layout import ROW, Layout, shaped
from tidemark.persist.updates import DIFF, META_FIELDS, TIME, consolidate

_GROUP = "_group"


def find_heads(
    runs: list[Run],
    asked: Keys,
    counts: np.ndarray,
    layout: Layout,
    schema: pa.Schema,
    *,
    as_of: int,
    last: bool,
) -> pa.Table:
    """At least `counts` live rows of each key, all from that end of its group."""
    wanted = asked.totals(counts)
    spans = [run.ranges(asked.hashes) for run in runs]
    whole = _crowded(runs, spans, asked, layout)
    # Some will be deleted: to begin with a few more is cheaper than to begin again.
    left, reach = np.arange(len(asked.hashes)), wanted + wanted // 2 + 4
    found = [pa.schema([*schema, META_FIELDS[1], (_GROUP, pa.int64())]).empty_table()]
    while left.size:
        most = np.where(whole[left], np.iinfo(np.int64).max, reach[left])
        tables, horizons, complete = [], [], np.ones(len(left), dtype=bool)
        for run, span in zip(runs, spans, strict=True):
            start, stop = (edge[left] for edge in span)
            count = np.minimum(stop - start, most)
            cut = np.flatnonzero(count < stop - start)
            start, stop = (stop - count, stop) if last else (start, start + count)
            tables.append(_seen(run, start, stop, left, asked, schema, as_of))
            if cut.size:
                complete[cut] = False
                edges = run.rows_at(start[cut] if last else stop[cut] - 1)
                edges = layout.with_row_hash(edges)
                horizons.append((left[cut], edges.select([*layout.order, ROW])))
        rows = _known(consolidate(pa.concat_tables(tables)), horizons, len(wanted), layout, last)
        live = rows[_GROUP].to_numpy()[rows[DIFF].to_numpy() > 0]
        complete |= np.bincount(live, minlength=len(wanted))[left] >= wanted[left]
        done = np.zeros(len(wanted), dtype=bool)
        done[left[complete]] = True
        found.append(rows.filter(pa.array(done[rows[_GROUP].to_numpy()])))
        left = left[~complete]
        reach[left] *= 4
    return pa.concat_tables(found).drop_columns([_GROUP])


def _seen(
    run: Run,
    start: np.ndarray,
    stop: np.ndarray,
    left: np.ndarray,
    asked: Keys,
    schema: pa.Schema,
    as_of: int,
) -> pa.Table:
    """These rows of a run, if they are of the keys and not after `as_of`, with their groups."""
    table, group = run.take(start, stop)
    group = left[group]
    mine = asked.matches(table, group)
    if TIME in table.column_names:
        mine &= table[TIME].to_numpy() <= as_of
    table = shaped(table, pa.schema([*schema, META_FIELDS[1]]))
    table = table.append_column(_GROUP, pa.array(group))
    return table if mine.all() else table.filter(pa.array(mine))


def _known(
    rows: pa.Table,
    horizons: list[tuple[np.ndarray, pa.Table]],
    groups: int,
    layout: Layout,
    last: bool,
) -> pa.Table:
    """The rows before each horizon: an edge for each of some groups."""
    if not horizons:
        return rows
    rows = layout.with_row_hash(rows)
    for cut, edges in horizons:
        slots = np.full(groups, -1)
        slots[cut] = np.arange(len(cut))
        at = slots[rows[_GROUP].to_numpy()]
        some = np.flatnonzero(at >= 0)
        ours = rows.select([*layout.order, ROW]).take(pa.array(some)).columns
        edge = edges.take(pa.array(at[some])).columns
        known = np.ones(rows.num_rows, dtype=bool)
        known[some] = _exceed(ours, edge) if last else _exceed(edge, ours)
        rows = rows.filter(pa.array(known))
    return rows.drop_columns([ROW])


def _crowded(
    runs: list[Run], spans: list[tuple[np.ndarray, np.ndarray]], asked: Keys, layout: Layout
) -> np.ndarray:
    """Which hashes stand for more than one key, stored or asked for.

    Within a run rows are sorted by hash and key, so the ends of a group tell.
    """
    result = asked.crowded()
    for run, (start, stop) in zip(runs, spans, strict=True):
        some = np.flatnonzero(stop > start)
        for ends in (start[some], stop[some] - 1):
            found = run.take(ends, ends + 1, columns=[*dict.fromkeys(layout.key)])
            result[some[~asked.matches(found.table, some)]] = True
    return result


def _exceed(left: list[pa.ChunkedArray], right: list[pa.ChunkedArray]) -> np.ndarray:
    """left > right, column by column, in the order that rows are sorted in."""
    result = np.zeros(len(left[0]), dtype=bool)
    tied = np.ones(len(left[0]), dtype=bool)
    for one, other in zip(left, right, strict=True):
        more = _exceeds(one, other)
        result |= tied & more
        tied &= ~more & ~_exceeds(other, one)
    return result


def _exceeds(left: pa.ChunkedArray, right: pa.ChunkedArray) -> np.ndarray:
    """left > right in the order that rows are sorted in: numbers, then NaN, then nulls."""
    exceeds = pc.fill_null(pc.greater(left, right), False)
    if pa.types.is_floating(left.type):
        nan = pc.and_(pc.is_nan(left), pc.invert(pc.is_nan(right)))
        exceeds = pc.or_(exceeds, pc.fill_null(nan, False))
    return pc.or_(exceeds, pc.and_(pc.is_null(left), pc.is_valid(right))).to_numpy()
