"""A dataflow: keeps one fragment right, tick by tick.

A tick, from `lower` (how far everything it writes has come) to `upper` (how far all inputs are):

    STAGES   changes   the inputs' updates in [lower, upper); none at all: only progress is written
             probe     those that pass (sieve.py), and the rows they join with, from arrangements
                       as of lower - 1
             body      one Spark SQL query: changes of the joined, filtered, projected rows
             tail      what is kept of the touched groups, from arrangements; then one Spark SQL
                       query: versions of those groups that begin or end (tails.py)
             write     operator state and output, each by its own sink

State and output need no transaction: after a crash, `lower` is the least of their uppers, the
interval is computed again from the state as of then, and each sink subtracts what it already
wrote. Holds on the inputs and on the state keep exactly that history readable. Two dataflows of
the same fragment (of two replicas, or of two views) write the same shards, and neither minds.

Hydration is the first tick: everything that is there at `as_of` is a change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
from tidemark.compute.plan import Constant
from tidemark.compute.run import COUNT, RANK, RANKED, Runner
from tidemark.compute.shape import Block, Leaf, Temporal
from tidemark.compute.sieve import Sieve
from tidemark.compute.sink import Sink
from tidemark.compute.tails import Changes, Interval, errors_of, no_errors, tail_of
from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient
from tidemark.persist.arrange import Arrangement
from tidemark.persist.read import overlapping
from tidemark.persist.updates import row_names, split_errors
from tidemark.spark.frames import Frames, local_frame, snapshot
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
        self._lower = Frontier.MIN
        self._held_at_ms = 0
        self._sinks = {"output": self._sink(output, shape.columns)}
        for name, kept in self._tail.kept.items():
            shard_id = f"{state}-{name}"
            self._sinks[name] = self._sink(shard_id, kept.columns, kept.key)
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
        """Everything before this is computed and durable."""
        return self._lower

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards that this dataflow writes, its output first."""
        return tuple(sink.shard_id for sink in self._sinks.values())

    def start(self, as_of: int) -> None:
        """Resume from the shards, or hydrate at `as_of` if there is nothing to resume from."""
        lower = min(sink.upper for sink in self._sinks.values())
        if lower.time and self._readable(lower.time - 1):
            for sink in self._sinks.values():
                sink.start(lower)
            self._lower = lower
            self.hold()
            self._arrange(lower.time - 1)
            log.info("resumed", dataflow=self.id, lower=lower.time)
        else:
            self._hydrate(as_of)

    def input_upper(self) -> Frontier:
        """How far all inputs are complete."""
        return min(reader.upper for reader in self._inputs.values())

    def tick(self, upper: Frontier) -> Frontier:
        """Bring everything up to `upper` (or, with a long backlog, some way); how far it came."""
        lower = self._lower
        assert lower.time
        assert upper.time
        upper = self._manageable(lower.time, upper)
        changes = {
            collection: reader.updates(lower, upper) for collection, reader in self._inputs.items()
        }
        times = distinct_times(changes.values())
        if len(times) > MAX_TIMES:
            upper = Frontier(int(times[MAX_TIMES]))
            times = times[:MAX_TIMES]
            changes = {
                c: table.filter(pc.less(table[TIME], upper.time)) for c, table in changes.items()
            }
        assert upper.time
        if len(times) or isinstance(self.shape.tail, Temporal):
            self._compute(changes, Interval(times, lower.time - 1, upper.time))
            self.ticks += bool(len(times))
        else:
            for sink in self._sinks.values():
                sink.desire(sink.schema.empty_table(), upper)
        self._flush()
        self._lower = upper
        self._maybe_hold()
        return upper

    def hold(self) -> None:
        """Keep readable what a restart from `lower` would read, and no more."""
        assert self._lower.time
        since = Frontier(self._lower.time - 1)
        # The hot forms first: they must have read what the shards may then forget.
        for arrangement in [*self._leaf_arrangements.values(), *self._state_arrangements.values()]:
            arrangement.hold(self._holder, self._lower.time - 1)
        for shard_id in [*(r.shard_id for r in self._inputs.values()), *self.shards]:
            self._client.open_critical_since(shard_id, self._holder).downgrade(since)
        self._held_at_ms = self._client.clock.now_ms()

    def stop(self) -> None:
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
        sink.desire(_with_errors(output, errors, sink.schema), upper)

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
            sieve.passed(_changed(leaf, good))
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
                keys = _keys(block, probe, changed, here)
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
                leaves.append(_leaf_table(constant_rows(leaf), names, 0))
                continue
            parts = [_ranked(changed[at], names, over.times)]
            if known[at]:
                # Two ways to reach a leaf may bring the same row; it was there only once.
                rows = pa.concat_tables(known[at])
                if len(known[at]) > 1:
                    rows = rows.group_by(rows.column_names, use_threads=False).aggregate([])
                parts.append(_leaf_table(rows, names, PRIOR))
            leaves.append(pa.concat_tables(parts))
        return leaves

    def _arrangement(self, leaf: Leaf, probe: Probe) -> Arrangement:
        return self._leaf_arrangements[_arranged(leaf, probe)]

    def _flush(self) -> None:
        # State first: a reader of the output may then rely on the state being there.
        for name, sink in reversed(self._sinks.items()):
            sink.flush()
            reached(f"dataflow.{name}-written")

    # Starting.

    def _hydrate(self, as_of: int) -> None:
        as_of = max([as_of, *(reader.since.time or 0 for reader in self._inputs.values())])
        for reader in self._inputs.values():
            reader.wait_for_upper_past(as_of)
        self._lower = Frontier(as_of + 1)
        self.hold()
        stored = sum(self._client.state(r.shard_id).rows for r in self._inputs.values())
        log.info("hydrating", dataflow=self.id, as_of=as_of, stored_updates=stored)
        reached("dataflow.hydrating")
        # Some are there already: of a view that is replaced, or of a hydration that was cut short.
        done = {name for name, sink in self._sinks.items() if self._is_done(sink, as_of)}
        rest = [sink for name, sink in self._sinks.items() if name not in done]
        if stored > LARGE_ROWS and not any(sink.upper.time for sink in rest):
            for name, sink in self._sinks.items():
                sink.start(self._lower if name in done else Frontier.MIN)
            self._hydrate_large(as_of, done)
        else:
            for sink in self._sinks.values():
                sink.start(Frontier.MIN)
            self._arrange_state(-1)
            snapshots = {c: reader.snapshot(as_of) for c, reader in self._inputs.items()}
            self._compute(snapshots, Interval(np.array([as_of]), -1, as_of + 1))
            self._flush()
        self._arrange(as_of)
        log.info("hydrated", dataflow=self.id, as_of=as_of)

    def _is_done(self, sink: Sink, as_of: int) -> bool:
        since = self._client.state(sink.shard_id).since
        return self._lower <= sink.upper and since <= Frontier(as_of)

    def _hydrate_large(self, as_of: int, done: Collection[str]) -> None:
        """The same queries with the leaves bound to snapshot scans, written by Spark's tasks; of
        sinks that are not `done`."""
        upper = Frontier(as_of + 1)
        with ExitStack() as stack:
            stack.enter_context(progress(self._runner.large, f"hydrate {self.id}"))
            frames = {
                id_: stack.enter_context(
                    snapshot(self._runner.large, self._client, reader.shard_id, as_of)
                )
                for id_, reader in self._inputs.items()
            }
            for name, frame in self._large(frames, as_of).items():
                if name in done:
                    continue
                sink = self._sinks[name]
                if not sink.adopt(stage(frame, self._client, sink.writer).at(as_of), upper):
                    raise AsOfBeforeSince(f"{sink.shard_id} was written by another replica")
                reached(f"dataflow.large-{name}-written")
            self._runner.uncache()
        reached("dataflow.large-hydrated")

    def _large(self, inputs: dict[str, Frames], as_of: int) -> dict[str, DataFrame]:
        """Rows of everything that the dataflow's shards should contain at `as_of`."""
        leaves = [leaf for block in self.shape.blocks for leaf in block.leaves]
        for at, leaf in enumerate(leaves):
            if isinstance(leaf, Constant):
                names = [column.name for column in leaf.columns]
                rows = _leaf_table(constant_rows(leaf), names, 0)
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
        found = self._tail.hydrate(good, as_of, self._runner)
        if "errors" in found:
            errors.append(found.pop("errors"))
        columns = self.shape.columns
        output = _summed(found.pop("output").toDF(*(column.name for column in columns), COUNT))
        nulls = [F.lit(None).cast(c.type.spark).alias(c.name) for c in columns]
        output = output.withColumn(ERR, F.lit(None).cast("string"))
        for failed in errors:
            output = output.unionAll(_summed(failed).select(*nulls, COUNT, ERR))
        # What is kept is read by nobody else; equal rows are summed up where they are read.
        made = {**found, "output": output}
        return {name: frame.withColumnRenamed(COUNT, DIFF) for name, frame in made.items()}

    def _arrange(self, as_of: int) -> None:
        # Each is a sort; inputs and state are about the same work.
        with ThreadPoolExecutor(1, thread_name_prefix="arrange") as aside:
            state = aside.submit(self._arrange_state, as_of)
            self._arrange_inputs(as_of)
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
        for name, kept in self._tail.kept.items():
            sink = self._sinks[name]
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
        now = self._client.clock.now_ms()
        if now - self._held_at_ms >= HOLD_EVERY_MS:
            self.hold()

    def _sink(self, shard_id: str, columns: tuple[Column, ...], key: tuple[str, ...] = ()) -> Sink:
        return Sink(self._client, shard_id, schema=arrow_schema(columns), key=key)


