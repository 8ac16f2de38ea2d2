"""Is a recorded history of concurrent operations linearizable?

A history says who called what, when, and what came back. It is linearizable if every operation
can be given one moment between its call and its return, so that the operations, done one after
another at those moments, return exactly what they did return.

    a   |--- append 0 to 1: done ---|
    b          |--- upper: 1 ---|                      fine: b's moment lies after a's
    c                |--- upper: 0 ---|                fine: c's moment lies before a's
    d                                   |- upper: 0 -| impossible: a had returned before d's call

The search is Wing and Gong's, with Lowe's memory of what was tried. Calls and returns are one
list in the order of time. The next operation can only be one that was called before the first
return in the list; if the model accepts its result, its call and return are lifted out of the
list and the search goes on with the rest. If none fits, the last choice is put back.

    list    a( b( c( )c )b )a d( )d          next may be a, b or c; d only once a, b and c are out
    take c  a( b( )b )a d( )d                it saw upper 0
    take a  b( )b d( )d                      now the upper is 1
    take b  d( )d                            d saw 0: stuck, so go back; no other order helps

A place in the search is what is lifted out together with the model's state. One that was visited
in vain is never visited again, so the work is about the history's length times the number of
orders that a few concurrent operations can have.

An operation that never returned (its process was killed), or returned without telling what it did
(an indeterminate error), may have its moment at any time after its call, or never. Such operations
stand beside the list and are taken only when nothing in the list fits.

    check([Operation("a", 0, 5, "append", "done"), ...], model)      None, or a Counterexample

What it does not do: find the *smallest* subset of operations that is wrong. It shows the place
where the longest order it found gets stuck, which is where to look.

The second half is the model of a shard: what one correct, sequential shard would answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

S = TypeVar("S", bound=Hashable)

CONTEXT = 4
"""Operations that a counterexample shows from before the trouble, at least."""

BAR = 30


class _Unknown:
    def __repr__(self) -> str:
        return "?"


UNKNOWN = _Unknown()
"""The result of an operation that nobody heard of again."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`returned` is None if it never returned, or if nobody knows what it did."""

    process: str
    called: int
    returned: int | None
    op: object
    result: object = UNKNOWN

    @property
    def is_pending(self) -> bool:
        return self.returned is None


class Model(Protocol[S]):
    initial: S

    def step(self, state: S, op: object, result: object) -> S | None:
        """The state after `op` returned `result` in `state`; None if it could not.

        For the result `UNKNOWN`: the state after its effect; None or the same if it has none.
        """
        ...

    def is_over(self, state: S, op: object) -> bool:
        """True if `op` can have no effect from `state` on. False is always right, but slower."""
        ...

    def answer(self, state: S, op: object) -> object:
        """What `op` would return in `state`: for the reader of a counterexample."""
        ...


class _Out(NamedTuple):
    """A set of operations by number: all before `base`, and later ones by a bit each."""

    base: int = 0
    window: int = 0

    def plus(self, number: int) -> _Out:
        base, window = self.base, self.window | 1 << (number - self.base)
        while window & 1:
            base, window = base + 1, window >> 1
        return _Out(base, window)

    def has(self, number: int) -> bool:
        return number < self.base or bool(self.window >> (number - self.base) & 1)


class _Place(NamedTuple, Generic[S]):
    """Where the search is: what is lifted out of the list, which of the pending operations are
    taken or can no longer matter, and the model's state."""

    out: _Out
    gone: _Out
    state: S


class _Event:
    """A call or a return, linked to its neighbours in time; a call also knows its return."""

    __slots__ = ("after", "before", "number", "returns", "time")

    def __init__(self, number: int, time: int, returns: _Event | None = None):
        self.number = number
        self.time = time
        self.returns = returns
        self.before = self.after = self

    def lift(self) -> None:
        self.before.after, self.after.before = self.after, self.before

    def put_back(self) -> None:
        self.before.after = self.after.before = self


class _Move(NamedTuple, Generic[S]):
    """One operation taken next: `call` is its event, or None for a pending one."""

    operation: Operation
    call: _Event | None
    place: _Place[S]


