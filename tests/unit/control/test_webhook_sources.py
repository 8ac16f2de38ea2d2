"""Webhooks from CREATE SOURCE to the shard, over real HTTP and with no cluster: who may post what,
what is stored, what senders are told, and that nothing acknowledged is lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidemark.control.catalog import CLUSTER, ClusterItem
from tidemark.control.coordinator import Coordinator
from tidemark.control.http import HttpServer, Limits
from tidemark.control.http.webhooks import Limits as WebhookLimits
from tidemark.control.metrics import exposition
from tidemark.control.pgwire import Rows
from tidemark.control.pgwire.passwords import Passwords
from tidemark.control.session import Session
from tidemark.errors import SqlError
from tidemark.persist import MemBlob, MemConsensus, PersistClient
from unreliable import UnreliableConsensus

SECRET = "hunter2"
SIGNED = (
    "CHECK (WITH (HEADERS, BODY BYTES, SECRET hook) constant_time_eq(headers->'x-signature',"
    " encode(hmac(body, hook, 'sha256'), 'hex')))"
)


class Server:
    """Control without a cluster, its HTTP, and a session of its own."""

    def __init__(self, coordinator: Coordinator, http: HttpServer, client: aiohttp.ClientSession):
        self.coordinator = coordinator
        self.http = http
        self.port = http.port
        self.client = client
        self.notices: list[str] = []

    async def sql(self, sql: str) -> list[dict[str, Any]]:
        session = Session(self.coordinator, user="tidemark", database="tidemark", options={})
        rows: list[dict[str, Any]] = []
        try:
            for each in await session.split(sql):
                result = await session.execute(await session.prepare(each, ()), ())
                if isinstance(result, Rows):
                    rows = [row async for batch in result.batches for row in batch.to_pylist()]
            self.notices = [notice.message for notice in session.notices()]
            return rows
        finally:
            await session.close()

    async def post(
        self, name: str, body: bytes | str | AsyncIterator[bytes], **headers: str
    ) -> tuple[int, str]:
        """The status, and what was wrong."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        path = f"/api/webhook/tidemark/public/{name}"
        async with self.client.post(path, data=body, headers=given) as response:
            said = await response.read()
            return response.status, msgspec.json.decode(said)["error"]["message"] if said else ""

    def rows(self, name: str) -> list[tuple]:
        """As a strict serializable read would see them now."""
        item = self.coordinator.item(("tidemark", "public", name))
        assert item.shard is not None
        found = self.coordinator.client.open_reader(item.shard).snapshot(
            self.coordinator.timeline.read_ts
        )
        columns = [found[column.name].to_pylist() for column in item.columns]
        every = zip(*columns, found["_diff"].to_pylist(), strict=True)
        return sorted((row[:-1] for row in every for _ in range(row[-1])), key=str)


@asynccontextmanager
async def serving(
    client: PersistClient,
    folder: Path,
    *,
    limits: WebhookLimits | None = None,
    passwords: Passwords | None = None,
) -> AsyncIterator[Server]:
    coordinator = Coordinator(
        client,
        data=folder / "data",
        blob="",
        consensus="",
        spark_master="",
        secrets_key=folder / "key",
    )
    coordinator.catalog.set_cluster(ClusterItem("s1", CLUSTER))
    coordinator.start()

    async def unused(*_: object, **__: object) -> Any:
        raise AssertionError("nobody asks for this")

    http = HttpServer(
        unused,  # type: ignore[arg-type]
        unready=lambda: None,
        metrics=lambda: exposition(coordinator),
        limits=Limits(webhooks=limits or WebhookLimits()),
        passwords=passwords,
        webhooks=lambda: coordinator.webhooks,
    )
    coordinator.webhooks.asks_passwords = lambda: passwords is not None
    async with http, aiohttp.ClientSession(f"http://127.0.0.1:{http.port}") as opened:
        coordinator.webhooks.url = f"http://127.0.0.1:{http.port}"
        try:
            yield Server(coordinator, http, opened)
        finally:
            await coordinator.timelines.stop()
            coordinator.engine.close()


