"""From a failing query and history to small ones that still fail, and a test that shows it."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from histories import History, Row, Table, Update
from query_tree import Query, simpler, size, sql, tables_of

from tidemark.types import Column, SqlType, numeric, type_named

Fails = Callable[[History, Query], bool]


def shrunk(
    history: History, query: Query, fails: Fails, *, seconds: float
) -> tuple[History, Query]:
    """One cut after the other for as long as it still fails, until none does or time is up."""
    deadline = time.monotonic() + seconds
    history = _without_unused(history, query, fails)
    cut = True
    while cut and time.monotonic() < deadline:
        cut = False
        for smaller in _by_size(query):
            if time.monotonic() > deadline:
                break
            if fails(history, smaller):
                query, cut = smaller, True
                break
        if not cut:
            for fewer in _fewer(history):
                if time.monotonic() > deadline:
                    break
                if fails(fewer, query):
                    history, cut = fewer, True
                    break
    return _without_unused(history, query, fails), query


def reproduction(history: History, query: Query, *, mode: str) -> str:
    """A test to paste into `test_fuzz.py`: the history as it is now, and the query."""
    tables = "".join(
        f'        "{t.name}": (\n'
        f'            "{"; ".join(f"{c.name} {c.type}" for c in t.columns)}",\n'
        f"            {[tuple(update) for update in t.updates]!r},\n        ),\n"
        for t in history.tables.values()
    )
    return (
        "def test_reproduction(bench):\n"
        "    import datetime\n"
        "    from decimal import Decimal\n"
        "    from shrink import made_history\n"
        f"    tables = {{\n{tables}    }}\n"
        f"    history = made_history(tables, as_of={history.as_of}, steps={history.steps!r})\n"
        f'    sql = """{sql(query)}"""\n'
        f"    assert {mode}_difference(bench, history, sql) is None\n"
    )


def made_history(
    tables: dict[str, tuple[str, list[tuple[Row, int, int]]]],
    *,
    as_of: int,
    steps: tuple[dict[str, int], ...],
) -> History:
    """What `reproduction` writes: per table its columns (`k integer; s text`) and updates."""
    made = {}
    for name, (columns, updates) in tables.items():
        pairs = (column.split(" ", 1) for column in columns.split("; "))
        typed = tuple(Column(column, _type(type_)) for column, type_ in pairs)
        made[name] = Table(name, typed, tuple(Update(*update) for update in updates))
    return History(0, made, as_of, steps)


def _type(text: str) -> SqlType:
    if found := re.fullmatch(r"numeric\((\d+),(\d+)\)", text):
        return numeric(int(found[1]), int(found[2]))
    return type_named(text)


def at_one_time(history: History, moment: int) -> History:
    """The tables as they are at `moment`, from the beginning."""
    tables = {
        name: replace(
            table, updates=tuple(Update(row, 0, n) for row, n in table.rows(moment).items())
        )
        for name, table in history.tables.items()
    }
    return History(history.seed, tables, 0, (dict.fromkeys(tables, 1),))


def _by_size(query: Query) -> list[Query]:
    found = {sql(each): each for each in simpler(query)}
    return sorted((each for each in found.values() if size(each) < size(query)), key=size)


def _without_unused(history: History, query: Query, fails: Fails) -> History:
    used = tables_of(query)
    tables = {name: table for name, table in history.tables.items() if name in used}
    if not tables or len(tables) == len(history.tables):
        return history
    steps = tuple({name: step[name] for name in tables} for step in history.steps)
    fewer = History(history.seed, tables, history.as_of, steps)
    return fewer if fails(fewer, query) else history


def _fewer(history: History) -> Iterator[History]:
    """Histories without a run of a table's updates, longest runs first; and with fewer steps."""
    if len(history.steps) > 1:
        yield replace(history, steps=history.steps[:-1])
    for name, table in history.tables.items():
        count = len(table.updates)
        length = count
        while length:
            for start in range(0, count, length):
                left = table.updates[:start] + table.updates[start + length :]
                if _possible(left):
                    tables = {**history.tables, name: replace(table, updates=left)}
                    yield replace(history, tables=tables)
            length //= 2


def _possible(updates: tuple[Update, ...]) -> bool:
    """No row is ever there less than not at all."""
    counts: Counter[object] = Counter()
    for at in sorted({update.time for update in updates}):
        for update in updates:
            if update.time == at:
                counts[update.row] += update.diff
        if any(count < 0 for count in counts.values()):
            return False
    return True
