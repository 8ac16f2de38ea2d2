"""Protobuf into columns, and bad messages told from the good ones beside them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from decoding import (
    ALL,
    ALL_COLUMNS,
    PROTO,
    REGISTRY,
    All,
    Decode,
    all_of,
    framed,
    good,
    is_absent,
    reason,
)

from tidemark.errors import InvalidUsage, Unsupported
from tidemark.storage.kafka.decode import protobuf_columns
from tidemark.storage.kafka.spec import Format


def test_protobuf(decode: Decode):
    plain, empty, absent = decode(ALL, [all_of().SerializeToString(), b"", None])
    good(plain)
    assert {k: bytes(v) if k == "bytes" else v for k, v in list(plain.items())[2:]} == {
        **{"bool": True, "double": 2.5, "float": 1.5, "bytes": b"\xff", "string": "é"},
        **{"uint64": Decimal(2**64 - 1), "uint32": 2**32 - 1, "int64": 2, "int32": -1},
        **{"e": "ONE", "sub": '{"u":4294967295}', "subs": '[{"u":1}]', "kv": '{"a":2,"b":1}'},
        **{"ts": dt.datetime(1970, 1, 1, 0, 0, 5), "w": Decimal(2**64 - 1)},
    }
    assert (empty["_error"], empty["int32"], empty["string"], empty["e"]) == (None, 0, "", "ZERO")
    assert (empty["sub"], empty["ts"], empty["w"], empty["subs"]) == (None, None, None, "[]")
    assert is_absent(absent)


def test_bad_protobuf_is_told_from_the_good_beside_it(decode: Decode):
    whole = all_of().SerializeToString()
    bad = {7: whole[:-1], 8: b"\x2a\x01\xff", 31: b"\x08", 99: b"\x00"}
    rows = decode(ALL, [bad.get(i, whole) for i in range(100)])
    assert {i for i, row in enumerate(rows) if row["_error"]} == set(bad)
    assert reason(rows[8]) == "invalid UTF-8"
    assert len({repr(good(row)) for i, row in enumerate(rows) if i not in bad}) == 1
    late = All()
    late.ts.seconds = 2**40
    (row,) = decode(ALL, [late.SerializeToString()])
    assert reason(row) == '"ts" is not a valid timestamp'


def test_framed_protobuf(decode: Decode):
    whole = all_of().SerializeToString()
    format = Format("protobuf", ALL_COLUMNS, schema=PROTO, message="p.All", registry=REGISTRY)
    messages = [
        framed(1, b"\x02\x02" + whole),
        framed(1, b"\x00" + whole),
        b"\x00\x00",
        b"\x01" * 9,
    ]
    rows = decode(format, [*messages, None])
    assert good(rows[0])
    assert [reason(row) for row in rows[1:4]] == [
        "it is not a p.All, but another message of its schema",
        "too short for a schema id",
        "it does not begin with 0x00",
    ]
    assert is_absent(rows[4])
    columns = protobuf_columns(PROTO, "p.Sub")
    first = Format("protobuf", columns, schema=PROTO, message="p.Sub", registry=REGISTRY)
    rows = decode(first, [framed(9, b"\x00\x08\x05"), framed(9, b"\x02\x00\x08\x05")])
    assert [good(row) for row in rows] == [5, 5]


def test_protobuf_schemas_that_are_refused():
    with pytest.raises(Unsupported, match="contains itself"):
        protobuf_columns(PROTO, "p.Loop")
    with pytest.raises(InvalidUsage, match="no message"):
        protobuf_columns(PROTO, "p.None")
    with pytest.raises(InvalidUsage, match="base64"):
        protobuf_columns("?", "p.All")
