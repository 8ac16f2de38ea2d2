"""The prompt: lines are edited with history, colours and completion until a statement is whole."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.lexers import PygmentsLexer
from psycopg.pq import TransactionStatus
from pygments.lexers.sql import PostgresLexer

from tidemark.shell.complete import Names, SqlCompleter
from tidemark.shell.script import PLAIN_WORDS, Reader, is_complete
from tidemark.shell.shell import Quit, Shell

_SECRET = re.compile(r"\b(create|alter)\s+secret\b|\bpassword\s*=?\s*((e|u&)?'|\$)", re.IGNORECASE)
_MARKS = {TransactionStatus.INTRANS: "*", TransactionStatus.INERROR: "!"}


class History(FileHistory):
    """Of statements, but not of those that tell a secret; nobody else may read the file."""

    def store_string(self, string: str) -> None:
        if not _SECRET.search(string):
            super().store_string(string)


def history_path() -> Path:
    given = os.environ.get("TIDEMARK_SQL_HISTORY")
    if given:
        return Path(given).expanduser()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "tidemark" / "sql_history"


def _history() -> History | None:
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        print(f"no history: {path}: {error.strerror}", file=sys.stderr)
        return None
    return History(str(path))


def run_prompt(shell: Shell, greeting: str) -> None:
    """Until `\\q` or Ctrl-D."""
    completer = SqlCompleter()
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=completer,
        complete_while_typing=False,
        lexer=PygmentsLexer(PostgresLexer),
        multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
        enable_open_in_editor=True,
    )
    print(greeting)
    while True:
        # A transaction that somebody has begun is theirs alone.
        if shell.names_changed and not _in_transaction(shell):
            completer.names = Names.of(shell.db)
            shell.names_changed = False
        prompt = prompt_text(shell)
        try:
            text = session.prompt(prompt, prompt_continuation=_continuation)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        reader = Reader()
        text = PLAIN_WORDS.get(text.strip().lower(), text)
        try:
            for item in reader.feed(text + "\n"):
                shell.attempt(item)
        except Quit:
            return


def _in_transaction(shell: Shell) -> bool:
    return shell.db.connection.info.transaction_status in _MARKS


def prompt_text(shell: Shell) -> str:
    """`tidemark=> `; `*` is in a transaction, `!` in one that has failed."""
    if shell.db.closed:
        return "(not connected)=> "
    info = shell.db.connection.info
    return f"{info.dbname}={_MARKS.get(info.transaction_status, '')}> "


def _continuation(width: int, line: int, wrapped: int) -> str:
    return " " if wrapped else "-> ".rjust(width)
