"""CREATE SOURCE ... FROM WEBHOOK: tokens into a statement."""

from __future__ import annotations

from typing import Literal

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidemark.control import statements as s
from tidemark.control.clauses import expression, options
from tidemark.control.cursor import Cursor
from tidemark.control.webhook.spec import BodyFormat, HeaderFilter, IncludedHeader
from tidemark.errors import SqlError, Unsupported

_FORMATS: dict[str, BodyFormat] = {
    "JSON ARRAY": "json array",
    "JSON": "json",
    "TEXT": "text",
    "BYTES": "bytes",
}


def create_webhook(
    cursor: Cursor, name: s.Name, cluster: str | None, if_not_exists: bool
) -> s.CreateWebhookSource:
    if not cursor.take("BODY FORMAT"):
        raise SqlError(
            "a webhook needs the format of its bodies",
            hint="add BODY FORMAT JSON, JSON ARRAY, TEXT or BYTES",
        )
    format = _FORMATS[cursor.one_of(*_FORMATS)]
    headers, included = _include(cursor)
    check_with, check = _check(cursor) if cursor.take("CHECK") else ((), None)
    given = options(cursor) if cursor.take("WITH") else ()
    return s.CreateWebhookSource(
        name=name,
        format=format,
        headers=headers,
        included=included,
        check_with=check_with,
        check=check,
        with_options=given,
        cluster=cluster,
        if_not_exists=if_not_exists,
        sql=cursor.sql,
    )


def _include(cursor: Cursor) -> tuple[HeaderFilter | None, tuple[IncludedHeader, ...]]:
    """Any number of `INCLUDE HEADER 'x' AS y [BYTES]`, and one `INCLUDE HEADERS [(...)]`."""
    headers: HeaderFilter | None = None
    included: list[IncludedHeader] = []
    while cursor.take("INCLUDE"):
        if cursor.take("HEADERS"):
            if headers is not None:
                raise SqlError("INCLUDE HEADERS is given more than once")
            headers = _filter(cursor)
        else:
            cursor.expect("HEADER")
            header = _header(cursor)
            cursor.expect("AS")
            column = cursor.word()
            included.append(IncludedHeader(header, column, cursor.take("BYTES")))
        cursor.take(",")
    return headers, tuple(included)


def _filter(cursor: Cursor) -> HeaderFilter:
    only: list[str] = []
    without: list[str] = []
    if cursor.take("("):
        while True:
            (without if cursor.take("NOT") else only).append(_header(cursor))
            if cursor.take(")"):
                break
            cursor.expect(",")
    return HeaderFilter(tuple(only), tuple(without))


def _header(cursor: Cursor) -> str:
    """The name of a header, in lower case: HTTP does not tell the two apart."""
    token = cursor.next()
    if token.token_type != TokenType.STRING or not token.text:
        cursor.at -= 1
        raise cursor.error()
    return token.text.lower()


def _check(cursor: Cursor) -> tuple[tuple[s.CheckWith, ...], exp.Expr]:
    cursor.expect("(")
    given: list[s.CheckWith] = []
    if cursor.take("WITH"):
        cursor.expect("(")
        while True:
            given.append(_given(cursor))
            if cursor.take(")"):
                break
            cursor.expect(",")
    condition = expression(cursor)
    cursor.expect(")")
    return tuple(given), condition


def _given(cursor: Cursor) -> s.CheckWith:
    """`HEADERS`, `BODY` or `SECRET name`, each with `AS x`, the last two with BYTES."""
    what: Literal["headers", "body", "secret"]
    what = cursor.one_of("HEADERS", "BODY", "SECRET").lower()  # pyright: ignore[reportAssignmentType]
    secret = cursor.name() if what == "secret" else ()
    as_bytes = cursor.take("BYTES")
    name = cursor.word() if cursor.take("AS") else secret[-1] if secret else what
    as_bytes = as_bytes or cursor.take("BYTES")
    if as_bytes and what == "headers":
        raise Unsupported(
            "HEADERS BYTES is not supported", hint="HEADERS gives texts: decode(headers->'x', ...)"
        )
    return s.CheckWith(what, name, as_bytes, secret)
