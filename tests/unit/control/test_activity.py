"""The log of statements: bounded, complete, and discreet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control import statements as s
from tidemark.control.activity import CONSOLE, MOST_TEXT, Activity, Ran, kind_of
from tidemark.control.parse import parse
from tidemark.control.pgwire import Done, Rows
from tidemark.control.variables import Variables
from tidemark.errors import Cancelled, DataError


async def numbers(*, fails: bool = False) -> AsyncIterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array([1, 2, 3])], names=["n"])
    if fails:
        raise DataError("no good")


def began(activity: Activity, sql: str = "SHOW cluster", *, has_params: bool = False) -> Ran:
    who = activity.connected("alice", Variables({"application_name": "a"}))
    return activity.began(who, parse(sql), sql, has_params=has_params)


def read(activity: Activity, ran: Ran, rows: Rows, *, most: int | None = None) -> None:
    async def main() -> None:
        watched = activity.returned(ran, rows)
        assert isinstance(watched, Rows)
        try:
            while (most is None or ran.rows < most) and await anext(watched.batches, None):
                pass
        finally:
            await watched.batches.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_a_statement_runs_until_its_last_row():
    activity = Activity(SYSTEM_CLOCK)
    ran = began(activity)
    assert list(activity.recent) == [ran]
    assert ran.outcome is None
    read(activity, ran, Rows((), numbers()))
    assert (ran.outcome, ran.rows, ran.application) == ("success", 3, "a")
    assert ran.finished_ms is not None
    assert activity.running == {}
    assert sum(activity.durations["show_variable", "success"].counts) == 1


@pytest.mark.parametrize("most", [0, 1])
def test_rows_that_nobody_wants_any_more_are_an_end_too(most: int):
    activity = Activity(SYSTEM_CLOCK)
    ran = began(activity)
    read(activity, ran, Rows((), numbers()), most=most)
    assert ran.outcome == "canceled"
    assert list(activity.recent) == [ran]


def test_what_it_failed_with():
    activity = Activity(SYSTEM_CLOCK)
    ran = began(activity)
    with pytest.raises(DataError):
        read(activity, ran, Rows((), numbers(fails=True)))
    assert (ran.outcome, ran.error_code, ran.error) == ("error", "22000", "no good")
    stopped, crashed, private = (began(activity, has_params=i == 2) for i in range(3))
    activity.ended(stopped, Cancelled("statement timeout"))
    activity.ended(crashed, ValueError("unforeseen"))
    activity.ended(private, DataError('not a number: "secret"'))
    assert (stopped.outcome, stopped.error) == ("canceled", None)
    assert (crashed.error_code, crashed.error) == ("XX000", "unforeseen")
    assert (private.error_code, private.error) == ("22000", None)
    activity.ended(stopped)  # Once is enough.
    assert stopped.outcome == "canceled"


def test_only_so_many_are_kept_and_only_so_much_of_each():
    activity = Activity(SYSTEM_CLOCK, kept=10)
    for n in range(100):
        activity.returned(began(activity, f"SELECT {n}, '{'x' * 10_000}'"), Done("SELECT 1"))
    recent = list(activity.recent)
    assert [ran.sql.split(",")[0] for ran in recent] == [f"SELECT {n}" for n in range(90, 100)]
    assert {len(ran.sql) for ran in recent} == {MOST_TEXT}
    assert sum(activity.durations["select", "success"].counts) == 100


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("CREATE SECRET s AS 'hunter2'", "CREATE SECRET s AS"),
        ("ALTER SECRET s AS 'hunter2'", "ALTER SECRET s AS"),
        (
            "CREATE CONNECTION k TO KAFKA (BROKER 'b:1', SASL PASSWORD = 'hunter2')",
            "CREATE CONNECTION k TO KAFKA (",
        ),
        ("ALTER CONNECTION k SET (SASL PASSWORD = 'hunter2')", "ALTER CONNECTION k SET ("),
        ("INSERT INTO t (name, password) VALUES ('a', 'hunter2')", "INSERT INTO t (name, password"),
        ("SELECT 'plain'", "SELECT 'plain'"),
    ],
)
def test_secrets_are_not_kept(sql: str, kept: str):
    activity = Activity(SYSTEM_CLOCK)
    ran = began(activity, sql)
    activity.ended(ran, DataError("hunter2 is wrong"))
    assert ran.sql == kept
    assert ran.error == ("hunter2 is wrong" if sql == kept else None)


def test_a_line_for_each_statement_if_asked_for():
    activity = Activity(SYSTEM_CLOCK)
    with capture_logs() as quiet:
        activity.ended(began(activity))
    activity.is_logged = True
    with capture_logs() as lines:
        activity.ended(began(activity, "CREATE SECRET s AS 'hunter2'"))
    assert quiet == []
    (line,) = lines
    assert (line["kind"], line["outcome"], line["user"]) == ("create_secret", "success", "alice")
    assert "hunter2" not in str(line)


def test_sessions_come_and_go():
    activity = Activity(SYSTEM_CLOCK)
    who = activity.connected("alice", Variables({}))
    assert list(activity.sessions.values()) == [who]
    activity.left(who)
    activity.left(who)
    assert activity.sessions == {}


def test_kinds_are_words():
    assert kind_of(s.Commit()) == "commit"
    assert kind_of(s.ShowIndexes(None)) == "show_indexes"


def test_what_the_console_looks_at_by_itself_is_counted_and_not_kept():
    activity = Activity(SYSTEM_CLOCK)
    who = activity.connected("alice", Variables({"application_name": CONSOLE}))
    looks = [activity.began(who, parse("SELECT 1"), "SELECT 1", has_params=False) for _ in range(3)]
    looks[0].of_catalog = looks[1].of_catalog = True
    for ran, problem in zip(looks, (None, DataError("no good"), None), strict=True):
        activity.ended(ran, problem)
    assert list(activity.recent) == looks[1:]
    assert sum(activity.durations["select", "success"].counts) == 2
