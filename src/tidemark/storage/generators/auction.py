"""An auction house: users, auctions and bids, with updates and deletes.

Every row is a function of its id and its version, and every life is a schedule known in advance:

    step   c            c + OPEN_STEPS     c + history
           │ auction open     │ closed          │ deleted
           │ bids come in     │                 │ its bids deleted

So an update is only (offset, id, version, diff); a retraction computes the same row from the same
id and version as the insertion that it cancels. The invariants, at the end of every step:

    I1  every row has count 1, and ids are unique within a table
    I2  bids.auction_id is an auction that exists; seller and buyer are users that exist
    I3  only an open auction receives bids

Users are loaded at step 0 and stay; from then on a few per step change region, in turn.
Ids count from 0: auction n is created at step n // auctions_per_step, and bids likewise.

What is drawn by chance is drawn by hashing (seed, stream, id), see `draws`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.storage.generators import columns as c
from tidemark.storage.generators.columns import MAX_STEP, TableSpec, ids
from tidemark.storage.generators.draws import (
    Bits,
    Ints,
    below,
    coprime_stride,
    draw,
    skewed_below,
)
from tidemark.storage.generators.options import Limit
from tidemark.types import BIGINT, TEXT, TIMESTAMPTZ, Column, numeric

OPEN_STEPS = 20
"""An auction takes bids in the step that creates it and the 19 after it."""

HOT_EVERY = 10
"""The first auction of every tenth step is hot: half of all bids go to the latest one."""

MOVES_PER_STEP = 3
"""How many users may change region in one step."""

_EPOCH_US = 1_767_225_600_000_000  # 2026-01-01 00:00:00 UTC
_STEP_US = 1_000_000

_AMOUNT = numeric(12, 2)

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "users": (
        Column("id", BIGINT, nullable=False),
        Column("name", TEXT, nullable=False),
        Column("region", TEXT, nullable=False),
    ),
    "auctions": (
        Column("id", BIGINT, nullable=False),
        Column("seller", BIGINT, nullable=False),
        Column("item", TEXT, nullable=False),
        Column("category", TEXT, nullable=False),
        Column("status", TEXT, nullable=False),
        Column("end_time", TIMESTAMPTZ, nullable=False),
    ),
    "bids": (
        Column("id", BIGINT, nullable=False),
        Column("auction_id", BIGINT, nullable=False),
        Column("buyer", BIGINT, nullable=False),
        Column("amount", _AMOUNT, nullable=False),
        Column("bid_time", TIMESTAMPTZ, nullable=False),
    ),
}
TABLES = {name: TableSpec(columns, key=("id",)) for name, columns in _COLUMNS.items()}


def _words(text: str) -> list[str]:
    return text.split(", ")


_REGIONS = pa.array(
    _words("Europe, North America, Asia, South America, Africa, Oceania, Middle East, Caribbean")
)
_CATEGORIES = pa.array(
    _words(
        "books, coins, toys, art, music, jewellery, furniture, cameras, clocks, stamps, maps, wine"
    )
)
_FIRST_NAMES = _words(
    "Ada, Alan, Barbara, Dennis, Donald, Edsger, Frances, Grace, Hedy, Jean, Jim, John, Karen, "
    "Katherine, Ken, Leslie, Margaret, Niklaus, Radia, Tony"
)
_LAST_NAMES = _words(
    "Abe, Baker, Costa, Diaz, Evans, Fischer, Garcia, Haas, Ito, Jansen, Khan, Lopez, Moreau, "
    "Novak, Okafor, Park, Rossi, Silva, Tanaka, Weber"
)
_QUALITIES = _words(
    "antique, brass, carved, enamel, gilded, ivory, lacquered, miniature, painted, rare, signed, "
    "silver"
)
_THINGS = _words(
    "astrolabe, atlas, box, candlestick, chess set, clock, compass, globe, lamp, locket, medal, "
    "mirror, model ship, music box, portrait, ring, sextant, teapot, telescope, vase"
)
_NAMES = pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])
_ITEMS = pa.array([f"{quality} {thing}" for quality in _QUALITIES for thing in _THINGS])
_OPEN, _CLOSED = 0, 1
_STATUSES = pa.array(["open", "closed"])


class _Stream(IntEnum):
    """What a hash is for: one independent sequence of draws each. Append only."""

    NAME = 0
    REGION = 1
    MOVE_SHIFT = 2
    SELLER = 3
    ITEM = 4
    CATEGORY = 5
    START_PRICE = 6
    BID_IS_HOT = 7
    BID_AUCTION = 8
    BUYER = 9
    RAISE = 10


class _Changes(NamedTuple):
    """Updates to one table before their rows are spelled out."""

    offset: Ints
    id: Ints
    version: Ints
    diff: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Auction:
    """The options; `generators.generator` checks them against LIMITS."""

    seed: int = 1
    users: int = 1000
    auctions_per_step: int = 1
    bids_per_step: int = 10
    history: int = 1000

    LIMITS: ClassVar[dict[str, Limit]] = {
        "seed": range(0, 2**63),
        "users": range(1, 10**7 + 1),
        "auctions_per_step": range(1, 10**6 + 1),
        "bids_per_step": range(1, 10**6 + 1),
        # An auction is deleted only after it was closed.
        "history": range(OPEN_STEPS + 1, MAX_STEP + 1),
    }

    @property
    def tables(self) -> dict[str, TableSpec]:
        return dict(TABLES)

    def updates(self, start: int, stop: int) -> dict[str, pa.Table]:
        """Each table's updates in steps [start, stop), ordered by `_offset`."""
        c.check_steps(start, stop)
        users = self._user_changes(start, stop)
        auctions = self._auction_changes(start, stop)
        bids = self._bid_changes(start, stop)
        return {
            "users": _table("users", users, self._user_rows(users.id, users.version)),
            "auctions": _table(
                "auctions", auctions, self._auction_rows(auctions.id, auctions.version)
            ),
            "bids": _table("bids", bids, self._bid_rows(bids.id)),
        }

    # When rows come and go.

    def _user_changes(self, start: int, stop: int) -> _Changes:
        loaded = np.arange(self.users if start == 0 < stop else 0)

        # Turns are numbered through all steps from step 1. A round of `users` turns visits every
        # user once, so a user's version is simply the round; and no user moves twice in a step.
        per_step = min(MOVES_PER_STEP, self.users)
        turn = np.arange((max(start, 1) - 1) * per_step, (max(stop, 1) - 1) * per_step)
        version, place = np.divmod(turn, self.users)
        stride = coprime_stride(self.users)
        shift = below(self._draw(_Stream.MOVE_SHIFT), self.users)
        user = (place * stride + shift) % self.users
        step = 1 + turn // per_step

        # A move to the same region is no update.
        moved = self._region(user, version) != self._region(user, version + 1)
        step, user, version = step[moved], user[moved], version[moved]
        return _in_order(
            _changes(np.zeros_like(loaded), loaded, 0, +1),
            _changes(step, user, version, -1),
            _changes(step, user, version + 1, +1),
        )

    def _auction_changes(self, start: int, stop: int) -> _Changes:
        opened = ids(start, stop, self.auctions_per_step)
        closed = ids(start - OPEN_STEPS, stop - OPEN_STEPS, self.auctions_per_step)
        deleted = ids(start - self.history, stop - self.history, self.auctions_per_step)
        closing = self._created(closed) + OPEN_STEPS
        return _in_order(
            _changes(self._created(deleted) + self.history, deleted, _CLOSED, -1),
            _changes(closing, closed, _OPEN, -1),
            _changes(closing, closed, _CLOSED, +1),
            _changes(self._created(opened), opened, _OPEN, +1),
        )

    def _bid_changes(self, start: int, stop: int) -> _Changes:
        placed = ids(start, stop, self.bids_per_step)

        # A bid goes when its auction goes: look at all bids that the auctions which are deleted
        # in these steps can have received while they were open.
        deleted = ids(
            start - self.history, stop - self.history + OPEN_STEPS - 1, self.bids_per_step
        )
        deletion = self._created(self._auction_of(deleted)) + self.history
        due = (start <= deletion) & (deletion < stop)
        return _in_order(
            _changes(deletion[due], deleted[due], 0, -1),
            _changes(placed // self.bids_per_step, placed, 0, +1),
        )

    # What rows say.

    def _user_rows(self, user: Ints, version: Ints) -> list[pa.Array]:
        return [
            pa.array(user),
            _NAMES.take(pa.array(below(self._draw(_Stream.NAME, user), len(_NAMES)))),
            _REGIONS.take(pa.array(self._region(user, version))),
        ]

    def _auction_rows(self, auction: Ints, version: Ints) -> list[pa.Array]:
        category = skewed_below(self._draw(_Stream.CATEGORY, auction), len(_CATEGORIES))
        return [
            pa.array(auction),
            pa.array(skewed_below(self._draw(_Stream.SELLER, auction), self.users)),
            _ITEMS.take(pa.array(below(self._draw(_Stream.ITEM, auction), len(_ITEMS)))),
            _CATEGORIES.take(pa.array(category)),
            _STATUSES.take(pa.array(version)),
            _timestamps((self._created(auction) + OPEN_STEPS) * _STEP_US),
        ]

    def _bid_rows(self, bid: Ints) -> list[pa.Array]:
        step, place = np.divmod(bid, self.bids_per_step)
        auction = self._auction_of(bid)
        # Prices rise by 5 % of the start price per step that the auction is open.
        start_price = 100 + skewed_below(self._draw(_Stream.START_PRICE, auction), 100_000)
        risen = start_price * (step - self._created(auction)) // 20
        raised = below(self._draw(_Stream.RAISE, bid), 1_000)
        return [
            pa.array(bid),
            pa.array(auction),
            pa.array(skewed_below(self._draw(_Stream.BUYER, bid), self.users)),
            c.cents(start_price + risen + raised, _AMOUNT),
            # Spread over the step's second, and so before the auction's end_time.
            _timestamps(step * _STEP_US + place * _STEP_US // self.bids_per_step),
        ]

    def _created(self, auction: Ints) -> Ints:
        """The step that creates the auction."""
        return auction // self.auctions_per_step

    def _region(self, user: Ints, version: Ints) -> Ints:
        return skewed_below(self._draw(_Stream.REGION, user, version), len(_REGIONS))

    def _auction_of(self, bid: Ints) -> Ints:
        """The auction that is bid on: one that is open in the bid's step (I3)."""
        step = bid // self.bids_per_step
        open_auctions = np.minimum(step + 1, OPEN_STEPS) * self.auctions_per_step
        newest = (step + 1) * self.auctions_per_step - 1
        any_open = newest - below(self._draw(_Stream.BID_AUCTION, bid), open_auctions)
        hot = (step - step % HOT_EVERY) * self.auctions_per_step
        return np.where(below(self._draw(_Stream.BID_IS_HOT, bid), 2) == 0, hot, any_open)

    def _draw(self, stream: _Stream, *key: Ints) -> Bits:
        return draw(self.seed, stream, *key)


def _changes(offset: Ints, id: Ints, version: int | Ints, diff: int) -> _Changes:
    return _Changes(
        offset, id, np.broadcast_to(version, id.shape), np.broadcast_to(np.int64(diff), id.shape)
    )


def _in_order(*changes: _Changes) -> _Changes:
    together = _Changes(*(np.concatenate(column) for column in zip(*changes, strict=True)))
    order = c.by_offset(together.offset)
    return _Changes(*(column[order] for column in together))


def _table(name: str, changes: _Changes, rows: list[pa.Array]) -> pa.Table:
    return c.updates(TABLES[name], rows, changes.offset, changes.diff)


def _timestamps(since_epoch_us: Ints) -> pa.Array:
    return pa.array(_EPOCH_US + since_epoch_us).cast(TIMESTAMPTZ.arrow)
