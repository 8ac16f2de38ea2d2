"""pg_settings: the session's variables, and what clients ask of a PostgreSQL server besides."""

from __future__ import annotations

from tidemark.control.pg.columns import Row, relation
from tidemark.control.relation import SystemRelation
from tidemark.control.variables import DEFAULTS, READ_ONLY

FIXED = {
    "block_size": "8192",
    "default_table_access_method": "heap",
    "default_tablespace": "",
    "default_transaction_read_only": "off",
    "in_hot_standby": "off",
    "integer_datetimes": "on",
    "is_superuser": "on",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "server_encoding": "UTF8",
    "transaction_read_only": "off",
}
"""What never changes."""

_SPELLED = (
    "name text, setting text, unit text, category text, short_desc text, extra_desc text,"
    " context text, vartype text=string, source text=default, min_val text, max_val text,"
    " enumvals text[], boot_val text, reset_val text, sourcefile text, sourceline int4,"
    " pending_restart bool=f"
)


def settings(variables: dict[str, str]) -> list[Row]:
    rows: list[Row] = []
    for name, value in sorted(variables.items()):
        default = (FIXED | DEFAULTS)[name]
        internal = name in FIXED or name in READ_ONLY
        rows.append(
            {
                "name": name,
                "setting": value,
                "category": "",
                "short_desc": "",
                "context": "internal" if internal else "user",
                "source": "default" if value == default else "session",
                "boot_val": default,
                "reset_val": default,
            }
        )
    return rows


def pg_settings(variables: dict[str, str]) -> SystemRelation:
    """The relation as a session with these variables sees it."""
    return relation("pg_catalog", "pg_settings", _SPELLED, lambda _: settings(variables))


RELATION = pg_settings(FIXED | DEFAULTS)
