"""Cursors over subscriptions: what they keep between DECLARE and FETCH."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from session_harness import Client, serving
from tidemark.clock import ManualClock
from tidemark.errors import SqlError


def test_a_subscription_is_held_from_its_declaration_on(tmp_path: Path):
    async def scenario() -> None:
        clock = ManualClock(100_000)
        async with serving(tmp_path, clock) as coordinator:
            timeline = coordinator.timeline
            run, other = Client(coordinator), Client(coordinator)
            await run("CREATE TABLE t (k int)")
            await run("INSERT INTO t VALUES (1)")
            await run("BEGIN")
            await run("DECLARE c CURSOR FOR SUBSCRIBE t")
            for k in (2, 3):
                clock.advance(5_000)
                await other(f"INSERT INTO t VALUES ({k})")
                least = coordinator.holds.least()
                await timeline.run(coordinator._allow_compaction, timeline.read_ts, least)
            rows = await run("FETCH 3 c")
            rows += await run("FETCH 3 c") if len(rows) < 3 else []
            assert [row[1:] for row in rows] == [(1, 1), (1, 2), (1, 3)]
            assert rows[0][0] == Decimal(100_001)
            await run("ROLLBACK")
            assert coordinator.holds.least() is None

    asyncio.run(scenario())


def test_going_back_to_a_savepoint_closes_the_cursors_that_were_declared_since(tmp_path: Path):
    async def scenario() -> None:
        async with serving(tmp_path, ManualClock(100_000)) as coordinator:
            run = Client(coordinator)
            await run("BEGIN")
            await run("DECLARE before CURSOR FOR VALUES (1), (2)")
            await run("DECLARE again CURSOR FOR SELECT 3")
            await run("SAVEPOINT s")
            await run("CLOSE again")
            for k in (4, 5):
                await run(f"DECLARE again CURSOR FOR SELECT {k}")
                assert await run("FETCH again") == [(k,)]
                await run("ROLLBACK TO s")
            with pytest.raises(SqlError, match='cursor "again" does not exist'):
                await run("FETCH again")
            await run("ROLLBACK TO s")
            assert sorted(await run("FETCH ALL before")) == [(1,), (2,)]
            await run("ROLLBACK")

    asyncio.run(scenario())
