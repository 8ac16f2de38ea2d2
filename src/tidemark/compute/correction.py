"""The correction buffer: what a shard should contain, less what it does contain.

    desired   +a@3  +b@3  -a@7            what the dataflow says
    persist   -a@3  -x@3                  what was read back, with its sign turned
    held            +b@3  -x@3  -a@7      b is missing, x does not belong there, a is to go

Times before the shard's frontier are moved up to it (`advance`): what is wrong there can only be
put right from now on. Opposites cancel when they meet, so once all that was written has been read
back nothing is left, and memory follows the difference, not what has passed through: the buffer is
consolidated whenever it has doubled.

What lies beyond the times that are being written (the next refresh of a view that is refreshed
once a day, say) is kept apart by time, and not looked at until then.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.frontier import Frontier
from tidemark.persist.updates import TIME, advance, as_updates, consolidate

FEW_ROWS = 10_000
"""Not worth consolidating before it is asked for."""


class Correction:
    def __init__(self, schema: pa.Schema):
        self._schema = schema
        self._since = 0
        self._horizon = Frontier.MIN
        self._empty = schema.empty_table()
        self._near = _Pile(self._empty)
        self._later: dict[int, _Pile] = {}

    @property
    def rows(self) -> int:
        """How many there are once opposites have met."""
        return sum(pile.all().num_rows for pile in (self._near, *self._later.values()))

    def insert(self, updates: pa.Table | None, upper: Frontier) -> None:
        """`updates`, if any, with which it is complete up to `upper`."""
        self._horizon = max(self._horizon, upper)
        if updates is None or not updates.num_rows:
            return
        inserted = advance(as_updates(updates, schema=self._schema), self._since)
        times = inserted[TIME].to_numpy()
        if self._horizon.covers(int(times.max())):
            self._near.add(inserted)
            return
        for time in np.unique(times):
            piece = inserted.filter(pc.equal(inserted[TIME], int(time)))
            near = self._horizon.covers(int(time))
            pile = self._near if near else self._later.setdefault(int(time), _Pile(self._empty))
            pile.add(piece)

    def advance(self, since: Frontier) -> None:
        """From now on there is nothing before `since`."""
        if since.time is None or since.time <= self._since:
            return
        self._since = since.time
        self._near.advance(since.time)
        for time in [time for time in self._later if time < since.time]:
            self._near.add(advance(self._later.pop(time).all(), since.time))

    def before(self, upper: Frontier) -> pa.Table:
        """All of it at times before `upper`, consolidated."""
        self._horizon = max(self._horizon, upper)
        for time in [time for time in self._later if upper.covers(time)]:
            self._near.add(self._later.pop(time).all())
        found = self._near.all()
        if upper.time is None or not found.num_rows:
            return found
        return found.filter(pc.less(found[TIME], upper.time))

    def forget(self, upper: Frontier) -> None:
        """What lies before `upper` is in the shard now."""
        left = self._near.all()
        self._near = _Pile(self._empty)
        if upper.time is not None and left.num_rows:
            self._near.add(left.filter(pc.greater_equal(left[TIME], upper.time)))


class _Pile:
    """Updates, consolidated once they have become twice as many."""

    def __init__(self, empty: pa.Table):
        self._empty = empty
        self._tables: list[pa.Table] = []
        self._settled = 0
        self.rows = 0

    def add(self, updates: pa.Table) -> None:
        if updates.num_rows:
            self._tables.append(updates)
            self.rows += updates.num_rows
            if self.rows > 2 * self._settled + FEW_ROWS:
                self.all()

    def advance(self, since: int) -> None:
        self._tables = [advance(table, since) for table in self._tables]

    def all(self) -> pa.Table:
        if not self._tables:
            return self._empty
        # What was consolidated may have been moved to equal times since.
        table = consolidate(pa.concat_tables(self._tables))
        self._tables = [table] if table.num_rows else []
        self._settled = self.rows = table.num_rows
        return table
