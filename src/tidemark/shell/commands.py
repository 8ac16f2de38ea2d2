r"""Commands that begin with a backslash: one function each, in one table that `\?` prints."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from tidemark.client.problems import as_ours
from tidemark.errors import InvalidUsage, SqlError
from tidemark.shell import describe
from tidemark.shell.script import Command
from tidemark.shell.shell import READ_BYTES, Quit, Shell

WATCH_SECONDS = 2.0

_COPY = re.compile(
    r"""(?P<what>\(.*\)|(?:"[^"]*"|[^\s("])+\s*(?:\((?:"[^"]*"|[^)"])*\))?)\s+(?P<way>from|to)\s+
        (?P<file>'(?:[^']|'')*'|\S+)(?P<options>.*)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


class Known(msgspec.Struct, frozen=True):
    usage: str
    help: str
    run: Callable[[Shell, Command], None]


def run_command(shell: Shell, command: Command) -> None:
    name = command.name
    known = COMMANDS.get(name) or COMMANDS.get(name.rstrip("S+"))
    if known is None:
        raise InvalidUsage(rf"there is no \{name}", hint=r"\? lists what there is")
    known.run(shell, command)


# ---- what there is ------------------------------------------------------------------------------


def _describe(shell: Shell, command: Command) -> None:
    pattern = command.rest.strip() or None
    if pattern is None or "*" in pattern or "?" in pattern:
        _show_list(shell, (), pattern)
        return
    part = describe.relation(shell.db, pattern, verbose="+" in command.name)
    if part.result is None:
        shell.output.line(part.title)
    else:
        shell.output.result(part.result, part.title)
    for line in part.below:
        shell.output.line(line)
    if part.below:
        shell.output.line()


def _list(shell: Shell, command: Command) -> None:
    kinds = describe.KINDS[command.name.rstrip("S+")[1]]
    _show_list(shell, kinds, command.rest.strip() or None)


def _show_list(shell: Shell, kinds: tuple[str, ...], pattern: str | None) -> None:
    found = describe.listing(shell.db, kinds, pattern)
    if len(found):
        shell.output.result(found)
    else:
        shell.output.line("There is nothing of this kind." if not pattern else "Nothing matches.")


def _schemas(shell: Shell, _: Command) -> None:
    shell.output.result(describe.schemas(shell.db))


def _databases(shell: Shell, _: Command) -> None:
    shell.output.result(describe.databases(shell.db))


def _roles(shell: Shell, _: Command) -> None:
    shell.output.result(describe.roles(shell.db))


# ---- the statement ------------------------------------------------------------------------------


def _statement(shell: Shell, command: Command) -> str:
    sql = command.pending or shell.last
    if not sql:
        raise InvalidUsage(rf"\{command.name}: there is no statement yet")
    return sql


def _go(shell: Shell, command: Command) -> None:
    shell.run_statement(_statement(shell, command))


def _go_expanded(shell: Shell, command: Command) -> None:
    before, shell.output.expanded = shell.output.expanded, True
    try:
        _go(shell, command)
    finally:
        shell.output.expanded = before


def _watch(shell: Shell, command: Command) -> None:
    try:
        seconds = float(command.rest) if command.rest else WATCH_SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidUsage(rf"\watch {command.rest}: not a number of seconds")
    shell.watch(_statement(shell, command), seconds)


