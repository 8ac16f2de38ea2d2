"""What a name means in a session: its database, and its search path.

    t              in the first schema of the search path that has a t
    s.t            in schema s of the session's database
    d.s.t          in schema s of database d
    r.d.s.t        the same, if r is the region that this server serves; else refused

System relations come before all others, and need no schema if theirs is one of `UNQUALIFIED`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemark.compute.plan import Get, Plan
from tidemark.control import hierarchy
from tidemark.control.catalog import Item
from tidemark.control.hierarchy import SYSTEM_SCHEMAS, FullName, path_of
from tidemark.control.relation import SystemRelation
from tidemark.control.system import BY_NAME
from tidemark.errors import SqlError

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


class Names:
    def __init__(self, coordinator: Coordinator, *, database: str, user: str, search_path: str):
        self._coordinator = coordinator
        self.database = database
        self.made_of = database, user, search_path
        given = (user if each == "$user" else each for each in path_of(search_path))
        self._given = tuple(dict.fromkeys(given))
        self._path: tuple[str, ...] = ()
        self._known: object = None

    @property
    def path(self) -> tuple[str, ...]:
        """The schemas of the search path that are there."""
        known = self._coordinator.catalog.schemas
        if self._known is not known:  # They have changed.
            self._path = tuple(
                each
                for each in self._given
                if each in SYSTEM_SCHEMAS or (self.database, each) in known
            )
            self._known = known
        return self._path

    @property
    def current_schema(self) -> str | None:
        return next(iter(self.path), None)

    def find(self, parts: tuple[str, ...]) -> Item | None:
        named = self._coordinator.catalog.named
        for database, schema, name in self._places(parts):
            if (found := named(name, schema, database)) is not None:
                return found
        return None

    def located(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """The full name of what is there; of what is not, the name as it was said."""
        found = self.find(parts)
        return parts if found is None else found.full_name

    def created(self, parts: tuple[str, ...]) -> FullName:
        """The full name of something new."""
        *where, name = parts
        if not where:
            current = self.current_schema
            if current is None:
                raise SqlError(
                    "no schema has been selected to create in",
                    hint="SET search_path to one that is there, or name it: schema.name",
                    sqlstate="3F000",
                )
            where = [current]
        database, schema = self.schema(tuple(where))
        if schema in SYSTEM_SCHEMAS:
            raise SqlError(
                f'cannot create "{name}" in system schema "{schema}"',
                hint="create it in a schema of yours",
                sqlstate="42501",
            )
        return database, schema, name

    def schema(self, parts: tuple[str, ...]) -> tuple[str, str]:
        """Database and name of a schema that is there."""
        database, schema = self.in_database(parts)
        known = self._coordinator.catalog
        if database not in known.databases:
            raise hierarchy.no_database(database)
        if schema not in SYSTEM_SCHEMAS and (database, schema) not in known.schemas:
            raise hierarchy.no_schema(".".join(parts))
        return database, schema

    def in_database(self, parts: tuple[str, ...]) -> tuple[str, str]:
        """Database and name of a schema, there or not."""
        if len(parts) > 3:
            raise too_many(parts)
        if len(parts) == 3:
            self._check_region(parts[0])
        *where, name = list(parts)
        return where[-1] if where else self.database, name

    def system(self, parts: tuple[str, ...]) -> SystemRelation | None:
        """The system relation so named."""
        if len(parts) > 2 and parts[-3] == self.database:
            parts = parts[-2:]
        if len(parts) != 1 or parts in BY_NAME:
            return BY_NAME.get(parts)
        (name,) = parts
        for schema in self.path:
            if schema in SYSTEM_SCHEMAS:
                if (found := BY_NAME.get((schema, name))) is not None:
                    return found
            elif self._coordinator.catalog.named(name, schema, self.database) is not None:
                return None
        return None

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        """A relation by name: the planner's view of the catalog."""
        system = self.system(parts)
        if system is not None:
            return system.get
        return self._coordinator.resolve(self.located(parts))

    def _places(self, parts: tuple[str, ...]) -> Iterator[FullName]:
        match parts:
            case (name,):
                for schema in self.path:
                    yield self.database, schema, name
            case (schema, name):
                yield self.database, schema, name
            case (database, schema, name):
                yield database, schema, name
            case (region, database, schema, name):
                self._check_region(region)
                yield database, schema, name
            case _:
                raise too_many(parts)

    def _check_region(self, region: str) -> None:
        here = self._coordinator.region.region
        if region != here:
            raise hierarchy.other_region(region, here)


def too_many(parts: tuple[str, ...]) -> SqlError:
    return SqlError(f"improper qualified name (too many dotted names): {'.'.join(parts)}")
