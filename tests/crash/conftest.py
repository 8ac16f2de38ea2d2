"""What crash tests share: a seed that is printed, and the integration tests' server."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "integration"))


@pytest.fixture
def chance() -> random.Random:
    """Every choice of a test; CRASH_SEED makes the same ones again."""
    seed = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CRASH_SEED={seed}")
    return random.Random(seed)
