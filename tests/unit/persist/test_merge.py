"""The run order, and the merge of runs: exact, deterministic, and in bounded memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import Corruption, InvalidUsage
from tidemark.persist import order as order_module
from tidemark.persist.merge import merge_runs
from tidemark.persist.order import Order, argsort, is_sorted, order, sort
from tidemark.persist.ranges import Range
from tidemark.persist.updates import as_updates, consolidate, updates_schema

PROPERTY = settings(deadline=None, print_blob=True, max_examples=100)

SCHEMA = updates_schema(
    pa.schema(
        {"k": pa.int64(), "v": pa.string(), "f": pa.float64(), "n": pa.decimal128(10, 2)}.items()
    )
)

VALUES = st.tuples(
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from([None, "", "a", "tide"]),
    st.sampled_from([None, 0.0, -0.0, math.nan, 1.5]),
    st.sampled_from([None, Decimal("0.00"), Decimal("1.25")]),
)
ROWS = st.one_of(
    VALUES.map(lambda values: (*values, None)),
    st.sampled_from(["division by zero", ""]).map(lambda error: (None,) * 4 + (error,)),
)
UPDATES = st.lists(st.tuples(ROWS, st.integers(0, 5), st.integers(-2, 2)), max_size=40)
KEYS = st.sampled_from([(), ("k",), ("v", "k")])
BITS = st.sampled_from([64, 64, 2, 0])
"""How many bits of the hashes are left; with few of them different rows share a position."""


@contextmanager
def hash_bits(bits: int) -> Iterator[None]:
    mask = np.uint64(2**bits - 1)
    with (
        patch.object(order_module, "_row_hash", _masked(order_module._row_hash, mask)),
        patch.object(order_module, "combine", _masked(order_module.combine, mask)),
    ):
        yield


def _masked(function, mask):
    return lambda *args: function(*args) & mask


def table(updates: list) -> pa.Table:
    columns = zip(*((*row[:4], time, diff, row[4]) for row, time, diff in updates), strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)] if updates else []
    return pa.table(arrays, schema=SCHEMA) if updates else SCHEMA.empty_table()


def chunked(whole: pa.Table, cuts: list[int]) -> list[pa.Table]:
    edges = [0, *sorted(min(cut, whole.num_rows) for cut in cuts), whole.num_rows]
    return [whole.slice(a, b - a) for a, b in pairwise(edges)]


def merged(runs, *, key=(), horizon=None, chunk_rows=100) -> list[pa.Table]:
    return list(
        merge_runs([iter(run) for run in runs], key=key, horizon=horizon, chunk_rows=chunk_rows)
    )


def contents(updates: list[tuple], horizon: int | None) -> dict:
    counts: Counter = Counter()
    for (k, v, f, n, err), time, diff in updates:
        f = "nan" if f is not None and math.isnan(f) else f
        counts[(k, v, f, n, err, max(time, horizon or 0))] += diff
    return {update: diff for update, diff in counts.items() if diff}


def rows_of(chunks: list[pa.Table]) -> list[tuple]:
    return [
        ((r["k"], r["v"], r["f"], r["n"], r["_err"]), r["_time"], r["_diff"])
        for chunk in chunks
        for r in chunk.to_pylist()
    ]


def shown(chunks: list[pa.Table]) -> list[str]:
    """For comparison: Table.equals says that NaN differs from itself."""
    return [repr(chunk.to_pylist()) for chunk in chunks]


@PROPERTY
@given(
    runs=st.lists(st.tuples(UPDATES, st.lists(st.integers(0, 40), max_size=8)), max_size=5),
    key=KEYS,
    horizon=st.sampled_from([None, 0, 3, 9]),
    chunk_rows=st.integers(1, 50),
    bits=BITS,
)
def test_the_merge_is_the_sum_of_its_runs(runs, key, horizon, chunk_rows, bits):
    with hash_bits(bits):
        inputs = [chunked(sort(table(updates), key), cuts) for updates, cuts in runs]
        chunks = merged(inputs, key=key, horizon=horizon, chunk_rows=chunk_rows)
        found = rows_of(chunks)
        model = contents([update for updates, _ in runs for update in updates], horizon)
        assert contents(found, None) == model
        assert len(found) == len(model), "each row and time once, and no zeros"
        assert all(chunk.num_rows == chunk_rows for chunk in chunks[:-1])
        assert all(0 < chunk.num_rows <= chunk_rows for chunk in chunks[-1:])
        if chunks:
            assert chunks[0].schema == SCHEMA
            assert is_sorted(order(pa.concat_tables(chunks), key))
            again = merged([chunks], key=key, chunk_rows=chunk_rows)
            assert shown(again) == shown(chunks), "it is a run"


@PROPERTY
@given(
    runs=st.lists(UPDATES, min_size=1, max_size=4),
    data=st.data(),
    key=KEYS,
    horizon=st.sampled_from([None, 3]),
    bits=BITS,
)
def test_the_chunking_of_the_inputs_does_not_matter(runs, data, key, horizon, bits):
    cuts = st.lists(st.integers(0, 40), max_size=8)
    with hash_bits(bits):
        whole = [sort(table(updates), key) for updates in runs]
        expected = merged([[run] for run in whole], key=key, horizon=horizon, chunk_rows=7)
        found = merged(
            [chunked(run, data.draw(cuts)) for run in whole], key=key, horizon=horizon, chunk_rows=7
        )
        assert shown(found) == shown(expected)


@PROPERTY
@given(
    runs=st.lists(st.tuples(UPDATES, st.lists(st.integers(0, 40), max_size=8)), max_size=4),
    bounds=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=5),
    key=KEYS,
    horizon=st.sampled_from([None, 3]),
    bits=st.sampled_from([2, 1, 0]),
)
def test_merges_of_ranges_are_the_merge(runs, bounds, key, horizon, bits):
    """With so few positions that every one is a bound now and then."""
    with hash_bits(bits):
        inputs = [chunked(sort(table(updates), key), cuts) for updates, cuts in runs]
        expected = merged(inputs, key=key, horizon=horizon)
        edges = [None, *sorted(set(bounds)), None]
        found = [
            merge_runs(
                [iter(run) for run in inputs],
                key=key,
                horizon=horizon,
                chunk_rows=7,
                within=Range(start, end),
            )
            for start, end in pairwise(edges)
        ]
        assert by_position([c for chunks in found for c in chunks], key) == by_position(
            expected, key
        )


def by_position(chunks: list[pa.Table], key: tuple[str, ...]) -> list[tuple]:
    """The updates in order; different rows that share a position may come in any."""
    found = []
    for chunk in chunks:
        positions = order(chunk, key)
        found += [(positions.at(n), repr(row)) for n, row in enumerate(chunk.to_pylist())]
    assert [at for at, _ in found] == sorted(at for at, _ in found)
    return sorted(found)


def test_a_merge_of_a_range_stops_reading_behind_it():
    run = sort(numbered(range(1000), range(1000), [1] * 1000), ("k",))
    end = order(run, ("k",)).at(250)
    read = []

    def chunks() -> Iterator[pa.Table]:
        for piece in pieces(run, 100):
            read.append(piece)
            yield piece

    within = Range(None, end)
    found = list(merge_runs([chunks()], key=("k",), horizon=None, chunk_rows=1000, within=within))
    assert sum(chunk.num_rows for chunk in found) == 250
    assert len(read) == 3


def numbered(keys, values, times, diffs=None) -> pa.Table:
    rows = pa.table({"k": pa.array(keys), "v": pa.array(values)})
    rows = rows.append_column("_time", pa.array(times))
    rows = rows.append_column("_diff", pa.array(np.ones(len(rows), np.int64)))
    if diffs is not None:
        rows = rows.set_column(3, "_diff", pa.array(diffs))
    return as_updates(rows)


def pieces(whole: pa.Table, rows: int) -> list[pa.Table]:
    return [whole.slice(start, rows) for start in range(0, whole.num_rows, rows)]


def total(chunks: list[pa.Table]) -> pa.Table:
    whole = pa.concat_tables(chunks)
    return whole.sort_by([(name, "ascending") for name in whole.column_names])


@pytest.mark.parametrize("key", [(), ("k",)])
@pytest.mark.parametrize("horizon", [None, 500])
def test_one_heavy_key(key, horizon):
    rng = np.random.default_rng(1)
    runs = [
        sort(
            numbered(
                np.where(rng.random(3000) < 0.9, 7, rng.integers(0, 50, 3000)),
                rng.integers(0, 1000, 3000),
                rng.integers(0, 600, 3000),
                rng.integers(-1, 2, 3000),
            ),
            key,
        )
        for _ in range(4)
    ]
    found = merged([pieces(run, 100) for run in runs], key=key, horizon=horizon, chunk_rows=256)
    expected = pa.concat_tables(runs)
    if horizon:
        times = np.maximum(expected["_time"].to_numpy(), horizon)
        expected = expected.set_column(2, "_time", pa.array(times))
    assert total(found) == total([consolidate(expected)])


@pytest.mark.parametrize("horizon", [None, 4000, 10_000])
def test_one_row_at_thousands_of_times(horizon):
    """It spans many chunks of every run, between two rows that do not."""
    times = np.arange(5000)
    ones = np.ones(5000, np.int64)
    others = numbered([1, 3], [1, 3], [0, 0])
    heavy = [
        numbered(ones * 2, ones * 2, times, ones * diff) for diff in (1, 2, -1)
    ]  # in all: two a time
    runs = [sort(pa.concat_tables([others, updates]), ("k",)) for updates in heavy]
    found = merged([pieces(run, 64) for run in runs], key=("k",), horizon=horizon, chunk_rows=128)
    start = horizon or 0
    counts = Counter({max(time, start): 0 for time in range(5000)})
    for time in range(5000):
        counts[max(time, start)] += 2
    rows = [row for chunk in found for row in chunk.to_pylist()]
    assert {row["_time"]: row["_diff"] for row in rows if row["k"] == 2} == counts
    assert sorted(row["k"] for row in rows if row["k"] != 2) == [1, 3]
    assert [row["_diff"] for row in rows if row["k"] != 2] == [3, 3]


def test_a_row_that_comes_and_goes_leaves_nothing():
    one = sort(numbered(range(1000), range(1000), [1] * 1000), ("k",))
    gone = sort(numbered(range(1000), range(1000), [2] * 1000, [-1] * 1000), ("k",))
    assert merged([pieces(one, 10), pieces(gone, 30)], key=("k",), horizon=5) == []
    assert sum(c.num_rows for c in merged([[one], [gone]], key=("k",), horizon=2)) == 0
    assert sum(c.num_rows for c in merged([[one], [gone]], key=("k",), horizon=1)) == 2000


def test_nothing_to_merge():
    empty = SCHEMA.empty_table()
    assert merged([]) == merged([[]]) == merged([[], [empty], [empty, empty]]) == []
    one = table([((1, "a", 0.5, None, None), 3, 1)])
    assert merged([[], [empty, one, empty], []]) == [one]


def test_wrong_usage():
    with pytest.raises(InvalidUsage, match="chunk_rows is 0"):
        merged([], chunk_rows=0)


@pytest.mark.parametrize("key", [(), ("k",)])
def test_a_run_out_of_order_is_corruption(key):
    run = sort(numbered(range(100), range(100), [1] * 100), key)
    backwards = run.take(pa.array(np.arange(100)[::-1]))
    for bad in ([backwards], [run.slice(50), run.slice(0, 50)], [run, run]):
        with pytest.raises(Corruption, match="run 1 of a merge is not sorted"):
            merged([[run], bad], key=key)


def test_columns_of_lists_and_structs():
    rows = {
        "tags": pa.array([["a", None], [], None, ["b"]] * 2),
        "place": pa.array([{"x": 1, "y": [1.5]}, None, {"x": None, "y": []}, None] * 2),
        "k": pa.array([1, 2, 3, 4] * 2),
    }
    run = sort(as_updates(pa.table(rows), time=1), ("k",))
    assert [c["_diff"].to_pylist() for c in merged([[run], [run]], key=("k",))] == [[4] * 4]


DEFAULT = pa.default_memory_pool()
COUNTED = {shape: pa.proxy_memory_pool(DEFAULT) for shape in ("spread", "one row")}
"""Each counts its own peak. It must outlive all that is allocated from it."""


@pytest.mark.parametrize("shape", COUNTED)
def test_memory_does_not_grow_with_the_runs(shape):
    """The true peak of Arrow's memory, while 20 runs of 50 chunks go by."""
    runs, rows, chunks = 20, 1000, 50

    def run(number: int) -> Iterator[pa.Table]:
        """Chunks that exist only once they are asked for; in order, as the hashes are made up."""
        for chunk in range(chunks):
            ids = (np.arange(rows) + chunk * rows) * runs + number
            if shape == "one row":
                ids = np.zeros(rows, dtype=np.int64)
            times = np.arange(rows) + chunk * rows
            # Taken, because numpy's memory is not counted.
            yield numbered(ids, [f"{n:050}" for n in ids], times).take(pa.array(np.arange(rows)))

    def by_id(table: pa.Table, _key) -> Order:
        return Order(np.zeros(len(table), np.uint64), table["k"].to_numpy().astype(np.uint64))

    chunk_bytes, found, pool = next(run(0)).nbytes, 0, COUNTED[shape]
    with patch("tidemark.persist.merge.order", by_id):
        pa.set_memory_pool(pool)
        try:
            for chunk in merge_runs(
                [run(number) for number in range(runs)], key=(), horizon=10**6, chunk_rows=2 * rows
            ):
                found += chunk.num_rows
                del chunk
        finally:
            pa.set_memory_pool(DEFAULT)
    assert found == (runs * chunks * rows if shape == "spread" else 1)
    assert pool.bytes_allocated() == 0
    assert pool.max_memory() < (runs + 12) * chunk_bytes, "of 1000 chunks in all"


