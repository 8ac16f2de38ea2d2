"""Session variables: the few that mean something here, and the many that clients like to set."""

from __future__ import annotations

from tidemark.errors import SqlError

DEFAULTS = {
    "application_name": "",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "cluster": "quickstart",
    "database": "tidemark",
    "datestyle": "ISO, MDY",
    "extra_float_digits": "3",
    "intervalstyle": "postgres",
    "search_path": "public",
    "server_version": "16.0",
    "server_version_num": "160000",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "timezone": "UTC",
    "transaction_isolation": "strict serializable",
}

READ_ONLY = ("server_version", "server_version_num", "standard_conforming_strings")

FIXED = {
    "client_encoding": ("utf8", "utf-8", "unicode"),
    "datestyle": ("iso", "iso, mdy", "iso, dmy", "iso, ymd"),
    "timezone": ("utc", "gmt", "etc/utc"),
    "cluster": ("quickstart",),
    "database": ("tidemark",),
    "intervalstyle": ("postgres",),
}
"""Settings whose other values would be silently wrong, so they are refused."""

ISOLATION = {
    "strict serializable": "strict serializable",
    "serializable": "serializable",
    "repeatable read": "serializable",
    "read committed": "serializable",
    "read uncommitted": "serializable",
}

REPORTED = {
    "application_name": "application_name",
    "client_encoding": "client_encoding",
    "datestyle": "DateStyle",
    "timezone": "TimeZone",
    "intervalstyle": "IntervalStyle",
}
"""Settings whose changes a client is told of, under the name it knows."""


class Variables:
    def __init__(self, given: dict[str, str]):
        self._values = dict(DEFAULTS)
        self._local: dict[str, str] = {}
        self._saved: dict[str, str] = {}
        self.changed: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in DEFAULTS:
                self.set(name, value)

    def get(self, name: str) -> str:
        value = self._local.get(name.lower(), self._values.get(name.lower()))
        if value is None:
            raise SqlError(f'unrecognized configuration parameter "{name}"', sqlstate="42704")
        return value

    def begin(self) -> None:
        """A transaction begins: from here on settings can be local to it, or rolled back."""
        self._saved = dict(self._values)

    def end(self, *, committed: bool) -> None:
        """The transaction is over: what was local to it is gone, and what it undid is undone."""
        before = {key: self.get(key) for key in REPORTED}
        self._local = {}
        if not committed:
            self._values = self._saved
        self.changed |= {
            REPORTED[key]: self.get(key) for key, value in before.items() if self.get(key) != value
        }

    def set(self, name: str, value: str | None, *, local: bool = False) -> None:
        key = name.lower()
        if key in READ_ONLY and value == self.get(key):
            return  # Clients like to make sure.
        self.get(key)
        if key in READ_ONLY:
            raise SqlError(f'parameter "{name}" cannot be changed', sqlstate="55P02")
        value = DEFAULTS[key] if value is None else value
        if key == "transaction_isolation":
            value = isolation(value)
        elif key in FIXED and value.lower() not in FIXED[key]:
            raise SqlError(
                f'invalid value for parameter "{name}": "{value}"',
                hint=f"only {FIXED[key][0]} is supported",
                sqlstate="22023",
            )
        elif key == "statement_timeout":
            timeout_seconds(value)
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


def isolation(name: str) -> str:
    folded = name.lower().strip()
    if folded not in ISOLATION:
        raise SqlError(
            f'invalid value for parameter "transaction_isolation": "{name}"',
            hint="available: " + ", ".join(ISOLATION),
            sqlstate="22023",
        )
    return ISOLATION[folded]


def timeout_seconds(value: str) -> float:
    """A duration as PostgreSQL takes it: `500` and `500ms` are milliseconds, `2s`, `1min`."""
    text = value.strip().lower()
    units = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "": 0.001}
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(digits) :].strip()
    if not digits.isdigit() or unit not in units:
        raise SqlError(
            f'invalid value for parameter "statement_timeout": "{value}"', sqlstate="22023"
        )
    return int(digits) * units[unit]