def holder_of(id_: str) -> str:
    """The name under which a dataflow holds back the since of what it reads."""
    return f"dataflow-{id_}"


def shards_kept(fragment: Fragment, name: str) -> tuple[str, ...]:
    """The shards of a fragment that is called `name`: its own, and those of its state."""
    return (name, *(f"{name}-{kept}" for kept in tail_of(fragment.shape).kept))


def _arranged(leaf: Leaf, probe: Probe) -> tuple[str, tuple[str, ...]]:
    assert not isinstance(leaf, Constant)
    return leaf.id, tuple(leaf.columns[column].name for column in probe.into_columns)


def _changed(leaf: Leaf, good: dict[str, pa.Table]) -> pa.Table:
    if isinstance(leaf, Constant):
        return constant_rows(leaf).slice(0, 0).append_column(TIME, pa.nulls(0, pa.int64()))
    table = good[leaf.id]
    return table.select([*row_names(table.schema), TIME, DIFF])


def _keys(
    block: Block, probe: Probe, changed: list[pa.Table], here: dict[int, pa.Table]
) -> pa.Table:
    if not probe.into_columns:
        return pa.table({"all": [0]})
    leaf = probe.from_leaf
    names = [block.leaves[leaf].columns[column].name for column in probe.from_columns]
    tables = [changed[leaf], here[leaf]] if leaf in here else [changed[leaf]]
    # By position: one column may be equal to several of the other side.
    labels = [f"k{i}" for i in range(len(names))]
    return pa.concat_tables(
        pa.table([table[name] for name in names], names=labels) for table in tables
    )


def distinct_times(changes: Iterable[pa.Table]) -> np.ndarray:
    found = [table[TIME].to_numpy() for table in changes if table.num_rows]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


def _ranked(table: pa.Table, names: list[str], times: np.ndarray) -> pa.Table:
    return _leaf_table(table, names, np.searchsorted(times, table[TIME].to_numpy()))


def _leaf_table(table: pa.Table, names: list[str], ranks: np.ndarray | int) -> pa.Table:
    columns = [table[name] for name in names]
    labels = [f"c{i}" for i in range(len(names))]
    numbers = pa.array(np.broadcast_to(ranks, table.num_rows).astype(np.int32))
    return pa.table([*columns, numbers, table[DIFF]], names=[*labels, RANK, COUNT])


def _summed(rows: DataFrame) -> DataFrame:
    columns = [F.col(f"`{name}`") for name in rows.columns if name != COUNT]
    return rows.groupBy(*columns).agg(F.sum(COUNT).alias(COUNT)).where(F.col(COUNT) != 0)


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
