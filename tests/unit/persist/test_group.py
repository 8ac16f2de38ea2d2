"""Who comes first does the work of all who came meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidemark.errors import Determinate, Indeterminate
from tidemark.persist import group as groups
from tidemark.persist.group import Group


class Work:
    """Squares numbers, in batches; the first one waits until it is let go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.go = threading.Event(), threading.Event()
        self.group: Group[int, int] = Group(self)

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append([*items])
        self.begun.set()
        if len(self.batches) == 1:
            assert self.go.wait(120)
        if -1 in items:
            raise Determinate("no negative numbers")
        if -2 in items:
            raise KeyboardInterrupt
        return [item * item for item in items]

    def queued(self, count: int) -> None:
        """Returns once so many wait for the first one."""
        while len(self.group._queue) < count:
            threading.Event().wait(0.001)


def test_a_lone_caller_works_at_once():
    work = Work()
    work.go.set()
    assert [work.group.do(n) for n in range(3)] == [0, 1, 4]
    assert work.batches == [[0], [1], [2]]


def test_those_who_wait_are_done_together():
    work = Work()
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(work.group.do, 10)
        assert work.begun.wait(120)
        rest = [pool.submit(work.group.do, n) for n in range(5)]
        work.queued(5)
        work.go.set()
        assert first.result() == 100
        assert [call.result() for call in rest] == [0, 1, 4, 9, 16]
    assert [len(batch) for batch in work.batches] == [1, 5]


def test_a_round_has_its_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(groups, "MOST", 2)
    work = Work()
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(work.group.do, 10)
        assert work.begun.wait(120)
        rest = [pool.submit(work.group.do, n) for n in range(5)]
        work.queued(5)
        work.go.set()
        assert first.result() == 100
        assert [call.result() for call in rest] == [0, 1, 4, 9, 16]
    assert [len(batch) for batch in work.batches] == [1, 2, 2, 1]


@pytest.mark.parametrize(("item", "error"), [(-1, Determinate), (-2, Indeterminate)])
def test_an_error_is_everyones_and_the_next_round_goes_on(item: int, error: type[Exception]):
    work = Work()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(work.group.do, 10)
        assert work.begun.wait(120)
        rest = [pool.submit(work.group.do, n) for n in (1, item, 2)]
        work.queued(3)
        work.go.set()
        assert first.result() == 100
        errors = [call.exception() for call in rest]
    # The one who led is interrupted; what it led is left open for the others.
    expected = {error} if item == -1 else {error, KeyboardInterrupt}
    assert {type(found) for found in errors} == expected
    assert work.group.do(3) == 9


def test_one_who_leaves_the_queue_passes_its_turn_on():
    work = Work()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(work.group.do, 10)
        assert work.begun.wait(120)
        gone = groups._Seat(5)  # As if its thread had been interrupted at the gate.
        gone.gate = threading.Lock()
        gone.gate.acquire()
        work.group._queue.append(gone)
        other = pool.submit(work.group.do, 2)
        work.queued(2)
        work.go.set()
        assert first.result() == 100
        assert gone.gate.acquire(timeout=120)
        assert gone.leads
        work.group._leave(gone)
        assert other.result() == 4
    assert work.batches == [[10], [2]]
    assert work.group.do(3) == 9
