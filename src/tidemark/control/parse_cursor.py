"""DECLARE, FETCH and CLOSE; PREPARE and EXECUTE: what SQL keeps by name in a session.

The queries within are read by whoever calls: `rows` reads a SELECT or SUBSCRIBE, `statement`
whatever may be prepared.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.compute.sql.dialect import parse_tokens, tokenize
from tidemark.control import statements as s
from tidemark.control.clauses import column_type, options
from tidemark.control.cursor import Cursor
from tidemark.control.variables import timeout_seconds
from tidemark.errors import SqlError, Unsupported
from tidemark.types import SqlType

_BACKWARD = ("BACKWARD", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "-")


def declare(cursor: Cursor, rows: Callable[[Cursor], s.Select | s.Subscribe]) -> s.Declare:
    cursor.expect("DECLARE")
    name = cursor.word()
    binary = cursor.take("BINARY")
    _ = cursor.take("INSENSITIVE") or cursor.take("ASENSITIVE")
    cursor.take("NO SCROLL")
    if cursor.looking_at("SCROLL"):
        raise Unsupported("scrollable cursors are not supported", hint="declare it NO SCROLL")
    cursor.expect("CURSOR")
    hold = cursor.take("WITH HOLD")
    if not hold:
        cursor.take("WITHOUT HOLD")
    cursor.expect("FOR")
    statement = rows(cursor)
    if hold and isinstance(statement, s.Subscribe):
        raise Unsupported(
            "a cursor WITH HOLD cannot be of a SUBSCRIBE, which has no end to be kept",
            hint="leave WITH HOLD out, and FETCH within the transaction",
        )
    return s.Declare(name, statement, hold, binary)


def fetch(cursor: Cursor) -> s.Fetch:
    cursor.expect("FETCH")
    count = _count(cursor)
    _ = cursor.take("FROM") or cursor.take("IN")
    name = cursor.word()
    timeout = None
    if cursor.take("WITH"):
        for option, value in options(cursor):
            if option != "timeout":
                raise Unsupported(
                    f"FETCH option {option.upper()} is not supported", hint="supported: TIMEOUT"
                )
            # An interval, of which a bare number is seconds.
            timeout = timeout_seconds(value if value[-1:].isalpha() else f"{value}s", "timeout")
    return s.Fetch(name, count, timeout)


def _count(cursor: Cursor) -> int | None:
    """How many rows, of which None is all. `FETCH all` could name a cursor; it does not."""
    if any(cursor.looking_at(word) for word in _BACKWARD) and cursor.peek(1) is not None:
        raise SqlError(
            "cursor can only scan forward", hint="use FETCH [FORWARD] n", sqlstate="55000"
        )
    if cursor.take("NEXT"):
        return 1
    cursor.take("FORWARD")
    if cursor.take("ALL"):
        return None
    following = cursor.peek()
    if following is None or not following.text.isdecimal():
        return 1
    count = cursor.integer()
    if count == 0:
        raise Unsupported("FETCH 0 is not supported", hint="fetch at least one row")
    return count


def close(cursor: Cursor) -> s.CloseCursor:
    cursor.expect("CLOSE")
    return s.CloseCursor(None if cursor.take("ALL") else cursor.word())


def prepare(cursor: Cursor, statement: Callable[[Cursor], s.Statement]) -> s.Prepare:
    cursor.expect("PREPARE")
    name = cursor.word()
    types: list[SqlType] = []
    if cursor.take("("):
        types.append(column_type(cursor))
        while cursor.take(","):
            types.append(column_type(cursor))
        cursor.expect(")")
    cursor.expect("AS")
    if cursor.peek() is None:
        raise cursor.error()
    return s.Prepare(name, tuple(types), cursor.text_until(len(cursor.tokens)), statement(cursor))


def execute(cursor: Cursor) -> s.ExecutePrepared:
    """The arguments are kept as the query `SELECT argument, …`."""
    cursor.expect("EXECUTE")
    name = cursor.word()
    arguments = None
    if cursor.take("(") and not cursor.take(")"):
        end = cursor.find()
        if end == cursor.at:
            raise cursor.error()
        tokens = [*tokenize("SELECT"), *cursor.tokens[cursor.at : end]]
        sql = f"SELECT {cursor.text_until(end)}"
        arguments = s.Query(parse_tokens(tokens, cursor.sql), sql)
        cursor.at = end
        cursor.expect(")")
    return s.ExecutePrepared(name, arguments)
