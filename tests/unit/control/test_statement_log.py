"""The statement log on disk: bounded, read back after a restart, written off the statements' path."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from structlog.testing import capture_logs

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.activity import Activity, Ran
from tidemark.control.parse import parse
from tidemark.control.statement_log import StatementLog
from tidemark.control.variables import Variables
from tidemark.errors import SqlError


def ran(activity: Activity, sql: str, problem: Exception | None = None) -> Ran:
    who = activity.connected("alice", Variables({"application_name": "a"}))
    found = activity.began(who, parse(sql), sql, has_params=False)
    activity.ended(found, problem)
    return found


def after_restart(folder: Path) -> Activity:
    activity = Activity(SYSTEM_CLOCK)
    StatementLog(folder).of(activity)
    return activity


def test_what_ran_is_known_after_a_restart_and_numbers_go_on(tmp_path: Path):
    activity = Activity(SYSTEM_CLOCK)
    log = StatementLog(tmp_path).of(activity)
    first = ran(activity, "SHOW cluster")
    second = ran(activity, "SELECT nothing", SqlError("no such column", sqlstate="42703"))
    asyncio.run(log.stop())
    later = after_restart(tmp_path)
    found = list(later.recent)
    assert [(each.id, each.sql, each.who.user) for each in found] == [
        (first.id, "SHOW cluster", "alice"),
        (second.id, "SELECT nothing", "alice"),
    ]
    assert (found[1].outcome, found[1].error_code, found[1].error) == (
        "error",
        "42703",
        "no such column",
    )
    assert later.running == {}
    assert ran(later, "SHOW cluster").id > second.id
    assert stat.S_IMODE((tmp_path / "statements.jsonl").stat().st_mode) == 0o600


def test_secrets_do_not_reach_the_disk(tmp_path: Path):
    activity = Activity(SYSTEM_CLOCK)
    log = StatementLog(tmp_path).of(activity)
    ran(activity, "CREATE SECRET s AS 'hunter2'")
    ran(activity, "CREATE CONNECTION c TO KAFKA (BROKER 'b', SASL USERNAME 'hunter2')")
    ran(activity, "SELECT 1 /* password hunter2 */")
    asyncio.run(log.stop())
    text = (tmp_path / "statements.jsonl").read_text()
    assert "CREATE SECRET s AS" in text
    assert "hunter2" not in text


def test_it_stays_bounded(tmp_path: Path):
    activity = Activity(SYSTEM_CLOCK)
    log = StatementLog(tmp_path, most_lines=10)
    for at in range(35):
        log.write([ran(activity, f"SELECT {at}")])
    sizes = [path.read_bytes().count(b"\n") for path in tmp_path.iterdir()]
    assert sum(sizes) <= 20
    assert [each.sql for each in StatementLog(tmp_path).read(3)] == [
        "SELECT 32",
        "SELECT 33",
        "SELECT 34",
    ]


def test_half_a_line_costs_only_itself(tmp_path: Path):
    activity = Activity(SYSTEM_CLOCK)
    log = StatementLog(tmp_path)
    log.write([ran(activity, "SELECT 1")])
    path = tmp_path / "statements.jsonl"
    path.write_bytes(path.read_bytes() + b'\n{"id": 7, "sess')
    log.write([ran(activity, "SELECT 2")])
    assert [each.sql for each in StatementLog(tmp_path).read()] == ["SELECT 1", "SELECT 2"]


def test_a_disk_that_refuses_is_a_line_of_the_log_and_no_error(tmp_path: Path):
    activity = Activity(SYSTEM_CLOCK)
    (tmp_path / "log").write_text("not a folder")
    log = StatementLog(tmp_path / "log")
    activity.on_end = log._waiting.append
    ran(activity, "SELECT 1")
    with capture_logs() as lines:
        asyncio.run(log.stop())
    assert [line["event"] for line in lines] == ["statements were not logged"]


def test_slow_statements_are_lines_of_the_log(tmp_path: Path):
    class Slow:
        def __init__(self) -> None:
            self.seconds = 0.0

        def now_ms(self) -> int:
            return 0

        def monotonic(self) -> float:
            self.seconds += 3.0
            return self.seconds

        def sleep(self, seconds: float) -> None:
            raise NotImplementedError

    def said(limit: str, sql: str) -> list[dict]:
        activity = Activity(Slow())
        who = activity.connected("alice", Variables({"log_min_duration_statement": limit}))
        with capture_logs() as lines:
            activity.ended(activity.began(who, parse(sql), sql, has_params=False))
        return [dict(line) for line in lines]

    (line,) = said("2s", "SELECT 1")
    assert (line["event"], line["log_level"], line["sql"]) == (
        "slow statement",
        "warning",
        "SELECT 1",
    )
    assert line["session"] == 1
    assert line["statement"] == 2
    assert said("5s", "SELECT 1") == []
    assert said("-1", "SELECT 1") == []
    assert said("2s", "COPY (SUBSCRIBE t) TO STDOUT") == []
