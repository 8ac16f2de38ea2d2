"""Random histories of an upsert topic, and what they mean: the model that sources are held to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

import pyarrow as pa

from tidemark.storage.kafka.spec import Format, KafkaConnection, KafkaSource
from tidemark.storage.remap import Binding
from tidemark.types import BIGINT, TEXT, Column

KEY = Format("json", (Column("id", BIGINT), Column("part", TEXT)))
VALUE = Format("json", (Column("amount", BIGINT), Column("note", TEXT)))

GARBAGE = (b"", b"{", b"\xff\xfe", b"[1]", b'{"amount": "x"}', b'{"amount": 1}}', b"nonsense")
BAD_KEYS = (b"?", b"\xff", b'{"id": "x"}')


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None


def source(**changes: object) -> KafkaSource:
    fields = {
        "id": "s",
        "connection": KafkaConnection("unused"),
        "topic": "t",
        "value": VALUE,
        "key": KEY,
        "envelope": "upsert",
        "remap": "remap",
        "output": "out",
    }
    return KafkaSource(**{**fields, **changes})  # type: ignore[arg-type]


def random_message(random: Random, keys: int) -> Sent:
    kind = random.random()
    # The same key in two spellings is one key.
    number, part = random.randrange(keys), random.choice([None, "a"])
    given = {"id": number, "part": part} if random.random() < 0.5 else {"part": part, "id": number}
    key: bytes | None = json.dumps(given, indent=random.choice([None, 1])).encode()
    if kind < 0.03:
        key = random.choice(BAD_KEYS)
    elif kind < 0.05:
        key = None
    kind = random.random()
    if kind < 0.2:
        return Sent(key, None)
    if kind < 0.28:
        return Sent(key, random.choice(GARBAGE))
    value = {"amount": random.randrange(100), "note": random.choice(["x", "ü", None, ""])}
    return Sent(key, json.dumps(value).encode())


Row = tuple[int | None, str | None, int | None, str | None]


class Expected(NamedTuple):
    rows: Counter[Row]
    errors: int


def replayed(topic: Sequence[Mapping[int, Sent]], bindings: Sequence[Binding]) -> list[Expected]:
    """What the collection holds at each binding; `topic[partition]` is messages by offset."""
    state: dict[object, Row | None] = {}
    before: Mapping[int, int] = {}
    result = []
    for binding in bindings:
        for partition, messages in enumerate(topic):
            start, stop = before.get(partition, 0), binding.offsets.get(partition, 0)
            for offset in sorted(o for o in messages if start <= o < stop):
                _apply(state, messages[offset])
        before = binding.offsets
        rows = Counter(row for row in state.values() if row is not None)
        result.append(Expected(rows, sum(row is None for row in state.values())))
    return result


def _apply(state: dict[object, Row | None], message: Sent) -> None:
    """A key's row, or None for an error."""
    key = _parsed(message.key, {"id": int, "part": str})
    identity: object = message.key if key is None else tuple(key)
    if message.value is None:
        state.pop(identity, None)
        return
    value = _parsed(message.value, {"amount": int, "note": str})
    state[identity] = None if key is None or value is None else (*key, *value)  # type: ignore[misc]


def _parsed(data: bytes | None, fields: Mapping[str, type]) -> list[object] | None:
    try:
        found = json.loads((data or b"").decode())
        assert isinstance(found, dict)
        values = [found.get(name) for name in fields]
        for value, kind in zip(values, fields.values(), strict=True):
            assert value is None or isinstance(value, kind)
        return values
    except (ValueError, AssertionError):
        return None


def stored(table: pa.Table) -> Expected:
    """What a snapshot of the collection says."""
    rows: Counter[Row] = Counter()
    errors = 0
    for row in table.to_pylist():
        if row["_err"] is None:
            rows[(row["id"], row["part"], row["amount"], row["note"])] += row["_diff"]
        else:
            errors += row["_diff"]
    return Expected(rows, errors)
