"""Clients that misbehave by the hundred: the server stays up, its memory stays flat, and a client
that is connected all the while notices nothing.

The server is a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import pgwire_harness as client
import psycopg
import pytest
from pgwire_harness import RawClient, running_server

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.pgwire import Limits, scram
from tidemark.control.pgwire.codec import MAX_MESSAGE
from tidemark.control.pgwire.passwords import Passwords

MIB = 1 << 20
MOST_GROWTH = 64 * MIB
"""What the memory of a process may grow by itself; what is tried here would take much more."""

CONNECTS = 2_000
STUCK = 6
DEADLINE = 60.0


class Abused:
    def __init__(self, pid: int, port: int, guarded_port: int, asks: Connection):
        self.pid = pid
        self.port = port
        self.guarded_port = guarded_port
        self._asks = asks

    @property
    def memory(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def sessions(self) -> int:
        """How many there are, by the server's own count."""
        self._asks.send("sessions")
        return self._asks.recv()

    def client(self) -> RawClient:
        raw = RawClient(self.port)
        raw.startup(user="alice", database="db")
        raw.until_ready()
        return raw

    @contextlib.contextmanager
    def abuse(self) -> Iterator[None]:
        """Somebody is connected and works before, and after, with the same session."""
        with self.client() as bystander:
            works(bystander)
            before = self.memory
            yield
            works(bystander)
            eventually(lambda: self.sessions() == 1)
            eventually(lambda: self.memory - before < MOST_GROWTH)  # It goes after its session.


def works(raw: RawClient) -> None:
    raw.send(client.query("select 1"))
    assert client.tags(raw.until_ready()) == "TDCZ"


def eventually(look: Callable[[], bool]) -> None:
    deadline = SYSTEM_CLOCK.monotonic() + DEADLINE
    while not look():
        assert SYSTEM_CLOCK.monotonic() < deadline
        SYSTEM_CLOCK.sleep(0.02)


def serve(asked: Connection) -> None:
    verifier = scram.make_verifier("right", salt=b"salt".ljust(scram.SALT_BYTES))
    limits = Limits(connections=1_000, close_seconds=0.5)
    with (
        running_server(limits) as server,
        running_server(passwords=Passwords({"alice": verifier}, b"secret")) as guarded,
    ):
        asked.send((server.port, guarded.port))
        while asked.recv() == "sessions":
            asked.send(server.server.session_count)


@pytest.fixture(scope="module")
def server() -> Iterator[Abused]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there,), daemon=True)
    process.start()
    assert here.poll(DEADLINE)
    assert process.pid is not None
    abused = Abused(process.pid, *here.recv(), here)
    for _ in range(50):  # What it takes once, it has taken.
        with abused.client() as raw:
            works(raw)
    yield abused
    here.send("stop")
    process.join(DEADLINE)
    assert process.exitcode == 0


def reset(raw: RawClient) -> None:
    """Close in the rudest way there is."""
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.socket.close()


def test_thousands_of_connects(server: Abused):
    with server.abuse():
        for at in range(CONNECTS):
            raw = RawClient(server.port)
            if at % 4:
                raw.startup(user="alice", database="db")
            if at % 4 == 2:
                raw.until_ready()
                raw.send(client.query("select 1") + client.TERMINATE)
            if at % 4 == 3:
                raw.until_ready()
                raw.send(client.query("wait"))
            reset(raw) if at % 2 else raw.socket.close()


def test_half_open_connections_keep_nobody_out(server: Abused):
    with server.abuse(), ExitStack() as stack:
        greeting = client.startup(3 << 16, {"user": "alice", "database": "db"})
        for at in range(300):
            raw = stack.enter_context(RawClient(server.port))
            raw.send(greeting[: at % len(greeting)])
        with server.client() as other:
            works(other)


def test_garbage_after_the_login(server: Abused):
    rng = random.Random(7)
    with server.abuse():
        for _ in range(100):
            with server.client() as raw, contextlib.suppress(OSError):
                raw.send(rng.randbytes(rng.randrange(1, 5_000)))
                raw.socket.shutdown(socket.SHUT_WR)
                raw.rest()


def test_messages_that_are_cut_off_anywhere(server: Abused):
    whole = b"".join(
        [
            client.parse("echo $1", name="e", oids=(25,)),
            client.bind(b"hello", statement="e"),
            client.describe("P"),
            client.execute(),
            client.SYNC,
            client.query("copy 3"),
        ]
    )
    with server.abuse():
        for at in range(1, len(whole)):
            with server.client() as raw, contextlib.suppress(OSError):
                raw.send(whole[:at])
                raw.socket.shutdown(socket.SHUT_WR)
                raw.rest()


def test_messages_that_are_too_large_are_not_read(server: Abused):
    with server.abuse():
        for tag in "QPBd":
            with server.client() as raw:
                raw.send(tag.encode() + struct.pack("!i", MAX_MESSAGE + 5))
                kind, payload = raw.receive()
                assert (kind, client.fields(payload)["C"]) == ("E", "08P01")
                assert f"it must be 4 to {MAX_MESSAGE}" in client.fields(payload)["M"]
                assert raw.rest() == b""


def test_large_messages_that_never_end(server: Abused):
    """What was read of them is given back when the client goes."""
    with server.abuse(), ExitStack() as stack:
        for _ in range(4):
            raw = stack.enter_context(server.client())
            raw.send(b"Q" + struct.pack("!i", MAX_MESSAGE) + b" " * (20 * MIB))


def test_wrong_passwords_again_and_again(server: Abused):
    dsn = f"host=127.0.0.1 port={server.guarded_port} user=alice"
    with server.abuse():
        for at in range(100):
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(f"{dsn} password=wrong{at}")
    with psycopg.connect(f"{dsn} password=right") as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_clients_that_stop_reading_hold_back_nobody(server: Abused):
    """Each has asked for millions of rows, by SELECT or COPY, and reads none of them."""
    with server.abuse(), ExitStack() as stack:
        for at in range(STUCK):
            raw = stack.enter_context(server.client())
            raw.send(client.query("range 50000000" if at % 2 else "copy 50000000"))
            raw.receive()
        before = server.memory
        with server.client() as other:
            for _ in range(20):
                works(other)
        assert server.memory - before < MOST_GROWTH


def test_a_flood_of_small_messages_is_answered_and_so_are_others(server: Abused):
    flood = client.parse("echo $1", oids=(25,)) + client.bind(b"x") * 30_000 + client.SYNC
    with server.abuse(), server.client() as raw:
        raw.send(flood)
        with server.client() as other:
            works(other)
        assert client.tags(raw.until_ready()) == "1" + "2" * 30_000 + "Z"


def test_answers_that_nobody_has_asked_for_yet_do_not_pile_up(server: Abused):
    """Small messages with large answers, no Sync or Flush among them, and nothing is read."""
    flood = client.parse("echo " + 500 * "$") + client.describe("S") * 30_000
    with server.abuse(), ExitStack() as stack:
        before = server.memory
        for _ in range(STUCK):
            raw = stack.enter_context(server.client())
            raw.send(flood)
            raw.receive()
        with server.client() as other:
            for _ in range(20):
                works(other)
        assert server.memory - before < MOST_GROWTH