def check(history: Iterable[Operation], model: Model[S]) -> Counterexample | None:
    """None if `history` is linearizable with respect to `model`."""
    operations = sorted(history, key=lambda operation: operation.called)
    returned = [operation for operation in operations if not operation.is_pending]
    pending = [operation for operation in operations if operation.is_pending]
    head = _linked(returned)

    def moves(place: _Place[S]) -> Iterator[_Move[S]]:
        event = head.after
        while event.returns is not None:  # A call; those behind the first return must wait.
            operation = returned[event.number]
            state = model.step(place.state, operation.op, operation.result)
            if state is not None:
                out = place.out.plus(event.number)
                yield _Move(operation, event, _Place(out, settled(place.gone, out, state), state))
            event = event.after  # What was taken meanwhile has been put back.
        for number in waiting(place.gone, event.time):
            operation = pending[number]
            state = model.step(place.state, operation.op, UNKNOWN)
            if state is not None and state != place.state:
                gone = settled(place.gone.plus(number), place.out, state)
                yield _Move(operation, None, _Place(place.out, gone, state))

    def settled(gone: _Out, out: _Out, state: S) -> _Out:
        """Places that differ only in operations without effect from now on are the same place."""
        if out.base < len(returned):
            for number in waiting(gone, returned[out.base].called):
                if model.is_over(state, pending[number].op):
                    gone = gone.plus(number)
        return gone

    def waiting(gone: _Out, time: int) -> Iterator[int]:
        for number in range(gone.base, len(pending)):
            if pending[number].called > time:
                return
            if not gone.has(number):
                yield number

    start = _Place(_Out(), _Out(), model.initial)
    seen = {start}
    path: list[_Move[S]] = []
    todo = [moves(start)]
    lifted, furthest, stuck = 0, (-1, 0), None
    while head.after is not head:
        move = next((move for move in todo[-1] if move.place not in seen), None)
        if move is not None:
            seen.add(move.place)
            if move.call is not None:
                assert move.call.returns is not None
                move.call.lift()
                move.call.returns.lift()
                lifted += 1
            path.append(move)
            todo.append(moves(move.place))
            continue
        if (lifted, -len(path)) > furthest:  # As far as any, with the fewest pending ones taken.
            furthest, stuck = (lifted, -len(path)), _stuck(model, head, returned, path)
        todo.pop()
        if not path:
            assert stuck is not None
            return stuck._replace(fitting=furthest[0], total=len(returned), tried=len(seen))
        call = path.pop().call
        if call is not None:
            assert call.returns is not None
            call.returns.put_back()
            call.put_back()
            lifted -= 1
    return None


def _linked(returned: list[Operation]) -> _Event:
    """The head of a ring of all calls and returns; at one instant, calls come first."""
    events = []
    for number, operation in enumerate(returned):
        assert operation.returned is not None
        end = _Event(number, operation.returned)
        events += [_Event(number, operation.called, end), end]
    events.sort(key=lambda event: (event.time, event.returns is None))
    head = _Event(-1, 0)
    for event in events:
        event.before, event.after = head.before, head
        event.before.after = head.before = event
    return head


# What went wrong, for a human


class Counterexample(NamedTuple):
    """Where the longest order that was found gets stuck."""

    before: list[tuple[Operation, object]]
    """The last operations of that order, each with the state that it left."""

    stuck: list[tuple[Operation, object]]
    """Those of which one would have to come next, each with what it should have returned."""

    fitting: int = 0
    total: int = 0
    tried: int = 0

    def __str__(self) -> str:
        shown = [operation for operation, _ in (*self.before, *self.stuck)]
        origin = min(operation.called for operation in shown)
        end = max(operation.returned or operation.called for operation in shown)
        width = max(len(operation.process) for operation in shown)

        def line(operation: Operation) -> str:
            bar = _bar(operation, origin, end)
            return f"{bar} {operation.process:{width}}  {operation.op} -> {operation.result}"

        margin = " " * (BAR + width + 3)
        lines = [
            f"not linearizable: {self.fitting} of {self.total} operations fit into one order, "
            f"then nothing fits ({self.tried} places tried)",
            f"the last that fit, in that order; the window is {(end - origin) / 1e6:.3f} ms wide:",
        ]
        for operation, state in self.before:
            lines += [f"  {line(operation)}", f"  {margin}  leaves {state}"]
        lines.append("one of these would have to come next, and none can:")
        for operation, answer in self.stuck:
            lines += [f"  {line(operation)}", f"  {margin}  should be {answer}"]
        return "\n".join(lines)


