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
    def __init__(self, connection: psycopg.Connection, history: History):
        self._connection = connection
        self._schemas: dict[object, str] = {}
        self.states: dict[int, str] = {}
        """Which state each time has; equal names, equal tables."""
        for time in range(history.end):
            self.states[time] = self._schema(history, time)

    def ask(self, sql: str, time: int) -> Answer:
        return self._ask(sql, self.states[time])

    def all(self, sql: str, times: range) -> dict[int, Answer]:
        answers: dict[str, Answer] = {}
        for time in times:
            state = self.states[time]
            if state not in answers:
                answers[state] = self._ask(sql, state)
        return {time: answers[self.states[time]] for time in times}

    def _ask(self, sql: str, state: str) -> Answer:
        try:
            with self._connection.transaction():
                self._connection.execute(f"SET LOCAL search_path TO {state}")
                cursor = self._connection.execute(sql.encode())
                found = Counter(tuple(normal(value) for value in row) for row in cursor)
                oids = tuple(column.type_code for column in cursor.description or ())
                return Answer(found, None, oids)
        except psycopg.DataError as error:
            return Answer(Counter(), str(error), ())
        except psycopg.Error as error:
            _refuse(error)

    def _schema(self, history: History, time: int) -> str:
        rows = {name: table.rows(time) for name, table in history.tables.items()}
        state = tuple(frozenset(counts.items()) for counts in rows.values())
        if state in self._schemas:
            return self._schemas[state]
        schema = f"state{len(self._schemas)}"
        self._schemas[state] = schema
        self._connection.execute(f"CREATE SCHEMA {schema}")
        for name, table in history.tables.items():
            columns = ", ".join(f"{c.name} {c.type}" for c in table.columns)
            self._connection.execute(f"CREATE TABLE {schema}.{name} ({columns})".encode())
            holes = ", ".join(["%s"] * len(table.columns))
            with self._connection.cursor() as cursor:
                cursor.executemany(
                    f"INSERT INTO {schema}.{name} VALUES ({holes})".encode(),
                    list(rows[name].elements()),
                )
        return schema


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
        yield Tables(connection, history)
        connection.rollback()
