"""Who a session is: the user that has connected, and the role that its statements run for.

A user's name is looked up once, when it connects: from then on its role is known by its id, so
that neither a DROP nor a CREATE of that name makes somebody else of it. A name that is no role's
acts as `tidemark`: without passwords anybody's does, with passwords those that the operator has
put into the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidemark.control.access import Access
from tidemark.control.roles import PUBLIC, SUPERUSER, Role, Roles
from tidemark.errors import SqlError

if TYPE_CHECKING:
    from tidemark.control.catalog import Catalog
    from tidemark.control.variables import Variables

NO_ROLE = "none"
"""What the setting `role` says without SET ROLE."""


class Acting(NamedTuple):
    """A role, under the name that it goes by, and the ids of all the roles whose rights it has."""

    role: Role
    name: str
    reach: frozenset[str]

    @property
    def is_superuser(self) -> bool:
        return self.role.superuser

    def owns(self, access: Access) -> bool:
        return self.is_superuser or access.owner in self.reach

    def may(self, privilege: str, access: Access) -> bool:
        return self.owns(access) or any(
            privilege in has
            for role, has in access.grants.items()
            if role == PUBLIC or role in self.reach
        )

    def is_member(self, role: Role) -> bool:
        return self.is_superuser or role.id in self.reach


def acting_as(roles: Roles, role: Role, name: str | None = None) -> Acting:
    return Acting(role, name or role.name, roles.reach(role.id))


class Identity:
    def __init__(self, catalog: Catalog, user: str):
        self._catalog = catalog
        self._name = user
        found = catalog.roles.by_name.get(user)
        self.is_known = found is not None
        role = found or catalog.roles.by_id[SUPERUSER.id]
        if not role.login:
            raise SqlError(
                f'role "{user}" is not permitted to log in',
                hint=f"ALTER ROLE {user} LOGIN, or log in as a member of it and SET ROLE {user}",
                sqlstate="28000",
            )
        self._id = role.id
        self.settings = {
            name: value
            for name, value in role.settings.items()
            if name != "cluster" or value in catalog.clusters  # It may be gone by now.
        }

    @property
    def user(self) -> Acting:
        """Who has connected, whatever role is set."""
        role = self._catalog.roles.by_id.get(self._id)
        if role is None:
            raise SqlError(f'role "{self._name}" was dropped; connect again', sqlstate="42704")
        return acting_as(self._catalog.roles, role, None if self.is_known else self._name)

    def acting(self, variables: Variables) -> Acting:
        """Who statements run for. That the user may be that role is checked each time: a setting
        can be changed in more ways than one, and a membership be revoked."""
        name = variables.get("role")
        user = self.user
        return user if name == NO_ROLE else self.allowed(name, user)

    def check(self, name: str | None) -> None:
        """That SET ROLE may set it."""
        if name not in (None, NO_ROLE):
            self.allowed(name)

    def allowed(self, name: str, user: Acting | None = None) -> Acting:
        """The role of that name, if the user may set it."""
        role = self._catalog.roles.named(name)
        if not (user or self.user).is_member(role):
            raise SqlError(
                f'permission denied to set role "{name}"',
                hint="SET ROLE is for members of a role; RESET ROLE goes back to who has connected",
                sqlstate="42501",
            )
        return acting_as(self._catalog.roles, role)
