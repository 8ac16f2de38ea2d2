"""Runs are sorted as values are, whichever way a type is sorted, and equal rows are summed up."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tidemark.persist import Config, keyhash, layout
from tidemark.persist.cache import Cache
from tidemark.persist.layout import Layout, Sizes, sort_stream
from tidemark.persist.updates import DIFF, ERR, TIME

KINDS = {
    "bigint": (pa.int64(), [-(2**63), -5, 0, 7, 2**63 - 1]),
    "integer": (pa.int32(), [-(2**31), -5, 0, 7, 2**31 - 1]),
    "short decimal": (pa.decimal128(18, 2), [Decimal(n) / 100 for n in (-(10**17), -1, 0, 250)]),
    "long decimal": (pa.decimal128(38, 2), [Decimal(n) / 100 for n in (-(10**30), -1, 0, 10**30)]),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 7, 20), date(2026, 11, 16)]),
    "time": (pa.time64("us"), [time(0), time(23, 59, 59, 999_999), time(12)]),
    "timestamp": (
        pa.timestamp("us"),
        [datetime(1, 1, 1), datetime(1970, 1, 1), datetime(2026, 1, 1)],
    ),
    "double": (pa.float64(), [float("-inf"), -1.5, 0.0, 2.5, float("inf")]),
    "text": (pa.string(), ["", "a", "ab", "b", "é"]),
}


def updates(keys, values, kind: pa.DataType, diffs=None) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "k": pa.array(keys, pa.string()),
            "v": pa.array(values, kind),
            TIME: pa.array([1] * count, pa.int64()),
            DIFF: pa.array(diffs if diffs is not None else [1] * count, pa.int64()),
            ERR: pa.nulls(count, pa.string()),
        }
    )


def a_few(kind: str, *, nulls: bool = False) -> pa.Table:
    """Rows in two chunks, the second of which begins somewhere in its buffers."""
    type_, values = KINDS[kind]
    values = [*values, None] if nulls else values
    rng = np.random.default_rng(7)
    chosen = [values[i] for i in rng.integers(0, len(values), 90)]
    table = updates([f"k{i}" for i in rng.integers(0, 4, 90)], chosen, type_)
    return pa.concat_tables([table.slice(0, 30), table.slice(37)])


def the_order(table: pa.Table) -> list[tuple]:
    """Keys in the order of their hashes, values in theirs within it, nulls last."""
    found = zip(table[keyhash.HASH].to_pylist(), *(table[n].to_pylist() for n in "kv"), strict=True)
    return [(*row[:2], row[2] is None, row[2]) for row in found]


@pytest.mark.parametrize("collisions", [False, True])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_sorted_within_their_key(monkeypatch, kind, nulls, collisions):
    if collisions:
        monkeypatch.setattr(layout, "key_hash", lambda t, _: np.zeros(t.num_rows, dtype=np.uint64))
    ordered = Layout(("k",), ("v",))
    prepared = ordered.prepare(a_few(kind, nulls=nulls), timed=False)
    found = the_order(ordered.sort(prepared))
    least = KINDS[kind][1][0]
    by_value = sorted(the_order(prepared), key=lambda r: (*r[:3], least if r[2] else r[3]))
    assert found == by_value
    assert len({row[0] for row in found}) == (1 if collisions else 4)


@pytest.mark.parametrize("order", [(), ("v",)])
def test_equal_rows_are_summed_up_however_far_apart(tmp_path, order):
    cache = Cache(tmp_path, Config())
    by_key = Layout(("k",), order)
    rng = np.random.default_rng(8)
    many = updates(
        [f"k{i}" for i in rng.integers(0, 5, 3_000)],
        rng.integers(0, 20, 3_000).tolist(),
        pa.int64(),
        rng.choice([-1, 1], 3_000).tolist(),
    )
    # What cancels out in one piece, and what cancels out between two of them.
    gone = updates(["gone", "gone"], [1, 1], pa.int64(), [1, -1])
    pieces = [gone, many.slice(0, 1_000), gone.slice(0, 1), many.slice(1_000), gone.slice(1)]
    prepared = [by_key.prepare(piece, timed=False) for piece in pieces]
    with cache.drafts() as drafts:
        schema = prepared[0].schema
        # So small that there are more runs than are merged at a time.
        sizes = Sizes(batch=4_096, sort=800)
        run = sort_stream(prepared, by_key, schema, drafts.writer, sizes, sums=True).finish()
    found = pa.concat_tables(run.slices(1_000))
    rows = {
        (k, v): d for k, v, d in zip(*(found[n].to_pylist() for n in ("k", "v", DIFF)), strict=True)
    }
    assert len(rows) == run.rows
    wanted = many.group_by(["k", "v"]).aggregate([(DIFF, "sum")]).to_pylist()
    assert rows == {(r["k"], r["v"]): r[f"{DIFF}_sum"] for r in wanted if r[f"{DIFF}_sum"]}
    assert found.equals(by_key.sort(found))
