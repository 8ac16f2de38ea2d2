"""HTTP and websockets over scripted sessions, with real clients and with clients that misbehave."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pyarrow as pa
import pytest
from pgwire_harness import NUMBER, PATIENCE, FakeSession, Script

from tidemark.control.http import HttpServer, Limits
from tidemark.control.pgwire import Param, Result, Rows, Statement
from tidemark.control.pgwire.passwords import Passwords, password_line, read_passwords
from websocket_client import Talk

WEBSOCKETS = ("/api/experimental/sql", "/api/ws")


class Client:
    """One server, and a client of it that is like any other."""

    def __init__(self, server: HttpServer, http: aiohttp.ClientSession):
        self.server = server
        self.http = http

    async def post(self, body: object, **options: Any) -> tuple[int, Any]:
        async with self.http.post("/api/sql", json=body, **options) as response:
            assert response.content_type == "application/json"
            return response.status, msgspec.json.decode(await response.read())

    async def results(self, sql: str) -> list[dict[str, Any]]:
        status, answer = await self.post({"query": sql})
        assert status == 200
        return answer["results"]

    async def raw(self, sent: bytes) -> bytes:
        """Everything that the server says to that, until it closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            writer.write(sent)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()

    @asynccontextmanager
    async def websocket(self, path: str = WEBSOCKETS[0]) -> AsyncIterator[Talk]:
        async with self.http.ws_connect(path) as socket:
            talk = Talk(socket)
            await talk.send({})
            await talk.until("ReadyForQuery")
            yield talk


def run(
    test: Callable[[Client], Awaitable[None]],
    *,
    script: Script | None = None,
    limits: Limits | None = None,
    **parts: Any,
) -> None:
    async def main() -> None:
        opened = parts.pop("sessions", (script or Script()).open_session)
        given = {"unready": lambda: None, "metrics": no_metrics, **parts}
        async with (
            asyncio.timeout(PATIENCE),
            HttpServer(opened, limits=limits, **given) as server,
            aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as http,
        ):
            await test(Client(server, http))

    asyncio.run(main())


async def no_metrics() -> bytes:
    return b"m 1\n"


async def eventually(look: Callable[[], Any]) -> None:
    while not look():
        await asyncio.sleep(0.01)


# One request.


def test_results_in_order_and_nothing_after_an_error():
    async def test(client: Client) -> None:
        found = await client.results("select 1; insert; notice look; set a=b; unknown; select 2")
        assert found[0]["rows"] == [["1"]]
        assert found[0]["tag"] == "SELECT 1"
        assert found[0]["desc"]["columns"][0]["name"] == "?column?"
        assert found[1] == {"ok": "INSERT 0 3", "parameters": [], "notices": []}
        notice = {"message": "look", "code": "00000", "severity": "notice", "hint": "a hint"}
        assert found[2]["notices"] == [notice]
        assert found[3]["parameters"] == [{"name": "a", "value": "b"}]
        error = {
            "message": 'relation "unknown" does not exist',
            "code": "42P01",
            "hint": "create it",
        }
        assert found[4:] == [{"error": error, "notices": []}]

    run(test)


def test_params_one_statement_a_query():
    async def test(client: Client) -> None:
        queries = [
            {"query": "echo $1 $2", "params": ["1.50", None]},
            {"query": "echo $1"},
            {"query": "select 1"},
        ]
        _, answer = await client.post({"queries": queries})
        assert answer["results"][0]["rows"] == [["1.50", None]]
        assert answer["results"][1]["error"]["code"] == "08P01"
        assert len(answer["results"]) == 2
        for sql in ("select 1; select 2", ""):
            _, answer = await client.post({"queries": [{"query": sql}]})
            assert "one statement" in answer["results"][0]["error"]["message"]
        assert (await client.results("echo $1"))[0]["error"]["code"] == "42P02"
        assert await client.results(" ; ") == []

    run(test)


