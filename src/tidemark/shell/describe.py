r"""What there is: the queries behind `\d` and its kin.

`mz_objects` lists what users have made, sources and sinks among it, which PostgreSQL's catalog has
no word for; a relation's columns and indexes come from `pg_catalog`, system relations included.
"""

from __future__ import annotations

import msgspec

from tidemark.client import Database, Result
from tidemark.client.names import quoted
from tidemark.errors import SqlError

KINDS = {
    "t": ("table",),
    "v": ("view", "materialized-view"),
    "m": ("materialized-view",),
    "i": ("index",),
    "s": ("source", "subsource", "progress"),
    "k": ("sink",),
}
r"""`\dt` and the like, and the types of `mz_objects` that they list."""


class Part(msgspec.Struct, frozen=True):
    """A table, if there is one, with a title above and lines below it."""

    title: str
    result: Result | None
    below: tuple[str, ...] = ()


def listing(db: Database, kinds: tuple[str, ...], pattern: str | None) -> Result:
    """Objects of this database; all but indexes if no kind was said."""
    wanted = f"o.type IN ({_literals(kinds)})" if kinds else "o.type <> 'index'"
    return db.sql(
        f"""
        SELECT s.name AS "Schema", o.name AS "Name", replace(o.type, '-', ' ') AS "Type",
               c.name AS "Cluster", r.name AS "Owner"
        FROM mz_catalog.mz_objects o
        JOIN mz_catalog.mz_schemas s ON o.schema_id = s.id
        JOIN mz_catalog.mz_databases d ON s.database_id = d.id
        LEFT JOIN mz_catalog.mz_clusters c ON o.cluster_id = c.id
        LEFT JOIN mz_catalog.mz_roles r ON o.owner_id = r.id
        WHERE d.name = current_database() AND {wanted}{_matching(pattern)}
        ORDER BY 1, 2
        """
    )


def _literals(words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _matching(pattern: str | None) -> str:
    """`shop.ord*`: `*` is any text, `?` any character, as in psql."""
    if not pattern:
        return ""
    schema, _, name = pattern.rpartition(".")
    found = f" AND o.name LIKE {_like(name)}"
    return found + (f" AND s.name LIKE {_like(schema)}" if schema else "")


def _like(pattern: str) -> str:
    folded = pattern.strip('"') if pattern.startswith('"') else pattern.lower()
    escaped = folded.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
    return "'" + escaped.replace("*", "%").replace("?", "_").replace("'", "''") + "'"


def relation(db: Database, name: str, *, verbose: bool) -> Part:
    """One relation: its columns, its indexes, and what it was made of."""
    try:
        found = db.sql(
            "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c"
            " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            f" WHERE c.oid = {_text(name)}::regclass::oid"
        )
    except SqlError:
        if (other := _without_columns(db, name)) is not None:
            return other
        raise
    if not len(found):
        raise SqlError(f'there is no relation "{name}"', sqlstate="42P01")
    oid, schema, plain = found.rows()[0]
    comment = ', col_description(attrelid, attnum) AS "Comment"' if verbose else ""
    columns = db.sql(
        f"""
        SELECT attname AS "Column", format_type(atttypid, atttypmod) AS "Type",
               CASE WHEN attnotnull THEN 'not null' ELSE '' END AS "Nullable"{comment}
        FROM pg_catalog.pg_attribute
        WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped ORDER BY attnum
        """
    )
    made = db.sql(
        f"""
        SELECT o.type, c.name, o.create_sql FROM mz_catalog.mz_objects o
        JOIN mz_catalog.mz_schemas s ON o.schema_id = s.id
        JOIN mz_catalog.mz_databases d ON s.database_id = d.id
        LEFT JOIN mz_catalog.mz_clusters c ON o.cluster_id = c.id
        WHERE d.name = current_database() AND s.name = {_text(schema)} AND o.name = {_text(plain)}
        """
    ).rows()
    kind, cluster, create_sql = made[0] if made else ("system relation", None, None)
    below = [*_indexes(db, oid)]
    if cluster:
        below.append(f"Cluster: {cluster}")
    if create_sql and (verbose or kind != "table"):
        below += ["Definition:", *("    " + line for line in create_sql.splitlines())]
    title = f'{kind.replace("-", " ").capitalize()} "{schema}.{plain}"'
    return Part(title, columns, tuple(below))


def _without_columns(db: Database, name: str) -> Part | None:
    """A source that only brings others, or a sink: PostgreSQL's catalog has no word for those."""
    schema, _, plain = name.strip().rpartition(".")
    in_schema = f" AND s.name LIKE {_like(schema)}" if schema else ""
    made = db.sql(
        f"""
        SELECT o.type, s.name, o.name, c.name, o.create_sql, o.id FROM mz_catalog.mz_objects o
        JOIN mz_catalog.mz_schemas s ON o.schema_id = s.id
        JOIN mz_catalog.mz_databases d ON s.database_id = d.id
        LEFT JOIN mz_catalog.mz_clusters c ON o.cluster_id = c.id
        WHERE d.name = current_database() AND o.name LIKE {_like(plain)}{in_schema}
        """
    ).rows()
    if len(made) != 1:
        return None
    kind, schema, plain, cluster, create_sql, id_ = made[0]
    brings = db.sql(
        f"""
        SELECT o.name AS "Brings" FROM mz_catalog.mz_objects o
        JOIN mz_internal.mz_object_dependencies n ON n.object_id = o.id
        WHERE n.referenced_object_id = {_text(id_)} AND o.type = 'subsource' ORDER BY 1
        """
    )
    below = [f"Cluster: {cluster}"] if cluster else []
    if create_sql:
        below += ["Definition:", *("    " + line for line in create_sql.splitlines())]
    title = f'{kind.capitalize()} "{schema}.{plain}"'
    return Part(title, brings if len(brings) else None, tuple(below))


def _indexes(db: Database, oid: int) -> list[str]:
    found = db.sql(
        "SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_catalog.pg_index i"
        f" JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = {oid} ORDER BY 1"
    ).rows()
    lines = [f"    {quoted(name)} {definition or ''}".rstrip() for name, definition in found]
    return ["Indexes:", *lines] if lines else []


def schemas(db: Database) -> Result:
    return db.sql(
        'SELECT n.nspname AS "Name", r.rolname AS "Owner" FROM pg_catalog.pg_namespace n'
        " LEFT JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner"
        " WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname NOT LIKE 'mz\\_%'"
        " AND n.nspname <> 'information_schema' ORDER BY 1"
    )


def databases(db: Database) -> Result:
    return db.sql(
        'SELECT d.datname AS "Name", r.rolname AS "Owner" FROM pg_catalog.pg_database d'
        " LEFT JOIN pg_catalog.pg_roles r ON r.oid = d.datdba ORDER BY 1"
    )


def roles(db: Database) -> Result:
    return db.sql(
        """
        SELECT rolname AS "Role name",
               CASE WHEN rolsuper THEN 'superuser' ELSE '' END AS "Attributes",
               CASE WHEN rolcanlogin THEN 'yes' ELSE 'no' END AS "Can log in"
        FROM pg_catalog.pg_roles ORDER BY 1
        """
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
