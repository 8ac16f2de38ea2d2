"""SPARK: shards as DataFrames, DataFrames as batches.

Persist keeps collections, Spark works on many rows at once; this layer joins the two. Whatever
moves rows in bulk does it here, on executors; the driver only moves descriptions around.

                 driver                                executors
    read     lease -> pruned list of parts  ------>  vectorised Parquet scan
    write    append one logical batch  <-- Staged --  sorted, sized parts, straight into Blob
    merge    replace_batches           <-- parts ---  one range of positions per task

    session    the settings of Spark sessions, by the size of their work
    progress   what a long job is doing
    frames     snapshot and delta of a shard as DataFrames
    stage      a DataFrame as a staged batch
    compact    large merges as Spark jobs
    probe      key look-ups for many keys

    with rows(spark, client, "orders", as_of=17) as orders:     # its parts stay in place
        batch = stage(totals(orders.ok), client, writer).at(17)
        writer.compare_and_append(batch, lower=Frontier(17), upper=Frontier(18))

Not here: names of collections (CONTROL's catalog knows them; `tidemark.region` brings both
together), and any row that passes through Python one by one.
"""
