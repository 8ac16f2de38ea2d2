"""The functions of PostgreSQL that catalog queries call and DuckDB does not have.

Where a word of SQL is enough they are macros; those that look something up are Python's, and take
all their arguments: the macro of the same name fills in what may be left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tidemark.compute.sql.dialect import DIALECT
from tidemark.control.hierarchy import quoted
from tidemark.control.pg import roles
from tidemark.control.pg.definitions import index_statement, view_query
from tidemark.control.pg.names import split_name
from tidemark.control.pg.types import format_type, type_oid

if TYPE_CHECKING:
    from tidemark.control.pg.seen import Seen


class Function(NamedTuple):
    name: str
    call: Callable
    """Given what the session sees, then the arguments; not called with nulls, but for `format_type`."""
    takes: tuple[str, ...]
    returns: str


def _relation_name(seen: Seen, oid: int) -> str:
    found = seen.directory.by_oid(oid)
    return seen.directory.shown_name(found) if found is not None else "-" if oid == 0 else str(oid)


def _relation_oid(seen: Seen, name: str) -> int | None:
    return seen.directory.oid(name)


def _is_visible(seen: Seen, oid: int) -> bool | None:
    found = seen.directory.by_oid(oid)
    return seen.directory.is_visible(found) if found is not None else None


def _view(seen: Seen, oid: int) -> str | None:
    found = seen.directory.by_oid(oid)
    return view_query(found.item) if found is not None and found.item is not None else None


def _view_named(seen: Seen, given: str) -> str | None:
    oid = _relation_oid(seen, given)
    return _view(seen, oid) if oid is not None else None


def _index(seen: Seen, oid: int, column: int) -> str | None:
    found = seen.directory.by_oid(oid)
    if found is None or found.item is None or found.kind != "i":
        return None
    if column == 0:
        return index_statement(found.item, seen.items[found.item.depends[0]])
    key = found.item.key
    return quoted(key[column - 1]) if 0 < column <= len(key) else ""


def _namespace_name(seen: Seen, oid: int) -> str:
    names = {number: name for name, number in seen.namespaces.items()}
    return quoted(names[oid]) if oid in names else str(oid)


def _namespace_oid(seen: Seen, name: str) -> int | None:
    return int(name) if name.isdecimal() else seen.namespaces.get((split_name(name) or [""])[-1])


def _type_oid(_: Seen, name: str) -> int | None:
    return int(name) if name.isdecimal() else type_oid(name)


def _size(_: Seen, count: int) -> str:
    """PostgreSQL goes on to the next unit at ten thousand and some."""
    size, units = float(count), ["bytes", "kB", "MB", "GB", "TB", "PB"]
    while abs(size) >= 10_240 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}"


def _table_size(seen: Seen, oid: int) -> int | None:
    found = seen.directory.by_oid(oid)
    if found is None or found.item is None or found.item.shard is None:
        return 0 if found is not None else None
    return sum(part.size for part in seen.client.known(found.item.shard).parts)


def _comment(seen: Seen, oid: int, column: int) -> str | None:
    return seen.comments.get((oid, column))


OIDS: dict[str, Callable[[Seen, str], int | None]] = {
    "regclass": _relation_oid,
    "regtype": _type_oid,
    "regnamespace": _namespace_oid,
}
"""What a name means in a cast to one of these types."""

FUNCTIONS = (
    Function(
        "tm_format_type",
        lambda _, oid, modifier: format_type(oid, modifier),
        ("BIGINT", "BIGINT"),
        "VARCHAR",
    ),
    Function("tm_table_is_visible", _is_visible, ("BIGINT",), "BOOLEAN"),
    Function("tm_viewdef", _view, ("BIGINT",), "VARCHAR"),
    Function("tm_viewdef_named", _view_named, ("VARCHAR",), "VARCHAR"),
    Function("tm_indexdef", _index, ("BIGINT", "BIGINT"), "VARCHAR"),
    Function("tm_userbyid", roles.role_name, ("BIGINT",), "VARCHAR"),
    Function("tm_has_privilege", roles.has_privilege, ("VARCHAR",) * 4, "BOOLEAN"),
    Function("tm_has_role", roles.has_role, ("VARCHAR",) * 3, "BOOLEAN"),
    Function("tm_size", _size, ("BIGINT",), "VARCHAR"),
    Function("tm_comment", _comment, ("BIGINT", "BIGINT"), "VARCHAR"),
    Function("tm_table_size", _table_size, ("BIGINT",), "BIGINT"),
    Function("quote_ident", lambda _, name: quoted(name), ("VARCHAR",), "VARCHAR"),
    # What is cast to regclass and its like, and what such a value prints.
    *(Function(f"{kind}_oid", find, ("VARCHAR",), "UINTEGER") for kind, find in OIDS.items()),
    Function("regclass_text", _relation_name, ("BIGINT",), "VARCHAR"),
    Function("regtype_text", lambda _, oid: format_type(oid, -1), ("BIGINT",), "VARCHAR"),
    Function("regnamespace_text", _namespace_name, ("BIGINT",), "VARCHAR"),
)

_VISIBLE = "type function operator opclass opfamily collation conversion ts_config statistics_obj"

_KEYWORDS = sorted(word.lower() for word in DIALECT.tokenizer_class.KEYWORDS if word.isalpha())

_TYPE_NAMES = {
    '"NULL"': "unknown",
    "BLOB": "bytea",
    "DECIMAL": "numeric",
    "DOUBLE": "double precision",
    "FLOAT": "real",
    "HUGEINT": "numeric",
    "JSON": "jsonb",
    "TIMESTAMP": "timestamp without time zone",
    "UINTEGER": "oid",
    "VARCHAR": "text",
}
"""What PostgreSQL calls DuckDB's types, where those two differ by more than case."""

