"""COPY, with its options in both of the spellings that clients use.

COPY t (a, b) FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';')
COPY t (a, b) FROM STDIN DELIMITER ';' CSV HEADER
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot.tokenizer_core import TokenType

from tidemark.compute.sql.dialect import parse_tokens, tokenize, without_places
from tidemark.control import statements as s
from tidemark.control.clauses import column_names
from tidemark.control.cursor import Cursor
from tidemark.control.pgwire import CopyOptions
from tidemark.errors import SqlError, Unsupported

_STRINGS = (TokenType.STRING, TokenType.BYTE_STRING)


def copy(cursor: Cursor, rows: Callable[[Cursor], s.Select | s.Subscribe]) -> s.CopyTo | s.CopyFrom:
    cursor.expect("COPY")
    if cursor.take("("):
        statement = rows(cursor)
        cursor.expect(")")
    else:
        table, columns = cursor.name(), column_names(cursor)
        if cursor.take("FROM"):
            _standard(cursor, "STDIN", "from")
            given = _options(cursor)
            if cursor.looking_at("WHERE"):
                raise Unsupported("COPY ... FROM ... WHERE is not supported", hint="leave it out")
            return s.CopyFrom(table, columns, _checked(given))
        statement = _select_all(table, columns)
    cursor.expect("TO")
    _standard(cursor, "STDOUT", "to")
    how = _checked(_options(cursor))
    if how.header == "match":
        raise Unsupported('cannot use "match" with HEADER in COPY TO', hint="HEADER writes one")
    return s.CopyTo(statement, how)


def _standard(cursor: Cursor, stream: str, direction: str) -> None:
    if not cursor.take(stream):
        raise Unsupported(
            f"COPY {direction} a file or program of the server is not supported",
            hint=rf"use {direction.upper()} {stream}, or psql's \copy",
        )


def _select_all(table: s.Name, columns: tuple[str, ...]) -> s.Select:
    """`COPY t` and `COPY t (a, b)`: a query of the relation's columns."""
    listed = ", ".join(_quoted(column) for column in columns) or "*"
    sql = f"SELECT {listed} FROM {'.'.join(_quoted(part) for part in table)}"
    return s.Select(s.Query(without_places(parse_tokens(tokenize(sql), sql)), sql))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _options(cursor: Cursor) -> dict[str, str]:
    """Option values by name, in lower case; a flag's is `true`."""
    given: dict[str, str] = {}
    with_ = cursor.take("WITH")
    if cursor.take("("):
        while True:
            name = _known(cursor.word())
            bare = cursor.looking_at(",") or cursor.looking_at(")")
            _give(given, name, "true" if bare else _value(cursor))
            if cursor.take(")"):
                return given
            cursor.expect(",")
    if with_ and cursor.peek() is None:
        raise cursor.error()
    while cursor.peek() is not None and not cursor.looking_at("WHERE"):
        name = cursor.word()
        if name in ("csv", "binary"):
            _give(given, "format", name)
        elif name in ("delimiter", "null", "quote", "escape"):
            cursor.take("AS")
            _give(given, name, _string(cursor))
        elif name == "header":
            _give(given, name, "true")
        else:
            cursor.at -= 1
            raise cursor.error()
    return given


def _give(given: dict[str, str], name: str, value: str) -> None:
    if name in given:
        raise SqlError("conflicting or redundant options")
    given[name] = value


def _known(name: str) -> str:
    if name not in ("format", "delimiter", "null", "header", "quote", "escape"):
        raise Unsupported(
            f'COPY option "{name}" is not supported',
            hint="supported: FORMAT, DELIMITER, NULL, HEADER, QUOTE, ESCAPE",
        )
    return name


def _value(cursor: Cursor) -> str:
    token = cursor.next()
    if token.token_type in _STRINGS or token.text.replace("_", "").isalnum():
        return token.text
    cursor.at -= 1
    raise cursor.error()


def _string(cursor: Cursor) -> str:
    token = cursor.next()
    if token.token_type not in _STRINGS:
        cursor.at -= 1
        raise cursor.error()
    return token.text


def _checked(given: dict[str, str]) -> CopyOptions:
    form = given.get("format", "text").lower()
    if form not in ("text", "csv", "binary"):
        raise SqlError(f'COPY format "{form}" not recognized', sqlstate="22023")
    header = _header(given.get("header", "false"))
    if form == "binary" and len(given) > 1:
        raise SqlError("a binary COPY takes no other options", hint="leave them out")
    if form != "csv":
        for name in ("quote", "escape"):
            if name in given:
                raise Unsupported(f"COPY {name} requires CSV mode")
    plain = CopyOptions()
    delimiter = given.get("delimiter", "," if form == "csv" else plain.delimiter)
    null = given.get("null", "" if form == "csv" else plain.null)
    quote = given.get("quote", plain.quote)
    escape = given.get("escape", quote)
    for name, value in (("delimiter", delimiter), ("quote", quote), ("escape", escape)):
        if len(value) != 1 or not value.isascii():
            raise Unsupported(f"COPY {name} must be a single one-byte character")
        if value in "\r\n\0":
            raise SqlError(f"COPY {name} cannot be newline or carriage return", sqlstate="22023")
    if form == "text" and delimiter in "\\.abcdefghijklmnopqrstuvwxyz0123456789":
        raise SqlError(f'COPY delimiter cannot be "{delimiter}"', sqlstate="22023")
    if form == "csv" and delimiter == quote:
        raise SqlError("COPY delimiter and quote must be different", sqlstate="22023")
    if "\r" in null or "\n" in null:
        raise SqlError(
            "COPY null representation cannot use newline or carriage return", sqlstate="22023"
        )
    if delimiter in null or (form == "csv" and quote in null):
        what = "delimiter" if delimiter in null else "CSV quote"
        raise SqlError(
            f"the COPY {what} character must not appear in the NULL specification",
            sqlstate="22023",
        )
    return CopyOptions(
        format=form, delimiter=delimiter, null=null, header=header, quote=quote, escape=escape
    )


def _header(value: str):
    match value.lower():
        case "match":
            return "match"
        case "true" | "on" | "1":
            return "skip"
        case "false" | "off" | "0":
            return "none"
    raise SqlError('header requires a Boolean value or "match"')
