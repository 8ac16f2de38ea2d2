"""docs/format.md is enough to read a shard: this reader knows nothing else, and none of our code."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.frontier import Frontier
from tidemark.persist import Config, PersistClient
from tidemark.persist.updates import updates_schema

ROWS = pa.schema([("k", pa.string()), ("n", pa.int64())])
CHANGED = ("since", "upper", "key", "floor", "follows", "lead", "rendition")


def newest_state(consensus: Path, shard: str) -> dict:
    query = "SELECT data FROM consensus WHERE key = ? ORDER BY seqno"
    state: dict = {}
    for (data,) in sqlite3.connect(consensus).execute(query, (shard,)):
        format_, _, kind, body, checksum = msgspec.msgpack.decode(data)
        assert format_ == 3
        assert checksum
        state = body if kind == "rollup" else applied(state, body)
    return state


def applied(state: dict, diff: dict) -> dict:
    state = {**state, **{f: diff[f] for f in CHANGED if f in diff}}
    state["schemas"] = [*state.get("schemas", []), *diff.get("schemas", [])]
    batches = list(state.get("batches", []))
    if "batches" in diff:
        start, removed, added = diff["batches"]
        batches[start : start + removed] = added
    if batches:
        batches[-1] = {**batches[-1], "upper": state["upper"]}
    state["batches"] = batches
    return state


def collection(blob: Path, state: dict, as_of: int) -> dict[tuple, int]:
    names = pa.ipc.read_schema(pa.py_buffer(state["schemas"][-1])).names
    rows: Counter[tuple] = Counter()
    for part in (part for batch in state["batches"] for part in batch["parts"]):
        if "inline" in part:
            table = pa.ipc.open_stream(part["inline"]).read_all()
        else:
            table = pq.ParquetFile(blob / part["key"]).read()
        for update in table.to_pylist():
            if part.get("at", update["_time"]) <= as_of:
                row = [update.get(n) for n in names if n not in ("_time", "_diff")]
                rows[tuple(row)] += update["_diff"]
    return {row: count for row, count in rows.items() if count}


@pytest.mark.parametrize("rollup_every", [1, 7, 128])
def test_another_program_reads_the_shard(tmp_path: Path, rollup_every: int):
    client = PersistClient.open(
        blob=f"file://{tmp_path}/blob",
        consensus=f"sqlite://{tmp_path}/c.db",
        config=Config(rollup_every=rollup_every, inline_bytes=1_200),
    )
    writer = client.open_writer("s", schema=ROWS, key=("k",))
    hold = client.open_critical_since("s")
    for time in range(60):
        if time == 30:
            writer.evolve_schema(ROWS.append(pa.field("more", pa.string())))
        writer.compare_and_append(
            updates(time, writer.schema), lower=Frontier(time), upper=Frontier(time + 1)
        )
        if time % 11 == 10:
            hold.downgrade(Frontier(time - 5))
            client.maintain("s")
    client.open_writer("s", schema=ROWS, key=("k",), rendition=3).advance_upper(Frontier(70))
    state = newest_state(tmp_path / "c.db", "s")
    assert (state["since"], state["upper"], state["rendition"]) == ([49], [70], 3)
    for as_of in (49, 55, 69):
        ours = client.open_reader("s").snapshot(as_of).drop_columns(["_time"]).to_pylist()
        expected = {tuple(v for n, v in row.items() if n != "_diff"): row["_diff"] for row in ours}
        assert collection(tmp_path / "blob", state, as_of) == expected


def complete(state: dict, log: dict) -> int:
    """Up to where a shard that follows a log can be read."""
    (upper,) = state.get("upper", [0])
    if "lead" not in log:
        return upper
    (lower,), (led,), but = log["lead"]
    return max(upper, lower if state["shard_id"] in but else led)


@pytest.mark.parametrize("rollup_every", [1, 7, 128])
def test_another_program_knows_how_far_a_follower_is_complete(tmp_path: Path, rollup_every: int):
    client = PersistClient.open(
        blob=f"file://{tmp_path}/blob",
        consensus=f"sqlite://{tmp_path}/c.db",
        config=Config(rollup_every=rollup_every),
    )
    log = client.open_writer("log", schema=ROWS)
    writers = {shard: client.open_writer(shard, schema=ROWS) for shard in ("a", "b")}
    for writer in writers.values():
        writer.follow("log")
    for time in range(0, 30, 3):
        touched = ("a", "b")[: time % 3 + time // 3 % 3]
        lower, upper = log.fetch_upper(), Frontier(time + 1)
        log.compare_and_append(None, lower=lower, upper=upper, leading=touched)
        for shard in (None, *touched):
            if shard is not None:
                table = updates(time, writers[shard].schema)
                writers[shard].append(table, lower=Frontier.MIN, upper=upper)
            led = newest_state(tmp_path / "c.db", "log")
            for each in writers:
                state = newest_state(tmp_path / "c.db", each)
                assert state["follows"] == "log"
                assert complete(state, led) == client.state(each).upper.time


def updates(time: int, schema: pa.Schema) -> pa.Table:
    """A few rows come, an earlier one goes, sometimes with an error and sometimes with many."""
    rows = [{"k": f"k{n % 5}", "n": n, "_diff": 1} for n in range(time, time + 1 + time % 7 * 20)]
    if time:
        rows.append({"k": f"k{(time - 1) % 5}", "n": time - 1, "_diff": -1})
    if time % 13 == 0:
        rows.append({"_err": f"boom {time}", "_diff": 1})
    if "more" in schema.names:
        rows[0]["more"] = "later"
    return pa.Table.from_pylist([{**row, "_time": time} for row in rows], schema)


def test_updates_have_the_columns_that_the_format_names():
    names = updates_schema(ROWS).names
    assert names == ["k", "n", "_time", "_diff", "_err"]