MACROS = (
    "format_type(a) AS tm_format_type(a, NULL), (a, b) AS tm_format_type(a, b)",
    "pg_table_is_visible(a) AS tm_table_is_visible(a)",
    "pg_get_viewdef(a) AS CASE WHEN typeof(a) = 'VARCHAR' THEN tm_viewdef_named(CAST(a AS VARCHAR))"
    " ELSE tm_viewdef(TRY_CAST(a AS BIGINT)) END,"
    " (a, b) AS CASE WHEN typeof(a) = 'VARCHAR' THEN tm_viewdef_named(CAST(a AS VARCHAR))"
    " ELSE tm_viewdef(TRY_CAST(a AS BIGINT)) END",
    "pg_get_indexdef(a) AS tm_indexdef(a, 0), (a, b, c) AS tm_indexdef(a, b)",
    "pg_get_expr(a, b) AS CAST(a AS VARCHAR), (a, b, c) AS CAST(a AS VARCHAR)",
    "pg_size_pretty(a) AS tm_size(a)",
    *(
        f"{name}(a) AS tm_table_size(a)"
        for name in ("pg_table_size", "pg_relation_size", "pg_total_relation_size")
    ),
    "to_regclass(a) AS regclass_text(regclass_oid(a))",
    "to_regtype(a) AS regtype_oid(a)",
    "pg_get_userbyid(a) AS tm_userbyid(a)",
    *roles.macros(),
    "pg_encoding_to_char(a) AS CASE WHEN a = 6 THEN 'UTF8' ELSE '' END",
    "pg_char_to_encoding(a) AS CASE WHEN upper(a) IN ('UTF8', 'UTF-8') THEN 6 ELSE -1 END",
    "getdatabaseencoding() AS 'UTF8'",
    "pg_is_in_recovery() AS false",
    "pg_relation_is_publishable(a) AS false",
    "pg_is_other_temp_schema(a) AS false",
    "pg_my_temp_schema() AS CAST(0 AS UINTEGER)",
    "pg_database_size(a) AS CAST(NULL AS BIGINT)",
    # There is nothing to unlock; pools make sure when they get a connection back.
    "pg_advisory_unlock_all() AS ''",
    *(f"pg_{what}_is_visible(a) AS true" for what in _VISIBLE.split()),
    "obj_description(a) AS tm_comment(a, 0),"
    " (a, b) AS CASE WHEN b = 'pg_class' THEN tm_comment(a, 0) END",
    "col_description(a, b) AS tm_comment(a, b)",
    "shobj_description(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR)",
    *(
        f"{name}(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR)"
        for name in (
            *("pg_get_constraintdef", "pg_get_ruledef", "pg_get_triggerdef"),
            *("pg_get_function_arguments", "pg_get_function_identity_arguments"),
            *("pg_get_function_result", "pg_get_functiondef", "pg_get_function_sqlbody"),
            *("pg_get_statisticsobjdef_columns", "pg_get_statisticsobjdef", "pg_get_partkeydef"),
            *("pg_get_serial_sequence", "pg_tablespace_location", "pg_get_partition_constraintdef"),
        )
    ),
    "pg_stat_get_numscans(a) AS CAST(0 AS BIGINT)",
    "pg_typeof(a) AS CASE regexp_extract(typeof(a), '^[^([]*')"
    + "".join(f" WHEN '{theirs}' THEN '{ours}'" for theirs, ours in _TYPE_NAMES.items())
    + " ELSE lower(regexp_extract(typeof(a), '^[^([]*')) END"
    " || CASE WHEN typeof(a) LIKE '%[]' THEN '[]' ELSE '' END",
    # Arrays have one dimension.
    *(
        f"{name}(a, b) AS CASE WHEN b = 1 THEN CAST(nullif(len(a), 0) AS INTEGER) END"
        for name in ("array_length", "array_upper")
    ),
    "array_lower(a, b) AS CASE WHEN b = 1 AND len(a) > 0 THEN 1 END",
    "cardinality(a) AS CAST(len(a) AS INTEGER)",
    "array_remove(a, b) AS list_filter(a, lambda each: each IS DISTINCT FROM b)",
    "_pg_expandarray(a) AS unnest(list_transform(a, lambda each, place: {'x': each, 'n': place}))",
    "quote_literal(a) AS '''' || replace(CAST(a AS VARCHAR), '''', '''''') || ''''",
    f"pg_get_keywords() AS TABLE SELECT unnest({_KEYWORDS}) AS word",
)

NAMES = frozenset(text.partition("(")[0] for text in MACROS) | {each.name for each in FUNCTIONS}
