"""The .slt format: what is read, what is written back, and when two results are the same."""

from __future__ import annotations

import pytest

from slt_runner import (
    FormatError,
    Record,
    Result,
    difference,
    lines_of,
    parse,
    same_number,
    unparse,
)
from slt_views import Branch, Packed

FILE = """\
# what the file is about

statement ok
CREATE TABLE t (a integer, b text)

statement error division by (zero|nothing)
SELECT 1 /
  0

# a reason
skipif view
query IT rowsort same
SELECT a, b
FROM t
----
1\tone
2\tNULL

onlyif tidemark
query R
SELECT 1.5
----
1.5

hash-threshold 2

query I
SELECT 1
----
1

halt

query I
SELECT 2
"""


def record(types: str, *expected: str, sort: str = "nosort", threshold: int = 0) -> Record:
    return Record(1, (), "query", types=types, sort=sort, expected=expected, threshold=threshold)


def result(*rows: tuple[str | None, ...], oids: tuple[int, ...]) -> Result:
    return Result(list(rows), oids)


def test_a_file_is_read():
    records = parse(FILE)
    kinds = [found.kind for found in records]
    assert kinds == "comment statement statement query query hash-threshold query halt".split()
    _, made, failing, query, alone, _, last, _ = records
    assert (made.line, made.sql, made.error) == (3, "CREATE TABLE t (a integer, b text)", None)
    assert (failing.sql, failing.error) == ("SELECT 1 /\n  0", "division by (zero|nothing)")
    assert (query.types, query.sort, query.label) == ("IT", "rowsort", "same")
    assert query.sql == "SELECT a, b\nFROM t"
    assert query.expected == ("1\tone", "2\tNULL")
    assert [query.runs_on(engine) for engine in ("postgresql", "tidemark", "view")] == [1, 1, 0]
    assert [alone.runs_on(engine) for engine in ("postgresql", "tidemark", "view")] == [0, 1, 1]
    assert (alone.threshold, last.threshold) == (0, 2)


def test_a_file_is_written_back_as_it_was():
    assert unparse(parse(FILE)) == FILE.partition("\nquery I\nSELECT 2")[0]


@pytest.mark.parametrize(
    "text",
    [
        "query X\nSELECT 1",
        "query I sorted\nSELECT 1",
        "query I\n----\n1",
        "statement maybe\nSELECT 1",
        "statement ok\n",
        "skipif oracle\nquery I\nSELECT 1",
        "SELECT 1",
    ],
)
def test_what_is_no_record_is_refused(text: str):
    with pytest.raises(FormatError):
        parse(text)


def test_values_are_lines():
    rows = [("b", None), ("", "x\ty\n\\")]
    assert lines_of(record("TT"), rows) == ("b\tNULL", "(empty)\tx\\ty\\n\\\\")
    assert lines_of(record("TT", sort="rowsort"), rows)[0].startswith("(empty)")
    assert lines_of(record("TT", sort="valuesort"), [("b", "c"), ("a", "d")]) == tuple("abcd")
    (hashed,) = lines_of(record("TT", threshold=3), rows)
    assert hashed.startswith("4 values hashing to ")


def test_a_difference_is_told():
    wanted = record("IT", "1\ta", "2\tb")
    assert difference(wanted, result(("1", "a"), ("2", "b"), oids=(23, 25))) is None
    assert difference(wanted, result(("2", "b"), ("1", "a"), oids=(23, 25))) is not None
    assert difference(wanted, result(("1", "a"), oids=(23, 25))) is not None
    assert difference(wanted, result(("1", "a"), ("2", "b"), oids=(25, 25))) is not None
    assert difference(wanted, result(("1", "a"), ("2", None), oids=(23, 25))) is not None


def test_numbers_are_compared_as_numbers():
    wanted = record("IR", "1\t10.50", "2\t9", sort="rowsort")
    assert difference(wanted, result(("2", "9.0"), ("1", "10.5"), oids=(23, 1700))) is None
    assert difference(wanted, result(("2", "9.1"), ("1", "10.5"), oids=(23, 1700))) is not None


def test_same_number():
    assert same_number("0.3333333333333333", "0.33333333333333333333", inexact=False)
    assert same_number("471.1688185306361671", "471.168818530636", inexact=False)
    assert not same_number("471.1688185306371671", "471.168818530636", inexact=False)
    assert not same_number("0.33333333333", "0.33333333333333333333", inexact=False)
    assert not same_number("1.0000001", "1.0", inexact=False)
    assert same_number("0.30000000000000004", "0.30000000000000005", inexact=True)
    assert not same_number("0.3000000001", "0.3", inexact=True)
    assert not same_number("-0", "0", inexact=True)
    assert not same_number("NULL", "0", inexact=False)
    assert not same_number("NaN", "0", inexact=True)


def test_queries_of_several_types_share_a_view():
    texts = Branch(Record(1, (), "query", sql="SELECT 'a', 1"), Result([], (25, 23), (-1, -1)))
    numbers = Branch(
        Record(2, (), "query", sql="SELECT 2, 1.50;"), Result([], (23, 1700), (-1, (3 << 16) + 6))
    )
    packed = Packed("v", (texts, numbers), "slt_anchor")
    assert packed.sql() == (
        "SELECT 0 AS q, c1 AS s0, c0 AS s1, CAST(NULL AS numeric(3, 2)) AS s2"
        " FROM (\nSELECT 'a', 1\n) AS s (c0, c1)\nUNION ALL\n"
        "SELECT 1 AS q, c0, CAST(NULL AS text), c1 FROM (\nSELECT 2, 1.50\n) AS s (c0, c1)\nUNION ALL\n"
        "SELECT -1 AS q, CAST(NULL AS integer), CAST(NULL AS text), CAST(NULL AS numeric(3, 2))"
        " FROM slt_anchor WHERE one > 1"
    )
    held = result(("1", "2", None, "1.50"), ("0", "1", "a", None), oids=(23, 23, 25, 1700))
    found = packed.results(held)
    assert [each.rows for each in found] == [[("a", "1")], [("2", "1.50")]]
