"""Load generators: sources that need no service, for demos, tests and benchmarks.

A generator is like a topic with one partition: offset n is *step n*, and what step n does is a
function of (options, n) alone. There is no state, no clock and no random-number generator to
carry along, so any range of steps can be generated again, after a restart, on another machine
and in any chunking, with the same rows in the same order. That is what makes the source definite.

    step        0           1           2           3     …
            ┌───────────┬───────────┬───────────┬───────────┬──
    users   │ +all      │ −old +new │ −old +new │ −old +new │
    auctions│ +new      │ +new      │ +new      │ +new −old │
            └───────────┴───────────┴───────────┴───────────┴──
            └── updates(0, 2) ──────┘└── updates(2, 4) ─────┘

There are four, with these options beside TICK INTERVAL (the time from step to step) and UP TO (how
many steps), which belong to the source:

    AUCTION     users, auctions and bids: small rows that come, change and go
                SEED, USERS, AUCTIONS PER STEP, BIDS PER STEP, HISTORY
    COUNTER     one number more with every step
                MAX CARDINALITY
    KEY VALUE   keys with values of a given size, overwritten and deleted
                SEED, KEYS, VALUE SIZE, BATCH SIZE, DELETE PERCENT
    TPCH        the eight tables of TPC-H, then its refreshes: orders come and go
                SEED, SCALE FACTOR, REFRESH

For example:

    >>> auction = generator("auction", {"seed": 7, "users": 100})
    >>> whole, tail = auction.updates(0, 60), auction.updates(50, 60)
    >>> tail["bids"].equals(whole["bids"].slice(len(whole["bids"]) - len(tail["bids"])))
    True

Not here: which steps become visible at which timestamp. Binding offsets to times is the source's
work, as it is for Kafka. A range is generated in memory, so the caller chooses how long it is.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from tidemark.errors import SqlError
from tidemark.storage.generators.auction import Auction
from tidemark.storage.generators.columns import TableSpec
from tidemark.storage.generators.counter import Counter
from tidemark.storage.generators.key_value import KeyValue
from tidemark.storage.generators.options import checked
from tidemark.storage.generators.tpch import Tpch

__all__ = ["Generator", "generator"]


class Generator(Protocol):
    """Tables whose updates are a pure function of the step."""

    @property
    def tables(self) -> dict[str, TableSpec]:
        """The columns and the key of each table, by name."""
        ...

    def updates(self, start: int, stop: int) -> dict[str, pa.Table]:
        """Each table's updates in steps [start, stop), in the order of the steps.

        The columns are the row's, then `_offset` (the step) and `_diff`, both BIGINT.
        """
        ...


_KINDS = {"auction": Auction, "counter": Counter, "key value": KeyValue, "tpch": Tpch}


def generator(kind: str, options: dict[str, str | int]) -> Generator:
    """The generator that SQL calls `kind`; options left out take their defaults."""
    if kind not in _KINDS:
        raise SqlError(
            f'load generator "{kind}" is not known',
            hint="known: " + ", ".join(_KINDS),
            sqlstate="42704",
        )
    limits = _KINDS[kind].LIMITS
    for name in options:
        if name not in limits:
            raise SqlError(
                f'load generator "{kind}" has no option "{name}"',
                hint="options: " + ", ".join(limits),
            )
    values = {name: checked(name, value, limits[name]) for name, value in options.items()}
    return _KINDS[kind](**values)
