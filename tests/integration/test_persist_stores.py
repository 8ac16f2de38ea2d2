"""Whole shards on the real stores: several clients write, follow, compact and collect.

The contract tests look at each store by itself; here persist works on them in every combination,
while servers die and come back and disks fill up.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from serving import eventually

from tidemark.errors import Determinate, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import Appended, Config, PersistClient, as_updates
from tidemark.persist.fsck import fsck

SCHEMA = pa.schema([("k", pa.string()), ("pad", pa.binary())])
SMALL = Config(inline_bytes=2_000, part_bytes=64 * 1024, row_group_bytes=16 * 1024, rollup_every=8)


@pytest.fixture(params=["file+postgres", "s3+sqlite", "s3+postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    blob, consensus = request.param.split("+")
    name = f"t{uuid4().hex[:12]}"
    where = {"blob": f"file://{tmp_path}/blob", "consensus": f"sqlite://{tmp_path}/c.db"}
    if blob == "s3":
        where["blob"] = request.getfixturevalue("s3_server").uri(name)
    if consensus == "postgres":
        where["consensus"] = request.getfixturevalue("postgres_server").uri(name)
    return where


def rows_at(writer, time: int, keys: list[str], pad: int = 10) -> pa.Table:
    pads = [random.Random(k).randbytes(pad) for k in keys]
    rows = pa.table({"k": keys, "pad": pads}, schema=SCHEMA)
    return as_updates(rows, time=time, schema=writer.schema)


def append_all(client: PersistClient, name: str, count: int, pad: int) -> None:
    """Append `count` rows of its own, one at a time, whatever others do meanwhile."""
    writer = client.open_writer("s", schema=SCHEMA, key=("k",))
    done = 0
    while done < count:
        lower = writer.fetch_upper()
        assert lower.time is not None
        updates = rows_at(writer, lower.time, [f"{name}-{done}"], pad)
        outcome = writer.compare_and_append(updates, lower=lower, upper=Frontier(lower.time + 1))
        done += isinstance(outcome, Appended)


def test_writers_followers_and_upkeep_at_once(stores: dict[str, str]):
    clients = [PersistClient.open(**stores, config=SMALL) for _ in range(3)]
    follower = PersistClient.open(**stores, config=SMALL)
    clients[0].start_maintenance()
    append_all(clients[0], "first", 1, 1)
    heard: Counter[str] = Counter()

    def follow() -> None:
        for step in follower.open_reader("s", columns=["k"]).subscribe(0):
            heard.update(step.table["k"].to_pylist())

    listening = threading.Thread(target=follow, daemon=True)
    listening.start()
    with ThreadPoolExecutor(len(clients)) as pool:
        writing = [
            pool.submit(append_all, client, f"w{n}", 25, 1 + 3_000 * n)
            for n, client in enumerate(clients)
        ]
    for done in writing:
        done.result()
    expected = Counter({"first-0": 1} | {f"w{n}-{i}": 1 for n in range(3) for i in range(25)})
    eventually("the follower has heard all", lambda: heard == expected)
    follower.close()
    listening.join()
    checked(stores, expected)
    for client in clients:
        client.close()


def checked(stores: dict[str, str], expected: Counter[str]) -> None:
    """What is there is what was written, in good order, and nothing else is in the stores."""
    client = PersistClient.open(**stores, config=SMALL)
    upper = client.state("s").upper
    assert upper.time
    client.open_critical_since("s").downgrade(Frontier(upper.time - 1))
    client.maintain("s")
    keys = client.open_reader("s").snapshot(upper.time - 1)["k"].to_pylist()
    assert Counter(keys) == expected
    streamed = client.open_reader("s").stream(upper.time - 1)
    assert Counter(k for chunk in streamed for k in chunk["k"].to_pylist()) == expected
    client.sweep(older_than_ms=0)
    live = {part.key for part in client.state("s").parts if part.key is not None}
    assert {key for key, _ in client.blob.list()} == live
    assert not fsck(client, "s").errors
    client.close()


def test_postgres_dies_and_comes_back(tmp_path: Path, postgres_server):
    stores = {
        "blob": f"file://{tmp_path}/blob",
        "consensus": postgres_server.uri(f"t{uuid4().hex[:12]}"),
    }
    client = PersistClient.open(**stores, config=SMALL)
    append_all(client, "before", 5, 1)
    postgres_server.kill()
    try:
        with pytest.raises(Unavailable):
            append_all(client, "never", 1, 1)
        with pytest.raises(Unavailable):
            client.state("s")
    finally:
        postgres_server.start()
    append_all(client, "after", 5, 1)
    expected = {f"{name}-{i}": 1 for name in ("before", "after") for i in range(5)}
    found = Counter(client.open_reader("s").snapshot(9)["k"].to_pylist())
    assert found == expected
    client.close()


def test_s3_dies_and_comes_back(tmp_path: Path, s3_server):
    stores = {
        "blob": s3_server.uri(f"t{uuid4().hex[:12]}"),
        "consensus": f"sqlite://{tmp_path}/c.db",
    }
    client = PersistClient.open(**stores, config=SMALL)
    append_all(client, "before", 3, 4_000)
    s3_server.kill()
    try:
        with pytest.raises(Unavailable):
            append_all(client, "never", 1, 4_000)
    finally:
        s3_server.start()
    append_all(client, "after", 3, 4_000)
    checked(stores, Counter({f"{name}-{i}": 1 for name in ("before", "after") for i in range(3)}))
    client.close()


def fill(writer, acked: list[str]) -> None:
    """Append, large ones to Blob and small ones into the state, until something gives way."""
    for time in range(10_000):
        updates = rows_at(writer, time, [f"k{time}"], pad=16_000 if time % 2 else 0)
        writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))
        acked.append(f"k{time}")


def test_a_full_disk_loses_nothing_and_says_so(tiny_disk: Path):
    """Both at once on one megabyte: parts and the log. Then there is room again."""
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    client = PersistClient.open(
        blob=f"file://{tiny_disk}/blob", consensus=f"sqlite://{tiny_disk}/c.db"
    )
    writer = client.open_writer("s", schema=SCHEMA)
    acked: list[str] = []
    with pytest.raises(Determinate, match="disk full") as caught:
        fill(writer, acked)
    assert caught.value.sqlstate == "53100"
    assert "free some space" in str(caught.value)
    reader = client.open_reader("s", columns=["k"])
    assert Counter(reader.snapshot(len(acked) - 1)["k"].to_pylist()) == Counter(acked)
    with suppress(Determinate):
        client.maintain("s")  # No room for a merge either; it must not hurt.
    ballast.unlink()
    lower = writer.fetch_upper()
    assert lower == Frontier(len(acked)), "what failed has not happened"
    rows = rows_at(writer, len(acked), ["again"])
    outcome = writer.compare_and_append(rows, lower=lower, upper=Frontier(len(acked) + 1))
    assert isinstance(outcome, Appended)
    client.sweep(older_than_ms=0)
    assert not fsck(client, "s").errors
    reader = client.open_reader("s", columns=["k"])
    assert Counter(reader.snapshot(len(acked))["k"].to_pylist()) == Counter([*acked, "again"])
    client.close()
