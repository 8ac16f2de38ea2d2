"""The settings a client asks for at startup, by name or as server command-line options.

application_name=psql, options="-c cluster=c2 --search-path=a\\ b"
->  {"application_name": "psql", "cluster": "c2", "search_path": "a b"}
"""

from __future__ import annotations

import re

from tidemark.errors import SqlError

_NOT_SETTINGS = ("user", "database", "replication", "options")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_WORD = re.compile(r"(?:\\.|[^\s\\])+", re.DOTALL)


def demanded(parameters: dict[str, str]) -> tuple[str, ...]:
    """The settings that there must be. Who names one in `options` means one of this server's; what
    drivers send by themselves may be meant for another."""
    return tuple(_command_line(parameters.get("options", "")))


def session_options(parameters: dict[str, str]) -> dict[str, str]:
    settings = _command_line(parameters.get("options", ""))
    for name, value in parameters.items():
        if name not in _NOT_SETTINGS and not name.startswith("_pq_."):
            settings[name] = value
    return settings


def _command_line(options: str) -> dict[str, str]:
    words = iter(_ESCAPED.sub(r"\1", word) for word in _WORD.findall(options))
    settings = {}
    for word in words:
        if word == "-c":
            assignment = next(words, "")
        elif word.startswith(("-c", "--")):
            assignment = word[2:]
        else:
            assignment = ""
        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise SqlError(
                f"invalid command-line argument for server process: {word}",
                hint="Only settings are taken: -c name=value, or --name=value.",
            )
        settings[name.replace("-", "_")] = value
    return settings