def _edit(shell: Shell, command: Command) -> None:
    """In $EDITOR; what is saved is run, a statement after the other."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    if command.rest:
        path = Path(command.words[0]).expanduser()
        _call_editor(editor, path)
        shell.run_file(str(path))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "statement.sql"
        text = command.pending or shell.last
        path.write_text(f"{text};\n" if text else "")
        _call_editor(editor, path)
        shell.run_lines(path.read_text().splitlines(keepends=True))


def _call_editor(editor: str, path: Path) -> None:
    try:
        subprocess.run([*editor.split(), str(path)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InvalidUsage(f"{editor} failed: {error}", hint="set EDITOR") from error


def _include(shell: Shell, command: Command) -> None:
    if not command.words:
        raise InvalidUsage(r"\i takes the name of a file")
    shell.run_file(command.words[0])


# ---- rows of files ------------------------------------------------------------------------------


def _copy(shell: Shell, command: Command) -> None:
    """The server reads and writes no files, so the client does."""
    said = _COPY.fullmatch(command.rest)
    if said is None:
        raise SqlError(r"\copy: not understood", hint=r"\copy t from 'file.csv' csv header")
    name = said["file"]
    path = Path(name[1:-1].replace("''", "'") if name.startswith("'") else name).expanduser()
    way = said["way"].upper()
    stream = "STDIN" if way == "FROM" else "STDOUT"
    sql = f"COPY {said['what']} {way} {stream}{said['options']}"
    if name.upper() == stream:
        shell.run_statement(sql)
        return
    try:
        with path.open("rb" if way == "FROM" else "wb") as file:
            if way == "FROM":
                shell.copy_in(sql, iter(lambda: file.read(READ_BYTES), b""))
            else:
                shell.copy_out(sql, file.write)  # type: ignore[arg-type]
    except OSError as error:
        raise InvalidUsage(f"{path}: {error.strerror}") from error


def _output(shell: Shell, command: Command) -> None:
    shell.output.redirect(command.words[0] if command.words else None)


# ---- the session --------------------------------------------------------------------------------


def _connect(shell: Shell, command: Command) -> None:
    """To another database, as another user: what is left out stays."""
    words = [None if word == "-" else word for word in command.words]
    database, user = [*words, None, None][:2]
    shell.db.reconnect(database=database, user=user)
    shell.names_changed = True
    _conninfo(shell, command)


def _conninfo(shell: Shell, _: Command) -> None:
    with as_ours():
        info = shell.db.connection.info
        where = f'database "{info.dbname}" as user "{info.user}" on {info.host}:{info.port}'
        shell.output.line(f"Connected to {where}{', with TLS' if info.pgconn.ssl_in_use else ''}.")


def _expanded(shell: Shell, command: Command) -> None:
    shell.output.expanded = _switch(command, shell.output.expanded)
    shell.output.line(f"Expanded display is {_on_off(shell.output.expanded)}.")


def _timing(shell: Shell, command: Command) -> None:
    shell.timing = _switch(command, shell.timing)
    shell.output.line(f"Timing is {_on_off(shell.timing)}.")


def _null(shell: Shell, command: Command) -> None:
    match command.words:
        case ["null", *text]:
            shell.output.null = text[0] if text else ""
        case _:
            raise InvalidUsage(r"\pset knows only null", hint=r"\pset null ∅")


def _switch(command: Command, now: bool) -> bool:
    match command.rest.lower():
        case "":
            return not now
        case "on" | "off" as word:
            return word == "on"
    raise InvalidUsage(rf"\{command.name} takes on or off, not {command.rest!r}")


def _on_off(value: bool) -> str:
    return "on" if value else "off"


def _echo(shell: Shell, command: Command) -> None:
    shell.output.line(" ".join(command.words))


def _help(shell: Shell, _: Command) -> None:
    width = max(len(known.usage) for known in COMMANDS.values())
    seen: set[str] = set()
    for known in COMMANDS.values():
        if known.usage not in seen:
            shell.output.line(f"  {known.usage.ljust(width)}  {known.help}")
            seen.add(known.usage)
    shell.output.line("\n  SUBSCRIBE t; shows t as a table that changes. Ctrl-C ends it.")


def _quit(_: Shell, __: Command) -> None:
    raise Quit


COMMANDS: dict[str, Known] = {
    "d": Known(
        r"\d [NAME]", "what there is; or a relation's columns, indexes, definition", _describe
    ),
    "dt": Known(r"\dt [PATTERN]", "tables", _list),
    "dv": Known(r"\dv [PATTERN]", "views and materialized views", _list),
    "dm": Known(r"\dm [PATTERN]", "materialized views", _list),
    "di": Known(r"\di [PATTERN]", "indexes", _list),
    "ds": Known(r"\ds [PATTERN]", "sources and what they bring", _list),
    "dk": Known(r"\dk [PATTERN]", "sinks", _list),
    "dn": Known(r"\dn", "schemas", _schemas),
    "l": Known(r"\l", "databases", _databases),
    "du": Known(r"\du", "roles", _roles),
    "g": Known(r"\g", "run the statement (again)", _go),
    "gx": Known(r"\gx", "the same, a line for each column", _go_expanded),
    "watch": Known(r"\watch [SECONDS]", "run it again and again, until Ctrl-C", _watch),
    "e": Known(r"\e [FILE]", "edit the statement, or a file, and run it", _edit),
    "i": Known(r"\i FILE", "run a script", _include),
    "copy": Known(r"\copy … from|to FILE …", "COPY with a file of this machine", _copy),
    "o": Known(r"\o [FILE]", "send results to a file; without one, to the screen again", _output),
    "x": Known(r"\x [on|off]", "a line for each column", _expanded),
    "timing": Known(r"\timing [on|off]", "how long statements take", _timing),
    "pset": Known(r"\pset null TEXT", "how a null is shown", _null),
    "c": Known(r"\c [DATABASE [USER]]", "connect anew; - is: as it is", _connect),
    "conninfo": Known(r"\conninfo", "where this is", _conninfo),
    "echo": Known(r"\echo TEXT", "print it", _echo),
    "?": Known(r"\?", "this list", _help),
    "q": Known(r"\q", "leave (so does Ctrl-D)", _quit),
}
