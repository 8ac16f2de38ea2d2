"""CREATE, ALTER and DROP of clusters and their replicas, as text.

CREATE CLUSTER c (REPLICATION FACTOR = 2, MEMORY = '4g')      the parentheses may be left out
CREATE CLUSTER REPLICA c.r3 WITH (READ ONLY)
ALTER CLUSTER REPLICA c.r3 SET (READ ONLY = false)
"""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from tidemark.control import statements as s
from tidemark.control.clauses import options
from tidemark.control.cursor import Cursor, is_word
from tidemark.errors import SqlError, Unsupported

_VALUES = (TokenType.STRING, TokenType.NUMBER)


def create(cursor: Cursor) -> s.CreateCluster | s.CreateReplica:
    """What follows CREATE CLUSTER."""
    if not cursor.take("REPLICA"):
        if_not_exists = cursor.take("IF NOT EXISTS")
        name = cursor.word()
        if cursor.looking_at("REPLICAS"):
            raise Unsupported(
                "CREATE CLUSTER ... REPLICAS (...) is not supported",
                hint="say how many: (REPLICATION FACTOR = 2), or add each: CREATE CLUSTER REPLICA",
            )
        return s.CreateCluster(name, _options(cursor), if_not_exists)
    if_not_exists = cursor.take("IF NOT EXISTS")
    cluster, name = _replica(cursor)
    return s.CreateReplica(cluster, name, _options(cursor), if_not_exists)


def alter(cursor: Cursor) -> s.AlterCluster | s.AlterReplica:
    if cursor.take("REPLICA"):
        cluster, name = _replica(cursor)
        _only_set(cursor)
        return s.AlterReplica(cluster, name, _options(cursor))
    name = cursor.word()
    _only_set(cursor)
    return s.AlterCluster(name, _options(cursor))


def drop(cursor: Cursor) -> s.DropClusters | s.DropReplicas:
    """What follows DROP CLUSTER."""
    if cursor.take("REPLICA"):
        if_exists = cursor.take("IF EXISTS")
        replicas = [_replica(cursor)]
        while cursor.take(","):
            replicas.append(_replica(cursor))
        return s.DropReplicas(tuple(replicas), if_exists)
    if_exists = cursor.take("IF EXISTS")
    names = [cursor.word()]
    while cursor.take(","):
        names.append(cursor.word())
    cascade = cursor.take("CASCADE")
    if not cascade:
        cursor.take("RESTRICT")
    return s.DropClusters(tuple(names), if_exists, cascade)


def _only_set(cursor: Cursor) -> None:
    for words in ("RENAME", "OWNER", "RESET", "SWAP"):
        if cursor.looking_at(words):
            raise Unsupported(f"ALTER CLUSTER ... {words} is not supported", hint="only SET is")
    cursor.expect("SET")


def _replica(cursor: Cursor) -> tuple[str, str]:
    name = cursor.name()
    if len(name) != 2:
        raise SqlError(
            f'a replica is named with its cluster, not "{".".join(name)}"',
            hint="e.g. quickstart.r2",
        )
    return name[0], name[1]


def _options(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """`WITH (A = 1, B)`, `(A = 1, B)`, or `A = 1, B` up to the end."""
    cursor.take("WITH")
    if cursor.looking_at("("):
        return options(cursor)
    found: list[tuple[str, str]] = []
    while cursor.peek() is not None:
        if found:
            cursor.expect(",")
        found.append(_option(cursor))
    return tuple(found)


def _option(cursor: Cursor) -> tuple[str, str]:
    words: list[str] = []
    while cursor.peek() is not None and not cursor.looking_at(","):
        token = cursor.next()
        if token.text == "=":
            return _named(cursor, words), cursor.next().text
        if token.token_type in _VALUES:
            return _named(cursor, words), token.text
        words.append(token.text.lower())
    return _named(cursor, words), "true"


def _named(cursor: Cursor, words: list[str]) -> str:
    if not words or not all(map(is_word, words)):
        raise cursor.error()
    return " ".join(words)
