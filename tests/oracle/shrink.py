"""From a failing query and history to small ones that still fail, and a test that shows it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from histories import History, Table, Update
from query_tree import Query, simpler, size, sql, tables_of

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
    """A test to paste: the history as it is now, and the query."""
    tables = ",\n".join(
        f'            "{t.name}": Table(\n                "{t.name}",\n                {t.columns!r},\n'
        f"                {tuple(tuple(u) for u in t.updates)!r},\n            )"
        for t in history.tables.values()
    )
    text = sql(query).replace('"""', '\\"""')
    return (
        "def test_reproduction(bench):\n"
        "    history = made_history(\n        {\n"
        f"{tables},\n        }},\n        as_of={history.as_of},\n"
        f"        steps={history.steps!r},\n    )\n"
        f'    sql = """{text}"""\n'
        f"    assert {mode}_difference(bench, history, sql) is None\n"
    )


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


def made_history(
    tables: dict[str, Table], *, as_of: int, steps: tuple[dict[str, int], ...]
) -> History:
    """What `reproduction` writes, read back."""
    whole = {
        name: replace(table, updates=tuple(Update(*update) for update in table.updates))
        for name, table in tables.items()
    }
    return History(0, whole, as_of, steps)
