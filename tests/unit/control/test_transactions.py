"""Transactions of sessions: what they see, what they write, and when they are refused."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from consistency import Append, Read, Transaction, check
from session_harness import Client, serving
from tidemark.clock import ManualClock
from tidemark.control import writes
from tidemark.control.cursors import Cursors
from tidemark.errors import SqlError, TidemarkError
from tidemark.storage.tables import Tables

Body = Callable[[Client, Client], Awaitable[None]]
Run = Callable[[Body], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(body: Body) -> None:
        async def with_clients() -> None:
            async with serving(tmp_path) as coordinator:
                one, two = Client(coordinator), Client(coordinator)
                await one("CREATE TABLE t (k int NOT NULL, v int)")
                await one("CREATE TABLE u (k int NOT NULL, v int)")
                await one("INSERT INTO t VALUES (1, 10), (2, 20)")
                await body(one, two)
                for client in (one, two):
                    await client.session.close()

        asyncio.run(with_clients())

    return run


ALL = "SELECT k, v FROM t ORDER BY k, v"


def test_read_then_write(run: Run) -> None:
    async def body(one: Client, two: Client) -> None:
        await one("BEGIN")
        assert await one("SELECT v FROM t WHERE k = 1") == [(10,)]
        assert await one("UPDATE t SET v = 11 WHERE k = 1") == "UPDATE 1"
        assert await one(ALL) == [(1, 11), (2, 20)]
        assert await two(ALL) == [(1, 10), (2, 20)]
        assert await one("COMMIT") == "COMMIT"
        assert await two(ALL) == [(1, 11), (2, 20)]

    run(body)


def test_one_sees_its_own_writes(run: Run) -> None:
    async def body(one: Client, two: Client) -> None:
        await one("BEGIN")
        await one("INSERT INTO t VALUES (3, 30), (3, 30)")
        assert await one(ALL) == [(1, 10), (2, 20), (3, 30), (3, 30)]
        assert await one("DELETE FROM t WHERE k = 3") == "DELETE 2"
        assert await one("DELETE FROM t WHERE k = 3") == "DELETE 0"
        await one("INSERT INTO t VALUES (4, NULL)")
        assert await one("UPDATE t SET k = 5 WHERE v IS NULL") == "UPDATE 1"
        await one("SAVEPOINT s")
        assert await one("DELETE FROM t") == "DELETE 3"
        assert await one(ALL) == []
        assert await one("SELECT 1 FROM t") == []
        await one("ROLLBACK TO s")
        assert await one(ALL) == [(1, 10), (2, 20), (5, None)]
        assert await one("SELECT 1 FROM t") == [(1,)] * 3
        await one("COMMIT")
        assert await two(ALL) == [(1, 10), (2, 20), (5, None)]

    run(body)


@pytest.mark.parametrize(
    ("reads", "meanwhile", "fails"),
    [
        ("SELECT v FROM t", "INSERT INTO t VALUES (9, 9)", True),
        ("SELECT v FROM t", "UPDATE t SET v = 0", True),
        ("SELECT v FROM t", "INSERT INTO u VALUES (9, 9)", False),
        ("SELECT 1", "INSERT INTO t VALUES (9, 9)", False),
        ("INSERT INTO u SELECT k, v FROM t", "DELETE FROM t", True),
        ("DELETE FROM t WHERE k = 7", "INSERT INTO t VALUES (7, 7)", True),
        ("INSERT INTO t VALUES (9, 9)", "DELETE FROM t", False),
        ("SELECT v FROM t", "DROP TABLE t", True),
    ],
)
def test_what_was_read_and_has_changed_is_a_conflict(
    run: Run, reads: str, meanwhile: str, fails: bool
) -> None:
    async def body(one: Client, two: Client) -> None:
        await one("BEGIN")
        await one(reads)
        await one("INSERT INTO u VALUES (1, 1)")
        await two(meanwhile)
        if fails:
            with pytest.raises(SqlError, match="could not serialize access") as error:
                await one("COMMIT")
            assert error.value.sqlstate == "40001"
            assert one.session.transaction_status == "I"
        else:
            assert await one("COMMIT") == "COMMIT"
        assert await two("SELECT k FROM u WHERE k = 1") == ([] if fails else [(1,)])

    run(body)


def test_the_time_of_a_transaction_is_that_of_its_reads(run: Run) -> None:
    """`mz_now()` alone was the time at which it was asked."""

    async def body(one: Client, two: Client) -> None:
        for first in (ALL, "SELECT mz_now()"):
            await one("BEGIN")
            await one(first)
            asked = "SELECT mz_now()", "SELECT mz_now() FROM mz_catalog.mz_tables LIMIT 1"
            before = [await one(sql) for sql in asked]
            await two("INSERT INTO t VALUES (3, 3)")
            assert [await one(sql) for sql in asked] == before
            assert before[0] == before[1]
            ((now,),) = before[0]
            assert len(await one(ALL)) == len(await two(f"SELECT k FROM t AS OF {now}"))
            assert len(await two(ALL)) == len(await one(ALL)) + 1
            await one("COMMIT")

    run(body)


def test_write_skew_is_a_conflict(run: Run) -> None:
    async def body(one: Client, two: Client) -> None:
        for client in (one, two):
            await client("BEGIN")
        await one("SELECT v FROM t")
        await two("SELECT v FROM u")
        await one("INSERT INTO u VALUES (1, 1)")
        await two("INSERT INTO t VALUES (3, 3)")
        done = await asyncio.gather(one("COMMIT"), two("COMMIT"), return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == ["SqlError", "str"]

    run(body)


def test_an_open_transaction_makes_nobody_wait(run: Run) -> None:
    async def body(one: Client, two: Client) -> None:
        await one("BEGIN")
        await one("UPDATE t SET v = 0")
        async with asyncio.timeout(60):
            await two("UPDATE t SET v = v")
            await two("INSERT INTO u VALUES (1, 1)")
        await one("ROLLBACK")

    run(body)


def test_one_that_only_reads_never_fails(run: Run) -> None:
    async def body(one: Client, two: Client) -> None:
        await one("BEGIN")
        await one(ALL)
        await one("UPDATE t SET v = 0 WHERE k = 77")  # Writes nothing.
        await two("DELETE FROM t")
        assert await one(ALL) == [(1, 10), (2, 20)]
        assert await one("COMMIT") == "COMMIT"
        await one("BEGIN READ ONLY")
        await one(ALL)
        await two("INSERT INTO t VALUES (1, 1)")
        assert await one(ALL) == []
        assert await one("COMMIT") == "COMMIT"

    run(body)


def test_several_at_once_are_one_transaction(run: Run) -> None:
    async def body(one: Client, two: Client) -> None:
        with pytest.raises(TidemarkError):
            await one("INSERT INTO u VALUES (1, 1)", "INSERT INTO u VALUES ('x', 1)")
        assert one.session.transaction_status == "I"
        assert await two("SELECT k FROM u") == []
        before = one.session.coordinator.timeline.commits
        await one("INSERT INTO u VALUES (1, 1)", "INSERT INTO t VALUES (3, 3)")
        assert one.session.coordinator.timeline.commits == before + 1
        # BEGIN takes in what came before, and what was begun stays open.
        await one("INSERT INTO u VALUES (2, 2)", "BEGIN", "INSERT INTO u VALUES (3, 3)")
        assert one.session.transaction_status == "T"
        await one("ROLLBACK")
        # COMMIT and ROLLBACK end it; what follows is another one.
        await one("INSERT INTO u VALUES (4, 4)", "COMMIT", "INSERT INTO u VALUES (5, 5)")
        await one("INSERT INTO u VALUES (6, 6)", "ROLLBACK", "INSERT INTO u VALUES (7, 7)")
        said = [notice.message for notice in one.session.notices()]
        assert said == ["there is no transaction in progress"] * 2
        assert await two("SELECT k FROM u ORDER BY k") == [(1,), (4,), (5,), (7,)]
        with pytest.raises(SqlError, match="savepoints"):
            await one("INSERT INTO u VALUES (8, 8)", "SAVEPOINT s")
        # What is created commits what came before.
        with pytest.raises(SqlError):
            await one("INSERT INTO u VALUES (9, 9)", "CREATE TABLE w (a int)", "SELECT nonsense")
        assert await two("SELECT k FROM u WHERE k > 7") == [(9,)]
        assert await two("SELECT a FROM w") == []

    run(body)


def test_settings_of_several_at_once_are_undone_with_them(run: Run) -> None:
    async def body(one: Client, two: Client) -> None:
        with pytest.raises(SqlError):
            await one("SET application_name = 'x'", "SELECT nonsense")
        assert await one("SHOW application_name") == [("",)]
        await one("SET LOCAL application_name = 'y'", "SET cluster = 'quickstart'")
        assert await one("SHOW application_name") == [("",)]

    run(body)


# Many of them at once, for the checker to look at.

LISTS = ("one", "two")
KEYS = 2


async def histories(folder: Path, seed: int) -> list[Transaction]:
    """Clients that read lists, of several keys and tables, and then write to them."""
    clock, values, history = itertools.count(), itertools.count(1), []

    async def appends(client: Client, name: str, chance: random.Random) -> None:
        for _ in range(12):
            called, ops, outcome = next(clock), [], "ok"
            try:
                await client("BEGIN")
                for table in chance.sample(LISTS, chance.randint(1, 2)):
                    key = chance.randrange(KEYS)
                    rows = await client(f"SELECT value FROM {table} WHERE key = {key}")
                    ops.append(Read((table, key), tuple(v for (v,) in rows), ordered=False))
                    for _ in range(chance.randint(0, 3)):
                        await asyncio.sleep(0)
                    if chance.random() < 0.6:
                        value = next(values)
                        ops.append(Append((table, key), value))
                        await client(f"INSERT INTO {table} VALUES ({key}, {value})")
                await client("COMMIT")
            except SqlError as error:
                if error.sqlstate != "40001":
                    raise
                outcome = "failed"
            history.append(Transaction(name, called, next(clock), outcome, tuple(ops)))

    async with serving(folder) as coordinator:
        first = Client(coordinator)
        for table in LISTS:
            await first(f"CREATE TABLE {table} (key int, value int)")
        clients = [Client(coordinator) for _ in range(4)]
        chances = [random.Random(seed + n) for n in range(len(clients))]
        work = zip(clients, chances, strict=True)
        await asyncio.gather(*(appends(c, f"p{n}", chance) for n, (c, chance) in enumerate(work)))
        called, ops = next(clock), []
        await first("BEGIN")
        for table, key in itertools.product(LISTS, range(KEYS)):
            rows = await first(f"SELECT value FROM {table} WHERE key = {key}")
            ops.append(Read((table, key), tuple(v for (v,) in rows), ordered=False))
        await first("COMMIT")
        history.append(Transaction("last", called, next(clock), "ok", tuple(ops)))
    return history


def test_what_many_clients_see_is_strictly_serializable(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"{seed=}")
    history = asyncio.run(histories(tmp_path, seed))
    assert check(history) == []
    outcomes = {each.outcome for each in history if len(each.ops) > 1}
    assert outcomes == {"ok", "failed"}, "some get through, and some meet"


def test_without_the_check_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tables, "written_after", lambda *_: False)
    found = {each.name for each in check(asyncio.run(histories(tmp_path, 1)))}
    assert found & {"G-single", "G2"}, found


def test_a_statement_that_reads_first_lets_others_write(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts what they wrote to its table, too, however often they are faster."""

    async def body(one: Client, two: Client) -> None:
        coordinator = one.session.coordinator
        peek, overtaken = coordinator.peek, 0

        async def slow(plan, as_of, **options):
            nonlocal overtaken
            found = await peek(plan, as_of, **options)
            if overtaken < writes.ATTEMPTS:
                overtaken += 1
                await two("INSERT INTO u VALUES (0, 0)")
                await two(f"INSERT INTO t VALUES ({10 + overtaken}, 1)")
            return found

        monkeypatch.setattr(coordinator, "peek", slow)
        assert await one("UPDATE t SET v = 7") == f"UPDATE {2 + writes.ATTEMPTS}"
        assert await two(ALL) == [(k, 7) for k in (1, 2, 11, 12, 13)]

    run(body)


