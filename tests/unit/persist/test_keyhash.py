"""The key hash is a stored format: equal keys hash alike however Arrow happens to hold them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import InvalidUsage
from tidemark.persist.keyhash import key_hash

PROPERTY = settings(deadline=None, print_blob=True, max_examples=150)

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
}


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
    with pytest.raises(InvalidUsage, match="cannot arrange by a column of type list"):
        hashed(pa.array([[1]]))
