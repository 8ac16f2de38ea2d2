"""Text, CSV and JSON into columns: good, bad and odd messages, small and large."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from decoding import (
    COLUMNS,
    CSV,
    Decode,
    good,
    is_absent,
    reason,
    values,
)

from tidemark.compute.jsonb import canonical
from tidemark.errors import InvalidUsage
from tidemark.storage.kafka.decode import decoder
from tidemark.storage.kafka.spec import Format
from tidemark.types import (
    INTEGER,
    TEXT,
    Column,
)

# Text, bytes, CSV


def test_text_is_utf8(decode: Decode):
    rows = decode(Format("text"), [b"", "ü\x00".encode(), b"\xff", b"a\xed\xa0\x80", None])
    assert [good(row) for row in rows[:2]] == ["", "ü\x00"]
    assert [reason(row) for row in rows[2:4]] == ["invalid UTF-8"] * 2
    assert is_absent(rows[4])


def test_bytes_are_anything(decode: Decode):
    rows = decode(Format("bytes"), [b"", b"\xff\x00", None])
    assert [good(row) for row in rows[:2]] == [b"", b"\xff\x00"]
    assert is_absent(rows[2])


def test_an_error_shows_the_start_of_its_message(decode: Decode):
    short, long = decode(Format("text"), [b"a\xff", b"\xfe" * 300])
    assert short["_error"] == (
        'Failed to decode text: invalid UTF-8 (original text: a�, original bytes: "61ff")'
    )
    assert f'"{"fe" * 256}...")' in long["_error"]


def test_csv(decode: Decode):
    cases = {
        b"1,2": ["1", "2"],
        b"1,2\r\n": ["1", "2"],
        b",": ["", ""],
        b' a ,"b"': [" a ", "b"],
        b'"a,b",c': ["a,b", "c"],
        b'"a""b",""': ['a"b', ""],
        b'"""",c': ['"', "c"],
        b'"a\nb",c': ["a\nb", "c"],
        b"\\,$1": ["\\", "$1"],
    }
    assert [good(row) for row in decode(CSV, list(cases))] == list(cases.values())


def test_bad_csv(decode: Decode):
    cases = {
        b"": "expected 2 fields, found 1",
        b"1": "expected 2 fields, found 1",
        b"1,2,3": "expected 2 fields, found 3",
        b'"1,2",3,4': "expected 2 fields, found 3",
        b"1,2\n3,4": "more than one record in a message",
        b"1,2\n\n": "more than one record in a message",
        b'"1,2': "a quote is not closed",
        b'a"b",c': "a quote in the middle of a field",
        b'"a"b,c': "a quote in the middle of a field",
        b"a\x00,b": "a NUL character",
        b"\xff,b": "invalid UTF-8",
    }
    assert [reason(row) for row in decode(CSV, list(cases))] == list(cases.values())


def test_csv_of_another_delimiter(decode: Decode):
    format = Format("csv", (Column("a", TEXT), Column("b", TEXT)), delimiter="|")
    assert good(decode(format, [b"1,|2"])[0]) == ["1,", "2"]
    with pytest.raises(InvalidUsage, match="one character"):
        decoder(Format("csv", (Column("a", TEXT),), delimiter="||"))


# JSON


def test_json_document_is_canonical_jsonb(decode: Decode):
    cases = {
        b'{"b": 1.50, "a": [true, null, {}]}': '{"a":[true,null,{}],"b":1.5}',
        b" null ": "null",
        b"12345678901234567890123456789012345678": "12345678901234567890123456789012345678",
        b"0.1": "0.1",
        b"-0.0": "0",
        b"1e3": "1000.0",
        b"1e-400": "0.0",
        b'"Infinity \\" 1e400 1111111111111111111111111111111111111111111"': (
            '"Infinity \\" 1e400 1111111111111111111111111111111111111111111"'
        ),
        '{"é": "\\u00e9\\u0000"}'.encode(): '{"é":"é\\u0000"}',
        '{"𝒳": 1, "\uffee": 2}'.encode(): '{"𝒳":1,"\uffee":2}',
    }
    rows = decode(Format("json"), list(cases))
    assert [good(row) for row in rows] == list(cases.values())
    assert [canonical(message.decode()) for message in cases] == list(cases.values())


def test_bad_json(decode: Decode):
    twice = b'{"a":1,"a":2}'
    malformed = [
        *(b"", b" ", b"{", b'{"a":1} x', b"1 2", b"1,2", b"1],[2", b'1},"":{', b"{'a':1}", b"01"),
        *(b"[1,]", b"NaN", b'"\n"', b'"\\ud800"', b"1/**/", b"\xef\xbb\xbf1"),
        *(twice, b"[" * 5_000 + b"]" * 5_000),
    ]
    rows = decode(Format("json"), malformed)
    assert {reason(row) for row in rows} == {"malformed JSON"}
    assert canonical(twice.decode()) == '{"a":2}', "in SQL the last one counts, as in PostgreSQL"
    for message in malformed[:-2]:
        with pytest.raises(ValueError):
            canonical(message.decode())
    (row,) = decode(Format("json"), [b'"\xff"'])
    assert reason(row) == "invalid UTF-8"


def test_numbers_that_jsonb_cannot_keep_are_errors(decode: Decode):
    messages = [b"1e400", b"[-9e308]", b'{"a": 1' + b"0" * 38 + b"}", b"0." + b"1" * 39]
    rows = decode(Format("json"), messages)
    assert {reason(row) for row in rows} == {"a number is too large to be kept exactly"}
    for message in messages:
        with pytest.raises(ValueError):
            canonical(message.decode())


