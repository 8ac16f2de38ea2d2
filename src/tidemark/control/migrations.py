"""Catalogs of earlier versions, brought up to this one's when a leader starts.

The row `version` says how many of `MIGRATIONS` a catalog has behind it; one without that row has
none. Each is given all rows and says which change; they happen together with the new version, in
one append. Whoever only reads migrates what was read, and writes nothing.

What was released is never changed here, only added to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemark.errors import InvalidUsage

VERSION = "version"

Rows = Mapping[str, str]
Changes = dict[str, str | None]
Migration = Callable[[Rows], Changes]


def _databases_and_schemas(_: Rows) -> Changes:
    """Until then there was one database and in it one schema, and neither was a row. What is in
    them needs no change: an object that does not say where it is, is there."""
    return {
        "database-s1": '{"id":"s1","name":"tidemark","log":"txns"}',
        "schema-s2": '{"id":"s2","name":"public","database":"tidemark"}',
    }


MIGRATIONS: tuple[Migration, ...] = (_databases_and_schemas,)


def version_of(rows: Rows) -> int:
    return int(rows.get(VERSION, "0"))


def pending(rows: Rows) -> Changes:
    """What has to change for this version to read the catalog; nothing if it can."""
    version = version_of(rows)
    if version > len(MIGRATIONS):
        raise InvalidUsage(
            f"the catalog was written by a newer Tidemark: it has version {version}, and this one"
            f" reads versions up to {len(MIGRATIONS)}",
            hint="start the newer one; nothing was changed",
        )
    now, changes = dict(rows), {}
    for migration in MIGRATIONS[version:]:
        made = migration(now)
        changes |= made
        now = {id_: text for id_, text in {**now, **made}.items() if text is not None}
    return changes | {VERSION: str(len(MIGRATIONS))} if version < len(MIGRATIONS) else {}


def migrated(rows: Rows) -> dict[str, str]:
    """The rows as this version has them."""
    return {id_: text for id_, text in {**rows, **pending(rows)}.items() if text is not None}