def _stuck(
    model: Model[S], head: _Event, returned: list[Operation], path: list[_Move[S]]
) -> Counterexample:
    state = path[-1].place.state if path else model.initial
    event, next_ones = head.after, []
    while event.returns is not None:
        operation = returned[event.number]
        next_ones.append((operation, model.answer(state, operation.op)))
        event = event.after
    # Whatever overlaps with the stuck ones could have been ordered otherwise, so it is shown.
    begun = min(operation.called for operation, _ in next_ones)
    first = len(path)
    while first > 0 and (
        len(path) - first < CONTEXT or (path[first - 1].operation.returned or begun) > begun
    ):
        first -= 1
    return Counterexample([(m.operation, m.place.state) for m in path[first:]], next_ones)


def _bar(operation: Operation, origin: int, end: int) -> str:
    """`  |----|   `, or `  |----...` for one that never returned."""
    scale = (BAR - 1) / max(end - origin, 1)
    left = int((operation.called - origin) * scale)
    if operation.returned is None:
        return (" " * left + "|" + "." * BAR)[:BAR]
    right = int((operation.returned - origin) * scale)
    return (" " * left + "|" + "-" * (right - left - 1) + "|" * (right > left)).ljust(BAR)


# A shard: what can be asked of it


class CompareAndAppend(msgspec.Struct, frozen=True, tag=True):
    lower: int
    upper: int
    rows: tuple[tuple[int, str], ...] = ()
    """(time, name), ascending."""

    def __str__(self) -> str:
        return f"compare_and_append {self.lower} to {self.upper} {_spelled(self.rows)}"


class Append(msgspec.Struct, frozen=True, tag=True):
    """By one of several writers of identical data."""

    lower: int
    upper: int
    rows: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        return f"append {self.lower} to {self.upper} {_spelled(self.rows)}"


class FetchUpper(msgspec.Struct, frozen=True, tag=True):
    def __str__(self) -> str:
        return "upper"


class FetchSince(msgspec.Struct, frozen=True, tag=True):
    def __str__(self) -> str:
        return "since"


class Downgrade(msgspec.Struct, frozen=True, tag=True):
    hold: str
    since: int
    epoch: int = 0

    def __str__(self) -> str:
        return f"downgrade hold {self.hold} to {self.since} in epoch {self.epoch}"


class Snapshot(msgspec.Struct, frozen=True, tag=True):
    as_of: int

    def __str__(self) -> str:
        return f"snapshot at {self.as_of}"


Op = CompareAndAppend | Append | FetchUpper | FetchSince | Downgrade | Snapshot


# ... and what it answers


class Appended(msgspec.Struct, frozen=True, tag=True):
    upper: int

    def __str__(self) -> str:
        return f"appended, upper {self.upper}"


class UpperMismatch(msgspec.Struct, frozen=True, tag=True):
    current: int

    def __str__(self) -> str:
        return f"lost, upper {self.current}"


class Time(msgspec.Struct, frozen=True, tag=True):
    """The upper, the since, or where a hold now is."""

    time: int

    def __str__(self) -> str:
        return str(self.time)


class EpochMismatch(msgspec.Struct, frozen=True, tag=True):
    current: int

    def __str__(self) -> str:
        return f"fenced by epoch {self.current}"


class BeforeSince(msgspec.Struct, frozen=True, tag=True):
    def __str__(self) -> str:
        return "before since"


