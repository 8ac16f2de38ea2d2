"""CONTROL: turns what users say into commands for the layers below, and gives them consistency.

    psql ── pgwire ─┬ session ── coordinator ─┬─ catalog     what exists        (a shard)
    curl ── http ───┘                         ├─ timelines   what time it is    (the tables' logs)
                                              ├─ tables      INSERT, UPDATE, DELETE, group-committed
                                              └─ clusters    replicas (clusterd): views, sources, peeks

A SELECT reads all its relations at one timestamp. In strict serializable mode (the default) that
is the time of the last committed write, so whoever reads after a write was acknowledged sees it;
the read waits until every relation is complete up to there. In serializable mode it is the newest
time at which nothing must be waited for.

Every database is a timeline of its own, and nothing reads two of them at once (`timelines.py`).
What a name means is the session's to say: its database, and its search path (`names.py`).

Everything is durable: a control process that is killed starts again from the catalog shard, finds
its clusters still running, and tells them what they should run, which is what they run already.
A second control process on the same data takes over, and the first one's next write is refused.

Non-goals: no data passes through here but results on their way to a client and rows on their way
into a table.
"""
