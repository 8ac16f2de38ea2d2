"""Names of parts: `<shard>/<when it was staged>-<random>.parquet`.

The time in the name decides whether a part that nobody appended may be deleted (`raise_floor`);
being part of the name, everyone reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from uuid import uuid4

from tidemark.errors import InvalidUsage

_STAGED = re.compile(r"/(\d{13})-")
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


def check_shard_id(shard_id: str) -> str:
    if not _SHARD.fullmatch(shard_id):
        raise InvalidUsage(
            f"not a shard's name: {shard_id!r}",
            hint="up to 200 letters, digits, '_', '-' and '.', not beginning with '-' or '.'",
        )
    return shard_id


def check_hold(hold_id: str, epoch: int) -> None:
    if not isinstance(hold_id, str) or not hold_id:
        raise InvalidUsage(f"a hold's name is a string, got {hold_id!r}")
    if type(epoch) is not int:
        raise InvalidUsage(f"an epoch is a whole number, got {epoch!r}")


def part_name(shard_id: str, now_ms: int) -> str:
    return f"{shard_id}/{now_ms:013d}-{uuid4().hex}.parquet"


def staged_ms(key: str) -> int | None:
    """When the part was staged; None for a name that is not a part's, which we leave alone."""
    found = _STAGED.search(key)
    return int(found.group(1)) if found is not None else None


class Ages(NamedTuple):
    """Names of blobs that nothing refers to: given up by a floor, perhaps in use, not parts."""

    old: list[str]
    young: list[str]
    foreign: list[str]


def by_age(keys: Iterable[str], floor: int) -> Ages:
    ages = Ages([], [], [])
    for key in sorted(keys):
        if staged_ms(key) is None:
            ages.foreign.append(key)
        else:
            (ages.old if is_staged_before(key, floor) else ages.young).append(key)
    return ages


def is_staged_before(key: str, floor: int) -> bool:
    staged = staged_ms(key)
    return staged is not None and staged < floor
