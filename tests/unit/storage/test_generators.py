"""What every load generator promises: definite in any chunking, valid tables at every step."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import InvalidUsage, SqlError
from tidemark.storage.generators import Generator, generator
from tidemark.storage.generators.columns import MAX_STEP
from tidemark.types import arrow_schema

STEPS = 40

seeds = st.integers(0, 2**63 - 1)
kinds = st.one_of(
    st.tuples(
        st.just("counter"),
        st.fixed_dictionaries({}, optional={"max_cardinality": st.integers(1, 50)}),
    ),
    st.tuples(
        st.just("key value"),
        st.fixed_dictionaries(
            {
                "seed": seeds,
                "keys": st.integers(7, 60),
                "batch_size": st.integers(1, 7),
                "value_size": st.integers(1, 20),
                "delete_percent": st.integers(0, 100),
            }
        ),
    ),
    st.tuples(
        st.just("tpch"),
        st.fixed_dictionaries(
            {"seed": seeds, "scale_factor": st.just("0.001"), "refresh": st.integers(1, 90)}
        ),
    ),
    st.tuples(st.just("auction"), st.fixed_dictionaries({"seed": seeds, "history": st.just(25)})),
)
EXAMPLES = [
    ("auction", {"history": 25}),
    ("counter", {}),
    ("counter", {"max_cardinality": 3}),
    ("key value", {"keys": 50}),
    ("tpch", {"scale_factor": "0.001", "refresh": 100}),
]


def accumulated(generator: Generator, name: str, updates: pa.Table, step: int) -> pa.Table:
    """The rows whose count is not zero after `step`, with the count in the last column."""
    names = [column.name for column in generator.tables[name].columns]
    past = updates.filter(pc.less_equal(updates["_offset"], step))
    rows = past.group_by(names).aggregate([("_diff", "sum")])
    return rows.filter(pc.not_equal(rows["_diff_sum"], 0))


@settings(max_examples=60, deadline=None)
@given(kind=kinds, cuts=st.lists(st.integers(0, STEPS), max_size=8))
def test_any_chunking_gives_the_same_updates(kind: tuple[str, dict], cuts: list[int]):
    made = generator(*kind)
    whole = made.updates(0, STEPS)
    chunks = [made.updates(*chunk) for chunk in pairwise(sorted([0, *cuts, STEPS]))]
    for name, table in whole.items():
        assert pa.concat_tables(chunk[name] for chunk in chunks).equals(table), name


@settings(max_examples=60, deadline=None)
@given(kind=kinds, start=st.integers(1, MAX_STEP - 3))
def test_a_step_far_out_is_the_same_alone_and_within_a_range(kind: tuple[str, dict], start: int):
    made = generator(*kind)
    for name, table in made.updates(start - 1, start + 3).items():
        alone = made.updates(start, start + 1)[name]
        assert alone.equals(table.filter(pc.equal(table["_offset"], start))), name


@settings(max_examples=25, deadline=None)
@given(kind=kinds)
def test_every_step_leaves_rows_once_and_keys_unique(kind: tuple[str, dict]):
    made = generator(*kind)
    for name, updates in made.updates(0, STEPS).items():
        for step in np.unique(updates["_offset"].to_numpy())[::3]:
            rows = accumulated(made, name, updates, step)
            assert set(rows["_diff_sum"].to_pylist()) <= {1}, f"counts in {name} at step {step}"
            key = list(made.tables[name].key)
            distinct = rows.group_by(key).aggregate([]).num_rows
            assert distinct == rows.num_rows, f"keys of {name} at step {step}"


@pytest.mark.parametrize(("kind", "options"), EXAMPLES)
def test_schema_is_the_columns_then_offset_and_diff(kind: str, options: dict):
    made = generator(kind, options)
    for start, stop in [(0, 0), (0, 30), (7, 7), (20, 30)]:
        for name, table in made.updates(start, stop).items():
            expected = arrow_schema(made.tables[name].columns)
            expected = expected.append(pa.field("_offset", pa.int64()))
            assert table.schema == expected.append(pa.field("_diff", pa.int64()))
            table.validate(full=True)
            assert not any(column.null_count for column in table.columns), name
            offsets = table["_offset"].to_numpy()
            assert (np.diff(offsets) >= 0).all()
            assert start == stop or offsets.size == 0 or start <= offsets[0] <= offsets[-1] < stop


@pytest.mark.parametrize("kind", ["auction", "key value", "tpch"])
def test_seeds_differ(kind: str):
    one, two = (generator(kind, {"seed": seed}).updates(0, 2) for seed in (1, 2))
    assert not any(one[name].equals(two[name]) for name in one)


def counter(options: dict[str, str | int], *steps: int) -> list[tuple[int, int, int]]:
    table = generator("counter", options).updates(*steps)["counter"]
    return list(zip(*table.to_pydict().values(), strict=True))


def test_a_counter_counts():
    assert counter({}, 0, 3) == [(1, 0, 1), (2, 1, 1), (3, 2, 1)]
    assert counter({"max_cardinality": 2}, 1, 4) == [
        (2, 1, 1),
        (1, 2, -1),
        (3, 2, 1),
        (2, 3, -1),
        (4, 3, 1),
    ]


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (
            "kounter",
            {},
            r'"kounter" is not known \(known: auction, counter, key value, tpch\)',
        ),
        ("counter", {"seed": 1}, r'no option "seed" \(options: max_cardinality\)'),
        ("counter", {"max_cardinality": 0}, r"is 0 \(it must be an integer from 1 to"),
        ("tpch", {"scale_factor": "0"}, r"is '0' \(it must be a number from 0.001 to 10\)"),
        ("tpch", {"scale_factor": "NaN"}, r"is 'NaN' \(it must be a number from 0.001"),
        ("tpch", {"scale_factor": "big"}, r"is 'big' \(it must be a number from 0.001"),
        ("tpch", {"scale_factor": 0.5}, r"is 0.5 \(it must be a number from 0.001"),
        ("tpch", {"refresh": "1.5"}, r"is '1.5' \(it must be an integer from 1 to"),
        (
            "tpch",
            {"refresh": 15001},
            r"is 15001 \(it must be at most the number of orders, 15000\)",
        ),
        ("key value", {"keys": 5}, r'"batch_size" .* is 10 \(it must be at most KEYS, 5\)'),
        (
            "key value",
            {"keys": 2000, "value_size": 10**6},
            r'"keys" .* is 2000 \(with values of 1000000 bytes it must be at most 1000\)',
        ),
        ("key value", {"delete_percent": 101}, r"is 101 \(it must be an integer from 0 to 100\)"),
    ],
)
def test_wrong_options_say_what_is_allowed(kind: str, given: dict, message: str):
    with pytest.raises(SqlError, match=message):
        generator(kind, given)


@pytest.mark.parametrize(("kind", "options"), EXAMPLES)
def test_steps_out_of_range_are_refused(kind: str, options: dict):
    for start, stop in [(-1, 5), (5, 4), (0, MAX_STEP + 1)]:
        with pytest.raises(InvalidUsage, match=r"need 0 <= start <= stop"):
            generator(kind, options).updates(start, stop)
