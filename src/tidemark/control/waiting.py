"""What a statement was waiting for when it was stopped.

Whoever reaches their statement_timeout, or loses patience, wants to know why nothing came. So where
a statement may wait long it says for what, and the cancellation carries that to whoever tells the
client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def waiting_for(hint: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError as stopped:
        stopped.add_note(hint())
        raise


def waited_for(stopped: BaseException | None) -> str | None:
    """The hint that a cancellation, or what came of it, carries."""
    while stopped is not None:
        if notes := getattr(stopped, "__notes__", None):
            return notes[0]
        stopped = stopped.__cause__ or stopped.__context__
    return None
