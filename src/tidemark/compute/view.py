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

from pyspark.sql import SparkSession

from tidemark.compute.arrangements import Arrangements
from tidemark.compute.dataflow import Dataflow, holder_of, state_shards
from tidemark.compute.fixpoint import Recursion, rounds_kept
from tidemark.compute.fragments import Fragment, Piece, Recursive, fragments_of, view_of
from tidemark.compute.plan import Plan
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient


class Flow:
    """A shared fragment's dataflow, one thread at a time.

    One that fails is thrown away: what it had not written yet is computed again, from the shards.
    """

    def __init__(self, make: Callable[[], Dataflow | Recursion]):
        self.dataflow = make()
        self.users = 0
        self._make = make
        self._lock = threading.Lock()
        self._as_of: int | None = None

    def start(self, as_of: int) -> None:
        with self._lock, self._afresh():
            if self._as_of is None:
                self.dataflow.start(as_of)
                self._as_of = as_of

    def advance(self, upper: Frontier) -> None:
        with self._lock, self._afresh():
            while self.dataflow.lower < upper:
                self.dataflow.tick(upper)

    @contextmanager
    def _afresh(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.dataflow.stop()
            self.dataflow = self._make()
            if self._as_of is not None:
                self.dataflow.start(self._as_of)
            raise


class Flows:
    """The fragments that run here, each once, by what they compute.

    Their shards' names begin with `prefix`, for whoever would not meet another's.
    """

    def __init__(
        self,
        client: PersistClient,
        spark: SparkSession,
        arrangements: Arrangements,
        *,
        prefix: str = "",
    ):
        self.client = client
        self.prefix = prefix
        self.spark = spark
        self.arrangements = arrangements
        # A recursion that ends releases, in turn, what it is made of.
        self._lock = threading.RLock()
        self._flows: dict[str, Flow] = {}

    def acquire(self, piece: Piece, inputs: Mapping[str, str]) -> Flow:
        with self._lock:
            flow = self._flows.get(piece.id)
            if flow is None:
                flow = self._flows[piece.id] = Flow(lambda: self._made(piece, inputs))
            flow.users += 1
            return flow

    def release(self, flow: Flow) -> None:
        with self._lock:
            flow.users -= 1
            if not flow.users:
                self._flows = {
                    id_: other for id_, other in self._flows.items() if other is not flow
                }
                flow.dataflow.stop()

    def name(self, fragment: str) -> str:
        return f"{self.prefix}{fragment}"

    def _made(self, piece: Piece, inputs: Mapping[str, str]) -> Dataflow | Recursion:
        name = self.name(piece.id)
        if isinstance(piece, Fragment):
            return self.dataflow(name, piece, inputs)
        return Recursion(
            name,
            piece,
            inputs={each: inputs.get(each, self.name(each)) for each in piece.inputs},
            shards=tuple(self.name(piece.result(i)) for i in range(len(piece.bindings))),
            client=self.client,
            acquire=lambda fragment: self.acquire(fragment, inputs),
            release=self.release,
            name=self.name,
        )

    def dataflow(
        self,
        id_: str,
        fragment: Fragment,
        inputs: Mapping[str, str],
        output: str | None = None,
    ) -> Dataflow:
        return Dataflow(
            id_,
            fragment,
            inputs={each: inputs.get(each, self.name(each)) for each in fragment.shape.inputs},
            output=output or self.name(fragment.id),
            state=self.name(fragment.id),
            client=self.client,
            spark=self.spark,
            arrangements=self.arrangements,
        )


class View:
    """Maintains `plan` over `inputs` (collection id to shard id) in the shard `output`."""

    def __init__(
        self,
        id_: str,
        plan: Plan,
        *,
        inputs: Mapping[str, str],
        output: str,
        as_of: int,
        flows: Flows,
    ):
        pieces = fragments_of(plan)
        self.id = id_
        self._as_of = as_of
        self._flows = flows
        self._shards = dict(inputs)
        self._inputs = [flows.client.open_reader(shard) for shard in inputs.values()]
        self._below = [flows.acquire(piece, inputs) for piece in pieces[:-1]]
        self._last = flows.dataflow(id_, view_of(pieces), inputs, output)

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

    def start(self) -> None:
        """Resume or hydrate, from the first fragment to the last."""
        since = max(reader.since.time or 0 for reader in self._inputs)
        as_of = max(self._as_of, since)
        for flow in self._below:
            flow.start(as_of)
            held = [self._flows.client.open_reader(s).since for s in flow.dataflow.shards]
            as_of = max(as_of, *(since.time or 0 for since in held))
        for reader in self._inputs:
            reader.wait_for_upper_past(as_of)
        for flow in self._below:
            flow.advance(Frontier(as_of + 1))
        self._last.start(as_of)
        # What only fragments read is held by them from now on.
        for collection, shard in self._shards.items():
            if collection not in self._last.shape.inputs:
                self._flows.client.open_critical_since(shard, holder_of(self.id)).release()

    def input_upper(self) -> Frontier:
        """How far all inputs are complete."""
        return min(reader.upper for reader in self._inputs)

    def tick(self, upper: Frontier) -> Frontier:
        """Bring the view up to `upper` (or, with a long backlog, some way); how far it came."""
        for flow in self._below:
            flow.advance(upper)
        return self._last.tick(upper)

    def stop(self) -> None:
        self._last.stop()
        for flow in self._below:
            self._flows.release(flow)


def shards_of(plan: Plan, client: PersistClient) -> tuple[str, ...]:
    """The shards that a view keeps besides its output; other views may keep some of them, too."""
    pieces = fragments_of(plan)
    found: list[str] = []
    for piece in pieces[:-1]:
        if isinstance(piece, Fragment):
            found += [piece.id, *state_shards(piece)]
        else:
            found += [piece.result(i) for i in range(len(piece.bindings))]
            found += rounds_kept(piece, client, str)
    return tuple(dict.fromkeys([*found, *state_shards(view_of(pieces))]))


def fragments_below(plan: Plan, client: PersistClient) -> tuple[str, ...]:
    """The dataflows besides the view's own that keep it, by the names under which they hold."""
    found: list[str] = []
    for piece in fragments_of(plan)[:-1]:
        found.append(piece.id)
        if isinstance(piece, Recursive):
            found += rounds_kept(piece, client, str)
    return tuple(found)
