"""Frontiers: how far a collection has come.

A frontier is an antichain of timestamps. Time is totally ordered here, so it holds one timestamp
or none; the empty frontier means *finished*: no time is left at which anything could happen.

    Frontier(5) < Frontier(6) < Frontier.EMPTY
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tidemark.errors import InvalidUsage

MIN_TIME = 0


class Frontier(msgspec.Struct, frozen=True, array_like=True):
    """`time` is the first timestamp that is still open; None is the empty frontier."""

    time: int | None = MIN_TIME

    EMPTY: ClassVar[Frontier]
    MIN: ClassVar[Frontier]

    def __post_init__(self) -> None:
        time = self.time
        if time is not None and (type(time) is not int or not 0 <= time < 2**63):
            raise InvalidUsage(f"a timestamp is a whole number from 0 to 2^63 - 1, got {time!r}")

    @property
    def is_empty(self) -> bool:
        return self.time is None

    def covers(self, time: int) -> bool:
        """True if `time` lies before this frontier, i.e. is complete."""
        return self.time is None or time < self.time

    def __lt__(self, other: Frontier) -> bool:
        if not isinstance(other, Frontier):
            return NotImplemented
        if self.time is None:
            return False
        return other.time is None or self.time < other.time

    def __le__(self, other: Frontier) -> bool:
        return self == other or self < other

    def __gt__(self, other: Frontier) -> bool:
        return other < self if isinstance(other, Frontier) else NotImplemented

    def __ge__(self, other: Frontier) -> bool:
        return other <= self if isinstance(other, Frontier) else NotImplemented

    def __str__(self) -> str:
        return "[]" if self.time is None else f"[{self.time}]"


Frontier.EMPTY = Frontier(None)
Frontier.MIN = Frontier(MIN_TIME)
