"""The self-correcting sink: makes a shard contain what a dataflow says it should.

    desired   what the collection should contain (updates from the dataflow, up to a frontier)
    persist   what the shard does contain (read back, up to its upper)
    correction = desired - persist, the difference that is still to be written

        desired --> mint --[lower, upper)--> write --parts--> append --> shard
                                               ^                           |
                                               '------ read back ----------'

`mint` picks the next batch's bounds from the two frontiers, `write` stages the correction up to
that upper, `append` appends it by compare-and-append. If the shard was changed by someone else (a
replica, an earlier life of this process), the append loses, what the other wrote is read back and
subtracted, and the next batch writes what is still missing.

Invariants:
    I1  minted lowers strictly increase
    I2  minted uppers never decrease
    I3  so at most one description can still succeed: only the newest is kept
    I4  nothing is minted in read-only mode
    I5  a batch is complete: it is written when persist is known up to its lower and desired up to
        its upper

The same sink writes views and operator state: after a crash between two appends, the shard that
got further has its lead subtracted, and the laggard catches up.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from tidemark.frontier import Frontier
from tidemark.persist import Appended, PersistClient, UpperMismatch
from tidemark.persist.staging import Staged
from tidemark.persist.updates import (
    advance,
    as_updates,
    between,
    concat,
    consolidate,
    negate,
    updates_schema,
)


class Description(NamedTuple):
    lower: Frontier
    upper: Frontier


class Sink:
    """Writes one shard. `start` first; then `desire` and `flush`, as often as needed."""

    def __init__(
        self,
        client: PersistClient,
        shard_id: str,
        *,
        schema: pa.Schema,
        key: tuple[str, ...] = (),
        read_only: bool = False,
    ):
        self.shard_id = shard_id
        self.schema = updates_schema(schema)
        self.read_only = read_only
        self.writer = client.open_writer(shard_id, schema=schema, key=key)
        self._reader = client.open_reader(shard_id)
        self._correction = self.schema.empty_table()
        self._persist = Frontier.MIN
        self._desired = Frontier.MIN
        self._last: Description | None = None

    @property
    def upper(self) -> Frontier:
        return self.writer.fetch_upper()

    @property
    def desired(self) -> Frontier:
        """How far it is known what the shard should contain."""
        return self._desired

    def start(self, agreed: Frontier) -> None:
        """Begin where desired and persist agree on everything before `agreed`.

        At the minimum nothing is agreed upon: all that the shard contains is read back, and
        whatever of it is not desired will be retracted.
        """
        self._correction = self.schema.empty_table()
        self._desired, self._persist, self._last = agreed, agreed, None
        upper = self.upper
        if agreed < upper and not agreed.time:
            self._read_back_all(upper)
        elif agreed < upper:
            self._read_back(upper)

    def desire(self, updates: pa.Table, upper: Frontier) -> None:
        """The dataflow is complete up to `upper`; `updates` came since the last call."""
        if updates.num_rows:
            self._correct(as_updates(updates, schema=self.schema))
        self._desired = upper

    def flush(self) -> None:
        """Write until the shard has all that is desired."""
        while (description := self._mint()) is not None:
            batch = self._write(description)
            outcome = self.writer.compare_and_append(
                batch, lower=description.lower, upper=description.upper
            )
            self._appended(description, outcome)

    def adopt(self, batch: Staged, upper: Frontier) -> bool:
        """Append a batch that Spark has staged: all of the shard's contents up to `upper`.

        Only for a shard that contains nothing yet; False (and nothing happened) if it does.
        """
        if self.read_only or self._correction.num_rows:
            return False
        lower = self._persist
        outcome = self.writer.compare_and_append(batch, lower=lower, upper=upper)
        if isinstance(outcome, UpperMismatch):
            self.writer.discard(batch)
            return False
        self._desired = self._persist = upper
        return True

    def _mint(self) -> Description | None:
        if self.read_only or not self._persist < self._desired:
            return None
        if self._last is not None and not self._last.lower < self._persist:
            return None
        self._last = Description(self._persist, self._desired)
        return self._last

    def _write(self, description: Description) -> pa.Table:
        """The correction within the description's bounds; what lies beyond waits."""
        lower, upper = description
        assert lower.time is not None
        self._correction = consolidate(advance(self._correction, lower.time))
        return between(self._correction, lower.time, upper.time)

    def _appended(self, description: Description, outcome: Appended | UpperMismatch) -> None:
        if isinstance(outcome, UpperMismatch):
            self._read_back(outcome.current)
            return
        # What was just written is what would be read back.
        later = description.upper.time
        empty = self.schema.empty_table()
        self._correction = between(self._correction, later, None) if later is not None else empty
        self._persist = description.upper

    def _read_back(self, upper: Frontier) -> None:
        written = self._reader.updates(self._persist, upper)
        self._correct(negate(written))
        self._persist = upper

    def _read_back_all(self, upper: Frontier) -> None:
        assert upper.time
        self._correct(negate(self._reader.snapshot(upper.time - 1)))
        self._persist = upper

    def _correct(self, updates: pa.Table) -> None:
        self._correction = concat([self._correction, updates], self.schema)
