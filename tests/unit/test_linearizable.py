"""The checker of histories: what it accepts, what it rejects, and that it agrees with brute force."""

from __future__ import annotations

import random
from itertools import combinations, permutations

import pytest

from linearizable import (
    UNKNOWN,
    Append,
    Appended,
    BeforeSince,
    CompareAndAppend,
    Contents,
    Counterexample,
    Downgrade,
    EpochMismatch,
    FetchSince,
    FetchUpper,
    Op,
    Operation,
    Refused,
    Result,
    Rows,
    Shard,
    ShardState,
    Snapshot,
    Time,
    UpperMismatch,
    Waits,
    apply,
    check,
)

UPPER, SINCE = FetchUpper(), FetchSince()


def cas(lower: int, upper: int, name: str = "") -> CompareAndAppend:
    return CompareAndAppend(lower, upper, ((lower, name),) if name else ())


def same(lower: int, upper: int) -> Append:
    """What every one of the replicated writers would append."""
    return Append(lower, upper, tuple((time, f"={time}") for time in range(lower, upper)))


def rows(*names: str) -> Contents:
    """Rows by name, at times 0, 1, 2..., or `name@time`."""
    split = [(*name.split("@"), str(at)) for at, name in enumerate(names)]
    return Rows().plus((int(time), name) for name, time, *_ in split).contents()


def history(*lines: tuple[str, Op, Result | None]) -> list[Operation]:
    """One operation per line, drawn as `  |--|`; a `|..` has no known outcome."""
    operations = []
    for number, (drawing, op, result) in enumerate(lines):
        called = drawing.index("|")
        pending = drawing.rstrip().endswith(".")
        returned = None if pending else drawing.rindex("|")
        shown = UNKNOWN if result is None else result
        operations.append(Operation(f"p{number}", called, returned, op, shown))
    return operations


GOOD = {
    "nothing": [],
    "one after another": [
        ("|--|        ", cas(0, 1, "a"), Appended(1)),
        ("    |--|    ", UPPER, Time(1)),
        ("        |--|", Snapshot(0), rows("a")),
    ],
    "a read during an append sees it": [
        ("|-------|", cas(0, 1, "a"), Appended(1)),
        ("   |--|  ", UPPER, Time(1)),
    ],
    "or does not see it": [
        ("|-------|", cas(0, 1, "a"), Appended(1)),
        ("   |--|  ", UPPER, Time(0)),
    ],
    "two reads during an append see it come": [
        ("|----------|", cas(0, 1, "a"), Appended(1)),
        (" |-|        ", UPPER, Time(0)),
        ("     |-|    ", UPPER, Time(1)),
    ],
    "one winner, and the loser learns the upper": [
        ("|----|  ", cas(0, 2, "a"), Appended(2)),
        (" |----| ", cas(0, 1, "b"), UpperMismatch(2)),
        ("       |--|", Snapshot(1), rows("a")),
    ],
    "the loser was called first": [
        ("|--------|", cas(0, 1, "a"), UpperMismatch(2)),
        ("   |--|   ", cas(0, 2, "b"), Appended(2)),
    ],
    "a killed append took effect": [
        ("|--..    ", cas(0, 1, "a"), None),
        ("     |--|", UPPER, Time(1)),
    ],
    "a killed append never took effect": [
        ("|--..         ", cas(0, 1, "a"), None),
        ("     |--|     ", cas(0, 1, "b"), Appended(1)),
        ("          |--|", Snapshot(0), rows("b")),
    ],
    "a killed append took effect late": [
        ("|--..              ", cas(1, 2, "b"), None),
        ("     |--|          ", UPPER, Time(0)),
        ("          |--|     ", cas(0, 1, "a"), Appended(1)),
        ("               |--|", Snapshot(1), rows("a", "b")),
    ],
    "two killed appends, in the other order": [
        ("|--..         ", cas(1, 2, "b"), None),
        (" |--..        ", cas(0, 1, "a"), None),
        ("     |--|     ", UPPER, Time(0)),
        ("          |--|", UPPER, Time(2)),
    ],
    "a refused append left nothing": [
        ("|--|          ", cas(0, 1, "a"), Refused()),
        ("     |--|     ", cas(0, 1, "b"), Appended(1)),
        ("          |--|", Snapshot(0), rows("b")),
    ],
    "writers of identical data share the work": [
        ("|------|      ", same(0, 2), Appended(2)),
        ("  |------|    ", same(0, 3), Appended(3)),
        ("          |--|", Snapshot(2), rows("=0", "=1", "=2")),
    ],
    "a replica that is behind finds everything done": [
        ("|--|     ", same(0, 3), Appended(3)),
        ("     |--|", same(1, 2), Appended(3)),
    ],
    "a replica that is ahead leaves no gap": [
        ("|--|     ", same(0, 3), Appended(3)),
        ("     |--|", same(4, 5), UpperMismatch(3)),
    ],
    "a snapshot between an append's times": [
        ("|--|     ", CompareAndAppend(0, 5, ((1, "a"), (3, "b"))), Appended(5)),
        ("     |--|", Snapshot(2), rows("a@1")),
    ],
    "a snapshot that waited for its time": [
        ("|-------------| ", Snapshot(1), rows("a", "b")),
        ("  |--|          ", cas(0, 1, "a"), Appended(1)),
        ("        |--|    ", cas(1, 2, "b"), Appended(2)),
    ],
    "since follows the least hold": [
        ("|-|             ", Downgrade("x", 5), Time(5)),
        ("   |-|          ", Downgrade("y", 3), Time(5)),
        ("       |-|      ", Downgrade("y", 8), Time(8)),
        ("           |-|  ", SINCE, Time(5)),
        ("              |-|", Snapshot(4), BeforeSince()),
    ],
    "a new epoch fences the old one out": [
        ("|-|             ", Downgrade("x", 1, 1), Time(1)),
        ("    |--------|  ", Downgrade("x", 5, 1), EpochMismatch(2)),
        ("      |--|      ", Downgrade("x", 2, 2), Time(2)),
        ("              |-|", SINCE, Time(2)),
    ],
}

