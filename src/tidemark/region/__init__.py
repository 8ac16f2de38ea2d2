"""A region used from outside, by any Spark job, without the server's help.

    import tidemark
    region = tidemark.attach(spark, "demo.tidemark")        # the one line of set-up

    spark.sql("select * from tidemark.bids")                # the newest complete time
    with region.at("auctions", "bids") as at:               # one time for both
        at.frame(spark, "auctions").join(at.frame(spark, "bids"), ...)

    spark.read.format("tidemark").option("collection", "bids").option("as_of", t)
    spark.readStream.format("tidemark").option("collection", "bids")
    frame.write.format("tidemark").option("shard", "scores").mode("append").save()
    stream.writeStream.format("tidemark").option("shard", "scores").option("name", "scorer")

What reads and writes here is a client of persist like any other: a lease keeps what it reads in
place, and compare-and-append decides who was first.

    read      Region and At: collections at one common time, as frames of Spark's own Parquet reader
    attach    the data source and the tables of a region in a Spark session
    source    the data source `tidemark`: batch reads and writes
    stream    streaming reads and writes, and passing a stream through a shard
    options   what the data source can be told
    append    staged batches appended at the time that it is

Not here: writing to views, and overwriting: a collection's history is not rewritten.
"""

from __future__ import annotations

from tidemark.region.attach import attach
from tidemark.region.read import At, Region, open_region
from tidemark.region.stream import pass_through

__all__ = ["At", "Region", "attach", "open_region", "pass_through"]
