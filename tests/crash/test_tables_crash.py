"""The tables' commit log, interrupted at each of its steps: a commit happens wholly or not at all."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemark.errors import Fenced, Unavailable
from tidemark.persist import DIFF, PersistClient
from tidemark.storage.tables import Tables, Write

SCHEMA = pa.schema([pa.field("n", pa.int64())])
SHARDS = {"a": SCHEMA, "b": SCHEMA}


def opened(client: PersistClient, *, epoch: int = 1) -> Tables:
    tables = Tables(client, "txns", epoch=epoch)
    tables.open(SHARDS)
    return tables


def write(shard: str, n: int) -> Write:
    return Write(shard, pa.table({"n": [n], DIFF: pa.array([1], pa.int64())}))


def contents(client: PersistClient, shard: str) -> list[int]:
    upper = client.state(shard).upper.time
    assert upper
    rows = client.open_reader(shard).snapshot(upper - 1)
    assert set(rows[DIFF].to_pylist()) <= {1}
    return sorted(rows["n"].to_pylist())


def failing(*_: object, **__: object) -> None:
    raise Unavailable("no space left on device")


def test_a_commit_that_was_applied_is_not_applied_again(client: PersistClient):
    opened(client).commit([write("a", 1)])
    opened(client, epoch=2).commit([write("b", 2)])
    assert (contents(client, "a"), contents(client, "b")) == ([1], [2])


def test_a_commit_that_was_only_logged_is_applied_at_the_next_start(
    client: PersistClient, monkeypatch: pytest.MonkeyPatch
):
    tables = opened(client)
    monkeypatch.setattr(tables, "_apply", lambda: None)
    tables.commit([write("a", 1), write("b", 1)])
    assert contents(client, "a") == []
    opened(client, epoch=2)
    assert (contents(client, "a"), contents(client, "b")) == ([1], [1])


def test_a_commit_that_could_not_be_applied_is_applied_before_the_next(
    client: PersistClient, monkeypatch: pytest.MonkeyPatch
):
    tables = opened(client)
    with monkeypatch.context() as patch:
        patch.setattr(tables._tables["b"], "append", failing)
        tables.commit([write("a", 1), write("b", 1)])
        with pytest.raises(Unavailable):
            tables.commit([])
    tables.commit([write("a", 2)])
    assert (contents(client, "a"), contents(client, "b")) == ([1, 2], [1])


def test_taking_over_from_one_that_still_writes(
    client: PersistClient, monkeypatch: pytest.MonkeyPatch
):
    old = opened(client)
    new = Tables(client, "txns", epoch=2)
    recover, late = new._recover, [write("a", 1), write("b", 1)]

    def overtaken() -> None:
        recover()
        if late:
            old.commit([late.pop()])

    monkeypatch.setattr(new, "_recover", overtaken)
    new.open(SHARDS)
    with pytest.raises(Fenced):
        old.commit([write("a", 9)])
    assert (contents(client, "a"), contents(client, "b")) == ([1], [1])
