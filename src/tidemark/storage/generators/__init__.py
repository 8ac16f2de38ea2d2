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
from tidemark.types import Column

__all__ = ["Generator", "generator"]


class Generator(Protocol):
    """Tables whose updates are a pure function of the step."""

    @property
    def tables(self) -> dict[str, tuple[Column, ...]]:
        """The columns of each table, by name."""
        ...

    def updates(self, start: int, stop: int) -> dict[str, pa.Table]:
        """Each table's updates in steps [start, stop), in the order of the steps.

        The columns are the row's, then `_offset` (the step) and `_diff`, both BIGINT.
        """
        ...


_KINDS = {"auction": Auction}


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
    return _KINDS[kind](
        **{name: _integer(name, value, limits[name]) for name, value in options.items()}
    )


def _integer(name: str, value: str | int, allowed: range) -> int:
    try:
        number = int(value) if type(value) in (int, str) else None
    except ValueError:
        number = None
    if number is None or number not in allowed:
        raise SqlError(
            f'option "{name}" of a load generator is {value!r}',
            hint=f"it must be an integer from {allowed[0]} to {allowed[-1]}",
            sqlstate="22023",
        )
    return number
