"""Filters: what is pushed down equals filtering afterwards, and statistics never lose a row."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.errors import Corruption, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import Config, MemBlob, MemConsensus, PersistClient
from tidemark.persist.filters import (
    MAX_TEXT,
    OPERATORS,
    clauses,
    encoded,
    expression,
    may_match,
    statistics,
)
from tidemark.persist.part import describe, write_part
from tidemark.persist.state import ColumnStats
from tidemark.persist.updates import DIFF, ERR, TIME, as_updates, updates_schema

PROPERTY = settings(deadline=None, print_blob=True, max_examples=100)

NAN, INF = math.nan, math.inf
LONG = "a common prefix of just forty characters"
BIG = 12345678901234567890123456789012345678

# A few values of each type, so that equal ones, neighbours and extremes are frequent.
VALUES: dict[str, tuple[pa.DataType, list]] = {
    "small": (pa.int32(), [-(2**31), -1, 0, 1, 2, 2**31 - 1]),
    "big": (pa.int64(), [-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1]),
    "float": (pa.float64(), [NAN, -INF, -1.5, -0.0, 0.0, 5e-324, 0.1, INF]),
    "half": (pa.float32(), [NAN, -0.0, 0.1, 1.5]),
    "money": (pa.decimal128(10, 2), [Decimal(n) / 100 for n in (-9999, -1, 0, 1, 100, 12345)]),
    "wide": (pa.decimal128(38, 0), [Decimal(n) for n in (-BIG, BIG - 1, BIG, BIG + 1)]),
    "day": (
        pa.date32(),
        [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)],
    ),
    "at": (
        pa.timestamp("us"),
        [
            datetime(1969, 12, 31, 23, 59, 59, 999999),
            datetime(1970, 1, 1),
            datetime(2024, 2, 29, 12),
        ],
    ),
    "ms": (pa.timestamp("ms"), [datetime(1970, 1, 1), datetime(2024, 2, 29, 12, 0, 0, 1000)]),
    "flag": (pa.bool_(), [False, True]),
    "text": (
        pa.string(),
        ["", "a", "b", "\x00", "ä", "\uffff", "\U0001f30a", "\U0010ffff"]
        + [LONG, LONG + "a", LONG + "b", LONG[:MAX_TEXT], LONG[:MAX_TEXT] + "\U0010ffff"]
        + ["\U0010ffff" * n for n in (MAX_TEXT, MAX_TEXT + 1)]
        + ["a" * (MAX_TEXT - 1) + last for last in ("\ud7ff", "\ud7ffz", "\ue000", "\U0010ffffz")],
    ),
}
SCHEMA = updates_schema(pa.schema([(name, kind) for name, (kind, _) in VALUES.items()]))

rows = st.fixed_dictionaries(
    {name: st.one_of(st.none(), st.sampled_from(values)) for name, (_, values) in VALUES.items()}
)
tables = st.lists(st.one_of(rows, st.just({ERR: "boom"})), min_size=1, max_size=6)


def other_values(name: str) -> st.SearchStrategy:
    """What may be compared with a column: values of its type, and some that lie between them."""
    between = {
        "small": [0.5, Decimal("0.5"), 2**40],
        "big": [Decimal("0.5")],
        "float": [Decimal("0.1"), 1],
        "money": [Decimal("0.005"), Decimal("99999999.99")],
        "day": [datetime(2024, 2, 29, 12), datetime(1969, 12, 31, 1)],
        "at": [date(1970, 1, 1), date(2024, 2, 29)],
        "ms": [datetime(1970, 1, 1, 0, 0, 0, 500), datetime(2024, 2, 29, 12)],
    }
    return st.sampled_from(VALUES[name][1] + between.get(name, []))


@st.composite
def predicates(draw):
    name = draw(st.sampled_from(sorted(VALUES)))
    operator = draw(st.sampled_from(OPERATORS))
    if operator not in ("in", "not in"):
        return name, operator, draw(other_values(name))
    # A list is of the column's type: Arrow casts the whole of it at once.
    values = st.lists(st.sampled_from(VALUES[name][1]), min_size=1, max_size=3)
    return name, operator, draw(values)


filters = st.lists(st.lists(predicates(), min_size=1, max_size=2), min_size=1, max_size=2)


def tabled(rows: list[dict], time: int) -> pa.Table:
    table = pa.Table.from_pylist(rows, SCHEMA).drop_columns([TIME, "_diff"])
    return as_updates(table, time=time, schema=SCHEMA)


def counted(table: pa.Table) -> Counter:
    """-0.0 and 0.0 are one value to SQL; consolidating one row alone leaves it as it was."""
    return Counter(str(row).replace("-0.0,", "0.0,") for row in table.to_pylist())


def comparable(table: pa.Table, filter) -> pa.Table | None:
    """What Arrow itself makes of the filter; None if it cannot compare these types."""
    try:
        return table.filter(expression(clauses(filter, SCHEMA)))
    except (pa.ArrowException, OverflowError):
        return None


@PROPERTY
@given(tables, filters)
@example([{"small": None}], [[("small", "not in", [1])]])
@example([{"small": 1}], [[("small", "<", 1.5)]])
@example([{"day": date(2024, 2, 29)}], [[("day", "<", datetime(2024, 2, 29, 12))]])
@example([{"ms": datetime(1970, 1, 1)}], [[("ms", "<", datetime(1970, 1, 1, 0, 0, 0, 500))]])
@example([{"wide": Decimal(BIG)}], [[("wide", "<", Decimal(BIG + 1))]])
@example([{"big": 2**53 + 1}], [[("big", ">", float(2**53))]])
def test_a_part_with_a_match_is_never_skipped(rows, filter):
    table = tabled(rows, 0)
    part = describe(table, size=1, schema=0, first=(0, 0), key="s/0-x")
    found = comparable(table, filter)
    if found is not None and found.num_rows:
        assert may_match(part, clauses(filter, SCHEMA), SCHEMA)


@PROPERTY
@given(st.lists(tables, min_size=1, max_size=4), filters)
def test_pushed_down_is_filtered_afterwards(batches, filter):
    config = Config(inline_total=0, audit=1)
    client = PersistClient(MemBlob(), MemConsensus(), config=config)
    writer = client.open_writer("s", schema=pa.schema(list(SCHEMA)[:-3]))
    for time, rows in enumerate(batches):
        writer.compare_and_append(
            tabled(rows, time), lower=Frontier(time), upper=Frontier(time + 1)
        )
    as_of = len(batches) - 1
    truth = comparable(client.open_reader("s").snapshot(as_of), filter)
    if truth is None:
        return
    # Groups of -0.0 and 0.0, or of NaNs, are one row after consolidation in either order.
    assert counted(client.open_reader("s", filter=filter).snapshot(as_of)) == counted(truth)
    columns = sorted({column for clause in filter for column, *_ in clause})[:1]
    narrow = client.open_reader("s", filter=filter, columns=columns).snapshot(as_of)
    assert narrow.column_names == [*columns, TIME, "_diff", ERR]
    assert sum(narrow["_diff"].to_pylist()) == sum(truth["_diff"].to_pylist())


@PROPERTY
@given(tables)
def test_error_rows_pass_every_filter(rows):
    table = tabled([*rows, {ERR: "boom"}], 0)
    part = describe(table, size=1, schema=0, first=(0, 0), key="s/0-x")
    impossible = clauses([("small", "=", 77), ("flag", "!=", True)], SCHEMA)
    assert may_match(part, impossible, SCHEMA)
    passed = table.filter(expression(impossible))
    assert set(passed[ERR].to_pylist()) == {"boom"}


@PROPERTY
@given(tables)
def test_statistics_are_bounds(rows):
    """In the form in which they are kept, no value of a column lies outside."""
    table = tabled(rows, 0)
    found = statistics(table)
    assert found.pop(DIFF).nulls == 0
    for name, stats in found.items():
        kind = VALUES[name][0]
        values = [value for value in table[name] if value.is_valid]
        assert stats.nulls == table.num_rows - len(values)
        for value in (encoded(value, kind) for value in values):
            if value is not None:
                assert stats.least is None or stats.least <= value
                assert stats.most is None or value <= stats.most
        for bound in (stats.least, stats.most):
            assert not isinstance(bound, str) or len(bound) <= MAX_TEXT


def test_statistics_are_tight_where_they_can_be():
    table = tabled(
        [{"small": 3, "text": "b" * 40, "money": Decimal("1.50"), "day": date(1970, 1, 3)}], 0
    )
    stats = statistics(table)
    assert stats["small"] == ColumnStats(0, 3, 3)
    assert stats["text"] == ColumnStats(0, "b" * MAX_TEXT, "b" * (MAX_TEXT - 1) + "c")
    assert stats["money"] == ColumnStats(0, 150, 150)
    assert stats["day"] == ColumnStats(0, 2, 2)
    assert stats["float"] == ColumnStats(1)
    assert "half" not in stats, "single floats have no statistics: Arrow compares them as doubles"


def test_an_old_part_without_the_column_has_nulls_in_it():
    """A filter on a column that came later neither fails nor skips wrongly."""
    client = PersistClient(MemBlob(), MemConsensus(), config=Config(inline_total=0, audit=1))
    writer = client.open_writer("s", schema=pa.schema([("k", pa.int64())]))
    old = as_updates(pa.table({"k": [1]}), time=0, schema=writer.schema)
    writer.compare_and_append(old, lower=Frontier(0), upper=Frontier(1))
    later = pa.schema([("k", pa.int64()), ("v", pa.string())])
    assert writer.evolve_schema(later) is None
    new = as_updates(pa.table({"k": [2], "v": ["x"]}), time=1, schema=writer.schema)
    writer.compare_and_append(new, lower=Frontier(1), upper=Frontier(2))

    def keys(filter) -> list[int]:
        return sorted(client.open_reader("s", filter=filter).snapshot(1)["k"].to_pylist())

    assert keys([("v", "=", "x")]) == [2]
    assert keys([("v", "!=", "x")]) == []
    assert keys([("v", "not in", ["x"])]) == [1]
    assert keys([("v", "=", "x"), ("k", "=", 1)]) == []
    assert keys([[("v", "=", "x")], [("k", "=", 1)]]) == [1, 2]


class TestRefused:
    @pytest.mark.parametrize(
        "filter", [[], "v > 1", [1], [("nope", "=", 1)], [(TIME, "=", 1)], [("big", "~", 1)]]
    )
    def test_what_is_not_a_filter(self, filter):
        with pytest.raises(InvalidUsage):
            clauses(filter, SCHEMA)

    @pytest.mark.parametrize("filter", [[[]], [("big", "=")], [("big", "=", 1), ["big"]]])
    def test_filters_of_the_wrong_shape(self, filter):
        with pytest.raises(InvalidUsage):
            expression(clauses(filter, SCHEMA))

    @pytest.mark.parametrize(
        "predicate",
        [
            ("big", "=", "one"),
            ("big", "<", 2**70),
            ("text", "<", 7),
            ("flag", "=", 1),
            ("big", "in", 5),
            ("big", "in", []),
            ("big", "in", [None]),
            ("text", "in", "abc"),
        ],
    )
    def test_values_that_the_column_cannot_be_compared_with(self, predicate):
        with pytest.raises(InvalidUsage):
            tabled([{"big": 1}], 0).filter(expression(clauses([predicate], SCHEMA)))


def test_the_audit_finds_statistics_that_lie():
    blob = MemBlob()
    client = PersistClient(blob, MemConsensus(), config=Config(inline_total=0, audit=1))
    writer = client.open_writer("s", schema=pa.schema([("k", pa.int64())]))
    rows = as_updates(pa.table({"k": [1]}), time=0, schema=writer.schema)
    writer.compare_and_append(rows, lower=Frontier(0), upper=Frontier(1))
    reader = client.open_reader("s", filter=[("k", ">", 5)])
    assert reader.snapshot(0).num_rows == 0
    ((key, size),) = blob.list("s/")
    lie = as_updates(pa.table({"k": [9]}), time=0, schema=writer.schema)
    part = write_part(blob, key, [lie], schema=0, first=None, row_group_rows=1)
    assert part.size == size, "a part of another size would be found out at once"
    with pytest.raises(Corruption, match="was skipped for the filter"):
        reader.snapshot(0)


def test_days_around_the_epoch_keep_their_order():
    days = [date(1970, 1, 1) + timedelta(days=n) for n in (-400, -1, 0, 1)]
    found = [encoded(day, pa.date32()) for day in days]
    assert found == sorted(found) == [-400, -1, 0, 1]