BAD = {
    "a stale upper after an acknowledged append": [
        ("|--|     ", cas(0, 1, "a"), Appended(1)),
        ("     |--|", UPPER, Time(0)),
    ],
    "an upper that goes back during an append": [
        ("|----------|", cas(0, 1, "a"), Appended(1)),
        (" |-|        ", UPPER, Time(1)),
        ("     |-|    ", UPPER, Time(0)),
    ],
    "an upper that nobody wrote": [
        ("|--|  ", cas(0, 1, "a"), Appended(1)),
        (" |--| ", UPPER, Time(2)),
    ],
    "two winners": [
        ("|----|  ", cas(0, 1, "a"), Appended(1)),
        (" |----| ", cas(0, 1, "b"), Appended(1)),
    ],
    "a lost append": [
        ("|--|          ", cas(0, 1, "a"), Appended(1)),
        ("     |--|     ", cas(1, 2, "b"), Appended(2)),
        ("          |--|", Snapshot(1), rows("b@1")),
    ],
    "an append that was undone": [
        ("|--|          ", cas(0, 1, "a"), Appended(1)),
        ("     |--|     ", cas(0, 1, "b"), Appended(1)),
    ],
    "a loser that took effect": [
        ("|--|          ", cas(0, 1, "a"), Appended(1)),
        ("     |--|     ", cas(0, 1, "b"), UpperMismatch(1)),
        ("          |--|", Snapshot(0), rows("a", "b@0")),
    ],
    "a refused append that took effect": [
        ("|--|     ", cas(0, 1, "a"), Refused()),
        ("     |--|", UPPER, Time(1)),
    ],
    "a loss with the upper as it was long ago": [
        ("|--|          ", cas(0, 1, "a"), Appended(1)),
        ("     |--|     ", cas(1, 2, "b"), Appended(2)),
        ("          |--|", cas(0, 1, "c"), UpperMismatch(1)),
    ],
    "a loss that should have been a win": [
        ("|--|     ", cas(0, 1, "a"), Appended(1)),
        ("     |--|", cas(1, 2, "b"), UpperMismatch(1)),
    ],
    "a retry applied twice": [
        ("|--|     ", cas(0, 1, "a"), Appended(1)),
        ("     |--|", Snapshot(0), rows("a@0", "a@0")),
    ],
    "an unsure append applied twice": [
        ("|--..         ", cas(0, 1, "a"), None),
        ("     |--|     ", cas(1, 2, "b"), Appended(2)),
        ("          |--|", Snapshot(1), rows("a@0", "b@1", "a@1")),
    ],
    "a killed append that took effect before its call": [
        ("|--|     ", UPPER, Time(1)),
        ("     |-..", cas(0, 1, "a"), None),
    ],
    "a killed append seen and then not": [
        ("|--..         ", cas(0, 1, "a"), None),
        ("     |--|     ", UPPER, Time(1)),
        ("          |--|", UPPER, Time(0)),
    ],
    "a snapshot beyond the upper": [
        ("|--|     ", cas(0, 1, "a"), Appended(1)),
        ("     |--|", Snapshot(1), rows("a")),
    ],
    "a snapshot of the wrong time": [
        ("|--|     ", CompareAndAppend(0, 5, ((1, "a"), (3, "b"))), Appended(5)),
        ("     |--|", Snapshot(2), rows("a@1", "b@3")),
    ],
    "replicated data twice": [
        ("|------|      ", same(0, 2), Appended(2)),
        ("  |------|    ", same(0, 3), Appended(3)),
        ("          |--|", Snapshot(2), rows("=0", "=1", "=0@0", "=1@1", "=2")),
    ],
    "a replica that leaves a gap": [
        ("|--|     ", same(0, 3), Appended(3)),
        ("     |--|", same(4, 5), Appended(5)),
    ],
    "a since that goes back": [
        ("|-|          ", Downgrade("x", 5), Time(5)),
        ("    |-|      ", SINCE, Time(5)),
        ("        |---|", SINCE, Time(4)),
    ],
    "a since that a hold does not hold": [
        ("|-|          ", Downgrade("x", 2), Time(2)),
        ("    |-|      ", Downgrade("y", 9), Time(9)),
        ("        |---|", SINCE, Time(9)),
    ],
    "an old epoch that still moves the hold": [
        ("|-|        ", Downgrade("x", 1, 2), Time(1)),
        ("    |-|    ", Downgrade("x", 5, 1), Time(5)),
    ],
    "a fenced downgrade that took effect": [
        ("|-|          ", Downgrade("x", 1, 2), Time(1)),
        ("    |-|      ", Downgrade("x", 5, 1), EpochMismatch(2)),
        ("        |---|", SINCE, Time(5)),
    ],
    "a read before since": [
        ("|-|          ", cas(0, 9, "a"), Appended(9)),
        ("    |-|      ", Downgrade("x", 5), Time(5)),
        ("        |---|", Snapshot(4), rows("a")),
    ],
}


