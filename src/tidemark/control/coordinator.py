"""The coordinator: knows what exists and what time it is, and tells the layers below what to do.

Sessions call it; it keeps no state that is not in the catalog, the tables' log or the shards, so
a new one that starts after a crash is as good as the old one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import msgspec
import pyarrow as pa
import structlog

from tidemark.clock import Clock
from tidemark.compute.dataflow import holder_of
from tidemark.compute.plan import Get, Plan, collections_of
from tidemark.compute.protocol import Configure, DataflowSpec, Peek, Status
from tidemark.compute.view import (
    Keeping,
    inherited,
    keeping,
    owners_of,
    release,
    shards_between,
    state_shards,
)
from tidemark.control.catalog import (
    LOG_SHARD,
    SHARD,
    STORAGE_SHARD,
    UNREADABLE,
    Catalog,
    Item,
    exists,
    is_ours,
)
from tidemark.control.cluster import Cluster
from tidemark.control.connections import Target, resolved
from tidemark.control.secrets import Secrets
from tidemark.control.system import BY_ID, RELATIONS
from tidemark.control.timeline import ReadHolds, Timeline
from tidemark.errors import AsOfBeforeSince, SqlError, Unavailable, Unsupported
from tidemark.frontier import Frontier
from tidemark.ipc import encode_table
from tidemark.persist import PersistClient
from tidemark.persist.state import State
from tidemark.storage.controller import Storage
from tidemark.storage.kafka.spec import KafkaSink, sink_holder
from tidemark.storage.spec import Definition, GeneratorSource, Source, written_by
from tidemark.storage.tables import Tables, Write
from tidemark.types import arrow_schema

log = structlog.get_logger("coordinator")

DATABASE = "tidemark"
SCHEMA = "public"
CLUSTER = "quickstart"

RETAIN_MS = 1_000
MAX_LAG_MS = 300_000
"""A relation that lags further than this no longer keeps the others' history."""

COMPACT_EVERY = 5.0
UNTIDY_MS = 60_000
"""How long after a DROP a dataflow may still be ending, and take holds again."""

GIVE_UP_AFTER = 5
"""Failures in a row after which readers are told instead of kept waiting."""


