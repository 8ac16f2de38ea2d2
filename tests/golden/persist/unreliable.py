"""A consensus that fails on demand, before or after the deed."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.errors import Determinate, Indeterminate
from tidemark.persist.consensus import Consensus, Versioned


class Unreliable:
    """Passes everything on, except for what the plan says about the next few commits.

    `before` fails without doing it, `after` does it and fails all the same; the error is the same
    `Indeterminate`, so that nobody can tell. `refuse` fails determinately. `meanwhile` runs
    between the deed and its error: what others do while the caller is left unsure.
    """

    def __init__(self, inner: Consensus):
        self._inner = inner
        self._plan: list[tuple[str, Callable[[], None] | None]] = []
        self._blind = 0

    def fail(self, how: str, *, times: int = 1, meanwhile: Callable[[], None] | None = None):
        if how == "head":
            self._blind += times
        elif how == "truncate":
            self._plan += [("truncate", None)] * times
        else:
            self._plan += [(how, meanwhile)] * times

    def head(self, key: str) -> Versioned | None:
        # Reads fail only once a commit has failed: that is when they matter.
        if self._blind and not self._plan:
            self._blind -= 1
            raise Determinate("cannot read now")
        return self._inner.head(key)

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        if not self._plan or self._plan[0][0] == "truncate":
            return self._inner.compare_and_set(key, new)
        how, meanwhile = self._plan.pop(0)
        if how == "refuse":
            raise Determinate("surely not done")
        if how == "after":
            self._inner.compare_and_set(key, new)
        if meanwhile is not None:
            meanwhile()
        raise Indeterminate("done or not, who knows")

    def truncate(self, key: str, seqno: int) -> int:
        if self._plan and self._plan[0][0] == "truncate":
            self._plan.pop(0)
            raise Determinate("cannot truncate now")
        return self._inner.truncate(key, seqno)

    def scan(self, key: str, start: int = 0) -> list[Versioned]:
        return self._inner.scan(key, start)

    def keys(self) -> list[str]:
        return self._inner.keys()

    def change_token(self) -> int:
        return self._inner.change_token()