@pytest.mark.parametrize("lines", GOOD.values(), ids=GOOD.keys())
def test_accepts(lines):
    assert check(history(*lines), Shard()) is None
    assert brute_force(history(*lines))


@pytest.mark.parametrize("lines", BAD.values(), ids=BAD.keys())
def test_rejects(lines):
    assert isinstance(check(history(*lines), Shard()), Counterexample)
    assert not brute_force(history(*lines))


def test_a_counterexample_can_be_read():
    lines = [
        ("|--|                     ", cas(0, 1, "a"), Appended(1)),
        ("     |------|            ", cas(1, 2, "b"), Appended(2)),
        ("        |-----...        ", cas(2, 9, "c"), None),
        ("                |-------|", UPPER, Time(1)),
        ("                   |--|  ", SINCE, Time(0)),
    ]
    found = check(history(*lines), Shard())
    assert str(found) == COUNTEREXAMPLE


COUNTEREXAMPLE = """\
not linearizable: 3 of 4 operations fit into one order, then nothing fits (6 places tried)
the last that fit, in that order; the window is 0.000 ms wide:
  |--|                           p0  compare_and_append 0 to 1 (a@0) -> appended, upper 1
                                       leaves upper 1, since 0 (no holds), 1 rows, the last a@0 (digest 33fb42)
        |-------|                p1  compare_and_append 1 to 2 (b@1) -> appended, upper 2
                                       leaves upper 2, since 0 (no holds), 2 rows, the last a@0 b@1 (digest 73ceea)
                        |---|    p4  since -> 0
                                       leaves upper 2, since 0 (no holds), 2 rows, the last a@0 b@1 (digest 73ceea)
one of these would have to come next, and none can:
                     |---------| p3  upper -> 1
                                       should be 2"""


# Against histories that are right by construction, and against brute force