def test_an_error_among_rows_ends_their_result():
    async def test(client: Client) -> None:
        (found,) = await client.results("half; select 1")
        assert found["rows"] == [["1"], ["2"]]
        assert found["error"]["code"] == "22012"
        assert "tag" not in found

    run(test)


def test_a_long_result_comes_in_pieces_and_whole():
    async def test(client: Client) -> None:
        async with client.http.post("/api/sql", json={"query": "range 300000"}) as response:
            assert response.headers["Transfer-Encoding"] == "chunked"
            answer = msgspec.json.decode(await response.read())
        assert answer["results"][0]["rows"] == [[str(n)] for n in range(300_000)]
        assert answer["results"][0]["tag"] == "SELECT 300000"

    run(test)


@pytest.mark.parametrize("sql", ["copy 5", "copy wait", "deallocate nothing"])
def test_what_one_response_cannot_have_is_an_error(sql: str):
    async def test(client: Client) -> None:
        assert (await client.results(sql))[0]["error"]["code"] in ("0A000", "26000")

    run(test)


def test_forgetting_all_prepared_statements_is_fine_without_any():
    async def test(client: Client) -> None:
        assert (await client.results("deallocate all"))[0]["ok"] == "DEALLOCATE"

    run(test)


def test_internal_errors_are_said_and_survived():
    async def test(client: Client) -> None:
        assert (await client.results("crash"))[0]["error"]["code"] == "XX000"
        assert (await client.results("select 1"))[0]["rows"] == [["1"]]

    run(test)


def test_a_client_that_goes_away_cancels_its_statement():
    script = Script()

    async def test(client: Client) -> None:
        asked = asyncio.create_task(client.results("wait"))
        await eventually(script.started.is_set)
        asked.cancel()
        await eventually(script.stopped.is_set)
        await eventually(lambda: not script.closed.empty())

    run(test, script=script)


def test_sessions_are_closed_and_settings_are_theirs():
    script = Script()

    async def test(client: Client) -> None:
        await client.post(
            {"query": "begin"},
            params={"options": '{"cluster": "c"}'},
            headers={"Authorization": aiohttp.encode_basic_auth("alice", "secret")},
        )
        status, answer = await client.post({"query": "select 1"}, params={"options": "cluster=c"})
        assert (status, answer["error"]["code"]) == (400, "08P01")
        headers = {"Authorization": "Basic !"}
        assert (await client.post({"query": "select 1"}, headers=headers))[0] == 400

    run(test, script=script)
    assert script.opened == [{"user": "alice", "database": "tidemark", "options": {"cluster": "c"}}]
    assert script.closed.get_nowait().status == "T"


