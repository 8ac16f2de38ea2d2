"""A region read from outside: any set of its collections as Spark DataFrames at one common time.

This needs the data folder and nothing else: no server, no cluster. While an `At` is open, the
collections stay readable at its time and their files stay in place.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.control.catalog import Item, read_items
from tidemark.errors import AsOfBeforeSince, DataError, SqlError
from tidemark.persist import DIFF, ERR, PersistClient
from tidemark.persist.frames import snapshot_frame


class Region:
    """The collections of one data folder."""

    def __init__(self, client: PersistClient):
        self._client = client

    def collections(self) -> dict[str, Item]:
        """Everything that is stored, by name."""
        return {i.name: i for i in read_items(self._client).values() if i.shard is not None}

    def at(self, *names: str, as_of: int | None = None, timeout: float = 60.0) -> At:
        """All of `names` at one time: the newest that every one of them has completed.

        Waits up to `timeout` seconds for one that has not come so far yet (a new view, say).
        """
        known = self.collections()
        missing = [name for name in names if name not in known]
        if missing or not names:
            raise SqlError(
                f"no such collection: {', '.join(missing) or '(none named)'}",
                hint=f"there are: {', '.join(sorted(known)) or 'none'}",
                sqlstate="42P01",
            )
        shards = {name: known[name].shard or "" for name in names}
        return At(self._client, shards, as_of, timeout)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class At:
    """Some collections at one time. Close it (or leave its `with` block) when done reading."""

    def __init__(
        self, client: PersistClient, shards: dict[str, str], as_of: int | None, timeout: float
    ):
        self._client = client
        self._shards = shards
        self._stack = ExitStack()
        readers = {name: client.open_reader(shard) for name, shard in shards.items()}
        # First the leases, then the time: what is leased cannot be compacted away any more.
        for reader in readers.values():
            self._stack.callback(reader.lease().release)
        oldest = max((reader.since.time or 0) for reader in readers.values())
        wanted = oldest if as_of is None else as_of
        for name, reader in readers.items():
            if wanted < oldest or reader.wait_for_upper_past(wanted, timeout=timeout) is None:
                self._stack.close()
                raise AsOfBeforeSince(
                    f"{', '.join(shards)} cannot all be read at {wanted}: all are readable from "
                    f"{oldest} on, and {name} is complete up to {reader.upper}",
                    hint="try again in a moment, or name another time",
                )
        newest = min(reader.upper for reader in readers.values())
        self.as_of = (newest.time or wanted + 1) - 1 if as_of is None else as_of

    def frame(self, spark: SparkSession, name: str) -> DataFrame:
        """The rows of a collection; a collection in error fails with its error."""
        shard = self._shards.get(name)
        if shard is None:
            raise SqlError(f"{name} was not named in at(...)", sqlstate="42P01")
        found = self._stack.enter_context(snapshot_frame(spark, self._client, shard, self.as_of))
        failed = found.where(F.col(ERR).isNotNull()).select(ERR).take(1)
        if failed:
            raise DataError(failed[0][0])
        copies = F.explode(F.array_repeat(F.lit(0), F.col(DIFF).cast("int")))
        rows = [F.col(f"`{column}`") for column in found.columns if column not in (ERR, DIFF)]
        return found.select(*rows, copies.alias("_copy")).drop("_copy")

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> At:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_region(data: str | Path) -> Region:
    """Open the region in a data folder that `tidemark serve --data` made."""
    folder = Path(data).resolve()
    if not (folder / "consensus.db").exists():
        raise SqlError(f"there is no Tidemark data in {folder}", sqlstate="58P01")
    client = PersistClient.open(
        blob=f"file://{folder / 'blob'}", consensus=f"sqlite://{folder / 'consensus.db'}"
    )
    return Region(client)
