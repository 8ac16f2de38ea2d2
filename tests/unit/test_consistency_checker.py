"""The checker of transactions: each anomaly that is planted is found, and what is right passes."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import permutations

import pytest

from consistency import (
    Append,
    Change,
    Followed,
    Key,
    Outcome,
    Read,
    Rows,
    Timed,
    Transaction,
    Value,
    check,
    check_times,
)


def at(called: int, returned: int, *ops: Append | Read, outcome: Outcome = "ok") -> Transaction:
    return Transaction(f"p{called}", called, returned, outcome, ops)


def r(key: Key, *values: Value) -> Read:
    return Read(key, values)


def some(key: Key, *values: Value) -> Read:
    return Read(key, values, ordered=False)


W = Append
GOOD = [
    at(0, 10, W("x", 1), W("y", 1)),
    at(5, 15, r("x"), r("y")),
    at(6, 16, r("x", 1), r("y", 1), W("x", 2), r("x", 1, 2)),
    at(20, 30, W("x", 9), outcome="failed"),
    at(20, 30, W("y", 3), outcome="unknown"),
    at(20, 30, W("y", 4), outcome="unknown"),
    at(40, 50, r("x", 1, 2), r("y", 1, 3)),
    at(41, 42, W("z", 1)),
    at(43, 44, W("z", 2)),
    at(45, 46, some("z", 2, 1)),
]

ANOMALIES = {
    "garbage": [at(0, 1, r("x", 7))],
    "doubled": [at(0, 1, W("x", 1)), at(2, 3, r("x", 1, 1))],
    "G1a": [at(0, 1, W("x", 1), outcome="failed"), at(2, 3, r("x", 1))],
    "G1b": [at(0, 9, W("x", 1), W("x", 2)), at(2, 3, r("x", 1))],
    "incompatible": [
        at(0, 9, W("x", 1)),
        at(0, 9, W("x", 2)),
        at(0, 9, r("x", 1, 2)),
        at(0, 9, r("x", 2)),
    ],
    "internal": [at(0, 1, W("x", 1), r("x"))],
    "lost": [at(0, 1, W("x", 1)), at(2, 3, r("x"))],
    "G0": [
        at(0, 9, W("x", 1), W("y", 1)),
        at(0, 9, W("x", 2), W("y", 2)),
        at(0, 9, r("x", 1, 2)),
        at(0, 9, r("y", 2, 1)),
    ],
    "G1c": [at(0, 9, W("x", 1), r("y", 1)), at(0, 9, W("y", 1), r("x", 1))],
    # A read of half a transaction; an update that was lost.
    "G-single": [at(0, 9, W("x", 1), W("y", 1)), at(0, 9, r("x", 1), r("y"))],
    "G-single ": [
        at(0, 9, r("x"), W("x", 1)),
        at(0, 9, r("x"), W("x", 2)),
        at(0, 9, r("x", 1, 2)),
    ],
    # Write skew, in lists and in sets.
    "G2": [at(0, 9, r("x"), W("y", 1)), at(0, 9, r("y"), W("x", 1))],
    "G2 ": [at(0, 9, some("x"), W("y", 1)), at(0, 9, some("y"), W("x", 1))],
    # In an order of their own they are fine, but that is not the one in which they came.
    "G0-rt": [at(0, 1, W("x", 1)), at(2, 3, W("x", 2)), at(4, 9, r("x", 2, 1))],
    "G1c-rt": [
        at(0, 1, W("x", 1), r("y", 1), outcome="ok"),
        at(2, 3, W("y", 1)),
        at(4, 5, r("x", 1), r("y", 1)),
    ],
    # A stale read: by a view that lags, or of a replica that does.
    "G-single-rt": [at(0, 1, W("x", 1)), at(2, 3, r("x")), at(4, 5, r("x", 1))],
    "G-single-rt ": [at(0, 1, W("x", 1)), at(2, 3, some("x")), at(4, 5, some("x", 1))],
    # One that writes what was not there yet, without what was there already.
    "G2-rt": [at(0, 20, r("y"), W("x", 1)), at(0, 1, W("y", 1)), at(2, 3, r("x"))],
}


def test_what_is_right_passes() -> None:
    assert check(GOOD) == []


@pytest.mark.parametrize("name", ANOMALIES)
def test_each_anomaly_is_found(name: str) -> None:
    found = check(ANOMALIES[name])
    assert name.strip() in [each.name for each in found], list(map(str, found))
    # And among others that are right, as well.
    apart = [
        Transaction(
            t.process,
            t.called + 100,
            t.returned + 100,
            t.outcome,
            tuple(op._replace(key=f"other {op.key}") for op in t.ops),
        )
        for t in ANOMALIES[name]
    ]
    assert name.strip() in [each.name for each in check([*GOOD, *apart])]


def test_an_unknown_transaction_is_seen_whole_or_not_at_all() -> None:
    unknown = at(0, 1, W("x", 1), W("y", 1), outcome="unknown")
    assert check([unknown, at(2, 3, r("x"), r("y"))]) == []
    assert check([unknown, at(2, 3, r("x"), r("y")), at(4, 5, r("x", 1), r("y", 1))]) == []
    (found,) = check([unknown, at(2, 3, r("x", 1), r("y"))])
    assert found.name == "G-single"


def serial(history: list[Transaction]) -> bool:
    """Whether some order explains all that was read: every one is tried."""
    sure = [each for each in history if each.outcome == "ok"]
    unsure = [each for each in history if each.outcome == "unknown"]
    for taken in range(1 << len(unsure)):
        chosen = [*sure, *(each for n, each in enumerate(unsure) if taken >> n & 1)]
        if any(map(explains, permutations(chosen))):
            return True
    return False


def explains(order: tuple[Transaction, ...]) -> bool:
    for n, later in enumerate(order):
        if any(later.outcome == "ok" and later.returned < earlier.called for earlier in order[:n]):
            return False
    lists: dict[Key, list[Value]] = defaultdict(list)
    for each in order:
        for op in each.ops:
            if isinstance(op, Append):
                lists[op.key].append(op.value)
            elif each.outcome == "ok":
                now = lists[op.key]
                if list(op.values) != now if op.ordered else sorted(op.values) != sorted(now):
                    return False
    return True


@pytest.mark.parametrize("seed", range(60))
def test_it_agrees_with_trying_every_order(seed: int) -> None:
    chance = random.Random(seed)
    verdicts = set()
    for _ in range(20):
        history = anything(chance)
        found = check(history)
        assert (found == []) == serial(history), "\n".join(map(str, [*history, *found]))
        verdicts.add(found == [])
    assert verdicts, "none was tried"


def anything(chance: random.Random) -> list[Transaction]:
    """Transactions done in some order, told with times that may not fit it, and read wrongly now
    and then."""
    lists: dict[Key, list[Value]] = defaultdict(list)
    told = []
    for n in range(chance.randint(2, 5)):
        ops: list[Append | Read] = []
        outcome: Outcome = "unknown" if chance.random() < 0.15 else "ok"
        for m in range(chance.randint(1, 3)):
            key = chance.choice("xyz")
            if chance.random() < 0.5:
                ops.append(Append(key, 10 * n + m))
                lists[key].append(10 * n + m)
                continue
            values = list(lists[key])
            if values and chance.random() < 0.15:
                values.pop(chance.randrange(len(values)))
            ops.append(Read(key, tuple(values), ordered=key != "z"))
        called = max(0, 4 * n + chance.randint(-9, 2))
        told.append(
            Transaction(f"p{n}", called, called + chance.randint(1, 9), outcome, tuple(ops))
        )
    return told


def test_both_verdicts_come_up() -> None:
    """The random histories are not all right, and not all wrong."""
    verdicts = Counter(check(anything(random.Random(seed))) == [] for seed in range(200))
    assert min(verdicts[True], verdicts[False]) > 20, verdicts


# Reads that name their times.

TABLE = Followed(0, 9, [Change(1, 1, (1,)), Change(3, 1, (2,)), Change(5, -1, (1,))])
VIEW = Followed(
    0,
    9,
    [
        Change(1, 1, (1,)),
        Change(3, -1, (1,)),
        Change(3, 1, (2,)),
        Change(5, -1, (2,)),
        Change(5, 1, (1,)),
    ],
)


def counted(rows: Rows) -> Rows:
    return Counter({(rows.total(),): 1} if rows else {})


def timed(called: int, time: int, *values: int, relation: str = "t") -> Timed:
    return Timed("p", called, called + 1, relation, time, Counter((v,) for v in values))


def test_reads_that_are_as_subscribed_pass() -> None:
    reads = [timed(0, 0), timed(2, 2, 1), timed(4, 4, 1, 2), timed(6, 8, 2)]
    reads += [timed(8, 8, 1, relation="v")]
    assert check_times(reads, {"t": TABLE, "v": VIEW}, {"v": ("t", counted)}) == []


@pytest.mark.parametrize(
    ("name", "reads", "view"),
    [
        ("differs", [timed(0, 2)], VIEW),
        ("differs", [timed(0, 2, 1, 1)], VIEW),
        ("differs", [timed(0, 4, 1, relation="v")], VIEW),
        ("backwards", [timed(0, 8, 2), timed(2, 4, 1, 2)], VIEW),
        ("view", [], Followed(0, 9, [Change(1, 1, (1,)), Change(4, -1, (1,)), Change(4, 1, (2,))])),
        ("negative", [], Followed(0, 9, [Change(1, -1, (1,))])),
    ],
)
def test_each_wrong_read_is_found(name: str, reads: list[Timed], view: Followed) -> None:
    found = check_times(reads, {"t": TABLE, "v": view}, {"v": ("t", counted)})
    assert name in [each.name for each in found], list(map(str, found))