# Who may ask.


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "evil.example@127.0.0.1"}, 403),
        ({"Host": "]["}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:6876", "Origin": "http://localhost:6876"}, 200),
        ({"Host": "localhost:6876", "Origin": "http://localhost:1"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_pages_of_other_sites_may_not_ask(headers: dict[str, str], status: int):
    script = Script()

    async def test(client: Client) -> None:
        assert (await client.post({"query": "select 1"}, headers=headers))[0] == status

    run(test, script=script)
    assert len(script.opened) == (status == 200)


@pytest.mark.parametrize("path", [*WEBSOCKETS, "/metrics", "/api/livez", "/api/readyz", "/nope"])
def test_other_sites_find_nothing_anywhere(path: str):
    async def test(client: Client) -> None:
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            async with client.http.get(path, headers=headers) as response:
                assert response.status == 403
                said = (await response.json())["error"]
                assert "Origin" in headers or "ALTER ROLE tidemark PASSWORD" in said["hint"]
                assert "Access-Control-Allow-Origin" not in response.headers
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.http.ws_connect(path, headers={"Origin": "http://evil.example"})

    run(test)


# Health and metrics.


def test_health_and_metrics_are_what_the_server_is_told():
    reasons = ["no replica"]

    async def test(client: Client) -> None:
        async with client.http.get("/api/livez") as response:
            assert response.status == 200
        async with client.http.get("/api/readyz") as response:
            assert (response.status, await response.text()) == (503, "no replica\n")
        reasons.clear()
        async with client.http.get("/api/readyz") as response:
            assert response.status == 200
        async with client.http.get("/metrics") as response:
            assert await response.text() == "m 1\n"
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert response.headers["X-Content-Type-Options"] == "nosniff"

    run(test, unready=lambda: next(iter(reasons), None))


# Abuse.


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/api/../../etc/passwd", 404),
        ("GET", "/api/sql", 405),
        ("PUT", "/api/sql", 405),
        ("OPTIONS", "/api/sql", 405),
        ("POST", "/metrics", 405),
        ("GET", "/api/ws", 400),
    ],
)
def test_wrong_paths_and_methods(method: str, path: str, status: int):
    async def test(client: Client) -> None:
        async with client.http.request(method, path) as response:
            assert response.status == status
            assert msgspec.json.decode(await response.read())["error"]["message"]

    run(test)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0" * 100,
        b"Q\0\0\0\x0dSELECT 1\0\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: x\r\n\r\n",
        b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_does_no_harm(sent: bytes):
    async def test(client: Client) -> None:
        assert b" 200 " not in await client.raw(sent)
        assert (await client.results("select 1"))[0]["rows"] == [["1"]]

    run(test, limits=Limits(idle_seconds=0.3))


def test_a_body_that_is_too_large_is_not_read():
    async def test(client: Client) -> None:
        status, answer = await client.post({"query": "select 1" + " " * 2_000})
        assert (status, answer["error"]["code"]) == (413, "08P01")

    run(test, limits=Limits(body_bytes=1_000))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /api/sql HTTP/1.1\r\nHost: local",
        b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Connection: close\r\nContent-Length: 100\r\n\r\n{"query"',
    ],
)
def test_connections_that_say_nothing_more_are_dropped(sent: bytes):
    async def test(client: Client) -> None:
        assert await client.raw(sent) == b"" or sent.endswith(b'{"query"')

    run(test, limits=Limits(idle_seconds=0.2, close_seconds=0.2))


def test_only_so_many_at_once():
    script = Script()

    async def test(client: Client) -> None:
        async with client.websocket():
            status, answer = await client.post({"query": "select 1"})
            assert (status, answer["error"]["code"]) == (503, "53300")
            with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
                await client.http.ws_connect(WEBSOCKETS[0])
        await eventually(lambda: not script.closed.empty())
        assert (await client.post({"query": "select 1"}))[0] == 200

    run(test, script=script, limits=Limits(sessions=1))


# Websockets.


@pytest.mark.parametrize("path", WEBSOCKETS)
def test_a_conversation(path: str):
    async def test(client: Client) -> None:
        async with client.http.ws_connect(path) as socket:
            talk = Talk(socket)
            await talk.send({"user": "alice", "options": {"cluster": "c"}})
            assert [type_ for type_, _ in await talk.until("ReadyForQuery")] == [
                "ParameterStatus",
                "ReadyForQuery",
            ]
            column = {"name": "?column?", "type_oid": 23, "type_len": 4, "type_mod": -1}
            assert await talk.ask({"query": "select 1; begin"}) == [
                ("CommandStarting", {"has_rows": True, "is_streaming": False}),
                ("Rows", {"columns": [column]}),
                ("Row", ["1"]),
                ("CommandComplete", "SELECT 1"),
                ("CommandStarting", {"has_rows": False, "is_streaming": False}),
                ("CommandComplete", "BEGIN"),
                ("ReadyForQuery", "T"),
            ]
            found = await talk.ask({"query": "notice look; set a=b; unknown; select 2"})
            assert [type_ for type_, _ in found] == [
                "CommandStarting",
                "Notice",
                "CommandComplete",
                "CommandStarting",
                "ParameterStatus",
                "CommandComplete",
                "Error",
                "ReadyForQuery",
            ]
            assert found[-1][1] == "E"
            assert (await talk.ask({"query": "rollback"}))[-1] == ("ReadyForQuery", "I")

    run(test)


