"""The arithmetic of updates against a dict of sums."""

from __future__ import annotations

import struct
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import InvalidUsage
from tidemark.persist.updates import (
    DIFF,
    ERR,
    TIME,
    advance,
    as_updates,
    between,
    consolidate,
    diff_sum,
    negate,
    split_errors,
    updates_schema,
)

PROPERTY = settings(deadline=None, print_blob=True, max_examples=150)

SCHEMA = updates_schema(pa.schema([("k", pa.string()), ("v", pa.int64()), ("f", pa.float64())]))

updates = st.lists(
    st.tuples(
        st.sampled_from([None, "", "日本"]),
        st.sampled_from([None, -(2**63), 2**63 - 1]),
        st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("inf")]),
        st.integers(0, 4),
        st.integers(-3, 3),
        st.sampled_from([None, None, "boom"]),
    ),
    max_size=30,
)
cuts = st.lists(st.integers(0, 30), max_size=3)


def tabled(rows: list[tuple], cuts: list[int] = []) -> pa.Table:  # noqa: B006
    """The rows as a table in chunks, each a slice of something longer."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    whole = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = [whole.slice(a, b - a) for a, b in pairwise(edges)]
    return pa.concat_tables(pieces)


def summed(rows: list[tuple]) -> dict[tuple, int]:
    sums: Counter[tuple] = Counter()
    for k, v, f, time, diff, err in rows:
        # 0.0 equals -0.0, and for SQL every NaN equals every other.
        sums[k, v, "nan" if f is not None and f != f else f, time, err] += diff
    return {row: diff for row, diff in sums.items() if diff}


def rows_of(table: pa.Table) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


@PROPERTY
@given(updates, cuts)
def test_consolidate_sums_equal_updates(rows, cuts):
    found = consolidate(tabled(rows, cuts))
    assert found.schema == SCHEMA
    assert summed(rows_of(found)) == summed(rows)
    assert found.num_rows == len(summed(rows)), "one update each, and no zeros"
    assert diff_sum(found) == sum(row[4] for row in rows)


def test_floats_that_sql_holds_equal_are_one_row():
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000ABC))[0]
    rows = [("a", 1, f, 0, 1, None) for f in (0.0, -0.0, float("nan"), other_nan, None)]
    found = {str(row[2]): row[4] for row in rows_of(consolidate(tabled(rows)))}
    assert found == {"0.0": 2, "nan": 2, "None": 1}


@PROPERTY
@given(updates, cuts, st.integers(0, 7))
def test_advance_moves_times_up(rows, cuts, time):
    found = advance(tabled(rows, cuts), time)
    assert found.schema == SCHEMA
    moved = [(k, v, f, max(t, time), diff, err) for k, v, f, t, diff, err in rows]
    assert summed(rows_of(found)) == summed(moved)


@PROPERTY
@given(updates, cuts, st.integers(0, 7), st.one_of(st.none(), st.integers(0, 7)))
def test_between_negate_and_split(rows, cuts, lower, upper):
    table = tabled(rows, cuts)
    kept = [row for row in rows if lower <= row[3] and (upper is None or row[3] < upper)]
    assert summed(rows_of(between(table, lower, upper))) == summed(kept)
    assert consolidate(pa.concat_tables([table, negate(table)])).num_rows == 0
    good, bad = split_errors(table)
    assert good[ERR].null_count == good.num_rows
    assert bad[ERR].null_count == 0
    assert good.num_rows + bad.num_rows == table.num_rows


def test_as_updates_adds_what_is_missing():
    rows = pa.table({"k": ["a", "b"]})
    found = as_updates(rows, time=5, diff=-1)
    assert found.to_pydict() == {"k": ["a", "b"], TIME: [5, 5], DIFF: [-1, -1], ERR: [None, None]}
    assert as_updates(found) is found
    with pytest.raises(InvalidUsage, match="no _time"):
        as_updates(rows)


@pytest.mark.parametrize(
    ("names", "complaint"), [(["_time"], "reserved"), (["_x"], "reserved"), (["a", "a"], "repeat")]
)
def test_column_names_that_cannot_be(names, complaint):
    with pytest.raises(InvalidUsage, match=complaint):
        updates_schema(pa.schema([(name, pa.int64()) for name in names]))
