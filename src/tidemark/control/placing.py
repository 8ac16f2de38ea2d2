"""Where a new object may go: under a free name or in another's place, beside all that it reads.

What is checked here is checked while nothing else changes the catalog: names were looked up before
the statement had its turn, and what they meant may have been dropped since.
"""

from __future__ import annotations

import msgspec

from tidemark.control.catalog import TIMELESS, Catalog, Item, exists
from tidemark.control.hierarchy import no_schema, two_databases
from tidemark.errors import SqlError


def put(catalog: Catalog, item: Item, name: tuple[str, ...]) -> Item:
    """Where its full name says, beside all that it reads: data do not cross databases."""
    database, schema, _ = name
    check_beside(catalog, database, item.depends)
    return msgspec.structs.replace(item, database=database, schema=schema)


def check_beside(catalog: Catalog, database: str, ids: tuple[str, ...]) -> None:
    for id_ in ids:
        needed = catalog.items.get(id_)
        if needed is not None and needed.kind not in TIMELESS and needed.database != database:
            raise two_databases(database, needed.database)


def check_free(catalog: Catalog, name: tuple[str, ...]) -> None:
    """The name, and the schema that it is in, which may have been dropped meanwhile."""
    if name[:2] not in catalog.schemas:
        raise no_schema(".".join(name[:2]))
    if (found := catalog.find(name)) is not None:
        raise exists(found)


def replaced(catalog: Catalog, name: tuple[str, ...], item: Item) -> Item | None:
    """What is there under that name, if `item` may be put in its place."""
    found = catalog.find(name)
    if found is None:
        return check_free(catalog, name)
    if found.kind != item.kind:
        raise SqlError(
            f'"{found.name}" is a {found.kind.replace("-", " ")},'
            f" not a {item.kind.replace('-', ' ')}",
            sqlstate="42809",
        )
    if found.id in item.depends:
        raise SqlError(f'"{found.name}" cannot be replaced by what reads it', sqlstate="42P17")
    if readers := sorted(each.shown for each in catalog.dependents(found.id)):
        raise SqlError(
            f"cannot replace {found.shown} because other objects depend on it:"
            f" {', '.join(readers)}",
            hint="drop them first, or create this one under another name",
            sqlstate="2BP01",
        )
    return found


def check_there(catalog: Catalog, ids: tuple[str, ...]) -> None:
    if any(id_ not in catalog.items for id_ in ids):
        raise SqlError("something that this needs was dropped meanwhile", sqlstate="42P01")
