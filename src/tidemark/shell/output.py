"""Where results go, and how they look: aligned, one column per line, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from tidemark.client import Result, show
from tidemark.client.show import Row
from tidemark.client.values import Cells, python_values
from tidemark.errors import InvalidUsage, TidemarkError
from tidemark.shell.formats import Format
from tidemark.types import INTERVAL, Column, SqlType


class Output:
    """Standard output, or a file that `\\o` has named."""

    def __init__(self, format_: Format = Format.ALIGNED, *, tuples_only: bool = False):
        self.format = format_
        self.expanded = False
        self.null = ""
        self.tuples_only = tuples_only
        self._file: TextIO | None = None

    @property
    def stream(self) -> TextIO:
        return self._file or sys.stdout

    def redirect(self, path: str | None) -> None:
        """To a file, or back to standard output."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if path:
            try:
                self._file = Path(path).expanduser().open("w")
            except OSError as error:
                raise InvalidUsage(f"{path}: {error.strerror}") from error

    def line(self, text: str = "") -> None:
        print(text, file=self.stream, flush=True)

    def bytes(self, data: bytes) -> None:
        self.stream.flush()
        self.stream.buffer.write(data)
        self.stream.flush()

    def result(self, result: Result, title: str | None = None) -> None:
        """All of it; a statement that is no query says what it did, if that is for people."""
        if result.columns:
            self.rows(result.columns, result.texts(), title)
        is_for_people = self.format is Format.ALIGNED and not self.tuples_only
        if is_for_people and result.status and (result.affected or not result.columns):
            self.line(result.status)

    def rows(
        self,
        columns: Sequence[Column],
        rows: Sequence[Row],
        title: str | None = None,
        *,
        more: bool = False,
    ) -> None:
        """A table, or `more` rows of the one before."""
        match self.format:
            case Format.CSV:
                self._csv(columns, rows, head=not (self.tuples_only or more))
            case Format.JSON:
                for line in json_lines(columns, rows):
                    self.line(line)
            case Format.ALIGNED:
                self._aligned(columns, rows, title)

    def _aligned(self, columns: Sequence[Column], rows: Sequence[Row], title: str | None) -> None:
        if title:
            self.line(title)
        if self.tuples_only:
            for row in rows:
                self.line("|".join(show.cell(value, self.null) for value in row))
            return
        made = show.expanded if self.expanded else show.aligned
        for line in made(columns, rows, null=self.null):
            self.line(line)
        if not self.expanded or not rows:
            self.line(show.count_line(len(rows)))
        self.line()

    def _csv(self, columns: Sequence[Column], rows: Sequence[Row], *, head: bool) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if head:
            writer.writerow([column.name for column in columns])
        writer.writerows([show.cell(value, self.null) for value in row] for row in rows)
        self.stream.write(text.getvalue())
        self.stream.flush()


def json_lines(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """An object per row and line; exact decimals are texts, which JSON's readers would round."""
    typed = [
        _values(cells, column.type)  # type: ignore[arg-type]
        for cells, column in zip(zip(*rows, strict=True), columns, strict=True)
    ]
    names = [column.name for column in columns]
    return [
        json.dumps(
            dict(zip(names, map(_finite, row), strict=True)), default=_json, ensure_ascii=False
        )
        for row in zip(*typed, strict=True)
    ]


def _values(cells: Cells, type_: SqlType) -> Sequence:
    """Intervals as the server prints them: Python's text of a negative one counts back."""
    return cells if INTERVAL in (type_, type_.element) else python_values(cells, type_)


def _finite(value: object) -> object:
    """JSON has no NaN and no infinity."""
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _json(value: object) -> object:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return str(value)


def print_error(error: TidemarkError, sql: str = "") -> None:
    """As psql does: the message, the line with a mark below, the hint."""
    lines = [f"ERROR:  {error.message}"]
    if error.position is not None and 0 < error.position <= len(sql) + 1:
        before = sql[: error.position - 1]
        line = sql.splitlines()[before.count("\n")] if sql.strip() else ""
        head = f"LINE {before.count(chr(10)) + 1}: "
        column = len(before) - (before.rfind("\n") + 1)
        lines += [head + line, " " * (len(head) + column) + "^"]
    if error.context:
        lines.append(f"CONTEXT:  {error.context}")
    if error.hint:
        lines.append(f"HINT:  {error.hint}")
    sys.stdout.flush()
    print("\n".join(lines), file=sys.stderr, flush=True)


def print_notice(severity: str, message: str) -> None:
    sys.stdout.flush()
    print(f"{severity}:  {message}", file=sys.stderr, flush=True)
