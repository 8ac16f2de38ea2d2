"""The key hash is a stored format: equal keys hash alike however Arrow happens to hold them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import InvalidUsage
from tidemark.persist import keyhash
from tidemark.persist.keyhash import key_hash

PROPERTY = settings(deadline=None, print_blob=True, max_examples=150)

INT32 = st.integers(-(2**31), 2**31 - 1)

TYPES = {
    pa.bool_(): st.booleans(),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.decimal128(38, 16): st.decimals(-(10**20), 10**20, places=16),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.null(): st.none(),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.decimal32(9, 2): st.decimals(-(10**6), 10**6, places=2),
    pa.decimal256(60, 16): st.decimals(-(10**20), 10**20, places=16),
    pa.large_string(): st.text(),
    pa.large_binary(): st.binary(),
    pa.string_view(): st.text(),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date64(): st.dates(),
    pa.time32("s"): st.times().map(lambda time: time.replace(microsecond=0)),
    pa.time64("us"): st.times(),
    pa.duration("us"): st.timedeltas(datetime.timedelta(-1000), datetime.timedelta(1000)),
    pa.month_day_nano_interval(): st.builds(
        lambda *parts: pa.MonthDayNano(parts), INT32, INT32, st.integers(-(2**63), 2**63 - 1)
    ),
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=3), max_size=3),
    pa.large_list(pa.list_(pa.int8())): st.lists(
        st.lists(st.none() | st.integers(0, 9), max_size=2), max_size=3
    ),
    pa.list_(pa.int32(), 2): st.lists(st.none() | INT32, min_size=2, max_size=2),
    pa.map_(pa.string(), pa.int64()): st.lists(st.tuples(st.text(max_size=2), INT32), max_size=3),
    pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}): st.fixed_dictionaries(
        {"a": st.none() | INT32, "b": st.none() | st.lists(st.text(max_size=2), max_size=2)}
    ),
}
"""What types.py knows, and whatever else Spark or another writer may hand us."""


def hashed(*arrays: pa.Array | pa.ChunkedArray) -> list[int]:
    table = pa.table(list(arrays), names=[f"c{n}" for n in range(len(arrays))])
    return key_hash(table, table.column_names).tolist()


@st.composite
def columns(draw) -> tuple[pa.DataType, list]:
    kind = draw(st.sampled_from(list(TYPES)))
    return kind, draw(st.lists(st.one_of(st.none(), TYPES[kind]), max_size=20))


@PROPERTY
@given(columns(), st.lists(st.integers(0, 20), max_size=4), st.integers(0, 5))
def test_chunks_slices_and_offsets_do_not_matter(column, cuts, offset):
    kind, values = column
    expected = [hashed(pa.array([value], kind))[0] for value in values]
    whole = pa.array(values, kind)
    assert hashed(whole) == expected

    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    chunks = [whole.slice(a, b - a) for a, b in pairwise(edges)]
    assert hashed(pa.chunked_array(chunks, kind)) == expected

    # The same values in the middle of longer buffers, with other values around them.
    around = [*values[:1], *[None] * offset]
    padded = pa.array([*around, *values, *around], kind).slice(len(around), len(values))
    assert hashed(padded) == expected
    assert hashed(padded.slice(1)) == expected[1:]


@PROPERTY
@given(columns(), columns())
def test_several_columns(one, two):
    length = min(len(one[1]), len(two[1]))
    a, b = pa.array(one[1][:length], one[0]), pa.array(two[1][:length], two[0])
    for row, value in enumerate(hashed(a, b)):
        assert hashed(a.slice(row, 1), b.slice(row, 1)) == [value]


@PROPERTY
@given(st.lists(st.one_of(st.none(), st.integers(-128, 127))))
def test_integers_of_every_width_hash_alike(values):
    expected = hashed(pa.array(values, pa.int64()))
    for kind in (pa.int8(), pa.int16(), pa.int32()):
        assert hashed(pa.array(values, kind)) == expected
    small = [value if value is None or value >= 0 else None for value in values]
    assert hashed(pa.array(small, pa.uint32())) == hashed(pa.array(small, pa.int64()))


def test_floats_that_are_equal_hash_alike():
    patterns = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000ABC], np.uint64)
    assert len(set(hashed(pa.array(patterns.view(np.float64))))) == 1, "every NaN"
    assert len(set(hashed(pa.array([0.0, -0.0])))) == 1
    assert hashed(pa.array([1.5, None], pa.float32())) == hashed(pa.array([1.5, None]))


def test_nulls_are_not_zero_nor_empty():
    for kind, zero in ((pa.int64(), 0), (pa.string(), ""), (pa.decimal128(9, 2), Decimal(0))):
        assert len(set(hashed(pa.array([None, zero], kind)))) == 2
    # What lies in a null slot's bytes is nobody's business.
    valid = pa.py_buffer(b"\x00")
    junk = [pa.py_buffer(np.array([n, n], np.int64).tobytes()) for n in (1, 2)]
    for kind in (pa.int64(), pa.decimal128(38, 0)):
        one, two = (pa.Array.from_buffers(kind, 1, [valid, buffer]) for buffer in junk)
        assert hashed(one) == hashed(two) == hashed(pa.array([None], kind))


def test_neighbouring_strings_do_not_flow_into_each_other():
    assert (
        len(set(hashed(pa.array(["ab", "a", "b", "", "ba", "a\0", "\0a", "\0", "aä", "äa"])))) == 10
    )
    left = hashed(pa.array(["ab", "a"]), pa.array(["c", "bc"]))
    assert left[0] != left[1]


def test_the_format_does_not_change():
    """Stored parts are sorted by these numbers: a change needs a new format version."""
    assert hashed(pa.array([0, 1, -1, None, 2**62])) == FIXED["int"]
    assert hashed(pa.array(["", "a", "tide", "日本", None])) == FIXED["text"]
    assert hashed(pa.array([0.0, 1.5, float("nan")])) == FIXED["float"]
    assert (
        hashed(pa.array([Decimal("1.25"), Decimal("-1.25")], pa.decimal128(10, 2))) == FIXED["dec"]
    )
    assert hashed(pa.array([1, 2]), pa.array(["a", None])) == FIXED["two"]
    assert key_hash(pa.table({"a": [1, 2]}), []).tolist() == [0, 0]


FIXED: dict[str, list[int]] = {
    "int": [
        12035550249420947055,
        6791897765849424158,
        6755974106381971767,
        16082621929211679388,
        13758858877095464340,
    ],
    "text": [
        12035550249420947055,
        5055067818264383545,
        7067540728530838489,
        12227257470686906923,
        16082621929211679388,
    ],
    "float": [12035550249420947055, 7640868585037623358, 6009531555643646463],
    "dec": [12274091512731769569, 13769067350307019888],
    "two": [8775505563975080595, 16968973008670740433],
}


def test_hashes_spread():
    found = np.array(hashed(pa.array(range(20_000))), dtype=np.uint64)
    assert len(np.unique(found)) == 20_000
    for bits in (found >> np.uint64(56), found & np.uint64(0xFF)):
        counts = np.bincount(bits.astype(np.int64), minlength=256)
        assert counts.min() > 30, "every top and bottom byte is used"


def test_other_types_are_refused():
    with pytest.raises(InvalidUsage, match="cannot hash a column of type list_view"):
        hashed(pa.array([[1]], pa.list_view(pa.int64())))


# The definition once more, a value at a time.

P, M = 0x9E3779B97F4A7C15, 2**64


def mixed(n: int) -> int:
    n = (n + P) % M
    n = (n ^ n >> 30) * 0xBF58476D1CE4E5B9 % M
    n = (n ^ n >> 27) * 0x94D049BB133111EB % M
    return n ^ n >> 31


def sequence(items: list[int] | bytes) -> int:
    total = sum((item + 1) * pow(P, at + 1, M) for at, item in enumerate(items))
    return mixed((total + len(items)) % M)


@PROPERTY
@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 50))
def test_the_definition_of_bytes(values, block):
    """Also with blocks so small that a value spans several of them."""
    with patch.object(keyhash, "_BLOCK", block):
        assert hashed(pa.array(values, pa.binary())) == [mixed(sequence(v)) for v in values]


def test_long_values():
    values = [b"a", b"tide" * 10_000, b"", b"x" * (keyhash._BLOCK - 1), b"mark" * 30_000, b"", b"z"]
    expected = [mixed(sequence(value)) for value in values]
    assert hashed(pa.array(values)) == hashed(pa.array(values, pa.large_binary())) == expected


def test_the_definition_of_the_rest():
    def words(*values: int) -> int:
        found = 0
        for value in values:
            found = mixed((found * P + value) % M)
        return found

    assert hashed(pa.array([-2, 3], pa.int8())) == [mixed(mixed(M - 2)), mixed(mixed(3))]
    for kind in (pa.decimal32(5, 1), pa.decimal64(10, 1), pa.decimal128(20, 1)):
        assert hashed(pa.array([Decimal("-2.5")], kind)) == [mixed(words(M - 25, M - 1))]
    wide = hashed(pa.array([Decimal("-2.5")], pa.decimal256(50, 1)))
    assert wide == [mixed(words(M - 25, M - 1, M - 1, M - 1))]
    null = 0xC2B2AE3D27D4EB4F
    tags = sequence([sequence(b"a"), null])
    assert hashed(pa.array([["a", None]])) == [mixed(tags)]
    place = pa.array([{"x": 1, "y": ["a", None]}, {"x": None, "y": None}, None])
    assert hashed(place) == [
        mixed(words(mixed(1), tags)),
        mixed(words(null, null)),
        mixed(null),
    ]


def test_encodings_do_not_matter():
    values = ["tide", None, "mark", "tide"]
    expected = hashed(pa.array(values))
    assert hashed(pa.array(values, pa.large_string())) == expected
    assert hashed(pa.array(values, pa.string_view())) == expected
    assert hashed(pa.array(values).dictionary_encode()) == expected
    assert hashed(pc.run_end_encode(pa.array(values))) == expected
    assert hashed(pa.array(values, pa.json_())) == expected
    uuid = bytes(range(16))
    assert hashed(pa.array([uuid], pa.uuid())) == hashed(pa.array([uuid], pa.binary()))
    with_null = pa.DictionaryArray.from_arrays([0, 1, None, 0], ["tide", None])
    assert hashed(with_null) == hashed(pa.array(["tide", None, None, "tide"]))


def test_many_batches_and_many_tiny_chunks():
    values = pa.array([None if n % 7 == 0 else f"value {n}" for n in range(40_000)])
    expected = hashed(values)
    assert expected == [
        h for at in range(0, 40_000, 9_000) for h in hashed(values.slice(at, 9_000))
    ]
    tiny = pa.chunked_array([values.slice(at, 3) for at in range(0, 3000, 3)])
    assert hashed(tiny) == expected[:3000]
