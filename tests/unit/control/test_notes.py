"""What is kept in the catalog about objects and the server: comments, settings, other forms."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.control.catalog import CLUSTER, ClusterItem
from tidemark.control.coordinator import Coordinator
from tidemark.control.pgwire import Rows
from tidemark.control.session import Session
from tidemark.errors import SqlError
from tidemark.persist import PersistClient


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PersistClient]:
    blob, consensus = f"file://{tmp_path / 'blob'}", f"sqlite://{tmp_path / 'consensus.db'}"
    opened = PersistClient.open(blob=blob, consensus=consensus)
    yield opened
    opened.close()


def run(client: PersistClient, folder: Path, *statements: str) -> list[tuple]:
    """In a server of its own, one that has no replicas; the rows of the last statement."""
    return asyncio.run(_run(client, folder, statements))


async def _run(client: PersistClient, folder: Path, statements: tuple[str, ...]) -> list[tuple]:
    coordinator = Coordinator(client, data=folder, blob="", consensus="", spark_master="local[1]")
    coordinator.catalog.set_cluster(ClusterItem("s1", CLUSTER))
    coordinator.clusters.start(coordinator.catalog.clusters, {})
    session = Session(coordinator, user="tidemark", database="tidemark", options={})
    found: list[tuple] = []
    try:
        for sql in statements:
            result = await session.execute(await session.prepare(sql, ()), ())
            if isinstance(result, Rows):
                batches = [batch async for batch in result.batches]
                found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        return found
    finally:
        await session.close()
        await coordinator.clusters.stop()
        coordinator.timeline.executor.shutdown()
        coordinator.engine.close()


COMMENTS = "SELECT id, object_sub_id, comment FROM mz_internal.mz_comments ORDER BY 2 NULLS FIRST"


def test_comments_outlive_control_and_go_with_their_object(client: PersistClient, tmp_path: Path):
    run(
        client,
        tmp_path,
        "CREATE TABLE t (a int, b text)",
        "COMMENT ON TABLE t IS 'one'",
        "COMMENT ON COLUMN t.b IS 'two'",
        "COMMENT ON TABLE t IS 'three'",
    )
    assert run(client, tmp_path, COMMENTS) == [("u1", None, "three"), ("u1", 2, "two")]
    described = (
        "SELECT obj_description('t'::regclass, 'pg_class'), col_description('t'::regclass, 2)"
    )
    assert run(client, tmp_path, described) == [("three", "two")]
    assert run(client, tmp_path, "COMMENT ON TABLE t IS NULL", COMMENTS) == [("u1", 2, "two")]
    assert run(client, tmp_path, "DROP TABLE t", COMMENTS) == []
    assert (
        Coordinator(
            client, data=tmp_path, blob="", consensus="", spark_master="local[1]"
        ).catalog.notes
        == {}
    )


def test_settings_of_the_system_outlive_control(client: PersistClient, tmp_path: Path):
    run(client, tmp_path, "ALTER SYSTEM SET statement_timeout = '30s'")
    assert run(client, tmp_path, "SHOW statement_timeout") == [("30s",)]
    own = ("SET statement_timeout = '1s'", "RESET statement_timeout", "SHOW statement_timeout")
    assert run(client, tmp_path, *own) == [("30s",)]
    run(client, tmp_path, "ALTER SYSTEM RESET ALL")
    assert run(client, tmp_path, "SHOW statement_timeout") == [("0",)]


def test_a_session_too_many_is_refused_with_what_to_do(client: PersistClient, tmp_path: Path):
    async def main() -> None:
        coordinator = Coordinator(
            client, data=tmp_path, blob="", consensus="", spark_master="local[1]"
        )
        coordinator.clusters.start(
            {CLUSTER: ClusterItem("s1", CLUSTER)},
            {},
        )
        coordinator.catalog.note({"system-max_connections": "1"})
        first = Session(coordinator, user="a", database="tidemark", options={})
        with pytest.raises(SqlError, match="too many clients") as caught:
            Session(coordinator, user="b", database="tidemark", options={})
        assert caught.value.sqlstate == "53300"
        await first.close()
        await Session(coordinator, user="b", database="tidemark", options={}).close()
        await coordinator.clusters.stop()
        coordinator.timeline.executor.shutdown()

    asyncio.run(main())


def test_history_is_kept_for_longer_from_now_on(client: PersistClient, tmp_path: Path):
    kept = "SELECT id, value FROM mz_internal.mz_history_retention_strategies"
    run(
        client,
        tmp_path,
        "CREATE TABLE t (a int)",
        "COMMENT ON TABLE t IS 'stays'",
        "ALTER TABLE t SET (RETAIN HISTORY FOR '1 hour')",
    )
    assert run(client, tmp_path, kept) == [("u1", 3_600_000)]
    assert run(client, tmp_path, COMMENTS) == [("u1", None, "stays")]
    assert run(client, tmp_path, "ALTER TABLE t RESET (RETAIN HISTORY)", kept) == [("u1", 1_000)]


def test_what_nobody_runs_is_paused(client: PersistClient, tmp_path: Path):
    found = run(
        client,
        tmp_path,
        "CREATE SOURCE s FROM LOAD GENERATOR COUNTER",
        "SELECT name, status, error FROM mz_internal.mz_source_statuses",
    )
    assert found == [("s", "paused", 'cluster "quickstart" has no replicas')]
    shown = ("s", "load-generator", "quickstart", "paused", 'cluster "quickstart" has no replicas')
    assert run(client, tmp_path, "SHOW SOURCES") == [shown]
    assert run(client, tmp_path, "SHOW SOURCES WHERE status = 'running'") == []
