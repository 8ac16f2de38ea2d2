"""Several sessions that make, or drop, the same at once."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
import structlog

from session_harness import Client, serving
from tidemark.control.turns import leave, to_its_end
from tidemark.errors import SqlError

MADE = {
    "TABLE a": "(k int)",
    "VIEW v": "AS SELECT * FROM t",
    "INDEX i": "ON t (k)",
    "SECRET s": "AS 'x'",
    "ROLE r": "",
    "CLUSTER c": "(REPLICATION FACTOR 0)",
    "SCHEMA sc": "",
    "DATABASE d": "",
}


@pytest.fixture(autouse=True)
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.parametrize("what", MADE)
def test_if_exists_and_if_not_exists_say_what_is_so_when_it_is_their_turn(
    tmp_path: Path, what: str
):
    kind, name = what.split()

    async def scenario() -> None:
        async with serving(tmp_path / "data") as coordinator:
            clients = [Client(coordinator) for _ in range(4)]
            await clients[0]("CREATE TABLE t (k int)")
            made = f"CREATE {kind} IF NOT EXISTS {name} {MADE[what]}"
            assert await asyncio.gather(*(each(made) for each in clients)) == [f"CREATE {kind}"] * 4
            dropped = f"DROP {kind} IF EXISTS {name}"
            assert (
                await asyncio.gather(*(each(dropped) for each in clients)) == [f"DROP {kind}"] * 4
            )
            await clients[0](f"CREATE {kind} {name} {MADE[what]}")

    asyncio.run(scenario())


def test_a_drop_that_comes_too_late_does_not_drop_what_was_made_meanwhile(tmp_path: Path):
    async def scenario() -> None:
        async with serving(tmp_path / "data") as coordinator:
            first, second, third = (Client(coordinator) for _ in range(3))
            await first("CREATE SECRET s AS 'old'")
            done = await asyncio.gather(
                first("DROP SECRET s"),
                second("DROP SECRET s"),
                third("DROP SECRET IF EXISTS s"),
                return_exceptions=True,
            )
            assert done[0] == done[2] == "DROP SECRET"
            assert isinstance(done[1], SqlError)
            assert (done[1].sqlstate, done[1].message) == ("42P01", 'secret "s" does not exist')

            await first("CREATE SECRET s AS 'old'")
            late = coordinator.catalog.items.copy()
            await first("DROP SECRET s")
            await first("CREATE SECRET s AS 'new'")
            await coordinator.drop(list(late.values()), cascade=False)
            assert coordinator.secrets.read("s") == "new"

    asyncio.run(scenario())


def test_what_is_cancelled_while_it_waits_for_its_turn_has_not_happened(tmp_path: Path):
    async def scenario() -> None:
        async with serving(tmp_path / "data") as coordinator:
            first, second = Client(coordinator), Client(coordinator)
            async with coordinator.ddl:
                waiting = asyncio.create_task(first("CREATE TABLE a (k int)"))
                next_one = asyncio.create_task(second("CREATE TABLE b (k int)"))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            assert await next_one == "CREATE TABLE"
            assert [item.name for item in coordinator.catalog.items.values()] == ["b"]

    asyncio.run(scenario())


def test_what_has_begun_is_waited_for_unless_the_session_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def scenario() -> None:
        async with serving(tmp_path / "data") as coordinator:
            first, second, third = (Client(coordinator) for _ in range(3))
            begun, go_on = asyncio.Event(), asyncio.Event()
            add = coordinator._add

            async def slowly(*items: object) -> None:
                begun.set()
                await go_on.wait()
                await add(*items)  # type: ignore[arg-type]

            monkeypatch.setattr(coordinator, "_add", slowly)
            patient = asyncio.create_task(first("CREATE TABLE a (k int)"))
            await begun.wait()
            for _ in range(3):
                patient.cancel()
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            assert not patient.done()
            go_on.set()
            assert await patient == "CREATE TABLE"

            begun.clear()
            go_on.clear()
            leaving = asyncio.create_task(second("CREATE TABLE b (k int)"))
            await begun.wait()
            leave(leaving)
            with pytest.raises(asyncio.CancelledError):
                await leaving
            go_on.set()
            with pytest.raises(SqlError, match='relation "b" already exists'):
                await third("CREATE TABLE b (k int)")  # It comes after the other one.

    asyncio.run(scenario())


def test_what_ends_as_it_is_cancelled_has_happened() -> None:
    async def scenario() -> None:
        go_on = asyncio.Event()

        async def work() -> str:
            await go_on.wait()
            return "done"

        waiting = asyncio.create_task(to_its_end(work()))
        await asyncio.sleep(0)
        (inner,) = asyncio.all_tasks() - {waiting, asyncio.current_task()}
        go_on.set()
        inner.add_done_callback(lambda _: waiting.cancel())
        assert await waiting == "done"

    asyncio.run(scenario())


def test_the_failure_of_what_nobody_waits_for_is_a_line_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def scenario() -> None:
        unheard: list[dict] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: unheard.append(told))
        async with serving(tmp_path / "data") as coordinator:
            begun, go_on = asyncio.Event(), asyncio.Event()

            async def fails(*_: object) -> None:
                begun.set()
                await go_on.wait()
                raise SqlError("no room")

            with monkeypatch.context() as patched, structlog.testing.capture_logs() as lines:
                patched.setattr(coordinator, "_add", fails)
                leaving = asyncio.create_task(Client(coordinator)("CREATE TABLE a (k int)"))
                await begun.wait()
                leave(leaving)
                await asyncio.gather(leaving, return_exceptions=True)
                go_on.set()
                async with coordinator.ddl:  # Until it is through.
                    await asyncio.sleep(0)
                gc.collect()
            assert [line["error"] for line in lines] == ["no room"]
        assert not unheard

    asyncio.run(scenario())
