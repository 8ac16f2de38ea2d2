"""Roles, owners and privileges, as text.

CREATE ROLE alice WITH LOGIN PASSWORD '...'          ALTER ROLE alice SET cluster = 'c'
GRANT SELECT, INSERT ON TABLE a, b TO alice          GRANT readers TO alice
ALTER TABLE a OWNER TO alice                         REASSIGN OWNED BY alice TO bob
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from sqlglot.tokenizer_core import TokenType

from tidemark.control import role_statements as r
from tidemark.control.access import LETTERS, PRIVILEGES
from tidemark.control.cursor import Cursor
from tidemark.control.parse_hierarchy import search_path
from tidemark.errors import SqlError, Unsupported

_SWITCHES = ("login", "superuser", "createrole", "createdb", "createcluster")
_REFUSED = "NOINHERIT REPLICATION NOREPLICATION BYPASSRLS NOBYPASSRLS CONNECTION VALID".split()
_REFUSED += "ADMIN IN ROLE USER SYSID".split()

KINDS = (
    "MATERIALIZED VIEW",
    *("TABLE", "SOURCE", "VIEW", "SINK", "INDEX", "CONNECTION", "SECRET"),
    *("CLUSTER", "SCHEMA", "DATABASE"),
)
"""What has an owner, as ALTER names it."""

GRANTED = ("TABLE", "CLUSTER", "SCHEMA", "DATABASE", "CONNECTION", "SECRET")
"""What GRANT names; TABLE is any relation."""


def _is_word(cursor: Cursor, kind: TokenType) -> bool:
    token = cursor.peek()
    return token is not None and token.token_type == kind


def _names(cursor: Cursor, one: Callable[[], str]) -> tuple[str, ...]:
    found = [one()]
    while cursor.take(","):
        found.append(one())
    return tuple(found)


# CREATE, ALTER and DROP ROLE --------------------------------------------------------------------


def create(cursor: Cursor) -> r.CreateRole:
    """What follows CREATE."""
    is_user = cursor.one_of("ROLE", "USER") == "USER"
    if_not_exists = cursor.take("IF NOT EXISTS")
    name = checked_name(cursor.word())
    options = _options(cursor)
    if is_user and options.login is None:
        options = dataclasses.replace(options, login=True)
    return r.CreateRole(name, options, if_not_exists)


def alter(cursor: Cursor) -> r.AlterRole | r.RenameRole | r.SetRoleDefault:
    cursor.one_of("ROLE", "USER")
    name = cursor.word()
    if cursor.take("RENAME TO"):
        return r.RenameRole(name, checked_name(cursor.word()))
    if cursor.take("RESET"):
        variable = None if cursor.take("ALL") else _variable(cursor)
        return r.SetRoleDefault(name, variable, None)
    if cursor.take("SET"):
        variable = _variable(cursor)
        cursor.one_of("=", "TO")
        value = search_path(cursor) if variable == "search_path" else _value(cursor)
        return r.SetRoleDefault(name, variable, value)
    if cursor.looking_at("IN DATABASE"):
        raise Unsupported("settings of a role in one database are not supported", hint="leave it")
    if cursor.peek() is None:
        raise cursor.error()
    return r.AlterRole(name, _options(cursor))


def drop(cursor: Cursor) -> r.DropRoles:
    cursor.one_of("ROLE", "USER")
    if_exists = cursor.take("IF EXISTS")
    return r.DropRoles(_names(cursor, cursor.word), if_exists)


def checked_name(name: str) -> str:
    if name in ("public", "none", "current_user", "current_role", "session_user"):
        raise SqlError(f'role name "{name}" is reserved', sqlstate="42939")
    if name.startswith(("mz_", "pg_")):
        raise SqlError(
            f'role name "{name}" is reserved',
            hint="names that begin with mz_ or pg_ are the system's",
            sqlstate="42939",
        )
    return name


def _options(cursor: Cursor) -> r.RoleOptions:
    cursor.take("WITH")
    found: dict[str, bool | str] = {}
    while cursor.peek() is not None:
        name, value = _option(cursor)
        if name in found:
            raise SqlError("conflicting or redundant options")
        found[name] = value
    found.pop("inherit", None)  # It is so anyway.
    return r.RoleOptions(**found)  # pyright: ignore[reportArgumentType]


def _option(cursor: Cursor) -> tuple[str, bool | str]:
    for words in _REFUSED:
        if cursor.looking_at(words):
            raise Unsupported(
                f"option {words} of roles is not supported",
                hint="supported: LOGIN, SUPERUSER, INHERIT, CREATEROLE, CREATEDB, CREATECLUSTER,"
                " PASSWORD; members are added with GRANT",
            )
    if cursor.take("PASSWORD") or cursor.take("ENCRYPTED PASSWORD"):
        if cursor.take("NULL"):
            return "forget", True
        if not _is_word(cursor, TokenType.STRING):
            # What stands there may be the password: it is not repeated.
            raise SqlError("PASSWORD takes a text in quotes, or NULL")
        return "password", cursor.next().text
    if cursor.take("INHERIT"):
        return "inherit", True
    for name in _SWITCHES:
        if cursor.take(name.upper()):
            return name, True
        if cursor.take(f"NO{name.upper()}"):
            return name, False
    raise cursor.error()


def _variable(cursor: Cursor) -> str:
    return "timezone" if cursor.take("TIME ZONE") else ".".join(cursor.name())


def _value(cursor: Cursor) -> str | None:
    if cursor.take("DEFAULT"):
        return None
    found = [cursor.next().text]
    while cursor.peek() is not None:
        found.append(cursor.next().text)
    return " ".join(found).replace(" ,", ",")


# GRANT and REVOKE -------------------------------------------------------------------------------


def grant(cursor: Cursor) -> r.GrantOn | r.GrantRole:
    cursor.expect("GRANT")
    return _granted(cursor, revoke=False)


def revoke(cursor: Cursor) -> r.GrantOn | r.GrantRole:
    cursor.expect("REVOKE")
    for words in ("GRANT OPTION FOR", "ADMIN OPTION FOR"):
        if cursor.looking_at(words):
            raise Unsupported(
                f"{words} is not supported", hint="only owners and superusers grant; leave it out"
            )
    return _granted(cursor, revoke=True)


def _granted(cursor: Cursor, *, revoke: bool) -> r.GrantOn | r.GrantRole:
    end = cursor.find("ON")
    is_on = end < len(cursor.tokens)
    return _grant_on(cursor, revoke=revoke) if is_on else _grant_role(cursor, revoke=revoke)


def _grant_role(cursor: Cursor, *, revoke: bool) -> r.GrantRole:
    roles = _names(cursor, cursor.word)
    cursor.expect("FROM" if revoke else "TO")
    members = _names(cursor, cursor.word)
    _refuse_options(cursor)
    return r.GrantRole(roles, members, revoke)


def _grant_on(cursor: Cursor, *, revoke: bool) -> r.GrantOn:
    privileges = _privileges(cursor)
    cursor.expect("ON")
    if cursor.take("ALL TABLES IN SCHEMA"):
        kind, in_schema = "table", True
    else:
        kind, in_schema = _kind(cursor), False
    names = [cursor.name()]
    while cursor.take(","):
        names.append(cursor.name())
    possible = PRIVILEGES[kind]
    for each in privileges:
        if each not in possible:
            raise SqlError(
                f"invalid privilege type {each} for {kind}",
                hint=f"a {kind} has {', '.join(possible)}",
                sqlstate="0LP01",
            )
    cursor.expect("FROM" if revoke else "TO")
    grantees = [_grantee(cursor)]
    while cursor.take(","):
        grantees.append(_grantee(cursor))
    _refuse_options(cursor)
    return r.GrantOn(privileges, kind, tuple(names), tuple(grantees), revoke, in_schema)


def _privileges(cursor: Cursor) -> tuple[str, ...]:
    if cursor.take("ALL"):
        cursor.take("PRIVILEGES")
        return ()
    found: list[str] = []
    while True:
        word = cursor.word().upper()
        if word not in LETTERS:
            raise SqlError(
                f'unrecognized privilege type "{word.lower()}"',
                hint=f"known: {', '.join(LETTERS)}, ALL",
            )
        if cursor.looking_at("("):
            raise Unsupported(
                "privileges of single columns are not supported",
                hint="make a view of those columns, and grant that",
            )
        found.append(word)
        if not cursor.take(","):
            return tuple(found)


def _kind(cursor: Cursor) -> str:
    for words in GRANTED:
        # It may also be a table of that name: GRANT SELECT ON cluster TO alice.
        following = cursor.peek(1)
        is_name = following is not None and following.text.upper() in ("TO", "FROM", ",", ".")
        if not is_name and cursor.take(words):
            return words.lower()
    for words in ("ALL", "FUNCTION", "SEQUENCE", "TYPE", "LANGUAGE", "SYSTEM"):
        following = cursor.peek(1)
        if cursor.looking_at(words) and following is not None and following.text != ",":
            raise Unsupported(
                f"GRANT ... ON {words} is not supported",
                hint=f"supported: {', '.join(GRANTED)}, ALL TABLES IN SCHEMA",
            )
    return "table"


def _grantee(cursor: Cursor) -> str | None:
    cursor.take("GROUP")
    return None if cursor.take("PUBLIC") else cursor.word()


def _refuse_options(cursor: Cursor) -> None:
    if cursor.looking_at("WITH") or cursor.looking_at("GRANTED"):
        raise Unsupported(
            "WITH GRANT OPTION, WITH ADMIN OPTION and GRANTED BY are not supported",
            hint="who owns something grants it; who has CREATEROLE grants roles",
        )
    if not cursor.take("RESTRICT"):
        cursor.take("CASCADE")


# Owners -----------------------------------------------------------------------------------------


def alter_owner(cursor: Cursor) -> r.AlterOwner:
    """What follows ALTER, where there is an OWNER TO."""
    kind = cursor.one_of(*KINDS)
    name = cursor.name()
    cursor.expect("OWNER TO")
    return r.AlterOwner(kind.lower(), name, cursor.word())


def reassign(cursor: Cursor) -> r.ReassignOwned:
    cursor.expect("REASSIGN OWNED BY")
    roles = _names(cursor, cursor.word)
    cursor.expect("TO")
    return r.ReassignOwned(roles, cursor.word())


def drop_owned(cursor: Cursor) -> r.DropOwned:
    """What follows DROP."""
    cursor.expect("OWNED BY")
    roles = _names(cursor, cursor.word)
    cascade = cursor.take("CASCADE")
    if not cascade:
        cursor.take("RESTRICT")
    return r.DropOwned(roles, cascade)


def show_privileges(cursor: Cursor) -> r.ShowPrivileges:
    """What follows SHOW PRIVILEGES."""
    return r.ShowPrivileges(cursor.word() if cursor.take("FOR") else None)
