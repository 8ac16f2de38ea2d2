"""Values that can be extreme: whatever is left out changes no extreme at any rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tidemark.compute import extremes
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.run import RANKED
from tidemark.frontier import Frontier
from tidemark.persist import MemBlob, MemConsensus, PersistClient, as_updates

RANKS = 4
Changes = list[tuple[str | None, int, int, int]]


def extremes_of(changes: Changes, choose) -> dict[str | None, list[int | None]]:
    """By group, the extreme at each rank from before the interval on."""
    found: dict[str | None, list[int | None]] = defaultdict(list)
    for key in {key for key, *_ in changes}:
        for rank in range(-1, RANKS):
            alive: Counter[int] = Counter()
            for other, value, at, diff in changes:
                if other == key and at <= rank:
                    alive[value] += diff
            found[key].append(choose((v for v, n in alive.items() if n > 0), default=None))
    return found


@pytest.mark.parametrize("ends", [("hi",), ("lo",), ("hi", "lo")])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_left_out_never_matters(
    seed: int, ends: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extremes, "MANY", 0)
    monkeypatch.setattr(extremes, "FEW", 2)
    rng = Random(seed)
    print("seed", seed)
    client = PersistClient(MemBlob(), MemConsensus())
    schema = pa.schema([("k0", pa.string()), ("v", pa.int64())])
    keys = ["a", "b", None, "new"]
    before = [(rng.choice(keys[:3]), rng.randrange(12)) for _ in range(rng.randrange(40))]
    rows = (
        pa.table([pa.array(column) for column in zip(*before, strict=True)], schema=schema)
        if (before)
        else schema.empty_table()
    )
    client.open_writer("s", schema=schema, key=("k0",)).compare_and_append(
        as_updates(rows, time=0), lower=Frontier(0), upper=Frontier(1)
    )
    alive, changes = list(before), []
    for rank in range(RANKS):
        for _ in range(rng.randrange(15)):
            if alive and rng.random() < 0.6:
                # The largest are deleted on purpose.
                row = max(alive, key=lambda r: r[1]) if rng.random() < 0.4 else rng.choice(alive)
                alive.remove(row)
                changes.append((*row, rank, -1))
            else:
                alive.append((rng.choice(keys), rng.randrange(12)))
                changes.append((*alive[-1], rank, 1))
    if not changes:
        return
    changed = pa.table(
        [pa.array(column) for column in zip(*changes, strict=True)],
        schema=pa.schema([*schema, *RANKED]),
    )
    lost = Counter(key for key, *_, diff in changes if diff < 0)
    groups = list(dict.fromkeys(key for key, *_ in changes))
    arrangement = Arrangements(client, tmp_path).acquire(
        "s", ("k0",), holder="test", as_of=0, order=("v",)
    )
    found = extremes.values_that_matter(
        arrangement,
        ends,
        pa.table({"k0": pa.array(groups, pa.string())}),
        np.array([lost[key] for key in groups]),
        changed,
        0,
    )
    assert found.schema.names == ["k0", "v", "_t", "_d"]
    kept = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    everything = [(*row, -1, 1) for row in before if row[0] in groups] + changes
    for end in ends:
        choose = max if end == "hi" else min
        assert extremes_of(kept, choose) == dict(extremes_of(everything, choose).items())
    client.close()


def test_of_many_changes_few_are_left(tmp_path: Path) -> None:
    client = PersistClient(MemBlob(), MemConsensus())
    schema = pa.schema([("k0", pa.string()), ("v", pa.int64())])
    values = np.arange(100_000)
    rows = pa.table([pa.repeat("a", len(values)), pa.array(values)], schema=schema)
    client.open_writer("s", schema=schema, key=("k0",)).compare_and_append(
        as_updates(rows, time=0), lower=Frontier(0), upper=Frontier(1)
    )
    gone = values[values % 2 == 1]
    changed = pa.table(
        [
            pa.repeat("a", len(gone)),
            pa.array(gone),
            pa.array(np.zeros(len(gone), dtype=np.int32)),
            pa.array(np.full(len(gone), -1)),
        ],
        schema=pa.schema([*schema, *RANKED]),
    )
    arrangement = Arrangements(client, tmp_path).acquire(
        "s", ("k0",), holder="test", as_of=0, order=("v",)
    )
    touched, lost = pa.table({"k0": ["a"]}), np.array([len(gone)])
    found = extremes.values_that_matter(arrangement, ("hi",), touched, lost, changed, 0)
    assert sorted(found["v"].to_pylist()) == [99_998, 99_999, 99_999]
    client.close()