def test_requests_that_come_early_wait_their_turn():
    async def test(client: Client) -> None:
        async with client.websocket() as talk:
            for n in range(100):
                await talk.send({"queries": [{"query": "echo $1", "params": [str(n)]}]})
            for n in range(100):
                assert ("Row", [str(n)]) in await talk.until("ReadyForQuery")

    run(test)


@pytest.mark.parametrize("message", ["", "garbage", "[]", '{"query": 1}', '{"user": "u"}'])
def test_a_malformed_message_is_answered_and_survived(message: str):
    async def test(client: Client) -> None:
        async with client.websocket() as talk:
            await talk.socket.send_bytes(message.encode())
            (error, ready) = await talk.until("ReadyForQuery")
            assert error[1]["code"] == "08P01"
            assert ready[1] == "I"
            assert ("Row", ["1"]) in await talk.ask({"query": "select 1"})

    run(test)


def test_a_first_message_that_is_none_ends_it():
    async def test(client: Client) -> None:
        async with client.http.ws_connect(WEBSOCKETS[0]) as socket:
            talk = Talk(socket)
            await talk.send({"query": "select 1"})
            assert (await talk.receive())[1]["hint"].startswith("the first message is")
            await socket.receive()
            assert socket.close_code == aiohttp.WSCloseCode.POLICY_VIOLATION

    run(test)


def test_a_message_that_is_too_large_ends_it():
    script = Script()

    async def test(client: Client) -> None:
        async with client.websocket() as talk:
            await talk.send({"query": "select 1" + " " * 2_000})
            await talk.socket.receive()
            assert talk.socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        await eventually(lambda: not script.closed.empty())

    run(test, script=script, limits=Limits(message_bytes=1_000))


@pytest.mark.parametrize("politely", [True, False])
def test_closing_cancels_what_runs(politely: bool):
    script = Script()

    async def test(client: Client) -> None:
        async with client.websocket() as talk:
            await talk.send({"query": "rowswait"})
            await talk.until("Row")
            await eventually(script.started.is_set)
            if not politely:
                connection = talk.socket._conn  # type: ignore[attr-defined]
                assert connection is not None
                connection.transport.abort()
        await eventually(script.stopped.is_set)
        await eventually(lambda: not script.closed.empty())

    run(test, script=script)


@pytest.mark.parametrize(("state", "sqlstate"), [("i", "57P05"), ("t", "25P03")])
def test_websockets_that_idle_are_told_to_leave(state: str, sqlstate: str):
    script = Script()

    async def test(client: Client) -> None:
        async with client.websocket() as talk:
            into = {"i": "select 1", "t": "begin"}[state]
            await talk.ask({"query": f"impatient {state}; {into}"})
            type_, payload = await talk.receive()
            assert (type_, payload["code"]) == ("Error", sqlstate)
            assert (await talk.socket.receive()).type == aiohttp.WSMsgType.CLOSE
        await eventually(lambda: not script.closed.empty())

    run(test, script=script)


def test_a_close_that_comes_too_late_ends_the_session():
    script = Script()

    async def test(client: Client) -> None:
        async with client.websocket() as talk:
            await talk.send({"query": "stubborn; insert 1"})
            await eventually(script.started.is_set)
            closing = asyncio.create_task(client.server.close())
            await eventually(script.stopped.is_set)
            script.let_go.set()
            await closing
        await eventually(lambda: not script.closed.empty())

    run(test, script=script, limits=Limits(close_seconds=0.5))


