"""CREATE, ALTER and DROP of roles, GRANT and REVOKE, and owners: statements into catalog rows.

Each statement is one change of the catalog, of all its rows or none. Whether it is allowed at all
was checked before (`privileges.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidemark.control import hierarchy_ddl
from tidemark.control import role_statements as r
from tidemark.control.access import (
    Access,
    Securable,
    of_cluster,
    of_database,
    of_item,
    of_schema,
)
from tidemark.control.catalog import Catalog, Item
from tidemark.control.pgwire import Done, scram
from tidemark.control.privileges import Asked, owned, securables
from tidemark.control.roles import ATTRIBUTES, PUBLIC, ROW, SUPERUSER, Role
from tidemark.control.variables import Variables
from tidemark.errors import InvalidUsage, SqlError

if TYPE_CHECKING:
    from tidemark.control.session import Session

Rows = dict[str, str | None]

MOST_SHOWN = 5


async def run(session: Session, statement: r.RoleStatement) -> Done:
    coordinator = session.coordinator
    change = coordinator.change_catalog
    match statement:
        case r.CreateRole(name=name):
            if statement.if_not_exists and name in coordinator.catalog.roles.by_name:
                session.notice(f'role "{name}" already exists, skipping')
                return Done("CREATE ROLE")
            (id_,) = await coordinator.timeline.run(coordinator.catalog.next_ids)
            await change(lambda: _create(session, statement, id_))
            return Done("CREATE ROLE")
        case r.AlterRole():
            await change(lambda: _alter(session, statement))
            return Done("ALTER ROLE")
        case r.RenameRole():
            await change(lambda: _rename(session, statement))
            return Done("ALTER ROLE")
        case r.SetRoleDefault():
            await change(lambda: _set_default(session, statement))
            return Done("ALTER ROLE")
        case r.DropRoles():
            await change(lambda: _drop(session, statement))
            return Done("DROP ROLE")
        case r.GrantRole(revoke=revoke):
            await change(lambda: _grant_role(session, statement))
            return Done("REVOKE ROLE" if revoke else "GRANT ROLE")
        case r.GrantOn(revoke=revoke):
            await change(lambda: _grant_on(session, statement))
            return Done("REVOKE" if revoke else "GRANT")
        case r.AlterOwner(kind=kind):
            await change(lambda: _alter_owner(session, statement))
            return Done(f"ALTER {kind.upper()}")
        case r.ReassignOwned():
            await change(lambda: _reassign(session, statement))
            return Done("REASSIGN OWNED")
        case r.DropOwned():
            await _drop_owned(session, statement)
            return Done("DROP OWNED")


def _role(session: Session, name: str) -> Role:
    """By name, or as CURRENT_USER and SESSION_USER."""
    if name in ("current_user", "current_role"):
        return session.acting.role
    if name == "session_user":
        return session.identity.user.role
    return session.coordinator.catalog.roles.named(name)


def _ids(session: Session, names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(_role(session, name).id for name in names))


# Roles ------------------------------------------------------------------------------------------


def _create(session: Session, statement: r.CreateRole, id_: str) -> Rows:
    _check_free(session, statement.name)
    return _changed(Role(id_, statement.name), statement.options).row


def _alter(session: Session, statement: r.AlterRole) -> Rows:
    role = _role(session, statement.name)
    options = statement.options
    if role.id == SUPERUSER.id:
        kept = [options.login, *(getattr(options, name) for name in ATTRIBUTES)]
        if False in kept:
            raise SqlError(
                f'role "{role.name}" has to stay a superuser that can log in',
                hint="it owns the system; CREATE ROLE others, and use those",
                sqlstate="42939",
            )
    return _changed(role, options).row


def _changed(role: Role, options: r.RoleOptions) -> Role:
    given = {name: getattr(options, name) for name in ("login", *ATTRIBUTES)}
    role = replace(role, **{name: on for name, on in given.items() if on is not None})
    if options.forget:
        return replace(role, verifier=None)
    if options.password is not None:
        return replace(role, verifier=verifier_of(options.password))
    return role


def verifier_of(password: str) -> str:
    """What is kept of it; one that is a verifier already is taken as it is, as PostgreSQL does."""
    try:
        verifier = scram.read_verifier(password)
    except InvalidUsage:
        pass
    else:
        scram.check_iterations(verifier)
        return str(verifier)
    if not password:
        raise SqlError("an empty password would be none", hint="PASSWORD NULL", sqlstate="22023")
    return str(scram.make_verifier(password, salt=secrets.token_bytes(scram.SALT_BYTES)))


def _rename(session: Session, statement: r.RenameRole) -> Rows:
    role = _role(session, statement.name)
    if role.id == SUPERUSER.id:
        raise SqlError(f'role "{role.name}" cannot be renamed', sqlstate="42939")
    _check_not_in_file(session, role.name)
    _check_free(session, statement.to)
    return replace(role, name=statement.to).row


def _check_free(session: Session, name: str) -> None:
    if name in session.coordinator.catalog.roles.by_name:
        raise SqlError(f'role "{name}" already exists', sqlstate="42710")


def _set_default(session: Session, statement: r.SetRoleDefault) -> Rows:
    role = _role(session, statement.name)
    variable = statement.variable.lower() if statement.variable is not None else None
    if variable is None:
        return replace(role, settings={}).row
    kept = {name: value for name, value in role.settings.items() if name != variable}
    tried = Variables({})
    if statement.value is None:
        tried.get(variable)
        return replace(role, settings=kept).row
    if variable in ("role", "database"):  # Whoever connects says which database.
        raise SqlError(f'parameter "{variable}" cannot be a default of a role', sqlstate="55P02")
    tried.set(variable, statement.value)
    if variable == "cluster":
        session.coordinator.clusters.named(statement.value)
    return replace(role, settings=kept | {variable: tried.get(variable)}).row


def _drop(session: Session, statement: r.DropRoles) -> Rows:
    catalog = session.coordinator.catalog
    rows: Rows = {}
    gone: set[str] = set()
    for name in statement.names:
        if statement.if_exists and name not in catalog.roles.by_name:
            session.notice(f'role "{name}" does not exist, skipping')
            continue
        role = catalog.roles.named(name)
        _check_droppable(session, role)
        gone.add(role.id)
        rows[ROW + role.id] = None
    for role in catalog.roles.by_id.values():
        if role.id not in gone and gone.intersection(role.member_of):
            rows |= replace(
                role, member_of=tuple(id_ for id_ in role.member_of if id_ not in gone)
            ).row
    return rows


def _check_not_in_file(session: Session, name: str) -> None:
    """Whoever can log in under a name that is no role's acts as tidemark."""
    if name in session.coordinator.file_users:
        raise SqlError(
            f'there has to be a role "{name}" while it is in the file of passwords: whoever logs in'
            f" under a name that is no role's acts as {SUPERUSER.name}",
            hint=f"take its line out of the file and start anew, or ALTER ROLE {name} NOLOGIN",
            sqlstate="2BP01",
        )


