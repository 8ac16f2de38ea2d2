"""Clusters: sets of replicas that do the same work, so that any of them may die.

    cluster c ── r1   views, indexes   sources, sinks      the host
              ├─ r2   views, indexes
              └─ r3   views, indexes                       read-only: follows, writes nothing

All replicas keep all views (their appends race, and the shards stay right) and all indexes. Sources
and sinks run once, on the *host*: two would do everything twice, and a Kafka sink shuts out the one
before it. The host stays the host until it is away and another is there.

A query goes to one replica: one that answers, has everything fresh, and has least to do. If that
dies, the query is asked again elsewhere; it only reads, so that does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

import pyarrow as pa
import structlog
from msgspec.structs import replace

from tidemark.compute.protocol import Configure, LookUp, Peek, Status, Verified, Verify
from tidemark.control.catalog import ClusterItem, ReplicaItem
from tidemark.control.replica import Place, Replica
from tidemark.control.waiting import waiting_for
from tidemark.errors import SqlError, Unavailable

log = structlog.get_logger("clusters")

T = TypeVar("T")
Make = Callable[[ClusterItem, ReplicaItem, "Cluster"], Replica]
NOTHING = Configure((), ())


class Cluster:
    """`make` gives a replica that is not started yet."""

    def __init__(self, item: ClusterItem, make: Make, heard: Callable[[Status], None]):
        self.item = item
        self.replicas: dict[str, Replica] = {}
        self._make = make
        self._heard = heard
        self._wanted = NOTHING
        self._host: str | None = None
        self._changed = asyncio.Event()
        self._moving: set[asyncio.Task] = set()

    @property
    def name(self) -> str:
        return self.item.name

    @property
    def is_ready(self) -> bool:
        return any(replica.is_ready for replica in self.replicas.values())

    @property
    def host(self) -> str | None:
        """The replica that runs the sources and sinks."""
        return self._host

    def status(self, id_: str) -> Status | None:
        """How something is doing where it does best: if one replica keeps it, it is kept."""
        replicas = list(self.replicas.values())
        known = [each for each in replicas if id_ in each.statuses]
        found = [each.statuses[id_] for each in known if each.is_ready]
        found = found or [each.statuses[id_] for each in known]
        return min(found, key=lambda s: (bool(s.error), not s.hydrated, s.failures), default=None)

    def become(self, item: ClusterItem, ends: Mapping[str, asyncio.Task]) -> list[Replica]:
        """Have the replicas that `item` says; returns those that it has no more, to be stopped.

        `ends` are the ends of replicas that are being stopped, by name.
        """
        gone = [name for name in self.replicas if name not in {r.name for r in item.replicas}]
        dropped = [self.replicas.pop(name) for name in gone]
        self.item = item
        new = [each for each in item.replicas if each.name not in self.replicas]
        for each in new:
            self.replicas[each.name] = self._make(item, each, self)
        self._choose_host()
        for each in new:
            replica = self.replicas[each.name]
            replica.start(self._wanted_by(each), ends.get(replica.name))
        self._wake()
        return dropped

    def expect(self, wanted: Configure) -> None:
        """What will be run; said to replicas as they come."""
        self._wanted = wanted

    async def configure(self, wanted: Configure) -> None:
        """From now on the cluster should run exactly this."""
        self._wanted = wanted
        self._choose_host()
        await self._tell()

    def check_keeps(self, what: str) -> None:
        """Refuse to wait for something that nobody here would write."""
        so = f"{what} is not being kept up to date"
        if not self.item.replicas:
            raise no_replicas(self.name, so)
        if all(each.read_only for each in self.item.replicas):
            first = f"{self.name}.{self.item.replicas[0].name}"
            raise SqlError(
                f'all replicas of cluster "{self.name}" are read-only: {so}',
                hint=f"ALTER CLUSTER REPLICA {first} SET (READ ONLY = false)",
                sqlstate="55000",
            )

    async def wait_ready(self) -> None:
        while not self.is_ready:
            if not self.replicas:
                raise no_replicas(self.name)
            with waiting_for(self._not_ready):
                await self._changed.wait()

    def _not_ready(self) -> str:
        return (
            f'it waited for a replica of cluster "{self.name}" to be ready;'
            " mz_internal.mz_cluster_replica_statuses tells how they are"
        )

    async def peek(self, peek: Peek) -> pa.Table:
        """Run a query; waits for replicas that are still starting. Cancelling cancels it there."""
        return await self._asked(peek.id, lambda replica: replica.peek(peek))

    async def look_up(self, asked: LookUp) -> pa.Table | None:
        """Look keys up in an index; None if it takes a peek to know."""
        return await self._asked(asked.id, lambda replica: replica.look_up(asked))

    async def verify(self, asked: Verify) -> Verified:
        """Compare a view with its query, in the same way."""
        return await self._asked(asked.id, lambda replica: replica.verify(asked))

    async def _asked(self, id_: str, ask: Callable[[Replica], Awaitable[T]]) -> T:
        tried: set[Replica] = set()
        again = True
        while True:
            await self.wait_ready()
            replica = self._best(tried)
            try:
                return await ask(replica)
            except Unavailable as error:
                tried.add(replica)
                if not any(each.is_ready for each in self.replicas.values() if each not in tried):
                    if len(tried) > 1 or not again:
                        raise
                    # One that was killed comes back; what it dies of is asked of it twice at most.
                    again = False
                    tried.clear()
                    await replica.settled()
                log.info("asking again", id=id_, error=error.message)

    def came_or_went(self) -> None:
        """One of the replicas is there, or is away: another may have to be the host."""
        before = self._host
        self._choose_host()
        if self._host != before:
            log.info("sources and sinks move", cluster=self.name, host=self._host)
            moving = asyncio.create_task(self._tell(), name=f"move-{self.name}")
            self._moving.add(moving)
            moving.add_done_callback(self._moving.discard)
        self._wake()

    def heard(self, replica: Replica, status: Status) -> None:
        if self._host is not None and replica is self.replicas.get(self._host):
            self._heard(status)

    def _best(self, tried: set[Replica]) -> Replica:
        readers = {each.name for each in self.item.replicas if each.read_only}
        ready = [(name, each) for name, each in self.replicas.items() if each.is_ready]
        untried = [(name, each) for name, each in ready if each not in tried]

        def rank(named: tuple[str, Replica]) -> tuple:
            name, replica = named
            return (replica.is_doubtful, not replica.is_hydrated, name in readers, replica.peeks)

        return min(untried or ready, key=rank)[1]

    def _choose_host(self) -> None:
        writers = [each.name for each in self.item.replicas if not each.read_only]
        host = self._host if self._host in writers else None
        if host is None or self.replicas[host].is_away:
            ready = [name for name in writers if self.replicas[name].is_ready]
            host = next(iter(ready), host or next(iter(writers), None))
        self._host = host

    def _wanted_by(self, replica: ReplicaItem) -> Configure:
        wanted = replace(self._wanted, read_only=replica.read_only)
        if replica.name == self._host:
            return wanted
        return replace(wanted, sources=(), sinks=())

    async def _tell(self) -> None:
        said = [
            self.replicas[each.name].configure(self._wanted_by(each)) for each in self.item.replicas
        ]
        for problem in await asyncio.gather(*said, return_exceptions=True):
            if isinstance(problem, BaseException):
                log.error("could not tell a replica", cluster=self.name, error=str(problem))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Clusters:
    """All clusters of a server, by name."""

    def __init__(self, place: Place, heard: Callable[[Status], None] = lambda _: None):
        """`heard` is told what hosts report of what they run."""
        self._place = place
        self._heard = heard
        self._clusters: dict[str, Cluster] = {}
        self._ends: dict[str, asyncio.Task] = {}

    def __iter__(self) -> Iterator[Cluster]:
        return iter(list(self._clusters.values()))

    def named(self, name: str) -> Cluster:
        found = self._clusters.get(name)
        if found is None:
            raise unknown_cluster(name)
        return found

    def start(self, items: Mapping[str, ClusterItem], wanted: Mapping[str, Configure]) -> None:
        """Replicas that are none of these were left by a control that died; they are stopped."""
        ours = {self._process(item, each) for item in items.values() for each in item.replicas}
        for name in self._processes("*"):
            if name not in ours:
                self._end(Replica(name, self._place))
        self.become(items, wanted)

    async def clear(self) -> None:
        """Stop replicas of our generation that someone has left, who waited as we do now."""
        left = [Replica(name, self._place) for name in self._processes(f"*{self._suffix}")]
        await asyncio.gather(*map(Replica.stop, left))

    def become(
        self, items: Mapping[str, ClusterItem], wanted: Mapping[str, Configure]
    ) -> list[asyncio.Task]:
        """Have these clusters, and no others; returns the ends of replicas that are no more."""
        dropped: list[Replica] = []
        for name in [name for name in self._clusters if name not in items]:
            cluster = self._clusters.pop(name)
            dropped += cluster.become(replace(cluster.item, replicas=()), {})
        for name, item in items.items():
            cluster = self._clusters.get(name)
            if cluster is None:
                cluster = self._clusters[name] = Cluster(item, self._made, self._heard)
            cluster.expect(wanted.get(name, NOTHING))
            dropped += cluster.become(item, self._ends)
        return [self._end(replica) for replica in dropped]

    async def configure(self, wanted: Mapping[str, Configure]) -> None:
        await asyncio.gather(*(each.configure(wanted.get(each.name, NOTHING)) for each in self))

    async def stop(self, *, terminate: bool = True) -> None:
        """Without `terminate` their processes go on, for another to find."""
        replicas = [replica for cluster in self for replica in cluster.replicas.values()]
        self._clusters.clear()
        stops = [replica.stop(terminate=terminate) for replica in replicas]
        await asyncio.gather(*stops, *self._ends.values())

    def _made(self, item: ClusterItem, each: ReplicaItem, cluster: Cluster) -> Replica:
        replica = Replica(
            self._process(item, each),
            self._place,
            spark_master=each.spark_master or item.spark_master,
            memory=each.memory or item.memory,
            changed=cluster.came_or_went,
            heard=lambda status: cluster.heard(replica, status),
        )
        return replica

    @property
    def _suffix(self) -> str:
        return f".g{self._place.generation}" if self._place.generation else ""

    def _process(self, item: ClusterItem, replica: ReplicaItem) -> str:
        """What its process is called, and its files: no name of either has a dash or a dot."""
        return f"{item.name}-{replica.name}{self._suffix}"

    def _processes(self, pattern: str) -> list[str]:
        return sorted(lock.stem for lock in (self._place.data / "clusters").glob(f"{pattern}.lock"))

    def _end(self, replica: Replica) -> asyncio.Task:
        task = asyncio.create_task(replica.stop(), name=f"end-{replica.name}")
        self._ends[replica.name] = task
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task) -> None:
        self._ends = {name: end for name, end in self._ends.items() if end is not task}


def status_of(replica: Replica) -> str:
    return "online" if replica.is_ready else "offline"


def no_replicas(cluster: str, so: str = "nothing can run there") -> SqlError:
    return SqlError(
        f'cluster "{cluster}" has no replicas: {so}',
        hint=f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR = 1)",
        sqlstate="55000",
    )


def unknown_cluster(name: str) -> SqlError:
    return SqlError(
        f'unknown cluster "{name}"',
        hint="SHOW CLUSTERS lists those there are, CREATE CLUSTER makes one",
        sqlstate="42704",
    )
