"""LIKE of values at hand, without regular expressions: those try all ways to share a text between
many `%`. Here every `%` takes as little as it can, as what is after the next part can wait.

    'by\\_%id_'      begins with  by_  ...  ends with  id and any character
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidemark.errors import DataError


class _Part(NamedTuple):
    """What is between two `%`: literals, and where in it they are. Elsewhere, anything is."""

    literals: tuple[tuple[int, str], ...]
    width: int

    def is_at(self, text: str, start: int) -> bool:
        return all(text.startswith(literal, start + at) for at, literal in self.literals)

    def find(self, text: str, start: int, end: int) -> int:
        """Where it is first, between the two; -1 if it is not."""
        last = end - self.width
        if not self.literals or start > last:
            return start if start <= last else -1
        at, longest = max(self.literals, key=lambda each: len(each[1]))
        while start <= last:
            start = text.find(longest, start + at, last + at + len(longest)) - at
            if start < 0 or self.is_at(text, start):
                return max(start, -1)
            start += 1
        return -1


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text is like that."""
    first, *others = _parts(pattern)
    if not others:
        return lambda text: len(text) == first.width and first.is_at(text, 0)
    *middle, last = others

    def is_like(text: str) -> bool:
        start, end = first.width, len(text) - last.width
        if start > end or not (first.is_at(text, 0) and last.is_at(text, end)):
            return False
        for part in middle:
            found = part.find(text, start, end)
            if found < 0:
                return False
            start = found + part.width
        return True

    return is_like


def _parts(pattern: str) -> list[_Part]:
    parts: list[_Part] = []
    literals: list[tuple[int, str]] = []
    so_far: list[str] = []
    width = 0

    def end_literal() -> None:
        if so_far:
            literals.append((width - len(so_far), "".join(so_far)))
            so_far.clear()

    characters = iter(pattern)
    for each in characters:
        if each in "%_":
            end_literal()
        if each == "%":
            if literals or width or not parts:
                parts.append(_Part(tuple(literals), width))
            literals.clear()
            width = 0
            continue
        if each != "_":
            if each == "\\" and (each := next(characters, "")) == "":
                raise DataError("LIKE pattern must not end with escape character")
            so_far.append(each)
        width += 1
    end_literal()
    return [*parts, _Part(tuple(literals), width)]
