"""Sorting within keys: whole keys come together, and few keys are sorted as many are."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from tidemark.persist import Config
from tidemark.persist.cache import Cache
from tidemark.persist.hot import hashes_of
from tidemark.persist.keyhash import HASH
from tidemark.persist.layout import Layout, Sizes, sort_stream
from tidemark.persist.merge import as_run
from tidemark.persist.order import Order, argsort
from tidemark.persist.regroup import by_key
from tidemark.persist.updates import DIFF, as_updates, consolidate

LAYOUT = Layout(("k",), ("v",))


def a_run(seed: int, keys: int, rows: int = 3_000) -> pa.Table:
    rng = np.random.default_rng(seed)
    numbers = {"k": rng.integers(0, keys, rows), "v": rng.integers(0, 500, rows)}
    updates = as_run(as_updates(pa.table(numbers), time=0), ("k",))
    return LAYOUT.prepare(updates, timed=False)


def streams(runs: list[pa.Table]) -> list:
    return [iter([run.slice(at, 100) for at in range(0, run.num_rows, 100)]) for run in runs]


@pytest.mark.parametrize("keys", [1, 4, 60, 5_000])
def test_nothing_is_lost_and_a_key_that_fits_is_in_one_piece(keys):
    runs = [a_run(seed, keys) for seed in range(4)]
    size = 40_000
    pieces = list(by_key(streams(runs), size))
    whole = pa.concat_tables(runs)
    assert sorted(map(str, pa.concat_tables(pieces).to_pylist())) == sorted(
        map(str, whole.to_pylist())
    )
    if whole.nbytes / keys < size:
        edges = [hashes_of(piece) for piece in pieces]
        assert all(a.max() < b.min() for a, b in itertools.pairwise(edges))
        assert len(pieces) > 1


@pytest.mark.parametrize(("keys", "files"), [(60, 1), (2, None)])
def test_whole_keys_need_no_merge(tmp_path, keys, files):
    runs = [a_run(seed, keys) for seed in range(4)]
    made = []
    with Cache(tmp_path, Config()).drafts() as drafts:

        def make(schema: pa.Schema):
            made.append(schema)
            return drafts.writer(schema)

        sizes = Sizes(20_000, 40_000)
        pieces = by_key(streams(runs), sizes.sort)
        run = sort_stream(pieces, LAYOUT, runs[0].schema, make, sizes, sums=True).finish()
    assert len(made) == files if files else len(made) > 1
    found = pa.concat_tables(run.slices(10_000))
    wanted = consolidate(pa.concat_tables(runs))
    assert found.to_pylist() == LAYOUT.sort(wanted.select(found.column_names)).to_pylist()
    assert found[DIFF].to_numpy().sum() == 12_000
    assert found.column_names[0] == HASH


@pytest.mark.parametrize("keys", [2, 20, 900, 2_000])
def test_few_keys_are_sorted_as_many_are(keys):
    rng = np.random.default_rng(keys)
    count = 40_000
    key = rng.integers(0, 2**64, keys, dtype=np.uint64)[rng.integers(0, keys, count)]
    for row in (
        rng.integers(0, 2**64, count, dtype=np.uint64),
        rng.integers(-50, 50, count),
        np.repeat(np.uint64(2**63), count),
    ):
        time = rng.integers(0, 5, count)
        found = argsort(Order(key, row), time, np.arange(count))
        assert (found == np.lexsort((time, row, key))).all()


def test_texts_that_repeat_are_moved_as_others_are():
    rng = np.random.default_rng(3)
    count = 40_000
    names = np.array(["", "ä", "region 7", None], dtype=object)
    k, v = rng.integers(0, 4, count), rng.integers(0, 10**6, count)
    columns = [pa.array(names[k]), pa.array(v), pa.array([f"{n}" for n in v])]
    updates = as_updates(pa.table(columns, names=["k", "v", "t"]), time=7)
    found = as_run(updates, ("k",))
    names = found.column_names
    assert found.sort_by([(n, "ascending") for n in names]) == consolidate(updates).select(
        names
    ).sort_by([(n, "ascending") for n in names])
