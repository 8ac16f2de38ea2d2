"""Large statements, beside the event loop.

Parsing and planning take as long as a statement is: some ten microseconds for each word of it. Of
most statements that is nothing, but one that lists a hundred thousand numbers would stop all other
sessions for seconds. So what is larger than `LARGE` is parsed and planned in a thread, where it is
under its session's statement_timeout and can be cancelled: nobody waits for the thread any more.

What it is planned against may change meanwhile, and then it is planned anew. Where everything
changes all the time, that is in the end on the loop: late is better than never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from tidemark.compute.expr import Lit
from tidemark.control.catalog import Catalog
from tidemark.errors import SqlError

LARGE = 32 * 1024
"""Bytes of a statement that take some milliseconds."""

THREADS = 2
"""Of one lock, the interpreter's: more of them would only make all of them slower."""

TRIES = 3

T = TypeVar("T")


def size_of(sql: str, params: tuple[Lit, ...] = ()) -> int:
    return len(sql) + sum(len(each.value or "") for each in params)


def too_deep() -> SqlError:
    return SqlError(
        "the statement is nested too deeply",
        hint="split it up, or put the values into a table",
        sqlstate="54001",
    )


class Aside:
    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="large-statement")

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, with the catalog as it is then."""
        loop = asyncio.get_running_loop()
        for _ in range(TRIES):
            before = self._catalog.items
            # The context is the session's, for what is logged.
            tried = loop.run_in_executor(self._threads, copy_context().run, work)
            try:
                found = await tried
            except Exception:
                if self._catalog.items is before:
                    raise
            else:
                if self._catalog.items is before:
                    return found
        return work()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
