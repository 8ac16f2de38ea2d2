"""A subscription as a table that changes in place: in a terminal, or in a notebook's cell.

`Contents` is what the batches so far add up to: each row, and how many there are of it. It is what
the relation has at `Contents.time`, so a table on the screen is never half of an update.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidemark.client import show
from tidemark.client.subscription import DIFF, Batch, Subscription
from tidemark.errors import InvalidUsage
from tidemark.types import Column

_ORDER = re.compile(r'\s*("(?:[^"]|"")+"|[^\s,"]+)(?:\s+(asc|desc))?\s*(?:,|$)', re.IGNORECASE)
_NOT_NUMBERS = {"NaN": 2, "Infinity": 1, "-Infinity": -1}
_FIRST_MOMENT, _LAST_MOMENT = 100_000_000_000, 100_000_000_000_000  # 1973 to 5138.


class Contents:
    """Rows of texts, counted; `columns` are known from the first batch on."""

    def __init__(self, order_by: str | None = None):
        self.time: int | None = None
        self.columns: tuple[Column, ...] = ()
        self._counts: Counter[tuple[str | None, ...]] = Counter()
        self._order_by = order_by

    def apply(self, batch: Batch) -> None:
        _, diff, *columns = batch.changes.columns
        if diff.name != DIFF:
            raise InvalidUsage("a live table needs rows with a diff", hint="leave the ENVELOPE out")
        self.columns = tuple(columns)
        for _, times, *values in batch.changes.texts():
            row = tuple(None if value is None else show.cell(value) for value in values)
            self._counts[row] += int(times)
            if not self._counts[row]:
                del self._counts[row]
        self.time = batch.time

    def __len__(self) -> int:
        return self._counts.total()

    def rows(self, limit: int) -> list[tuple[str | None, ...]]:
        """The first ones, in order; by all columns if nothing else was said."""
        rows = list(self._counts)
        for at, descending in reversed(self._order()):
            is_number = self.columns[at].type.is_number
            rows.sort(key=lambda row: _sort_key(row[at], is_number), reverse=descending)
        return list(islice((row for row in rows for _ in range(self._counts[row])), limit))

    def _order(self) -> list[tuple[int, bool]]:
        """Which columns, and whether from the largest on."""
        names = [column.name for column in self.columns]
        if self._order_by is None:
            return [(at, False) for at in range(len(names))]
        found: list[tuple[int, bool]] = []
        for name, direction in _ORDER.findall(self._order_by):
            plain = name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
            if plain not in names:
                raise InvalidUsage(
                    f"order_by: there is no column {name!r}", hint=f"there are {', '.join(names)}"
                )
            found.append((names.index(plain), direction.lower() == "desc"))
        return found


def _sort_key(text: str | None, is_number: bool) -> tuple:
    """Nulls are the largest, as in PostgreSQL."""
    if text is None:
        return (1,)
    if not is_number:
        return (0, text)
    try:
        return (0, _NOT_NUMBERS.get(text, 0), Decimal(text if text not in _NOT_NUMBERS else 0))
    except InvalidOperation:  # pragma: no cover (numbers are numbers)
        return (0, 0, Decimal(0))


def watch(
    subscription: Subscription, *, order_by: str | None, limit: int, updates: int | None
) -> None:
    """Show it until it ends, Ctrl-C, or so many updates were shown."""
    contents = Contents(order_by)
    shown = 0
    with _screen(limit) as paint:
        try:
            for batch in subscription:
                changed = not batch.progressed or not contents.columns
                if batch.changes.columns:
                    contents.apply(batch)
                paint(contents)
                shown += changed
                if updates is not None and shown >= updates:
                    return
        except KeyboardInterrupt:
            return


Paint = Callable[[Contents], None]


def _screen(limit: int) -> AbstractContextManager[Paint]:
    if _in_notebook():
        return nullcontext(_notebook(limit))
    return Screen(Console(), limit)


def _in_notebook() -> bool:
    """Whether there is a kernel, so that a cell's output can be changed after it was shown."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def _notebook(limit: int) -> Paint:
    from IPython.display import HTML, display

    handle = display(HTML("<p>waiting for the first rows</p>"), display_id=True)
    assert handle is not None, "it was asked for"

    def paint(contents: Contents) -> None:
        rows = contents.rows(limit)
        handle.update(HTML(show.html(contents.columns, rows, limit, caption(contents, limit))))

    return paint


def caption(contents: Contents, limit: int) -> str:
    count = len(contents)
    first = f", the first {limit} shown" if count > limit else ""
    return f"{show.count_line(count)[1:-1]}{first}, as of {_moment(contents.time)}"


def _moment(time: int | None) -> str:
    """As a clock says it, and as AS OF takes it; what is no time of a clock is left as it is."""
    if time is None or not _FIRST_MOMENT <= time < _LAST_MOMENT:
        return str(time)
    at = datetime.fromtimestamp(time / 1000, UTC).replace(tzinfo=None)
    return f"{at.isoformat(' ', 'milliseconds')} UTC ({time})"


class Screen:
    """The table on a terminal, repainted in place; on anything else, its last state at the end.

    The `note` is below it for as long as it changes.
    """

    def __init__(self, console: Console, limit: int, note: str | None = None):
        self._console = console
        self._limit = limit
        self._note = note
        self._shown: Contents | None = None
        self._live = Live(
            Text("waiting for the first rows"), console=console, auto_refresh=False, transient=False
        )

    def __enter__(self) -> Paint:
        self._live.start()
        return self.paint

    def __exit__(self, *_: object) -> None:
        self._note = None
        if self._shown is not None:
            self.paint(self._shown)
        self._live.stop()
        if not self._console.is_terminal:
            self._console.line()

    def paint(self, contents: Contents) -> None:
        self._shown = contents
        # What is higher than the terminal could not be repainted in place.
        room = max(1, min(self._limit, self._console.height - 7))
        rows = contents.rows(room)
        table = Table()
        for column in contents.columns:
            right = column.type.is_number
            table.add_column(Text(column.name), justify="right" if right else "left")
        for row in rows:
            table.add_row(*_cells(row))
        said = caption(contents, room) + (f"; {self._note}" if self._note else "")
        self._live.update(Group(table, Text(said, style="dim")), refresh=True)


def _cells(row: Sequence[str | None]) -> list[Text]:
    return [Text("null", style="dim") if value is None else Text(value) for value in row]