def memory() -> PersistClient:
    return PersistClient(MemBlob(), MemConsensus())


def run(test: Callable[[Server], Awaitable[None]], folder: Path, **options: Any) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(120),
            serving(options.pop("client", None) or memory(), folder, **options) as server,
        ):
            await test(server)

    asyncio.run(main())


async def eventually(look: Callable[[], bool]) -> None:
    while not look():
        await asyncio.sleep(0.01)


def signature(body: bytes) -> str:
    return hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()


# What is stored.


def test_bodies_of_every_format(tmp_path: Path):
    async def test(server: Server) -> None:
        for format in ("JSON", "JSON ARRAY", "TEXT", "BYTES"):
            name = format.lower().replace(" ", "_")
            await server.sql(f"CREATE SOURCE {name} FROM WEBHOOK BODY FORMAT {format}")
            expected = f"URL to POST data is 'http://127.0.0.1:{server.port}"
            assert server.notices == [f"{expected}/api/webhook/tidemark/public/{name}'"]
        assert await server.post("json", '{"b": 1.50,\n "a": "ä"}') == (200, "")
        assert await server.post("json", b'{"n": 1}\n{"n": 2}\r\n\n[3]\n') == (200, "")
        assert server.rows("json") == [("[3]",), ('{"a":"ä","b":1.5}',), ('{"n":1}',), ('{"n":2}',)]
        assert await server.post("json_array", '[{"n": 1}, 2, [3], null]') == (200, "")
        assert await server.post("json_array", '{"n": 1}') == (200, "")
        assert await server.post("json_array", "[]") == (200, "")
        assert server.rows("json_array") == [
            ("2",), ("[3]",), ("null",), ('{"n":1}',), ('{"n":1}',),
        ]  # fmt: skip
        assert await server.post("text", "grüße\n") == (200, "")
        assert await server.post("text", b"") == (200, "")
        assert server.rows("text") == [("",), ("grüße\n",)]
        assert await server.post("bytes", b"\xff\x00") == (200, "")
        assert server.rows("bytes") == [(b"\xff\x00",)]

    run(test, tmp_path)


@pytest.mark.parametrize(
    ("format", "body", "message"),
    [
        ("JSON", b"", "the body is empty, not JSON"),
        ("JSON", b'{"a": 1', "not JSON that can be stored: Expecting ',' delimiter"),
        ("JSON", b'{"a": 1} x', "Expecting value: line 1 column 10"),
        ("JSON", b"1" * 50, "more than 38 digits"),
        ("JSON", b"[" * 100_000, "nested too deeply"),
        ("JSON", b'"\\ud800"', "not JSON that can be stored"),
        ("JSON ARRAY", b"[1, NaN]", "NaN is not JSON"),
        ("JSON", b"\xff", "the body is not UTF-8: invalid start byte at byte 0"),
        ("TEXT", b"a\xc3", "the body is not UTF-8: unexpected end of data at byte 1"),
        ("TEXT", b"a\0b", "has a null character"),
    ],
)
def test_a_bad_body_is_told_what_is_wrong_and_stores_nothing(
    tmp_path: Path, format: str, body: bytes, message: str
):
    async def test(server: Server) -> None:
        await server.sql(f"CREATE SOURCE hook FROM WEBHOOK BODY FORMAT {format}")
        status, said = await server.post("hook", body)
        assert status == 400
        assert message in said
        assert server.rows("hook") == []
        assert server.coordinator.webhooks.of(
            server.coordinator.item(("tidemark", "public", "hook"))
        ).refused == {400: 1}

    run(test, tmp_path)


