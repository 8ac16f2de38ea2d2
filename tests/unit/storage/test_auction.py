"""The auction generator: definite in any chunking, and a valid database at every step.

I1…I3 are the invariants that `tidemark.storage.generators.auction` lists.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import groupby, pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import InvalidUsage, SqlError
from tidemark.storage.generators import Generator, generator
from tidemark.storage.generators.auction import OPEN_STEPS
from tidemark.storage.generators.columns import MAX_STEP
from tidemark.types import arrow_schema

STEPS = 90
SMALL: dict[str, str | int] = {"users": 40, "history": 30}
"""Within STEPS steps, auctions close and are deleted, and every user has had several turns."""

Row = tuple[object, ...]

options = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**63 - 1),
        "users": st.integers(1, 50),
        "auctions_per_step": st.integers(1, 4),
        "bids_per_step": st.integers(1, 12),
        "history": st.integers(OPEN_STEPS + 1, 40),
    }
)


def states(auction: Generator, steps: int) -> Iterator[tuple[int, dict[str, Counter[Row]]]]:
    """Each step in which something happens, with the tables accumulated up to its end."""
    rows = [
        (offset, name, row, diff)
        for name, table in auction.updates(0, steps).items()
        for *row, offset, diff in zip(*table.to_pydict().values(), strict=True)
    ]
    rows.sort(key=lambda update: update[0])
    state: dict[str, Counter[Row]] = {name: Counter() for name in auction.tables}
    for step, updates in groupby(rows, key=lambda update: update[0]):
        for _, name, row, diff in updates:
            key = tuple(row)
            state[name][key] += diff
            if state[name][key] == 0:
                del state[name][key]
        yield step, state


def assert_valid(step: int, state: dict[str, Counter[Row]]) -> None:
    for name, rows in state.items():
        assert set(rows.values()) <= {1}, f"I1: a count in {name} at step {step}"
        assert len({row[0] for row in rows}) == len(rows), f"I1: ids of {name} at step {step}"
    users = {row[0] for row in state["users"]}
    auctions = {row[0] for row in state["auctions"]}
    assert {row[1] for row in state["auctions"]} <= users, f"I2: a seller at step {step}"
    assert {row[1] for row in state["bids"]} <= auctions, f"I2: an auction_id at step {step}"
    assert {row[2] for row in state["bids"]} <= users, f"I2: a buyer at step {step}"


@settings(deadline=None)
@given(options=options, cuts=st.lists(st.integers(0, STEPS), max_size=12))
def test_any_chunking_gives_the_same_updates(options: dict[str, str | int], cuts: list[int]):
    auction = generator("auction", options)
    whole = auction.updates(0, STEPS)
    chunks = [auction.updates(*chunk) for chunk in pairwise(sorted([0, *cuts, STEPS]))]
    for name, table in whole.items():
        assert pa.concat_tables(chunk[name] for chunk in chunks).equals(table)


@settings(deadline=None)
@given(options=options, start=st.integers(0, MAX_STEP - 1))
def test_a_step_far_out_is_the_same_alone_and_within_a_range(
    options: dict[str, str | int], start: int
):
    auction = generator("auction", options)
    stop = min(start + 3, MAX_STEP)
    for name, table in auction.updates(start, stop).items():
        alone = auction.updates(start, start + 1)[name]
        assert alone.equals(table.filter(pc.equal(table["_offset"], start)))


@settings(max_examples=30, deadline=None)
@given(options=options)
def test_every_step_leaves_a_valid_database(options: dict[str, str | int]):
    for step, state in states(generator("auction", options), STEPS):
        assert_valid(step, state)


def test_the_life_of_an_auction():
    history = 30
    created, bid_on_while = {}, Counter()
    for step, state in states(generator("auction", SMALL), STEPS):
        status = {row[0]: row[4] for row in state["auctions"]}
        for auction in status:
            created.setdefault(auction, step)
        assert status == {
            auction: "open" if step < birth + OPEN_STEPS else "closed"
            for auction, birth in created.items()
            if step < birth + history
        }
        for row in state["bids"]:
            if row[0] // 10 == step:
                bid_on_while[status[row[1]]] += 1
    assert bid_on_while == {"open": 10 * STEPS}, "I3"


def test_bids_come_before_the_end_of_their_auction():
    updates = generator("auction", SMALL).updates(0, STEPS)
    end = dict(
        zip(*(updates["auctions"][name].to_pylist() for name in ("id", "end_time")), strict=True)
    )
    for bid in updates["bids"].to_pylist():
        assert bid["bid_time"] < end[bid["auction_id"]]


def test_inserts_updates_and_deletes_occur_in_a_steady_state():
    for name, table in generator("auction", SMALL).updates(60, STEPS).items():
        assert set(table["_diff"].to_pylist()) == {-1, +1}, name

    last = dict(states(generator("auction", SMALL), STEPS))[STEPS - 1]
    assert len(last["users"]) == 40
    assert len(last["auctions"]) == 30
    # Bids on the 30 auctions that are left: those before them and those not yet placed aside.
    assert 200 < len(last["bids"]) < 400


def test_users_move_and_keep_their_name():
    users = generator("auction", SMALL).updates(0, STEPS)["users"].to_pylist()
    regions, names = {}, {}
    for row in users:
        regions.setdefault(row["id"], set()).add(row["region"])
        names.setdefault(row["id"], set()).add(row["name"])
    assert all(len(seen) == 1 for seen in names.values())
    assert sum(len(seen) > 1 for seen in regions.values()) > 35


@pytest.mark.parametrize("users", [1, 2, 3, 4])
def test_a_user_moves_at_most_once_in_a_step(users: int):
    rows = generator("auction", {"users": users}).updates(0, STEPS)["users"].to_pylist()
    moves = Counter((row["_offset"], row["id"], row["_diff"]) for row in rows)
    assert set(moves.values()) == {1}


def test_groups_differ_in_size():
    updates = generator("auction", {}).updates(0, 1000)
    for name, column in [
        ("users", "region"),
        ("auctions", "category"),
        ("auctions", "seller"),
        ("bids", "auction_id"),
        ("bids", "buyer"),
    ]:
        sizes = sorted(Counter(updates[name][column].to_pylist()).values())
        assert sizes[-1] > 3 * sizes[len(sizes) // 2] or sizes[-1] > 4 * sizes[0], column
    assert len(set(updates["users"]["region"].to_pylist())) == 8
    assert len(set(updates["auctions"]["category"].to_pylist())) == 12


def test_seeds_differ():
    one, two = (generator("auction", {"seed": seed}).updates(0, STEPS) for seed in (1, 2))
    assert all(not one[name].equals(two[name]) for name in one)


def test_pinned_rows():
    """Existing sources generate their past again: these rows must never change."""
    updates = generator("auction", {"users": 3}).updates(0, 1200)
    assert {name: len(table) for name, table in updates.items()} == {
        "users": 5797,
        "auctions": 3760,
        "bids": 14047,
    }
    midnight = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert [tuple(table.to_pylist()[-1].values()) for table in updates.values()] == [
        (1, "Hedy Jansen", "South America", 1199, +1),
        (1199, 0, "enamel teapot", "art", "open", midnight + dt.timedelta(seconds=1219), 1199, +1),
        (11999, 1191, 0, Decimal("205.04"), midnight + dt.timedelta(seconds=1199.9), 1199, +1),
    ]
    assert pc.sum(updates["bids"]["amount"]).as_py() == Decimal("6480954.69")


def test_schema_is_the_columns_then_offset_and_diff():
    auction = generator("auction", {})
    for stop in (0, 30):
        for name, table in auction.updates(0, stop).items():
            expected = arrow_schema(auction.tables[name].columns)
            expected = expected.append(pa.field("_offset", pa.int64()))
            assert table.schema == expected.append(pa.field("_diff", pa.int64()))
            table.validate(full=True)


def test_no_steps_no_updates():
    for step in (0, 1, 5000):
        tables = generator("auction", {}).updates(step, step)
        assert [table.num_rows for table in tables.values()] == [0, 0, 0]


def test_options_may_be_strings():
    spelled = generator("auction", {"users": "40", "history": "30"})
    assert spelled == generator("auction", SMALL)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("auctoin", {}, r'load generator "auctoin" is not known \(known: auction, counter'),
        (
            "auction",
            {"sede": 1},
            r'no option "sede" \(options: seed, users, auctions_per_step, bids_per_step, history\)',
        ),
        ("auction", {"users": 0}, r'"users" .* is 0 \(it must be an integer from 1 to 10000000\)'),
        ("auction", {"users": "many"}, r"\"users\" .* is 'many' \(it must be an integer from 1"),
        ("auction", {"seed": -1}, r'"seed" .* is -1 \(it must be an integer from 0 to'),
        ("auction", {"seed": True}, r'"seed" .* is True \(it must be an integer'),
        ("auction", {"seed": 1.5}, r'"seed" .* is 1.5 \(it must be an integer'),
        ("auction", {"auctions_per_step": 0}, r'"auctions_per_step" .* is 0'),
        ("auction", {"bids_per_step": 0}, r'"bids_per_step" .* is 0'),
        ("auction", {"history": 20}, r'"history" .* is 20 \(it must be an integer from 21 to'),
    ],
)
def test_wrong_options_say_what_is_allowed(kind: str, given: dict[str, str | int], message: str):
    with pytest.raises(SqlError, match=message):
        generator(kind, given)


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 4), (0, MAX_STEP + 1)])
def test_steps_out_of_range_are_refused(start: int, stop: int):
    with pytest.raises(InvalidUsage, match=r"need 0 <= start <= stop"):
        generator("auction", {}).updates(start, stop)