# The order itself.


def test_the_order_does_not_change():
    """Stored runs are sorted by these numbers: a change needs a new format version."""
    whole = table(
        [
            ((1, "a", 1.5, Decimal("1.25"), None), 0, 1),
            ((None, "a", None, None, None), 0, 1),
            ((None, None, None, None, "division by zero"), 0, 1),
        ]
    )
    assert order(whole, ("k",)).key.tolist() == FIXED_KEYS
    assert order(whole, ("k",)).row.tolist() == FIXED_ROWS
    assert order(whole, ()).key.tolist() == [0, 0, 0]
    assert order(whole, ()).row.tolist() == FIXED_ROWS


FIXED_KEYS = [6791897765849424158, 16082621929211679388, 16082621929211679388]
FIXED_ROWS = [11938635892024046033, 1236391972229789824, 4512726214978805375]


@PROPERTY
@given(UPDATES, st.lists(st.integers(0, 40), max_size=5), KEYS)
def test_the_order_is_of_the_row_alone(updates, cuts, key):
    """Not of chunks, times, diffs, nor of columns that came later and are null."""
    whole = table(updates)
    expected = [order(whole, key).at(n) for n in range(len(updates))]
    other = pa.concat_tables(chunked(whole, cuts))
    other = other.set_column(4, "_time", pa.array(range(len(updates)), pa.int64()))
    other = other.add_column(4, "new", pa.nulls(len(updates), pa.string()))
    assert [order(other, key).at(n) for n in range(len(updates))] == expected
    assert all(
        order(whole.slice(n, 1), key).at(0) == position for n, position in enumerate(expected)
    )