def test_headers(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql(
            """CREATE SOURCE hook FROM WEBHOOK BODY FORMAT TEXT
                 INCLUDE HEADER 'X-Name' AS name INCLUDE HEADER 'x-raw' AS raw BYTES
                 INCLUDE HEADERS ('x-name', 'X-Other', 'x-token', NOT 'x-token');
               CREATE SOURCE all_of_them FROM WEBHOOK BODY FORMAT TEXT
                 INCLUDE HEADERS (NOT 'host')"""
        )
        assert await server.post("hook", "a", X_NAME="me", x_raw="r", x_token="t") == (200, "")
        assert await server.post("hook", "b", x_other='"o"') == (200, "")
        assert server.rows("hook") == [
            ("a", '{"x-name":"me"}', "me", b"r"),
            ("b", '{"x-other":"\\"o\\""}', None, None),
        ]
        assert await server.post("all_of_them", "a", x_twice="1") == (200, "")
        ((_, headers),) = server.rows("all_of_them")
        found = msgspec.json.decode(headers)
        assert found["x-twice"] == "1"
        assert found["content-length"] == "1"
        assert "host" not in found

    run(test, tmp_path)


def test_headers_that_come_twice_and_are_no_text(tmp_path: Path):
    async def raw(server: Server, headers: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = b"POST /api/webhook/tidemark/public/hook HTTP/1.1\r\nHost: hooks.example.com\r\n"
        writer.write(head + headers + b"Connection: close\r\nContent-Length: 1\r\n\r\na")
        answer = await reader.read()
        writer.close()
        return answer

    async def test(server: Server) -> None:
        await server.sql(
            "CREATE SOURCE hook FROM WEBHOOK BODY FORMAT TEXT"
            " INCLUDE HEADER 'x' AS x INCLUDE HEADER 'y' AS y BYTES"
        )
        assert b" 200 " in await raw(server, b"X: 1\r\nx: 2\r\nY: \xff\r\n")
        assert server.rows("hook") == [("a", "1, 2", b"\xff")]
        answer = await raw(server, b"X: \xff\r\n")
        assert b" 400 " in answer
        assert b"the header x is not UTF-8" in answer

    run(test, tmp_path)


# Who may.


def test_only_who_knows_the_secret_may_post(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql(f"CREATE SECRET hook AS '{SECRET}'")
        await server.sql(f"CREATE SOURCE s FROM WEBHOOK BODY FORMAT JSON {SIGNED}")
        good, bad = b'{"a": 1}', b'{"a": 2}'
        assert await server.post("s", good, x_signature=signature(good)) == (200, "")
        for headers in ({}, {"x_signature": "0"}, {"x_signature": signature(good)}):
            status, said = await server.post("s", bad, **headers)
            assert (status, said) == (403, "the request does not pass the CHECK of this source")
        # Also what is no JSON is not told so before it is known who asks.
        assert (await server.post("s", b"{"))[0] == 403
        assert server.rows("s") == [('{"a":1}',)]
        # The secret is read for each request, so another one counts at once.
        await server.sql("ALTER SECRET hook AS 'another'")
        assert (await server.post("s", good, x_signature=signature(good)))[0] == 403
        shown = await server.sql("SHOW CREATE SOURCE s")
        assert "SECRET hook" in shown[0]["create_sql"]
        assert SECRET not in str(await server.sql("SELECT * FROM mz_objects"))
        with pytest.raises(SqlError, match="other objects depend on it: s"):
            await server.sql("DROP SECRET hook")
        # Whoever looks after the server has lost the key: nobody's request is wrong.
        (tmp_path / "key").unlink()
        status, said = await server.post("s", good, x_signature=signature(good))
        assert (status, said) == (503, "requests to this source cannot be checked at the moment")

    run(test, tmp_path)


def test_machines_may_use_any_name_for_this_one_and_pages_may_not(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql("CREATE SOURCE hook FROM WEBHOOK BODY FORMAT TEXT")
        assert (await server.post("hook", "a", Host="hooks.example.com"))[0] == 200
        for origin, host in (
            ("https://evil.example", "127.0.0.1"),
            ("http://evil.example", "evil.example"),
        ):
            status, _ = await server.post("hook", "b", Origin=origin, Host=host)
            assert status == 403
        assert server.rows("hook") == [("a",)]

    run(test, tmp_path)


def test_passwords_are_not_asked_of_webhooks_and_their_absence_is_noticed(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql(f"CREATE SECRET hook AS '{SECRET}'")
        await server.sql("CREATE SOURCE anyone FROM WEBHOOK BODY FORMAT TEXT")
        assert 'anybody who reaches the server may write into "anyone"' in server.notices[1]
        await server.sql(f"CREATE SOURCE some FROM WEBHOOK BODY FORMAT TEXT {SIGNED}")
        assert len(server.notices) == 1
        assert await server.post("anyone", "a") == (200, "")
        async with server.client.get("/metrics") as response:
            assert response.status == 401

    run(test, tmp_path, passwords=Passwords({}, b"x"))


@pytest.mark.parametrize(
    "path",
    [
        "/api/webhook/tidemark/public/nothing",
        "/api/webhook/tidemark/public/a_table",
        "/api/webhook/tidemark/other/hook",
        "/api/webhook/other/public/hook",
        "/api/webhook/tidemark/public",
        "/api/webhook/tidemark/public/hook/more",
    ],
)
def test_there_is_no_such_webhook(tmp_path: Path, path: str):
    async def test(server: Server) -> None:
        await server.sql("CREATE TABLE a_table (body text)")
        await server.sql("CREATE SOURCE hook FROM WEBHOOK BODY FORMAT TEXT")
        async with server.client.post(path, data="a") as response:
            assert response.status == 404
            assert "error" in await response.json()
        async with server.client.get("/api/webhook/tidemark/public/hook") as response:
            assert response.status == 405

    run(test, tmp_path)


# Limits.


def test_what_is_too_large_or_too_much(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql("CREATE SOURCE hook FROM WEBHOOK BODY FORMAT BYTES")
        assert await server.post("hook", b"x" * 1000) == (200, "")
        assert (await server.post("hook", b"x" * 1001))[0] == 413
        release = asyncio.Event()

        async def slowly(size: int) -> AsyncIterator[bytes]:
            yield b"y" * size
            await release.wait()
            yield b"z"

        async def without_a_length() -> AsyncIterator[bytes]:
            for _ in range(1001):
                yield b"x"

        assert (await server.post("hook", without_a_length()))[0] == 413
        hook = server.coordinator.webhooks.of(
            server.coordinator.item(("tidemark", "public", "hook"))
        )
        # Two are being sent, and hold 1,200 bytes: there is room for one more, of 300.
        slow = [asyncio.create_task(server.post("hook", slowly(600))) for _ in range(2)]
        await eventually(lambda: server.http._posts._held == 1200)
        assert (await server.post("hook", b"x" * 301))[0] == 429
        assert (await server.post("hook", b"x" * 300))[0] == 200
        third = asyncio.create_task(server.post("hook", slowly(1)))
        await eventually(lambda: server.http._posts._held == 1201)
        assert (await server.post("hook", b"x"))[0] == 429
        release.set()
        assert {status for status, _ in await asyncio.gather(*slow, third)} == {200}
        assert (await server.post("hook", b"x" * 1000))[0] == 200
        assert hook.refused.keys() == {413, 429}

    limits = WebhookLimits(requests=3, body_bytes=1000, held_bytes=1500)
    run(test, tmp_path, limits=limits)


def test_a_request_that_does_not_come_in_time(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql("CREATE SOURCE hook FROM WEBHOOK BODY FORMAT BYTES")
        never = asyncio.Event()

        async def half() -> AsyncIterator[bytes]:
            yield b"y"
            await never.wait()

        assert (await server.post("hook", half()))[0] == 408
        assert server.rows("hook") == []

    run(test, tmp_path, limits=WebhookLimits(read_seconds=0.05))


def test_compressed_bodies_count_by_what_they_become(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql("CREATE SOURCE hook FROM WEBHOOK BODY FORMAT TEXT")
        sent = {"Content_Encoding": "gzip"}
        assert await server.post("hook", gzip.compress(b"small"), **sent) == (200, "")
        assert (await server.post("hook", gzip.compress(b"x" * 100_000), **sent))[0] == 413
        assert (await server.post("hook", b"no gzip", **sent))[0] == 400
        assert server.rows("hook") == [("small",)]

    run(test, tmp_path, limits=WebhookLimits(body_bytes=1000))


# Durable, once.


def test_requests_that_wait_together_are_one_commit(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql("CREATE SOURCE hook FROM WEBHOOK BODY FORMAT JSON")
        timeline = server.coordinator.timeline
        before = timeline.commits
        async with timeline.exclusively():  # All of them wait until this is let go.
            posts = [asyncio.create_task(server.post("hook", str(n))) for n in range(50)]
            await eventually(lambda: len(timeline._exclusive._waiters or ()) == 50)
        assert {status for status, _ in await asyncio.gather(*posts)} == {200}
        # The first may be on its way before the others have come.
        assert timeline.commits - before < 10
        assert server.rows("hook") == sorted(((str(n),) for n in range(50)), key=str)

    run(test, tmp_path)


def test_restarts_keep_the_source_and_a_new_leader_ends_the_old(tmp_path: Path):
    client = memory()

    async def test() -> None:
        async with serving(client, tmp_path) as first:
            await first.sql(f"CREATE SECRET hook AS '{SECRET}'")
            await first.sql(f"CREATE SOURCE s FROM WEBHOOK BODY FORMAT JSON {SIGNED}")
            assert (await first.post("s", b"1", x_signature=signature(b"1")))[0] == 200
            async with serving(client, tmp_path) as second:
                # Read at once: what the first has acknowledged is there.
                assert second.rows("s") == [("1",)]
                assert (await second.post("s", b"2", x_signature=signature(b"2")))[0] == 200
                status, said = await first.post("s", b"3", x_signature=signature(b"3"))
                assert (status, said) == (503, "the request could not be stored")
                assert (await second.post("s", b"2"))[0] == 403
                assert second.rows("s") == [("1",), ("2",)]
                await second.sql("DROP SOURCE s")
                assert (await second.post("s", b"4", x_signature=signature(b"4")))[0] == 404
                await second.sql("DROP SECRET hook")

    asyncio.run(test())


def test_a_store_that_fails(tmp_path: Path):
    """What may have happened is found out; what surely has not is sent again, and is there once."""
    consensus = UnreliableConsensus(MemConsensus())

    async def test(server: Server) -> None:
        await server.sql("CREATE SOURCE hook FROM WEBHOOK BODY FORMAT JSON")
        consensus.fail("after")
        assert (await server.post("hook", "1"))[0] == 200
        consensus.fail("refuse", times=1_000)
        assert await server.post("hook", "2") == (503, "the request could not be stored")
        consensus._faults.plans.clear()
        assert (await server.post("hook", "2"))[0] == 200
        assert server.rows("hook") == [("1",), ("2",)]

    run(test, tmp_path, client=PersistClient(MemBlob(), consensus))


def test_a_full_disk_refuses_and_takes_again_when_there_is_room(tiny_disk: Path, tmp_path: Path):
    client = PersistClient.open(
        blob=f"file://{tiny_disk}/blob", consensus=f"sqlite://{tiny_disk}/consensus.db"
    )

    async def test(server: Server) -> None:
        await server.sql("CREATE SOURCE hook FROM WEBHOOK BODY FORMAT TEXT")
        assert (await server.post("hook", "before"))[0] == 200
        ballast = tiny_disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        text = "x" * 300_000
        assert await server.post("hook", text) == (503, "the request could not be stored")
        ballast.unlink()
        assert (await server.post("hook", text))[0] == 200
        assert server.rows("hook") == [("before",), (text,)]

    run(test, tmp_path, client=client)
    client.close()


# What can be seen of it.


def test_statistics_and_metrics(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql(
            "CREATE SOURCE hook FROM WEBHOOK BODY FORMAT JSON ARRAY INCLUDE HEADERS;"
            "CREATE SOURCE other FROM WEBHOOK BODY FORMAT TEXT CHECK (false)"
        )
        await server.post("hook", "[1, 2]")
        await server.post("hook", "[3]")
        await server.post("hook", "[")
        await server.post("other", "x")
        assert await server.sql(
            "SELECT name, requests_accepted AS ok, requests_refused AS no, rows_committed AS rows,"
            " bytes_received AS bytes FROM mz_internal.mz_webhook_statistics ORDER BY name"
        ) == [
            {"name": "hook", "ok": 2, "no": 1, "rows": 3, "bytes": 9},
            {"name": "other", "ok": 0, "no": 1, "rows": 0, "bytes": 0},
        ]
        assert await server.sql(
            "SELECT s.name, s.type, w.url LIKE 'http://127.0.0.1:%/hook' AS here, t.status,"
            " r.status AS refused, n.messages_received AS n, n.updates_committed AS updates"
            " FROM mz_sources s JOIN mz_internal.mz_webhook_sources w USING (id)"
            " JOIN mz_internal.mz_source_statuses t USING (id)"
            " JOIN mz_internal.mz_source_statistics n USING (id)"
            " JOIN mz_internal.mz_webhook_refusals r USING (id) WHERE s.name = 'hook'"
        ) == [
            {
                "name": "hook",
                "type": "webhook",
                "here": True,
                "status": "running",
                "refused": 400,
                "n": 2,
                "updates": 3,
            }
        ]
        async with server.client.get("/metrics") as response:
            families = text_string_to_metric_families(await response.text())
        samples = {
            (sample.labels["name"], sample.labels["status"]): sample.value
            for family in families
            for sample in family.samples
            if sample.name == "tidemark_webhook_requests_total"
        }
        assert samples == {
            ("hook", "200"): 2,
            ("hook", "400"): 1,
            ("other", "200"): 0,
            ("other", "403"): 1,
        }

    run(test, tmp_path)


def test_what_is_refused_by_create_and_insert(tmp_path: Path):
    async def test(server: Server) -> None:
        create = "CREATE SOURCE hook FROM WEBHOOK BODY FORMAT TEXT"
        for rest, message in (
            ("CHECK (WITH (SECRET nothing) true)", 'secret "nothing" does not exist'),
            ("CHECK (nothing(1) = 1)", "function nothing"),
            ("INCLUDE HEADER 'x' AS body", '"body" specified more than once'),
            ("INCLUDE HEADER 'x' AS _x", '"_x" is reserved'),
            ("WITH (TIMESTAMP INTERVAL '1s')", "TIMESTAMP INTERVAL is not supported"),
        ):
            with pytest.raises(SqlError, match=message):
                await server.sql(f"{create} {rest}")
        with pytest.raises(SqlError, match='unknown cluster "c"'):
            await server.sql(create.replace(" FROM", " IN CLUSTER c FROM"))
        await server.sql(create)
        with pytest.raises(SqlError, match="already exists"):
            await server.sql(create)
        await server.sql(create.replace("SOURCE", "SOURCE IF NOT EXISTS"))
        assert server.notices[0] == 'relation "hook" already exists, skipping'
        with pytest.raises(SqlError, match="is a source, not a table"):
            await server.sql("INSERT INTO hook VALUES ('a')")

    run(test, tmp_path)


def test_a_source_of_another_database(tmp_path: Path):
    async def test(server: Server) -> None:
        await server.sql(
            """CREATE DATABASE d; CREATE SCHEMA d."a b"; CREATE SECRET d."a b".key AS 'x';
            CREATE SOURCE d."a b".hook FROM WEBHOOK BODY FORMAT TEXT
            CHECK (WITH (HEADERS, SECRET d."a b".key AS key) headers->'x-key' = key)"""
        )
        item = server.coordinator.item(("d", "a b", "hook"))
        path = "/api/webhook/d/a%20b/hook"
        assert server.coordinator.webhooks.path_of(item) == path
        before = server.coordinator.timelines["d"].writes
        for key, status in (("x", 200), ("y", 400)):
            async with server.client.post(path, data=b"one", headers={"x-key": key}) as response:
                assert response.status in (status, 401, 403), await response.text()
                assert (response.status == 200) == (status == 200)
        assert server.coordinator.timelines["d"].writes == before + 1
        assert (await server.post("hook", b"one"))[0] == 404
        reader = server.coordinator.client.open_reader(item.shard or "")
        found = reader.snapshot(server.coordinator.timelines["d"].read_ts)
        assert found["body"].to_pylist() == ["one"]
        await server.sql("DROP DATABASE d")

    run(test, tmp_path)
