"""A dataflow: keeps one view right, tick by tick.

A tick, from `lower` (how far everything it writes has come) to `upper` (how far all inputs are):

    STAGES   changes   the inputs' updates in [lower, upper); none at all: only progress is written
             probe     the rows they join with, from arrangements as of lower - 1
             block     one Spark SQL query: changes of the joined, filtered, projected rows
             groups    accumulators and heads of the touched groups, from arrangements
             reduce    one Spark SQL query: versions of those groups that begin or end
             write     operator state and output, each by its own sink

State and output need no transaction: after a crash, `lower` is the least of their uppers, the
interval is computed again from the state as of then, and each sink subtracts what it already
wrote. Holds on the inputs and on the state keep exactly that history readable.

Hydration is the first tick: everything that is there at `as_of` is a change.
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import SparkSession

from tidemark.compute import delta
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.plan import Plan, fingerprint
from tidemark.compute.run import Runner
from tidemark.compute.shape import shape_of
from tidemark.compute.sink import Sink
from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient
from tidemark.persist.arrange import Arrangement
from tidemark.persist.updates import consolidate, row_names, split_errors
from tidemark.spark.frames import snapshot
from tidemark.spark.progress import progress
from tidemark.spark.stage import stage
from tidemark.types import Column, arrow_schema

log = structlog.get_logger("dataflow")

MAX_TIMES = 256
"""Distinct times handled in one tick; a longer backlog is worked off in several."""

LARGE_ROWS = 100_000
"""Changes beyond this go through Spark with full parallelism."""

HOLD_EVERY_MS = 5_000


class Dataflow:
    """Maintains the collection `id` = `plan` over `inputs` (collection id to shard id)."""

    def __init__(
        self,
        id_: str,
        plan: Plan,
        *,
        inputs: dict[str, str],
        output: str,
        as_of: int,
        client: PersistClient,
        spark: SparkSession,
        arrangements: Arrangements,
    ):
        self.id = id_
        self.shape = shape_of(plan)
        self.as_of = as_of
        self.hydrated = False
        self.ticks = 0
        self._client = client
        self._inputs = {collection: client.open_reader(inputs[collection]) for collection in inputs}
        self._arrangements = arrangements
        self._holder = holder_of(id_)
        self._runner = Runner(spark, self.shape, self._holder)
        self._lower = Frontier.MIN
        self._held_at_ms = 0
        self._output_columns = self.shape.columns
        self._sinks = {"output": self._sink(output, self._output_columns)}
        self._acc: delta.Accumulators | None = None
        if self.shape.reduction is not None:
            self._acc = delta.accumulators(self.shape.block, self.shape.reduction)
            keys = tuple(f"k{i}" for i in range(len(self._acc.keys)))
            for name, shard_id in _state_names(id_, plan, self._acc).items():
                columns = self._acc.state if name == "acc" else self._acc.head(int(name[4:]))
                self._sinks[name] = self._sink(shard_id, columns, keys)
        self._probes = [
            delta.probes(self.shape.block, leaf) for leaf in range(len(self.shape.block.leaves))
        ]
        self._leaf_arrangements: dict[tuple[int, tuple[int, ...]], Arrangement] = {}
        self._state_arrangements: dict[str, Arrangement] = {}

    @property
    def lower(self) -> Frontier:
        """Everything before this is computed and durable."""
        return self._lower

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards that this dataflow writes, its output first."""
        return tuple(sink.shard_id for sink in self._sinks.values())

    def start(self) -> None:
        """Resume from the shards, or hydrate if there is nothing to resume from."""
        lower = min(sink.upper for sink in self._sinks.values())
        if lower.time and self._readable(lower.time - 1):
            for sink in self._sinks.values():
                sink.start(lower)
            self._lower = lower
            self._hold()
            self._arrange(lower.time - 1)
            log.info("resumed", dataflow=self.id, lower=lower.time)
        else:
            self._hydrate()
        self.hydrated = True

    def input_upper(self) -> Frontier:
        """How far all inputs are complete."""
        return min(reader.upper for reader in self._inputs.values())

    def tick(self, upper: Frontier) -> Frontier:
        """Bring everything up to `upper` (or, with a long backlog, some way); how far it came."""
        lower = self._lower
        assert lower.time
        changes = {
            collection: reader.updates(lower, upper) for collection, reader in self._inputs.items()
        }
        times = _times(changes)
        if len(times) > MAX_TIMES:
            upper = Frontier(int(times[MAX_TIMES]))
            times = times[:MAX_TIMES]
            changes = {
                c: table.filter(pc.less(table[TIME], upper.time)) for c, table in changes.items()
            }
        if len(times):
            self._compute(changes, times, prior=lower.time - 1, upper=upper)
            self.ticks += 1
        else:
            for sink in self._sinks.values():
                sink.desire(sink.schema.empty_table(), upper)
        self._flush()
        self._lower = upper
        self._maybe_hold()
        return upper

    def stop(self) -> None:
        for arrangement in [*self._leaf_arrangements.values(), *self._state_arrangements.values()]:
            self._arrangements.release(arrangement, self._holder)
        self._runner.close()

    # The stages of a tick.

    def _compute(
        self, changes: dict[str, pa.Table], times: np.ndarray, *, prior: int, upper: Frontier
    ) -> None:
        good: dict[str, pa.Table] = {}
        errors = []
        for collection, table in changes.items():
            good[collection], failed = split_errors(table)
            errors.append(failed.select([ERR, TIME, DIFF]))
        leaves = self._leaves(good, times, prior)
        block = self._runner.block(leaves)
        failed = block.filter(pc.is_valid(block[ERR]))
        block = block.filter(pc.is_null(block[ERR])) if failed.num_rows else block
        errors.append(_timed(failed.select([ERR, "_t", "_d"]), times))
        if self._acc is None:
            output = _timed(block.drop_columns([ERR]), times)
            output = output.rename_columns([*self._names, TIME, DIFF])
        else:
            output, failed = self._reduce(block, times, prior, upper)
            errors.append(failed)
        self._sinks["output"].desire(
            _with_errors(output, errors, self._sinks["output"].schema), upper
        )

    def _leaves(self, good: dict[str, pa.Table], times: np.ndarray, prior: int) -> list[pa.Table]:
        """Each leaf's rows: changes at their rank, and what they join with at rank -1."""
        block = self.shape.block
        changed = [
            good[get.id].select([*row_names(good[get.id].schema), TIME, DIFF])
            for get in block.leaves
        ]
        known: list[list[pa.Table]] = [[] for _ in block.leaves]
        for start, table in enumerate(changed):
            if not table.num_rows or prior < 0:
                continue
            here: dict[int, pa.Table] = {}
            for probe in self._probes[start]:
                keys = self._keys(probe.from_leaf, probe.from_columns, changed, here)
                arrangement = self._leaf_arrangements[probe.into, probe.into_columns]
                here[probe.into] = arrangement.lookup(keys, prior)
            for leaf, table in here.items():
                known[leaf].append(table)
        leaves = []
        for leaf, get in enumerate(block.leaves):
            names = [column.name for column in get.columns]
            parts = [_ranked(changed[leaf], names, times)]
            if known[leaf]:
                # Two ways to reach a leaf may bring the same row; it was there only once.
                rows = pa.concat_tables(known[leaf])
                if len(known[leaf]) > 1:
                    rows = rows.group_by(rows.column_names, use_threads=False).aggregate([])
                parts.append(_at_prior(rows, names))
            leaves.append(pa.concat_tables(parts))
        return leaves

    def _keys(
        self,
        leaf: int,
        columns: tuple[int, ...],
        changed: list[pa.Table],
        here: dict[int, pa.Table],
    ) -> pa.Table:
        names = [self.shape.block.leaves[leaf].columns[column].name for column in columns]
        tables = [changed[leaf], here[leaf]] if leaf in here else [changed[leaf]]
        # By position: one column may be equal to several of the other side.
        labels = [f"k{i}" for i in range(len(names))]
        return pa.concat_tables(
            pa.table([table[name] for name in names], names=labels) for table in tables
        )

    def _reduce(
        self, block: pa.Table, times: np.ndarray, prior: int, upper: Frontier
    ) -> tuple[pa.Table, pa.Table]:
        """Output updates and error updates of the touched groups; state goes to its sinks."""
        acc = self._acc
        assert acc is not None
        keys = [f"k{i}" for i in range(len(acc.keys))]
        args = [f"a{i}" for i in range(len(acc.args))]
        rows = block.drop_columns([ERR]).rename_columns([*keys, *args, "_t", "_d"])
        touched, lost = _touched(rows, keys)
        state = {"acc": self._accumulated(touched, prior)}
        for arg in acc.ordered:
            state[f"head{arg}"] = self._heads(arg, touched, lost, prior)
        found = self._runner.reduce(rows, state)
        for name, table in self._state_changes(rows, found, keys, times).items():
            self._sinks[name].desire(table, upper)
        failed = pc.is_valid(found[ERR])
        kept = found.filter(pc.and_(found["_keep"], pc.invert(failed)))
        columns = [f"o{i}" for i in range(len(self._output_columns))]
        output = _timed(kept.select([*columns, "_t", "_d"]), times)
        errors = _timed(found.filter(failed).select([ERR, "_t", "_d"]), times)
        return output.rename_columns([*self._names, TIME, DIFF]), errors

    def _accumulated(self, touched: pa.Table, prior: int) -> pa.Table:
        arrangement = self._state_arrangements["acc"]
        found = arrangement.lookup(touched, prior)
        return found.filter(pc.greater(found[DIFF], 0)).drop_columns([DIFF])

    def _heads(self, arg: int, touched: pa.Table, lost: np.ndarray, prior: int) -> pa.Table:
        """The extremes that could matter: one more at each end than the changes can delete."""
        arrangement = self._state_arrangements[f"head{arg}"]
        found = [arrangement.heads(touched, lost + 1, prior, last=last) for last in (False, True)]
        both = pa.concat_tables(found)
        return both.group_by(both.column_names, use_threads=False).aggregate([])

    def _state_changes(
        self, rows: pa.Table, found: pa.Table, keys: list[str], times: np.ndarray
    ) -> dict[str, pa.Table]:
        acc = self._acc
        assert acc is not None
        names = [column.name for column in acc.state]
        state = {"acc": _timed(found.select([*names, "_t", "_d"]), times)}
        for arg in acc.ordered:
            values = rows.select([*keys, f"a{arg}", "_t", "_d"])
            values = values.filter(pc.is_valid(values[f"a{arg}"]))
            state[f"head{arg}"] = _timed(values, times).rename_columns([*keys, "v", TIME, DIFF])
        return state

    def _flush(self) -> None:
        # State first: a reader of the output may then rely on the state being there.
        for sink in reversed(self._sinks.values()):
            sink.flush()

    # Starting.

    def _hydrate(self) -> None:
        as_of = max(self.as_of, *(reader.since.time or 0 for reader in self._inputs.values()))
        for reader in self._inputs.values():
            reader.wait_for_upper_past(as_of)
        self._lower = Frontier(as_of + 1)
        self._hold()
        for sink in self._sinks.values():
            sink.start(Frontier.MIN)
        stored = sum(self._client.state(r.shard_id).rows for r in self._inputs.values())
        log.info("hydrating", dataflow=self.id, as_of=as_of, stored_updates=stored)
        if stored > LARGE_ROWS and all(sink.is_fresh for sink in self._sinks.values()):
            self._hydrate_large(as_of)
        else:
            self._arrange_state(-1)
            snapshots = {c: reader.snapshot(as_of) for c, reader in self._inputs.items()}
            self._compute(snapshots, np.array([as_of]), prior=-1, upper=Frontier(as_of + 1))
            self._flush()
        self._arrange(as_of)
        log.info("hydrated", dataflow=self.id, as_of=as_of)

    def _hydrate_large(self, as_of: int) -> None:
        """The same two queries with the leaves bound to snapshot scans, written by Spark's tasks."""
        upper = Frontier(as_of + 1)
        with ExitStack() as stack:
            stack.enter_context(progress(self._runner.large, f"hydrate {self.id}"))
            frames = {
                get.id: stack.enter_context(
                    snapshot(
                        self._runner.large,
                        self._client,
                        self._inputs[get.id].shard_id,
                        as_of,
                        consolidated=False,
                    )
                )
                for get in self.shape.block.leaves
            }
            for name, frame in self._runner.hydrate(frames, self._output_columns, as_of).items():
                sink = self._sinks[name]
                if not sink.adopt(stage(frame, self._client, sink.writer), upper):
                    raise AsOfBeforeSince(f"{sink.shard_id} was written by another replica")
            self._runner.uncache()

    def _arrange(self, as_of: int) -> None:
        for probes in self._probes:
            for probe in probes:
                at = (probe.into, probe.into_columns)
                if at not in self._leaf_arrangements:
                    get = self.shape.block.leaves[probe.into]
                    key = tuple(get.columns[column].name for column in probe.into_columns)
                    shard_id = self._inputs[get.id].shard_id
                    self._leaf_arrangements[at] = self._arrangements.acquire(
                        shard_id, key, holder=self._holder, as_of=as_of
                    )
        self._arrange_state(as_of)

    def _arrange_state(self, as_of: int) -> None:
        for name, sink in self._sinks.items():
            if name == "output":
                continue
            assert self._acc is not None
            self._state_arrangements[name] = self._arrangements.acquire(
                sink.shard_id,
                tuple(f"k{i}" for i in range(len(self._acc.keys))),
                holder=self._holder,
                as_of=as_of,
                order="v" if name != "acc" else None,
                schema=sink.schema,
            )

    def _readable(self, as_of: int) -> bool:
        return all(reader.since <= Frontier(as_of) for reader in self._inputs.values())

    def _maybe_hold(self) -> None:
        now = self._client.clock.now_ms()
        if now - self._held_at_ms >= HOLD_EVERY_MS:
            self._hold()

    def _hold(self) -> None:
        """Keep readable what a restart from `lower` would read, and no more."""
        assert self._lower.time
        since = Frontier(self._lower.time - 1)
        # The hot forms first: they must have read what the shards may then forget.
        for arrangement in [*self._leaf_arrangements.values(), *self._state_arrangements.values()]:
            arrangement.hold(self._holder, self._lower.time - 1)
        for shard_id in [*(r.shard_id for r in self._inputs.values()), *self.shards]:
            self._client.open_critical_since(shard_id, self._holder).downgrade(since)
        self._held_at_ms = self._client.clock.now_ms()

    def _sink(self, shard_id: str, columns: tuple[Column, ...], key: tuple[str, ...] = ()) -> Sink:
        return Sink(self._client, shard_id, schema=arrow_schema(columns), key=key)

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self._output_columns]