def only(row: dict[str, Any]) -> Any:
    """The one value that is not null."""
    good(row)
    (found,) = [value for value in values(row) if value is not None]
    return found


def test_json_columns(decode: Decode):
    moment = dt.datetime(2024, 2, 29, 10, 11, 12, 123456)
    cases = {
        '{"i": -1, "other": [{"i": 2}]}': -1,
        '{"\\u0069": 7}': 7,
        '{"i": 1, "i": 2}': 2,
        '{"l": 9223372036854775807}': 2**63 - 1,
        '{"d": 1}': 1.0,
        '{"n": 1.5}': Decimal("1.5"),
        '{"n": "1.5"}': Decimal("1.5"),
        '{"n": 1234567890123456789012.1234567890123456}': Decimal(
            "1234567890123456789012.1234567890123456"
        ),
        '{"m": 0.05}': Decimal("0.1"),
        '{"t": "x\\ny"}': "x\ny",
        '{"t": 12345678901234567890.10}': "12345678901234567890.1",
        '{"t": {"b": 1, "a": 2}}': '{"a":2,"b":1}',
        '{"j": "x"}': '"x"',
        '{"j": {"b": 1, "a": [1, null]}}': '{"a":[1,null],"b":1}',
        '{"b": false}': False,
        '{"day": "2024-02-29"}': moment.date(),
        '{"day": "2024-02-29T23:59:59Z"}': moment.date(),
        '{"ts": "2024-02-29T10:11:12.123456789Z"}': moment,
        '{"ts": "2024-02-29 10:11:12.123456+02:00"}': moment,
        '{"ts": "2024-02-29"}': dt.datetime(2024, 2, 29),
        '{"tz": "2024-02-29T12:11:12.123456+02:00"}': moment,
        '{"tz": "2024-02-29 10:11:12.123456"}': moment,
        '{"tz": "2024-02-29T10:11Z"}': dt.datetime(2024, 2, 29, 10, 11),
        '{"tz": "2024-02-29"}': dt.datetime(2024, 2, 29),
        '{"y": "3q0="}': b"\xde\xad",
    }
    rows = decode(Format("json", COLUMNS), [case.encode() for case in cases])
    assert [only(row) for row in rows] == list(cases.values())


def test_json_nulls(decode: Decode):
    messages = [b"{}", b'{"i":null,"t":null,"j":null,"ts":null,"y":null}', None]
    rows = decode(Format("json", COLUMNS), messages)
    assert [set(good(row)) for row in rows[:2]] == [{None}, {None}]
    assert is_absent(rows[2])


def test_mistyped_json_names_the_column(decode: Decode):
    cases = {
        "i": ['"1"', "1.0", "2147483648", "true", "[]", "1e2"],
        "l": ["9223372036854775808"],
        "d": ["1e400", '"NaN"', '"1"'],
        "n": ["1e30", "1e999999999", '"x"', "true"],
        "m": ["1000"],
        "t": ['"\\ud800"'],
        "j": ['{"a":1,"a":2}'],
        "b": ["1", '"true"'],
        "day": ['"2024-02-30"', "2024", '"2024"', '"0000-01-01"'],
        "ts": ['"10:11"', '"T10:11"', '"now"', "1"],
        "tz": ['"10:11"', '"2024-02-29T25:00"', "1700000000"],
        "y": ['"!"', "1"],
    }
    named = [(name, text) for name, texts in cases.items() for text in texts]
    rows = decode(Format("json", COLUMNS), [f'{{"{n}":{text}}}'.encode() for n, text in named])
    for (name, _), row in zip(named, rows, strict=True):
        assert reason(row).startswith(f'"{name}" is not a valid ')


def test_what_is_not_a_json_object(decode: Decode):
    cases = {
        **dict.fromkeys((b"", b"{", b'{"i":1', b'{"i":1} x', b'{"i":1}{}'), "malformed JSON"),
        **dict.fromkeys((b'{"i":1},{}', b'{"i":1}],[{}', b'{"i":1},"x":1'), "malformed JSON"),
        **dict.fromkeys((b"1", b"null", b"[]", b'[{"i":1}]'), "not a JSON object"),
        b'{"t":"\xff"}': "invalid UTF-8",
        b'{"j":1e400}': "a number is too large to be kept exactly",
    }
    rows = decode(Format("json", COLUMNS), list(cases))
    assert [reason(row) for row in rows] == list(cases.values())


def test_debezium_json(decode: Decode):
    format = Format("json", (Column("i", INTEGER), Column("t", TEXT)))
    present = [
        b'{"before":{"i":"?"},"after":{"i":1,"t":"x"},"op":"c"}',
        b'{"schema":{},"payload":{"before":null,"after":{"i":1,"t":"x"}}}',
    ]
    absent = [None, b'{"after":null}', b'{"payload":{"after":null}}', b'{"payload":null}']
    wrong = [
        b'{"op":"t"}',
        b'{"payload":{"op":"t"}}',
        b"{}",
        b'{"after":{"i":"x"}}',
        b'{"after":1}',
    ]
    rows = decode(format, [*present, *absent, *wrong], debezium=True)
    assert [good(row) for row in rows[:2]] == [[1, "x"]] * 2
    assert all(is_absent(row) for row in rows[2:6])
    assert [reason(row) for row in rows[6:]] == [
        *["not a change event: it has no `after`"] * 3,
        '"i" is not a valid integer',
        "malformed JSON",
    ]
    rows = decode(Format("json"), [*present, *absent, *wrong[:3]], debezium=True)
    assert [good(row) for row in rows[:2]] == ['{"i":1,"t":"x"}'] * 2
    assert all(is_absent(row) for row in rows[2:6])
    assert {reason(row) for row in rows[6:]} == {"not a change event: it has no `after`"}
