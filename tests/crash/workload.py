"""Writers whose every change is known: acknowledged, or left unknown by an error.

    acknowledged   its rows are exactly as it left them, once
    unknown        its rows are all as before it, or all as after it

A writer changes only rows of its own, and never again those of an unknown change; so the tables
are checked row by row when all is over, whatever became of the unknown ones and whenever.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import NamedTuple

import psycopg
from serving import DEADLINE, Serving

TABLES = ("log", "pair")


class Key(NamedTuple):
    table: str
    n: int


Rows = dict[Key, str | None]
"""Each row's payload; None is a row that is not there."""


class Change(NamedTuple):
    statements: tuple[tuple[str, tuple], ...]
    before: Rows
    after: Rows


class Writer(threading.Thread):
    """One session at a time, one change at a time, until stopped."""

    def __init__(self, server: Serving, number: int, seed: int, *, rewrites: bool):
        super().__init__(name=f"writer-{number}", daemon=True)
        self.number = number
        self.known: Rows = {}
        self.unknown: list[Change] = []
        self.acknowledged = 0
        self.errors: list[psycopg.Error] = []
        self._server = server
        self._chance = random.Random(seed)
        self._rewrites = rewrites
        self._next = 0
        self._stopping = threading.Event()

    def run(self) -> None:
        connection: psycopg.Connection | None = None
        while not self._stopping.wait(self._chance.random() * 0.1):
            if connection is None or connection.closed:
                try:
                    connection = self._server.connect(connect_timeout=10)
                except psycopg.Error:
                    continue
            change = self._change()
            try:
                for sql, values in change.statements:
                    connection.execute(sql, values)
            except psycopg.Error as error:
                self.errors.append(error)
                for key in change.before:
                    self.known.pop(key, None)
                self.unknown.append(change)
                connection.close()
            else:
                self.known |= change.after
                self.acknowledged += 1
        if connection is not None:
            connection.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(DEADLINE)
        assert not self.is_alive(), f"{self.name} hangs"

    def check(self, found: Counter[tuple[Key, str]]) -> None:
        """Compare with what the tables contain of this writer's rows."""
        there: Rows = {}
        for (key, payload), count in found.items():
            assert count == 1, f"{self.name}: {key} is there {count} times"
            assert key not in there, f"{self.name}: {key} has two payloads"
            there[key] = payload
        wrong = {
            key: (payload, there.get(key))
            for key, payload in self.known.items()
            if there.get(key) != payload
        }
        assert not wrong, f"{self.name}: acknowledged and found differ: {wrong}"
        for change in self.unknown:
            now = {key: there.get(key) for key in change.before}
            assert now in (change.before, change.after), f"{self.name}: half of {change}: {now}"
        touched = self.known.keys() | {key for change in self.unknown for key in change.before}
        assert there.keys() <= touched, f"{self.name}: never written: {there.keys() - touched}"

    def _change(self) -> Change:
        mine = [key for key, payload in self.known.items() if key.table == "log" and payload]
        if self._rewrites and mine and self._chance.random() < 0.5:
            return self._rewrite(self._chance.choice(mine))
        kind = self._chance.choice(("one", "many", "both"))
        count = self._chance.randrange(2, 20) if kind == "many" else 1
        first, self._next = self._next, self._next + count
        tables = TABLES if kind == "both" else ("log",)
        after: Rows = {Key(table, n): kind for table in tables for n in range(first, first + count)}
        values = ", ".join(["(%s, %s, %s)"] * count)
        row_values = tuple(
            value for n in range(first, first + count) for value in (self.number, n, kind)
        )
        statements = tuple((f"INSERT INTO {t} VALUES {values}", row_values) for t in tables)
        if kind == "both":
            statements = (("BEGIN", ()), *statements, ("COMMIT", ()))
        return Change(statements, dict.fromkeys(after), after)

    def _rewrite(self, key: Key) -> Change:
        where = "WHERE writer = %s AND n = %s"
        before: Rows = {key: self.known[key]}
        if self._chance.random() < 0.5:
            sql = (f"DELETE FROM log {where}", (self.number, key.n))
            return Change((sql,), before, {key: None})
        payload = f"{before[key]}+"
        sql = (f"UPDATE log SET payload = %s {where}", (payload, self.number, key.n))
        return Change((sql,), before, {key: payload})


def contents(tables: dict[str, list[tuple]]) -> dict[int, Counter[tuple[Key, str]]]:
    """The rows of the writers' tables, by writer."""
    found: dict[int, Counter[tuple[Key, str]]] = {}
    for table, rows in tables.items():
        for writer, n, payload in rows:
            found.setdefault(writer, Counter())[Key(table, n), payload] += 1
    return found
