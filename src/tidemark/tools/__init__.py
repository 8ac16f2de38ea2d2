"""Tools for whoever runs Tidemark: `tidemark shard ...` looks at stored shards and cares for them.

    location   where the data are, and that they are there: a tool never makes a new store
    output     tables for people, one JSON document for programs, errors without tracebacks
    describe   a shard's state, laid out             list, inspect
    history    the versions in its log               history
    snapshot   its contents at a time, streamed      snapshot
    upkeep     merging, deleting garbage, checking   compact, gc, fsck
    shard      the commands themselves
    view       `tidemark view`: views without a server, which do need Spark

The others need no server and no Spark, and work beside a running server: looking takes no lock and
writes nothing (a snapshot takes a lease while it streams), and upkeep commits like anyone else.
"""
