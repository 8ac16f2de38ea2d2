"""Transactions by many clients while processes are killed: what they have seen is strictly
serializable, and every view is what its inputs were at the same time.

    CRASH_SEED=7 pytest tests/crash/test_consistency_crash.py        the same choices again
    CRASH_SECONDS=3600 pytest -m soak tests/crash                    goes on for an hour
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from appenders import SCHEMA, Attempt, Client, Recording, Subscriber, summed
from serving import Serving, eventually

from consistency import check, check_times
from tidemark.clock import SYSTEM_CLOCK

CLIENTS = 5
CALM_SECONDS = 4.0
"""Between a kill that everybody has got over and the next one."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path / "data")
    try:
        yield serving.start()
    finally:
        serving.destroy()


@pytest.mark.parametrize("soak", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_transactions_under_fire(server: Serving, chance: random.Random, soak: bool) -> None:
    with server.connect() as connection:
        for statement in SCHEMA:
            connection.execute(statement)  # type: ignore[arg-type]
        with connection.transaction():
            connection.execute("SELECT count(*) FROM sums")
            ((since,),) = connection.execute("SELECT mz_now()")
    recording = Recording(server)
    clients = [Client(recording, n, chance.randrange(2**32)) for n in range(CLIENTS)]
    followers = [Subscriber(server, relation, int(since)) for relation in ("log", "sums")]
    for thread in (*clients, *followers):
        thread.start()

    for kill in _kills(chance, soak=soak):
        _all_go_on(clients)
        SYSTEM_CLOCK.sleep(CALM_SECONDS * chance.random())
        print(f"killing {kill}")
        _kill(server, kill)
    _all_go_on(clients)
    for client in clients:
        client.stop()

    # Whatever became of them, this is what there is.
    with server.connect() as connection:
        last = Attempt(connection, "last")
        last.begin()
        last.read_both(recording.keys_used)
        log = last.read_log(recording.keys_used)
        ((now,),) = last.query("SELECT mz_now()")
        last.timed.append(("log", int(now), log))
        last.commit()
        recording.add(*last.done("ok"))
    for follower in followers:
        eventually(f"{follower.name} at {now}", lambda f=follower: f.failure or f.upper > int(now))
        follower.stop()

    _say(recording, clients, followers)
    found = check(recording.history)
    followed = {follower.relation: follower.followed for follower in followers}
    found += check_times(recording.reads, followed, {"sums": ("log", summed)})
    assert not found, "\n".join(map(str, found[:5]))
    outcomes = [each.outcome for each in recording.history]
    assert outcomes.count("ok") > len(outcomes) / 4
    assert all(follower.resumed for follower in followers), "nobody had to go on after a kill"


def _kills(chance: random.Random, *, soak: bool) -> Iterator[str]:
    kinds = ["replica", "control"]
    chance.shuffle(kinds)
    if not soak:
        yield from kinds
        return
    seconds = float(os.environ.get("CRASH_SECONDS") or 600)
    deadline = SYSTEM_CLOCK.monotonic() + seconds
    while SYSTEM_CLOCK.monotonic() < deadline:
        yield chance.choice(["replica", "jvm", "control", "control", "everything"])


def _kill(server: Serving, what: str) -> None:
    match what:
        case "replica":
            os.kill(server.clusterd_pid, signal.SIGKILL)
        case "jvm":
            os.kill(server.jvm_pid, signal.SIGKILL)
        case "control":
            server.kill_control()
            server.start()
        case "everything":
            server.kill_all()
            server.start()


def _all_go_on(clients: list[Client]) -> None:
    """Until every client has got something done."""
    before = [client.done["ok"] for client in clients]

    def went_on() -> bool:
        assert all(client.failure is None for client in clients), [c.failure for c in clients]
        return all(c.done["ok"] > b + 2 for c, b in zip(clients, before, strict=True))

    eventually("transactions", went_on)


def _say(recording: Recording, clients: list[Client], followers: list[Subscriber]) -> None:
    counts = {client.name: dict(client.done) for client in clients}
    print(f"{len(recording.history)} transactions, {len(recording.reads)} timed reads: {counts}")
    print(f"subscriptions resumed: {[follower.resumed for follower in followers]}")
    errors = {error for client in clients for error in client.errors}
    print("\n".join(sorted(errors)[:20]))
