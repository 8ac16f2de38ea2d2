"""Views against SQLite, at every time that can still be read.

The updates of tables and views are replayed from their shards in the order of their times. At each
time, SQLite runs a view's query over what the tables contain then (and the views that it reads), and
that must be what the view contains: nothing of Tidemark but the reading of shards takes part, and
a time costs milliseconds, so that all of them can be looked at.

A stranger's damage may be seen from the time at which it was done until the view has put it right;
never again after that, and never without a stranger.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidemark.control.catalog import Item
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient

Row = tuple
Changes = dict[int, dict[str, Counter[Row]]]
"""By time, then by relation."""


class Query(NamedTuple):
    """`sql` is what SQLite understands of it; `:now` is the time. With `ticking` columns (table,
    column), what is in them are times at which the result may change, too."""

    sql: str
    reads: tuple[str, ...]
    ticking: tuple[tuple[str, str], ...] = ()


class Span(NamedTuple):
    """Of times, both included."""

    first: int
    last: int


def check_every_time(
    client: PersistClient,
    items: Mapping[str, Item],
    queries: Mapping[str, Query],
    span: Span,
    damaged: Mapping[str, list[int]],
) -> dict[str, int]:
    """How many times were compared, for each view; `damaged` are the times of damage, by view."""
    changes = _changes(client, items, span)
    for time in _ticking(items, queries, changes, span):
        changes.setdefault(time, {})
    database = _Tables(items)
    compared: dict[str, int] = dict.fromkeys(queries, 0)
    wounds = {view: sorted(damaged.get(view, ())) for view in queries}
    for time in sorted(changes):
        for relation, rows in changes[time].items():
            database.change(relation, rows)
        for view, query in queries.items():
            if not query.ticking and not {view, *query.reads} & changes[time].keys():
                continue
            expected, found = database.asked(query.sql, time), database.contents[view]
            compared[view] += 1
            if expected == found:
                wounds[view] = [at for at in wounds[view] if at > time]
                continue
            assert any(at <= time for at in wounds[view]), (
                f"{view} at {time}: missing {_few(expected - found)}, extra {_few(found - expected)}"
            )
    unhealed = {view: at for view, at in wounds.items() if at}
    assert not unhealed, f"damage that was never put right: {unhealed}"
    return compared


def _changes(client: PersistClient, items: Mapping[str, Item], span: Span) -> Changes:
    """All that happened, beginning with what there was at the first time."""
    found: Changes = {span.first: {}}
    for name, item in items.items():
        assert item.shard is not None
        reader = client.open_reader(item.shard)
        begin = reader.snapshot(span.first)
        later = reader.updates(Frontier(span.first + 1), Frontier(span.last + 1))
        columns = [column.name for column in item.columns]
        for table, at in ((begin, span.first), (later, None)):
            assert not table[ERR].drop_null(), f"{name} is in error"
            values = [table[column].to_pylist() for column in (*columns, TIME, DIFF)]
            for *row, time, diff in zip(*values, strict=True):
                there = found.setdefault(time if at is None else at, {})
                there.setdefault(name, Counter())[tuple(row)] += diff
    return found


def _ticking(
    items: Mapping[str, Item], queries: Mapping[str, Query], changes: Changes, span: Span
) -> Iterator[int]:
    for table, column in {each for query in queries.values() for each in query.ticking}:
        at = [each.name for each in items[table].columns].index(column)
        for relations in list(changes.values()):
            for row in relations.get(table, ()):
                yield from (t for t in (row[at] - 1, row[at]) if span.first <= t <= span.last)


class _Tables:
    """What there is at one time: in SQLite for queries, and counted."""

    def __init__(self, items: Mapping[str, Item]):
        self.contents: dict[str, Counter[Row]] = defaultdict(Counter)
        self._columns = {n: [column.name for column in i.columns] for n, i in items.items()}
        self._database = sqlite3.connect(":memory:")
        for name, columns in self._columns.items():
            self._database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")

    def change(self, relation: str, rows: Counter[Row]) -> None:
        columns, contents = self._columns[relation], self.contents[relation]
        same = " AND ".join(f"{column} IS ?" for column in columns)
        remove = f"DELETE FROM {relation} WHERE rowid = (SELECT rowid FROM {relation} WHERE {same})"
        insert = f"INSERT INTO {relation} VALUES ({', '.join('?' * len(columns))})"
        for row, diff in rows.items():
            contents[row] += diff
            assert contents[row] >= 0, f"{relation} has {row} {contents[row]} times"
            if not contents[row]:
                del contents[row]
            for _ in range(abs(diff)):
                self._database.execute(insert if diff > 0 else remove, row)

    def asked(self, sql: str, now: int) -> Counter[Row]:
        return Counter(self._database.execute(sql, {"now": now}).fetchall())


def _few(rows: Counter[Row]) -> list[tuple[Row, int]]:
    return list(rows.items())[:5]
