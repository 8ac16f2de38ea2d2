"""A view: the chain of dataflows that keeps it right.

    inputs ──▶ fragment ──▶ fragment ──▶ the view's own ──▶ output
                     ╲────────────────────▶╱

Fragments are shared (`Flows`): the first view that needs one starts it, each tick of any of them
brings it as far as its inputs are, and it ends with the last. The view's own dataflow is the
last of the chain, and writes the output.

    view = View("v", plan, inputs={"u1": "shard-of-u1"}, output="shard-of-v", as_of=17, flows=flows)
    view.start()
    while True:
        view.tick(view.input_upper())
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from pyspark.sql import SparkSession

from tidemark.compute.arrangements import Arrangements
from tidemark.compute.dataflow import Dataflow, holder_of, shards_kept
from tidemark.compute.fixpoint import Recursion, rounds_kept
from tidemark.compute.fragments import Fragment, Piece, Recursive, fragments_of
from tidemark.compute.plan import Plan
from tidemark.compute.refresh import Refresh
from tidemark.frontier import Frontier
from tidemark.persist import Appended, PersistClient, UpperMismatch
from tidemark.persist.machine import Step


class Flow:
    """A shared fragment's dataflow, one thread at a time.

    One that fails is thrown away: what it had not written yet is computed again, from the shards.
    """

    def __init__(self, make: Callable[[], Dataflow | Recursion]):
        self.dataflow = make()
        self.users = 0
        self._make = make
        self._lock = threading.Lock()
        self._as_of = 0
        self._started = False

    def start(self, as_of: int) -> None:
        with self._lock, self._afresh():
            self._start(as_of)

    def advance(self, upper: Frontier) -> bool:
        """Go up to `upper`; False if it waits for what others have to write."""
        with self._lock, self._afresh():
            self._start(self._as_of)  # Again, if it was made again.
            while self.dataflow.lower < upper and self.dataflow.wants(upper):
                self.dataflow.tick(upper)
            return self.dataflow.settle() and upper <= self.dataflow.lower

    def _start(self, as_of: int) -> None:
        if not self._started:
            self.dataflow.start(as_of)
            self._as_of, self._started = as_of, True

    @contextmanager
    def _afresh(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._started = False
            self.dataflow.stop()
            self.dataflow = self._make()
            raise


class Flows:
    """The fragments that run here, each once: by the view that it is named after, and by what it
    computes."""

    def __init__(self, client: PersistClient, spark: SparkSession, arrangements: Arrangements):
        self.client = client
        self.spark = spark
        self.arrangements = arrangements
        self.read_only = False
        """Whether all of them leave writing to others."""
        # A recursion that ends releases, in turn, what it is made of.
        self._lock = threading.RLock()
        self._flows: dict[str, Flow] = {}

    def acquire(self, piece: Piece, shards: Mapping[str, str], owner: str) -> Flow:
        """`shards` are those of the collections that it may read, by id."""
        name = owned(owner, piece.id)
        with self._lock:
            flow = self._flows.get(name)
            if flow is None:
                flow = self._flows[name] = Flow(lambda: self._made(piece, shards, owner))
            flow.users += 1
            return flow

    def release(self, flow: Flow) -> None:
        with self._lock:
            flow.users -= 1
            if not flow.users:
                del self._flows[flow.dataflow.id]
                flow.dataflow.stop()

    def _made(self, piece: Piece, shards: Mapping[str, str], owner: str) -> Dataflow | Recursion:
        name = owned(owner, piece.id)
        # A recursion's rounds are known to itself alone, and named as it is.
        read = {each: shards.get(each, owned(owner, each)) for each in piece.inputs}
        if isinstance(piece, Fragment):
            return self.dataflow(name, piece, read, output=name, state=name)
        return Recursion(
            name,
            piece,
            inputs=read,
            shards=tuple(owned(owner, each) for each in piece.outputs),
            client=self.client,
            acquire=lambda fragment: self.acquire(fragment, read, owner),
            release=self.release,
            name=lambda id_: owned(owner, id_),
            read_only=self._is_read_only,
        )

    def _is_read_only(self) -> bool:
        return self.read_only

    def dataflow(
        self,
        id_: str,
        fragment: Fragment,
        shards: Mapping[str, str],
        *,
        output: str,
        state: str,
        refresh: Refresh | None = None,
    ) -> Dataflow:
        return Dataflow(
            id_,
            fragment,
            inputs={each: shards[each] for each in fragment.inputs},
            output=output,
            state=state,
            client=self.client,
            spark=self.spark,
            arrangements=self.arrangements,
            refresh=refresh,
            read_only=self._is_read_only,
        )


class View:
    """Maintains `plan` over `inputs` (collection id to shard id) in the shard `output`.

    `owners` are the views that its fragments (by id) are named after, where it is not this one.
    """

    def __init__(
        self,
        id_: str,
        plan: Plan,
        *,
        inputs: Mapping[str, str],
        output: str,
        as_of: int,
        flows: Flows,
        owners: Mapping[str, str] | None = None,
        refresh: Refresh | None = None,
    ):
        *below, last = fragments_of(plan)
        assert isinstance(last, Fragment)
        self.id = id_
        self._as_of = as_of
        self._refresh = refresh
        self._started = False
        self._flows = flows
        self._inputs = [flows.client.open_reader(shard) for shard in inputs.values()]
        self._shards = {**inputs, **shards_between(id_, plan, owners or {})}
        self._below: list[Flow] = []
        try:
            for piece in below:
                owner = (owners or {}).get(piece.id, id_)
                self._below.append(flows.acquire(piece, self._shards, owner))
            state = owned((owners or {}).get(last.id, id_), last.id)
            self._last = flows.dataflow(
                id_, last, self._shards, output=output, state=state, refresh=refresh
            )
        except BaseException:
            for flow in self._below:
                flows.release(flow)
            raise

    @property
    def lower(self) -> Frontier:
        """Everything before this is computed and durable."""
        return self._last.lower

    @property
    def ticks(self) -> int:
        return self._last.ticks

    @property
    def dataflows(self) -> tuple[Dataflow | Recursion, ...]:
        """All that keep this view, its own last."""
        return (*(flow.dataflow for flow in self._below), self._last)

    def startable(self) -> bool:
        """Whether the inputs have come to where the view begins."""
        return all(reader.upper.covers(self._begin()) for reader in self._inputs)

    def awaits_refresh(self) -> bool:
        """Whether there is nothing to do for it yet: its first refresh is ahead."""
        as_of = max([self._as_of, *(reader.since.time or 0 for reader in self._inputs)])
        begins = self._begin()
        return as_of < begins and all(reader.upper.covers(as_of) for reader in self._inputs)

    def _begin(self) -> int:
        as_of = max([self._as_of, *(reader.since.time or 0 for reader in self._inputs)])
        if self._refresh is None or self._last.is_resumable:
            return as_of
        due = self._refresh.round_up(as_of)
        return as_of if due is None else due

    def start(self) -> bool:
        """Resume or hydrate, from the first fragment to the last.

        False if some of them wait for what others have to write; then it is to be called again.
        """
        if self._started:
            return True
        as_of = self._begin()
        for flow in self._below:
            flow.start(as_of)
            as_of = max([as_of, *(self._held(each, as_of) for each in flow.dataflow.shards)])
        for reader in self._inputs:
            reader.wait_for_upper_past(as_of)
        for flow in self._below:
            if not flow.advance(Frontier(as_of + 1)):
                return False
        self._last.start(as_of)
        # What only fragments read is held by them from now on.
        for collection, shard in self._shards.items():
            if collection not in self._last.shape.inputs and not self._flows.read_only:
                release(self._flows.client, shard, self.id)
        self._started = True
        return True

    def _held(self, shard: str, as_of: int) -> int:
        """From when on a fragment's shard stays readable for this view: `as_of`, or later."""
        client, holder = self._flows.client, holder_of(self.id)
        if shard not in self._shards.values():
            return as_of
        # A hold from before the last restart is where this view will go on.
        if holder not in client.state(shard).holds and not self._flows.read_only:
            client.open_critical_since(shard, holder).downgrade(Frontier(as_of))
        return client.state(shard).since.time or 0

    def input_upper(self) -> Frontier:
        """How far all inputs are complete."""
        return min(reader.upper for reader in self._inputs)

    def wants(self, upper: Frontier) -> bool:
        """Whether there is something to do, once the inputs are complete to `upper`."""
        below = [flow.dataflow for flow in self._below]
        if any(dataflow.wants(upper) for dataflow in below):
            return True
        if not all(dataflow.is_settled for dataflow in below):
            return False
        return self._last.wants(min([upper, *(dataflow.lower for dataflow in below)]))

    def changed(self, upper: Frontier) -> bool:
        """Whether what there is to do may take a Spark job: if not, it is only progress."""
        return any(dataflow.changed(upper) for dataflow in self.dataflows)

    @property
    def corrected(self) -> int:
        """Updates that put right what others have done to its shards."""
        return sum(dataflow.corrected for dataflow in self.dataflows)

    @property
    def written(self) -> int:
        """Updates of the view that were written here."""
        return self._last.written

    def tick(self, upper: Frontier) -> Frontier:
        """Bring the view up to `upper` (or, with a long backlog, some way); how far it came."""
        for flow in self._below:
            flow.advance(upper)
        if all(flow.dataflow.is_settled for flow in self._below):
            self._last.tick(min([upper, *(flow.dataflow.lower for flow in self._below)]))
        return self._last.lower

    def rest(self, upper: Frontier) -> Step[Appended | UpperMismatch] | None:
        """The one append that a tick comes down to, if it does; when it is done, `rested`."""
        return None if self._below else self._last.rest(upper)

    def rested(self, upper: Frontier) -> None:
        self._last.rested(upper)

    @property
    def input_shards(self) -> tuple[str, ...]:
        return tuple(reader.shard_id for reader in self._inputs)

    @property
    def output_shards(self) -> tuple[str, ...]:
        """What others may write as well: only then is it news to this view."""
        return self._last.shards if self._flows.read_only else ()

    @property
    def is_resumable(self) -> bool:
        """Whether it can go on from what is there; if not, to start it is to hydrate."""
        return all(dataflow.is_resumable for dataflow in self.dataflows)

    @property
    def is_plain(self) -> bool:
        """Whether it is one dataflow, which no other view uses."""
        return not self._below

    def hold(self) -> None:
        """Let go of all history that a restart from here would not read."""
        for dataflow in self.dataflows:
            dataflow.hold()

    def stop(self) -> None:
        self._last.stop()
        for flow in self._below:
            self._flows.release(flow)


