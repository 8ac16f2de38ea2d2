"""Whose turn it is to change what exists, and what becomes of a statement that is cancelled.

it waits for its turn    it is taken back: nothing has happened
it has begun             it is waited for, however often it is cancelled, so that nobody is told that
                         what happens was cancelled; whose session ends (`leave`) does not wait,
                         and it goes on without them
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Literal, TypeVar
from weakref import WeakSet

import structlog

log = structlog.get_logger("ddl")

T = TypeVar("T")


class _Turn:
    begun = False


_TURN: ContextVar[_Turn | None] = ContextVar("turn", default=None)
_leaving: WeakSet[asyncio.Task] = WeakSet()
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
        if not turn.begun and not task.done():
            task.cancel()
            raise
    return await outcome(task)


async def outcome(begun: asyncio.Future[T]) -> T:
    """What becomes of it, however often who waits is cancelled, until their session ends."""
    while not begun.done():
        if asyncio.current_task() in _leaving:
            begun.add_done_callback(_log_failure)
            raise asyncio.CancelledError
        with suppress(asyncio.CancelledError):
            await asyncio.wait([begun])
    return begun.result()


def leave(task: asyncio.Task) -> None:
    """Cancel the task of a session that ends: it waits for no outcome either."""
    _leaving.add(task)
    task.cancel()


def _log_failure(begun: asyncio.Future) -> None:
    if not begun.cancelled() and (error := begun.exception()) is not None:
        log.warning("a statement that its session no longer waits for failed", error=str(error))
