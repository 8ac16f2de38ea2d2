"""Follow a view, and go on where the last run ended: nothing is lost, and nothing comes twice.

    .venv/bin/python examples/follow.py totals state.json [connection]

`connection` is a port of this machine, or what `tidemark.connect` takes: "db.example:6875",
"host=db.example sslmode=verify-full sslrootcert=ca.pem".

The state is kept together with the time that it is of, in one file that is replaced at once. So a
crash at any moment leaves a state and a time that fit each other; what came since is asked for.
How long one may stay away is the view's RETAIN HISTORY, a second if nothing was said; it counts
from the time that was kept, so that is kept also when nothing has changed (`progress=True`).
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import tidemark


def follow(db: tidemark.Database, view: str, path: Path, batches: int | None = None) -> Counter:
    """What the view has, kept in a file; after so many batches of changes, if told, it returns."""
    rows: Counter[str] = Counter()
    time = None
    if path.exists():
        kept = json.loads(path.read_text())
        rows, time = Counter(kept["rows"]), kept["time"]
    seen = 0
    with db.subscribe(view, as_of=time, snapshot=time is None, progress=True) as subscription:
        for batch in subscription:
            for _, diff, *values in batch.rows():
                rows[json.dumps(values, default=str)] += diff
            rows = +rows
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps({"time": batch.time, "rows": rows}))
            os.replace(fresh, path)
            if batch.progressed:
                continue
            print(f"as of {batch.time}: {rows.total()} rows, {len(batch)} changes", flush=True)
            seen += 1
            if seen == batches:
                break
    return rows


if __name__ == "__main__":
    view, state, *rest = sys.argv[1:]
    where = rest[0] if rest else None
    dsn = f"127.0.0.1:{where}" if where and where.isdecimal() else where
    with tidemark.connect(dsn) as db, suppress(KeyboardInterrupt):
        follow(db, view, Path(state))
