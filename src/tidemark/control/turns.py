"""Whose turn it is to change what exists, and what becomes of a statement that is cancelled.

it waits for its turn    it is taken back: nothing has happened
it has begun             it is waited for, so that nobody is told that what happens was cancelled;
                         whose session ends does not wait, and it goes on without them
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

import structlog

log = structlog.get_logger("ddl")

T = TypeVar("T")


class _Turn:
    begun = False


_TURN: ContextVar[_Turn | None] = ContextVar("turn", default=None)
_under_way: set[asyncio.Task] = set()
"""The event loop alone does not keep a task that nobody waits for."""


class Turns(asyncio.Lock):
    """One at a time, in the order in which they came."""

    async def acquire(self) -> Literal[True]:
        await super().acquire()
        if (turn := _TURN.get()) is not None:
            turn.begun = True
        return True


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives; it is not left half done, whoever is cancelled."""
    turn = _Turn()
    before = _TURN.set(turn)
    task = asyncio.ensure_future(work)
    _TURN.reset(before)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.done():
            return task.result()  # It came to its end just then, whatever that was.
        if not turn.begun:
            task.cancel()
            raise
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)
        raise


def _log_failure(task: asyncio.Task) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("a statement that its session no longer waits for failed", error=str(error))
