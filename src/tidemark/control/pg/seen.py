"""The catalog as one session's queries of it see it: one database of it, through a search path.

Relations of `pg_catalog` and `information_schema` are made up from this; those of `mz_catalog` and
`mz_internal` tell of all databases, and are made up from the coordinator itself.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tidemark.control.catalog import Catalog, Item
from tidemark.control.comments import comments_by_oid
from tidemark.control.pg.names import Directory, namespaces
from tidemark.control.relation import SystemRelation

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


class Seen:
    """Made anew when there are other objects (`is_current`)."""

    def __init__(self, coordinator: Coordinator, database: str, path: tuple[str, ...]):
        self.coordinator = coordinator
        self.database = database
        self.path = path
        self.catalog: Catalog = coordinator.catalog
        self.client = coordinator.client
        self.system: tuple[SystemRelation, ...] = coordinator.system
        self._all = self.catalog.items
        self.items: dict[str, Item] = {
            item.id: item for item in self._all.values() if item.database == database
        }
        self.namespaces = namespaces(self.catalog, database)

    @property
    def is_current(self) -> bool:
        return self._all is self.coordinator.catalog.items

    @property
    def searched(self) -> tuple[str, ...]:
        """Schemas whose relations need no schema in front, in the order in which they are asked.
        Those of mz_catalog do not need it either, but clients list what is visible as the user's
        own."""
        before = () if "pg_catalog" in self.path else ("pg_catalog",)
        return (*before, *self.path)

    @cached_property
    def directory(self) -> Directory:
        return Directory(self)

    @cached_property
    def comments(self) -> dict[tuple[int, int], str]:
        """By the oid of what they are about, and the place of the column."""
        return comments_by_oid(self.coordinator)

    def rows(self, relation: SystemRelation) -> list[tuple]:
        whole = relation.schema.startswith("mz_")
        return relation.rows(self.coordinator if whole else self)