def holder_of(id_: str) -> str:
    """The name under which a dataflow holds back the since of what it reads."""
    return f"dataflow-{id_}"


def state_shards(id_: str, plan: Plan) -> tuple[str, ...]:
    """The shards that a dataflow keeps besides its output."""
    shape = shape_of(plan)
    if shape.reduction is None:
        return ()
    acc = delta.accumulators(shape.block, shape.reduction)
    return tuple(_state_names(id_, plan, acc).values())


def _state_names(id_: str, plan: Plan, acc: delta.Accumulators) -> dict[str, str]:
    # By fingerprint: a program that plans the view otherwise begins with fresh state.
    name = f"{id_}-{fingerprint(plan)}"
    return {k: f"{name}-{k}" for k in ("acc", *(f"head{arg}" for arg in acc.ordered))}


def _times(changes: dict[str, pa.Table]) -> np.ndarray:
    found = [table[TIME].to_numpy() for table in changes.values() if table.num_rows]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


def _touched(rows: pa.Table, keys: list[str]) -> tuple[pa.Table, np.ndarray]:
    """The groups that changed, and how many updates of each take something away."""
    lost = pc.cast(pc.less(rows["_d"], 0), pa.int64())
    if not keys:
        return pa.table({"all": [0]}), np.array([pc.sum(lost).as_py() or 0])
    counted = rows.select(keys).append_column("lost", lost)
    counted = counted.group_by(keys, use_threads=False).aggregate([("lost", "sum")])
    return counted.select(keys), counted["lost_sum"].to_numpy()


def _ranked(table: pa.Table, names: list[str], times: np.ndarray) -> pa.Table:
    ranks = np.searchsorted(times, table[TIME].to_numpy()).astype(np.int32)
    return _leaf_table(table, names, pa.array(ranks))


def _at_prior(table: pa.Table, names: list[str]) -> pa.Table:
    return _leaf_table(table, names, pa.array(np.full(table.num_rows, delta.PRIOR, np.int32)))


def _leaf_table(table: pa.Table, names: list[str], ranks: pa.Array) -> pa.Table:
    columns = [table[name] for name in names]
    labels = [f"c{i}" for i in range(len(names))]
    return pa.table([*columns, ranks, table[DIFF]], names=[*labels, "_t", "_d"])


def _timed(table: pa.Table, times: np.ndarray) -> pa.Table:
    """Ranks turned back into times, and equal updates summed."""
    real = pa.array(times[table["_t"].to_numpy()], pa.int64())
    names = [name for name in table.column_names if name not in ("_t", "_d")]
    columns = [*(table[name] for name in names), real, table["_d"]]
    return consolidate(pa.table(columns, names=[*names, TIME, DIFF]))


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
            tables.append(consolidate(failed).cast(schema))
    return pa.concat_tables(tables)
