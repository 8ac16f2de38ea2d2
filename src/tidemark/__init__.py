"""Tidemark keeps SQL views over changing data correct, fresh and durable, on Spark.

The layers, each using only those below it: `control`, `compute`, `storage`, `persist`.
`docs/architecture.md` follows one update through all of them.

From a Spark script, without the server's help:

    import tidemark
    region = tidemark.attach(spark, "demo.tidemark")
    spark.sql("select count(*) from tidemark.bids")
    with region.at("users", "bids") as at:           # one time at which both can be read
        at.frame(spark, "users").join(at.frame(spark, "bids"), ...)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.region import At, Region, attach, open_region, pass_through

__all__ = ["At", "Region", "attach", "open_region", "pass_through"]

# Parts that travel inside a shard's state are decoded where they lie; Arrow then copies the few
# buffers that are not aligned instead of warning about them.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")


def __getattr__(name: str) -> object:
    # On first use: the layers below must be importable without the whole of Spark.
    if name in __all__:
        from tidemark import region

        return getattr(region, name)
    raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