class Coordinator:
    def __init__(
        self, client: PersistClient, *, data: Path, blob: str, consensus: str, spark_master: str
    ):
        self.client = client
        self.clock: Clock = client.clock
        self.secrets = Secrets(data / "secrets")
        self.catalog = Catalog(client)
        self.storage = Storage(client, STORAGE_SHARD)
        tables = Tables(client, LOG_SHARD, epoch=self.catalog.epoch)
        # Its first commit fences out the old leader, and starts the oracle.
        tables.open(
            {i.shard: arrow_schema(i.columns) for i in self._of_kind("table") if i.shard},
            not_before=self.clock.now_ms(),
        )
        self.timeline = Timeline(tables, self.clock)
        self.holds = ReadHolds()
        self.cluster = Cluster(
            CLUSTER,
            data=data,
            blob=blob,
            consensus=consensus,
            spark_master=spark_master,
            clock=self.clock,
            heard=self._heard,
        )
        self._ddl = asyncio.Lock()
        self._untidy_until = 0
        self._compaction: asyncio.Task | None = None
        self._wanted = Configure((), ())
        self._stalled: dict[str, Status] = {}

    def start(self) -> None:
        self._sweep()
        self.timeline.start()
        self._wanted = self._configuration()
        self.cluster.start(self._wanted)
        self._compaction = asyncio.create_task(self._compact_loop(), name="allow-compaction")

    async def stop(self) -> None:
        if self._compaction is not None:
            self._compaction.cancel()
        await self.timeline.stop()
        await self.cluster.stop()
        self.client.close()

    # Names.

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        """A relation by name: the planner's view of the catalog."""
        for relation in RELATIONS:
            if parts in ((relation.schema, relation.name), (DATABASE, *relation[:2])):
                return relation.get
            if parts == (relation.name,) and relation.schema == "mz_catalog":
                return relation.get
        item = self.relation(parts)
        if item.kind == "view":
            assert item.plan is not None
            return item.plan
        if item.kind == "source" and item.shard is None:
            raise SqlError(
                f'source "{item.name}" has several tables and cannot be read by itself',
                hint="select from one of its tables: SHOW SOURCES lists them",
                sqlstate="42809",
            )
        return item.get

    def relation(self, parts: tuple[str, ...]) -> Item:
        item = self.item(parts)
        if item.kind in UNREADABLE:
            raise SqlError(
                f'"{item.name}" is a {item.kind_name}, not a relation: it cannot be read',
                sqlstate="42809",
            )
        return item

    def item(self, parts: tuple[str, ...]) -> Item:
        found = self.find(parts)
        if found is None:
            hint = None
            if parts[0] in ("pg_catalog", "information_schema"):
                hint = "PostgreSQL's own catalog is not here yet: use SHOW, or mz_catalog"
            raise SqlError(
                f'relation "{".".join(parts)}" does not exist', hint=hint, sqlstate="42P01"
            )
        return found

    def find(self, parts: tuple[str, ...]) -> Item | None:
        return self.catalog.named(local_name(parts)) if in_public(parts) else None

    # Reading.

    def timestamp(self, plan: Plan, *, strict: bool) -> int:
        """The time at which a query over these collections is answered."""
        shards = self.shards_of(plan).values()
        states = [self.client.state(shard) for shard in shards]
        for state in states:
            if state.since.is_empty:
                raise SqlError("the relation was dropped", sqlstate="42P01")
        since = max((state.since.time or 0 for state in states), default=0)
        if strict or not states:
            return max(self.timeline.read_ts, since)
        upper = min(state.upper for state in states)
        newest = self.timeline.read_ts if upper.time is None else upper.time - 1
        return max(newest, since)

    def shards_of(self, plan: Plan) -> dict[str, str]:
        """The shards of the collections that `plan` reads."""
        found = {}
        for id_ in collections_of(plan):
            if id_ in BY_ID:
                continue
            item = self.catalog.items.get(id_)
            if item is None or item.shard is None:
                raise SqlError("a relation of this query was dropped", sqlstate="42P01")
            found[id_] = item.shard
        return found

    async def peek(self, plan: Plan, as_of: int) -> pa.Table:
        """Run a query on the cluster, at one time for all that it reads."""
        hold = self.holds.acquire(as_of)
        try:
            shards = self.shards_of(plan)
            for shard in shards.values():
                await self.wait_readable(shard, as_of)
            given = {
                id_: encode_table(BY_ID[id_].table(self))
                for id_ in collections_of(plan)
                if id_ in BY_ID
            }
            return await self.cluster.peek(Peek(f"peek-{uuid4()}", plan, as_of, shards, given))
        finally:
            self.holds.release(hold)

    async def wait_readable(self, shard: str, as_of: int) -> None:
        """Until the shard is complete up to `as_of`."""

        def readable() -> State | None:
            state = self.client.state(shard)
            if state.since.is_empty:
                raise SqlError("the relation was dropped", sqlstate="42P01")
            if not state.since <= Frontier(as_of):
                raise AsOfBeforeSince(
                    f"the relation can be read from time {state.since.time} on, not at {as_of}",
                    hint="read at a later time",
                )
            if state.upper.covers(as_of):
                return state
            self._check_running(shard)
            return None

        await self.client.watch.wait_for_async(shard, readable)

    def _check_running(self, shard: str) -> None:
        """Waiting for something that fails again and again would be waiting for ever."""
        items = dict(self.catalog.items)  # Called from other threads, too.
        waited = [item for item in items.values() if item.shard == shard]
        needed = [items[id_] for item in waited for id_ in item.depends if id_ in items]
        for item in (*waited, *needed):
            status = self.status(item)
            if status is not None and status.failures >= GIVE_UP_AFTER:
                raise Unavailable(
                    f'"{item.name}" is not being kept up to date: {status.error}',
                    hint="it is tried again all the time; if that does not help, drop and create it",
                )

    def status(self, item: Item) -> Status | None:
        """How a source, a materialized view or a sink is doing, as far as is known."""
        return self._stalled.get(item.runs_as) or self.cluster.statuses.get(item.runs_as)

    def _heard(self, status: Status) -> None:
        if status.statistics is not None:
            self.storage.heard(status.id, status.statistics)

    # Writing.

    def writable(self, parts: tuple[str, ...]) -> Item:
        item = self.item(parts)
        if item.kind != "table":
            raise SqlError(
                f'"{item.name}" is a {item.kind_name}, not a table: it cannot be written to',
                sqlstate="42809",
            )
        return item

    def write_of(self, item: Item, rows: pa.Table) -> Write:
        """`rows` (with `_diff`) for the table, checked against NOT NULL."""
        assert item.shard is not None
        for column in item.columns:
            if not column.nullable and rows[column.name].null_count:
                raise SqlError(
                    f'null value in column "{column.name}" of relation "{item.name}" '
                    "violates not-null constraint",
                    sqlstate="23502",
                )
        return Write(item.shard, rows)

    # Changing what exists.

    async def create_table(self, name: tuple[str, ...], make) -> Item:
        async with self._ddl:
            self._check_free(name)
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item: Item = make(id_, local_name(name))
            schema = arrow_schema(item.columns)
            readable = await self.timeline.run(self.timeline.tables.create, item.shard, schema)
            await self.timeline.run(self.storage.allow_compaction, item.shard, Frontier(readable))
            await self.timeline.run(self.catalog.add, item)
            return item

    async def create_secret(self, name: tuple[str, ...], value: str, make) -> None:
        async with self._ddl:
            self._check_free(name)
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item: Item = make(id_, local_name(name))
            await asyncio.to_thread(self.secrets.write, item.name, value)
            await self.timeline.run(self.catalog.add, item)

    async def create_connection(self, name: tuple[str, ...], make) -> None:
        async with self._ddl:
            self._check_free(name)
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item: Item = make(id_, local_name(name))
            self._check_there(item.depends)
            await self.timeline.run(self.catalog.add, item)

    async def create_source(self, names: list[tuple[str, ...]], make) -> None:
        async with self._ddl:
            for name in names:
                self._check_free(name)
            local = [local_name(name) for name in names]
            if twice := [name for name in local if local.count(name) > 1]:
                raise SqlError(f'relation "{twice[0]}" would be there twice', sqlstate="42P07")
            ids = await self.timeline.run(self.catalog.next_ids, len(names))
            items, source = make(ids)
            self._check_there(items[0].depends)
            await self.timeline.run(self.storage.create_source, source)
            await self.timeline.run(self.catalog.add, *items)
            await self._configure()

    async def create_view(self, name: tuple[str, ...], make, *, or_replace: bool) -> None:
        async with self._ddl:
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item: Item = make(id_, local_name(name))
            replaced = self._replaced(name, item) if or_replace else self._check_free(name)
            self._check_there(item.depends)
            await self.timeline.run(lambda: self.catalog.add(item, instead_of=replaced))

    async def create_materialized_view(
        self, name: tuple[str, ...], plan: Plan, make, *, or_replace: bool
    ) -> None:
        async with self._ddl:
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item: Item = make(id_, local_name(name))
            replaced = self._replaced(name, item) if or_replace else self._check_free(name)
            self._check_there(item.depends)
            shards = self.shards_of(plan)
            if len(shards) < len(collections_of(plan)):
                raise Unsupported(
                    "a materialized view cannot read a system relation",
                    hint="query it directly, or use a plain view",
                )
            known = {k: v for each in self._maintained() for k, v in each.owners.items()}
            owners = owners_of(id_, plan, known)
            if replaced is not None:
                assert replaced.plan is not None
                owners |= inherited(plan, replaced.id, replaced.plan, replaced.owners)
            # A fragment that runs already is read where it is, so it counts as an input.
            there = [
                *shards_between(id_, plan, owners).values(),
                *state_shards(id_, plan, owners),
            ]
            shared = [shard for shard in there if self.client.state(shard).upper.time]
            claimed = [*shards.values(), *shared]
            as_of = await self.timeline.run(self._claim, holder_of(id_), claimed)
            item = msgspec.structs.replace(item, as_of=as_of, owners=owners)
            await self.timeline.run(self.storage.allow_compaction, item.shard, Frontier(as_of))
            await self.timeline.run(lambda: self.catalog.add(item, instead_of=replaced))
            await self._configure()
            if replaced is not None:
                await self.timeline.run(self._forget, replaced)
                self._untidy_until = self.client.clock.now_ms() + UNTIDY_MS

    async def create_sink(
        self, name: tuple[str, ...], shard: str, depends: tuple[str, ...], make
    ) -> None:
        async with self._ddl:
            self._check_free(name)
            self._check_there(depends)
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            # Other regions may write to the same brokers, and have a sink of that id, too.
            own = f"{id_}-{uuid4().hex[:12]}"
            as_of = await self.timeline.run(self._claim, sink_holder(own), [shard])
            item, sink = make(id_, local_name(name), own, as_of)
            await self.timeline.run(self.storage.create_sink, sink)
            await self.timeline.run(self.catalog.add, item)
            await self._configure()

    async def drop(self, items: list[Item], *, cascade: bool) -> None:
        async with self._ddl:
            doomed: dict[str, Item] = {}
            waiting = list(items)
            while waiting:
                item = waiting.pop()
                if item.id in doomed:
                    continue
                doomed[item.id] = item
                waiting += [i for i in self.catalog.items.values() if i.parent == item.id]
                waiting += self.catalog.dependents(item.id)
            wanted = {item.id for item in items}
            extra = [i for i in doomed.values() if i.id not in wanted and i.parent not in wanted]
            if extra and not cascade:
                names = ", ".join(sorted(item.name for item in extra))
                raise SqlError(
                    f"cannot drop {items[0].name} because other objects depend on it: {names}",
                    hint="use DROP ... CASCADE to drop them too",
                    sqlstate="2BP01",
                )
            await self.timeline.run(self.catalog.remove, list(doomed))
            await self._configure()
            for item in doomed.values():
                await self.timeline.run(self._forget, item)
            self._untidy_until = self.client.clock.now_ms() + UNTIDY_MS

    def _forget(self, item: Item) -> None:
        """Give back what a dropped object held and stored."""
        if item.kind == "table" and item.shard:
            self.timeline.tables.drop(item.shard)
            return
        if item.kind == "secret":
            self.secrets.delete(item.name)
        if item.kind == "source":
            self.storage.drop_source(item.id)
        if item.kind == "sink":
            self.storage.drop_sink(item.runs_as)
        if item.kind == "materialized-view":
            self._drop_fragments(item)
        if item.shard is not None:
            self.client.finalize(item.shard)

    def _maintained(self) -> list[Item]:
        return [item for item in self.catalog.items.values() if item.kind == "materialized-view"]

    def _keeping(self, item: Item) -> Keeping:
        assert item.plan is not None
        return keeping(item.id, item.plan, item.owners, self.client)

    def _drop_fragments(self, item: Item) -> None:
        """Release what a view read, and drop what no other view keeps."""
        assert item.plan is not None
        mine, others = self._keeping(item), [self._keeping(each) for each in self._maintained()]
        ended = mine.dataflows.difference(*(each.dataflows for each in others))
        kept = set().union(*(each.shards for each in others))
        inputs = [self.catalog.items.get(each) for each in collections_of(item.plan)]
        read = {each.shard for each in inputs if each is not None and each.shard is not None}
        for shard in mine.shards - kept:
            self.client.finalize(shard)
        for shard in read | (mine.shards & kept):
            for dataflow in ended:
                release(self.client, shard, dataflow)

    def _sweep(self) -> None:
        """Drop what a crash in the middle of a CREATE or DROP has left: shards and holds.

        And what a dataflow that was slow to end has taken after its DROP.
        """
        # First of all: what a running view makes from now on is not looked at.
        shards = filter(is_ours, list(self.client.consensus.keys()))
        stored = {shard: self.client.state(shard) for shard in shards}
        known = {SHARD, STORAGE_SHARD, LOG_SHARD}
        holders = set()
        running = {item.runs_as for item in self.catalog.items.values()}
        for id_, definition in self.storage.definitions.items():
            is_sink = isinstance(definition, KafkaSink)
            if id_ not in running:
                log.info("dropping a source or sink that nothing refers to", id=id_)
                (self.storage.drop_sink if is_sink else self.storage.drop_source)(id_)
            elif is_sink:
                holders.add(sink_holder(id_))
            known |= set(written_by(definition))
        for item in self.catalog.items.values():
            known.add(item.shard or "")
        for item in self._maintained():
            kept = self._keeping(item)
            known |= kept.shards
            holders |= set(map(holder_of, kept.dataflows))
        for shard, state in stored.items():
            if shard not in known and not state.is_tombstone:
                log.info("dropping a shard that nothing refers to", shard=shard)
                self.client.finalize(shard)
                continue
            for holder in state.holds:
                # Views without a server hold what they read, too, under names of their own.
                ours = any(
                    holder.startswith(kind) and is_ours(holder.removeprefix(kind))
                    for kind in (holder_of(""), sink_holder(""))
                )
                if ours and holder not in holders:
                    self.client.open_critical_since(shard, holder).release()

    def _check_free(self, name: tuple[str, ...]) -> None:
        if not in_public(name):
            raise Unsupported(
                f'cannot create "{".".join(name)}": the only schema is {DATABASE}.{SCHEMA}',
                sqlstate="3F000",
            )
        if (found := self.find(name)) is not None:
            raise exists(found)

    def _replaced(self, name: tuple[str, ...], item: Item) -> Item | None:
        """What is there under that name, if `item` may be put in its place."""
        found = self.find(name)
        if found is None:
            return self._check_free(name)
        if found.kind != item.kind:
            raise SqlError(
                f'"{found.name}" is a {found.kind.replace("-", " ")},'
                f" not a {item.kind.replace('-', ' ')}",
                sqlstate="42809",
            )
        if found.id in item.depends:
            raise SqlError(f'"{found.name}" cannot be replaced by what reads it', sqlstate="42P17")
        if readers := sorted(each.name for each in self.catalog.dependents(found.id)):
            raise SqlError(
                f"cannot replace {found.name} because other objects depend on it:"
                f" {', '.join(readers)}",
                hint="drop them first, or create this one under another name",
                sqlstate="2BP01",
            )
        return found

    def _check_there(self, ids: tuple[str, ...]) -> None:
        if any(id_ not in self.catalog.items for id_ in ids):
            raise SqlError("something that this needs was dropped meanwhile", sqlstate="42P01")

    def _claim(self, holder: str, shards: list[str]) -> int:
        """The time at which a new dataflow or sink starts; its inputs stay readable from there."""
        uppers = [self.client.state(shard).upper for shard in shards]
        as_of = max(0, min((u.time - 1 for u in uppers if u.time is not None), default=0))
        for shard in shards:
            hold = self.client.open_critical_since(shard, holder)
            held = hold.downgrade(Frontier(as_of))
            assert isinstance(held, Frontier)
            as_of = max(as_of, held.time or 0)
        return as_of

    async def _configure(self) -> None:
        self._wanted = self._configuration()
        await self.cluster.configure(self._wanted)

    def _configuration(self) -> Configure:
        """Everything that the cluster should run."""
        dataflows: list[DataflowSpec] = []
        sources: list[Source] = []
        sinks: list[KafkaSink] = []
        stalled: dict[str, Status] = {}
        definitions = self.storage.definitions
        for item in self.catalog.items.values():
            if item.kind == "materialized-view":
                assert item.plan is not None
                assert item.shard is not None
                inputs = self.shards_of(item.plan)
                dataflows.append(
                    DataflowSpec(item.id, item.plan, inputs, item.shard, item.as_of, item.owners)
                )
            if item.kind not in ("source", "sink"):
                continue
            try:
                match self._resolved(item, definitions.get(item.runs_as)):
                    case KafkaSink() as sink:
                        sinks.append(sink)
                    case source:
                        sources.append(source)
            except Unavailable as error:
                reason = f"{type(error).__name__}: {error}"
                stalled[item.runs_as] = Status(item.runs_as, False, 0, reason, GIVE_UP_AFTER)
                if item.runs_as not in self._stalled:
                    log.error("it cannot run", id=item.runs_as, error=reason)
        self._stalled = stalled
        return Configure(tuple(dataflows), tuple(sources), tuple(sinks))

    def _resolved(self, item: Item, definition: Definition | None) -> Definition:
        """What a source or sink does, with the values of its secrets."""
        if definition is None:
            raise Unavailable(
                f'what {item.kind} "{item.name}" does is not known',
                hint="it was made by a pre-release: drop it and create it again",
            )
        if isinstance(definition, GeneratorSource):
            return definition
        assert item.uses is not None
        return resolved(definition, item.uses, self._targets(), self.secrets)

    def _targets(self) -> dict[str, Target]:
        return {i.id: i.connection for i in self.catalog.items.values() if i.connection}

    async def _look_at_secrets(self) -> None:
        """Whoever waits for a secret goes on when it is there, and with the one that is there."""
        async with self._ddl:
            wanted = self._configuration()
            if (wanted.sources, wanted.sinks) != (self._wanted.sources, self._wanted.sinks):
                await self._configure()

    def _of_kind(self, kind: str) -> list[Item]:
        return [item for item in self.catalog.items.values() if item.kind == kind]

    async def _compact_loop(self) -> None:
        while True:
            await asyncio.sleep(COMPACT_EVERY)
            least = self.holds.least()
            since = self.timeline.read_ts - RETAIN_MS
            since = since if least is None else min(since, least)
            try:
                await self._look_at_secrets()
                await self.timeline.run(self._allow_compaction, since)
                if 0 < self._untidy_until <= self.client.clock.now_ms():
                    async with self._ddl:
                        await self.timeline.run(self._sweep)
                        self._untidy_until = 0
            except Exception as error:
                log.warning("could not look after the shards, will try again", error=str(error))

    def _allow_compaction(self, since: int) -> None:
        """Let history go up to one time for all, so that all stay readable at a common time.

        That is as far as the slowest relation has come, within reason. A table to which nothing
        was appended for a while has nothing to forget, and its hold stays where it is.
        """
        self.timeline.tables.forget_history()
        items = [item for item in list(self.catalog.items.values()) if item.shard is not None]
        states = {item.shard: self.client.state(item.shard) for item in items if item.shard}
        reached = [state.upper.time - 1 for state in states.values() if state.upper.time]
        slowest = max(min(reached, default=since), since - MAX_LAG_MS)
        for shard, state in states.items():
            newest = min(since, slowest)
            if state.appended.time is not None:
                newest = min(newest, state.appended.time - 1)
            if state.since < Frontier(max(newest, 0)):
                self.storage.allow_compaction(shard, Frontier(newest))


def in_public(parts: tuple[str, ...]) -> bool:
    return parts[:-1] in ((), (SCHEMA,), (DATABASE, SCHEMA))


def local_name(parts: tuple[str, ...]) -> str:
    return parts[-1]
