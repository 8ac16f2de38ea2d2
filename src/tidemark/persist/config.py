"""What can be tuned about a client, in one place. The defaults suit one machine."""

from __future__ import annotations

import msgspec

KIB, MIB = 1024, 1024 * 1024
MINUTE, HOUR = 60_000, 3_600_000


class Config(msgspec.Struct, frozen=True, kw_only=True):
    inline_bytes: int = 8 * KIB
    """A part that encodes to less than this may travel inside the state."""

    inline_total: int = MIB
    """Inline bytes that one state may carry; beyond it even small parts go to Blob."""

    part_bytes: int = 32 * MIB
    """About how much (in memory) goes into one part."""

    row_group_bytes: int = 2 * MIB
    """About how much goes into one row group: what a merge holds of each of its inputs."""

    cache_bytes: int = 64 * MIB
    """Parts kept in memory for the next reader in this process."""

    inline_batches: int = 32
    """How many batches that travel in the state may wait before they are merged into a part."""

    inline_due: int = 128 * KIB
    """Their bytes that make a merge due although they are few."""

    small_batches: int = 32
    """How many batches of one level may wait in Blob before they are merged into one of the next,
    which is as many times larger."""

    level_bytes: int = 64 * KIB
    """What a level is a power of `small_batches` times of: about what comes out of the state."""

    merge_memory: int = 256 * MIB
    """What one merge may hold in memory, whatever the shard's size."""

    spark_merge_bytes: int = 1024 * MIB
    """Merges of more than this (in memory) are Spark jobs, in processes that have Spark."""

    maintain_every: float = 0.1
    """Seconds between two looks of the background upkeep at the shards that were written to."""

    rollup_every: int = 128
    """Every so many versions one holds the whole state, and the log before it is dropped."""

    lease_ms: int = 15 * MINUTE
    """A reader that gives no sign of life for so long loses what it held."""

    heartbeat: bool = True
    """Renew leases in the background. Tests that own the clock renew by hand."""

    writer_lease_ms: int = HOUR
    """How long a writer's last token is remembered."""

    leak_after_ms: int = 24 * HOUR
    """Staged parts that nobody appended for so long are taken for lost, and deleted."""

    audit: float = 0.01
    """The share of the parts skipped by their statistics that is read all the same, to check."""

    blob_writes: int = 4
    """Parts that this process writes at one time; more wait."""

    blob_bytes_per_second: int | None = None
    """A limit on what this process writes to Blob; None is no limit."""

    hot_batch_bytes: int = 128 * MIB
    """About how much goes into one record batch of an arrangement's run."""

    hot_sort_bytes: int = 32 * MIB
    """What is sorted or merged at a time when an arrangement is built, and the most that a run of
    its tail takes in memory: a larger one is a file."""

    hot_cache_bytes: int = 16 * 1024 * MIB
    """Arrangements kept on a host's disk; beyond it the ones go that nobody uses."""
