"""Whatever a client sends, the server goes on serving the others."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pgwire_harness as client
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgwire_harness import PATIENCE, RawClient, Running, running_server

FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running_server() as running:
        yield running


def hang_up_after(raw: RawClient, data: bytes) -> None:
    with contextlib.suppress(OSError):
        raw.send(data)
        raw.socket.shutdown(socket.SHUT_WR)
        raw.rest()


def assert_still_serving(server: Running) -> None:
    with server.client() as raw:
        raw.send(client.query("select 1"))
        assert client.tags(raw.until_ready()) == "TDCZ"


@FUZZ
@given(data=st.binary(max_size=300))
def test_garbage_instead_of_a_startup(server: Running, data: bytes) -> None:
    with RawClient(server.port) as raw:
        hang_up_after(raw, data)
    assert_still_serving(server)


messages = st.one_of(
    st.binary(max_size=40),
    st.builds(client.message, st.sampled_from("QPBDECHSXdcfp"), st.binary(max_size=40)),
    st.sampled_from(
        [
            client.query("select 1"),
            client.query("half; select 1"),
            client.query("copy 10"),
            client.query("load"),
            client.parse("load"),
            client.copy_data(b"a\n"),
            client.copy_data(b"bad\n"),
            client.COPY_DONE,
            client.message("f", b"never mind\0"),
            client.parse("range 3"),
            client.parse("echo $1"),
            client.bind(),
            client.bind(b"x"),
            client.describe("S"),
            client.describe("P"),
            client.execute(max_rows=1),
            client.execute(),
            client.close("S"),
            client.FLUSH,
            client.SYNC,
        ]
    ),
)


@FUZZ
@given(pieces=st.lists(messages, max_size=30))
def test_any_sequence_of_messages(server: Running, pieces: list[bytes]) -> None:
    with server.client() as raw:
        hang_up_after(raw, b"".join(pieces))
    server.script.closed.get(timeout=PATIENCE)
    assert_still_serving(server)
    server.script.closed.get(timeout=PATIENCE)


ordered = st.lists(
    st.sampled_from(
        [
            client.query("select 1"),
            client.query("unsplittable"),
            client.parse("range 3"),
            client.parse("unknown"),
            client.bind(),
            client.bind(b"x"),
            client.describe("P"),
            client.execute(max_rows=1),
            client.SYNC,
        ]
    ),
    max_size=20,
)


@FUZZ
@given(pieces=ordered)
def test_every_query_and_sync_is_answered_by_one_ready(
    server: Running, pieces: list[bytes]
) -> None:
    """Rule C2 of connection.py; a Query that is skipped (C3) has no answer."""
    skipping = False
    with server.client() as raw:
        for piece in pieces:
            raw.send(piece)
            if piece == client.SYNC or (piece[:1] == b"Q" and not skipping):
                skipping = False
                raw.until_ready()
            elif not skipping:
                raw.send(client.FLUSH)
                tag, _ = raw.receive()
                while tag in "TDn" and piece[:1] == b"E":
                    tag, _ = raw.receive()
                skipping = tag == "E"
        raw.send(client.SYNC + client.TERMINATE)
        assert client.tags(raw.until_ready()).count("Z") == 1
        assert raw.rest() == b""
    server.script.closed.get(timeout=PATIENCE)
