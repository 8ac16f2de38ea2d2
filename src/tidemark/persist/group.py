"""Group commit: whoever comes first does the work of all who came meanwhile.

A durable commit costs one wait for the disk, however much is in it. The first caller finds nobody
at work and starts at once, so a lone caller waits for no one. Whoever arrives while it works
queues up; when it is done, the first in the queue does the work of the whole queue. No thread of
its own, and nobody works for others longer than for one round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from copy import copy
from typing import Generic, TypeVar

from tidemark.errors import Indeterminate, TidemarkError

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 256
"""Items in one round."""


class _Seat(Generic[Item, Result]):
    """One caller: waits at the gate until its work is done or it is its turn to lead."""

    __slots__ = ("error", "gate", "item", "leads", "result")

    def __init__(self, item: Item):
        self.item = item
        self.gate: threading.Lock | None = None
        self.leads = False
        self.result: list[Result] = []
        self.error: TidemarkError | None = None


class Group(Generic[Item, Result]):
    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result]]):
        self._work = work
        self._lock = threading.Lock()
        self._queue: list[_Seat[Item, Result]] = []
        self._busy = False

    def do(self, item: Item) -> Result:
        mine: _Seat[Item, Result] = _Seat(item)
        with self._lock:
            if self._busy:
                mine.gate = threading.Lock()
                mine.gate.acquire()
                self._queue.append(mine)
            else:
                self._busy = True
        if mine.gate is not None:
            try:
                mine.gate.acquire()
            except BaseException:  # Interrupted: whatever this caller had to do is passed on.
                self._leave(mine)
                raise
            if not mine.leads:
                return _outcome(mine)
        with self._lock:
            rest = self._queue if not mine.leads else self._queue[1:]
            batch = [mine, *rest[: MOST - 1]]
            self._queue = rest[MOST - 1 :]
        try:
            results = self._work([seat.item for seat in batch])
            for seat, result in zip(batch, results, strict=True):
                seat.result.append(result)
        except TidemarkError as error:
            for seat in batch:
                seat.error = error
        except BaseException as error:
            for seat in batch:
                seat.error = Indeterminate(f"interrupted while committing: {error!r}")
            raise
        finally:
            self._pass_on()
            for seat in batch:
                if seat is not mine and seat.gate is not None:
                    seat.gate.release()
        return _outcome(mine)

    def _pass_on(self) -> None:
        with self._lock:
            if not self._queue:
                self._busy = False
                return
            first = self._queue[0]
            first.leads = True
            assert first.gate is not None
            first.gate.release()

    def _leave(self, mine: _Seat[Item, Result]) -> None:
        with self._lock:
            if mine not in self._queue:
                return  # Someone did it, or is at it.
            self._queue.remove(mine)
        if mine.leads:
            self._pass_on()


def _outcome(seat: _Seat[Item, Result]) -> Result:
    if seat.error is not None:
        raise copy(seat.error) from seat.error.__cause__
    return seat.result[0]
