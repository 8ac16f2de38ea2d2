"""Lines between control and a replica: everybody gets the answer to their own question, or an error."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tidemark.compute import lines
from tidemark.compute.lines import MOST_LINES, Lines, Listener
from tidemark.compute.protocol import LookUp
from tidemark.errors import TidemarkError, Unavailable

TOKEN = "secret"


def question(keys: bytes) -> LookUp:
    return LookUp("look-up-1", "u1", ("k",), ("k", "v"), 7, keys)


class Replica:
    """Answers what it is told to, with the keys themselves if nothing."""

    def __init__(self) -> None:
        self.failing: TidemarkError | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        self.listener = Listener(self.look_up, TOKEN)

    def look_up(self, asked: LookUp) -> bytes | None:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.gate.wait(60)
        with self._lock:
            self.at_once -= 1
        if self.failing is not None:
            raise self.failing
        return asked.keys or None

    def lines(self, token: str = TOKEN) -> Lines:
        return Lines(self.listener.port, token)


@pytest.fixture
def replica() -> Iterator[Replica]:
    made = Replica()
    yield made
    made.gate.set()
    made.listener.close()


def test_rows_nothing_and_errors_come_back(replica: Replica) -> None:
    async def scenario() -> None:
        line = replica.lines()
        assert await line.ask(question(b"1")) == b"1"
        assert await line.ask(question(b"")) is None
        large = b"x" * (3 << 20)
        assert await line.ask(question(large)) == large
        replica.failing = TidemarkError("a bad row", hint="look at it", sqlstate="22012")
        with pytest.raises(TidemarkError) as caught:
            await line.ask(question(b"1"))
        told = caught.value
        assert (told.message, told.hint, told.sqlstate) == ("a bad row", "look at it", "22012")
        replica.failing = Unavailable("its JVM is gone")
        with pytest.raises(Unavailable):
            await line.ask(question(b"1"))
        replica.failing = None
        assert await line.ask(question(b"2")) == b"2"
        line.close()

    asyncio.run(scenario())


def test_many_take_turns_and_get_their_own(replica: Replica) -> None:
    async def scenario() -> None:
        line = replica.lines()
        keys = [b"%d" % n for n in range(10 * MOST_LINES)]
        replica.gate.clear()
        asking = asyncio.gather(*(line.ask(question(key)) for key in keys))
        while replica.at_once < MOST_LINES:
            await asyncio.sleep(0.001)
        replica.gate.set()
        assert await asking == keys
        assert replica.most_at_once == MOST_LINES
        line.close()

    asyncio.run(scenario())


def test_the_answer_of_who_was_cancelled_is_nobody_elses(replica: Replica) -> None:
    async def scenario() -> None:
        line = replica.lines()
        assert await line.ask(question(b"0")) == b"0"
        replica.gate.clear()
        first = asyncio.create_task(line.ask(question(b"1")))
        while not replica.at_once:
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        replica.gate.set()
        assert await line.ask(question(b"2")) == b"2"
        line.close()

    asyncio.run(scenario())


def test_who_does_not_know_the_token_is_not_answered(replica: Replica) -> None:
    async def scenario() -> None:
        with pytest.raises(OSError, match=r"hung up|reset"):
            await replica.lines("guessed").ask(question(b"1"))
        assert await replica.lines().ask(question(b"2")) == b"2"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"",
        len(TOKEN).to_bytes(4) + TOKEN.encode() + b"\x00\x00\x00\x03\xc1\xc1\xc1",
        len(TOKEN).to_bytes(4) + TOKEN.encode() + b"\xff\xff\xff\xffx",
    ],
)
def test_garbage_ends_one_line_only(replica: Replica, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", replica.listener.port)) as line:
        line.sendall(said)
        line.shutdown(socket.SHUT_WR)
        line.settimeout(60)
        assert _rest(line.recv) == (b"\n" if TOKEN.encode() in said else b"")
    assert asyncio.run(replica.lines().ask(question(b"1"))) == b"1"


def test_one_line_that_could_not_be_opened_is_not_the_last(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()
    start = threading.Thread.start

    def refuses_once(thread: threading.Thread) -> None:
        if thread.name == "line" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuses_once)

    async def scenario() -> None:
        with pytest.raises(OSError):
            await replica.lines().ask(question(b"1"))
        assert refused.is_set()
        assert await replica.lines().ask(question(b"2")) == b"2"

    asyncio.run(scenario())


def test_who_is_not_welcomed_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes connections of a socket that nobody looks at any more."""
    monkeypatch.setattr(lines, "_TOKEN_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as deaf, pytest.raises(OSError):
        asyncio.run(Lines(deaf.getsockname()[1], TOKEN).ask(question(b"1")))


def test_a_replica_that_goes_away_is_an_error(replica: Replica) -> None:
    """Not a wait: whoever asks goes to another replica, or tries again."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as dying:

            def hang_up() -> None:
                line, _ = dying.accept()
                line.recv(1)
                line.close()

            threading.Thread(target=hang_up, daemon=True).start()
            with pytest.raises(OSError):
                await Lines(dying.getsockname()[1], TOKEN).ask(question(b"1"))
        with pytest.raises(OSError):
            await Lines(dying.getsockname()[1], TOKEN).ask(question(b"1"))

    asyncio.run(scenario())


def _rest(recv: Callable[[int], bytes]) -> bytes:
    found = b""
    try:
        while piece := recv(1024):
            found += piece
    except ConnectionResetError:
        pass
    return found
