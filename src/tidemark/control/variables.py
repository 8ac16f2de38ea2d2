"""Session variables: the few that mean something here, and the many that clients like to set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from tidemark.control.hierarchy import path_of
from tidemark.control.pgwire.server import Limits
from tidemark.errors import InvalidUsage, SqlError
from tidemark.units import byte_size

MAX_CONNECTIONS = "max_connections"
MAX_MEMORY = "max_memory"
OF_THE_SERVER = (MAX_CONNECTIONS, MAX_MEMORY)
"""Which no session has for itself."""

DEFAULTS = {
    "application_name": "",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "cluster": "quickstart",
    "database": "tidemark",
    "datestyle": "ISO, MDY",
    "dialect": "postgres",
    "extra_float_digits": "3",
    "idle_in_transaction_session_timeout": "2min",
    "idle_session_timeout": "0",
    "intervalstyle": "postgres",
    "log_min_duration_statement": "10s",
    MAX_CONNECTIONS: str(Limits().connections),
    "max_copy_from_size": "1GB",
    MAX_MEMORY: "4GB",
    "max_result_size": "1GB",
    "password_encryption": "scram-sha-256",
    "real_time_recency": "off",
    "real_time_recency_timeout": "10s",
    "role": "none",
    "search_path": "public",
    "server_version": "16.0",
    "server_version_num": "160000",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "timezone": "UTC",
    "transaction_isolation": "strict serializable",
}

READ_ONLY = (
    "password_encryption",
    "server_version",
    "server_version_num",
    "standard_conforming_strings",
    *OF_THE_SERVER,
)

OF_POSTGRES = {
    "block_size": "8192",
    "bytea_output": "hex",
    "default_table_access_method": "heap",
    "default_tablespace": "",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "off",
    "in_hot_standby": "off",
    "integer_datetimes": "on",
    "is_superuser": "on",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lock_timeout": "0",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "server_encoding": "UTF8",
    "transaction_read_only": "off",
}
"""What clients ask of a PostgreSQL server besides, and nobody can change."""

FIXED = {
    "client_encoding": {"utf8": "UTF8", "unicode": "UTF8"},
    "datestyle": {
        "iso": "ISO, MDY",
        **{f"iso, {order}": f"ISO, {order.upper()}" for order in ("mdy", "dmy", "ymd")},
    },
    "timezone": {"utc": "UTC", "gmt": "GMT", "etc/utc": "Etc/UTC"},
    "intervalstyle": {"postgres": "postgres"},
}
"""Settings whose other values would be silently wrong, so they are refused; and how they are shown."""

DIALECTS = ("postgres", "spark")
"""What queries may be written in."""

TIMEOUTS = (
    "statement_timeout",
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
    "real_time_recency_timeout",
)

SWITCHES = {
    **dict.fromkeys(("on", "true", "yes", "1"), "on"),
    **dict.fromkeys(("off", "false", "no", "0"), "off"),
}

ISOLATION = {
    "strict serializable": "strict serializable",
    "serializable": "serializable",
    "repeatable read": "serializable",
    "read committed": "serializable",
    "read uncommitted": "serializable",
}

BOUNDED = "bounded staleness "
"""As serializable, but not older than the duration that follows."""

MAX_NAME_BYTES = 63
"""What is longer is cut off, as PostgreSQL does: it is told to clients, and they take so much only."""

REPORTED = {
    "application_name": "application_name",
    "client_encoding": "client_encoding",
    "datestyle": "DateStyle",
    "timezone": "TimeZone",
    "intervalstyle": "IntervalStyle",
}
"""Settings whose changes a client is told of, under the name it knows."""


Mark = tuple[dict[str, str], dict[str, str]]
"""Settings that are local to a transaction, and the others."""


MATERIALIZE_ONLY = (
    "auto_route_catalog_queries",
    "current_object_missing_warnings",
    "welcome_message",
)
"""What clients made for Materialize ask for, and what is so here anyway."""


def check_known(names: Iterable[str]) -> None:
    """Names of settings; one with a dot is an extension's, and anything goes there."""
    for name in names:
        if name.lower() not in (*DEFAULTS, *MATERIALIZE_ONLY) and "." not in name:
            raise unrecognized(name)


def unrecognized(name: str) -> SqlError:
    return SqlError(f'unrecognized configuration parameter "{name}"', sqlstate="42704")


