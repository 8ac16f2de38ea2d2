"""Where things are: account → region → database → schema → object.

    account, region    what one server serves: one blob and one consensus location
    database           a timeline: its own clock and commit log; what is read together is in one
    schema             a folder of names within a database

The names of objects are unique within their schema. Clusters belong to the region, not to any
database. PostgreSQL's schemas and Tidemark's own are in every database, and nobody creates in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from tidemark.errors import SqlError, Unsupported

DATABASE, SCHEMA = "tidemark", "public"
"""Those that are there from the start."""

ACCOUNT, REGION = "tidemark", "local"
"""What a server serves that was not told."""

SYSTEM_SCHEMAS = ("pg_catalog", "information_schema", "mz_catalog", "mz_internal")

FullName = tuple[str, str, str]
"""Database, schema, object."""

_ENTRY = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^",]*?))\s*(,|$)')
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")


class RegionItem(msgspec.Struct, frozen=True):
    account: str
    region: str


class DatabaseItem(msgspec.Struct, frozen=True):
    """`log` is the shard of its commit log, which is its clock."""

    id: str
    name: str
    log: str


class SchemaItem(msgspec.Struct, frozen=True):
    id: str
    name: str
    database: str


def quoted(name: str) -> str:
    """As SQL writes it."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def shown(full: FullName) -> str:
    """As short as it can be said from where sessions begin."""
    database, schema, name = full
    if (database, schema) == (DATABASE, SCHEMA):
        return name
    parts = (schema, name) if database == DATABASE else full
    return ".".join(map(quoted, parts))


def spelled(full: FullName) -> str:
    """As SQL written for sessions that begin anywhere in that database must say it."""
    return quoted(full[2]) if full[:2] == (DATABASE, SCHEMA) else shown(full)


def check_name(kind: str, name: str) -> None:
    """Whether a new schema or database may be called that."""
    if not name:
        raise SqlError(f"a {kind} must have a name", sqlstate="42602")
    if name in SYSTEM_SCHEMAS or name.startswith(("pg_", "mz_")):
        raise SqlError(
            f'unacceptable {kind} name "{name}"',
            hint="names that begin with pg_ or mz_ are the system's",
            sqlstate="42939",
        )


def one_database(databases: Iterable[str]) -> str | None:
    """The one that all of these are; None of none. What touches two is refused."""
    found = list(dict.fromkeys(databases))
    if len(found) > 1:
        raise two_databases(*found[:2])
    return found[0] if found else None


def two_databases(one: str, other: str) -> Unsupported:
    return Unsupported(
        f'relations of databases "{one}" and "{other}" cannot be used together: each database is'
        " a timeline of its own, and there is no time at which both can be read",
        hint="keep what is used together in schemas of one database",
    )


def other_region(region: str, here: str) -> Unsupported:
    return Unsupported(
        f'this server serves region "{here}", not "{region}": data does not cross regions',
        hint=f'connect to a server of region "{region}", or send the data there with a sink',
    )


def no_database(name: str) -> SqlError:
    return SqlError(
        f'database "{name}" does not exist',
        hint="SHOW DATABASES lists them, CREATE DATABASE makes one",
        sqlstate="3D000",
    )


def no_schema(name: str) -> SqlError:
    return SqlError(f'schema "{name}" does not exist', sqlstate="3F000")


def path_of(search_path: str) -> list[str]:
    """`"$user", Public` as [`$user`, `public`]."""
    found, at = [], 0
    while at <= len(search_path):
        entry = _ENTRY.match(search_path, at)
        if entry is None:
            raise SqlError(
                f'invalid value for parameter "search_path": "{search_path}"',
                hint="schemas, separated by commas",
                sqlstate="22023",
            )
        inner, plain, more = entry.groups()
        found.append(inner.replace('""', '"') if inner is not None else plain.lower())
        at = entry.end()
        if not more:
            break
    return [each for each in found if each]


def path_text(schemas: list[str]) -> str:
    return ", ".join(map(quoted, schemas)) or '""'