def owned(owner: str, id_: str) -> str:
    """What the shard (and the dataflow) of a fragment is called.

    By the view that was the first to need it: names of dropped shards are used up, those of views
    are never used again.
    """
    return f"{owner}-{id_}"


def owners_of(id_: str, plan: Plan, known: Mapping[str, str]) -> dict[str, str]:
    """Whom the fragments of a new view are named after: those that are `known`, else itself."""
    return {piece.id: known.get(piece.id, id_) for piece in fragments_of(plan)[:-1]}


def inherited(plan: Plan, id_: str, before: Plan, owners: Mapping[str, str]) -> dict[str, str]:
    """Whom the state of a view's last fragment is named after, if that of the view `id_`, in whose
    place it comes, is the same: then it goes on with that."""
    last, other = fragments_of(plan)[-1], fragments_of(before)[-1]
    return {last.id: owners.get(last.id, id_)} if last.id == other.id else {}


def state_shards(id_: str, plan: Plan, owners: Mapping[str, str]) -> tuple[str, ...]:
    """The shards in which a view's last fragment keeps its state."""
    last = fragments_of(plan)[-1]
    assert isinstance(last, Fragment)
    return shards_kept(last, owned(owners.get(last.id, id_), last.id))[1:]


def shards_between(id_: str, plan: Plan, owners: Mapping[str, str]) -> dict[str, str]:
    """The shards of what a view's fragments read of each other, by collection."""
    return {
        collection: owned(owners.get(piece.id, id_), collection)
        for piece in fragments_of(plan)[:-1]
        for collection in piece.outputs
    }


class Keeping(NamedTuple):
    """What keeps a view besides its output: dataflows, by their names, and shards."""

    dataflows: set[str]
    shards: set[str]


def keeping(id_: str, plan: Plan, owners: Mapping[str, str], client: PersistClient) -> Keeping:
    """All of it; other views may have some of that, too."""
    found = Keeping({id_}, set(state_shards(id_, plan, owners)))
    for piece in fragments_of(plan)[:-1]:
        owner = owners.get(piece.id, id_)
        found.dataflows.add(owned(owner, piece.id))
        fragments = [piece] if isinstance(piece, Fragment) else []
        if isinstance(piece, Recursive):
            found.shards.update(owned(owner, each) for each in piece.outputs)
            rounds = rounds_kept(piece, client, lambda each, owner=owner: owned(owner, each))
            fragments += rounds.values()
        for fragment in fragments:
            name = owned(owner, fragment.id)
            found.dataflows.add(name)
            found.shards.update(shards_kept(fragment, name))
    return found


def release(client: PersistClient, shard: str, dataflow: str) -> None:
    """Give up what a dataflow holds of a shard, if it does."""
    if holder_of(dataflow) in client.state(shard).holds:
        client.open_critical_since(shard, holder_of(dataflow)).release()