def _check_droppable(session: Session, role: Role) -> None:
    name = role.name
    if role.id == SUPERUSER.id:
        raise SqlError(f'role "{name}" cannot be dropped', sqlstate="42939")
    if role.id in (session.acting.role.id, session.identity.user.role.id):
        raise SqlError("current user cannot be dropped", sqlstate="55006")
    _check_not_in_file(session, name)
    needed = [
        f"{'owner of' if access.owner == role.id else 'privileges for'} {each.kind} {each.name}"
        for each, access in everything(session.coordinator.catalog)
        if access.owner == role.id or role.id in access.grants
    ]
    if needed:
        more = f" and {len(needed) - MOST_SHOWN} more" if len(needed) > MOST_SHOWN else ""
        raise SqlError(
            f'role "{name}" cannot be dropped because some objects depend on it: '
            + ", ".join(needed[:MOST_SHOWN])
            + more,
            hint=f"REASSIGN OWNED BY {name} TO another role, then DROP OWNED BY {name}, which"
            " takes its privileges away",
            sqlstate="2BP01",
        )


def _grant_role(session: Session, statement: r.GrantRole) -> Rows:
    roles = session.coordinator.catalog.roles
    changed: dict[str, Role] = {}
    granted = _ids(session, statement.roles)
    for id_ in _ids(session, statement.members):
        member = changed.get(id_, roles.by_id[id_])
        for role in granted:
            if statement.revoke and role not in member.member_of:
                session.notice(
                    f'role "{member.name}" is not a member of role "{roles.name_of(role)}"'
                )
            elif not statement.revoke and id_ in roles.reach(role):
                raise SqlError(
                    f'role "{roles.name_of(role)}" is a member of role "{member.name}":'
                    " it cannot be the other way round, too",
                    hint=f"REVOKE {member.name} FROM {roles.name_of(role)} first",
                    sqlstate="0LP01",
                )
        kept = tuple(each for each in member.member_of if each not in granted)
        changed[id_] = replace(member, member_of=kept if statement.revoke else (*kept, *granted))
    return _rows(role.row for role in changed.values())


