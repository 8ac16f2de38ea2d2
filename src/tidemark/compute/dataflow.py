"""A dataflow: keeps one fragment right, tick by tick.

A tick, from `lower` (how far everything it writes has come) to `upper` (how far all inputs are):

    STAGES   changes   the inputs' updates in [lower, upper); none at all: only progress is written
             probe     those that pass (sieve.py), and the rows they join with, from arrangements
                       as of lower - 1
             body      one Spark SQL query: changes of the joined, filtered, projected rows
             tail      what is kept of the touched groups, from arrangements; then one Spark SQL
                       query: versions of those groups that begin or end (tails.py)
             write     operator state and output, each by its own sink

State and output need no transaction. What has been written is vouched for now and then by a hold,
on the inputs and on all that is written, at the last time before `lower`. After a crash the
dataflow goes on from there: what came since is computed again from the state as of then, and each
sink subtracts what the shard already has, be it of an earlier life, of a twin or of a stranger. Two
dataflows of the same fragment (of two replicas, or of two views) write the same shards, and neither
minds; one that falls behind the other's holds goes on from these.

One that is read-only computes a tick ahead of what is written, and waits until it is: by somebody
else, or by itself when it may (`settle`).

Hydration is the first tick: everything that is there at `as_of` is a change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.compute.arrangements import Arrangements
from tidemark.compute.constants import constant_rows
from tidemark.compute.delta import PRIOR, Probe, probes
from tidemark.compute.failpoints import reached
from tidemark.compute.fragments import Fragment
from tidemark.compute.leaves import changed_rows, distinct_times, leaf_table, probe_keys, ranked
from tidemark.compute.plan import Constant
from tidemark.compute.refresh import Refresh
from tidemark.compute.run import COUNT, RANK, RANKED, Runner
from tidemark.compute.shape import Block, Leaf, Temporal
from tidemark.compute.sieve import Sieve
from tidemark.compute.sink import Sink
from tidemark.compute.tails import Changes, Interval, Written, errors_of, no_errors, tail_of
from tidemark.errors import AsOfBeforeSince, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, Appended, PersistClient, UpperMismatch
from tidemark.persist.arrange import Arrangement
from tidemark.persist.machine import Step
from tidemark.persist.read import overlapping
from tidemark.persist.updates import row_names, split_errors, with_time
from tidemark.spark.frames import Frames, counted, delta, local_frame
from tidemark.spark.progress import progress
from tidemark.spark.stage import stage
from tidemark.types import Column, arrow_schema

log = structlog.get_logger("dataflow")

MAX_TIMES = 256
"""Distinct times handled in one tick; a longer backlog is worked off in several."""

MAX_ROWS = 2_000_000
"""Changes read for one tick, if they are in several parts."""

LARGE_ROWS = 100_000
"""Changes beyond this go through Spark with full parallelism."""

HOLD_EVERY_MS = 5_000

IDLE_MS = 1_000
"""How often time passes for a view whose inputs have ended."""


class Dataflow:
    """Maintains `fragment` in the shard `output`, over `inputs` (collection id to shard id).

    What it keeps is in shards whose names begin with `state`.
    """

    def __init__(
        self,
        id_: str,
        fragment: Fragment,
        *,
        inputs: dict[str, str],
        output: str,
        state: str,
        client: PersistClient,
        spark: SparkSession,
        arrangements: Arrangements,
        refresh: Refresh | None = None,
        read_only: Callable[[], bool] = lambda: False,
    ):
        self.id = id_
        self.shape = shape = fragment.shape
        self._deaf_to = fragment.deaf_to
        self.ticks = 0
        self._client = client
        self._inputs = {id_: client.open_reader(inputs[id_]) for id_ in shape.inputs}
        self._arrangements = arrangements
        self._holder = holder_of(id_)
        self._runner = Runner(spark, shape, self._holder)
        self._tail = tail_of(shape)
        self._refresh = refresh
        self._read_only = read_only
        self._lower = Frontier.MIN
        self._settled = self._arranged = False
        self._held_at_ms = 0
        self._vouched = self._settled_at = -1
        self._newest = 0
        leads = refresh is None and bool(self._tail.kept)
        self._sinks = {"output": self._sink(output, shape.columns, leads=leads)}
        for name, kept in self._tail.kept.items():
            log_ = output if leads else None
            shard_id = f"{state}-{name}"
            self._sinks[name] = self._sink(shard_id, kept.columns, kept.key, follows=log_)
        self._probes = [
            [probes(block, leaf) for leaf in range(len(block.leaves))] for block in shape.blocks
        ]
        self._sieves = [
            [Sieve(block, leaf) for leaf in range(len(block.leaves))] for block in shape.blocks
        ]
        self._leaf_arrangements: dict[tuple[str, tuple[str, ...]], Arrangement] = {}
        self._state_arrangements: dict[str, Arrangement] = {}

    @property
    def lower(self) -> Frontier:
        """Everything before this is computed, and written but for the last tick of one that is
        read-only; empty once there is nothing left to come."""
        return self._lower

    @property
    def is_settled(self) -> bool:
        """Whether all that was computed is in the shards, as far as is known."""
        return self._settled

    @property
    def corrected(self) -> int:
        """Updates that put right what others have done to the shards."""
        return sum(sink.corrected for sink in self._sinks.values())

    @property
    def written(self) -> int:
        """Updates that it has appended to its output."""
        return self._sinks["output"].written

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards that this dataflow writes, its output first."""
        return tuple(sink.shard_id for sink in self._sinks.values())

    def start(self, as_of: int) -> None:
        """Resume from the shards, or hydrate at `as_of` if there is nothing to resume from."""
        if self._sinks["output"].upper.is_empty:
            self._lower, self._settled = Frontier.EMPTY, True
            if not self._read_only():
                self._release()
            return
        vouched = self._resumable()
        if vouched is None:
            self._hydrate(as_of)
            return
        self._lower = lower = Frontier(vouched + 1)
        for name, sink in self._sinks.items():
            sink.start(self._until(name, lower))
        self._vouched = self._settled_at = vouched
        self._settled = self._arranged = True
        self._arrange(vouched)
        log.info("resumed", dataflow=self.id, lower=lower.time)

    @property
    def is_resumable(self) -> bool:
        """Whether it can go on from what is there; if not, `start` hydrates."""
        return self._sinks["output"].upper.is_empty or self._resumable() is not None

    def _resumable(self) -> int | None:
        """The last time that was vouched for, if one can go on from there."""
        output = self._sinks["output"].shard_id
        hold = self._client.state(output).holds.get(self._holder)
        if hold is None or hold.since.time is None:
            return None
        as_of = hold.since.time
        written = all(Frontier(as_of + 1) <= sink.upper for sink in self._sinks.values())
        return as_of if written and self._readable(as_of) else None

    def input_upper(self) -> Frontier:
        """How far all inputs are complete."""
        return min(reader.upper for reader in self._inputs.values())

    def wants(self, upper: Frontier) -> bool:
        """Whether there is something to do, once the inputs are complete to `upper`."""
        if not self._settled:
            return not self._read_only() or self._is_written()
        return self._lower < self._target(upper)

    def changed(self, upper: Frontier) -> bool:
        """Whether inputs have changed before `upper`: if not, a tick is only progress."""
        if not self._settled or isinstance(self.shape.tail, Temporal):
            return True
        states = (self._client.machine(r.shard_id).cached for r in self._inputs.values())
        return any(any(overlapping(state, self._lower, upper)) for state in states)

    def tick(self, upper: Frontier) -> Frontier:
        """Bring everything up to `upper` (or, with a long backlog, some way); how far it came."""
        if not self.settle() or not self._lower < self._target(upper):
            return self._lower
        lower, upper = self._lower, self._target(upper)
        if upper.is_empty:
            upper = self._end()
            if not lower < upper:
                return self._finish()
        assert lower.time
        assert upper.time
        if self.changed(upper):
            upper = self._work_off(lower.time, upper)
        else:
            self._rest(upper)
        self._lower, self._settled = upper, False
        if self.settle():
            self._maybe_hold()
        return upper

    def rest(self, upper: Frontier) -> Step[Appended | UpperMismatch] | None:
        """The one append that a tick up to `upper` comes down to where nothing has changed; None if
        it takes a tick. When it is done, `rested`."""
        output, *others = self._sinks.values()
        is_usual = self._refresh is None and not upper.is_empty and self._arranged
        if not is_usual or not self._lower < upper or self.changed(upper):
            return None
        return output.rest(upper) if all(sink.is_led for sink in others) else None

    def rested(self, upper: Frontier) -> None:
        output, *others = self._sinks.values()
        output.rested(upper)
        for sink in others:
            sink.desire(None, upper)
        self._lower = upper
        self._maybe_hold()

    def _work_off(self, lower: int, upper: Frontier) -> Frontier:
        """Compute what the changes of the inputs before `upper` make; or of the first of many."""
        upper = self._manageable(lower, upper)
        changes = {
            collection: reader.updates(Frontier(lower), upper)
            for collection, reader in self._inputs.items()
        }
        times = distinct_times(changes.values())
        if len(times) > MAX_TIMES:
            upper = Frontier(int(times[MAX_TIMES]))
            times = times[:MAX_TIMES]
            changes = {
                c: table.filter(pc.less(table[TIME], upper.time)) for c, table in changes.items()
            }
        assert upper.time
        if not len(times) and not isinstance(self.shape.tail, Temporal):
            self._rest(upper)
            return upper
        self._compute(changes, Interval(times, lower - 1, upper.time))
        self.ticks += bool(len(times))
        self._newest = upper.time
        return upper

    def _rest(self, upper: Frontier) -> None:
        for name, sink in self._sinks.items():
            sink.desire(None, self._until(name, upper))

    def settle(self) -> bool:
        """Whether all that was computed is in the shards: by others, or, if it may, from here."""
        if self._settled:
            return True
        if self._read_only():
            if not self._is_written():
                return False
            for name, sink in self._sinks.items():
                sink.catch_up(self._until(name, self._lower))
        else:
            self._flush()
            if self._lower.is_empty:
                self._release()
        if not self._arranged and self._lower.time:
            self._arrange_state(self._lower.time - 1)
            self._arranged = True
        self._settled = True
        return True

    def _is_written(self) -> bool:
        """Whether somebody has written all that was computed here."""
        return all(self._until(n, self._lower) <= sink.upper for n, sink in self._sinks.items())

    def _until(self, name: str, upper: Frontier) -> Frontier:
        """How far a sink is complete once the dataflow is complete to `upper`."""
        if name == "output" and self._refresh is not None:
            return self._refresh.frontier(upper)
        return upper

    def _target(self, upper: Frontier) -> Frontier:
        """How far a tick should go: with a schedule, past the last refresh that is due, if any."""
        if upper.is_empty and isinstance(self.shape.tail, Temporal):
            now = self._client.clock.now_ms()  # What is pending goes on happening.
            return max(self._lower, Frontier(now - now % IDLE_MS))
        if self._refresh is None or upper.is_empty or self._lower.is_empty:
            return upper
        assert self._lower.time is not None
        due = self._refresh.round_up(self._lower.time)
        if due is None:
            return Frontier.EMPTY
        if not upper.covers(due):
            return self._lower
        assert upper.time
        last = self._refresh.round_down(upper.time - 1)
        assert last is not None
        return Frontier(last + 1)

    def _end(self) -> Frontier:
        """Up to where something happens, when no input will ever change again."""
        if self._refresh is not None and self._refresh.round_up(self._lower.time or 0) is None:
            return self._lower  # What came after the last refresh is not seen any more.
        states = [self._client.machine(r.shard_id).cached for r in self._inputs.values()]
        last = max((part.max_time for state in states for part in state.parts), default=0)
        return Frontier(last + 1)

    def _finish(self) -> Frontier:
        """There is nothing left to come: the shards end."""
        for sink in self._sinks.values():
            sink.desire(None, Frontier.EMPTY)
        self._lower, self._settled = Frontier.EMPTY, False
        self.settle()
        return self._lower

    def hold(self) -> None:
        """Vouch for what is written; keep readable what a restart from here would read, no more."""
        if self._lower.is_empty or self._read_only():
            return
        assert self._lower.time
        self._hold_at(self._lower.time - 1)

    def _hold_hot(self) -> None:
        """Arrangements need not be read before this any more."""
        assert self._lower.time
        for arrangement in [*self._leaf_arrangements.values(), *self._state_arrangements.values()]:
            arrangement.hold(self._holder, self._lower.time - 1)
        self._held_at_ms = self._client.clock.now_ms()

    def _hold_at(self, as_of: int) -> None:
        assert self._lower.time
        # The hot forms first: they must have read what the shards may then forget.
        self._hold_hot()
        bases = self._bases()
        for shard_id in self._held_shards():
            since = Frontier(min(as_of, bases.get(shard_id, as_of)))
            self._client.open_critical_since(shard_id, self._holder).downgrade(since)
        self._vouched = as_of
        self._settled_at = self._lower.time - 1

    def _bases(self) -> dict[str, int]:
        """By shard, when the oldest base of its arrangements is of: while history reaches back to
        it, a restart need not sort the shard again."""
        leaves = self._leaf_arrangements.items()
        arranged = [(self._inputs[id_].shard_id, found) for (id_, _), found in leaves]
        states = self._state_arrangements.items()
        arranged += [(self._sinks[name].shard_id, found) for name, found in states]
        bases: dict[str, int] = {}
        for shard_id, arrangement in arranged:
            as_of = arrangement.base_as_of
            if as_of >= 0:
                bases[shard_id] = min(as_of, bases.get(shard_id, as_of))
        return bases

    def _held_shards(self) -> list[str]:
        return [*(reader.shard_id for reader in self._inputs.values()), *self.shards]

    def _release(self) -> None:
        for shard_id in self._held_shards():
            self._client.open_critical_since(shard_id, self._holder).release()

    def stop(self) -> None:
        for sink in self._sinks.values():
            sink.stop()
        for arrangement in [*self._leaf_arrangements.values(), *self._state_arrangements.values()]:
            self._arrangements.release(arrangement, self._holder)
        self._runner.close()

    # The stages of a tick.

    def _manageable(self, lower: int, upper: Frontier) -> Frontier:
        """`upper`, or of a long backlog as far as a tick should go: judged by the parts, unread."""
        states = [self._client.machine(r.shard_id).cached for r in self._inputs.values()]
        parts = sorted(
            (part.min_time, part.rows)
            for state in states
            for part in overlapping(state, Frontier(lower), upper)
        )
        rows = 0
        for at, (first, count) in enumerate(parts):
            rows += count
            if first > lower and (at >= MAX_TIMES or rows > MAX_ROWS):
                return Frontier(first)
        return upper

    def _compute(self, changes: dict[str, pa.Table], over: Interval) -> None:
        good: dict[str, pa.Table] = {}
        errors = []
        for collection, table in changes.items():
            good[collection], failed = split_errors(table)
            if collection not in self._deaf_to:
                errors.append(failed.select([ERR, TIME, DIFF]))
        body = self._runner.body(self._leaves(good, over)) if len(over.times) else self._nothing()
        reached("dataflow.body-done")
        failed = body.filter(pc.is_valid(body[ERR]))
        body = body.filter(pc.is_null(body[ERR])) if failed.num_rows else body
        errors.append(errors_of(failed, over.times))
        found = self._changes(body.drop_columns([ERR]), over)
        reached("dataflow.tail-done")
        errors.append(found.errors)
        upper = Frontier(over.upper)
        for name, table in found.kept.items():
            self._sinks[name].desire(table, upper)
        sink = self._sinks["output"]
        output = found.output.rename_columns([*row_names(sink.schema), TIME, DIFF])
        output = _with_errors(output, errors, sink.schema)
        if self._refresh is not None:
            output = _rounded(output, self._refresh)
        sink.desire(output, self._until("output", upper))

    def _changes(self, body: pa.Table, over: Interval) -> Changes:
        if body.num_rows or over.prior < 0 or isinstance(self.shape.tail, Temporal):
            return self._tail.change(body, over, self._state_arrangements.__getitem__, self._runner)
        # Where no row changes, no group does.
        nothing = {name: sink.schema.empty_table() for name, sink in self._sinks.items()}
        return Changes(nothing.pop("output").drop_columns([ERR]), no_errors(), nothing)

    def _nothing(self) -> pa.Table:
        fields = [pa.field(f"o{i}", type_.arrow) for i, type_ in enumerate(self.shape.body)]
        return pa.schema([*fields, pa.field(ERR, pa.string()), *RANKED]).empty_table()

    def _leaves(self, good: dict[str, pa.Table], over: Interval) -> list[pa.Table]:
        """Each leaf's rows: changes at their rank, and what they join with at rank -1."""
        return [
            table
            for at, block in enumerate(self.shape.blocks)
            for table in self._block_leaves(block, self._probes[at], self._sieves[at], good, over)
        ]

    def _block_leaves(
        self,
        block: Block,
        ways: list[tuple[Probe, ...]],
        sieves: list[Sieve],
        good: dict[str, pa.Table],
        over: Interval,
    ) -> list[pa.Table]:
        changed = [
            sieve.passed(changed_rows(leaf, good))
            for leaf, sieve in zip(block.leaves, sieves, strict=True)
        ]
        known: list[list[pa.Table]] = [[] for _ in block.leaves]
        for start, table in enumerate(changed):
            if not table.num_rows or over.prior < 0:
                continue
            here: dict[int, pa.Table] = {}
            for probe in ways[start]:
                leaf = block.leaves[probe.into]
                if isinstance(leaf, Constant):
                    here[probe.into] = constant_rows(leaf)
                    continue
                keys = probe_keys(block, probe, changed, here)
                found = self._arrangement(leaf, probe).lookup(keys, over.prior)
                here[probe.into] = sieves[probe.into].passed(found)
                if not here[probe.into].num_rows and not changed[probe.into].num_rows:
                    here.clear()  # What meets nothing here changes nothing.
                    break
            for leaf, table in here.items():
                known[leaf].append(table)
        leaves = []
        for at, leaf in enumerate(block.leaves):
            names = [column.name for column in leaf.columns]
            if isinstance(leaf, Constant) and over.prior < 0:
                leaves.append(leaf_table(constant_rows(leaf), names, 0))
                continue
            parts = [ranked(changed[at], names, over.times)]
            if known[at]:
                # Two ways to reach a leaf may bring the same row; it was there only once.
                rows = pa.concat_tables(known[at])
                if len(known[at]) > 1:
                    rows = rows.group_by(rows.column_names, use_threads=False).aggregate([])
                parts.append(leaf_table(rows, names, PRIOR))
            leaves.append(pa.concat_tables(parts))
        return leaves

    def _arrangement(self, leaf: Leaf, probe: Probe) -> Arrangement:
        return self._leaf_arrangements[_arranged(leaf, probe)]

    def _flush(self) -> None:
        # State first: how far the output is says how far that is, too.
        for name, sink in reversed(self._sinks.items()):
            if not sink.flush():
                raise _overtaken(sink)
            reached(f"dataflow.{name}-written")

    # Starting.

    def _hydrate(self, as_of: int) -> None:
        as_of = max([as_of, *(reader.since.time or 0 for reader in self._inputs.values())])
        if self._refresh is not None:
            due = self._refresh.round_up(as_of)
            if due is None:
                raise InvalidUsage(f"{self.id} has no refresh at {as_of} or later")
            as_of = due
        for reader in self._inputs.values():
            reader.wait_for_upper_past(as_of)
        self._lower, self._settled_at = Frontier(as_of + 1), as_of
        self.hold()
        stored = sum(self._client.state(r.shard_id).rows for r in self._inputs.values())
        log.info("hydrating", dataflow=self.id, as_of=as_of, stored_updates=stored)
        reached("dataflow.hydrating")
        # Some are there already: of a view that is replaced, or of a hydration that was cut short.
        done = {name for name, sink in self._sinks.items() if self._is_done(sink, as_of)}
        rest = [sink for name, sink in self._sinks.items() if name not in done]
        begin = Frontier(as_of)
        self._settled = self._arranged = False
        if stored > LARGE_ROWS and not any(self._client.state(s.shard_id).rows for s in rest):
            for name, sink in self._sinks.items():
                sink.start(self._lower if name in done else Frontier.MIN, begin=begin)
            self._hydrate_large(as_of, done)
        else:
            for sink in self._sinks.values():
                sink.start(Frontier.MIN, begin=begin)
            self._arrange_state(-1)
            snapshots = {c: reader.snapshot(as_of) for c, reader in self._inputs.items()}
            self._compute(snapshots, Interval(np.array([as_of]), -1, as_of + 1))
        if not self._read_only():
            self._flush()
            self._settled = self._arranged = True
        self._arrange(as_of)
        log.info("hydrated", dataflow=self.id, as_of=as_of)

    def _is_done(self, sink: Sink, as_of: int) -> bool:
        since = self._client.state(sink.shard_id).since
        return self._lower <= sink.upper and since <= Frontier(as_of)

    def _hydrate_large(self, as_of: int, done: Collection[str]) -> None:
        """The same queries with the leaves bound to snapshot scans, written by Spark's tasks; of
        sinks that are not `done`. What is there is arranged meanwhile, the inputs from the start:
        to sort one keeps one core busy, and Spark's tasks often wait for their workers."""
        upper = Frontier(as_of + 1)
        with ExitStack() as stack:
            aside = stack.enter_context(ThreadPoolExecutor(2, thread_name_prefix="arrange"))
            arranged = [aside.submit(self._arrange_inputs, as_of)]
            stack.enter_context(progress(self._runner.large, f"hydrate {self.id}"))
            frames = {
                id_: stack.enter_context(
                    counted(self._runner.large, self._client, reader.shard_id, as_of)
                )
                for id_, reader in self._inputs.items()
            }
            appended = set[str]()

            def written(name: str) -> DataFrame | None:
                if name not in appended:
                    return None
                shard_id = self._sinks[name].shard_id
                updates = delta(self._runner.large, self._client, shard_id, Frontier.MIN, upper)
                return stack.enter_context(updates).ok

            for name, frame in self._large(frames, as_of, written):
                if name in done:
                    continue
                sink = self._sinks[name]
                batch = stage(frame, self._client, sink.writer).at(as_of)
                sink.adopt(batch, self._until(name, upper))
                # At once, so that one that is cut short need not do all of it again.
                if not self._read_only():
                    if not sink.flush():
                        raise _overtaken(sink)
                    appended.add(name)
                    if name in self._tail.kept:
                        arranged.append(aside.submit(self._arrange_kept, name, as_of))
                reached(f"dataflow.large-{name}-written")
            self._runner.uncache()
            for each in arranged:
                each.result()
        reached("dataflow.large-hydrated")

    def _large(
        self, inputs: dict[str, Frames], as_of: int, written: Written
    ) -> Iterator[tuple[str, DataFrame]]:
        """Rows of everything that the dataflow's shards should contain at `as_of`, the output's
        last."""
        leaves = [leaf for block in self.shape.blocks for leaf in block.leaves]
        for at, leaf in enumerate(leaves):
            if isinstance(leaf, Constant):
                names = [column.name for column in leaf.columns]
                rows = leaf_table(constant_rows(leaf), names, 0)
                frame = local_frame(self._runner.large, rows)
            else:
                picked = [F.col(f"`{c.name}`").alias(f"c{j}") for j, c in enumerate(leaf.columns)]
                frame = inputs[leaf.id].ok.select(
                    *picked, F.lit(0).alias(RANK), F.col(DIFF).alias(COUNT)
                )
            frame.createOrReplaceTempView(f"leaf{at}")
        errors = [
            frames.err.select(F.col(ERR), F.col(DIFF).alias(COUNT))
            for collection, frames in inputs.items()
            if frames.may_err and collection not in self._deaf_to
        ]
        body = self._runner.large_body()
        errors.append(body.where(F.col(ERR).isNotNull()).select(ERR, COUNT))
        outs = [f"o{i}" for i in range(len(self.shape.body))]
        good = body.where(F.col(ERR).isNull()).select(*outs, COUNT)
        output = None
        for name, frame in self._tail.hydrate(good, as_of, self._runner, written):
            if name == "errors":
                errors.append(frame)
            elif name == "output":
                output = frame
            else:
                # What is kept is read by nobody else; equal rows are summed where they are read.
                yield name, frame.withColumnRenamed(COUNT, DIFF)
        assert output is not None
        columns = self.shape.columns
        output = _summed(output.toDF(*(column.name for column in columns), COUNT))
        nulls = [F.lit(None).cast(c.type.spark).alias(c.name) for c in columns]
        output = output.withColumn(ERR, F.lit(None).cast("string"))
        for failed in errors:
            output = output.unionAll(_summed(failed).select(*nulls, COUNT, ERR))
        yield "output", output.withColumnRenamed(COUNT, DIFF)

    def _arrange(self, as_of: int) -> None:
        # Each is a sort; inputs and state are about the same work.
        with ThreadPoolExecutor(1, thread_name_prefix="arrange") as aside:
            # What is not written yet is arranged when it is.
            state = aside.submit(self._arrange_state, as_of) if self._arranged else None
            self._arrange_inputs(as_of)
            if state is not None:
                state.result()

    def _arrange_inputs(self, as_of: int) -> None:
        for block, ways in zip(self.shape.blocks, self._probes, strict=True):
            for probe in (probe for way in ways for probe in way):
                leaf = block.leaves[probe.into]
                if isinstance(leaf, Constant) or _arranged(leaf, probe) in self._leaf_arrangements:
                    continue
                name = id_, key = _arranged(leaf, probe)
                self._leaf_arrangements[name] = self._arrangements.acquire(
                    self._inputs[id_].shard_id, key, holder=self._holder, as_of=as_of
                )

    def _arrange_state(self, as_of: int) -> None:
        for name in self._tail.kept:
            self._arrange_kept(name, as_of)

    def _arrange_kept(self, name: str, as_of: int) -> None:
        sink, kept = self._sinks[name], self._tail.kept[name]
        self._state_arrangements[name] = self._arrangements.acquire(
            sink.shard_id,
            kept.key,
            holder=self._holder,
            as_of=as_of,
            order=kept.order,
            schema=sink.schema,
        )

    def _readable(self, as_of: int) -> bool:
        return all(reader.since <= Frontier(as_of) for reader in self._inputs.values())

    def _maybe_hold(self) -> None:
        if self._client.clock.now_ms() - self._held_at_ms < HOLD_EVERY_MS:
            return
        # Where nothing happened there is nothing to forget; and what waits for a refresh is not
        # written yet.
        if self._newest <= self._vouched:
            return
        if self._read_only() or self._sinks["output"].held:
            self._hold_hot()
        else:
            # As it was the last time: twins, and who follows, may be that far behind.
            self._hold_at(self._settled_at)

    def _sink(
        self,
        shard_id: str,
        columns: tuple[Column, ...],
        key: tuple[str, ...] = (),
        *,
        leads: bool = False,
        follows: str | None = None,
    ) -> Sink:
        return Sink(
            self._client,
            shard_id,
            schema=arrow_schema(columns),
            key=key,
            leads=leads,
            follows=follows,
            read_only=self._read_only,
        )


