"""What control sees from time to time, and remembers: how far collections were behind, since when
something is as it is, what replicas cost.

    every few seconds    the uppers of all collections   ──▶ the least lag of each in this minute
                         how sources and sinks do        ──▶ when that was last another word
                         /proc of the replicas           ──▶ how busy they were since the last look

All of it is in memory, bounded, and begins anew with the process: what must last is in shards.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tidemark.clock import Clock
from tidemark.compute.error_rows import NONE, Errors, Found
from tidemark.errors import TidemarkError
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient

MINUTE_MS = 60_000
KEPT_MINUTES = 24 * 60
MOST_LAGS = 200_000
"""Of all collections together; with many of them, fewer minutes are kept."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class Seen(NamedTuple):
    """How far shards were at a time of the clock, by their ids."""

    at: int
    uppers: dict[str, Frontier]


def lag_of(upper: Frontier, now: int) -> int | None:
    """Milliseconds behind the clock; None if it has not come to its first time yet. What has ended
    is never late, and what is refreshed now and then may be ahead."""
    if upper.time is None:
        return 0
    return max(0, now - (upper.time - 1)) if upper.time > 1 else None


class Lag(NamedTuple):
    """The least that a collection was behind within the minute that began `at`."""

    id: str
    lag: int | None
    at: int


class LagHistory:
    def __init__(self, *, minutes: int = KEPT_MINUTES, most: int = MOST_LAGS):
        self._minutes: deque[tuple[int, dict[str, int | None]]] = deque(maxlen=minutes)
        self._most = most

    def add(self, now: int, lags: Mapping[str, int | None]) -> None:
        minute = now - now % MINUTE_MS
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, {}))
        newest = self._minutes[-1][1]
        for id_, lag in lags.items():
            known = newest.get(id_)
            newest[id_] = lag if known is None else known if lag is None else min(known, lag)
        while len(self._minutes) > 1 and sum(len(each) for _, each in self._minutes) > self._most:
            self._minutes.popleft()

    def __iter__(self) -> Iterator[Lag]:
        """The oldest first."""
        return (
            Lag(id_, lag, minute)
            for minute, lags in list(self._minutes)
            for id_, lag in list(lags.items())
        )


class Changes:
    """Since when something is what it is, as far as was seen."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._since: dict[str, tuple[str, int]] = {}

    def since(self, id_: str, word: str) -> int:
        known = self._since.get(id_)
        if known is None or known[0] != word:
            known = self._since[id_] = (word, self._clock.now_ms())
        return known[1]

    def forget_all_but(self, ids: set[str]) -> None:
        self._since = {id_: found for id_, found in self._since.items() if id_ in ids}


class Cost(NamedTuple):
    """Of a process and all below it: seconds of processor time, bytes of memory."""

    cpu: float
    memory: int


class Usage(NamedTuple):
    """`cores` are how many were busy between the last two looks; None before the second."""

    memory: int
    cores: float | None


class Usages:
    """What processes cost, by their ids."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._last: dict[int, tuple[float, Cost]] = {}
        self.now: dict[int, Usage] = {}

    def look(self, pids: set[int]) -> None:
        at, costs = self._clock.monotonic(), costs_of(pids)
        found: dict[int, Usage] = {}
        for pid, cost in costs.items():
            before = self._last.get(pid)
            passed = at - before[0] if before is not None else 0
            used = cost.cpu - before[1].cpu if before is not None else 0
            # A child that has ended takes its time with it.
            found[pid] = Usage(cost.memory, max(0.0, used / passed) if passed > 0 else None)
        self._last = {pid: (at, cost) for pid, cost in costs.items()}
        self.now = found


def costs_of(pids: set[int]) -> dict[int, Cost]:
    """What these processes of this machine, with all that they have started, take."""
    parents: dict[int, int] = {}
    costs: dict[int, Cost] = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            # The name in front is in parentheses, and may have anything in it.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended.
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        cpu = (int(fields[11]) + int(fields[12])) / _TICKS
        costs[pid] = Cost(cpu, int(fields[21]) * _PAGE)
    found = {pid: Cost(0.0, 0) for pid in pids if pid in costs}
    for pid, cost in costs.items():
        above: int | None = pid
        while above is not None and above not in found:
            above = parents.get(above)
        if above is not None:
            known = found[above]
            found[above] = Cost(known.cpu + cost.cpu, known.memory + cost.memory)
    return found


def machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * _PAGE


class Broken:
    """What reads of a collection fail with now, by its error rows."""

    def __init__(self, client: PersistClient):
        self._client = client
        self._errors: dict[str, Errors] = {}

    def message(self, shard: str) -> str | None:
        return self.found(shard).message

    def found(self, shard: str) -> Found:
        state = self._client.state(shard)
        if not any(part.errors for part in state.parts):
            self._errors.pop(shard, None)
            return NONE
        errors = self._errors.setdefault(shard, Errors(self._client, shard))
        newest = max((part.max_time for part in state.parts), default=0)
        try:
            return errors.found(newest if state.upper.time is None else state.upper.time - 1)
        except TidemarkError as error:
            return Found(f"its error rows cannot be read: {error.message}", None)


class Observed:
    def __init__(self, clock: Clock, client: PersistClient):
        self.broken = Broken(client)
        self.lags = LagHistory()
        self.changes = Changes(clock)
        self.usages = Usages(clock)
