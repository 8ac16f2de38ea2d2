"""Databases, schemas, and where objects are, as text.

CREATE DATABASE [IF NOT EXISTS] d          DROP DATABASE [IF EXISTS] d [CASCADE | RESTRICT]
CREATE SCHEMA [IF NOT EXISTS] [d.]s        DROP SCHEMA [IF EXISTS] [d.]s, ... [CASCADE | RESTRICT]
ALTER SCHEMA s RENAME TO t
ALTER VIEW v RENAME TO w                   ALTER VIEW v SET SCHEMA s
"""

from __future__ import annotations

from tidemark.control import statements as s
from tidemark.control.cursor import Cursor, is_quoted
from tidemark.control.hierarchy import path_text
from tidemark.errors import Unsupported


def create_database(cursor: Cursor) -> s.CreateDatabase:
    if_not_exists = cursor.take("IF NOT EXISTS")
    name = cursor.word()
    if cursor.peek() is not None:
        raise Unsupported("options of CREATE DATABASE are not supported", hint="leave them out")
    return s.CreateDatabase(name, if_not_exists)


def drop_database(cursor: Cursor) -> s.DropDatabase:
    """What is in it goes too, unless RESTRICT is said: as in PostgreSQL."""
    if_exists = cursor.take("IF EXISTS")
    name = cursor.word()
    restrict = cursor.take("RESTRICT")
    if not restrict:
        cursor.take("CASCADE")
    return s.DropDatabase(name, if_exists, restrict)


def create_schema(cursor: Cursor) -> s.CreateSchema:
    if_not_exists = cursor.take("IF NOT EXISTS")
    name = cursor.name()
    if cursor.peek() is not None:
        raise Unsupported(
            "CREATE SCHEMA takes only a name", hint="create what is in it in statements of its own"
        )
    return s.CreateSchema(name, if_not_exists)


def drop_schemas(cursor: Cursor) -> s.DropSchemas:
    if_exists = cursor.take("IF EXISTS")
    names = [cursor.name()]
    while cursor.take(","):
        names.append(cursor.name())
    cascade = cursor.take("CASCADE")
    if not cascade:
        cursor.take("RESTRICT")
    return s.DropSchemas(tuple(names), if_exists, cascade)


def alter_schema(cursor: Cursor) -> s.RenameSchema:
    name = cursor.name()
    cursor.expect("RENAME TO")
    return s.RenameSchema(name, cursor.word())


def move(cursor: Cursor, kinds: dict[str, s.ObjectKind]) -> s.MoveObject | None:
    """What follows ALTER, if it is one of these; else the cursor stays where it is."""
    start = cursor.at
    for words, kind in kinds.items():
        if not cursor.take(words):
            continue
        if_exists = cursor.take("IF EXISTS")
        name = cursor.name()
        if cursor.take("RENAME TO"):
            return s.MoveObject(kind, name, if_exists, rename=cursor.word())
        if cursor.take("SET SCHEMA"):
            return s.MoveObject(kind, name, if_exists, schema=cursor.name())
        break
    cursor.at = start
    return None


def search_path(cursor: Cursor) -> str | None:
    """The setting, each schema quoted where it must be; names are folded unless they were."""
    if cursor.take("DEFAULT"):
        return None
    found: list[str] = []
    while True:
        token = cursor.next()
        found.append(token.text if is_quoted(token) else token.text.lower())
        if not cursor.take(","):
            return path_text([each for each in found if each])
