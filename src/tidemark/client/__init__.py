"""Tidemark from Python: `tidemark.connect(...)` and `tidemark.local(path)`.

A `Database` is a connection to a server, over PostgreSQL's wire protocol. What it asks comes back
as a `Result`, what it subscribes to as `Batch`es, each on a connection of its own:

    db.sql(query)        ->  Result   .arrow() .pandas() .polars() .spark(s) .rows()
    db.subscribe(view)   ->  Batch    at .time the view is what all batches so far add up to
    db.insert(table, data)            Arrow, pandas, Polars or dicts, in one COPY
    db.live(view)                     a table on the screen, or in the notebook, that changes

    with tidemark.connect() as db:
        db.execute("CREATE MATERIALIZED VIEW totals AS SELECT k, sum(n) AS n FROM t GROUP BY k")
        print(db.sql("SELECT * FROM totals WHERE n > $1", [10]).pandas())
        for batch in db.subscribe("totals"):
            print(batch.time, batch.rows())

What this is not: a way to read shards without a server, which is `tidemark.attach`; nor an
asynchronous client, which psycopg, asyncpg and the websocket (docs/http.md) are.
"""

from __future__ import annotations

from tidemark.client.database import Database, connect
from tidemark.client.embedded import local
from tidemark.client.result import Result
from tidemark.client.subscription import Batch, Subscription

__all__ = ["Batch", "Database", "Result", "Subscription", "connect", "local"]
