"""Clauses that several statements have: columns, lists of names, options, expressions."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidemark.compute.sql.dialect import identifier, parse_tokens, sql_type, tokenize
from tidemark.control import statements as s
from tidemark.control.checks import moment_ms
from tidemark.control.cursor import Cursor, is_word
from tidemark.errors import SqlError
from tidemark.types import SqlType


def in_cluster(cursor: Cursor) -> str | None:
    return cursor.word() if cursor.take("IN CLUSTER") else None


def as_of(cursor: Cursor) -> s.AsOf | None:
    if not cursor.take("AS OF"):
        return None
    at_least = cursor.take("AT LEAST")
    return s.AsOf(time(cursor), at_least)


def time(cursor: Cursor) -> int:
    """`1794840019700`, or a moment: `'2026-11-16 12:00:19.7'`, also with TIMESTAMP before it."""
    _ = cursor.take("TIMESTAMPTZ") or cursor.take("TIMESTAMP")
    token = cursor.peek()
    if token is not None and token.token_type == TokenType.STRING:
        return moment_ms(cursor.next().text)
    return cursor.integer()


def options(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """`(TICK INTERVAL '100ms', SEED = 42, SNAPSHOT)`: a name of words, then perhaps a value."""
    cursor.expect("(")
    found: list[tuple[str, str]] = []
    while not cursor.take(")"):
        if found:
            cursor.expect(",")
        words: list[str] = []
        value = "true"
        while not (cursor.looking_at(",") or cursor.looking_at(")")):
            token = cursor.next()
            if token.text == "=" and cursor.take("FOR"):  # RETAIN HISTORY = FOR '1 hour'
                words.append("for")
                value = cursor.next().text
                break
            if token.text == "=" or token.token_type in (TokenType.STRING, TokenType.NUMBER):
                value = (cursor.next() if token.text == "=" else token).text
                break
            words.append(token.text.lower())
        if not words or not all(is_word(word) for word in words):
            raise cursor.error()
        if len(words) > 1 and value == "true" and words[-1] in ("true", "false", "on", "off"):
            value = words.pop()
        found.append((" ".join(words), value))
    return tuple(found)


def column_names(cursor: Cursor) -> tuple[str, ...]:
    """`(a, b)`, or nothing."""
    names: list[str] = []
    if cursor.take("("):
        names.append(cursor.word())
        while cursor.take(","):
            names.append(cursor.word())
        cursor.expect(")")
    return tuple(names)


def column_type(cursor: Cursor, *stops: str) -> SqlType:
    """The type of a column: all up to a comma, one of the `stops` or a closing parenthesis."""
    end = cursor.find(",", *stops)
    if end == cursor.at:
        raise cursor.error()
    text, start = cursor.text_until(end), cursor.tokens[cursor.at].start
    cursor.at = end
    sql = f"SELECT CAST(NULL AS {text})"
    try:
        tree = parse_tokens(tokenize(sql), sql)
    except SqlError:
        raise SqlError(f'syntax error at or near "{text}"').at(start) from None
    found = tree.find(exp.DataType)
    try:
        if found is None:
            raise SqlError(f'type "{text}" does not exist', sqlstate="42704")
        return sql_type(found)
    except SqlError as error:
        raise error.at(start) from None


def expression(cursor: Cursor, *stops: str) -> exp.Expr:
    """A scalar expression up to one of the `stops`; parsed as the only item of a SELECT."""
    end = cursor.find(*stops)
    if end == cursor.at:
        raise cursor.error()
    tree = cursor.tree(end, before="SELECT")
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or tree.args.get("from_"):
        raise cursor.error()
    found = tree.expressions[0]
    if isinstance(found, exp.Alias):
        raise SqlError(f'syntax error at or near "{identifier(found.args["alias"])}"')
    cursor.at = end
    return found
