r"""Text into statements and commands, a line at a time, as psql does it.

A statement ends at its `;`, a command (`\d t`) at the end of its line. A command may stand behind
an unfinished statement, which is then what it is about: `SELECT 1 \watch 2`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from tidemark.control.lexer import first_outside, split
from tidemark.errors import SqlError


class Statement(msgspec.Struct, frozen=True):
    sql: str


class Command(msgspec.Struct, frozen=True):
    r"""`name` is without its backslash; `pending` is the statement that it stands behind."""

    name: str
    rest: str
    pending: str = ""

    @property
    def words(self) -> list[str]:
        """What follows, quotes taken off."""
        lexer = shlex.shlex(self.rest, posix=True)
        lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
        try:
            return list(lexer)
        except ValueError as error:
            raise SqlError(f"\\{self.name}: a quote is not closed") from error


class Reader:
    """Keeps what is not finished yet."""

    def __init__(self) -> None:
        self._pending = ""

    @property
    def pending(self) -> str:
        return self._pending.strip()

    def feed(self, text: str) -> Iterator[Statement | Command]:
        """Take whole lines; nothing is lost if the iteration stops before its end."""
        self._pending += text
        if not any(stop in text for stop in ";\\"):
            return
        while (at := first_outside(self._pending, ";\\")) is not None:
            before = self._pending[:at]
            if self._pending[at] == ";":
                self._pending = self._pending[at + 1 :]
                if says_something(before):
                    yield Statement(before.strip())
                continue
            line, _, self._pending = self._pending[at + 1 :].partition("\n")
            name, *rest = line.rstrip("; \t\r").split(maxsplit=1) or [""]
            yield Command(name, rest[0] if rest else "", before.strip())

    def finish(self) -> Iterator[Statement]:
        """The end of the text ends a statement, too."""
        last, self._pending = self._pending.strip(), ""
        if says_something(last):
            yield Statement(last)


PLAIN_WORDS = {"exit": "\\q", "quit": "\\q", "help": "\\?"}
"""What people type who do not know any command yet, as in psql."""


def says_something(sql: str) -> bool:
    """Whether there is more than space and comments."""
    try:
        return bool(split(sql))
    except SqlError:  # Something is open, so there is something.
        return True


def is_complete(text: str) -> bool:
    """Whether Enter should run it: commands and finished statements, or nothing at all. What is
    begun behind them is not finished."""
    if not text.strip() or text.strip().lower() in PLAIN_WORDS:
        return True
    if first_outside(text, ";\\") is None:
        return False
    reader = Reader()
    for _ in reader.feed(text + "\n"):
        pass
    return not says_something(reader.pending)
