"""COMPUTE: keeps the results of queries right while their inputs change.

A *view* is a query over collections and a collection itself: at every time t it holds what the
query says of its inputs at t. It costs what changes, not what is there.

    SQL ──sql/──▶ plan ──optimise──▶ plan ──fragments──▶ shapes ──delta──▶ Spark SQL text
                                                           │                  │
    inputs ──changes in [lower, upper)──▶ probe ──▶ body ──▶ tail ──▶ sinks   │ a tick
                                            ▲        └──────────┴─────────────┘
                                     arrangements of inputs and of state

A query is planned (`sql/`, `plan`), optimised (`optimise`) and cut into *fragments*: joins with at
most one operator on top that needs groups. Each fragment is a dataflow with a shard of its own,
which the next one reads; equal fragments are one, whoever needs them. A *tick* takes what has
changed, looks up what that meets, runs at most two Spark SQL queries and writes output and state.
All that is remembered is in shards: a crash costs the tick that it interrupted.

Without a server, from any Spark driver (with one, `clusterd` does what control tells it):

    from tidemark.compute import maintain
    with maintain("SELECT region, count(*) AS n FROM orders GROUP BY region",
                  inputs={"orders": "shard-of-orders"}, output="by-region",
                  client=client, spark=spark) as view:
        view.catch_up()                               # to where the inputs are now
        view.run(timeout=60)                          # and on, as they go on

`tidemark view run` does the same. What it does not do: it never recomputes a view in silence (a
query that it cannot maintain is refused, with the reason); it has no row-at-a-time path, as a tick
costs a Spark job; it makes up no times and reads no outside world, which is storage's to do.

Read in this order: `plan`, `expr`, `sql/`, `optimise`, `shape`, `fragments`; then a tick (`delta`,
`tails`, `run`, `dataflow`, `sink`) and recursion (`fixpoint`); what runs them (`view`, `library`
with `definition`, or `worker` and `clusterd`); and queries that are asked once (`peek_plan`,
`index`, `peek_arrow`, `batch`, `peek`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.compute.library import Maintained, Statistics, maintain

__all__ = ["Maintained", "Statistics", "maintain"]


def __getattr__(name: str) -> object:
    # On first use: plans are read by tools that must not load Spark.
    if name in __all__:
        from tidemark.compute import library

        return getattr(library, name)
    raise AttributeError(f"module 'tidemark.compute' has no attribute {name!r}")
