"""HTTP as its users have it: curl, an HTTP client, a websocket client, a scraper."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import DEADLINE, Serving, eventually

from docs_blocks import tried_by, unlike
from websocket_client import Talk

FAR_AWAY = 99_999_999_999_999
"""Nothing will be complete up to here in our time, so reading at it waits."""


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def curl(server: Serving, path: str, *options: str) -> tuple[int, str]:
    command = ["curl", "-s", "-w", "\n%{http_code}", f"{server.http}{path}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def ask(server: Serving, body: dict[str, Any], *, query: str = "") -> list[dict[str, Any]]:
    status, answer = curl(
        server,
        f"/api/sql{query}",
        "--header",
        "Content-Type: application/json",
        "--data-binary",
        msgspec.json.encode(body).decode(),
    )
    assert status == 200, answer
    return msgspec.json.decode(answer)["results"]


def scrape(server: Serving) -> Samples:
    status, text = curl(server, "/metrics")
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, /, **labels: str) -> float | None:
    """The sample with these labels, and perhaps others."""
    wanted = set(labels.items())
    found = [v for (n, given), v in samples.items() if n == name and wanted <= given]
    assert len(found) <= 1, found
    return found[0] if found else None


@pytest.fixture
def table(connection: psycopg.Connection) -> Iterator[str]:
    connection.execute("CREATE TABLE ht_t (k int, v text)")
    yield "ht_t"
    connection.execute("DROP TABLE IF EXISTS ht_t CASCADE")


def test_statements_in_one_request(server: Serving, table: str):
    found = ask(
        server,
        {
            "query": "INSERT INTO ht_t VALUES (1, 'one'), (2, NULL);"
            "SELECT k, v FROM ht_t ORDER BY k; BEGIN; DELETE FROM ht_t"
        },
    )
    assert [each.get("ok") or each["tag"] for each in found] == [
        "INSERT 0 2",
        "SELECT 2",
        "BEGIN",
        "DELETE 2",
    ]
    assert found[1]["rows"] == [["1", "one"], ["2", None]]
    # BEGIN took in what came before. It was never committed, and ends with the request.
    (counted,) = ask(server, {"query": "SELECT count(*) FROM ht_t"})
    assert counted["rows"] == [["0"]]


def test_a_request_is_one_transaction(server: Serving, table: str):
    *_, failed = ask(server, {"query": "INSERT INTO ht_t VALUES (1, 'a'); SELECT 1 / 0"})
    assert failed["error"]["code"] == "22012"
    many = [{"query": "INSERT INTO ht_t VALUES ($1, 'b')", "params": [str(k)]} for k in (2, 3)]
    *_, failed = ask(server, {"queries": [*many, {"query": "SELECT nothing"}]})
    assert failed["error"]["code"] == "42703"
    ask(server, {"queries": many})
    (found,) = ask(server, {"query": "SELECT k FROM ht_t ORDER BY k"})
    assert found["rows"] == [["2"], ["3"]]


def test_parameters_and_the_first_error(server: Serving, table: str):
    queries = [
        {"query": "INSERT INTO ht_t VALUES ($1, $2)", "params": ["3", "a'b"]},
        {"query": "SELECT v, k + $1 FROM ht_t WHERE k = $2", "params": ["100", "3"]},
        {"query": "SELECT * FROM ht_missing"},
        {"query": "INSERT INTO ht_t VALUES (4, 'never')"},
    ]
    inserted, selected, failed = ask(server, {"queries": queries})
    assert inserted["ok"] == "INSERT 0 1"
    assert selected["rows"] == [["a'b", "103"]]
    assert failed["error"]["code"] == "42P01"


TYPES = """SELECT true AS b, 32767::smallint AS i2, 9223372036854775807 AS i8,
    1.50::numeric(10,2) AS n, 0.1::double precision AS d, 'text' AS t,
    '{"a": [1.10, null]}'::jsonb AS j, '2024-05-01'::date AS day,
    '2024-05-01 10:00:00.25'::timestamp AS ts, '2024-05-01 10:00:00+02'::timestamptz AS tz,
    '\\x00ff'::bytea AS bytes, ARRAY[1, NULL] AS a, NULL AS nothing"""


def test_values_are_those_of_psql(server: Serving):
    (found,) = ask(server, {"query": TYPES})
    by_name = dict(
        zip([c["name"] for c in found["desc"]["columns"]], found["rows"][0], strict=True)
    )
    command = ["psql", "-h", "127.0.0.1", "-p", str(server.port), "-U", "tidemark", "tidemark"]
    printed = subprocess.run(
        [*command, "-AtX", "-F", "|", "-c", TYPES],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    ).stdout.rstrip("\n")
    other = {"b": (True, "t"), "j": ({"a": [1.1, None]}, '{"a": [1.1, null]}')}
    other |= {"a": (["1", None], "{1,NULL}"), "nothing": (None, "")}
    for (name, got), text in zip(by_name.items(), printed.split("|"), strict=True):
        expected, shown = other.get(name, (text, text))
        assert got == expected, name
        assert text.replace(" ", "") == shown.replace(" ", "") or name not in other


def test_settings_of_a_request(server: Serving, table: str):
    options = (
        "?options=%7B%22application_name%22%3A%22ht%22%2C%22statement_timeout%22%3A%22100%22%7D"
    )
    shown, late = ask(
        server,
        {"query": f"SHOW application_name; SELECT * FROM ht_t AS OF {FAR_AWAY}"},
        query=options,
    )
    assert shown["rows"] == [["ht"]]
    assert late["error"].pop("hint").startswith(f"it waited for time {FAR_AWAY}, ")
    assert late["error"] == {
        "message": "canceling statement due to statement timeout",
        "code": "57014",
    }
    status, answer = curl(
        server,
        "/api/sql?options=%7B%22cluster%22%3A%22ht_none%22%7D",
        *("-H", "Content-Type: application/json", "-d", '{"query": "SELECT 1"}'),
    )
    assert (status, msgspec.json.decode(answer)["error"]["code"]) == (400, "42704")


def test_a_result_that_is_too_large(server: Serving, table: str, connection: psycopg.Connection):
    connection.execute(
        "INSERT INTO ht_t SELECT x, repeat('x', 100) FROM generate_series(1, 20000) x"
    )
    _, found = ask(server, {"query": "SET max_result_size = '10kB'; SELECT * FROM ht_t"})
    assert found["error"]["code"] == "54000"
    (whole,) = ask(server, {"query": "SELECT * FROM ht_t"})
    assert whole["tag"] == "SELECT 20000"
    assert {int(k) for k, _ in whole["rows"]} == set(range(1, 20_001))


def activity(connection: psycopg.Connection, text: str) -> list[tuple]:
    """What the log says of statements with that text, but not of this one."""
    return connection.execute(
        "SELECT statement_type, finished_status, error_code, error_message, rows_returned, sql"
        " FROM mz_internal.mz_recent_activity_log WHERE position(%s IN sql) > 0"
        " ORDER BY began_at",
        (text,),
    ).fetchall()


def test_a_client_that_goes_away_cancels_its_statement(
    server: Serving, table: str, connection: psycopg.Connection
):
    sql = f"SELECT k AS ht_waits FROM ht_t AS OF {FAR_AWAY}"
    body = msgspec.json.encode({"query": sql})
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=DEADLINE) as client:
        head = (
            "POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        client.sendall(head.encode() + body)
        eventually("the statement", lambda: activity(connection, "AS ht_waits"))
        assert activity(connection, "AS ht_waits")[0][1] is None
    eventually("its end", lambda: activity(connection, "AS ht_waits")[0][1] == "canceled")


def test_the_log_of_statements(server: Serving, table: str, connection: psycopg.Connection):
    ask(
        server,
        {"query": "INSERT INTO ht_t VALUES (1, 'a'), (2, 'b'); SELECT k AS ht_log FROM ht_t"},
    )
    ask(server, {"query": "SELECT 1 / (k - 1) AS ht_log FROM ht_t"})
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT k AS ht_log, %s::int FROM ht_t", ("ht_private",))
    good, bad, private = activity(connection, "AS ht_log")
    assert good[:5] == ("select", "success", None, None, 2)
    assert bad[:4] == ("select", "error", "22012", "division by zero")
    assert private[1:4] == ("error", "22P02", None)
    try:
        ask(server, {"query": "CREATE SECRET ht_secret AS 'ht_hunter2'"})
        ((kind, *_, sql),) = activity(connection, "ht_secret")
        assert (kind, sql) == ("create_secret", "CREATE SECRET ht_secret AS")
    finally:
        connection.execute("DROP SECRET ht_secret")
    for text in ("ht_private", "ht_hunter2"):
        found = connection.execute(
            "SELECT count(*) FROM mz_internal.mz_recent_activity_log WHERE position(%s IN sql) > 0"
            " OR position(%s IN error_message) > 0",
            (text, text),
        ).fetchone()
        assert found == (0,)


# Websockets.


def talk(server: Serving, conversation: Callable[[Talk], Awaitable[None]], **hello: Any) -> None:
    async def main() -> None:
        address = f"{server.http}/api/experimental/sql"
        async with aiohttp.ClientSession() as http, http.ws_connect(address) as opened:
            talking = Talk(opened)
            await talking.send(hello)
            await talking.until("ReadyForQuery")
            await conversation(talking)

    asyncio.run(main())


def test_subscribe_row_by_row(server: Serving, table: str, connection: psycopg.Connection):
    connection.execute("INSERT INTO ht_t VALUES (1, 'one')")

    async def conversation(talking: Talk) -> None:
        await talking.send({"query": "SUBSCRIBE ht_t"})
        starting, rows, first = await talking.until("Row")
        assert starting[1] == {"has_rows": True, "is_streaming": True}
        names = [column["name"] for column in rows[1]["columns"]]
        assert names == ["mz_timestamp", "mz_diff", "k", "v"]
        assert first[1][1:] == ["1", "1", "one"]
        for change in ("UPDATE ht_t SET v = 'uno'", "DELETE FROM ht_t WHERE k = 1"):
            await asyncio.to_thread(connection.execute, change)
        changes = [(await talking.receive())[1] for _ in range(3)]
        assert [change[1:] for change in changes] == [
            ["-1", "1", "one"],
            ["1", "1", "uno"],
            ["-1", "1", "uno"],
        ]
        assert changes[0][0] == changes[1][0] < changes[2][0]
        assert value(scrape(server), "tidemark_statements_running", kind="subscribe")

    talk(server, conversation)
    eventually("the end of the subscription", lambda: _subscriptions(server) == 0)
    ((*_, rows, _),) = activity(connection, "SUBSCRIBE ht_t")
    assert rows == 4


def test_the_conversation_of_the_page(server: Serving, connection: psycopg.Connection):
    """What docs/http.md says that comes, comes, in this order; other settings besides."""
    connection.execute("CREATE TABLE totals (kind text, total numeric(10, 2))")
    connection.execute("INSERT INTO totals VALUES ('books', 12.50)")
    (block,) = tried_by("tests/integration/test_http.py")

    async def main() -> None:
        address = f"{server.http}/api/experimental/sql"
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as socket:
            for line in block.text.splitlines():
                direction, text = line[0], line[2:].partition("  ")[0]
                if direction == "→":
                    await socket.send_str(text)
                elif text != "...":
                    said = await socket.receive_str(timeout=DEADLINE)
                    while unlike(said, [text]) and "ParameterStatus" in said:
                        said = await socket.receive_str(timeout=DEADLINE)
                    assert unlike(said, [text]) is None, said

    try:
        asyncio.run(main())
    finally:
        connection.execute("DROP TABLE totals")


def _subscriptions(server: Serving) -> float:
    return value(scrape(server), "tidemark_statements_running", kind="subscribe") or 0


def test_a_session_of_its_own(server: Serving, table: str):
    async def conversation(talking: Talk) -> None:
        await talking.send({"query": "BEGIN; INSERT INTO ht_t VALUES (1, 'x')"})
        assert (await talking.until("ReadyForQuery"))[-1][1] == "T"
        await talking.send({"query": "SELECT * FROM ht_missing"})
        *_, error, ready = await talking.until("ReadyForQuery")
        assert error[1]["code"] == "42P01"
        assert ready[1] == "E"
        await talking.send({"query": "ROLLBACK; SHOW application_name"})
        found = await talking.until("ReadyForQuery")
        assert ("Row", ["ht_ws"]) in found
        # Several finish in turn; a subscription that ends is followed by what came after it.
        await talking.send({"query": "SUBSCRIBE ht_t AS OF 0 UP TO 0"})
        await talking.send({"queries": [{"query": "SELECT $1 || 'b'", "params": ["a"]}]})
        await talking.until("ReadyForQuery")
        assert ("Row", ["ab"]) in await talking.until("ReadyForQuery")

    talk(server, conversation, user="ht", options={"application_name": "ht_ws"})


# Metrics and health.


def test_metrics_are_counted(server: Serving, table: str, connection: psycopg.Connection):
    before = scrape(server)
    connection.execute("CREATE MATERIALIZED VIEW ht_view AS SELECT count(*) AS n FROM ht_t")
    connection.execute("INSERT INTO ht_t VALUES (1, 'x')")
    assert connection.execute("SELECT n FROM ht_view").fetchone() == (1,)
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT * FROM ht_missing")

    def shown() -> Samples | None:
        # What came while it hydrated is in the snapshot; then there was nothing to tick for.
        connection.execute("INSERT INTO ht_t VALUES (1, 'x')")
        found = scrape(server)
        lag = value(found, "tidemark_collection_lag_seconds", name="ht_view")
        ticks = value(found, "tidemark_view_ticks_total", name="ht_view")
        return found if lag is not None and ticks else None

    after = eventually("the view's metrics", shown)

    def grown(name: str, /, **labels: str) -> float:
        return (value(after, name, **labels) or 0) - (value(before, name, **labels) or 0)

    count = "tidemark_statement_seconds_count"
    assert grown(count, kind="create_materialized_view", outcome="success") == 1
    assert grown(count, kind="refused", outcome="error") >= 1
    assert grown(count, kind="insert", outcome="success") >= 1
    assert grown("tidemark_table_commits_total") >= 1
    assert grown("tidemark_spark_jobs_total", cluster="quickstart", replica="r1") >= 0
    assert value(after, "tidemark_hydrated", name="ht_view", replica="r1") == 1
    assert value(after, "tidemark_view_corrections_total", name="ht_view") == 0
    assert (value(after, "tidemark_view_busy_seconds_total", name="ht_view") or 0) > 0
    assert value(after, "tidemark_replica_up", cluster="quickstart") == 1
    assert (value(after, "tidemark_sessions") or 0) >= 1
    assert (value(after, "process_resident_memory_bytes") or 0) > 1_000_000
    connection.execute("DROP MATERIALIZED VIEW ht_view")
    gone = eventually("no metrics of what is dropped", lambda: _without(server, "ht_view"))
    assert value(gone, "tidemark_objects", kind="table") is not None


def _without(server: Serving, name: str) -> Samples | None:
    found = scrape(server)
    return found if value(found, "tidemark_collection_lag_seconds", name=name) is None else None


def test_ready_when_every_cluster_answers(server: Serving, connection: psycopg.Connection):
    assert curl(server, "/api/livez") == (200, "ok\n")
    assert curl(server, "/api/readyz") == (200, "ready\n")
    connection.execute("CREATE CLUSTER ht_none (REPLICATION FACTOR 0)")
    try:
        assert curl(server, "/api/readyz")[0] == 200
        connection.execute("ALTER CLUSTER ht_none SET (REPLICATION FACTOR 1)")
        status, reason = curl(server, "/api/readyz")
        assert status == 503
        assert 'cluster "ht_none" has no replica that answers' in reason
    finally:
        connection.execute("DROP CLUSTER ht_none")
    assert curl(server, "/api/readyz")[0] == 200


# The command line.


def test_a_port_that_is_taken_is_said(server: Serving, tmp_path: Path):
    command = [sys.executable, "-m", "tidemark.cli", "serve", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{server.http_port}"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{server.http_port}" in done.stderr
    assert "--http" in done.stderr
