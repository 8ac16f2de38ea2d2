"""CREATE, ALTER and DROP of clusters and their replicas: options into what the catalog keeps.

REPLICATION FACTOR   how many replicas; their names are r1, r2, ...
MEMORY               heap of each replica's JVM, e.g. '4g'; by default the server's
SPARK MASTER         where their Spark jobs run, e.g. 'spark://host:7077'; by default the server's
READ ONLY            (a replica) follow what the others write, and write nothing
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidemark.control import statements as s
from tidemark.control.catalog import ClusterItem, ReplicaItem
from tidemark.control.pgwire import Done
from tidemark.errors import SqlError, Unsupported

if TYPE_CHECKING:
    from tidemark.control.session import Session

MOST_REPLICAS = 16

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_MEMORY = re.compile(r"[1-9][0-9]*[mg]")
_MASTER = re.compile(r"local(\[[^\]]+\])?|spark://.+")
_TRUTH = {"true": True, "on": True, "false": False, "off": False}

Change = (
    s.CreateCluster
    | s.CreateReplica
    | s.AlterCluster
    | s.AlterReplica
    | s.DropClusters
    | s.DropReplicas
)


async def run(session: Session, statement: Change) -> Done:
    match statement:
        case s.CreateCluster():
            await _create(session, statement)
            return Done("CREATE CLUSTER")
        case s.CreateReplica():
            await _create_replica(session, statement)
            return Done("CREATE CLUSTER REPLICA")
        case s.AlterCluster():
            await _alter(session, statement)
            return Done("ALTER CLUSTER")
        case s.AlterReplica():
            await _alter_replica(session, statement)
            return Done("ALTER CLUSTER REPLICA")
        case s.DropClusters():
            await _drop(session, statement)
            return Done("DROP CLUSTER")
        case s.DropReplicas():
            await _drop_replicas(session, statement)
            return Done("DROP CLUSTER REPLICA")


async def _create(session: Session, statement: s.CreateCluster) -> None:
    name = _checked_name(statement.name)
    known = ("replication factor", "memory", "spark master")
    given = _given(statement.options, known)
    count = _factor(given.get("replication factor", "1"))
    if statement.if_not_exists and name in session.coordinator.catalog.clusters:
        session.notice(f'cluster "{name}" already exists, skipping')
        return

    def make(id_: str) -> ClusterItem:
        return ClusterItem(id_, name, memory=_memory(given), spark_master=_master(given)).sized(
            count
        )

    make("u0")  # What is wrong with the options is said before anything happens.
    await session.coordinator.create_cluster(name, make)


async def _create_replica(session: Session, statement: s.CreateReplica) -> None:
    given = _given(statement.options, ("read only", "memory", "spark master"))
    replica = ReplicaItem(
        _checked_name(statement.name),
        memory=_memory(given),
        spark_master=_master(given),
        read_only=_truth(given, "read only"),
    )

    def change(cluster: ClusterItem) -> ClusterItem:
        if cluster.replica(replica.name) is not None:
            raise SqlError(
                f'replica "{cluster.name}.{replica.name}" already exists', sqlstate="42710"
            )
        _check_count(len(cluster.replicas) + 1)
        return replace(cluster, replicas=(*cluster.replicas, replica))

    cluster = session.coordinator.clusters.named(statement.cluster).item
    if statement.if_not_exists and cluster.replica(replica.name) is not None:
        session.notice(f'replica "{cluster.name}.{replica.name}" already exists, skipping')
        return
    await session.coordinator.alter_cluster(statement.cluster, change)


async def _alter(session: Session, statement: s.AlterCluster) -> None:
    given = _given(statement.options, ("replication factor", "memory", "spark master"))
    if set(given) != {"replication factor"}:
        raise Unsupported(
            "only the REPLICATION FACTOR of a cluster can be changed",
            hint=f"CREATE CLUSTER REPLICA {statement.name}.other (MEMORY = '4g'), "
            "then DROP CLUSTER REPLICA the one before",
        )
    count = _factor(given["replication factor"])
    await session.coordinator.alter_cluster(statement.name, lambda cluster: cluster.sized(count))


async def _alter_replica(session: Session, statement: s.AlterReplica) -> None:
    given = _given(statement.options, ("read only",))
    if "read only" not in given or _truth(given, "read only"):
        raise Unsupported(
            "a replica can be made to write, not to follow only",
            hint="SET (READ ONLY = false); for the other way, DROP and CREATE it",
        )

    def change(cluster: ClusterItem) -> ClusterItem:
        _found(cluster, statement.name)
        return replace(
            cluster,
            replicas=tuple(
                replace(each, read_only=False) if each.name == statement.name else each
                for each in cluster.replicas
            ),
        )

    await session.coordinator.alter_cluster(statement.cluster, change)


async def _drop(session: Session, statement: s.DropClusters) -> None:
    for name in statement.names:
        if statement.if_exists and name not in session.coordinator.catalog.clusters:
            session.notice(f'cluster "{name}" does not exist, skipping')
            continue
        await session.coordinator.drop_cluster(name, cascade=statement.cascade)


async def _drop_replicas(session: Session, statement: s.DropReplicas) -> None:
    for cluster_name, name in statement.names:
        known = session.coordinator.catalog.clusters.get(cluster_name)
        if statement.if_exists and (known is None or known.replica(name) is None):
            session.notice(f'replica "{cluster_name}.{name}" does not exist, skipping')
            continue

        def change(cluster: ClusterItem, name: str = name) -> ClusterItem:
            _found(cluster, name)
            kept = tuple(each for each in cluster.replicas if each.name != name)
            return replace(cluster, replicas=kept)

        await session.coordinator.alter_cluster(cluster_name, change)


def _found(cluster: ClusterItem, name: str) -> ReplicaItem:
    found = cluster.replica(name)
    if found is None:
        raise SqlError(
            f'unknown replica "{cluster.name}.{name}"',
            hint="SHOW CLUSTER REPLICAS lists those there are",
            sqlstate="42704",
        )
    return found


def _given(options: tuple[tuple[str, str], ...], known: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in options:
        if name == "size":
            raise Unsupported(
                "replicas have no SIZE here",
                hint="MEMORY = '4g' is the heap of each one's JVM, SPARK MASTER where its jobs run",
            )
        if name not in known:
            raise Unsupported(
                f"option {name.upper()} is not supported here",
                hint=f"known: {', '.join(known).upper()}",
            )
        if name in given:
            raise SqlError(f"{name.upper()} is given more than once")
        given[name] = value
    return given


def _factor(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise SqlError(
            f"REPLICATION FACTOR takes a number of replicas, not {text!r}", sqlstate="22023"
        )
    _check_count(int(text))
    return int(text)


def _check_count(count: int) -> None:
    if count > MOST_REPLICAS:
        raise SqlError(
            f"a cluster has at most {MOST_REPLICAS} replicas, not {count}",
            hint="each is a process with a JVM of its own",
            sqlstate="22023",
        )


def _memory(given: dict[str, str]) -> str | None:
    text = given.get("memory")
    if text is not None and not _MEMORY.fullmatch(text.lower()):
        raise SqlError(
            f"MEMORY takes a size such as '512m' or '4g', not {text!r}", sqlstate="22023"
        )
    return text.lower() if text is not None else None


def _master(given: dict[str, str]) -> str | None:
    text = given.get("spark master")
    if text is not None and not _MASTER.fullmatch(text):
        raise SqlError(
            f"SPARK MASTER takes 'local[*]' or 'spark://host:port', not {text!r}",
            sqlstate="22023",
        )
    return text


def _truth(given: dict[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in _TRUTH:
        raise SqlError(f"{name.upper()} takes true or false, not {text!r}", sqlstate="22023")
    return _TRUTH[text]


def _checked_name(name: str) -> str:
    """Processes and files are named after clusters and replicas."""
    if not _NAME.fullmatch(name):
        raise SqlError(
            f'"{name}" cannot be the name of a cluster or replica',
            hint="use letters, digits and underscores, at most 63",
            sqlstate="42602",
        )
    return name
