"""Is a recorded history of concurrent transactions strictly serializable?

Transactions append values to lists and read lists; no value is ever appended twice. So a read tells
whose writes it has seen, and a list tells in what order they happened. From that follow edges
between transactions, each meaning "must come before":

    ww   the one appended to a list just before the other did
    wr   the one appended what the other has read
    rw   the one has read a list without what the other appended to it
    rt   the one had returned before the other was called

A history is strictly serializable if all transactions can be put into one order along the edges,
which is to say: if there is no cycle.

    a   |-- append x 1 --|
    b                       |-- read x: [] --|       rw: b before a; rt: a before b. A stale read.

A cycle is called by the weakest edges that make one (Adya's names):

    G0        ww alone: writes interleave
    G1c       and wr: information flows in a circle
    G-single  and one rw: a read of two times at once, or an update that was lost
    G2        and several rw: write skew
    ...-rt    and rt: right in some order, but not in the one that the clients have seen

What needs no graph is looked at first: values that nobody wrote, or that were undone (aborted, G1a);
a list in which a value is twice (doubled), or which has one of a transaction's appends and not a
later one (intermediate, G1b), or has another order than another read of it (incompatible); a
transaction that does not see its own writes (internal); a write that was acknowledged and is not in
the last read of its list (lost).

A list whose order nobody knows (rows of a table) is read as a set (`ordered=False`): there are no ww
edges then, and an rw edge goes to whoever wrote a value that is not there.

A transaction whose fate nobody knows (its server was killed) counts as committed if a value of its
was ever seen, at any time after its call; else as if it had not been.

The second half is for reads that name their timestamps: `check_times` compares each with what a
SUBSCRIBE says was there at that time, and views with their inputs.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

Key = Hashable
Value = int
Outcome = Literal["ok", "failed", "unknown"]
Kind = Literal["ww", "wr", "rw", "rt"]


class Append(NamedTuple):
    key: Key
    value: Value


class Read(NamedTuple):
    """What a transaction has found in a list, its own appends so far included."""

    key: Key
    values: tuple[Value, ...]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Transaction:
    """Times are of one clock; `returned` of an unknown one says nothing."""

    process: str
    called: int
    returned: int
    outcome: Outcome
    ops: tuple[Append | Read, ...]

    def __str__(self) -> str:
        shown = ", ".join(
            f"append {op.key} {op.value}"
            if isinstance(op, Append)
            else f"read {op.key} {_short(op.values)}"
            for op in self.ops
        )
        return f"{self.process} [{self.called}..{self.returned}] {self.outcome}: {shown}"


def _short(values: Sequence[Value]) -> str:
    return str(list(values)) if len(values) <= 8 else f"[.. {len(values)} .., {values[-1]}]"


class Anomaly(NamedTuple):
    name: str
    what: str
    transactions: tuple[Transaction, ...] = ()

    def __str__(self) -> str:
        return "\n  ".join([f"{self.name}: {self.what}", *map(str, self.transactions)])


class Edge(NamedTuple):
    kind: Kind
    to: int


def check(history: Iterable[Transaction]) -> list[Anomaly]:
    """What is wrong with it; nothing if it is strictly serializable."""
    transactions = sorted(history, key=lambda each: each.called)
    writers = {
        op: at for at, each in enumerate(transactions) for op in each.ops if isinstance(op, Append)
    }
    assert len(writers) == sum(isinstance(op, Append) for each in transactions for op in each.ops)
    seen = {Append(r.key, v) for each in transactions for r in _reads(each) for v in r.values}
    orders: dict[Key, tuple[Value, ...]] = {}
    found = [
        *_values(transactions, writers),
        *(anomaly for each in transactions for anomaly in _internal(each)),
        *_orders(transactions, orders),
        *_lost(transactions, orders),
    ]
    committed = [
        at
        for at, each in enumerate(transactions)
        if each.outcome == "ok"
        or (each.outcome == "unknown" and any(op in seen for op in each.ops))
    ]
    graph = _edges(transactions, committed, writers, orders)
    return [*found, *_cycles(transactions, committed, graph)]


def _reads(transaction: Transaction) -> Iterator[Read]:
    """What counts as read: a transaction that was rolled back has read nothing for sure."""
    if transaction.outcome == "ok":
        yield from (op for op in transaction.ops if isinstance(op, Read))


# Without a graph.


def _values(
    transactions: Sequence[Transaction], writers: Mapping[Append, int]
) -> Iterator[Anomaly]:
    appended: dict[tuple[int, Key], list[Value]] = defaultdict(list)
    for append, at in writers.items():
        appended[at, append.key].append(append.value)
    for transaction in transactions:
        for read in _reads(transaction):
            twice = [value for value, n in Counter(read.values).items() if n > 1]
            if twice:
                yield Anomaly("doubled", f"{read.key} has {twice[0]} twice", (transaction,))
            there = set(read.values)
            for value in read.values:
                at = writers.get(Append(read.key, value))
                if at is None:
                    what = f"{read.key} has {value}, which nobody wrote"
                    yield Anomaly("garbage", what, (transaction,))
                    continue
                writer = transactions[at]
                if writer.outcome == "failed":
                    what = f"{read.key} has {value}, which was undone"
                    yield Anomaly("G1a", what, (transaction, writer))
                rest = [v for v in appended[at, read.key] if v not in there]
                if rest and writer is not transaction:
                    what = f"{read.key} has {value} without {rest[0]} of the same transaction"
                    yield Anomaly("G1b", what, (transaction, writer))


def _internal(transaction: Transaction) -> Iterator[Anomaly]:
    """A transaction reads its own appends, and else the same again."""
    known: dict[Key, Read] = {}
    own: dict[Key, list[Value]] = defaultdict(list)
    for op in transaction.ops if transaction.outcome == "ok" else ():
        if isinstance(op, Append):
            own[op.key].append(op.value)
            continue
        before = known.get(op.key)
        if before is None:
            mine = tuple(own[op.key])
            tail = op.values[len(op.values) - len(mine) :]
            fits = tail == mine if op.ordered else set(mine) <= set(op.values)
        else:
            expected = (*before.values, *own[op.key])
            fits = op.values == expected if op.ordered else set(op.values) == set(expected)
        if not fits:
            what = f"{op.key} is {_short(op.values)} after its own {own[op.key]}"
            yield Anomaly("internal", what, (transaction,))
        known[op.key] = op
        own[op.key].clear()


def _orders(
    transactions: Sequence[Transaction], orders: dict[Key, tuple[Value, ...]]
) -> Iterator[Anomaly]:
    """The order of each list, which is that of the longest read of it."""
    reads = [(read, each) for each in transactions for read in _reads(each) if read.ordered]
    for read, transaction in sorted(reads, key=lambda each: -len(each[0].values)):
        longest = orders.setdefault(read.key, read.values)
        if longest[: len(read.values)] != read.values:
            what = f"{read.key} is {_short(read.values)} here and {_short(longest)} there"
            yield Anomaly("incompatible", what, (transaction,))


def _lost(
    transactions: Sequence[Transaction], orders: Mapping[Key, tuple[Value, ...]]
) -> Iterator[Anomaly]:
    """Acknowledged writes that no later read has, though there is one."""
    last: dict[Key, tuple[int, set[Value]]] = {}
    for transaction in transactions:
        for read in _reads(transaction):
            called, values = last.get(read.key, (transaction.called, set()))
            last[read.key] = max(called, transaction.called), values | set(read.values)
    for transaction in transactions:
        for op in transaction.ops if transaction.outcome == "ok" else ():
            if isinstance(op, Append) and op.key in last:
                called, values = last[op.key]
                if transaction.returned < called and op.value not in values:
                    yield Anomaly("lost", f"{op.value} of {op.key} was never seen", (transaction,))


# The graph.


def _edges(
    transactions: Sequence[Transaction],
    committed: Sequence[int],
    writers: Mapping[Append, int],
    orders: Mapping[Key, tuple[Value, ...]],
) -> dict[int, set[Edge]]:
    """Between committed transactions; numbers from `len(transactions)` on are moments in between
    which only rt edges pass through, so that there are not as many as pairs of transactions."""
    edges: dict[int, set[Edge]] = defaultdict(set)
    among = set(committed)

    def add(kind: Kind, one: int | None, other: int | None) -> None:
        if one is not None and other is not None and one != other and {one, other} <= among:
            edges[one].add(Edge(kind, other))

    for key, order in orders.items():
        for before, after in pairwise(order):
            add("ww", writers.get(Append(key, before)), writers.get(Append(key, after)))
    unordered: dict[Key, list[Append]] = defaultdict(list)
    for append in writers:
        unordered[append.key].append(append)
    for at in committed:
        for read in _reads(transactions[at]):
            _reading(add, at, read, writers, orders, unordered[read.key])
    _real_time(edges, transactions, committed)
    return edges


def _reading(
    add: Callable[[Kind, int | None, int | None], None],
    at: int,
    read: Read,
    writers: Mapping[Append, int],
    orders: Mapping[Key, tuple[Value, ...]],
    appends: Sequence[Append],
) -> None:
    seen = [writers.get(Append(read.key, value)) for value in read.values]
    others = [writer for writer in seen if writer != at]
    # The writer of the last element comes after those of the elements before it, by ww.
    for writer in others[-1:] if read.ordered else others:
        add("wr", writer, at)
    order, there = orders.get(read.key, ()), set(read.values)
    if read.ordered and len(read.values) < len(order):
        add("rw", at, writers.get(Append(read.key, order[len(read.values)])))
    # Of what was never read nobody knows the place, but it comes after all that was.
    rest = set(order) if read.ordered else there
    for append in appends:
        if append.value not in rest:
            add("rw", at, writers[append])


def _real_time(
    edges: dict[int, set[Edge]], transactions: Sequence[Transaction], committed: Sequence[int]
) -> None:
    returned = [at for at in committed if transactions[at].outcome == "ok"]
    ends = sorted(returned, key=lambda at: transactions[at].returned)
    calls = deque(sorted(committed, key=lambda at: transactions[at].called))
    moment = len(transactions)
    for at in ends:
        while calls and transactions[calls[0]].called <= transactions[at].returned:
            edges[moment].add(Edge("rt", calls.popleft()))
        edges[moment].add(Edge("rt", moment + 1))
        moment += 1
        edges[at].add(Edge("rt", moment))
    while calls:
        edges[moment].add(Edge("rt", calls.popleft()))


class _Stage(NamedTuple):
    name: str
    kinds: tuple[Kind, ...]
    extra: Kind | None
    """A kind of which a cycle has exactly one edge."""


STAGES = (
    _Stage("G0", ("ww",), None),
    _Stage("G1c", ("ww", "wr"), None),
    _Stage("G-single", ("ww", "wr"), "rw"),
    _Stage("G2", ("ww", "wr", "rw"), None),
    _Stage("G0-rt", ("ww", "rt"), None),
    _Stage("G1c-rt", ("ww", "wr", "rt"), None),
    _Stage("G-single-rt", ("ww", "wr", "rt"), "rw"),
    _Stage("G2-rt", ("ww", "wr", "rw", "rt"), None),
)


def _cycles(
    transactions: Sequence[Transaction], committed: Sequence[int], graph: Mapping[int, set[Edge]]
) -> Iterator[Anomaly]:
    """One cycle for each knot of transactions, under the first name that fits it."""
    everything = {"ww", "wr", "rw", "rt"}
    for knot in _knots(graph, everything):
        for stage in STAGES:
            cycle = _cycle(graph, knot, stage)
            if cycle is not None:
                kinds = " ".join(kind for kind, _ in cycle)
                members = tuple(transactions[to] for _, to in cycle if to < len(transactions))
                yield Anomaly(stage.name, f"a cycle of {kinds}", members)
                break


def _cycle(graph: Mapping[int, set[Edge]], knot: set[int], stage: _Stage) -> list[Edge] | None:
    kinds = set(stage.kinds)
    if stage.extra is None:
        inner = next(iter(_knots({at: graph[at] for at in knot if at in graph}, kinds, knot)), None)
        if inner is None:
            return None
        start = min(inner)
        return _path(graph, inner, start, start, kinds)
    for one in sorted(knot):
        for edge in sorted(graph.get(one, ())):
            if edge.kind == stage.extra and edge.to in knot:
                rest = _path(graph, knot, edge.to, one, kinds)
                if rest is not None:
                    return [edge, *rest]
    return None


def _path(
    graph: Mapping[int, set[Edge]], within: set[int], start: int, goal: int, kinds: set[str]
) -> list[Edge] | None:
    """A shortest way along these edges; from a place to itself it is a cycle."""
    came: dict[int, tuple[int, Edge]] = {}
    waiting = deque([start])
    while waiting:
        at = waiting.popleft()
        for edge in sorted(graph.get(at, ())):
            if edge.kind in kinds and edge.to in within and edge.to not in came:
                came[edge.to] = at, edge
                if edge.to == goal:
                    way = [edge]
                    while at != start:
                        at, edge = came[at]
                        way.append(edge)
                    return way[::-1]
                waiting.append(edge.to)
    return None


def _knots(
    graph: Mapping[int, set[Edge]], kinds: set[str], within: set[int] | None = None
) -> Iterator[set[int]]:
    """Strongly connected components of more than one place (Tarjan's, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()

    def nexts(at: int) -> Iterator[int]:
        for kind, to in graph.get(at, ()):
            if kind in kinds and (within is None or to in within):
                yield to

    for root in list(graph):
        if root in index:
            continue
        todo = [(root, nexts(root))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while todo:
            at, rest = todo[-1]
            to = next(rest, None)
            if to is None:
                todo.pop()
                if todo:
                    above = todo[-1][0]
                    low[above] = min(low[above], low[at])
                if low[at] == index[at]:
                    knot: set[int] = set()
                    while at not in knot:
                        member = stack.pop()
                        on_stack.discard(member)
                        knot.add(member)
                    if len(knot) > 1:
                        yield knot
            elif to not in index:
                index[to] = low[to] = len(index)
                stack.append(to)
                on_stack.add(to)
                todo.append((to, nexts(to)))
            elif to in on_stack:
                low[at] = min(low[at], index[to])


# Reads that name their timestamps.

Rows = Counter[tuple]


class Change(NamedTuple):
    """An update as a SUBSCRIBE tells it."""

    time: int
    diff: int
    row: tuple


class Timed(NamedTuple):
    """What a read of `relation` has found, and at what time that was, as the server says."""

    process: str
    called: int
    returned: int
    relation: str
    time: int
    rows: Rows


class Followed:
    """All that a SUBSCRIBE has told, up to `upper`; from `since` on."""

    def __init__(self, since: int, upper: int, changes: Iterable[Change]):
        self.since = since
        self.upper = upper
        self.changes = sorted(changes, key=lambda change: change.time)

    def states(self, times: Iterable[int]) -> Iterator[tuple[int, Rows]]:
        """The contents at each of these times, in order; the same Counter, changed."""
        rows: Rows = Counter()
        rest = deque(self.changes)
        for time in sorted(times):
            while rest and rest[0].time <= time:
                _, diff, row = rest.popleft()
                rows[row] += diff
                if not rows[row]:
                    del rows[row]
            yield time, rows


def check_times(
    reads: Iterable[Timed],
    followed: Mapping[str, Followed],
    views: Mapping[str, tuple[str, Callable[[Rows], Rows]]],
) -> list[Anomaly]:
    """Reads against SUBSCRIBE at their times; `views` are what a relation must contain given the
    contents of another, at every time at which one of the two has changed."""
    found: list[Anomaly] = []
    reads = list(reads)
    by_relation: dict[str, list[Timed]] = defaultdict(list)
    for read in reads:
        by_relation[read.relation].append(read)
    for relation, log in followed.items():
        for row, n in next(iter(log.states([log.upper])))[1].items():
            if n < 0:
                found.append(Anomaly("negative", f"{relation} has {row} {n} times"))
        there: dict[int, list[Timed]] = defaultdict(list)
        for read in by_relation[relation]:
            if log.since <= read.time < log.upper:
                there[read.time].append(read)
        for time, rows in log.states(there):
            found += [_differs(read, rows) for read in there[time] if read.rows != rows]
    for view, (source, of) in views.items():
        one, other = followed[source], followed[view]
        lower, upper = max(one.since, other.since), min(one.upper, other.upper)
        times = {c.time for log in (one, other) for c in log.changes if lower <= c.time < upper}
        for (time, inputs), (_, rows) in zip(one.states(times), other.states(times), strict=True):
            if of(inputs) != rows:
                what = f"{view} at {time} is {_few(rows - of(inputs))} more and"
                found.append(Anomaly("view", f"{what} {_few(of(inputs) - rows)} less"))
    return [*found, *_backwards(reads)]


def _differs(read: Timed, rows: Rows) -> Anomaly:
    what = f"{read.process} read {read.relation} at {read.time}"
    more, less = _few(read.rows - rows), _few(rows - read.rows)
    return Anomaly("differs", f"{what}, and not what SUBSCRIBE says: {more} more, {less} less")


def _few(rows: Rows) -> str:
    return str(list(rows.items())[:3])


def _backwards(reads: Iterable[Timed]) -> Iterator[Anomaly]:
    """Strict reads: who is called after another has returned reads no earlier."""
    reads = list(reads)
    ends = deque(sorted(reads, key=lambda read: read.returned))
    newest: Timed | None = None
    for read in sorted(reads, key=lambda read: read.called):
        while ends and ends[0].returned < read.called:
            ended = ends.popleft()
            if newest is None or ended.time > newest.time:
                newest = ended
        if newest is not None and read.time < newest.time:
            what = f"{read.process} read at {read.time} after {newest.process} at {newest.time}"
            yield Anomaly("backwards", what)
