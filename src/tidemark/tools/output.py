"""What the tools print: tables for people, one JSON document for programs, errors to stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from tidemark.errors import InvalidUsage, TidemarkError

FAILED, UNCHECKED, TRUNCATED = 1, 2, 3
"""Exit codes: it did not work (or errors were found), could not check, there was more."""

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@contextmanager
def reporting(code: int = FAILED) -> Iterator[None]:
    """Errors become a line on stderr and an exit code; logs go to stderr, too."""
    import logging

    import pyarrow as pa

    from tidemark.logs import configure_logging

    configure_logging(logging.WARNING)
    try:
        yield
        sys.stdout.flush()
    except TidemarkError as error:
        raise failed(error.message, error.hint, code) from None
    except BrokenPipeError:  # `| head` has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise failed(f"{error.strerror or error}{where}", None, code) from None
    except (pa.ArrowException, UnicodeError) as error:
        hint = "run `tidemark shard fsck` on the shard"
        raise failed(f"stored data cannot be read: {error}", hint, code) from None


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"a short command goes without {name}", name=name)


def without_pandas() -> None:
    """Arrow asks of many a value whether it is one of pandas', and imports pandas to know: a third
    of what a short command would take. Not in a process that belongs to someone else."""
    if Path(sys.argv[0]).stem in ("tidemark", "cli"):
        sys.meta_path.insert(0, _NoPandas)


def failed(message: str, hint: str | None, code: int) -> typer.Exit:
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return typer.Exit(code)


def warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def print_json(document: object) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def print_table(
    columns: Iterable[str], rows: Iterable[Iterable[object]], *, title: str | None = None
) -> None:
    """Columns whose name ends with > are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in columns:
        right = name.endswith(">")
        table.add_column(name.rstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        cells = [cell if isinstance(cell, Text) else Text(_shown(cell)) for cell in row]
        table.add_row(*cells)
    console().print(table)


def console(*, stderr: bool = False) -> Any:
    from rich.console import Console

    file = sys.stderr if stderr else sys.stdout
    # A pipe has no width: lines are as long as they have to be.
    width = None if file.isatty() else 240
    return Console(file=file, width=width, highlight=False)


@contextmanager
def progress(title: str, *, quiet: bool) -> Iterator[Any]:
    """Calls of what it yields, `(done, total, what)`, move a bar on stderr."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def move(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=f"{title} {what}")

        yield move


def _shown(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def frontier(time: int | None) -> str:
    """A frontier in a table; times are long numbers, in which commas would not help."""
    return "[]" if time is None else str(time)


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def moment(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(ms)


def span(ms: int) -> str:
    """A length of time in its two largest units: `2 h 5 m`."""
    seconds = max(ms, 0) // 1000
    parts = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def duration_ms(text: str) -> int:
    """`90s`, `15m`, `24h`, `7d`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", text)
    if found is None:
        raise InvalidUsage(f"not a length of time: {text!r}", hint="use 90s, 15m, 24h or 7d")
    return int(float(found[1]) * _UNITS[found[2]])
