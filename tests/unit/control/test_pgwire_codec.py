from __future__ import annotations

import contextlib
import struct

import pgwire_harness as client
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.control.pgwire import codec
from tidemark.control.pgwire.options import session_options
from tidemark.errors import SqlError, TidemarkError
from tidemark.types import INTEGER, Column, numeric

ROUND_TRIPS = [
    (client.query("SELECT 'ä'"), codec.Query("SELECT 'ä'")),
    (client.parse("q", name="s", oids=(23, 0)), codec.Parse("s", "q", (23, 0))),
    (
        client.bind(b"1", None, b"", portal="p", statement="s", formats=(0, 1, 0), results=(1,)),
        codec.Bind("p", "s", (0, 1, 0), (b"1", None, b""), (1,)),
    ),
    (client.describe("S", "s"), codec.Describe("S", "s")),
    (client.describe("P"), codec.Describe("P", "")),
    (client.execute("p", 7), codec.Execute("p", 7)),
    (client.close("P", "p"), codec.Close("P", "p")),
    (client.FLUSH, codec.Flush()),
    (client.SYNC, codec.Sync()),
    (client.TERMINATE, codec.Terminate()),
    (client.message("d", b"1\t2\n"), codec.CopyData(b"1\t2\n")),
    (client.message("c"), codec.CopyDone()),
    (client.message("f", b"no\0"), codec.CopyFail("no")),
    (client.message("p", b"secret\0"), codec.PasswordMessage(b"secret\0")),
]


@pytest.mark.parametrize(("data", "expected"), ROUND_TRIPS, ids=lambda v: type(v).__name__)
def test_frontend_messages(data: bytes, expected: codec.FrontendMessage) -> None:
    assert [codec.decode(frame) for frame in codec.Framer().feed(data)] == [expected]


@given(st.lists(st.integers(1, 40), min_size=1))
def test_frames_do_not_depend_on_how_the_bytes_arrive(cuts: list[int]) -> None:
    data = b"".join(data for data, _ in ROUND_TRIPS)
    framer, frames, at = codec.Framer(), [], 0
    for cut in [*cuts, len(data)]:
        frames += framer.feed(data[at : at + cut])
        at += cut
    assert [codec.decode(frame) for frame in frames] == [message for _, message in ROUND_TRIPS]


def test_startup_messages() -> None:
    def decoded(data: bytes) -> codec.StartupMessage:
        assert codec.startup_length(data[:4]) == len(data) - 4
        return codec.decode_startup(data[4:])

    assert decoded(struct.pack("!iI", 8, 80877103)) == codec.SslRequest()
    assert decoded(struct.pack("!iI", 8, 80877104)) == codec.GssEncRequest()
    cancel = struct.pack("!iIII", 16, 80877102, 5, 2**32 - 1)
    assert decoded(cancel) == codec.CancelRequest(5, 2**32 - 1)
    parameters = {"user": "alice", "options": "-c a=b"}
    assert decoded(client.startup((3 << 16) + 2, parameters)) == codec.Startup(2, parameters)


@pytest.mark.parametrize(
    "data",
    [
        b"!\0\0\0\4",
        b"\0\0\0\0\0",
        b"Q\0\0\0\3",
        b"Q\xff\xff\xff\xff",
        b"Q" + struct.pack("!i", codec.MAX_MESSAGE + 1),
        b"S" + struct.pack("!i", codec.MAX_SMALL_MESSAGE + 1),
        client.message("Q", b"no terminator"),
        client.message("Q", b"left\0over"),
        client.message("D", b"Xname\0"),
        client.message("B", b"\0\0\0\0\xff\xff"),
        client.message("B", b"\0\0\0\0\0\1\xff\xff\xff\xfe\0\0"),
        client.message("E", b"\0\0"),
        client.message("S", b"x"),
    ],
)
def test_violations(data: bytes) -> None:
    with pytest.raises(codec.ProtocolViolation) as caught:
        [codec.decode(frame) for frame in codec.Framer().feed(data)]
    assert caught.value.sqlstate == "08P01"


@pytest.mark.parametrize("length", [-1, 0, 7, codec.MAX_STARTUP + 1, 2**31 - 1])
def test_startup_length_out_of_bounds(length: int) -> None:
    with pytest.raises(codec.ProtocolViolation):
        codec.startup_length(struct.pack("!i", length))


def test_another_major_version_is_refused() -> None:
    with pytest.raises(codec.ProtocolViolation, match=r"supports 3\.0") as caught:
        codec.decode_startup(struct.pack("!I", 2 << 16))
    assert caught.value.sqlstate == "0A000"


def test_bad_utf8_is_an_error_of_the_statement_only() -> None:
    with pytest.raises(TidemarkError) as caught:
        codec.decode(codec.Frame("Q", b"\xff\0"))
    assert caught.value.sqlstate == "22021"
    assert not isinstance(caught.value, codec.ProtocolViolation)


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_never_crashes(data: bytes) -> None:
    for attempt in (lambda: codec.decode_startup(data), lambda: list(codec.Framer().feed(data))):
        with contextlib.suppress(TidemarkError):
            attempt()


@given(st.sampled_from("QPBDECHSXdcfp"), st.binary(max_size=60))
def test_garbage_payloads_are_refused_and_never_crash(tag: str, payload: bytes) -> None:
    with contextlib.suppress(TidemarkError):
        codec.decode(codec.Frame(tag, payload))


def test_backend_messages() -> None:
    columns = (Column("a", INTEGER), Column("b", numeric(10, 2)))
    assert codec.row_description(columns, (0, 1)) == client.message(
        "T",
        b"\0\2"
        + b"a\0"
        + struct.pack("!IhIhih", 0, 0, 23, 4, -1, 0)
        + b"b\0"
        + struct.pack("!IhIhih", 0, 0, 1700, -1, (10 << 16 | 2) + 4, 1),
    )
    assert codec.data_row((b"x", None, b"")) == client.message(
        "D", b"\0\3\0\0\0\1x\xff\xff\xff\xff\0\0\0\0"
    )
    text, binary = b"\0\0\2\0\0\0\0", b"\1\0\2\0\1\0\1"
    assert codec.copy_out_response(2, binary=False) == client.message("H", text)
    assert codec.copy_in_response(2, binary=True) == client.message("G", binary)
    assert codec.ready_for_query("T") == client.message("Z", b"T")
    error = codec.error_response(message="m\0x", sqlstate="42601", hint="h")
    assert client.fields(error[5:]) == {
        "S": "ERROR",
        "V": "ERROR",
        "C": "42601",
        "M": "mx",
        "H": "h",
    }


def test_startup_options() -> None:
    parameters = {
        "user": "u",
        "database": "d",
        "application_name": "psql",
        "_pq_.x": "1",
        "options": r"-c cluster=c2 -ca=b --search-path=x\ y\\z -c e= " + "-c l=1\\\n2",
    }
    assert session_options(parameters) == {
        "application_name": "psql",
        "cluster": "c2",
        "a": "b",
        "search_path": r"x y\z",
        "e": "",
        "l": "1\n2",
    }


@pytest.mark.parametrize("options", ["-c", "-x", "-c name", "plain", "-c =v"])
def test_startup_options_that_are_no_settings(options: str) -> None:
    with pytest.raises(SqlError, match="command-line"):
        session_options({"options": options})