def simulated(chance: random.Random, processes: int, length: int) -> list[Operation]:
    """What clients of a correct shard might see: each operation happens inside its interval."""
    moments = []
    for process in range(processes):
        time = chance.randrange(10)
        for _ in range(length):
            called = time + chance.randrange(1, 10)
            moment = called + chance.randrange(10)
            time = moment + chance.randrange(1, 10)
            moments.append((moment, chance.random(), f"p{process}", called, time))
    operations = []
    state = Shard.initial
    for number, (_, _, process, called, returned) in enumerate(sorted(moments)):
        op = random_op(chance, state, number)
        after, result = apply(state, op)
        fate = chance.random()
        if fate < 0.05:  # Killed; half of them too late.
            operations.append(Operation(process, called, None, op))
            state = after if fate < 0.025 else state
        elif fate < 0.08:
            operations.append(Operation(process, called, returned, op, Refused()))
        else:
            operations.append(Operation(process, called, returned, op, result))
            state = after
    return operations


def random_op(chance: random.Random, state: ShardState, number: int) -> Op:
    near = max(state.upper - chance.choice([0, 0, 0, 0, 1, 3]), 0)
    ahead = near + chance.randrange(1, 4)
    match chance.randrange(10):
        case 0 | 1 | 2 | 3:
            return CompareAndAppend(near, ahead, ((chance.randrange(near, ahead), f"n{number}"),))
        case 4:
            return same(near, ahead)
        case 5:
            return Downgrade(chance.choice("xy"), max(near - 5, 0), chance.choice([0, 0, 1, 2]))
        case 6:
            return SINCE
        case 7 | 8 if state.upper:
            return Snapshot(chance.randrange(max(state.upper - 8, 0), state.upper))
        case _:
            return UPPER


def spoilt(chance: random.Random, good: list[Operation]) -> list[Operation]:
    """One result changed."""
    while True:
        at = chance.randrange(len(good))
        was = good[at]
        result = falsified(chance, was.result)
        if result is not None:
            wrong = Operation(was.process, was.called, was.returned, was.op, result)
            return [*good[:at], wrong, *good[at + 1 :]]


def falsified(chance: random.Random, result: object) -> Result | None:
    off = chance.choice([-3, -2, -1, 1, 2, 3])
    match result:
        case Appended(upper):
            return chance.choice([Appended(upper + off), UpperMismatch(upper), Refused()])
        case UpperMismatch(current):
            return chance.choice([UpperMismatch(current + off), Appended(current)])
        case Time(time):
            return Time(time + off)
        case EpochMismatch(current):
            return EpochMismatch(current + off)
        case Contents(count, digest, last):
            return Contents(count, digest[1:], last)
        case BeforeSince():
            return rows()
    return None


def brute_force(operations: list[Operation]) -> bool:
    """Every order that respects time, with every choice of the pending ones."""
    returned = [operation for operation in operations if not operation.is_pending]
    pending = [operation for operation in operations if operation.is_pending]
    return any(
        fits(order) and in_time(order)
        for count in range(len(pending) + 1)
        for chosen in combinations(pending, count)
        for order in permutations([*returned, *chosen])
    )


def in_time(order: tuple[Operation, ...]) -> bool:
    return not any(
        later.returned is not None and later.returned < earlier.called
        for earlier, later in combinations(order, 2)
    )


def fits(order: tuple[Operation, ...]) -> bool:
    state: ShardState | None = Shard.initial
    for operation in order:
        state = Shard().step(state, operation.op, operation.result)
        if state is None:
            return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_a_correct_shard_is_never_accused(seed: int):
    chance = random.Random(seed)
    found = check(simulated(chance, processes=8, length=60), Shard())
    assert found is None, str(found)


def test_one_wrong_result_is_almost_always_found():
    chance = random.Random(1)
    found = [
        check(spoilt(chance, simulated(chance, processes=8, length=12)), Shard())
        for _ in range(100)
    ]
    assert sum(example is not None for example in found) > 85


def test_agrees_with_brute_force_on_tiny_histories():
    chance = random.Random(2)
    verdicts = []
    for _ in range(600):
        operations = simulated(chance, processes=3, length=2)
        if any(isinstance(operation.result, Waits) for operation in operations):
            continue
        if chance.random() < 0.7 and any(falsified(chance, o.result) for o in operations):
            operations = spoilt(chance, operations)
        verdicts.append(check(operations, Shard()) is None)
        assert verdicts[-1] == brute_force(operations), operations
    assert 100 < sum(verdicts) < len(verdicts) - 100


def test_thousands_of_operations():
    chance = random.Random(3)
    operations = simulated(chance, processes=8, length=800)
    assert check(operations, Shard()) is None
    assert check(spoilt(chance, operations), Shard()) is not None
