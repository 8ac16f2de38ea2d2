"""What the data source `tidemark` can be told, and what is meant by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tidemark.control.catalog import Item, read_items
from tidemark.errors import InvalidUsage, SqlError
from tidemark.persist import PersistClient
from tidemark.persist.config import MINUTE, Config
from tidemark.persist.location import Address
from tidemark.tools.location import locate, open_client, unknown_shard

KNOWN = (
    "data",
    "blob",
    "consensus",
    "collection",
    "shard",
    "as_of",
    "columns",
    "updates",
    "key",
    "name",
    "lower",
    "time",
    "token",
    "rendition",
    "path",
)


SPARKS = {
    "checkpointlocation",
    "collation",
    "comment",
    "external",
    "is_managed_location",
    "location",
    "owner",
    "provider",
}
"""What Spark adds by itself, of tables and streams."""


CONFIG = Config(lease_ms=5 * MINUTE)
"""Leases of planned reads are shared by tasks and released by nobody, so they end sooner."""


class Options(NamedTuple):
    """Where a region is and what of it is meant. `given` holds the rest as it was given."""

    address: Address
    collection: str | None
    shard: str | None
    given: dict[str, str]

    @staticmethod
    def of(options: Mapping[str, str]) -> Options:
        # A table's options come a second time under another name.
        given = {name.lower().removeprefix("option."): value for name, value in options.items()}
        unknown = sorted(given.keys() - set(KNOWN) - SPARKS)
        if unknown:
            raise InvalidUsage(
                f"the data source tidemark has no option {unknown[0]!r}",
                hint=f"options: {', '.join(KNOWN[:-1])}",
            )
        data = given.get("data")
        where = locate(Path(data) if data else None, given.get("blob"), given.get("consensus"))
        collection = given.get("collection") or given.get("path")
        shard = given.get("shard")
        if (collection is None) == (shard is None):
            raise InvalidUsage(
                "name either a collection or a shard",
                hint='.option("collection", "bids") or .option("shard", "some-shard")',
            )
        return Options(Address(*where), collection, shard, given)

    def open(self) -> PersistClient:
        return open_client(self.address, CONFIG)

    def shard_id(self, client: PersistClient) -> str:
        """The shard that is meant, which exists."""
        if self.collection is not None:
            return found(client, self.collection).shard or ""
        assert self.shard is not None
        if client.consensus.head(self.shard) is None:
            raise unknown_shard(self.shard, list(client.consensus.keys()))
        return self.shard

    @property
    def updates(self) -> bool:
        """Whether rows come with `_time` and `_diff`."""
        value = self.given.get("updates", "false").lower()
        if value not in ("true", "false"):
            raise InvalidUsage(f"option updates: {value!r} is neither true nor false")
        return value == "true"

    def number(self, name: str) -> int | None:
        value = self.given.get(name)
        if value is None or value.isdecimal():
            return None if value is None else int(value)
        kind = "number from 0 on" if name == "rendition" else "timestamp"
        raise InvalidUsage(f"option {name}: {value!r} is not a {kind}")

    def names(self, name: str) -> list[str] | None:
        value = self.given.get(name)
        return [each.strip() for each in value.split(",") if each.strip()] if value else None


def collections(client: PersistClient) -> dict[str, Item]:
    """Everything that is stored, by name; with the schema, where that is not the default one."""
    return {i.shown: i for i in read_items(client).values() if i.shard is not None}


def found(client: PersistClient, name: str) -> Item:
    known = collections(client)
    if name in known:
        return known[name]
    raise SqlError(
        f"no such collection: {name}",
        hint=f"there are: {', '.join(sorted(known)) or 'none'}",
        sqlstate="42P01",
    )
