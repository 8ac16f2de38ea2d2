"""What an error of a session suggests is something that helps."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from session_harness import Client, serving
from tidemark.clock import ManualClock
from tidemark.compute.protocol import Status
from tidemark.errors import Cancelled, SqlError, Unavailable
from tidemark.frontier import Frontier


def test_a_column_that_is_nearly_right(tmp_path: Path):
    async def run() -> list[str | None]:
        async with serving(tmp_path) as coordinator:
            client = Client(coordinator)
            await client("CREATE TABLE t (region text)")
            hints = []
            for sql in ("INSERT INTO t (regio) VALUES ('x')", "UPDATE t SET regio = 'x'"):
                with pytest.raises(SqlError) as raised:
                    await client(sql)
                hints.append(raised.value.hint)
            return hints

    assert asyncio.run(run()) == ["did you mean region?"] * 2


@pytest.mark.parametrize("has_past", [True, False])
def test_a_read_of_what_fails_names_the_level_at_which_its_past_is_read(
    has_past: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def run() -> str | None:
        async with serving(tmp_path) as coordinator:
            client = Client(coordinator)
            await client("CREATE TABLE t (k int)")
            (table,) = (item for item in coordinator.catalog.items.values() if item.name == "t")
            assert table.shard is not None
            as_of = coordinator.client.state(table.shard).upper.time
            assert as_of is not None
            failing = Status(table.id, True, 0, "the broker is away", 9)
            monkeypatch.setattr(coordinator, "status", lambda item: failing)
            if not has_past:
                known = coordinator.client.known(table.shard)
                known = msgspec.structs.replace(known, since=Frontier(as_of))
                monkeypatch.setattr(coordinator.client, "known", lambda shard: known)
            with pytest.raises(Unavailable, match="the broker is away") as raised:
                coordinator.readable.check_running(table.shard)
            return raised.value.hint

    hint = asyncio.run(run())
    assert hint is not None
    assert hint.startswith("it is tried again all the time")
    assert ("SET transaction_isolation = 'serializable'" in hint) == has_past


@pytest.mark.parametrize(
    ("passed_ms", "hint"),
    [
        (20_000, 'it waited for relation "t", which is 10,000 ms behind; '),
        (0, r"it waited for time \d+, which is [\d,]+ ms away$"),
    ],
)
def test_a_statement_that_is_stopped_says_what_it_waited_for(
    passed_ms: int, hint: str, tmp_path: Path
):
    async def run() -> str | None:
        clock = ManualClock(100_000)
        async with serving(tmp_path, clock) as coordinator:
            client = Client(coordinator)
            await client("CREATE TABLE t (k int)", "SET statement_timeout = '50ms'")
            await coordinator.timeline.stop()  # From now on no table goes on.
            (table,) = (item for item in coordinator.catalog.items.values() if item.name == "t")
            assert table.shard is not None
            upper = coordinator.client.state(table.shard).upper.time
            assert upper is not None
            clock.step(passed_ms)
            with pytest.raises(Cancelled, match="due to statement timeout") as raised:
                await client.session.guarded(coordinator.readable.wait(table.shard, upper + 9_999))
            return raised.value.hint

    assert re.match(hint, asyncio.run(run()) or "")
