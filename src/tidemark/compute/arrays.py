"""Arrays of one dimension: in PostgreSQL's text, and as they are kept.

    {1,NULL,"a b"}        as PostgreSQL prints it: `read_array`, `array_text`
    ["1",null,"a b"]      as a column keeps it: JSON of the elements' texts
    array('1', NULL, ..)  within an expression in Spark

Rows are grouped, compared and retracted by their values, which takes a text with one spelling.
So every column of an array is such a text, between any two nodes of a plan as in a shard; an
expression reads it (`loaded`) and writes it (`stored`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidemark.compute.expr import Lit
from tidemark.compute.intervals import seconds_of
from tidemark.compute.jsonb import java_double, written
from tidemark.errors import DataError, Unsupported
from tidemark.types import INTERVAL, NUMERIC, SqlType

# Space is what PostgreSQL takes for it here; a no-break space is part of its element.
_SPACE = " \t\n\r\v\f"
_ELEMENT = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^",{}\\]|\\.)*))\s*([,}])', re.DOTALL | re.ASCII
)
_PLAIN = re.compile(r'[^\s",{}\\]+', re.ASCII)


def read_array(text: str) -> list[str | None]:
    """The texts of the elements; raises DataError for what is no array of one dimension."""
    bad = DataError(f'malformed array literal: "{text}"', sqlstate="22P02")
    body = text.strip(_SPACE)
    if not body.startswith("{") or not body.endswith("}"):
        raise bad
    if body[1:-1].strip(_SPACE) == "":
        return []
    if body[1:].lstrip(_SPACE).startswith("{"):
        raise Unsupported("arrays of more than one dimension are not supported")
    found: list[str | None] = []
    at = 1
    while True:
        element = _ELEMENT.match(body, at)
        if element is None:
            raise bad
        quoted, plain, end = element.groups()
        plain = plain and plain.strip(_SPACE)
        if quoted is None and not plain:
            raise bad
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        elif plain.upper() == "NULL":
            found.append(None)
        else:
            found.append(re.sub(r"\\(.)", r"\1", plain, flags=re.DOTALL))
        at = element.end()
        if end == "}":
            break
    if at != len(body):
        raise bad
    return found


def array_text(elements: Sequence[str | None]) -> str:
    return "{" + ",".join("NULL" if each is None else _quoted(each) for each in elements) + "}"


def stored(text: str, type_: SqlType) -> str:
    """A Spark array as a column keeps it; what is no array is left alone."""
    if type_.element is None:
        return text
    element = "CAST(x_ AS STRING)"
    if type_.element == NUMERIC:
        element = f"rtrim('.', rtrim('0', {element}))"
    elif type_.element.name == "bytea":
        element = "lower(hex(x_))"
    return f"to_json(transform({text}, x_ -> {element}))"


def loaded(text: str, type_: SqlType) -> str:
    """A column's array as a Spark array; what is no array is left alone."""
    if type_.element is None:
        return text
    element = f"CAST(x_ AS {type_.element.spark})"
    if type_.element.name == "bytea":
        element = "unhex(x_)"
    return f"transform(from_json({text}, 'ARRAY<STRING>'), x_ -> {element})"


def stored_text(elements: Sequence[str | None], type_: SqlType) -> str:
    """What `stored` gives for elements of these texts, as PostgreSQL prints them."""
    element = type_.element
    assert element is not None
    match element.name:
        case "double precision":
            spell = _java_double
        case "timestamp with time zone":
            spell = _without_zone
        case "interval":
            spell = _seconds
        case "bytea":
            spell = _without_prefix
        case _:
            spell = str
    return written([None if each is None else spell(each) for each in elements])


def _java_double(text: str) -> str:
    value = float(text)
    finite = value == value and abs(value) != float("inf")
    return java_double(value) if finite else text


def _without_zone(text: str) -> str:
    return text.removesuffix("+00")


def _seconds(text: str) -> str:
    return str(seconds_of(Lit(text, INTERVAL)))


def _without_prefix(text: str) -> str:
    return text.removeprefix("\\x")


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.upper() != "NULL":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
