"""The key-value generator against a replay from the beginning, which it does without.

K1…K3 are the invariants that `tidemark.storage.generators.key_value` lists; K1 is checked for all
generators in test_generators.py.
"""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.storage.generators import generator

STEPS = 60


def updates(options: dict, start: int = 0, stop: int = STEPS) -> pa.Table:
    return generator("key value", options).updates(start, stop)["key_value"]


@settings(max_examples=40, deadline=None)
@given(
    options=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 2**63 - 1),
            "keys": st.integers(5, 40),
            "batch_size": st.integers(1, 5),
            "value_size": st.integers(1, 30),
            "delete_percent": st.integers(0, 100),
        }
    )
)
def test_a_replay_agrees(options: dict):
    """Each retraction is of the row that is there, and each insertion of a key that is not."""
    table: dict[int, tuple[str, int]] = {}
    for row in updates(options).to_pylist():
        key, value = row["key"], (row["value"], row["step"])
        if row["_diff"] == 1:
            assert key not in table
            table[key] = value
            assert row["step"] == row["_offset"], "K2"
        else:
            assert table.pop(key) == value
        assert len(row["value"]) == options["value_size"]


@pytest.mark.parametrize(("keys", "batch_size"), [(20, 3), (20, 20), (7, 5), (1, 1)])
def test_every_step_touches_so_many_different_keys(keys: int, batch_size: int):
    """Without deletes a touch is a retraction and an insertion; a round of them covers all keys."""
    options = {"keys": keys, "batch_size": batch_size, "delete_percent": 0}
    touched: dict[int, list[int]] = {}
    for row in updates(options).to_pylist():
        if row["_diff"] == 1:
            touched.setdefault(row["_offset"], []).append(row["key"])
    assert touched.pop(0) == list(range(keys))
    assert list(touched) == list(range(1, STEPS))
    for found in touched.values():
        assert len(set(found)) == len(found) == batch_size
    turns = list(chain.from_iterable(touched.values()))
    for at in range(0, len(turns) - keys, keys):
        assert set(turns[at : at + keys]) == set(range(keys))


def test_keys_are_overwritten_deleted_and_written_again():
    kinds = {"overwritten": 0, "deleted": 0, "written again": 0}
    options = {"keys": 500, "batch_size": 100}
    by_touch: dict[tuple[int, int], list[int]] = {}
    for row in updates(options, 20, 120).to_pylist():
        by_touch.setdefault((row["_offset"], row["key"]), []).append(row["_diff"])
    for diffs in by_touch.values():
        kinds[{(-1, 1): "overwritten", (-1,): "deleted", (1,): "written again"}[tuple(diffs)]] += 1
    assert 7_800 < kinds["overwritten"] < 8_400, "81 % of 10,000"
    assert 750 < kinds["deleted"] < 1_050, "9 %"
    assert 750 < kinds["written again"] < 1_050, "9 %"


def test_about_one_key_in_ten_is_absent():
    found = updates({"keys": 2000, "batch_size": 500}, 0, 30)
    present = sum(found["_diff"].to_pylist())
    assert 1_740 < present < 1_860, "K3"


def test_pinned_rows():
    """Existing sources generate their past again: these rows must never change."""
    found = updates({"value_size": 12}, 0, 500)
    assert len(found) == 10_100
    assert [tuple(row.values()) for row in found.slice(len(found) - 2).to_pylist()] == [
        (940, "1kGe-qpB9Auk", 499, 499, 1),
        (559, "hR-TX4Rc8lvs", 499, 499, 1),
    ]
