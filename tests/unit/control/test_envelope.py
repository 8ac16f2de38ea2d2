"""What a subscription shows, compared with the same thing said row by row."""

from __future__ import annotations

import random
from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemark.control import statements as s
from tidemark.control.envelope import envelope_of
from tidemark.errors import DataError, SqlError
from tidemark.persist import DIFF, ERR, TIME
from tidemark.types import BIGINT, TEXT, Column

COLUMNS = (Column("v", TEXT), Column("k", BIGINT), Column("w", BIGINT))
NAMES = ["v", "k", "w"]


def subscription(**what) -> s.Subscribe:
    return s.Subscribe(("t",), None, True, what.pop("progress", False), None, None, **what)


def updates(rows: list[tuple]) -> pa.Table:
    """Rows of (time, diff, v, k, w)."""
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return pa.table(
        {
            "v": pa.array(columns[2], pa.string()),
            "k": pa.array(columns[3], pa.int64()),
            "w": pa.array(columns[4], pa.int64()),
            TIME: pa.array(columns[0], pa.int64()),
            DIFF: pa.array(columns[1], pa.int64()),
            ERR: pa.nulls(len(rows), pa.string()),
        }
    )


def shown(statement: s.Subscribe, rows: list[tuple]) -> list[tuple]:
    envelope = envelope_of(statement, COLUMNS)
    batches = envelope.batches(updates(rows))
    names = [column.name for column in envelope.columns]
    assert all(batch.schema.names == names for batch in batches)
    return [
        (int(row[0]), *row[1:])
        for batch in batches
        for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
    ]


def some_rows(rng: random.Random) -> list[tuple]:
    found: defaultdict[tuple, int] = defaultdict(int)
    for _ in range(rng.randrange(40)):
        row = (
            rng.randrange(3),
            rng.choice([None, "a", "b"]),
            rng.choice([None, 1, 2, 3]),
            rng.choice([None, 7, 8]),
        )
        found[row] += rng.choice([-2, -1, -1, 1, 1, 1, 2])
    rows = [(time, diff, *row) for (time, *row), diff in found.items() if diff]
    rng.shuffle(rows)
    return rows


def by_key(rows: list[tuple], kind: str) -> list[tuple]:
    """The envelope's rule, a key at a time."""
    groups: defaultdict[tuple, list] = defaultdict(list)
    for time, diff, v, k, w in rows:
        groups[time, k].append((diff, (v, w)))
    found = []
    for (time, k), changes in groups.items():
        came = [row for diff, row in changes for _ in range(diff)]
        went = [row for diff, row in changes for _ in range(-diff)]
        before, after = (went or [(None, None)])[0], (came or [(None, None)])[0]
        if len(came) > 1 or len(went) > 1:
            state, before, after = "key_violation", (None, None), (None, None)
        elif not came:
            state = "delete"
        elif not went:
            state = "upsert" if kind == "upsert" else "insert"
        else:
            state = "upsert"
        found.append((time, state, k, *(after if kind == "upsert" else (*before, *after))))
    return sorted(found, key=lambda row: (row[0], row[2] is None, row[2] or 0))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("kind", ["upsert", "debezium"])
def test_keys_as_the_rule_says(seed: int, kind):
    rows = some_rows(random.Random(seed))
    assert shown(subscription(keyed=s.Keyed(kind, ("k",))), rows) == by_key(rows, kind)


@pytest.mark.parametrize(("kind", "new"), [("upsert", "upsert"), ("debezium", "insert")])
def test_a_second_row_of_a_key_is_noticed_within_one_time_only(kind, new: str):
    """As the docs say; what a key was is not kept."""
    rows = [(1, 1, "a", 1, 1), (2, 1, "b", 1, 1), (3, -1, "b", 1, 1), (4, 1, "c", 1, 1)]
    found = shown(subscription(keyed=s.Keyed(kind, ("k",))), [*rows, (4, 1, "d", 1, 1)])
    assert [row[1] for row in found] == [new, new, "delete", "key_violation"]


