"""A region read from outside: any set of its collections as Spark DataFrames at one common time.

This needs the region's stores and nothing else: no server, no cluster. While an `At` is open, the
collections stay readable at its time and their parts stay in place.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tidemark.control.catalog import Item
from tidemark.errors import AsOfBeforeSince, InvalidUsage, SqlError
from tidemark.persist import PersistClient
from tidemark.persist.location import Address
from tidemark.region.options import collections, found
from tidemark.spark.frames import rows
from tidemark.tools.location import locate, open_client


class Region:
    """The collections of one region."""

    def __init__(self, client: PersistClient):
        assert client.address is not None
        self.address: Address = client.address
        self._client = client

    def collections(self) -> dict[str, Item]:
        """Everything that is stored, by name."""
        return collections(self._client)

    def at(self, *names: str, as_of: int | None = None, timeout: float = 60.0) -> At:
        """All of `names` (or all there are) at one time: the newest that every one of them has
        completed.

        Waits up to `timeout` seconds for one that has not come so far yet (a new view, say).
        """
        names = names or tuple(self.collections())
        if not names:
            raise SqlError("the region has no collections yet", sqlstate="42P01")
        shards = {name: found(self._client, name).shard or "" for name in names}
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
        if as_of is not None and type(as_of) is not int:
            raise InvalidUsage(f"as_of is a whole number, got {as_of!r}")
        readers = {name: client.open_reader(shard) for name, shard in shards.items()}
        # First the leases, then the time: what is leased cannot be compacted away any more.
        try:
            for reader in readers.values():
                self._stack.callback(reader.lease().release)
        except BaseException:
            self._stack.close()
            raise
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
        return self._stack.enter_context(rows(spark, self._client, shard, self.as_of)).sound()

    def views(self, spark: SparkSession) -> None:
        """All of them as temporary views of their names, for `spark.sql`, until this is closed."""
        for name in self._shards:
            self.frame(spark, name).createOrReplaceTempView(f"`{name}`")
            self._stack.callback(spark.catalog.dropTempView, name)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> At:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_region(
    data: str | Path | None = None, *, blob: str | None = None, consensus: str | None = None
) -> Region:
    """Open a region: the folder of `tidemark serve --data`, or its stores by URI."""
    where = locate(Path(data) if data is not None else None, blob, consensus)
    return Region(open_client(where))
