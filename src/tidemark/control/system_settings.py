"""ALTER SYSTEM: limits of the whole server, and what sessions begin with, kept in the catalog.

    ALTER SYSTEM SET statement_timeout = '30s'     for sessions that connect from now on
    ALTER SYSTEM SET max_connections = 100         at once
    ALTER SYSTEM SET max_memory = '8GB'            likewise; of what is kept for clients
    ALTER SYSTEM RESET statement_timeout           RESET ALL for everything

A session may still SET its own, but for what is the server's alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tidemark.control import statements as s
from tidemark.control.pg.columns import relation
from tidemark.control.pgwire import Done
from tidemark.control.variables import (
    DEFAULTS,
    MAX_CONNECTIONS,
    MAX_MEMORY,
    OF_THE_SERVER,
    READ_ONLY,
    Variables,
    check_size,
)
from tidemark.errors import SqlError
from tidemark.units import byte_size

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator

_PREFIX = "system-"
_OF_A_SESSION = ("application_name", "client_encoding", "database", "role")
"""What a client says of itself when it connects."""

SETTABLE = tuple(
    name for name in DEFAULTS if name in OF_THE_SERVER or name not in (*READ_ONLY, *_OF_A_SESSION)
)


async def run(coordinator: Coordinator, statement: s.AlterSystem) -> Done:
    if statement.name is None:
        changes: dict[str, str | None] = dict.fromkeys(_PREFIX + name for name in SETTABLE)
    else:
        name = statement.name.lower()
        if name not in SETTABLE:
            known = name in DEFAULTS
            raise SqlError(
                f'parameter "{name}" cannot be changed for the system'
                if known
                else f'unrecognized configuration parameter "{name}"',
                hint=f"those that can: {', '.join(SETTABLE)}",
                sqlstate="55P02" if known else "42704",
            )
        value = statement.value
        if value is not None:
            value = _checked(name, value)
        if name == "cluster" and value is not None:
            coordinator.clusters.named(value)
        changes = {_PREFIX + name: value}
    await coordinator.change(lambda: coordinator.catalog.note(changes))
    return Done("ALTER SYSTEM")


def _checked(name: str, value: str) -> str:
    if name == MAX_CONNECTIONS:
        most = int(DEFAULTS[MAX_CONNECTIONS])
        if not value.isdecimal() or len(value) > 9 or not 0 < int(value) <= most:
            raise SqlError(
                f'invalid value for parameter "{name}": "{value}"',
                hint=f"from 1 to {most}",
                sqlstate="22023",
            )
        return value
    if name == MAX_MEMORY:
        check_size(name, value)
        return value
    variables = Variables({})
    variables.set(name, value)
    return variables.get(name)


def changed(coordinator: Coordinator) -> dict[str, str]:
    """What is not as it was made to be."""
    return {
        key.removeprefix(_PREFIX): value
        for key, value in coordinator.catalog.notes.items()
        if key.startswith(_PREFIX)
    }


def session_variables(
    coordinator: Coordinator, given: dict[str, str], of_user: dict[str, str]
) -> Variables:
    """Those of a new session; one too many is refused."""
    defaults = DEFAULTS | changed(coordinator) | of_user
    if len(coordinator.activity.sessions) >= int(defaults[MAX_CONNECTIONS]):
        raise SqlError(
            "sorry, too many clients already",
            hint=f"at most {defaults[MAX_CONNECTIONS]} sessions are allowed; close some, or"
            f" ALTER SYSTEM SET {MAX_CONNECTIONS}",
            sqlstate="53300",
        )
    if defaults["cluster"] not in coordinator.catalog.clusters:
        defaults["cluster"] = DEFAULTS["cluster"]  # It was dropped since.
    return Variables(given, defaults)


def check_memory(coordinator: Coordinator) -> None:
    """Whether the server may take up more for a client: results that wait to be read, above all."""
    most = changed(coordinator).get(MAX_MEMORY, DEFAULTS[MAX_MEMORY])
    held = pa.total_allocated_bytes()
    if held > byte_size(most):
        raise SqlError(
            f"the server keeps {held >> 20} MB for its clients, more than max_memory allows ({most})",
            hint="read or close the results that are under way, ask for less, or"
            f" ALTER SYSTEM SET {MAX_MEMORY}",
            sqlstate="53200",
        )


def _rows(coordinator: Coordinator):
    own = changed(coordinator)
    for name in SETTABLE:
        default = DEFAULTS[name]
        yield {"name": name, "setting": own.get(name, default), "default_setting": default}


RELATION = relation(
    "mz_internal",
    "mz_system_settings",
    "name text, setting text, default_setting text",
    _rows,
)
