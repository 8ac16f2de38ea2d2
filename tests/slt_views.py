"""The queries of a `.slt` file together: as maintained views, or asked once, many at a time.

A view of its own costs about a second, so queries share one: each is a branch of a UNION ALL with
its number in front, and its columns lie in slots of their types.

    SELECT 0 AS q, c1 AS t23_1, NULL::text AS t25_1 FROM (first query) AS s (c1)
    UNION ALL
    SELECT 1, NULL::integer, c1 FROM (second query) AS s (c1)

A view needs something to maintain, so each has a branch over a table of one row that it leaves out.

The views are made before the file's tables get their rows, so that what they hold at the end was
maintained, change by change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slt_runner import Failed, Record, Result, Run, difference, unsorted
from tidemark.types import NUMERIC, SCALARS

BRANCHES = 40
"""Of one view."""


@dataclass(frozen=True, slots=True)
class Branch:
    record: Record
    columns: Result

    def slots(self) -> list[tuple[int, int, int]]:
        """The slot of each column: its type, its modifier and how many such are before it."""
        seen: dict[tuple[int, int], int] = {}
        found = []
        for type_ in zip(self.columns.oids, self.columns.modifiers, strict=True):
            seen[type_] = seen.get(type_, 0) + 1
            found.append((*type_, seen[type_]))
        return found


@dataclass(frozen=True, slots=True)
class Packed:
    name: str
    branches: tuple[Branch, ...]
    anchor: str

    def slots(self) -> list[tuple[int, int, int]]:
        return sorted({slot for branch in self.branches for slot in branch.slots()})

    def sql(self) -> str:
        slots = self.slots()
        selects = []
        for number, branch in enumerate(self.branches):
            at = {slot: f"c{n}" for n, slot in enumerate(branch.slots())}
            cells = [at.get(slot) or f"CAST(NULL AS {_type(*slot[:2])})" for slot in slots]
            if not selects:
                cells = [f"{cell} AS s{n}" for n, cell in enumerate(cells)]
            names = ", ".join(at.values())
            query = branch.record.sql.rstrip().removesuffix(";")
            head = f"SELECT {number} AS q, {', '.join(cells)}"
            selects.append(f"{head} FROM (\n{query}\n) AS s ({names})")
        nulls = ", ".join(f"CAST(NULL AS {_type(*slot[:2])})" for slot in slots)
        selects.append(f"SELECT -1 AS q, {nulls} FROM {self.anchor} WHERE one > 1")
        return "\nUNION ALL\n".join(selects)

    def results(self, contents: Result) -> list[Result]:
        """What the view holds, taken apart into the results of its queries."""
        slots = self.slots()
        rows: list[list[tuple[str | None, ...]]] = [[] for _ in self.branches]
        places = [[slots.index(slot) + 1 for slot in branch.slots()] for branch in self.branches]
        for row in contents.rows:
            number = int(row[0] or 0)
            rows[number].append(tuple(row[at] for at in places[number]))
        return [
            Result(found, branch.columns.oids)
            for found, branch in zip(rows, self.branches, strict=True)
        ]


class Views:
    """The views of a file: made at once, and each checked when its queries' turn comes.

    With `maintained` false there are none, and what they would hold is asked for by a SELECT.
    """

    def __init__(self, prefix: str, run: Run, *, maintained: bool = True):
        self._maintained = maintained
        self._prefix = prefix
        self._anchor = f"{prefix}_anchor"
        self._run = run
        self._made: list[Packed] = []
        self._count = 0

    def make(self, phases: Sequence[Sequence[Record]]) -> None:
        self._run.engine.execute(f"CREATE TABLE {self._anchor} (one integer)")
        self._run.engine.execute(f"INSERT INTO {self._anchor} VALUES (1)")
        for records in phases:
            self._make(records)

    def _make(self, records: Sequence[Record]) -> None:
        branches: list[Branch] = []
        for record in records:
            try:
                branches.append(Branch(record, self._run.engine.describe(record.sql)))
            except Failed as failed:
                self._run.problem(record, f"cannot be planned: {failed}")
        for start in range(0, len(branches), BRANCHES):
            self._create(tuple(branches[start : start + BRANCHES]))

    def _create(self, branches: tuple[Branch, ...]) -> None:
        """One view, or where it is refused, one for each half of its queries."""
        packed = Packed(f"{self._prefix}_{self._count}", branches, self._anchor)
        self._count += 1
        try:
            if self._maintained:
                self._run.engine.execute(
                    f"CREATE MATERIALIZED VIEW {packed.name} AS {packed.sql()}"
                )
        except Failed as failed:
            if len(branches) == 1:
                self._run.problem(branches[0].record, f"no view: {failed}")
                return
            middle = len(branches) // 2
            self._create(branches[:middle])
            self._create(branches[middle:])
            return
        self._made.append(packed)

    def check(self, records: Sequence[Record]) -> None:
        """Compare the views of these queries with what is expected of them."""
        lines = {record.line for record in records}
        for packed in tuple(self._made):
            if packed.branches[0].record.line in lines:
                self._check(packed)

    def _check(self, packed: Packed) -> None:
        try:
            whole = f"SELECT * FROM {packed.name}" if self._maintained else packed.sql()
            contents = self._run.engine.execute(whole)
        except Failed as failed:
            if len(packed.branches) == 1:
                self._run.problem(packed.branches[0].record, f"cannot be read: {failed}")
                return
            # A row that failed makes all of the view fail: look at each half.
            before, middle = len(self._made), len(packed.branches) // 2
            self._create(packed.branches[:middle])
            self._create(packed.branches[middle:])
            for half in self._made[before:]:
                self._check(half)
            return
        for branch, result in zip(packed.branches, packed.results(contents), strict=True):
            self._run.queries += 1
            if (wrong := difference(unsorted(branch.record), result)) is not None:
                self._run.problem(branch.record, wrong)

    def drop(self) -> None:
        for packed in self._made if self._maintained else ():
            self._run.engine.execute(f"DROP MATERIALIZED VIEW {packed.name}")
        self._run.engine.execute(f"DROP TABLE {self._anchor}")


_SCALARS = {scalar.oid: name for name, scalar in SCALARS.items()}
_ARRAYS = {scalar.array_oid: name for name, scalar in SCALARS.items()}


def _type(oid: int, modifier: int) -> str:
    if oid == NUMERIC.oid and modifier >= 0:
        limits = modifier - 4
        return f"numeric({limits >> 16}, {limits & 0xFFFF})"
    return _SCALARS[oid] if oid in _SCALARS else f"{_ARRAYS[oid]}[]"