# Owners and privileges --------------------------------------------------------------------------


def everything(catalog: Catalog) -> list[tuple[Securable, Access]]:
    """All that can be owned."""
    found = [of_item(item) for item in catalog.items.values()]
    found += [of_cluster(cluster) for cluster in catalog.clusters.values()]
    found += map(of_schema, catalog.schemas.values())
    found += map(of_database, catalog.databases.values())
    return [(each, catalog.access_to(each)) for each in found]


def _grant_on(session: Session, statement: r.GrantOn) -> Rows:
    catalog = session.coordinator.catalog
    grantees = [PUBLIC if name is None else _role(session, name).id for name in statement.grantees]
    rows: Rows = {}
    for each in securables(Asked(session), statement):
        access = catalog.access_to(each)
        privileges = statement.privileges or each.privileges
        for role in grantees:
            if statement.revoke:
                access = access.revoked(role, privileges)
            elif role != access.owner:
                access = access.granted(role, privileges, each.kind)
        rows |= access.row(each.key)
    return rows


def _alter_owner(session: Session, statement: r.AlterOwner) -> Rows:
    catalog = session.coordinator.catalog
    owner = _role(session, statement.owner).id
    what = owned(Asked(session), statement)
    # What a source consists of goes with it.
    parts = [
        of_item(item)
        for item in catalog.items.values()
        if item.parent is not None and of_item(catalog.items[item.parent]) == what
    ]
    return _rows(catalog.access_to(each).owned_by(owner).row(each.key) for each in (what, *parts))


def _reassign(session: Session, statement: r.ReassignOwned) -> Rows:
    owners = set(_ids(session, statement.roles))
    to = _role(session, statement.to).id
    found = everything(session.coordinator.catalog)
    return _rows(a.owned_by(to).row(each.key) for each, a in found if a.owner in owners)


async def _drop_owned(session: Session, statement: r.DropOwned) -> None:
    """First what they own, as DROP does, but for databases; then what they were granted."""
    coordinator = session.coordinator
    catalog = coordinator.catalog
    roles = set(_ids(session, statement.roles))
    if SUPERUSER.id in roles:
        raise SqlError(
            f"what {SUPERUSER.name} owns is the system's, too, and cannot be dropped at once",
            hint="DROP one by one",
            sqlstate="2BP01",
        )

    def is_owned(what: Securable) -> bool:
        return catalog.access_to(what).owner in roles

    items: list[Item] = [
        item for item in catalog.items.values() if item.parent is None and is_owned(of_item(item))
    ]
    if items:
        await coordinator.drop(items, cascade=statement.cascade)
    schemas = [each for each in catalog.schemas.values() if is_owned(of_schema(each))]
    await hierarchy_ddl.drop_schemas(coordinator, schemas, cascade=statement.cascade)
    for cluster in [each for each in catalog.clusters.values() if is_owned(of_cluster(each))]:
        await coordinator.drop_cluster(cluster.name, cascade=statement.cascade)

    def revoked() -> Rows:
        rows: Rows = {}
        for each, access in everything(catalog):
            for role in roles.intersection(access.grants):
                access = access.revoked(role, each.privileges)
                rows |= access.row(each.key)
        return rows

    await coordinator.change_catalog(revoked)


def _rows(many: Iterable[Rows]) -> Rows:
    return {key: text for rows in many for key, text in rows.items()}


def privilege_rows(catalog: Catalog) -> list[tuple[str, str, str, str, str]]:
    """Grantor, grantee, name, type and privilege of all that was granted."""
    roles = catalog.roles
    return [
        (roles.name_of(access.owner), roles.name_of(role), each.name, each.kind, privilege)
        for each, access in everything(catalog)
        for role, privileges in access.grants.items()
        for privilege in privileges
    ]