def test_a_shutdown_does_not_wait_for_ever_for_what_has_begun():
    script = Script()

    async def test(client: Client) -> None:
        async with client.websocket() as talk:
            await talk.send({"query": "stalled"})
            await eventually(script.started.is_set)
        await eventually(lambda: not script.closed.empty())
        script.started.clear()
        posting = asyncio.create_task(client.post({"query": "stalled"}))
        await eventually(script.started.is_set)
        await client.server.close()
        await eventually(lambda: script.closed.qsize() == 2)
        await asyncio.gather(posting, return_exceptions=True)

    run(test, script=script, limits=Limits(close_seconds=0.2))


def test_a_shutdown_closes_websockets_and_stops_what_runs():
    script = Script()

    async def test(client: Client) -> None:
        async with client.websocket() as talk:
            await talk.send({"query": "rowswait"})
            await talk.until("Row")
            await eventually(script.started.is_set)
            script.started.clear()
            asked = asyncio.create_task(client.results("wait"))
            await eventually(script.started.is_set)
            closing = asyncio.create_task(client.server.close())
            await talk.socket.receive()
            assert talk.socket.close_code == aiohttp.WSCloseCode.GOING_AWAY
            await closing
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                await asked
        assert script.closed.qsize() == 2

    run(test, script=script)


class Endless(FakeSession):
    """`range` never ends, and says how far it is."""

    batches = 0

    async def execute(self, statement: Statement, params: tuple[Param, ...]) -> Result:
        if statement.sql != "range endless":
            return await super().execute(statement, params)
        return Rows(NUMBER, self._endless(), "SUBSCRIBE")

    async def _endless(self) -> AsyncIterator[pa.RecordBatch]:
        while True:
            Endless.batches += 1
            yield pa.record_batch([pa.array([0] * 1_000)], names=["n"])


def test_a_slow_reader_holds_back_its_own_statement_and_nobody_else():
    Endless.batches = 0

    def opened(**_: Any) -> Endless:
        return Endless(Script())

    async def test(client: Client) -> None:
        async with client.websocket() as talk:
            await talk.send({"query": "range endless"})
            starting = await talk.receive()
            assert starting == ("CommandStarting", {"has_rows": True, "is_streaming": True})
            # Nothing is read from here on; once all buffers are full, nothing more is made.
            before, still = -1, 0
            while still < 20:
                assert (await client.results("select 1"))[0]["rows"] == [["1"]]
                still = still + 1 if Endless.batches == before else 0
                before = Endless.batches
            assert 0 < Endless.batches < 1_000  # of some 35 kB each, mostly in socket buffers
            async with client.http.post("/api/sql", json={"query": "range endless"}) as response:
                answer = await response.json()
            assert answer["results"][0]["error"]["code"] == "0A000"
            await talk.until("Row")  # It goes on.

    run(test, sessions=opened)


# Passwords.


def test_who_asks_says_a_password_where_there_are_some(tmp_path: Path):
    file = tmp_path / "passwords"
    file.write_text(password_line("alice", "open sesame") + "\n")

    def as_user(name: str, password: str) -> dict[str, str]:
        return {"Authorization": aiohttp.encode_basic_auth(name, password)}

    right = as_user("alice", "open sesame")

    async def test(client: Client) -> None:
        query = {"query": "select 1"}
        for name, headers in (
            ("tidemark", {}),
            ("alice", as_user("alice", "x")),
            ("bob", as_user("bob", "open sesame")),
        ):
            status, answer = await client.post(query, headers=headers)
            assert (status, answer["error"]["code"]) == (401, "28P01")
            said = f'password authentication failed for user "{name}"'
            assert answer["error"]["message"] == said
        assert (await client.post(query, headers=right))[0] == 200
        # Whatever the machine is called elsewhere: a page that leads here knows no password.
        assert (await client.post(query, headers=right | {"Host": "tidemark.example"}))[0] == 200
        for path, found in (("/metrics", 401), ("/api/livez", 200), ("/api/readyz", 200)):
            async with client.http.get(path) as response:
                assert response.status == found
        async with client.http.get("/metrics", headers=right) as response:
            assert response.status == 200
        for hello in ({"user": "alice", "password": "x"}, {}):
            async with client.http.ws_connect(WEBSOCKETS[0]) as socket:
                await Talk(socket).send(hello)
                assert (await Talk(socket).receive())[0] == "Error"
        async with client.http.ws_connect(WEBSOCKETS[0]) as socket:
            await Talk(socket).send({"user": "alice", "password": "open sesame"})
            await Talk(socket).until("ReadyForQuery")

    run(test, passwords=read_passwords(file))


