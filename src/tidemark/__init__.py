"""Tidemark keeps SQL views over changing data correct, fresh and durable, on Spark.

The layers, each using only those below it: `control`, `compute`, `storage`, `persist`.
`docs/architecture.md` follows one update through all of them.

From a Spark script, without the server's help:

    import tidemark
    region = tidemark.attach(spark, "demo.tidemark")
    spark.sql("select count(*) from tidemark.bids")
    with region.at("users", "bids") as at:           # one time at which both can be read
        at.frame(spark, "users").join(at.frame(spark, "bids"), ...)

As a client of a server, or of a folder with one behind it (`docs/python.md`):

    with tidemark.connect() as db:                   # or tidemark.local("folder")
        db.sql("SELECT * FROM totals").pandas()
        for batch in db.subscribe("totals"):         # what it has, then every change
            print(batch.time, batch.rows())
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.client import Batch, Database, Result, Subscription, connect, local
    from tidemark.errors import TidemarkError
    from tidemark.region import At, Region, attach, open_region, pass_through

_PLACES = {
    "tidemark.region": ("At", "Region", "attach", "open_region", "pass_through"),
    "tidemark.client": ("connect", "local", "Database", "Result", "Batch", "Subscription"),
    "tidemark.errors": ("TidemarkError",),
}

__all__ = [
    "At",
    "Region",
    "attach",
    "open_region",
    "pass_through",
    "connect",
    "local",
    "Database",
    "Result",
    "Batch",
    "Subscription",
    "TidemarkError",
]

# Parts that travel inside a shard's state are decoded where they lie; Arrow then copies the few
# buffers that are not aligned instead of warning about them.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")

# Where there is no Java but the one that the set-up has brought, sessions of Spark that are made
# without us find that, too.
if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
    _recorded = Path(sys.prefix) / "java-home"
    if _recorded.is_file():
        os.environ["JAVA_HOME"] = _recorded.read_text().strip()


def __getattr__(name: str) -> object:
    # On first use: the layers below must be importable without the whole of Spark.
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
