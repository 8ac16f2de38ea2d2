"""Sizes as people write them."""

from __future__ import annotations

import re
from functools import lru_cache

from tidemark.errors import InvalidUsage

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_SIZE = re.compile(r"\s*([0-9]{1,18})\s*([a-z]*)\s*")


@lru_cache
def byte_size(text: str) -> int:
    """`1GB`, `512 MB`, `100` (bytes): as PostgreSQL counts, 1 kB is 1024 bytes."""
    found = _SIZE.fullmatch(text.lower().replace("ib", "b"))
    if found is None or found[2] not in _UNITS:
        raise InvalidUsage(f"not a size: {text!r}", hint="a number of bytes, or 512kB, 64MB, 1GB")
    return int(found[1]) * _UNITS[found[2]]
