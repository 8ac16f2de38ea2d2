"""Savepoints: places in a transaction to go back to, as drivers set them around what may fail.

What was written since is forgotten, cursors declared since are closed, and settings are what they
were; the time that the transaction reads at, and the side that it has taken, stay.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemark.control import statements as s
from tidemark.control.cursors import Cursors, Open
from tidemark.control.pgwire import Done
from tidemark.control.variables import Mark, Variables
from tidemark.errors import SqlError
from tidemark.storage.tables import Write


class _Savepoint(NamedTuple):
    name: str
    writes: int
    variables: Mark
    cursors: Open


class Savepoints:
    """Those of one transaction, the oldest first; of several with one name the newest counts."""

    def __init__(self) -> None:
        self._all: list[_Savepoint] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    async def run(
        self,
        statement: s.Savepoint | s.Release | s.RollbackTo,
        writes: list[Write],
        variables: Variables,
        cursors: Cursors,
    ) -> Done:
        match statement:
            case s.Savepoint(name):
                self._all.append(_Savepoint(name, len(writes), variables.mark(), cursors.open()))
                return Done("SAVEPOINT")
            case s.Release(name):
                del self._all[self._place(name) :]
                return Done("RELEASE")
            case s.RollbackTo(name):
                place = self._place(name)
                del self._all[place + 1 :]
                del writes[self._all[place].writes :]
                variables.go_back(self._all[place].variables)
                await cursors.close_others(self._all[place].cursors)
                return Done("ROLLBACK")

    def _place(self, name: str) -> int:
        places = [at for at, each in enumerate(self._all) if each.name == name]
        if not places:
            raise SqlError(f'savepoint "{name}" does not exist', sqlstate="3B001")
        return places[-1]