def test_rows_that_differ_differ_in_position():
    values = [(a, b, None, None, None) for a in (None, 0, 1) for b in (None, "", "a")]
    values += [(None, None, None, None, error) for error in ("", "a")]
    rows = order(table([(row, 0, 1) for row in values]), ()).row
    assert len(np.unique(rows)) == len(values)
    swapped = numbered([1, 2], [2, 1], [0, 0])
    assert len(np.unique(order(swapped, ()).row)) == 2


@PROPERTY
@given(UPDATES, KEYS, BITS)
def test_sort(updates, key, bits):
    with hash_bits(bits):
        whole = table(updates)
        found = sort(whole, key)
        assert is_sorted(order(found, key))
        assert contents(rows_of([found]), None) == contents(updates, None)
        assert found.num_rows == whole.num_rows


small = st.integers(0, 3)
wide = st.one_of(small, st.integers(0, 2**64 - 1), st.integers(2**64 - 4, 2**64 - 1))


@PROPERTY
@given(
    st.lists(st.tuples(wide, wide, st.integers(-(2**63), 2**63 - 1) | small), max_size=50),
    st.booleans(),
)
def test_argsort_is_lexsort(rows, one_key):
    key = np.array([0 if one_key else row[0] for row in rows], np.uint64)
    row = np.array([row[1] for row in rows], np.uint64)
    time = np.array([row[2] for row in rows], np.int64)
    number = np.arange(len(rows))
    found = argsort(Order(key, row), time, number)
    assert found.tolist() == np.lexsort((number, time, row, key)).tolist()


def test_argsort_of_values_that_differ_in_the_bits_that_packing_drops():
    key = np.repeat(np.arange(100, dtype=np.uint64), 10)
    row = np.tile(np.arange(10, dtype=np.uint64)[::-1] + np.uint64(2**63), 100)
    row[0] = 0  # so that the range of the values is wide
    found = argsort(Order(key, row))
    assert found.tolist() == np.lexsort((row, key)).tolist()


@PROPERTY
@given(st.lists(st.tuples(small, small), max_size=30), small, small)
def test_before(positions, key, row):
    positions.sort()
    found = Order(*(np.array([p[n] for p in positions], np.uint64) for n in (0, 1)))
    assert is_sorted(found)
    assert found.before((key, row)) == sum(p < (key, row) for p in positions)
    assert found.before((key, row), inclusive=True) == sum(p <= (key, row) for p in positions)
