"""What a subscription adds up to, in the order that it is shown."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from tidemark.client import Batch, Result, live
from tidemark.client.live import Contents, Screen, caption
from tidemark.errors import InvalidUsage
from tidemark.types import BIGINT, INTEGER, TEXT, Column, array_of

COLUMNS = (
    Column("mz_timestamp", BIGINT),
    Column("mz_diff", BIGINT),
    Column("n", INTEGER),
    Column("Name", TEXT),
    Column("l", array_of(INTEGER)),
)


def batch(time: int, *changes: tuple[int, str | None, str | None, list | None]) -> Batch:
    rows = [(str(time), str(diff), *values) for diff, *values in changes]
    return Batch(time, Result(COLUMNS, rows, "", 0))


def test_batches_add_up():
    contents = Contents()
    contents.apply(batch(1, (2, "10", "a", ["1", None]), (1, "9", "b", None), (1, None, "c", [])))
    assert contents.rows(10) == [
        ("9", "b", None),
        ("10", "a", "{1,NULL}"),
        ("10", "a", "{1,NULL}"),
        (None, "c", "{}"),
    ]
    contents.apply(batch(5, (-1, "10", "a", ["1", None]), (-1, None, "c", [])))
    assert (len(contents), contents.time) == (2, 5)
    assert contents.rows(1) == [("9", "b", None)]


def test_what_is_said_below_has_a_time_to_read():
    contents = Contents()
    contents.apply(batch(1795060766042, (2, "10", "a", None)))
    said = caption(contents, 9)
    assert said == "2 rows, as of 2026-11-19 03:59:26.042 UTC (1795060766042)"
    contents.apply(batch(7, (-1, "10", "a", None)))  # Of a counter, not of a clock.
    assert caption(contents, 9) == "1 row, as of 7"


def test_how_to_end_it_is_said_until_it_ends():
    contents = Contents()
    contents.apply(batch(1, (1, "2", "a", None)))
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=120)
    with Screen(console, 9, note="Ctrl-C ends it") as paint:
        paint(contents)
        assert "as of 1; Ctrl-C ends it" in written.getvalue()
        written.truncate(0)
    assert "as of 1" in written.getvalue()
    assert "Ctrl-C" not in written.getvalue()


def test_what_is_no_terminal_gets_whole_lines():
    contents = Contents()
    contents.apply(batch(1, (1, "2", "a", None)))
    written = StringIO()
    with Screen(Console(file=written, width=120), 9) as paint:
        paint(contents)
    assert written.getvalue().endswith("as of 1\n")


def test_a_cell_says_once_how_many_rows_there_are(monkeypatch: pytest.MonkeyPatch):
    cells: list[str] = []
    handle = SimpleNamespace(update=lambda shown: cells.append(shown.data))
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: handle)
    contents = Contents()
    contents.apply(batch(1, (1, "2", "<a>", None)))
    live._notebook(9)(contents)
    assert cells[0].count("1 row") == 1
    assert cells[0].endswith("<p>1 row, as of 1</p>")
    assert "&lt;a&gt;" in cells[0]


def test_order():
    contents = Contents('"Name" desc, n')
    contents.apply(batch(1, (1, "2", "a", None), (1, "1", "a", None), (1, "3", "b", None)))
    assert [row[0] for row in contents.rows(9)] == ["3", "1", "2"]
    contents = Contents("nope")
    contents.apply(batch(1, (1, "2", "a", None)))
    with pytest.raises(InvalidUsage, match="no column 'nope'"):
        contents.rows(1)
