"""PERSIST: definite collections that survive anything.

A *shard* is a durable, time-varying multiset of rows. Everyone who reads it at a time t with
since <= t < upper sees the same rows, whoever they are and whenever they look.

            compare_and_append([lower, upper), updates)
                              |
     Consensus   state: since, upper, batches, holds        one small value, advanced by
                   |  refers to                              compare-and-set
     Blob        parts: Parquet files of (row, _time, _diff, _err)

    client = PersistClient.open(blob="file:///tmp/blob", consensus="sqlite:///tmp/consensus")
    writer = client.open_writer("s1", schema=pa.schema([("k", pa.int64())]))
    rows = as_updates(pa.table({"k": [1, 2]}), time=5)
    writer.compare_and_append(rows, lower=Frontier(0), upper=Frontier(6))     # Appended([6])
    client.open_reader("s1").snapshot(as_of=5)                                # k = 1, 2

An append either happens once and for ever or not at all; losing a race is a value
(`UpperMismatch`), not an error. History before since is compacted away by and by; holds keep
since back. Small appends travel inside the state, so an append is one durable commit.

What it does not do: it knows no SQL, runs no threads besides its own upkeep, orders nothing
between shards (time does that), and never locks: writers race, and the losers look again.

Read in this order: `updates`, `state`, `commands`, `codec`, `machine`; then the way in (`order`,
`part`, `staging`, `write`), the way out (`filters`, `source`, `read`, `holds`) and the upkeep
(`merge`, `runs`, `compact`, `gc`, `maintain`), all brought together by `client`; `backup` and
`restore` take all shards elsewhere and back. Below lie the
seams `blob` and `consensus` with their implementations; above are look-ups by key: `keyhash`,
`hot`, `layout`, `cache`, `keys`, `heads`, and `arrange` that brings them together.
"""

from __future__ import annotations

from tidemark.persist.arrange import Arrangement, open_arrangement
from tidemark.persist.blob import Blob, FileBlob, MemBlob
from tidemark.persist.client import CRITICAL, PersistClient
from tidemark.persist.commands import Appended, EpochMismatch, SchemaMismatch, UpperMismatch
from tidemark.persist.config import Config
from tidemark.persist.consensus import Consensus, MemConsensus
from tidemark.persist.holds import Lease, SinceHandle
from tidemark.persist.read import ReadHandle, Updates
from tidemark.persist.sqlite import SqliteConsensus
from tidemark.persist.staging import Builder, Staged
from tidemark.persist.updates import DIFF, ERR, TIME, as_updates, consolidate
from tidemark.persist.write import WriteHandle

__all__ = [
    "CRITICAL",
    "DIFF",
    "ERR",
    "TIME",
    "Appended",
    "Arrangement",
    "Blob",
    "Builder",
    "Config",
    "Consensus",
    "EpochMismatch",
    "FileBlob",
    "Lease",
    "MemBlob",
    "MemConsensus",
    "PersistClient",
    "ReadHandle",
    "SchemaMismatch",
    "SinceHandle",
    "SqliteConsensus",
    "Staged",
    "Updates",
    "UpperMismatch",
    "WriteHandle",
    "as_updates",
    "consolidate",
    "open_arrangement",
]
