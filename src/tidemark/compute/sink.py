"""The self-correcting sink: makes a shard contain what a dataflow says it should.

    desired ──▶ mint ──[lower, upper)──▶ write ──batches──▶ append ──▶ shard
       │                                  ▲ ▲                            │
       └──────────────────────────────────┘ └──────── read back ─────────┘

    mint     picks the bounds of the next batch: from where the shard is, as a handle of its own
             says, to where the dataflow is
    write    keeps the difference between what is desired and what was read back (correction.py),
             and writes down what of it lies before the upper
    append   appends all batches of a description as one, by compare-and-append

If the shard was changed by someone else (a twin, an earlier life of this process, a stranger), the
append loses, what the other wrote is read back and subtracted, and the next batch writes what is
still missing: nothing if it was a twin, the repair if it was a stranger. Repairs are counted.

Invariants:
    I1  minted lowers strictly increase
    I2  minted uppers never go back
    I3  so at most one description can still succeed, and only the newest is kept
    I4  nothing is minted in read-only mode; so nothing is written or appended either
    I5  a batch is complete: persist is read back up to its lower (or all of it, where the shard has
        not come that far), desired is known up to its upper
    I6  what was staged and not appended is deleted

The same sink writes views and operator state. A state shard may follow the shard of its output
(`persist/state.py`): then it needs no append where it has no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from tidemark.compute.correction import Correction
from tidemark.compute.failpoints import reached
from tidemark.frontier import Frontier
from tidemark.persist import Appended, PersistClient
from tidemark.persist.commands import UpperMismatch
from tidemark.persist.machine import Step
from tidemark.persist.read import ReadHandle
from tidemark.persist.staging import Staged
from tidemark.persist.state import State
from tidemark.persist.updates import TIME, advance, consolidate, negate, updates_schema
from tidemark.persist.write import WriteHandle

log = structlog.get_logger("sink")


class Description(NamedTuple):
    lower: Frontier
    upper: Frontier


class Done(NamedTuple):
    """A stage that is done: `mint`, `write`, and `append` or `lose`."""

    stage: str
    description: Description
    batch: pa.Table | Staged | None = None


class Mint:
    """The only place where bounds are picked."""

    def __init__(self, writer: WriteHandle):
        self._writer = writer
        self._last: Description | None = None

    def mint(self, *, begin: Frontier, desired: Frontier) -> Description | None:
        """The next description, if one is due; none of them lies before `begin`."""
        lower = max(begin, self._writer.upper)
        if not lower < desired:
            return None
        if self._last is not None and not self._last.lower < lower:  # I1
            return None
        assert self._last is None or self._last.upper <= desired, "I2"
        self._last = Description(lower, desired)
        return self._last

    def minted(self, description: Description) -> None:
        """This one was picked and appended at once."""
        assert self._last is None or self._last.lower < description.lower, "I1"
        self._last = description


class Write:
    """What is desired, what is there, and the difference."""

    def __init__(self, reader: ReadHandle, schema: pa.Schema):
        self._reader = reader
        self._correction = Correction(schema)
        self.desired = Frontier.MIN
        self.persist = Frontier.MIN

    @property
    def rows(self) -> int:
        return self._correction.rows

    def begin(self, agreed: Frontier, since: Frontier) -> None:
        """Desired and persist are the same at all times before `agreed`; nobody cares when
        something happened before `since`."""
        self.desired = self.persist = agreed
        self._correction.advance(since)

    def desire(self, updates: pa.Table | None, upper: Frontier) -> None:
        self._correction.insert(updates, upper)
        self.desired = upper

    def read_back(self, upper: Frontier) -> None:
        """Subtract what the shard has got since it was last read back."""
        if self.persist < upper:
            self._correction.insert(negate(self._reader.updates(self.persist, upper)), upper)
            self.persist = upper

    def batch(self, description: Description) -> tuple[pa.Table, int]:
        """What the shard lacks at times before the description's upper, and how much of that it
        should have had before its lower."""
        lower, upper = description
        assert upper <= self.desired, "I5"
        assert lower.time is not None
        found = self._correction.before(upper)
        if not found.num_rows:
            return found, 0
        past = found.filter(pc.less(found[TIME], lower.time))
        if not past.num_rows:
            return found, 0
        self._correction.advance(lower)
        return self._correction.before(upper), consolidate(advance(past, lower.time)).num_rows

    def is_idle(self, upper: Frontier) -> bool:
        """Whether the shard lacks nothing at times before `upper`."""
        return not self._correction.before(upper).num_rows

    def wrote(self, description: Description) -> None:
        """What was just appended is what would be read back."""
        lower, upper = description
        self._correction.forget(upper)
        # Before the first batch the shard may have been moved up to its lower, over whatever had
        # come to it by then: that is for the next one to put right.
        self.read_back(lower)
        self._correction.advance(upper)
        self.persist = upper


class Append:
    """Appends, and cleans up what it could not."""

    def __init__(self, writer: WriteHandle, *, leads: bool):
        self._writer = writer
        self.leading = () if leads else None

    def append(self, description: Description, batch: pa.Table | Staged) -> bool:
        """Whether it is in the shard now; if not, somebody else has been there."""
        lower, upper = description
        while True:
            # A table that loses is cleaned up by the writer; what was staged before is ours (I6).
            outcome = self._writer.compare_and_append(
                batch, lower=lower, upper=upper, leading=self.leading
            )
            if isinstance(outcome, Appended):
                return True
            if not outcome.current < lower:
                break
            self._writer.advance_upper(lower)
            reached("sink.upper-advanced")
        if isinstance(batch, Staged):
            self._writer.discard(batch)
        return False


class Sink:
    """Writes one shard. `start` first; then `desire` and `flush`, as often as needed.

    `follows` is the shard that says how far this one is complete, if it says so; one that `leads`
    says so for others.
    """

    def __init__(
        self,
        client: PersistClient,
        shard_id: str,
        *,
        schema: pa.Schema,
        key: tuple[str, ...] = (),
        leads: bool = False,
        follows: str | None = None,
        read_only: Callable[[], bool] = lambda: False,
    ):
        self.shard_id = shard_id
        self.schema = updates_schema(schema)
        # State that is taken over from a view that was replaced follows that one's output.
        log = (client.state(shard_id).follows or follows) if follows else ""
        self.writer = client.open_writer(shard_id, schema=schema, key=key, log=log)
        self.corrected = 0
        """Updates that put right what somebody else has done to the shard."""
        self.written = 0
        """Updates that it has appended."""
        self._reader = client.open_reader(shard_id)
        self._read_only = read_only
        self._leads, self._log = leads, follows
        self._client = client
        self._begin = Frontier.MIN
        self._reset()

    def _reset(self) -> None:
        self._staged: Staged | None = None
        self._lost = False
        self._mint = Mint(self.writer)
        self._write = Write(self._reader, self.schema)
        self._append = Append(self.writer, leads=self._leads)

    @property
    def upper(self) -> Frontier:
        """How far the shard can be read."""
        return self._reader.upper

    @property
    def desired(self) -> Frontier:
        """How far it is known what the shard should contain."""
        return self._write.desired

    @property
    def held(self) -> int:
        """Updates in the correction buffer."""
        return self._write.rows

    def start(self, agreed: Frontier, *, begin: Frontier = Frontier.MIN) -> None:
        """Begin where desired and persist agree on everything before `agreed`.

        At the minimum nothing is agreed upon: all that the shard contains is read back, and
        whatever of it is not desired will be retracted. Nothing is written before `begin`.
        """
        self._reset()
        self._begin = max(begin, agreed)
        self._write.begin(agreed, self._begin)
        self._write.read_back(self.writer.fetch_upper())

    def desire(self, updates: pa.Table | None, upper: Frontier) -> None:
        """The dataflow is complete up to `upper`; `updates`, if any, came since the last call."""
        self._write.desire(updates, upper)

    def adopt(self, batch: Staged, upper: Frontier) -> None:
        """All of the shard's contents up to `upper`, staged by Spark; appended by `flush`.

        Only for a shard that contains nothing yet.
        """
        assert not self._write.rows, "what was read back is not in the batch"
        self._staged = batch
        self._write.desired = upper

    def flush(self) -> bool:
        """Write until the shard has all that is desired; False if that is for others to do (I4),
        or was done by them while this sink had a staged batch in hand."""
        for _ in self.stages():
            pass
        return not self._read_only() and not self._lost

    def rest(self, upper: Frontier) -> Step[Appended | UpperMismatch] | None:
        """The append with which all is done if nothing is desired before `upper` but that it comes;
        None if it takes a look to know that. When it is done, `rested`."""
        here = self.writer.upper
        at_rest = here == self._write.desired == self._write.persist and not self._write.rows
        if self._read_only() or self._lost or not at_rest or not self._begin <= here < upper:
            return None
        return self.writer.progress(here, upper, self._append.leading)

    def rested(self, upper: Frontier) -> None:
        description = Description(self._write.persist, upper)
        self._mint.minted(description)
        self._write.desire(None, upper)
        self._write.wrote(description)

    @property
    def is_led(self) -> bool:
        """Whether nothing is left to do here but what the log does that it follows."""
        return self._skips()

    def stages(self) -> Iterator[Done]:
        """What `flush` does, a stage at a time; the world goes on in between."""
        while not self._read_only() and not self._lost:
            self._follow()
            if self._skips():
                self._look_back()
                return
            description = self._mint.mint(begin=self._start, desired=self.desired)
            if description is None:
                self._overtaken()
                return
            yield Done("mint", description)
            batch, late = self._batch(description)
            reached("sink.batch-written")
            yield Done("write", description, batch)
            if self._append.append(description, batch):
                self._write.wrote(description)
                self.written += batch.rows if isinstance(batch, Staged) else batch.num_rows
                self._repaired(late)
                yield Done("append", description)
                continue
            yield Done("lose", description)
            if isinstance(batch, Staged):
                self._lost = True
            else:
                self._write.read_back(self.writer.fetch_upper())

    def _overtaken(self) -> None:
        """The shard is where it should be, by whomever: there is nothing left to write."""
        if self._staged is not None:
            self.writer.discard(self._staged)
            self._staged, self._lost = None, True
        self._look_back()

    def _look_back(self) -> None:
        """Read back what is there. Where a log says how far that is, no more will come before."""
        if not self._follows:
            self._write.read_back(self.writer.upper)
            return
        # As far as the log is known: what is asked of the shard after that has all until then.
        led = self._client.machine(self.shard_id).known().upper
        self._write.read_back(self.writer.fetch_upper())
        self._write.persist = max(self._write.persist, led)

    def _batch(self, description: Description) -> tuple[pa.Table | Staged, int]:
        if self._staged is not None:
            batch, self._staged = self._staged, None
            return batch, 0
        # Somebody may have been there since. Not that it would end the description: whether the
        # shard is still at its lower, only the append can tell.
        self._write.read_back(min(description.lower, self.writer.upper))
        return self._write.batch(description)

    def stop(self) -> None:
        """Give up what was staged and not appended (I6)."""
        if self._staged is not None:
            self.writer.discard(self._staged)
            self._staged = None

    def catch_up(self, upper: Frontier) -> bool:
        """Whether somebody has written the shard up to `upper`; what they wrote is read back."""
        if not upper <= self.upper:
            return False
        if self._staged is not None:
            self.writer.discard(self._staged)
            self._staged = None
            self._write = Write(self._reader, self.schema)
            self._write.begin(upper, upper)
        self._look_back()
        return True

    @property
    def _start(self) -> Frontier:
        """Where the first batch begins. A follower's own upper is where its last change was."""
        return Frontier.MIN if self._follows else self._begin

    @property
    def _follows(self) -> bool:
        return self._log is not None and self._cached.follows == self._log

    def _follow(self) -> None:
        if self._log is not None and not self._cached.follows:
            self.writer.follow(self._log)

    @property
    def _cached(self) -> State:
        return self._client.machine(self.shard_id).cached

    def _skips(self) -> bool:
        return self._follows and self._staged is None and self._write.is_idle(self.desired)

    def _repaired(self, late: int) -> None:
        if late:
            self.corrected += late
            log.warning("the shard was not as it should be", shard=self.shard_id, corrected=late)
