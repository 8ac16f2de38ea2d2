"""Sizes as people write them."""

from __future__ import annotations

import pytest

from tidemark.errors import InvalidUsage
from tidemark.tools.output import counted
from tidemark.units import byte_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("100", 100), ("20B", 20), ("4 kB", 4096), ("1GB", 1 << 30), (" 2MiB ", 2 << 20)],
)
def test_sizes(text: str, size: int):
    assert byte_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1.5GB", "1 bytes", "1XB"])
def test_what_is_none(text: str):
    with pytest.raises(InvalidUsage, match="not a size"):
        byte_size(text)


def test_things_are_counted():
    assert [counted(n, "part") for n in (0, 1, 1234)] == ["0 parts", "1 part", "1,234 parts"]