def test_a_time_limit_that_is_over_amid_a_commit_does_not_deny_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(one: Client, two: Client) -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        commit = Tables.commit

        def slow_commit(tables: Tables, batch, *, not_before: int = 0) -> int:
            if batch:
                asyncio.run_coroutine_threadsafe(over.wait(), loop).result(60)
            return commit(tables, batch, not_before=not_before)

        monkeypatch.setattr(Tables, "commit", slow_commit)
        await one("SET statement_timeout = '10ms'")
        written = asyncio.create_task(one("INSERT INTO t VALUES (3, 30)"))
        await asyncio.sleep(0.1)
        over.set()
        assert await written == "INSERT 0 1"
        await one("RESET statement_timeout")
        assert await two(ALL) == [(1, 10), (2, 20), (3, 30)]

    run(body)


def test_now_is_when_the_transaction_began(run: Run) -> None:
    async def body(one: Client, two: Client) -> None:
        clock = one.session.coordinator.clock
        assert isinstance(clock, ManualClock)
        before = await two("SELECT now(), current_timestamp")
        await one("BEGIN")
        clock.advance(1_000)
        began = await one("SELECT now(), current_timestamp")
        assert began == before
        clock.advance(1_000)
        assert await one("SELECT now(), current_timestamp") == began
        assert await two("SELECT now(), current_timestamp") != began
        await one("COMMIT")
        assert await one("SELECT now(), current_timestamp") != began

    run(body)


def test_what_it_reads_at_is_let_go_even_if_a_cursor_cannot_be_closed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(one: Client, two: Client) -> None:
        holds = one.session.coordinator.holds
        await one("BEGIN")
        await one(ALL)
        assert holds.least() is not None

        async def cancelled(_: object, *, committed: bool) -> None:
            raise asyncio.CancelledError

        with monkeypatch.context() as patched:
            patched.setattr(Cursors, "end_transaction", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await one("ROLLBACK")
        assert holds.least() is None

    run(body)
