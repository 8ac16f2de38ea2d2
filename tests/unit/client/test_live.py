"""What a subscription adds up to, in the order that it is shown."""

from __future__ import annotations

import pytest

from tidemark.client import Batch, Result
from tidemark.client.live import Contents
from tidemark.errors import InvalidUsage
from tidemark.types import BIGINT, INTEGER, TEXT, Column, array_of

COLUMNS = (
    Column("mz_timestamp", BIGINT),
    Column("mz_diff", BIGINT),
    Column("n", INTEGER),
    Column("Name", TEXT),
    Column("l", array_of(INTEGER)),
)


def batch(time: int, *changes: tuple[int, str | None, str | None, list | None]) -> Batch:
    rows = [(str(time), str(diff), *values) for diff, *values in changes]
    return Batch(time, Result(COLUMNS, rows, "", 0))


def test_batches_add_up():
    contents = Contents()
    contents.apply(batch(1, (2, "10", "a", ["1", None]), (1, "9", "b", None), (1, None, "c", [])))
    assert contents.rows(10) == [
        ("9", "b", None),
        ("10", "a", "{1,NULL}"),
        ("10", "a", "{1,NULL}"),
        (None, "c", "{}"),
    ]
    contents.apply(batch(5, (-1, "10", "a", ["1", None]), (-1, None, "c", [])))
    assert (len(contents), contents.time) == (2, 5)
    assert contents.rows(1) == [("9", "b", None)]


def test_order():
    contents = Contents('"Name" desc, n')
    contents.apply(batch(1, (1, "2", "a", None), (1, "1", "a", None), (1, "3", "b", None)))
    assert [row[0] for row in contents.rows(9)] == ["3", "1", "2"]
    contents = Contents("nope")
    contents.apply(batch(1, (1, "2", "a", None)))
    with pytest.raises(InvalidUsage, match="no column 'nope'"):
        contents.rows(1)
