"""pg_settings: the session's variables, and what clients ask of a PostgreSQL server besides."""

from __future__ import annotations

from tidemark.control.pg.columns import Row, relation
from tidemark.control.relation import SystemRelation
from tidemark.control.variables import DEFAULTS, OF_POSTGRES, READ_ONLY

_SPELLED = (
    "name text, setting text, unit text, category text, short_desc text, extra_desc text,"
    " context text, vartype text=string, source text=default, min_val text, max_val text,"
    " enumvals text[], boot_val text, reset_val text, sourcefile text, sourceline int4,"
    " pending_restart bool=f"
)


def settings(variables: dict[str, str]) -> list[Row]:
    rows: list[Row] = []
    for name, value in sorted(variables.items()):
        default = (OF_POSTGRES | DEFAULTS)[name]
        internal = name in OF_POSTGRES or name in READ_ONLY
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


RELATION = pg_settings(OF_POSTGRES | DEFAULTS)