def test_who_is_nobody_takes_no_place_and_sends_no_body(tmp_path: Path):
    file = tmp_path / "passwords"
    file.write_text(password_line("alice", "sesame") + "\n")
    right = {"Authorization": aiohttp.encode_basic_auth("alice", "sesame")}
    sent = (
        b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: 1000000\r\n\r\n"
    )

    async def test(client: Client) -> None:
        assert b" 401 " in await client.raw(sent)
        async with client.http.ws_connect(WEBSOCKETS[0]) as stranger:
            with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
                await client.http.ws_connect(WEBSOCKETS[0])
            assert (await client.post({"query": "select 1"}, headers=right))[0] == 200
            talk = Talk(stranger)
            await talk.send({"user": "alice", "password": "sesame"})
            await talk.until("ReadyForQuery")
            status, answer = await client.post({"query": "select 1"}, headers=right)
            assert (status, answer["error"]["code"]) == (503, "53300")

    limits = Limits(sessions=1, strangers=1, idle_seconds=PATIENCE, close_seconds=0.2)
    run(test, limits=limits, passwords=read_passwords(file))


def test_who_tries_many_passwords_takes_nobody_elses_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "passwords"
    file.write_text(password_line("alice", "sesame") + "\n")
    let_go = threading.Event()
    monkeypatch.setattr(Passwords, "check", lambda *_: let_go.wait())

    async def test(client: Client) -> None:
        tries = [asyncio.create_task(client.post({"query": "select 1"})) for _ in range(40)]
        try:
            await eventually(lambda: len(client.server._handling) == 40)
            async with asyncio.timeout(PATIENCE / 2):
                assert await asyncio.to_thread(lambda: 1) == 1
        finally:
            let_go.set()
        assert {status for status, _ in await asyncio.gather(*tries)} == {200}

    run(test, passwords=read_passwords(file))


def test_who_comes_too_late_with_the_first_message_is_told_so():
    async def test(client: Client) -> None:
        async with client.http.ws_connect(WEBSOCKETS[0]) as late, client.websocket():
            await Talk(late).send({})
            assert (await Talk(late).receive())[1]["code"] == "53300"

    run(test, limits=Limits(sessions=1))


# The console.


def test_the_console_is_there_and_tied_to_this_host():
    async def test(client: Client) -> None:
        async with client.http.get("/") as page:
            assert page.content_type == "text/html"
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
            linked = re.findall(r'(?:src|href)="([^"]+)"', await page.text())
        for path in (*linked, "/console/vendor/preact.js"):
            async with client.http.get(path) as file:
                assert file.status == 200
                known = {"If-None-Match": file.headers["ETag"]}
            async with client.http.get(path, headers=known) as again:
                assert (again.status, await again.read()) == (304, b"")
        async with client.http.get("/console/../pages.py") as outside:
            assert outside.status == 404
        async with client.http.get("/", headers={"Host": "evil.example"}) as foreign:
            assert foreign.status == 403

    run(test)


def test_a_page_with_its_own_sign_in_is_refused_without_the_browsers(tmp_path: Path):
    file = tmp_path / "passwords"
    file.write_text(password_line("alice", "sesame") + "\n")

    async def test(client: Client) -> None:
        for headers, challenged in (({}, True), ({"X-Tidemark-Console": "1"}, False)):
            async with client.http.post("/api/sql", json={"query": ""}, headers=headers) as refused:
                assert refused.status == 401
                assert ("WWW-Authenticate" in refused.headers) == challenged

    run(test, passwords=read_passwords(file))