class Variables:
    def __init__(self, given: dict[str, str], defaults: dict[str, str] = DEFAULTS):
        """`defaults` are those of the server and of the user, in place of ours."""
        self.defaults = defaults
        self._values = dict(defaults)
        self._local: dict[str, str] = {}
        self._saved: dict[str, str] = {}
        self.changed: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in DEFAULTS:
                self.set(name, value)

    def settle(self) -> None:
        """What the session has begun with is what its settings go back to."""
        self.defaults = dict(self._values)

    def get(self, name: str) -> str:
        value = self._local.get(name.lower(), self._values.get(name.lower()))
        if value is None:
            raise unrecognized(name)
        return value

    def begin(self) -> None:
        """A transaction begins: from here on settings can be local to it, or rolled back."""
        self._saved = dict(self._values)

    def end(self, *, committed: bool) -> None:
        """The transaction is over: what was local to it is gone, and what it undid is undone."""
        self.go_back(({}, self._values if committed else self._saved))

    def mark(self) -> Mark:
        """The settings now, to `go_back` to."""
        return dict(self._local), dict(self._values)

    def go_back(self, mark: Mark) -> None:
        before = {key: self.get(key) for key in REPORTED}
        self._local, self._values = dict(mark[0]), dict(mark[1])
        self.changed |= {
            REPORTED[key]: self.get(key) for key, value in before.items() if self.get(key) != value
        }

    def set(self, name: str, value: str | None, *, local: bool = False) -> None:
        key = name.lower()
        if key in OF_POSTGRES:
            if value is None or OF_POSTGRES[key] in (value, SWITCHES.get(value.lower())):
                return  # Clients like to make sure.
            raise SqlError(f'parameter "{name}" cannot be changed', sqlstate="55P02")
        if key in READ_ONLY and value == self.get(key):
            return  # Clients like to make sure.
        self.get(key)
        if key in READ_ONLY:
            raise SqlError(f'parameter "{name}" cannot be changed', sqlstate="55P02")
        value = self.defaults[key] if value is None else value
        if key == "application_name":
            value = value.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
        if key == "client_encoding":
            value = "".join(filter(str.isalnum, value))  # as PostgreSQL compares: 'utf-8', UTF8
        if key == "transaction_isolation":
            value = isolation(value)
        elif key in FIXED:
            value = fixed(name, value)
        elif key == "dialect":
            value = dialect(value)
        elif key == "search_path":
            path_of(value)
        elif key == "real_time_recency":
            value = switch(name, value)
        elif key in TIMEOUTS or (key == "log_min_duration_statement" and value != "-1"):
            value = shown_duration(timeout_seconds(value, name))
        elif key in ("max_copy_from_size", "max_result_size"):
            check_size(name, value)
        if local:
            self._local[key] = value
        else:
            self._local.pop(key, None)
            self._values[key] = value
        if key in REPORTED:
            self.changed[REPORTED[key]] = value

    def reset(self, name: str | None) -> None:
        for key in [name] if name else [k for k in DEFAULTS if k not in READ_ONLY]:
            self.set(key, None)

    def all(self) -> list[tuple[str, str]]:
        return sorted({**self._values, **self._local}.items())


def of_postgres(*, is_superuser: bool, read_only: bool) -> dict[str, str]:
    """`OF_POSTGRES`, as a session has it now."""
    return OF_POSTGRES | {
        "is_superuser": "on" if is_superuser else "off",
        "transaction_read_only": "on" if read_only else "off",
    }


def without_impossible(
    given: dict[str, str], demanded: Iterable[str], tell: Callable[[str], None]
) -> dict[str, str]:
    """What a client sends when it connects, but for what is so on its own machine and cannot be so
    here: drivers send that unasked. What is `demanded` is for `Variables` to refuse."""
    asked = {name.lower() for name in demanded}
    left: dict[str, str] = {}
    for name, value in given.items():
        key = name.lower()
        if key not in _OF_MACHINES or key in asked or value.lower() in FIXED[key]:
            left[name] = value
        else:
            tell(f'parameter "{name}" cannot be "{value}" here: it is {DEFAULTS[key]}')
    return left


_OF_MACHINES = ("datestyle", "intervalstyle", "timezone")


def switch(name: str, value: str) -> str:
    if value.lower() not in SWITCHES:
        raise SqlError(f'parameter "{name}" requires a Boolean value', sqlstate="22023")
    return SWITCHES[value.lower()]


def dialect(name: str) -> str:
    if name.lower() not in DIALECTS:
        raise SqlError(
            f'invalid value for parameter "dialect": "{name}"',
            hint=f"available: {', '.join(DIALECTS)}",
            sqlstate="22023",
        )
    return name.lower()


def isolation(name: str) -> str:
    folded = " ".join(name.lower().split())
    if folded in ISOLATION:
        return ISOLATION[folded]
    try:
        if folded.startswith(BOUNDED) and behind_ms(folded):
            return folded
    except SqlError:
        pass  # It has no duration: as wrong as anything else.
    raise SqlError(
        f'invalid value for parameter "transaction_isolation": "{name}"',
        hint=f"available: {', '.join(ISOLATION)}, {BOUNDED}5s",
        sqlstate="22023",
    )


def behind_ms(isolation: str) -> int | None:
    """How far behind the oracle a session may read: not at all, some milliseconds, any (None)."""
    if isolation.startswith(BOUNDED):
        return round(1000 * timeout_seconds(isolation.removeprefix(BOUNDED)))
    return 0 if isolation == "strict serializable" else None


def fixed(name: str, value: str) -> str:
    known = FIXED[name.lower()]
    if value.lower().strip("'") not in known:
        raise SqlError(
            f'invalid value for parameter "{name}": "{value}"',
            hint=f"only {next(iter(known))} is supported",
            sqlstate="22023",
        )
    return known[value.lower().strip("'")]


def check_size(name: str, value: str) -> None:
    try:
        byte_size(value)
    except InvalidUsage as error:
        raise SqlError(
            f'invalid value for parameter "{name}": "{value}"', hint=error.hint, sqlstate="22023"
        ) from None


@lru_cache
def timeout_seconds(value: str, name: str = "statement_timeout") -> float:
    """A duration as PostgreSQL takes it: `500` and `500ms` are milliseconds, `2s`, `1min`."""
    text = value.strip().lower()
    units = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "": 0.001}
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(digits) :].strip()
    is_number = digits.replace(".", "", 1).isdecimal() and len(digits) <= 18
    if not is_number or unit not in units:
        raise SqlError(
            f'invalid value for parameter "{name}": "{value}"',
            hint="a number of milliseconds, or 500ms, 2s, 1min, 1h",
            sqlstate="22023",
        )
    return float(digits) * units[unit]


def shown_duration(seconds: float) -> str:
    """As PostgreSQL shows it: in the largest unit of which it is a whole number."""
    ms = round(seconds * 1000)
    units = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}
    unit = next(unit for unit, each in units.items() if ms % each == 0)
    return f"{ms // units[unit]}{unit}" if ms else "0"