def holder_of(id_: str) -> str:
    """The name under which a dataflow holds back the since of what it reads."""
    return f"dataflow-{id_}"


def shards_kept(fragment: Fragment, name: str) -> tuple[str, ...]:
    """The shards of a fragment that is called `name`: its own, and those of its state."""
    return (name, *(f"{name}-{kept}" for kept in tail_of(fragment.shape).kept))


def _arranged(leaf: Leaf, probe: Probe) -> tuple[str, tuple[str, ...]]:
    assert not isinstance(leaf, Constant)
    return leaf.id, tuple(leaf.columns[column].name for column in probe.into_columns)


def _summed(rows: DataFrame) -> DataFrame:
    columns = [F.col(f"`{name}`") for name in rows.columns if name != COUNT]
    return rows.groupBy(*columns).agg(F.sum(COUNT).alias(COUNT)).where(F.col(COUNT) != 0)


def _overtaken(sink: Sink) -> AsOfBeforeSince:
    return AsOfBeforeSince(f"shard {sink.shard_id} was written by another replica meanwhile")


def _rounded(updates: pa.Table, refresh: Refresh) -> pa.Table:
    """`updates` at the refreshes at which they are seen; without those that never are."""
    times = updates[TIME].to_numpy()
    found, places = np.unique(times, return_inverse=True)
    seen = [refresh.round_up(int(time)) for time in found]
    rounded = np.array([-1 if time is None else time for time in seen], dtype=np.int64)[places]
    return with_time(updates, pa.array(rounded)).filter(pa.array(rounded >= 0))


def _with_errors(output: pa.Table, errors: list[pa.Table], schema: pa.Schema) -> pa.Table:
    good = output.append_column(ERR, pa.nulls(output.num_rows, pa.string())).select(schema.names)
    tables = [good.cast(schema)]
    for table in errors:
        if table.num_rows:
            nulls = {
                name: pa.nulls(table.num_rows, schema.field(name).type)
                for name in row_names(schema)
            }
            failed = pa.table({**nulls, TIME: table[TIME], DIFF: table[DIFF], ERR: table[ERR]})
            tables.append(failed.cast(schema))
    return pa.concat_tables(tables)
