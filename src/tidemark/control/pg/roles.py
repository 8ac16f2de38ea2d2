"""Roles, owners and privileges, as PostgreSQL's catalog and Materialize's show them.

`has_table_privilege('t', 'SELECT')` and its like ask of the session's role what `privileges.py`
would ask: `Asking` puts the role in front where the query leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemark.control.access import (
    PRIVILEGES,
    Securable,
    acl,
    of_cluster,
    of_database,
    of_item,
    of_schema,
)
from tidemark.control.hierarchy import DatabaseItem, no_database, no_schema
from tidemark.control.identity import acting_as
from tidemark.control.pg.columns import Row, relation
from tidemark.control.pg.names import Listed, oid_of, split_name
from tidemark.control.relation import SystemRelation
from tidemark.control.roles import PUBLIC as EVERYBODY
from tidemark.control.roles import Role
from tidemark.errors import SqlError
from tidemark.types import BIGINT, BOOLEAN, TEXT, Column

if TYPE_CHECKING:
    from tidemark.control.catalog import Item
    from tidemark.control.coordinator import Coordinator
    from tidemark.control.pg.seen import Seen

CHECKED = ("table", "any_column", "column", "schema", "database", "cluster", "connection", "secret")
"""Of what has_..._privilege says the truth."""

_UNREAL = ("sequence", "function", "type", "tablespace", "language", "foreign_data_wrapper")
"""What everybody may use, as far as there is any."""


# What objects say of their owners ---------------------------------------------------------------


def owned(seen: Seen, each: Listed) -> Row:
    """Of a relation: `relowner` and `relacl`; system relations everybody may read."""
    if each.item is None:
        return {"relowner": 10, "relacl": ["tidemark=arwd/tidemark", "=r/tidemark"]}
    what = of_item(each.item)
    return {"relowner": _owner(seen, what).oid, "relacl": acl_of(seen, what)}


def owner_name(seen: Seen, each: Listed) -> str:
    return "tidemark" if each.item is None else _owner(seen, of_item(each.item)).name


def _owner(seen: Seen, what: Securable) -> Role:
    catalog = seen.catalog
    return catalog.roles.by_id[catalog.access_to(what).owner]


def acl_of(seen: Seen, what: Securable) -> list[str] | None:
    catalog = seen.catalog
    return acl(catalog.access_to(what), what.kind, catalog.roles)


def schema_row(seen: Seen, name: str) -> Row:
    found = seen.catalog.schemas.get((seen.database, name))
    if found is None:
        return {"nspacl": ["tidemark=UC/tidemark", "=U/tidemark"]}
    what = of_schema(found)
    return {"nspowner": _owner(seen, what).oid, "nspacl": acl_of(seen, what)}


def database_row(seen: Seen, database: DatabaseItem) -> Row:
    what = of_database(database)
    return {"datdba": _owner(seen, what).oid, "datacl": acl_of(seen, what)}


# Roles ------------------------------------------------------------------------------------------


def _roles(seen: Seen) -> Iterator[Row]:
    for role in seen.catalog.roles.by_id.values():
        yield {
            "oid": role.oid,
            "rolname": role.name,
            "rolsuper": role.superuser,
            "rolinherit": True,
            "rolcreaterole": role.createrole,
            "rolcreatedb": role.createdb,
            "rolcanlogin": role.login,
            "rolconfig": _config(role),
        }


def _users(seen: Seen) -> Iterator[Row]:
    for role in seen.catalog.roles.by_id.values():
        if role.login:
            yield {
                "usename": role.name,
                "usesysid": role.oid,
                "usecreatedb": role.createdb,
                "usesuper": role.superuser,
                "useconfig": _config(role),
            }


def _config(role: Role) -> list[str] | None:
    return [f"{name}={value}" for name, value in role.settings.items()] or None


def _settings(seen: Seen) -> Iterator[Row]:
    for role in seen.catalog.roles.by_id.values():
        if role.settings:
            yield {"setdatabase": 0, "setrole": role.oid, "setconfig": _config(role)}


def _members(seen: Seen) -> Iterator[Row]:
    roles = seen.catalog.roles.by_id
    for member in roles.values():
        for id_ in member.member_of:
            yield {"roleid": roles[id_].oid, "member": member.oid, "grantor": 10}


def _own_roles(coordinator: Coordinator) -> list[tuple]:
    return [
        (e.id, e.oid, e.name, True, e.superuser, e.login, e.createrole, e.createdb, e.createcluster)
        for e in coordinator.catalog.roles.by_id.values()
    ]


def _own_members(coordinator: Coordinator) -> list[tuple]:
    return [
        (id_, member.id, "s1")
        for member in coordinator.catalog.roles.by_id.values()
        for id_ in member.member_of
    ]


def _table_privileges(seen: Seen) -> Iterator[Row]:
    catalog = seen.catalog
    for item in seen.items.values():
        what = of_item(item)
        if what.word == "TABLE":
            access = catalog.access_to(what)
            for role, has in ({access.owner: what.privileges} | access.grants).items():
                for privilege in has:
                    yield {
                        "grantor": catalog.roles.name_of(access.owner),
                        "grantee": catalog.roles.name_of(role),
                        "table_catalog": seen.database,
                        "table_schema": item.schema,
                        "table_name": item.name,
                        "privilege_type": privilege,
                        "is_grantable": "YES" if role == access.owner else "NO",
                        "with_hierarchy": "YES" if privilege == "SELECT" else "NO",
                    }


# Questions --------------------------------------------------------------------------------------


def has_privilege(seen: Seen, kind: str, user: str, name: str, asked: str) -> bool:
    """Whether a role, by name or oid, may do one of the things `asked`."""
    role = _found(seen, user)
    if kind in ("any_column", "column"):
        kind = "table"
    what = _securable(seen, kind, name)
    if what is None:  # A system relation, or a system's schema.
        return _said(asked, kind) <= {"SELECT", "USAGE"} or (role is not None and role.superuser)
    access = seen.catalog.access_to(what)
    if role is None:
        return bool(_said(asked, kind) & set(access.grants.get(EVERYBODY, ())))
    acting = acting_as(seen.catalog.roles, role)
    return any(acting.may(privilege, access) for privilege in _said(asked, kind))


def has_role(seen: Seen, user: str, name: str, _: str) -> bool:
    roles = seen.catalog.roles
    role, wanted = _found(seen, user), _found(seen, name)
    return role is not None and wanted is not None and acting_as(roles, role).is_member(wanted)


def role_name(seen: Seen, oid: int) -> str:
    for role in seen.catalog.roles.by_id.values():
        if role.oid == oid:
            return role.name
    return f"unknown (OID={oid})"


_SUPERFLUOUS = {"TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN", "TEMP", "TEMPORARY"}
"""What PostgreSQL has, and nobody here."""


def _said(text: str, kind: str) -> set[str]:
    """`select, insert with grant option`, in our words."""
    found: set[str] = set()
    for each in text.upper().split(","):
        word = each.strip().removesuffix(" WITH GRANT OPTION").strip()
        word = {"CONNECT": "USAGE"}.get(word, word) if kind == "database" else word
        if word in PRIVILEGES[kind]:
            found.add(word)
        elif word not in _SUPERFLUOUS:
            raise SqlError(f'unrecognized privilege type: "{word}"', sqlstate="22023")
    return found


def _found(seen: Seen, user: str) -> Role | None:
    """None is PUBLIC. A user that is no role acts as tidemark."""
    if user in ("public", "0"):
        return None
    roles = seen.catalog.roles
    if user.isdecimal():
        return next((role for role in roles.by_id.values() if role.oid == int(user)), None)
    return roles.named(user.strip('"'))


def _securable(seen: Seen, kind: str, name: str) -> Securable | None:
    if kind == "table":
        oid = seen.directory.oid(name)
        found = seen.directory.by_oid(oid) if oid is not None else None
        if found is None:
            raise SqlError(f'relation "{name}" does not exist', sqlstate="42P01")
        return of_item(found.item) if found.item is not None else None
    if kind == "schema":
        names = {str(oid): schema for schema, oid in seen.namespaces.items()}
        schema = names.get(name, name.strip('"'))
        if schema not in seen.namespaces:
            raise no_schema(name)
        found = seen.catalog.schemas.get((seen.database, schema))
        return of_schema(found) if found is not None else None
    if kind == "database":
        for each in seen.catalog.databases.values():
            if name in (str(oid_of(each.id)), each.name):
                return of_database(each)
        raise no_database(name)
    if kind == "cluster":
        cluster = seen.catalog.clusters.get(name)
        if cluster is None:
            raise SqlError(f'cluster "{name}" does not exist', sqlstate="42704")
        return of_cluster(cluster)
    item = _named(seen, name)
    if item is None or item.kind != kind:
        raise SqlError(f'{kind} "{name}" does not exist', sqlstate="42704")
    return of_item(item)


def _named(seen: Seen, text: str) -> Item | None:
    *schemas, name = split_name(text) or [""]
    for schema in schemas[-1:] or seen.path:
        if (found := seen.catalog.named(name, schema, seen.database)) is not None:
            return found
    return None


def macros() -> tuple[str, ...]:
    """The names that queries call, with the role in front."""
    real = tuple(
        f"has_{kind}_privilege(a, b, c) AS tm_has_privilege('{kind}', CAST(a AS VARCHAR),"
        " CAST(b AS VARCHAR), c)"
        + (
            f", (a, b, x, c) AS tm_has_privilege('{kind}', CAST(a AS VARCHAR),"
            " CAST(b AS VARCHAR), c)"
            if kind == "column"
            else ""
        )
        for kind in CHECKED
    )
    unreal = tuple(f"has_{kind}_privilege(a, b, c) AS true" for kind in _UNREAL)
    return (
        *real,
        *unreal,
        "pg_has_role(a, b, c) AS tm_has_role(CAST(a AS VARCHAR), CAST(b AS VARCHAR), c)",
    )


ASKED = {f"has_{kind}_privilege": 4 if kind == "column" else 3 for kind in (*CHECKED, *_UNREAL)}
"""Functions that take a role first, if they have so many arguments."""
ASKED["pg_has_role"] = 3


_ROLE = (
    "rolname name, rolsuper bool=f, rolinherit bool=t, rolcreaterole bool=f, rolcreatedb bool=f,"
    " rolcanlogin bool=f, rolreplication bool=f, rolconnlimit int4=-1, rolpassword text=********,"
    " rolvaliduntil timestamptz, rolbypassrls bool=f"
)

RELATIONS: tuple[SystemRelation, ...] = (
    relation("pg_catalog", "pg_roles", f"{_ROLE}, rolconfig text[], oid oid", _roles),
    relation("pg_catalog", "pg_authid", f"oid oid, {_ROLE}", _roles),
    relation(
        "pg_catalog",
        "pg_user",
        "usename name, usesysid oid, usecreatedb bool, usesuper bool, userepl bool=f,"
        " usebypassrls bool=f, passwd text=********, valuntil timestamptz, useconfig text[]",
        _users,
    ),
    relation(
        "pg_catalog",
        "pg_auth_members",
        "oid oid=0, roleid oid, member oid, grantor oid, admin_option bool=f,"
        " inherit_option bool=t, set_option bool=t",
        _members,
    ),
    relation(
        "pg_catalog",
        "pg_db_role_setting",
        "setdatabase oid, setrole oid, setconfig text[]",
        _settings,
    ),
    SystemRelation(
        "mz_catalog",
        "mz_roles",
        (
            Column("id", TEXT),
            Column("oid", BIGINT),
            Column("name", TEXT),
            *(
                Column(name, BOOLEAN)
                for name in (
                    *("inherit", "rolsuper", "rolcanlogin"),
                    *("create_role", "create_db", "create_cluster"),
                )
            ),
        ),
        _own_roles,
    ),
    SystemRelation(
        "mz_catalog",
        "mz_role_members",
        (Column("role_id", TEXT), Column("member", TEXT), Column("grantor", TEXT)),
        _own_members,
    ),
    relation(
        "information_schema",
        "table_privileges",
        "grantor name, grantee name, table_catalog name, table_schema name,"
        " table_name name, privilege_type text, is_grantable text, with_hierarchy text",
        _table_privileges,
    ),
    relation(
        "information_schema",
        "role_table_grants",
        "grantor name, grantee name, table_catalog name, table_schema name,"
        " table_name name, privilege_type text, is_grantable text, with_hierarchy text",
        lambda seen: (row for row in _table_privileges(seen) if row["grantee"] != "PUBLIC"),
    ),
)
