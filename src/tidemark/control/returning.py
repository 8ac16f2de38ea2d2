"""RETURNING: the rows that a statement has written, as its result.

INSERT INTO t VALUES (1, 'a') RETURNING k            the new row's k
UPDATE t SET n = n + 1 RETURNING t.*                 the rows as they are now
DELETE FROM t WHERE k = 1 RETURNING k AS gone        the rows as they were

Columns of the table only: what they are is known when the statement is done, without another query.
"""

from __future__ import annotations

import pyarrow as pa

from tidemark.control import statements as s
from tidemark.control.catalog import Item
from tidemark.control.cursor import Cursor, is_quoted, is_word
from tidemark.control.pgwire import Rows
from tidemark.control.values import table_rows
from tidemark.errors import SqlError, Unsupported
from tidemark.types import Column

WORD = "RETURNING"


def parse(cursor: Cursor) -> tuple[s.Returned, ...]:
    """What stands at the end of a statement, if it is that."""
    if not cursor.take(WORD):
        return ()
    found = [_returned(cursor)]
    while cursor.take(","):
        found.append(_returned(cursor))
    return tuple(found)


def _returned(cursor: Cursor) -> s.Returned:
    if cursor.take("*"):
        return s.Returned(None)
    if _stands(cursor, 1, ".") and _stands(cursor, 2, "*"):
        relation = cursor.word()
        cursor.at += 2
        return s.Returned(relation)
    if not _stands_word(cursor):
        raise _not_a_column(cursor)
    *relations, column = cursor.name()
    shown = column
    if cursor.take("AS") or _stands_word(cursor):
        shown = cursor.word()
    if not (cursor.peek() is None or cursor.looking_at(",")):
        raise _not_a_column(cursor)
    return s.Returned(relations[-1] if relations else None, column, shown)


def _stands(cursor: Cursor, ahead: int, text: str) -> bool:
    token = cursor.peek(ahead)
    return token is not None and token.text == text


def _stands_word(cursor: Cursor) -> bool:
    token = cursor.peek()
    return token is not None and (is_word(token.text) or is_quoted(token))


def _not_a_column(cursor: Cursor) -> SqlError:
    if cursor.peek() is None:
        return cursor.error()
    return Unsupported(
        "RETURNING takes columns only", hint="return the columns, and compute with them afterwards"
    )


def columns(statement: s.Insert | s.Update | s.Delete, item: Item) -> list[tuple[str, Column]]:
    """What is returned: columns of the table by name, and what they are called."""
    known = {column.name: column for column in item.columns}
    called = getattr(statement, "alias", None) or item.name
    beside = getattr(statement, "source", None) is not None
    found: list[tuple[str, Column]] = []
    for each in statement.returning:
        if beside and each == s.Returned(None):
            raise Unsupported(
                "RETURNING * would be the columns of FROM or USING, too, which cannot be returned",
                hint=f"RETURNING {called}.* returns those of the table",
            )
        if each.relation not in (None, called):
            raise SqlError(
                f'missing FROM-clause entry for table "{each.relation}"',
                hint=f"RETURNING is about the rows of {called}",
                sqlstate="42P01",
            )
        if each.column is None:
            found += known.items()
        elif (column := known.get(each.column)) is None:
            raise SqlError(f'column "{each.column}" does not exist', sqlstate="42703")
        else:
            found.append((each.column, Column(each.shown, column.type, column.nullable)))
    return found


def result(
    statement: s.Insert | s.Update | s.Delete, item: Item, written: pa.Table, tag: str
) -> Rows:
    chosen = columns(statement, item)
    shown = tuple(column for _, column in chosen)
    arrays = [written[name] for name, _ in chosen]
    table = pa.table(arrays, names=[column.name for column in shown])
    return table_rows(shown, table, tag)
