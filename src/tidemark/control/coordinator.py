"""The coordinator: knows what exists and what time it is, and tells the layers below what to do.

Sessions call it; it keeps no state that is not in the catalog, the tables' log or the shards, so
a new one that starts after a crash is as good as the old one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import pyarrow as pa
import structlog

from tidemark.clock import Clock
from tidemark.compute.dataflow import holder_of
from tidemark.compute.plan import Get, Plan, collections_of
from tidemark.compute.protocol import Configure, Peek, Status
from tidemark.compute.refresh import Refresh
from tidemark.compute.view import (
    inherited,
    owners_of,
    shards_between,
    state_shards,
)
from tidemark.control.access import OWNER
from tidemark.control.activity import Activity
from tidemark.control.aside import Aside
from tidemark.control.catalog import (
    CLUSTER,
    STORAGE_SHARD,
    UNREADABLE,
    Catalog,
    ClusterItem,
    Item,
    exists,
    missing,
)
from tidemark.control.clusters import Cluster, Clusters
from tidemark.control.hierarchy import DATABASE, one_database
from tidemark.control.history import claim, let_go
from tidemark.control.lookups import LookUps
from tidemark.control.observed import Observed, Seen
from tidemark.control.pg.engine import Engine
from tidemark.control.placing import check_beside, check_free, check_there, put, replaced
from tidemark.control.readable import GIVE_UP_AFTER, Readable
from tidemark.control.recency import Recency
from tidemark.control.replica import Place
from tidemark.control.secrets import FOLDER as SECRETS
from tidemark.control.secrets import Secrets, key_file
from tidemark.control.standby import generation
from tidemark.control.statement_log import StatementLog
from tidemark.control.subscriptions import Subscriptions
from tidemark.control.system import BY_ID, BY_NAME, RELATIONS
from tidemark.control.system_status import look
from tidemark.control.tidy import drop_fragments, living, sweep
from tidemark.control.timeline import ReadHolds, Timeline
from tidemark.control.timelines import Timelines
from tidemark.control.transient import TransientViews
from tidemark.control.turns import Turns
from tidemark.control.wanted import configurations
from tidemark.control.webhook.receive import Webhooks
from tidemark.errors import SqlError, Unsupported
from tidemark.frontier import Frontier
from tidemark.ipc import encode_table
from tidemark.persist import PersistClient
from tidemark.storage.controller import Storage
from tidemark.storage.kafka.spec import sink_holder
from tidemark.storage.tables import Write
from tidemark.types import arrow_schema

log = structlog.get_logger("coordinator")

COMPACT_EVERY = 5.0
UNTIDY_MS = 60_000
"""How long after a DROP a dataflow may still be ending, and take holds again."""


class Coordinator:
    def __init__(
        self,
        client: PersistClient,
        *,
        data: Path,
        blob: str,
        consensus: str,
        spark_master: str,
        secrets_key: Path | None = None,
        account: str | None = None,
        region: str | None = None,
    ):
        self.client = client
        self.clock: Clock = client.clock
        self.secrets = Secrets(data / SECRETS, key_file(secrets_key, data))
        self.catalog = Catalog(client)
        self.region = self.catalog.region(account, region)
        self.storage = Storage(client, STORAGE_SHARD)
        self.timelines = Timelines(client, self.catalog)
        self.holds = ReadHolds()
        self.recency = Recency(self)
        self.activity = Activity(self.clock)
        self.statement_log = StatementLog(data / "log").of(self.activity)
        self.webhooks = Webhooks(self)
        self.file_users: frozenset[str] = frozenset()  # Who may log in by a file of passwords.
        self.frontiers = Seen(self.clock.now_ms(), {})
        self.observed = Observed(self.clock, client)
        self.subscriptions = Subscriptions(self.clock)
        self.clusters = Clusters(
            Place(data, blob, consensus, spark_master, self.clock, generation(data)), self._heard
        )
        self.system = RELATIONS
        self.engine = Engine(self)
        self.aside = Aside(self.catalog)
        self.lookups = LookUps(self)
        self.readable = Readable(self)
        self._ddl = Turns()
        self._untidy_until = 0
        self._compaction: asyncio.Task | None = None
        self._wanted: dict[str, Configure] = {}
        self._stalled: dict[str, Status] = {}
        self.transient = TransientViews(self)

    @property
    def timeline(self) -> Timeline:
        """The first database's; its committer writes the catalog, too."""
        return self.timelines.home

    @property
    def ddl(self) -> Turns:
        """Held while what exists changes."""
        return self._ddl

    def start(self) -> None:
        self._sweep()
        self.timelines.start()
        self.statement_log.start()
        self._wanted = self._configurations()
        self.clusters.start(self.catalog.clusters, self._wanted)
        self._compaction = asyncio.create_task(self._compact_loop(), name="allow-compaction")

    async def stop(self) -> None:
        await self.transient.stop()
        if self._compaction is not None:
            self._compaction.cancel()
        await self.timelines.stop()
        await self.clusters.stop()
        await self.statement_log.stop()
        self.engine.close()
        self.aside.close()
        self.recency.close()
        self.subscriptions.close()
        self.client.close()

    # Names.

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        """A relation by name: the planner's view of the catalog."""
        if parts in BY_NAME:
            return BY_NAME[parts].get
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
                f'"{item.name}" is {item.kind_phrase}, not a relation: it cannot be read',
                sqlstate="42809",
            )
        return item

    def item(self, parts: tuple[str, ...]) -> Item:
        found = self.catalog.find(parts)
        if found is None:
            raise missing(parts, self.catalog.items.values(), BY_NAME.keys())
        return found

    # Reading.

    def timestamp(self, plan: Plan, *, behind_ms: int | None, database: str = DATABASE) -> int:
        """The time at which a query over these collections is answered: the oracle's, or the
        newest that can be read at once, but no more than `behind_ms` before the oracle's. A query
        of none is asked of `database`."""
        database = self.database_of(plan) or database
        shards = self.shards_of(plan).values()
        return self.timestamp_of(shards, behind_ms=behind_ms, database=database)

    def timestamp_of(
        self, shards: Iterable[str], *, behind_ms: int | None, database: str = DATABASE
    ) -> int:
        timeline = self.timelines[database]
        strict = behind_ms == 0
        # Nobody but us moves the since, and the upper matters only to who is not strict.
        look = self.client.known if strict else self.client.state
        states = [look(shard) for shard in shards]
        for state in states:
            self.readable.check_there(state)
        since = max((state.since.time or 0 for state in states), default=0)
        if strict or not states:
            return max(timeline.read_ts, since)
        upper = min(state.upper for state in states)
        # What is refreshed now and then is complete far into the future, or for ever.
        now = max(timeline.read_ts, self.clock.now_ms())
        newest = timeline.read_ts if upper.time is None else min(upper.time - 1, now)
        oldest = 0 if behind_ms is None else timeline.read_ts - behind_ms
        return max(newest, oldest, since)

    def database_of(self, plan: Plan, *others: str) -> str | None:
        """The one database that a query reads; one that reads two, or of `others`, is refused."""
        items = (self.catalog.items.get(id_) for id_ in collections_of(plan))
        return one_database([*others, *(item.database for item in items if item is not None)])

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

    async def peek(
        self,
        plan: Plan,
        as_of: int,
        *,
        cluster: str = CLUSTER,
        max_bytes: int = 0,
        changes: Mapping[str, pa.Table] = {},
        database: str = DATABASE,
    ) -> pa.Table:
        """Run a query on a cluster, at one time for all that it reads, and with `changes` (rows
        with `_diff`, by id) on top. A result of more than `max_bytes` is an error; 0 is no limit.
        System relations are as `database` has them."""
        runs_on = self.clusters.named(cluster)
        hold = self.holds.acquire(as_of)
        try:
            shards = self.shards_of(plan)
            for shard in shards.values():
                await self.readable.wait(shard, as_of)
            given = {
                id_: encode_table(BY_ID[id_].table(self.engine.seen(database)))
                for id_ in collections_of(plan)
                if id_ in BY_ID
            }
            own = {id_: encode_table(table) for id_, table in changes.items()}
            peek = Peek(f"peek-{uuid4()}", plan, as_of, shards, given, max_bytes, own)
            return await runs_on.peek(peek)
        finally:
            self.holds.release(hold)

    def status(self, item: Item) -> Status | None:
        """How a source, a materialized view or a sink is doing, as far as is known."""
        return self._stalled.get(item.runs_as) or self._runs_in(item).status(item.runs_as)

    def _runs_in(self, item: Item) -> Cluster:
        return self.clusters.named(item.cluster)

    def _heard(self, status: Status) -> None:
        if status.statistics is not None:
            self.storage.heard(status.id, status.statistics)

    # Writing.

    def writable(self, parts: tuple[str, ...]) -> Item:
        item = self.item(parts)
        if item.kind != "table":
            raise SqlError(
                f'"{item.name}" is {item.kind_phrase}, not a table: it cannot be written to',
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

    async def change(self, write: Callable[[], None], *, configure: bool = False) -> None:
        """A change of the catalog that makes nothing and drops nothing."""
        async with self._ddl:
            await self.timeline.run(write)
            if configure:
                await self.configure()

    async def create_table(
        self,
        name: tuple[str, ...],
        make,
        *,
        cluster: str | None = None,
        rows: pa.Table | None = None,
    ) -> Item:
        """A table, or whatever else has its rows by commits. Who sees it sees its first `rows`: until
        it is in the catalog, what is there of it is a shard of nobody's, which a start sweeps."""
        async with self._ddl:
            check_free(self.catalog, name)
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item = self._placed(put(self.catalog, make(id_, name[-1]), name), cluster)
            check_there(self.catalog, item.depends)
            schema = arrow_schema(item.columns)
            timeline = self.timelines[item.database]
            readable = await timeline.run(timeline.tables.create, item.shard, schema)
            if rows is not None:
                try:
                    readable = await timeline.write([self.write_of(item, rows)])
                except BaseException:
                    await timeline.run(timeline.tables.drop, item.shard)
                    raise
            await self.timeline.run(self.storage.allow_compaction, item.shard, Frontier(readable))
            await self._add(item)
            return item

    async def create_secret(self, name: tuple[str, ...], value: str, make) -> None:
        async with self._ddl:
            check_free(self.catalog, name)
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item = put(self.catalog, make(id_, name[-1]), name)
            if any(
                i.kind == "secret" and i.shown == item.shown for i in self.catalog.items.values()
            ):
                raise exists(item)  # One in quotes, with the dots in its name.
            await asyncio.to_thread(self.secrets.write, item.shown, value)
            await self._add(item)

    async def alter_secret(self, item: Item, value: str) -> None:
        """Whoever needs it takes it up within seconds, without being asked."""
        async with self._ddl:
            check_there(self.catalog, (item.id,))
            await asyncio.to_thread(self.secrets.write, item.shown, value)

    async def create_connection(self, name: tuple[str, ...], make) -> None:
        async with self._ddl:
            check_free(self.catalog, name)
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item = put(self.catalog, make(id_, name[-1]), name)
            check_there(self.catalog, item.depends)
            await self._add(item)

    async def create_index(
        self, name: tuple[str, ...], make, *, cluster: str | None = None
    ) -> None:
        async with self._ddl:
            check_free(self.catalog, name)
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item = self._placed(put(self.catalog, make(id_, name[-1]), name), cluster)
            check_there(self.catalog, item.depends)
            await self._add(item)
            await self.configure()

    async def create_source(
        self, names: list[tuple[str, ...]], make, *, cluster: str | None = None
    ) -> None:
        async with self._ddl:
            for name in names:
                check_free(self.catalog, name)
            if twice := [name for name in names if names.count(name) > 1]:
                raise SqlError(f'relation "{twice[0][-1]}" would be there twice', sqlstate="42P07")
            ids = await self.timeline.run(self.catalog.next_ids, len(names))
            items, source = make(ids)
            pairs = zip(items, names, strict=True)
            items = [self._placed(put(self.catalog, item, name), cluster) for item, name in pairs]
            check_there(self.catalog, items[0].depends)
            await self.timeline.run(self.storage.create_source, source)
            await self._add(*items)
            await self.configure()

    async def create_view(self, name: tuple[str, ...], make, *, or_replace: bool) -> None:
        async with self._ddl:
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item = put(self.catalog, make(id_, name[-1]), name)
            before = (
                replaced(self.catalog, name, item) if or_replace else check_free(self.catalog, name)
            )
            check_there(self.catalog, item.depends)
            await self._add(item, instead_of=before)

    async def create_materialized_view(
        self,
        name: tuple[str, ...],
        plan: Plan,
        make,
        *,
        or_replace: bool,
        cluster: str | None = None,
        refresh: Callable[[int], Refresh | None] = lambda _: None,
    ) -> None:
        """`refresh` says when the view changes, if not at once, given the time it begins."""
        async with self._ddl:
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            item = self._placed(put(self.catalog, make(id_, name[-1]), name), cluster)
            before = (
                replaced(self.catalog, name, item) if or_replace else check_free(self.catalog, name)
            )
            check_there(self.catalog, item.depends)
            shards = self.shards_of(plan)
            if len(shards) < len(collections_of(plan)):
                raise Unsupported(
                    "a materialized view cannot read a system relation",
                    hint="query it directly, or use a plain view",
                )
            # Clusters do not depend on each other, so only views of one share fragments.
            together = [each for each in self._maintained() if each.cluster == item.cluster]
            known = {k: v for each in together for k, v in each.owners.items()}
            owners = owners_of(id_, plan, known)
            if before is not None and before.cluster == item.cluster:
                assert before.plan is not None
                owners |= inherited(plan, before.id, before.plan, before.owners)
            # A fragment that runs already is read where it is, so it counts as an input.
            beside = [
                *shards_between(id_, plan, owners).values(),
                *state_shards(id_, plan, owners),
            ]
            shared = [shard for shard in beside if self.client.state(shard).upper.time]
            claimed = [*shards.values(), *shared]
            timeline = self.timelines[item.database]
            as_of = await timeline.run(self._claim, holder_of(id_), claimed, timeline)
            times = refresh(as_of)
            item = msgspec.structs.replace(item, as_of=as_of, owners=owners, refresh=times)
            begin = as_of
            if times is not None and (first := times.round_up(as_of)) is not None:
                # Before its first refresh nobody can read it, and it reads nothing.
                await self.timeline.run(self.hold_at, holder_of(id_), claimed, first)
                begin = first
            await self.timeline.run(self.storage.allow_compaction, item.shard, Frontier(begin))
            await self._add(item, instead_of=before)
            orphans = self.transient.without_inputs([before.id] if before is not None else [])
            await self.configure()
            if before is not None:
                await self.forget_all([*orphans, before])

    async def forget_all(self, items: Iterable[Item]) -> None:
        for item in items:
            # A table is in the hands of its timeline's committer.
            timeline = self.timelines[item.database] if item.is_committed else self.timeline
            await timeline.run(self._forget, item)
        self.sweep_later()

    def sweep_later(self) -> None:
        """What is ending now is swept once it must have ended."""
        self._untidy_until = self.client.clock.now_ms() + UNTIDY_MS

    async def create_sink(
        self,
        name: tuple[str, ...],
        shard: str,
        depends: tuple[str, ...],
        make,
        *,
        cluster: str | None = None,
    ) -> None:
        async with self._ddl:
            check_free(self.catalog, name)
            check_there(self.catalog, depends)
            check_beside(self.catalog, name[0], depends)
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            # Other regions may write to the same brokers, and have a sink of that id, too.
            own = f"{id_}-{uuid4().hex[:12]}"
            timeline = self.timelines[name[0]]
            as_of = await timeline.run(self._claim, sink_holder(own), [shard], timeline)
            item, sink = make(id_, name[-1], own, as_of)
            item = self._placed(put(self.catalog, item, name), cluster)
            await self.timeline.run(self.storage.create_sink, sink)
            await self._add(item)
            await self.configure()

    async def drop(self, items: list[Item], *, cascade: bool, if_exists: bool = True) -> None:
        """Those that somebody else has dropped meanwhile are an error, or left alone: what has
        their names may be another's by now."""
        async with self._ddl:
            gone = [item for item in items if item.id not in self.catalog.items]
            if gone and not if_exists:
                raise SqlError(
                    f'{gone[0].kind_name} "{gone[0].shown}" does not exist', sqlstate="42P01"
                )
            items = [item for item in items if item not in gone]
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
            # Indexes go with their relation, as they do in PostgreSQL.
            others = [item for item in doomed.values() if item.kind != "index"]
            extra = [i for i in others if i.id not in wanted and i.parent not in wanted]
            if extra and not cascade:
                names = ", ".join(sorted(item.shown for item in extra))
                raise SqlError(
                    f"cannot drop {items[0].shown} because other objects depend on it: {names}",
                    hint="use DROP ... CASCADE to drop them too",
                    sqlstate="2BP01",
                )
            await self.timeline.run(self.catalog.remove, list(doomed))
            orphans = self.transient.without_inputs(doomed)
            await self.configure()
            await self.forget_all([*orphans, *doomed.values()])

    async def _add(self, *items: Item, instead_of: Item | None = None) -> None:
        add = partial(self.catalog.add, *items, instead_of=instead_of, owner=OWNER.get())
        await self.timeline.run(add)

    async def change_catalog(self, make: Callable[[], dict[str, str | None]]) -> None:
        """Change rows of the catalog, all or none; `make` says which, and nothing else changes
        meanwhile."""
        async with self._ddl:
            await self.timeline.run(self.catalog.change, make())

    # Clusters.

    async def create_cluster(self, name: str, make) -> None:
        """`make` gives the cluster for an id."""
        async with self._ddl:
            if name in self.catalog.clusters:
                raise SqlError(f'cluster "{name}" already exists', sqlstate="42710")
            (id_,) = await self.timeline.run(self.catalog.next_ids)
            await self._set_cluster(make(id_), owner=OWNER.get())

    async def alter_cluster(self, name: str, change) -> None:
        """`change` gives what the cluster becomes; returns when replicas that it has no more have
        ended, and does not wait for new ones."""
        async with self._ddl:
            cluster = self.clusters.named(name).item
            ends = await self._set_cluster(change(cluster))
        if ends:
            await asyncio.wait(ends)

    async def drop_cluster(self, name: str, *, cascade: bool) -> None:
        cluster = self.clusters.named(name).item
        if name == CLUSTER:
            raise SqlError(
                f'cluster "{name}" is the default one and cannot be dropped',
                hint=f"ALTER CLUSTER {name} SET (REPLICATION FACTOR = 0) stops its processes",
                sqlstate="2BP01",
            )
        if cascade and (items := self.catalog.running_in(name)):
            await self.drop(items, cascade=True)
        async with self._ddl:
            self.clusters.named(name)
            if items := self.catalog.running_in(name):
                raise SqlError(
                    f'cannot drop cluster "{name}" because objects run in it: '
                    + ", ".join(sorted(item.shown for item in items)),
                    hint="use DROP CLUSTER ... CASCADE to drop them, and all that reads them, too",
                    sqlstate="2BP01",
                )
            await self.timeline.run(self.catalog.remove_cluster, cluster)
            await self.forget_all(self.transient.without_cluster(name))
            ends = self.clusters.become(self.catalog.clusters, self._wanted)
        if ends:
            await asyncio.wait(ends)

    async def _set_cluster(
        self, cluster: ClusterItem, *, owner: str | None = None
    ) -> list[asyncio.Task]:
        await self.timeline.run(lambda: self.catalog.set_cluster(cluster, owner=owner))
        ends = self.clusters.become(self.catalog.clusters, self._wanted)
        await self.configure()
        return ends

    def _placed(self, item: Item, cluster: str | None) -> Item:
        """To run in that cluster, which must be there."""
        found = self.clusters.named(cluster or CLUSTER)
        return msgspec.structs.replace(item, cluster=found.name)

    def _forget(self, item: Item) -> None:
        """Give back what a dropped object held and stored."""
        if item.is_committed and item.shard:
            self.timelines[item.database].tables.drop(item.shard)
            return
        if item.kind == "secret":
            self.secrets.delete(item.shown)
        if item.kind == "source":
            self.storage.drop_source(item.id)
        if item.kind == "sink":
            self.storage.drop_sink(item.runs_as)
        if item.kind == "materialized-view":
            drop_fragments(self.client, self.catalog, item, self._kept())
        if item.shard is not None:
            self.client.finalize(item.shard)

    def _maintained(self) -> list[Item]:
        return [item for item in self.catalog.items.values() if item.kind == "materialized-view"]

    def _kept(self) -> list[Item]:
        """All views that are to run, those of subscriptions too."""
        return [*self._maintained(), *self.transient.items.values()]

    def _sweep(self) -> None:
        sweep(self.client, self.catalog, self.storage, self._kept())

    def _claim(self, holder: str, shards: list[str], timeline: Timeline | None = None) -> int:
        return claim(self.client, holder, shards, now=(timeline or self.timeline).read_ts)

    def hold_at(self, holder: str, shards: list[str], as_of: int) -> None:
        """Keep these readable at `as_of`, if they are."""
        for shard in shards:
            held = self.client.open_critical_since(shard, holder).downgrade(Frontier(as_of))
            if held != Frontier(as_of):
                raise self.readable.too_early(self.client.state(shard), as_of)

    async def configure(self) -> None:
        self._wanted = self._configurations()
        await self.clusters.configure(self._wanted)

    def _configurations(self) -> dict[str, Configure]:
        """Everything that clusters should run, by their names."""
        found, stalled = configurations(
            self.catalog,
            self.storage.definitions,
            self.secrets,
            views=self._kept(),
            shards_of=self.shards_of,
        )
        for id_, reason in stalled.items():
            if id_ not in self._stalled:
                log.error("it cannot run", id=id_, error=reason)
        self._stalled = {
            id_: Status(id_, False, 0, reason, GIVE_UP_AFTER) for id_, reason in stalled.items()
        }
        return found

    async def _look_at_secrets(self) -> None:
        """Whoever waits for a secret goes on when it is there, and with the one that is there."""
        async with self._ddl:
            wanted = self._configurations()
            if {k: (c.sources, c.sinks) for k, c in wanted.items()} != {
                k: (c.sources, c.sinks) for k, c in self._wanted.items()
            }:
                await self.configure()

    async def _compact_loop(self) -> None:
        while True:
            await asyncio.sleep(COMPACT_EVERY)
            try:
                await self._look_at_secrets()
                uppers: dict[str, Frontier] = {}
                for database in self.timelines:
                    timeline, least = self.timelines[database], self.holds.least()
                    now = timeline.read_ts
                    uppers |= await timeline.run(self._allow_compaction, now, least, database)
                self.frontiers = Seen(self.clock.now_ms(), uppers)
                await look(self)
                if 0 < self._untidy_until <= self.client.clock.now_ms():
                    await asyncio.to_thread(living, self.client)  # Before anybody has to wait.
                    async with self._ddl:
                        await self.timeline.run(self._sweep)
                        self._untidy_until = 0
            except Exception as error:
                log.warning("could not look after the shards, will try again", error=str(error))

    def _allow_compaction(
        self, now: int, least: int | None = None, database: str = DATABASE
    ) -> dict[str, Frontier]:
        self.timelines[database].tables.forget_history()
        items = [*self.catalog.items.values(), *self.transient.items.values()]
        own = [item for item in items if item.database == database]
        return let_go(self.client, self.storage, own, now=now, least=least)
