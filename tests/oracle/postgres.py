"""PostgreSQL as the oracle: a history's tables as they are at each time, and queries over them.

Each distinct state of the tables is a schema, made in a transaction that is never committed; a
query runs with that schema as its search path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import psycopg
from histories import History, Row
from maintained import normal
from psycopg import sql

Contents = Counter[Row]


class Refused(Exception):
    """PostgreSQL itself does not take the query."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gives at one time: rows with counts, or an error that the data caused."""

    rows: Contents
    error: str | None
    oids: tuple[int, ...]


class Tables:
    """A history's tables; a state is loaded when somebody first asks about it."""

    def __init__(self, connection: psycopg.Connection, history: History):
        self._connection = connection
        self._history = history
        self._loaded: set[int] = set()
        first: dict[object, int] = {}
        self.first: dict[int, int] = {}
        """For each time the first at which all tables were the same."""
        for time in range(history.end):
            rows = [table.rows(time) for table in history.tables.values()]
            state = tuple(frozenset(counts.items()) for counts in rows)
            self.first[time] = first.setdefault(state, time)

    def ask(self, query: str, time: int) -> Answer:
        return self._ask(query, self._schema(self.first[time]))

    def all(self, query: str, times: range) -> dict[int, Answer]:
        answers = {first: self.ask(query, first) for first in {self.first[time] for time in times}}
        return {time: answers[self.first[time]] for time in times}

    def _ask(self, query: str, schema: str) -> Answer:
        try:
            with self._connection.transaction():
                self._connection.execute(f"SET LOCAL search_path TO {schema}")
                cursor = self._connection.execute(query.encode())
                found = Counter(tuple(normal(value) for value in row) for row in cursor)
                oids = tuple(column.type_code for column in cursor.description or ())
                return Answer(found, None, oids)
        except psycopg.DataError as error:
            return Answer(Counter(), str(error), ())
        except psycopg.Error as error:
            _refuse(error)

    def _schema(self, time: int) -> str:
        schema = f"at{time}"
        if time in self._loaded:
            return schema
        self._loaded.add(time)
        script = [f"CREATE SCHEMA {schema}"]
        for name, table in self._history.tables.items():
            columns = ", ".join(f"{c.name} {c.type}" for c in table.columns)
            script.append(f"CREATE TABLE {schema}.{name} ({columns})")
            rows = [_row(row) for row in table.rows(time).elements()]
            if rows:
                script.append(f"INSERT INTO {schema}.{name} VALUES {', '.join(rows)}")
        self._connection.execute("; ".join(script).encode())
        return schema


def _row(row: Row) -> str:
    values = (sql.Literal(value).as_string(None) for value in row)
    return f"({', '.join(values)})"


def _refuse(error: psycopg.Error) -> NoReturn:
    raise Refused(str(error).splitlines()[0]) from error


def database(uri: str) -> str:
    """A database that orders texts by their bytes but knows what an é is; its address."""
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS fuzz")
        connection.execute(
            "CREATE DATABASE fuzz TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
        )
    return f"{uri.rpartition('/')[0]}/fuzz"


@contextmanager
def tables_of(uri: str, history: History) -> Iterator[Tables]:
    with psycopg.connect(uri) as connection:
        connection.execute("SET timezone TO 'UTC'")
        connection.execute("SET statement_timeout TO '20s'")
        connection.execute("SET jit TO off")
        yield Tables(connection, history)
        connection.rollback()
