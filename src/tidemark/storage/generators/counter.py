"""A counter: the least that a source can do.

    step         0     1     2     3     4    …
    without      +1    +2    +3    +4    +5
    MAX 3        +1    +2    +3    +4    +5
                                   −1    −2

Step n adds n + 1. With MAX CARDINALITY it also retracts the oldest row once there are more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tidemark.storage.generators import columns as c
from tidemark.storage.generators.options import Limit
from tidemark.types import BIGINT, Column

TABLE = c.TableSpec((Column("counter", BIGINT, nullable=False),), key=("counter",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    max_cardinality: int | None = None

    LIMITS: ClassVar[dict[str, Limit]] = {"max_cardinality": range(1, c.MAX_STEP + 1)}

    @property
    def tables(self) -> dict[str, c.TableSpec]:
        return {"counter": TABLE}

    def updates(self, start: int, stop: int) -> dict[str, pa.Table]:
        c.check_steps(start, stop)
        lasts = self.max_cardinality or c.MAX_STEP
        added = c.ids(start, stop, 1)
        gone = c.ids(start - lasts, stop - lasts, 1)
        step = np.concatenate([gone + lasts, added])
        order = c.by_offset(step)
        value = np.concatenate([gone, added])[order] + 1
        diff = np.repeat([-1, +1], [len(gone), len(added)])[order]
        return {"counter": c.updates(TABLE, [pa.array(value)], step[order], diff)}
