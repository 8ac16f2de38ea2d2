"""Clusters without processes: who runs what, who is asked, and what is kept of them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec
import pytest

from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.plan import Get
from tidemark.compute.protocol import Configure, DataflowSpec, Peek, Status
from tidemark.control.catalog import (
    CLUSTER,
    Catalog,
    ClusterItem,
    Item,
    ReplicaItem,
    read_items,
)
from tidemark.control.clusters import Cluster
from tidemark.control.replica import Place, Replica
from tidemark.errors import DataError, SqlError, Unavailable
from tidemark.persist import MemBlob, MemConsensus, PersistClient
from tidemark.storage.spec import GeneratorSource

GET = Get("u1", ())
VIEW = DataflowSpec("u2", GET, {"u1": "u1"}, "u2", 0)
SOURCE = GeneratorSource("u3", "counter", {}, "u3-remap", {"counter": "u3"}, 100, 1000)
WANTED = Configure((VIEW,), (SOURCE,))
PEEK = Peek("p", GET, 1, {}, {})


def in_a_loop(test: Callable[[], Coroutine]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Scripted:
    """A replica whose life the test tells."""

    def __init__(self, name: str, cluster: Cluster):
        self.name = name
        self.is_ready = self.is_away = self.is_doubtful = False
        self.is_hydrated = True
        self.peeks = 0
        self.statuses: dict[str, Status] = {}
        self.wanted = Configure((), ())
        self.asked = 0
        self.answer: object = name
        self.next_life: object = name
        self._cluster = cluster

    def start(self, wanted: Configure, after: asyncio.Future | None) -> None:
        self.wanted = wanted

    async def configure(self, wanted: Configure) -> None:
        self.wanted = wanted

    async def peek(self, peek: Peek) -> object:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, asyncio.Event):
            await self.answer.wait()
        return self.answer

    async def settled(self) -> None:
        """It was killed, and comes back."""
        await self.goes()
        self.answer = self.next_life

    async def comes(self) -> None:
        self.is_ready, self.is_away = True, False
        await self._said()

    async def goes(self) -> None:
        self.is_ready, self.is_away = False, True
        await self._said()

    async def _said(self) -> None:
        self._cluster.came_or_went()
        await asyncio.gather(*self._cluster._moving)

    @property
    def runs(self) -> set[str]:
        return {spec.id for spec in (*self.wanted.dataflows, *self.wanted.sources)}


def cluster_of(*replicas: ReplicaItem | str) -> Cluster:
    made = [ReplicaItem(each) if isinstance(each, str) else each for each in replicas]
    cluster = Cluster(
        ClusterItem("u9", "c"),
        lambda _item, each, cluster: Scripted(each.name, cluster),  # type: ignore[arg-type,return-value]
        lambda status: heard.append(status.id),
    )
    heard.clear()
    cluster.expect(WANTED)
    cluster.become(ClusterItem("u9", "c", tuple(made)), {})
    return cluster


heard: list[str] = []


def scripted(cluster: Cluster) -> list[Scripted]:
    return list(cluster.replicas.values())  # type: ignore[return-value]


@in_a_loop
async def test_views_run_everywhere_sources_once_and_where_someone_lives():
    cluster = cluster_of("r1", "r2", "r3")
    r1, r2, r3 = scripted(cluster)
    assert (r1.runs, r2.runs, r3.runs) == ({"u2", "u3"}, {"u2"}, {"u2"})

    # One that is slow to start keeps its sources; one that has died does not.
    await r2.comes()
    assert r1.runs == {"u2", "u3"}
    await r1.comes()
    await r1.goes()
    assert (r1.runs, r2.runs) == ({"u2"}, {"u2", "u3"})
    # It is not moved back, which would be a pause for nothing.
    await r1.comes()
    assert (r1.runs, r2.runs) == ({"u2"}, {"u2", "u3"})
    # If nobody is left, it stays.
    await r1.goes()
    await r2.goes()
    assert (r1.runs, r2.runs) == ({"u2"}, {"u2", "u3"})
    await r3.comes()
    assert (r2.runs, r3.runs) == ({"u2"}, {"u2", "u3"})

    await cluster.configure(Configure((), (SOURCE,)))
    assert (r1.runs, r2.runs, r3.runs) == (set(), set(), {"u3"})


@in_a_loop
async def test_dropping_the_host_moves_its_sources():
    cluster = cluster_of("r1", "r2")
    r1, r2 = scripted(cluster)
    await r1.comes()
    await r2.comes()
    assert cluster.become(ClusterItem("u9", "c", (ReplicaItem("r2"),)), {}) == [r1]
    await cluster.configure(WANTED)
    assert r2.runs == {"u2", "u3"}
    assert list(cluster.replicas) == ["r2"]


@in_a_loop
async def test_a_reader_writes_nothing_until_it_is_promoted():
    cluster = cluster_of(ReplicaItem("r1", read_only=True))
    (r1,) = scripted(cluster)
    await r1.comes()
    assert (r1.runs, r1.wanted.read_only) == ({"u2"}, True)
    assert cluster.host is None

    cluster.become(ClusterItem("u9", "c", (ReplicaItem("r1"),)), {})
    await cluster.configure(WANTED)
    assert scripted(cluster) == [r1], "it is the same process"
    assert (r1.runs, r1.wanted.read_only) == ({"u2", "u3"}, False)


@in_a_loop
async def test_only_the_host_is_heard():
    cluster = cluster_of("r1", "r2")
    r1, r2 = scripted(cluster)
    for replica in (r2, r1):
        cluster.heard(replica, Status(replica.name, True, 0, None))  # type: ignore[arg-type]
    assert heard == ["r1"]


@in_a_loop
async def test_a_query_goes_to_who_is_fresh_and_has_time():
    cluster = cluster_of("r1", "r2", ReplicaItem("r3", read_only=True))
    replicas = r1, r2, r3 = scripted(cluster)
    for each in replicas:
        await each.comes()
    assert await cluster.peek(PEEK) == "r1"
    r1.peeks = 1
    assert await cluster.peek(PEEK) == "r2"
    r2.is_hydrated = False
    assert await cluster.peek(PEEK) == "r1"
    r1.is_doubtful = True
    assert await cluster.peek(PEEK) == "r3"
    await r3.goes()
    assert await cluster.peek(PEEK) == "r2"


@in_a_loop
async def test_a_query_whose_replica_dies_is_asked_elsewhere_once_each():
    cluster = cluster_of("r1", "r2")
    r1, r2 = scripted(cluster)
    await r1.comes()
    await r2.comes()
    r1.answer = Unavailable("gone")
    assert await cluster.peek(PEEK) == "r2"
    r2.answer = Unavailable("gone, too")
    with pytest.raises(Unavailable, match="gone, too"):
        await cluster.peek(PEEK)
    assert (r1.asked, r2.asked) == (2, 2)
    # What is wrong with the query is wrong everywhere.
    r1.answer = DataError("division by zero")
    with pytest.raises(DataError):
        await cluster.peek(PEEK)
    assert r2.asked == 2


@in_a_loop
async def test_a_query_whose_only_replica_dies_is_asked_again_when_it_is_back():
    cluster = cluster_of("r1")
    (r1,) = scripted(cluster)
    await r1.comes()
    r1.answer = Unavailable("gone")
    query = asyncio.create_task(cluster.peek(PEEK))
    while r1.is_ready:
        await asyncio.sleep(0)
    assert not query.done()
    await r1.comes()
    assert await query == "r1"
    assert r1.asked == 2

    r1.answer = r1.next_life = Unavailable("gone again")
    query = asyncio.create_task(cluster.peek(PEEK))
    while r1.is_ready:
        await asyncio.sleep(0)
    await r1.comes()
    with pytest.raises(Unavailable, match="gone again"):
        await query
    assert r1.asked == 4


@in_a_loop
async def test_a_cancelled_query_is_not_asked_again():
    cluster = cluster_of("r1", "r2")
    r1, r2 = scripted(cluster)
    await r1.comes()
    await r2.comes()
    r1.answer = asyncio.Event()
    query = asyncio.create_task(cluster.peek(PEEK))
    while not r1.asked:
        await asyncio.sleep(0)
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    assert r2.asked == 0


@in_a_loop
async def test_a_query_waits_for_a_replica_that_starts_and_not_for_none():
    cluster = cluster_of("r1")
    (r1,) = scripted(cluster)
    query = asyncio.create_task(cluster.peek(PEEK))
    await asyncio.sleep(0)
    assert not query.done()
    await r1.comes()
    assert await query == "r1"

    await r1.goes()
    query = asyncio.create_task(cluster.peek(PEEK))
    await asyncio.sleep(0)
    cluster.become(ClusterItem("u9", "c"), {})
    with pytest.raises(SqlError, match='cluster "c" has no replicas') as raised:
        await query
    assert (raised.value.sqlstate, "REPLICATION FACTOR" in (raised.value.hint or "")) == (
        "55000",
        True,
    )


@in_a_loop
async def test_what_one_replica_keeps_is_kept():
    cluster = cluster_of("r1", "r2")
    r1, r2 = scripted(cluster)
    fine, failing = Status("u2", True, 5, None), Status("u2", False, 0, "broken", 9)
    assert cluster.status("u2") is None
    r1.statuses, r2.statuses = {"u2": failing}, {"u2": fine}
    await r1.comes()
    # The last word of one that is away counts only if nobody else has one.
    assert cluster.status("u2") == failing
    await r2.comes()
    assert cluster.status("u2") == fine
    await r1.goes()
    await r2.goes()
    assert cluster.status("u2") == fine


def test_the_catalog_has_a_default_cluster_and_keeps_what_is_changed():
    client = PersistClient(MemBlob(), MemConsensus())
    catalog = Catalog(client)
    assert list(catalog.clusters) == [CLUSTER]
    default = catalog.clusters[CLUSTER]
    assert [each.name for each in default.replicas] == ["r1"]
    # A folder of an earlier version: nothing of clusters in it.
    text = b'{"id":"u1","name":"v","kind":"materialized-view","sql":"","shard":"u1"}'
    assert msgspec.json.decode(text, type=Item).cluster == CLUSTER

    catalog.set_cluster(default.sized(2))
    (id_,) = catalog.next_ids()
    made = ClusterItem(id_, "c", (ReplicaItem("a", memory="1g", read_only=True),), spark_master="x")
    catalog.set_cluster(made)
    # Names of clusters are no names of relations.
    catalog.add(Item("u5", "c", "materialized-view", "", shard="u5", cluster="c"))
    again = Catalog(client)
    assert again.clusters == {CLUSTER: default.sized(2), "c": made}
    assert list(again.items) == list(read_items(client)) == ["u5"]
    assert [item.id for item in again.running_in("c")] == ["u5"]
    assert again.running_in(CLUSTER) == []
    again.remove_cluster(made)
    assert list(Catalog(client).clusters) == [CLUSTER]
    client.close()


def test_replicas_are_named_by_the_first_free_numbers():
    cluster = ClusterItem("u9", "c", (ReplicaItem("r2"), ReplicaItem("mine")))
    assert [each.name for each in cluster.sized(4).replicas] == ["r2", "mine", "r1", "r3"]
    assert [each.name for each in cluster.sized(1).replicas] == ["r2"]
    assert cluster.sized(0).replicas == ()
    assert cluster.replica_id(cluster.replicas[0]) == "u9-r2"


@pytest.mark.parametrize("steps", range(4))
def test_a_stop_of_a_replica_just_as_something_happens_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    async def at_once(_: Replica) -> None:
        pass

    for asked in ("_connect", "_tell", "_hear"):
        monkeypatch.setattr(Replica, asked, at_once)

    async def run() -> None:
        replica = Replica("r1", Place(tmp_path, "", "", "", SYSTEM_CLOCK))
        replica.start(WANTED)
        for _ in range(10):
            await asyncio.sleep(0)
        assert replica.is_ready
        replica._nudged.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        stopping = asyncio.create_task(replica.stop(terminate=False))
        done, _ = await asyncio.wait({stopping}, timeout=10)
        if not done:  # Cancelled again, so that the test ends.
            stopping.cancel()
        assert done

    asyncio.run(run())
