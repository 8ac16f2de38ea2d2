"""Views without a server: SQL, input shards and an output shard, maintained by this process.

    inputs (shards of anybody) ──▶ maintain(sql) in any Spark driver ──▶ output (a shard)

    with maintain("SELECT region, count(*) AS n FROM orders GROUP BY region",
                  inputs={"orders": "shard-of-orders"}, output="by-region",
                  client=client, spark=spark) as view:
        view.catch_up()              # to where the inputs are now
        view.run(timeout=60)         # and on, as they go on

Everything is in shards: a process that stops or dies is followed by one that says the same, which
goes on where the output is. What a view is, is recorded beside it (`definition.py`).

Holds: while a view exists, whether it runs or not, its inputs stay readable from where it is; so a
view that nobody runs keeps history. `close(forget=True)` or `tidemark view drop` ends that. And as
everywhere, history goes once all who hold a shard allow it: who wants the past of an input that
nobody else holds must hold it himself (`PersistClient.open_critical_since`).
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession

from tidemark.compute.arrangements import Arrangements
from tidemark.compute.definition import (
    AsOf,
    Definition,
    Query,
    define,
    definition_shard,
    drop,
    found,
    planned,
    release,
)
from tidemark.compute.protocol import Verified, Verify
from tidemark.compute.verify import MOST_SHOWN, newest_readable, run_verify
from tidemark.compute.view import Flows, View
from tidemark.errors import AsOfBeforeSince, Fenced, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.spark.progress import Report, progress
from tidemark.types import Column

LOOK_UP_EVERY = 0.5
PAUSES = (0.2, 1.0, 5.0)
"""Seconds to wait for a store that is away, the longer the longer it is."""


class Statistics(NamedTuple):
    """`lower` is how far the view has come and `inputs` how far it could; both 0 before the first
    tick or append. `ticks` counts those of this process that had changes to work on."""

    as_of: int
    lower: Frontier
    inputs: Frontier
    ticks: int
    hydrated: bool


OnTick = Callable[[Statistics], None]


def maintain(
    sql: str,
    *,
    inputs: Mapping[str, str],
    output: str,
    client: PersistClient,
    spark: SparkSession,
    cache: Path | str | None = None,
    dialect: str = "postgres",
    as_of: AsOf = "earliest",
    report: Report | None = None,
) -> Maintained:
    """A view of `sql` over `inputs` (table names to shards) in the shard `output`.

    Nothing is computed until `catch_up` or `run`. The output is made if it is not there; one that
    holds anything but this view is refused (`definition.py` says how that is known).

    The view begins at `as_of` and is right at every time from there on: a time, `"earliest"`, the
    first at which all inputs can be read and any has rows, or `"latest"`, the newest that all have
    completed, which spares the work on a long history. It matters for a new view only.

    `cache` is a folder for arrangements; one that stays makes the next start quicker. The client
    merges what it writes in the background from now on. `report` hears of long Spark jobs; by
    default they are shown in the terminal's last line, or logged.
    """
    found = define(client, sql, inputs, output, dialect=dialect, as_of=as_of)
    client.start_maintenance()
    return Maintained(*found, client=client, spark=spark, cache=cache, report=report)


def verify_view(
    output: str,
    *,
    client: PersistClient,
    spark: SparkSession,
    as_of: int | None = None,
    report: Report | None = None,
) -> Verified:
    """Whether the view in the shard `output` is what plain Spark SQL says that its query is.

    At `as_of`, or at the newest time at which it and its inputs can all be read. It need not be
    running, and this does not bring it forward.
    """
    definition = found(client, output)
    query = planned(
        client,
        definition.sql,
        definition.inputs,
        dialect=definition.dialect,
        known=definition.columns,
    )
    shards = {shard: shard for shard in query.inputs.values()}
    if as_of is None:
        as_of = newest_readable(client, [output, *shards])
    for shard in (output, *shards):
        upper = client.state(shard).upper
        if not upper.covers(as_of):
            raise InvalidUsage(
                f"shard {shard} is complete to {upper}: it cannot be read at {as_of} yet",
                hint="verify at an earlier time, or run the view first",
            )
    asked = Verify(
        f"verify-{uuid4()}", output, query.plan, shards, output, as_of, as_of, limit=MOST_SHOWN
    )
    return run_verify(spark, client, asked, report=report)


class Maintained:
    """A view that this process can bring forward. One thread at a time."""

    def __init__(
        self,
        query: Query,
        definition: Definition,
        *,
        client: PersistClient,
        spark: SparkSession,
        cache: Path | str | None,
        report: Report | None,
    ):
        self.query = query
        self.definition = definition
        self.client = client
        self.spark = spark
        self._report = report
        self._stack = ExitStack()
        if cache is None:
            cache = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-"))
        self._cache = Path(cache)
        self._view: View | None = None
        self._ticks = 0
        self._lower = Frontier.MIN
        self._record = definition_shard(definition.output)
        self._recorded = client.state(self._record).upper

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.query.plan.columns

    @property
    def lower(self) -> Frontier:
        """Everything before this is computed and durable, as far as this process knows."""
        return self._lower

    @property
    def statistics(self) -> Statistics:
        hydrated = self._view is not None
        return Statistics(
            self.definition.as_of, self._lower, self.input_upper(), self._ticks, hydrated
        )

    def input_upper(self) -> Frontier:
        """How far all inputs are complete; of inputs that are all finished, just past their end."""
        states = [self.client.state(shard) for shard in self.query.inputs.values()]
        upper = min(state.upper for state in states)
        if not upper.is_empty:
            return upper
        if any(state.is_tombstone for state in states):
            raise InvalidUsage(
                f"an input of {self.definition.output} was dropped",
                hint="drop the view, too; its rows stay",
            )
        since = max(state.since.time or 0 for state in states)
        times = (part.max_time for state in states for part in state.parts)
        return Frontier(max([self.definition.as_of, since, *times]) + 1)

    @property
    def finished(self) -> bool:
        """Whether no input will ever change again."""
        shards = self.query.inputs.values()
        return all(self.client.state(shard).upper.is_empty for shard in shards)

    def catch_up(
        self, *, stop: threading.Event | None = None, on_tick: OnTick | None = None
    ) -> Frontier:
        """Bring the view to where its inputs are now; how far it came."""
        return self.run(until=self.input_upper(), stop=stop, on_tick=on_tick)

    def run(
        self,
        *,
        until: Frontier | None = None,
        stop: threading.Event | None = None,
        timeout: float | None = None,
        on_tick: OnTick | None = None,
    ) -> Frontier:
        """Follow the inputs until the view has come to `until`, `stop` is set, `timeout` seconds
        have passed or all inputs are finished, whichever is first; how far it came.

        A store that is away is waited for. Whatever else fails is raised, and may be tried again:
        the next call resumes from the shards, as after a crash.
        """
        clock, stop = self.client.clock, stop or threading.Event()
        deadline = None if timeout is None else clock.monotonic() + timeout
        self._check_until(until)
        failures = 0

        def left() -> float:
            return math.inf if deadline is None else deadline - clock.monotonic()

        while not stop.is_set() and left() > 0 and not self._is_done(until):
            wait = min(left(), LOOK_UP_EVERY)
            try:
                upper = self.client.watch.wait_for(None, lambda: self._due(until), timeout=wait)
                if upper is not None and not stop.is_set():
                    self._advance(upper, on_tick)
                failures = 0
            except (Unavailable, AsOfBeforeSince) as error:
                # The second: another process with this view is ahead, and has let go of what is
                # needed here. It is in the shards by now.
                failures += 1
                waits = until is None and isinstance(error, Unavailable)
                if failures > len(PAUSES) and not waits:
                    raise
                stop.wait(min(PAUSES[min(failures, len(PAUSES)) - 1], max(left(), 0)))
        return self._lower

    def close(self, *, forget: bool = False) -> None:
        """Stop. The view stays what it is, and holds what it needs to go on; with `forget` it is
        dropped, and only its rows stay."""
        try:
            if self._view is not None and not forget and self._is_defined:
                self._view.hold()
        finally:
            self._stop()
            self._stack.close()
        if forget:
            drop(self.client, self.definition.output)

    def __enter__(self) -> Maintained:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_until(self, until: Frontier | None) -> None:
        if self._view is None and until is not None and not until > self._first:
            uppers = [
                f"{name} to {self.client.state(shard).upper}"
                for name, shard in self.query.inputs.items()
            ]
            raise InvalidUsage(
                f"there is nothing to do before {until}: the view begins at {self._first}, "
                f"and its inputs are complete: {', '.join(uppers)}",
                hint="try again when the inputs have come further",
            )

    @property
    def _first(self) -> Frontier:
        """The first time of a view that has not begun; not before all inputs can be read."""
        states = [self.client.state(shard) for shard in self.query.inputs.values()]
        return max([Frontier(self.definition.as_of), *(s.since for s in states if s.since.time)])

    def _is_done(self, until: Frontier | None) -> bool:
        if self._view is None:
            return False
        if until is not None:
            return until <= self._lower
        return self.finished and self.input_upper() <= self._lower

    def _due(self, until: Frontier | None) -> Frontier | None:
        """How far to go now; None if the inputs are not further than the view."""
        upper = self.input_upper()
        if until is not None:
            upper = min(upper, until)
        at = self._first if self._view is None else self._lower
        return upper if at < upper else None

    def _advance(self, upper: Frontier, on_tick: OnTick | None) -> None:
        self._check_defined()
        try:
            if self._view is None:
                self._start()
            elif self._lower < upper:
                ticks = self._view.ticks
                self._lower = self._view.tick(upper)
                self._ticks += self._view.ticks - ticks
        except BaseException:
            with suppress(Exception):
                self._stop()
            raise
        if on_tick is not None:
            on_tick(self.statistics)

    def _start(self) -> None:
        definition = self.definition
        flows = Flows(self.client, self.spark, Arrangements(self.client, self._cache))
        self._view = View(
            definition.id,
            self.query.plan,
            inputs={shard: shard for shard in self.query.inputs.values()},
            output=definition.output,
            as_of=definition.as_of,
            flows=flows,
        )
        with progress(self.spark, f"hydrate {definition.output}", report=self._report):
            self._view.start()
        self._lower = self._view.lower

    def _stop(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.stop()

    @property
    def _is_defined(self) -> bool:
        return self.client.state(self._record).upper == self._recorded

    def _check_defined(self) -> None:
        if not self._is_defined:
            # A hold that was taken after the drop has released all of them would stay for ever.
            release(self.client, self.definition)
            raise Fenced(
                f"the view {self.definition.output} was dropped, or made anew, by somebody else"
            )
