"""Statements about roles, owners and privileges; see `statements.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Name: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """What is not said is None; `forget` is PASSWORD NULL."""

    login: bool | None = None
    superuser: bool | None = None
    createrole: bool | None = None
    createdb: bool | None = None
    createcluster: bool | None = None
    password: str | None = field(default=None, repr=False)
    forget: bool = False


@dataclass(frozen=True, slots=True)
class CreateRole:
    name: str
    options: RoleOptions
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterRole:
    name: str
    options: RoleOptions


@dataclass(frozen=True, slots=True)
class RenameRole:
    name: str
    to: str


@dataclass(frozen=True, slots=True)
class SetRoleDefault:
    """ALTER ROLE ... SET and RESET; `value` None is RESET, `variable` None is RESET ALL."""

    name: str
    variable: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class DropRoles:
    names: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class GrantRole:
    """GRANT roles TO members, or REVOKE roles FROM members."""

    roles: tuple[str, ...]
    members: tuple[str, ...]
    revoke: bool


@dataclass(frozen=True, slots=True)
class GrantOn:
    """Privileges on things: of a kind, by their names; of all relations of schemas if `in_schema`.
    No `privileges` are ALL. `grantees` None is PUBLIC."""

    privileges: tuple[str, ...]
    kind: str
    names: tuple[Name, ...]
    grantees: tuple[str | None, ...]
    revoke: bool
    in_schema: bool = False


@dataclass(frozen=True, slots=True)
class AlterOwner:
    kind: str
    name: Name
    owner: str


@dataclass(frozen=True, slots=True)
class ReassignOwned:
    roles: tuple[str, ...]
    to: str


@dataclass(frozen=True, slots=True)
class DropOwned:
    roles: tuple[str, ...]
    cascade: bool


@dataclass(frozen=True, slots=True)
class ShowPrivileges:
    """Of all roles, or of one."""

    role: str | None


RoleStatement: TypeAlias = (
    CreateRole
    | AlterRole
    | RenameRole
    | SetRoleDefault
    | DropRoles
    | GrantRole
    | GrantOn
    | AlterOwner
    | ReassignOwned
    | DropOwned
)
