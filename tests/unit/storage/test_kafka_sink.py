"""A sink's messages, replayed up to any time, are the collection at that time."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.clock import ManualClock
from tidemark.errors import DataError, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.persist.updates import DIFF, ERR, TIME
from tidemark.storage.kafka import messages as making
from tidemark.storage.kafka import sink as sending
from tidemark.storage.kafka.broker import TopicLost
from tidemark.storage.kafka.messages import AT, CLASH, KEY, VALUE, Messages, Place
from tidemark.storage.kafka.sink import Progress
from tidemark.storage.kafka.spec import KafkaConnection, KafkaSink
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    SqlType,
    arrow_schema,
    numeric,
)

COLUMNS = (Column("k", BIGINT), Column("v", TEXT))
END = 30

Update = tuple[int | None, str, int, int]


def sink(**options: Any) -> KafkaSink:
    given = {"columns": COLUMNS, "key": ("k",), "as_of": 5, **options}
    return KafkaSink(id="u1", connection=KafkaConnection("nowhere"), topic="t", shard="s", **given)


def write(client: PersistClient, updates: list[Update], upper: int, *, error_at: int = -1) -> None:
    """Updates of k and v, appended in several batches."""
    schema = arrow_schema(COLUMNS)
    writer = client.open_writer("s", schema=schema, key=("k",))
    for at in range(0, upper, 4):
        until = min(at + 4, upper)
        rows: list[tuple] = [(*u, None) for u in updates if at <= u[2] < until]
        if at <= error_at < until:
            rows.append((None, None, error_at, 1, "division by zero"))
        names = ["k", "v", TIME, DIFF, ERR]
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        table = pa.table(columns, schema=writer.schema)
        writer.append(table, lower=Frontier(at), upper=Frontier(until))


def history(seed: int) -> list[Update]:
    """A random one in which every key has one row at most."""
    chance = random.Random(seed)
    rows: dict[int | None, str] = {}
    updates: list[Update] = []
    for time in range(END):
        for key in chance.sample([None, *range(8)], chance.randrange(4)):
            old = rows.pop(key, None)
            new = chance.choice([None, "a", "b", 'é"\\\n'])
            if old is not None:
                updates.append((key, old, time, -1))
            if new is not None:
                updates.append((key, new, time, 1))
                rows[key] = new
    return updates


def at_time(updates: list[Update], time: int) -> dict[int | None, str]:
    counts: dict[tuple[int | None, str], int] = {}
    for key, value, when, diff in updates:
        if when <= time:
            counts[key, value] = counts.get((key, value), 0) + diff
    return {key: value for (key, value), count in counts.items() if count}


def read(
    made: KafkaSink, client: PersistClient, spark: SparkSession, place: Place, upper: int
) -> tuple[list[dict[str, Any]], Frontier]:
    with Messages(made, client, spark).read(place, Frontier(upper)) as chunks:
        found = [message for table in chunks.tables for message in table.to_pylist()]
        return found, chunks.upper


def everything(made: KafkaSink, client: PersistClient, spark: SparkSession) -> list[dict[str, Any]]:
    first, _ = read(made, client, spark, Place(made.as_of), made.as_of + 1)
    middle, _ = read(made, client, spark, Place(made.as_of + 1), 17)
    last, _ = read(made, client, spark, Place(17), END)
    return first + middle + last


@pytest.mark.parametrize("chunk_bytes", [making.CHUNK_BYTES, 500])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_messages_replayed_are_the_collection_at_every_time(
    seed: int,
    chunk_bytes: int,
    client: PersistClient,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(making, "CHUNK_BYTES", chunk_bytes)
    updates = history(seed)
    write(client, updates, END)
    upserts = everything(sink(), client, spark)
    events = everything(sink(envelope="debezium", unique=True), client, spark)
    assert [(m[AT], m[KEY]) for m in upserts] == [(m[AT], m[KEY]) for m in events]
    places = [(m[AT], m[KEY].encode()) for m in upserts]
    assert places == sorted(set(places))
    assert not any(m[CLASH] for m in upserts + events)

    rows: dict[str, str] = {}
    for time in range(5, END):
        for upsert, event in zip(upserts, events, strict=True):
            if upsert[AT] != time:
                continue
            key, after = upsert[KEY], upsert[VALUE] and json.loads(upsert[VALUE])
            change = json.loads(event[VALUE])
            before = rows.get(key)
            assert (change["before"] and change["before"]["v"]) == before
            assert (change["after"], change["ts_ms"]) == (after, time)
            assert change["op"] == ("c" if before is None else "u" if after else "d")
            rows.pop(key, None)
            if after:
                rows[key] = after["v"]
                assert {"k": after["k"]} == json.loads(key)
        assert {json.loads(k)["k"]: v for k, v in rows.items()} == at_time(updates, time)


def test_what_comes_after_any_place_is_the_rest(client: PersistClient, spark: SparkSession) -> None:
    write(client, history(4), END)
    first, _ = read(sink(), client, spark, Place(5), 6)
    later, _ = read(sink(), client, spark, Place(6), END)
    for sent, upper in ((first, 6), (later, END)):
        for at in range(0, len(sent), 12):
            place = Place(sent[at][AT], sent[at][KEY])
            assert read(sink(), client, spark, place, upper)[0] == sent[at + 1 :]


@pytest.mark.parametrize(
    ("updates", "place", "time"),
    [
        ([(1, "a", 1, 1), (1, "b", 2, 1)], 5, 5),
        ([(1, "a", 1, 2)], 5, 5),
        ([(1, "a", 7, 2)], 6, 7),
        ([(1, "a", 7, 1), (1, "b", 7, 1)], 6, 7),
        ([(1, "a", 7, 1), (1, "b", 9, 1)], 6, 9),
        ([(1, "a", 1, 1), (1, "b", 9, 1)], 6, 9),
        ([(None, "a", 1, 1), (None, "b", 9, 1)], 6, 9),
        ([(1, "a", 1, 1), (1, "a", 7, -1), (1, "b", 8, 1), (1, "c", 9, 1)], 6, 9),
    ],
)
def test_several_rows_of_a_key_clash(
    updates: list[Update], place: int, time: int, client: PersistClient, spark: SparkSession
) -> None:
    write(client, [*updates, (2, "x", 8, 1)], 12)
    upper = 6 if place == 5 else 12
    found, _ = read(sink(), client, spark, Place(place), upper)
    assert [m[AT] for m in found if m[CLASH]] == [time]


def test_several_rows_of_a_key_clash_after_a_cut_between_them(
    client: PersistClient, spark: SparkSession
) -> None:
    write(client, [(1, "a", 1, 1), (1, "b", 2, 1), (2, "x", 3, 1)], 12)
    found, _ = read(sink(), client, spark, Place(5, '{"k":1}'), 6)
    assert [(m[KEY], m[CLASH]) for m in found] == [('{"k":1}', True), ('{"k":2}', False)]


def test_a_snapshot_comes_in_several_chunks(
    client: PersistClient, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "CHUNK_BYTES", 500)
    write(client, [(k, "a", k % 5, 1) for k in range(100)], 12)
    with Messages(sink(), client, spark).read(Place(5), Frontier(6)) as chunks:
        rows = [table.num_rows for table in chunks.tables]
    assert (sum(rows), len(rows) > 2) == (100, True)


def test_an_error_lets_pass_what_was_before_it_and_nothing_else(
    client: PersistClient, spark: SparkSession
) -> None:
    write(client, [(1, "a", 1, 1), (2, "b", 7, 1), (3, "c", 9, 1)], 12, error_at=9)
    found, upper = read(sink(), client, spark, Place(6), 12)
    assert ([m[AT] for m in found], upper) == ([7], Frontier(9))
    with pytest.raises(DataError, match="at time 9: division by zero"):
        read(sink(), client, spark, Place(9), 12)
    with pytest.raises(DataError, match="division by zero"):
        read(sink(as_of=10), client, spark, Place(10), 11)


def test_nothing_happened(client: PersistClient, spark: SparkSession) -> None:
    write(client, [(1, "a", 1, 1)], 12)
    assert read(sink(), client, spark, Place(6), 12) == ([], Frontier(12))


def test_every_type_as_json(client: PersistClient, spark: SparkSession) -> None:
    moment = datetime(2024, 2, 29, 23, 59, 59, 123456)
    row: dict[str, tuple[SqlType, Any, Any]] = {
        "n": (BIGINT, 2**62 + 1, 2**62 + 1),
        "flag": (BOOLEAN, True, True),
        "bare": (NUMERIC, Decimal("100.50"), "100.5"),
        "whole": (NUMERIC, Decimal(100), "100"),
        "money": (numeric(10, 2), Decimal("1.50"), "1.50"),
        "nan": (DOUBLE, float("nan"), "NaN"),
        "zero": (DOUBLE, -0.0, 0.0),
        "bytes": (BYTEA, b"\x00\xff", base64.b64encode(b"\x00\xff").decode()),
        "doc": (JSONB, '{"b": [1, null], "a": 2.5}', {"b": [1, None], "a": 2.5}),
        "day": (DATE, date(2024, 2, 29), "2024-02-29"),
        "local": (TIMESTAMP, moment, "2024-02-29T23:59:59.123456"),
        "instant": (TIMESTAMPTZ, moment.replace(tzinfo=UTC), "2024-02-29T23:59:59.123456Z"),
        "none": (TEXT, None, None),
        "odd `name": (TEXT, "x", "x"),
    }
    columns = tuple(Column(name, kind) for name, (kind, _, _) in row.items())
    writer = client.open_writer("s", schema=arrow_schema(columns))
    values = {name: [given] for name, (_, given, _) in row.items()}
    table = pa.table({**values, TIME: [3], DIFF: [1], ERR: [None]}, schema=writer.schema)
    writer.append(table, lower=Frontier(0), upper=Frontier(6))
    made = sink(columns=columns, key=tuple(row))
    ((message), *_), _ = read(made, client, spark, Place(5), 6)
    assert json.loads(message[VALUE]) == {name: wanted for name, (_, _, wanted) in row.items()}
    assert message[KEY] == message[VALUE]


def test_a_sink_that_contradicts_itself_is_refused() -> None:
    for wrong in ({"key": ()}, {"key": ("nope",)}, {"key": ("k", "k")}, {"progress_topic": "t"}):
        with pytest.raises(InvalidUsage):
            sink(**wrong).check()
    sink().check()


class LateBroker:
    """Does not know the topic for some answers."""

    def __init__(self, late: int):
        self.late = late

    def topic_id(self) -> str:
        self.late -= 1
        if self.late >= 0:
            raise TopicLost("no such topic")
        return "id"


FRESH, SENT = Progress(1, 5), Progress(1, 9, topic="id")


@pytest.mark.parametrize(
    ("late", "progress", "outcome"),
    [
        (0, FRESH, "id"),
        (2, FRESH, "id"),
        (9, FRESH, Unavailable),
        (0, SENT, "id"),
        (1, SENT, DataError),
    ],
)
def test_a_topic_that_was_just_made_is_waited_for_and_one_that_was_sent_to_is_lost(
    late: int, progress: Progress, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SYSTEM_CLOCK", ManualClock(0))
    topics = sending._Topics(sink())
    monkeypatch.setattr(topics, "_broker", LateBroker(late))
    if isinstance(outcome, str):
        assert topics._checked(progress) == outcome
    else:
        with pytest.raises(outcome):
            topics._checked(progress)
