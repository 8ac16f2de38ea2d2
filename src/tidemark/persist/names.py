"""Names of parts: `<shard>/<when it was staged>-<random>.parquet`.

The time in the name decides whether a part that nobody appended may be deleted (`raise_floor`);
being part of the name, everyone reads the same.
"""

from __future__ import annotations

import re
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


def part_name(shard_id: str, now_ms: int) -> str:
    return f"{part_prefix(shard_id, now_ms)}.parquet"


def part_prefix(shard_id: str, now_ms: int) -> str:
    """A fresh name without its ending: also the folder of what Spark's tasks write."""
    return f"{shard_id}/{now_ms:013d}-{uuid4().hex}"


def staged_ms(key: str) -> int:
    found = _STAGED.search(key)
    if found is None:
        raise InvalidUsage(f"not the name of a part: {key!r}")
    return int(found.group(1))