@pytest.mark.parametrize("keyed", [None, s.Keyed("upsert", ("k",))])
def test_an_error_that_comes_is_raised_and_one_that_goes_is_not_a_row(keyed: s.Keyed | None):
    envelope = envelope_of(subscription(keyed=keyed), COLUMNS)
    rows = updates([(1, 1, "a", 1, 2), (1, -1, None, None, None)])
    mended = rows.set_column(5, ERR, pa.array([None, "division by zero"]))
    assert envelope.batches(mended) == envelope.batches(rows.slice(0, 1))
    assert not envelope.batches(mended.slice(1))
    broken = mended.set_column(4, DIFF, pa.array([1, 1]))
    with pytest.raises(DataError, match="division by zero"):
        envelope.batches(broken)


def test_what_changes_while_something_is_in_error_comes_when_it_is_mended():
    """Whoever goes on after a time before the error has not to begin anew."""
    bad = [(3, "x", 1), (5, "y", 1), (5, "x", -1), (8, "y", -1), (9, "x", 1), (10, "x", -1)]
    good = [(2, "a", 1), (4, "b", 1), (6, "b", -1), (6, "c", 1), (8, "d", 1), (9, "e", 1)]
    rows = updates([(time, diff, k, 0, 0) for time, k, diff in [*good, *bad]])
    errors = pa.array([None] * len(good) + [text for _, text, _ in bad])
    rows = rows.set_column(5, ERR, errors)
    shown = [
        tuple(row.values())[:3]
        for batch in envelope_of(subscription(), COLUMNS).batches(rows)
        for row in batch.to_pylist()
    ]
    assert shown == [(2, 1, "a"), (8, 1, "c"), (8, 1, "d"), (10, 1, "e")]
    with pytest.raises(DataError, match=r"^y$"):
        envelope_of(subscription(), COLUMNS).batches(rows.filter(pc.less(rows[TIME], 8)))


def test_columns_of_keys_come_first():
    upserts = envelope_of(subscription(keyed=s.Keyed("upsert", ("w", "v"))), COLUMNS)
    assert [c.name for c in upserts.columns] == ["mz_timestamp", "mz_state", "w", "v", "k"]
    both = envelope_of(subscription(keyed=s.Keyed("debezium", ("k",)), progress=True), COLUMNS)
    names = ["mz_timestamp", "mz_progressed", "mz_state", "k"]
    names += ["before_v", "before_w", "after_v", "after_w"]
    assert [c.name for c in both.columns] == names
    assert list(both.progress(5).to_pylist()[0].values())[1:] == [True, *[None] * 6]


def test_all_columns_may_be_the_key():
    statement = subscription(keyed=s.Keyed("upsert", ("v", "k", "w")))
    assert shown(statement, [(1, 1, "a", 1, 2)]) == [(1, "upsert", "a", 1, 2)]


@pytest.mark.parametrize("seed", range(40))
def test_order_within_a_time(seed: int):
    rng = random.Random(seed)
    rows = some_rows(rng)
    by = s.OrderBy("w", rng.random() < 0.5, rng.random() < 0.5)
    found = shown(subscription(order_by=(by, s.OrderBy("mz_diff", True, True))), rows)

    def place(row: tuple) -> tuple:
        time, diff, _, _, w = row
        value = (-w if by.descending else w) if w is not None else 0
        return time, (w is None) != by.nulls_first, value, -diff

    assert [place(row) for row in found] == sorted(map(place, rows))
    assert sorted(found, key=repr) == sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (subscription(keyed=s.Keyed("upsert", ("x",))), 'column "x" does not exist'),
        (subscription(keyed=s.Keyed("upsert", ("k", "k"))), 'column "k" is twice in the KEY'),
        (subscription(order_by=(s.OrderBy("x", False, False),)), 'column "x" does not exist'),
    ],
)
def test_columns_that_are_not_there(statement: s.Subscribe, said: str):
    with pytest.raises(SqlError, match=said):
        envelope_of(statement, COLUMNS)
