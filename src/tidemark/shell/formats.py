"""How results are printed. Apart from what prints them: the command line needs no more to begin."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    ALIGNED = "aligned"
    CSV = "csv"
    JSON = "json"
