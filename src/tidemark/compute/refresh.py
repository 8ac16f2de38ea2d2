"""Refresh schedules: a view whose changes are seen only at certain times.

    REFRESH EVERY '10 s' ALIGNED TO 0, AT 25

    time        3    9    10    11    25    26    31
    rounded up  10   10   10    20    25    30    40

Data and frontier are both rounded up: what happens at 3 appears at 10, and once the inputs are
complete to 4 the view is complete to 10 (nothing new comes before that). Without `every` there is
a last refresh, after which the view is finished: its frontier is the empty one.
"""

from __future__ import annotations

import msgspec

from tidemark.frontier import Frontier


class Every(msgspec.Struct, frozen=True):
    """Every `interval` milliseconds, one of which is at `aligned_to`."""

    interval: int
    aligned_to: int

    def round_up(self, time: int) -> int:
        periods = -((self.aligned_to - time) // self.interval)
        return self.aligned_to + periods * self.interval

    def round_down(self, time: int) -> int:
        return self.aligned_to + (time - self.aligned_to) // self.interval * self.interval


class Refresh(msgspec.Struct, frozen=True):
    every: tuple[Every, ...] = ()
    at: tuple[int, ...] = ()

    def round_up(self, time: int) -> int | None:
        """The first refresh at `time` or later; None if there is none."""
        found = [each.round_up(time) for each in self.every]
        found += [at for at in self.at if at >= time]
        return min(found, default=None)

    def round_down(self, time: int) -> int | None:
        """The last refresh at `time` or earlier; None if there is none."""
        found = [each.round_down(time) for each in self.every]
        found += [at for at in self.at if at <= time]
        return max((each for each in found if each >= 0), default=None)

    def frontier(self, inputs: Frontier) -> Frontier:
        """How far the view is complete once its inputs are: nothing can come before that."""
        if inputs.time is None:
            return Frontier.EMPTY
        found = self.round_up(inputs.time)
        return Frontier.EMPTY if found is None else Frontier(found)
