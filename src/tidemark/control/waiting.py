"""What a statement was waiting for when it was stopped.

Whoever reaches their statement_timeout, or loses patience, wants to know why nothing came. So where
a statement may wait long it says for what, and the cancellation carries that to whoever tells the
client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemark.errors import Cancelled


@contextmanager
def waiting_for(hint: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError as stopped:
        stopped.add_note(hint())
        raise


def canceled(why: str, stopped: BaseException) -> Cancelled:
    """What the client is told; `stopped` is the cancellation, or what came of it."""
    found: BaseException | None = stopped
    while found is not None and not hasattr(found, "__notes__"):
        found = found.__cause__ or found.__context__
    hint = None if found is None else found.__notes__[0]
    return Cancelled(f"canceling statement due to {why}", hint=hint)