class Contents(msgspec.Struct, frozen=True, tag=True):
    """All rows of a snapshot in the order of their times, as a digest; the last ones in clear."""

    count: int
    digest: str
    last: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.count} rows, the last {' '.join(self.last)} (digest {self.digest[:6]})"


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A determinate error: whatever it was, it surely did not happen."""

    def __str__(self) -> str:
        return "surely did not happen"


class Waits(msgspec.Struct, frozen=True, tag=True):
    """It would not return at all; never found in a history."""

    def __str__(self) -> str:
        return "waiting"


Result = Appended | UpperMismatch | Time | EpochMismatch | BeforeSince | Contents | Refused | Waits


# ... and how it answers


@dataclass(frozen=True, slots=True)
class Rows:
    """An immutable list of rows that grows at its end; two are equal if their digests are."""

    digest: str = ""
    count: int = 0
    time: int = field(default=-1, compare=False)
    name: str = field(default="", compare=False)
    before: Rows | None = field(default=None, compare=False, repr=False)

    def plus(self, rows: Iterable[tuple[int, str]]) -> Rows:
        grown = self
        for time, name in rows:
            row = f"{grown.digest} {time} {name}".encode()
            digest = blake2b(row, digest_size=16).hexdigest()
            grown = Rows(digest, grown.count + 1, time, name, grown)
        return grown

    def up_to(self, time: int) -> Rows:
        rows = self
        while rows.before is not None and rows.time > time:
            rows = rows.before
        return rows

    def contents(self) -> Contents:
        last: list[str] = []
        rows: Rows | None = self
        while rows is not None and rows.before is not None and len(last) < 3:
            last.append(f"{rows.name}@{rows.time}")
            rows = rows.before
        return Contents(self.count, self.digest, tuple(reversed(last)))


class Hold(NamedTuple):
    since: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ShardState:
    upper: int = 0
    since: int = 0
    holds: frozenset[tuple[str, Hold]] = frozenset()
    rows: Rows = Rows()

    def __str__(self) -> str:
        holds = ", ".join(f"{name} at {h.since} epoch {h.epoch}" for name, h in sorted(self.holds))
        return f"upper {self.upper}, since {self.since} ({holds or 'no holds'}), " + str(
            self.rows.contents()
        )


class Shard:
    """The sequential specification: every operation, and its answer, in one place."""

    initial = ShardState()

    def step(self, state: ShardState, op: object, result: object) -> ShardState | None:
        if isinstance(result, Refused):
            return state
        after, answer = apply(state, op)
        return after if result is UNKNOWN or answer == result else None

    def is_over(self, state: ShardState, op: object) -> bool:
        match op:
            case CompareAndAppend(lower):
                return lower < state.upper
            case Append(_, upper):
                return upper <= state.upper
            case Downgrade(name, since, epoch):
                known = dict(state.holds).get(name)
                return known is not None and (epoch, since) <= (known.epoch, known.since)
        return True

    def answer(self, state: ShardState, op: object) -> Result:
        return apply(state, op)[1]


def apply(state: ShardState, op: object) -> tuple[ShardState, Result]:
    """What a shard that does one thing at a time does, and what it says."""
    match op:
        case CompareAndAppend(lower, upper, rows):
            if state.upper != lower:
                return state, UpperMismatch(state.upper)
            return _grown(state, upper, rows), Appended(upper)
        case Append(lower, upper, rows):
            if upper <= state.upper:
                return state, Appended(state.upper)
            if state.upper < lower:
                return state, UpperMismatch(state.upper)
            new = [(time, name) for time, name in rows if time >= state.upper]
            return _grown(state, upper, new), Appended(upper)
        case FetchUpper():
            return state, Time(state.upper)
        case FetchSince():
            return state, Time(state.since)
        case Downgrade(name, since, epoch):
            return _downgraded(state, name, since, epoch)
        case Snapshot(as_of):
            if as_of < state.since:
                return state, BeforeSince()
            if as_of >= state.upper:
                return state, Waits()
            return state, state.rows.up_to(as_of).contents()
    raise AssertionError(f"not an operation of a shard: {op}")


def _grown(state: ShardState, upper: int, rows: Iterable[tuple[int, str]]) -> ShardState:
    return ShardState(upper, state.since, state.holds, state.rows.plus(rows))


def _downgraded(
    state: ShardState, name: str, since: int, epoch: int
) -> tuple[ShardState, Time | EpochMismatch]:
    """Holds never go back and are fenced by epochs; since follows the least of them."""
    holds = dict(state.holds)
    known = holds.get(name, Hold(state.since, epoch))
    if known.epoch > epoch:
        return state, EpochMismatch(known.epoch)
    holds[name] = Hold(max(since, state.since, known.since), epoch)
    least = max(state.since, min(hold.since for hold in holds.values()))
    after = ShardState(state.upper, least, frozenset(holds.items()), state.rows)
    return after, Time(holds[name].since)


def _spelled(rows: Iterable[tuple[int, str]]) -> str:
    return f"({' '.join(f'{name}@{time}' for time, name in rows)})"
