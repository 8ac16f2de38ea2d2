"""The conversation, message by message, with a client that speaks raw protocol."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator

import pgwire_harness as client
import pyarrow as pa
import pytest
from pgwire_harness import (
    COPY_DONE,
    FLUSH,
    PATIENCE,
    SYNC,
    TERMINATE,
    RawClient,
    Running,
    bind,
    copy_data,
    describe,
    errors,
    execute,
    fields,
    parse,
    query,
    running_server,
    tags,
)

from tidemark.control.pgwire import Limits
from tidemark.control.pgwire.portal import Cursor, data_rows, stream
from tidemark.control.pgwire.wire import Wire
from tidemark.types import TEXT


@pytest.fixture
def server() -> Iterator[Running]:
    with running_server() as running:
        yield running


def test_startup(server: Running) -> None:
    with RawClient(server.port) as raw:
        for code in (80877103, 80877104):
            raw.send(struct.pack("!iI", 8, code))
            assert raw.socket.recv(1) == b"N"
        raw.startup(user="alice", application_name="app", options="-c cluster=c1")
        messages = raw.until_ready()
        assert tags(messages) == "R" + "S" * len(raw.parameters) + "KZ"
        assert messages[-1] == ("Z", b"I")
        assert raw.parameters == {
            "server_version": "16.0 (Tidemark 0.1.0)",
            "mz_version": "v0.130.0 (Tidemark 0.1.0)",
            "server_encoding": "UTF8",
            "client_encoding": "UTF8",
            "DateStyle": "ISO, MDY",
            "TimeZone": "UTC",
            "IntervalStyle": "postgres",
            "integer_datetimes": "on",
            "standard_conforming_strings": "on",
            "is_superuser": "on",
            "in_hot_standby": "off",
            "default_transaction_read_only": "off",
            "session_authorization": "alice",
            "application_name": "app",
        }
    assert server.script.opened == [
        {
            "user": "alice",
            "database": "alice",
            "options": {"application_name": "app", "cluster": "c1"},
        }
    ]


def test_a_later_minor_version_is_negotiated_down(server: Running) -> None:
    with RawClient(server.port) as raw:
        raw.startup(version=(3 << 16) + 2, user="alice", **{"_pq_.thing": "1"})
        assert raw.receive() == ("v", struct.pack("!ii", 3 << 16, 1) + b"_pq_.thing\0")
        assert tags(raw.until_ready()).endswith("KZ")


@pytest.mark.parametrize(
    ("parameters", "sqlstate"),
    [
        ({"database": "db"}, "28000"),
        ({"user": "u", "database": "missing"}, "3D000"),
        ({"user": "u", "database": "crash"}, "XX000"),
        ({"user": "u", "replication": "database"}, "0A000"),
        ({"user": "u", "options": "-x"}, "42601"),
        ({"user": "u", "options": "-c nosuch=5"}, "42704"),
        ({"user": "u", "options": "--no-such=5"}, "42704"),
    ],
)
def test_refused_at_startup(server: Running, parameters: dict[str, str], sqlstate: str) -> None:
    with RawClient(server.port) as raw:
        raw.startup(**parameters)
        tag, payload = raw.receive()
        assert tag == "E"
        assert (fields(payload)["S"], fields(payload)["C"]) == ("FATAL", sqlstate)
        assert raw.rest() == b""


def test_connection_limit() -> None:
    with running_server(Limits(connections=1)) as server, server.client() as first:
        with RawClient(server.port) as second:
            second.startup(user="u")
            _, payload = second.receive()
            assert fields(payload)["C"] == "53300"
        first.send(TERMINATE)
        assert first.rest() == b""
        server.script.closed.get(timeout=PATIENCE)
        with server.client() as third:
            third.send(query("select 1"))
            assert tags(third.until_ready()) == "TDCZ"


def test_a_silent_client_is_dropped() -> None:
    with running_server(Limits(startup_seconds=0)) as server, RawClient(server.port) as raw:
        assert raw.rest() == b""


def test_simple_queries(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("select 1; insert; range 3"))
        messages = raw.until_ready()
        assert tags(messages) == "TDCCTDDDCZ"
        assert [body for tag, body in messages if tag == "C"] == [
            b"SELECT 1\0",
            b"INSERT 0 3\0",
            b"SELECT 3\0",
        ]
        raw.send(query(" ; "))
        assert tags(raw.until_ready()) == "IZ"


@pytest.mark.parametrize(
    ("sql", "expected", "sqlstate"),
    [
        ("select 1; unknown; select 2", "TDCEZ", "42P01"),
        ("half; select 1", "TDDEZ", "22012"),
        ("copy half", "HddEZ", "22012"),
        ("crash", "EZ", "XX000"),
        ("unsplittable", "EZ", "42601"),
        ("echo $1", "EZ", "42P02"),
        ("deallocate nothing", "EZ", "26000"),
    ],
)
def test_an_error_stops_the_rest_and_the_session_goes_on(
    server: Running, sql: str, expected: str, sqlstate: str
) -> None:
    with server.client() as raw:
        raw.send(query(sql))
        messages = raw.until_ready()
        assert tags(messages) == expected
        assert errors(messages) == [sqlstate]
        raw.send(query("select 2"))
        assert tags(raw.until_ready()) == "TDCZ"


def test_bad_utf8_fails_the_statement_only(server: Running) -> None:
    with server.client() as raw:
        raw.send(client.message("Q", b"select '\xe4'\0"))
        assert errors(raw.until_ready()) == ["22021"]
        raw.send(client.message("P", b"\0\xe4\0\0\0") + SYNC)
        assert errors(raw.until_ready()) == ["22021"]


def test_extended_query(server: Running) -> None:
    with server.client() as raw:
        raw.send(parse("echo $1 $2", name="s", oids=(23,)) + describe("S", "s"))
        raw.send(bind(b"7", None, portal="p", statement="s") + describe("P", "p"))
        raw.send(execute("p") + client.close("P", "p") + client.close("S", "s") + SYNC)
        messages = raw.until_ready()
        assert tags(messages) == "1tT2TDC33Z"
        assert messages[1] == ("t", struct.pack("!HII", 2, 23, 25))
        assert messages[5] == ("D", b"\0\2\0\0\0\x017\xff\xff\xff\xff")


def test_what_is_sent_at_once_is_one_transaction(server: Running) -> None:
    began = server.script.implicit
    with server.client() as raw:
        raw.send(query("insert 1"))
        assert tags(raw.until_ready()) == "CZ"
        raw.send(parse("insert") + bind() + execute() + SYNC)
        assert tags(raw.until_ready()) == "12CZ"
        assert began == [], "one that is alone needs none"
        raw.send(query("insert 1; select 2"))
        assert tags(raw.until_ready()) == "CTDCZ"
        assert began == ["begin", "end"]
        two = b"".join((parse("insert"), bind(), execute(), bind(), execute(), SYNC))
        raw.send(two)
        assert tags(raw.until_ready()) == "12C2CZ"
        assert began == ["begin", "end"] * 2
        raw.send(query("insert 1; unknown; insert 2"))
        assert tags(raw.until_ready()) == "CEZ"
        raw.send(parse("insert") + bind() + execute() + parse("unknown") + execute() + SYNC)
        assert tags(raw.until_ready()) == "12CEZ"
        assert began == ["begin", "end"] * 4

        # A commit that is refused takes the place of the last completion.
        server.script.refuses_commit = True
        raw.send(query("insert 1; insert 2"))
        messages = raw.until_ready()
        assert tags(messages) == "CEZ"
        assert errors(messages) == ["40001"]
        server.script.refuses_commit = True
        raw.send(two)
        messages = raw.until_ready()
        assert tags(messages) == "12C2CEZ"
        assert messages[-1] == ("Z", b"I")


def test_after_a_query_that_failed_at_its_end_a_pipeline_is_still_one_transaction(
    server: Running,
) -> None:
    began = server.script.implicit
    with server.client() as raw:
        raw.send(query("insert 1; unknown"))
        assert tags(raw.until_ready()) == "CEZ"
        assert began == ["begin", "end"]
        raw.send(parse("insert") + bind() + execute() + FLUSH)
        raw.until("C")
        assert began == ["begin", "end", "begin"]
        raw.send(bind() + execute() + SYNC)
        assert tags(raw.until_ready()) == "2CZ"
        assert began == ["begin", "end"] * 2


def test_flush_answers_without_a_sync(server: Running) -> None:
    with server.client() as raw:
        raw.send(parse("select 1") + FLUSH)
        assert raw.receive() == ("1", b"")
        raw.send(bind() + execute() + FLUSH)
        assert [raw.receive()[0] for _ in range(3)] == ["2", "D", "C"]
        raw.send(SYNC)
        assert raw.receive() == ("Z", b"I")


def test_row_limits_suspend_the_portal(server: Running) -> None:
    with server.client() as raw:
        raw.send(parse("range 5") + bind() + execute(max_rows=2) + execute(max_rows=3))
        raw.send(execute(max_rows=2) + execute() + SYNC)
        messages = raw.until_ready()
        assert tags(messages) == "12DDsDDDsCCZ"
        assert messages[-3:-1] == [("C", b"SELECT 0\0")] * 2


def test_portals_live_as_long_as_their_transaction(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("begin"))
        raw.until_ready()
        raw.send(parse("range 3") + bind(portal="p") + execute("p", 2) + SYNC)
        assert tags(raw.until_ready()) == "12DDsZ"
        raw.send(execute("p", 2) + SYNC)
        assert tags(raw.until_ready()) == "DCZ"
        raw.send(query("commit"))
        raw.until_ready()
        raw.send(execute("p") + SYNC)
        assert errors(raw.until_ready()) == ["34000"]


def test_large_results_pass_slice_and_batch_borders(server: Running) -> None:
    with server.client() as raw:
        raw.send(parse("range 6000") + bind() + execute(max_rows=5999) + execute() + SYNC)
        messages = raw.until_ready()
        assert tags(messages) == "12" + "D" * 5999 + "sDCZ"
        numbers = [int(body[6:]) for tag, body in messages if tag == "D"]
        assert numbers == list(range(6000))


@pytest.mark.parametrize(
    ("data", "sqlstate"),
    [
        (parse("unknown"), "42P01"),
        (parse("select 1; select 2"), "42601"),
        (parse("select 1", name="a") + parse("select 1", name="a"), "42P05"),
        (bind(statement="nope"), "26000"),
        (describe("S", "nope"), "26000"),
        (describe("P", "nope"), "34000"),
        (execute("nope"), "34000"),
        (parse("echo $1") + bind(), "08P01"),
        (parse("select 1") + bind(results=(0, 0)), "08P01"),
        (parse("select 1") + bind(results=(9,)), "22023"),
        (parse("select 1") + bind(portal="p") + bind(portal="p"), "42P03"),
        (parse("insert") + bind() + execute() + execute(), "55000"),
        (parse("changed") + bind() + execute(), "0A000"),
        (parse("half") + bind() + execute(), "22012"),
        (parse("crash") + bind() + execute(), "XX000"),
    ],
)
def test_after_an_error_everything_up_to_sync_is_skipped(
    server: Running, data: bytes, sqlstate: str
) -> None:
    with server.client() as raw:
        raw.send(data + query("select 1") + parse("select 1") + bind() + execute() + SYNC)
        messages = raw.until_ready()
        assert errors(messages) == [sqlstate]
        assert tags(messages)[-2:] == "EZ"
        raw.send(parse("select 1") + bind() + execute() + SYNC)
        assert tags(raw.until_ready()) == "12DCZ"


def test_empty_statement_and_statement_without_rows(server: Running) -> None:
    with server.client() as raw:
        raw.send(parse("") + describe("S") + bind() + describe("P") + execute() + SYNC)
        assert tags(raw.until_ready()) == "1tn2nIZ"
        raw.send(parse("insert") + describe("S") + bind() + execute(max_rows=1) + SYNC)
        assert tags(raw.until_ready()) == "1tn2CZ"


def test_copy_through_the_extended_protocol(server: Running) -> None:
    with server.client() as raw:
        raw.send(parse("copy 3") + bind() + describe("P") + execute() + SYNC)
        assert tags(raw.until_ready()) == "12nHdddcCZ"


def test_any_error_fails_the_transaction(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("begin"))
        assert raw.until_ready()[-1] == ("Z", b"T")
        raw.send(execute("nope") + SYNC)
        assert raw.until_ready()[-1] == ("Z", b"E")
        raw.send(query("select 1"))
        assert errors(raw.until_ready()) == ["25P02"]
        raw.send(query("rollback"))
        assert raw.until_ready()[-1] == ("Z", b"I")


def test_notices_and_changed_parameters_come_before_completion(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("notice hello; set application_name=x"))
        messages = raw.until_ready()
        assert tags(messages) == "NCSCZ"
        notice = fields(messages[0][1])
        assert (notice["S"], notice["M"], notice["H"]) == ("NOTICE", "hello", "a hint")
        assert raw.parameters["application_name"] == "x"


def test_deallocate_forgets_prepared_statements(server: Running) -> None:
    with server.client() as raw:
        raw.send(parse("select 1", name="a") + parse("select 1", name="b") + SYNC)
        raw.until_ready()
        raw.send(query("deallocate a"))
        assert tags(raw.until_ready()) == "CZ"
        raw.send(bind(statement="b") + SYNC + bind(statement="a") + SYNC)
        assert tags(raw.until_ready()) == "2Z"
        assert errors(raw.until_ready()) == ["26000"]
        raw.send(query("deallocate all") + bind(statement="b") + SYNC)
        raw.until_ready()
        assert errors(raw.until_ready()) == ["26000"]


def test_copy_in(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("load; select 1"))
        assert raw.receive() == ("G", b"\0\0\2\0\0\0\0")
        raw.send(copy_data(b"a\nb") + FLUSH + copy_data(b"\n") + COPY_DONE)
        messages = raw.until_ready()
        assert tags(messages) == "CTDCZ"
        assert messages[0] == ("C", b"COPY 2\0")
        # The client does not know of the COPY when it sends the first Sync.
        raw.send(parse("load") + bind() + describe("P") + execute() + SYNC)
        assert tags([raw.receive() for _ in range(4)]) == "12nG"
        raw.send(copy_data(b"a\n") + COPY_DONE + SYNC)
        assert tags(raw.until_ready()) == "CZ"


@pytest.mark.parametrize(
    ("sent", "sqlstate"),
    [
        (copy_data(b"bad\n") + copy_data(b"more\n") + COPY_DONE, "22P04"),
        (copy_data(b"a\n") + client.message("f", b"no more\0"), "57014"),
        (copy_data(b"bad\n") + client.message("f", b"no more\0"), "22P04"),
    ],
)
def test_a_copy_in_that_fails(server: Running, sent: bytes, sqlstate: str) -> None:
    with server.client() as raw:
        raw.send(query("load; select 1"))
        raw.receive()
        raw.send(sent)
        messages = raw.until_ready()
        assert (tags(messages), errors(messages)) == ("EZ", [sqlstate])
        raw.send(parse("load") + bind() + execute() + SYNC)
        assert tags([raw.receive() for _ in range(3)]) == "12G"
        raw.send(sent + parse("select 2") + SYNC)
        messages = raw.until_ready()
        assert (tags(messages), errors(messages)) == ("EZ", [sqlstate])
        raw.send(query("select 1"))
        assert tags(raw.until_ready()) == "TDCZ"


def test_another_statement_within_a_copy_in(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("load") + query("select 1"))
        raw.receive()
        tag, payload = raw.receive()
        assert (tag, fields(payload)["C"]) == ("E", "08P01")
        assert raw.rest() == b""


def test_cancel_of_a_copy_in(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("load"))
        raw.receive()
        assert raw.key is not None
        cancel(server, raw.key)
        assert errors(raw.until_ready()) == ["57014"]
        raw.send(copy_data(b"late\n") + COPY_DONE + query("select 1"))
        assert tags(raw.until_ready()) == "TDCZ"


def test_binary_copy_out(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("copy binary 1"))
        assert raw.receive() == ("H", b"\1\0\1\0\1")
        sent = b"".join(payload for tag, payload in raw.until_ready() if tag == "d")
        row = struct.pack("!hiq", 1, 8, 0)
        assert sent == b"PGCOPY\n\xff\r\n\0" + bytes(8) + row + b"\xff\xff"


def test_a_declared_cursor_is_described_as_a_portal(server: Running) -> None:
    with server.client() as raw:
        raw.send(describe("P", "declared") + SYNC)
        assert tags(raw.until_ready()) == "TZ"
        raw.send(describe("P", "other") + SYNC)
        assert errors(raw.until_ready()) == ["34000"]


@pytest.mark.parametrize(("state", "sqlstate"), [("i", "57P05"), ("t", "25P03"), ("e", "25P03")])
def test_idle_clients_are_told_to_leave(server: Running, state: str, sqlstate: str) -> None:
    into = {"i": "select 1", "t": "begin", "e": "begin; unknown"}[state]
    with server.client() as raw:
        raw.send(query(f"impatient {state}; {into}"))
        raw.until_ready()
        tag, payload = raw.receive()
        assert (tag, fields(payload)["S"], fields(payload)["C"]) == ("E", "FATAL", sqlstate)
        assert raw.rest() == b""
    server.script.closed.get(timeout=PATIENCE)


def cancel(server: Running, key: tuple[int, int]) -> None:
    with RawClient(server.port) as other:
        other.send(struct.pack("!iIII", 16, 80877102, *key))
        assert other.rest() == b""


@pytest.mark.parametrize("sql", ["wait", "rowswait", "copy wait"])
def test_cancel_keeps_the_session_and_what_was_pipelined(server: Running, sql: str) -> None:
    with server.client() as raw:
        assert raw.key is not None
        pid, secret = raw.key
        raw.send(query(sql) + query("select 1"))
        assert server.script.started.wait(PATIENCE)
        cancel(server, (pid, secret ^ 1))
        cancel(server, (pid + 1000, secret))
        assert not server.script.stopped.is_set()
        cancel(server, raw.key)
        assert errors(raw.until_ready()) == ["57014"]
        assert tags(raw.until_ready()) == "TDCZ"
        cancel(server, raw.key)  # nothing runs: no effect
        raw.send(query("select 1"))
        assert tags(raw.until_ready()) == "TDCZ"


def test_a_statement_that_is_being_cancelled_is_left_to_end(server: Running) -> None:
    with server.client() as raw:
        assert raw.key is not None
        raw.send(query("linger") + query("select 1"))
        assert server.script.started.wait(PATIENCE)
        cancel(server, raw.key)
        assert server.script.stopped.wait(PATIENCE)
        cancel(server, raw.key)
        server.script.let_go.set()
        assert server.script.lingered.wait(PATIENCE)
        assert errors(raw.until_ready()) == ["57014"]
        assert tags(raw.until_ready()) == "TDCZ"


def test_a_cancel_that_comes_too_late_is_of_what_follows(server: Running) -> None:
    with server.client() as raw:
        assert raw.key is not None
        raw.send(query("stubborn; insert 1") + query("select 1"))
        assert server.script.started.wait(PATIENCE)
        cancel(server, raw.key)
        assert server.script.stopped.wait(PATIENCE)
        server.script.let_go.set()
        messages = raw.until_ready()
        assert (tags(messages), errors(messages)) == ("CEZ", ["57014"])
        assert tags(raw.until_ready()) == "TDCZ"


def test_a_hang_up_that_comes_too_late_ends_the_session(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("stubborn"))
        assert server.script.started.wait(PATIENCE)
    assert server.script.stopped.wait(PATIENCE)
    server.script.let_go.set()
    server.script.closed.get(timeout=PATIENCE)


def test_a_hang_up_while_a_statement_is_being_cancelled(server: Running) -> None:
    with server.client() as raw:
        assert raw.key is not None
        raw.send(query("linger"))
        assert server.script.started.wait(PATIENCE)
        cancel(server, raw.key)
        assert server.script.stopped.wait(PATIENCE)
    server.script.closed.get(timeout=PATIENCE)
    assert server.server.session_count == 0
    server.script.let_go.set()


def test_cancel_in_the_extended_protocol(server: Running) -> None:
    with server.client() as raw:
        assert raw.key is not None
        raw.send(parse("wait") + bind() + execute() + parse("select 1") + SYNC)
        assert server.script.started.wait(PATIENCE)
        cancel(server, raw.key)
        messages = raw.until_ready()
        assert (tags(messages), errors(messages)) == ("12EZ", ["57014"])


@pytest.mark.parametrize("sql", ["wait", "copy wait"])
@pytest.mark.parametrize("pipelined", [b"", query("select 1"), b"garbage!" * 10])
def test_a_hang_up_cancels_what_runs(server: Running, sql: str, pipelined: bytes) -> None:
    with server.client() as raw:
        raw.send(query(sql) + pipelined)
        assert server.script.started.wait(PATIENCE)
    assert server.script.stopped.wait(PATIENCE)
    server.script.closed.get(timeout=PATIENCE)


def test_neither_a_hang_up_nor_a_shutdown_waits_for_what_has_begun() -> None:
    with running_server(Limits(close_seconds=0.2)) as server, server.client() as waiting:
        with server.client() as raw:
            raw.send(query("stalled"))
            assert server.script.started.wait(PATIENCE)
        server.script.closed.get(timeout=PATIENCE)
        server.script.started.clear()
        waiting.send(query("stalled"))
        assert server.script.started.wait(PATIENCE)
        assert waiting.key is not None
        cancel(server, waiting.key)
        server.close()
        server.script.closed.get(timeout=PATIENCE)


def test_a_hang_up_closes_a_suspended_portal(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("begin") + parse("range 9") + bind() + execute(max_rows=1) + SYNC)
        raw.until_ready()
        raw.until_ready()
    server.script.closed.get(timeout=PATIENCE)


def test_shutdown_tells_idle_and_busy_sessions(server: Running) -> None:
    with server.client() as idle, server.client() as busy, RawClient(server.port) as unknown:
        busy.send(query("wait"))
        assert server.script.started.wait(PATIENCE)
        server.close()
        for raw in (idle, busy, unknown):
            tag, payload = raw.receive()
            assert tag == "E"
            assert (fields(payload)["S"], fields(payload)["C"]) == ("FATAL", "57P01")
            assert raw.rest() == b""
    assert server.script.closed.qsize() == 2


def test_violations_close_the_connection(server: Running) -> None:
    with server.client() as raw:
        raw.send(query("select 1") + b"Q" + struct.pack("!i", 2**31 - 1) + b"x" * 100)
        assert tags(raw.until_ready()) == "TDCZ"
        tag, payload = raw.receive()
        assert (tag, fields(payload)["S"], fields(payload)["C"]) == ("E", "FATAL", "08P01")
        assert raw.rest() == b""
    server.script.closed.get(timeout=PATIENCE)


def test_messages_of_no_use_here_are_ignored(server: Running) -> None:
    with server.client() as raw:
        raw.send(client.message("d", b"x") + client.message("c") + client.message("f", b"x\0"))
        raw.send(query("select 1"))
        assert tags(raw.until_ready()) == "TDCZ"


class StuckTransport(asyncio.Transport):
    """A client that takes nothing until let go."""

    def __init__(self, wire: Wire):
        super().__init__()
        self._wire = wire
        wire.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._wire.pause_writing()


def test_a_client_that_does_not_read_holds_back_the_query() -> None:
    async def scenario() -> list[int]:
        pulled = 0

        async def batches() -> AsyncIterator[pa.RecordBatch]:
            nonlocal pulled
            for _ in range(10):
                pulled += 1
                yield batch

        columns, batch = client.table(a=(TEXT, ["x" * 10_000]))
        wire = Wire(lambda _: None)
        StuckTransport(wire)
        sending = asyncio.create_task(stream(wire, Cursor(batches()), data_rows(columns, (0,))))
        for _ in range(100):
            await asyncio.sleep(0)
        before = pulled
        wire.pause_writing = lambda: None
        wire.resume_writing()
        sent, _ = await sending
        return [before, pulled, sent]

    assert asyncio.run(scenario()) == [1, 10, 10]


def test_wide_rows_go_out_in_small_slices() -> None:
    async def scenario() -> list[int]:
        async def batches() -> AsyncIterator[pa.RecordBatch]:
            yield client.table(a=(TEXT, ["x" * 400_000] * 5))[1]

        cursor, sizes = Cursor(batches()), []
        while (piece := await cursor.take(100)) is not None:
            sizes.append(piece.num_rows)
        return sizes

    assert asyncio.run(scenario()) == [2, 2, 1]
