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
from tidemark.compute.fragments import Fragment, fragments_of
from tidemark.compute.plan import Plan
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient


class Flow:
    """A shared fragment's dataflow, one thread at a time.

    One that fails is thrown away: what it had not written yet is computed again, from the shards.
    """

    def __init__(self, make: Callable[[], Dataflow]):
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
        self._lock = threading.Lock()
        self._flows: dict[str, Flow] = {}

    def acquire(self, fragment: Fragment, inputs: Mapping[str, str]) -> Flow:
        with self._lock:
            flow = self._flows.get(fragment.id)
            if flow is None:
                flow = self._flows[fragment.id] = Flow(
                    lambda: self.dataflow(self.name(fragment.id), fragment, inputs)
                )
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
        *below, last = fragments_of(plan)
        self.id = id_
        self._as_of = as_of
        self._flows = flows
        self._shards = dict(inputs)
        self._inputs = [flows.client.open_reader(shard) for shard in inputs.values()]
        self._below = [flows.acquire(fragment, inputs) for fragment in below]
        self._last = flows.dataflow(id_, last, inputs, output)

    @property
    def lower(self) -> Frontier:
        """Everything before this is computed and durable."""
        return self._last.lower

    @property
    def ticks(self) -> int:
        return self._last.ticks

    @property
    def dataflows(self) -> tuple[Dataflow, ...]:
        """All that keep this view, its own last."""
        return (*(flow.dataflow for flow in self._below), self._last)

    def start(self) -> None:
        """Resume or hydrate, from the first fragment to the last."""
        since = max(reader.since.time or 0 for reader in self._inputs)
        as_of = max(self._as_of, since)
        for flow in self._below:
            flow.start(as_of)
            held = self._flows.client.open_reader(flow.dataflow.shards[0]).since
            as_of = max(as_of, held.time or 0)
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


def shards_of(plan: Plan) -> tuple[str, ...]:
    """The shards that a view keeps besides its output; other views may keep some of them, too."""
    *below, last = fragments_of(plan)
    return tuple(
        shard for fragment in below for shard in (fragment.id, *state_shards(fragment))
    ) + state_shards(last)


def fragments_below(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The shared fragments of a view, and what each reads: ids of collections and fragments."""
    *below, _ = fragments_of(plan)
    return {fragment.id: fragment.shape.inputs for fragment in below}
