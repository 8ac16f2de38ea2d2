"""Tables for people: aligned text as psql prints it, and HTML for notebooks.

Both take the server's texts, so that a value looks the same everywhere. A result that is merely
looked at shows its first rows; the terminal client, which is asked for all of them, says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rich.cells import cell_len

from tidemark.types import Column

__all__ = ["aligned", "cell", "escape", "expanded", "html", "plain"]

SHOWN = 40
"""Rows that a result shows by itself, in a notebook or at a Python prompt."""

Row = Sequence[str | list | None]


def cell(value: str | list | None, null: str = "") -> str:
    """One value as psql prints it; an array in PostgreSQL's own notation."""
    if value is None:
        return null
    if isinstance(value, str):
        return value
    return "{" + ",".join("NULL" if each is None else _element(each) for each in value) + "}"


def _element(text: str) -> str:
    special = not text or text.upper() == "NULL" or any(c in '{}",\\' or c.isspace() for c in text)
    if not special:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_number(column: Column) -> bool:
    return column.type.is_number or column.type.name == "oid"


def aligned(columns: Sequence[Column], rows: Iterable[Row], *, null: str = "") -> Iterable[str]:
    """Lines of a table; a value of several lines takes several lines, marked with `+`."""
    texts = [[cell(value, null).split("\n") for value in row] for row in rows]
    widths = [_width(column.name) for column in columns]
    for row in texts:
        widths = [max(w, *map(_width, lines)) for w, lines in zip(widths, row, strict=True)]
    names = (_centred(c.name, w) for c, w in zip(columns, widths, strict=True))
    yield " " + " | ".join(names).rstrip()
    yield "-" + "-+-".join("-" * width for width in widths) + "-"
    right = [_is_number(column) for column in columns]
    for row in texts:
        for at in range(max((len(lines) for lines in row), default=1)):
            yield _line(row, widths, right, at)


def _line(row: list[list[str]], widths: list[int], right: list[bool], at: int) -> str:
    """The `at`-th line of each cell of a row."""
    fields: list[str] = []
    last = len(row) - 1
    for index, (lines, width, number) in enumerate(zip(row, widths, right, strict=True)):
        text = lines[at] if at < len(lines) else ""
        space = " " * (width - _width(text))
        mark = "+" if at < len(lines) - 1 else " "
        field = (space + text if number else text + space) + mark
        fields.append(field.rstrip() if index == last else field)
    return (" " + "| ".join(fields)).rstrip()


def expanded(columns: Sequence[Column], rows: Iterable[Row], *, null: str = "") -> Iterable[str]:
    """Lines of one record after another, a line for each column."""
    width = max((_width(column.name) for column in columns), default=0)
    for number, row in enumerate(rows, 1):
        yield f"-[ RECORD {number} ]".ljust(width + 4, "-")
        for column, value in zip(columns, row, strict=True):
            first, *others = cell(value, null).split("\n")
            name = column.name + " " * (width - _width(column.name))
            yield f"{name} | {first}".rstrip()
            yield from (f"{' ' * width} | {line}".rstrip() for line in others)


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _centred(text: str, width: int) -> str:
    space = width - _width(text)
    return " " * (space // 2) + text + " " * (space - space // 2)


def count_line(count: int) -> str:
    return f"({count} row{'' if count == 1 else 's'})"


def plain(columns: Sequence[Column], rows: Sequence[Row], shown: int = SHOWN) -> str:
    """The first rows, and how many there are."""
    lines = [*aligned(columns, rows[:shown], null="∅")]
    lines.append(_counted(len(rows), shown))
    return "\n".join(lines)


def html(
    columns: Sequence[Column], rows: Sequence[Row], shown: int = SHOWN, note: str | None = None
) -> str:
    """The same for a notebook; its colours are the notebook's own.

    Below it stands the `note`, or else how many rows there are.
    """
    head = "".join(
        f'<th title="{escape(str(column.type))}">{escape(column.name)}</th>' for column in columns
    )
    body = "".join(f"<tr>{_html_cells(columns, row)}</tr>" for row in rows[:shown])
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{escape(note or _counted(len(rows), shown))}</p>"
    )


def _html_cells(columns: Sequence[Column], row: Row) -> str:
    found: list[str] = []
    for column, value in zip(columns, row, strict=True):
        align = "right" if _is_number(column) else "left"
        text = "<em>null</em>" if value is None else escape(cell(value))
        found.append(f'<td style="text-align: {align}">{text}</td>')
    return "".join(found)


def _counted(count: int, shown: int) -> str:
    return count_line(count) if count <= shown else f"({count} rows, the first {shown} shown)"
