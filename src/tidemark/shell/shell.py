r"""One session at work: statements are run and shown, commands are carried out.

A statement's first words say what it needs: COPY takes or gives bytes, SUBSCRIBE goes on until
Ctrl-C, everything else has a result.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from rich.console import Console

from tidemark.client import Batch, Database, Subscription
from tidemark.client.live import Contents, Screen
from tidemark.client.names import uncommented
from tidemark.client.problems import as_ours
from tidemark.client.subscription import DIFF, with_progress
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import InvalidUsage, TidemarkError
from tidemark.shell.formats import Format
from tidemark.shell.output import Output, print_error
from tidemark.shell.script import Command, Reader, Statement

_COPY = re.compile(r"copy\b", re.IGNORECASE)
_FROM_STDIN = re.compile(r"\bfrom\s+stdin\b", re.IGNORECASE)
_SUBSCRIBE = re.compile(r"subscribe\b", re.IGNORECASE)
_CHANGES_NAMES = ("CREATE", "DROP", "ALTER", "SET", "RESET", "DISCARD", "COMMIT", "ROLLBACK")
"""The search path is a setting; what a transaction set may be gone with it."""

LIVE_ROWS = 1_000
READ_BYTES = 1 << 20


class Quit(Exception):
    r"""`\q`."""


class Failed(Exception):
    """A statement that was refused, and what it said."""

    def __init__(self, error: TidemarkError, sql: str = ""):
        super().__init__(error.message)
        self.error = error
        self.sql = sql

    def show(self) -> None:
        print_error(self.error, self.sql)


class Shell:
    """`lines` is where COPY FROM STDIN finds its rows: what follows in the script; outside of one,
    at a prompt or with -c, it is stdin."""

    def __init__(self, db: Database, output: Output, *, interactive: bool = False):
        self.db = db
        self.output = output
        self.interactive = interactive
        self.timing = False
        self.last = ""
        self.names_changed = True
        self._lines: Iterator[str] | None = None

    # ---- scripts -----------------------------------------------------------------------------

    def run_lines(self, lines: Iterable[str]) -> None:
        """A script; its first error ends it: `Failed`."""
        rest = iter(lines)
        before, self._lines = self._lines, rest
        reader = Reader()
        try:
            for line in rest:
                for item in reader.feed(line if line.endswith("\n") else line + "\n"):
                    self.run(item)
            for item in reader.finish():
                self.run(item)
        finally:
            self._lines = before

    def run_file(self, path: str) -> None:
        try:
            lines = Path(path).expanduser().read_text().splitlines(keepends=True)
        except OSError as error:
            raise Failed(InvalidUsage(f"{path}: {error.strerror}")) from error
        except UnicodeDecodeError as error:
            raise Failed(InvalidUsage(f"{path}: not UTF-8")) from error
        self.run_lines(lines)

    def run(self, item: Statement | Command) -> None:
        if isinstance(item, Statement):
            self.run_statement(item.sql)
            return
        from tidemark.shell.commands import run_command

        try:
            run_command(self, item)
        except TidemarkError as error:
            raise Failed(error) from error

    def attempt(self, item: Statement | Command) -> None:
        """The same at a prompt: an error is shown, and the session goes on."""
        try:
            self.run(item)
        except Failed as failed:
            failed.show()
            self._reconnect_if_lost()
        except KeyboardInterrupt:
            print("cancelled", file=sys.stderr)

    def _reconnect_if_lost(self) -> None:
        if not self.db.closed:
            return
        try:
            self.db.reconnect()
        except TidemarkError as error:
            print_error(error)
        else:
            print("connected again; the session's settings are as at the start", file=sys.stderr)
            self.names_changed = True

    # ---- statements --------------------------------------------------------------------------

    def run_statement(self, sql: str) -> None:
        self.last = sql
        plain = uncommented(sql)
        began = SYSTEM_CLOCK.monotonic()
        try:
            if self.db.closed:
                self.db.reconnect()
            if _COPY.match(plain):
                self._copy(sql)
            elif _SUBSCRIBE.match(plain):
                self.subscribe(sql)
            else:
                result = self.db.sql(sql)
                self.output.result(result)
                self.names_changed |= result.status.startswith(_CHANGES_NAMES)
        except TidemarkError as error:
            raise Failed(error, sql) from error
        if self.timing:
            self.output.line(f"Time: {1000 * (SYSTEM_CLOCK.monotonic() - began):.3f} ms")

    def _copy(self, sql: str) -> None:
        if _FROM_STDIN.search(sql):
            if self._lines is None and sys.stdin.isatty():
                said = r"Enter the rows, a line each; \. on a line of its own ends them."
                print(said, file=sys.stderr)
            self.copy_in(sql, self._copy_lines())
        else:
            self.copy_out(sql, self.output.bytes)

    def _copy_lines(self) -> Iterator[bytes]:
        # Bytes, as stdin need not be text: CSV may have a \r\n in it, and binary anything.
        lines = (
            iter(sys.stdin.buffer.readline, b"")
            if self._lines is None
            else (line.encode() for line in self._lines)
        )
        for line in lines:
            if line.rstrip(b"\r\n") == b"\\.":
                return
            yield line

    def copy_in(self, sql: str, blocks: Iterable[bytes]) -> None:
        with as_ours(), self.db.connection.cursor() as cursor:
            with cursor.copy(sql.encode()) as copy:
                for block in blocks:
                    copy.write(block)
            self._status(f"COPY {cursor.rowcount}")

    def copy_out(self, sql: str, write: Callable[[bytes], None]) -> None:
        with as_ours(), self.db.connection.cursor() as cursor:
            with cursor.copy(sql.encode()) as copy:
                for block in copy:
                    write(bytes(block))
            if cursor.rowcount >= 0 and write != self.output.bytes:
                self._status(f"COPY {cursor.rowcount}")

    def _status(self, text: str) -> None:
        if self.output.format is Format.ALIGNED and not self.output.tuples_only:
            self.output.line(text)

    # ---- what changes ------------------------------------------------------------------------

    def subscribe(self, sql: str) -> None:
        """A table that changes if there is a screen, else rows as they come; until Ctrl-C."""
        shown = self.interactive and self.output.format is Format.ALIGNED
        with self.db.subscription(with_progress(sql), progress=shown) as subscription:
            try:
                if shown:
                    self._show_live(subscription)
                else:
                    self._print_batches(subscription)
            except KeyboardInterrupt:
                if not self.interactive:
                    raise

    def _show_live(self, subscription: Subscription) -> None:
        first = next(subscription, None)
        if first is None:
            return
        if first.changes.columns[1].name != DIFF:
            self._print_batches(itertools.chain([first], subscription))
            return
        contents = Contents()
        contents.apply(first)
        with Screen(Console(), LIVE_ROWS, note="Ctrl-C ends it") as paint:
            paint(contents)
            for batch in subscription:
                contents.apply(batch)
                paint(contents)

    def _print_batches(self, batches: Iterable[Batch]) -> None:
        begun = False
        for batch in batches:
            if not batch.progressed:
                # One table: of CSV, the head stands once.
                self.output.rows(batch.changes.columns, batch.changes.texts(), more=begun)
                begun = True

    def watch(self, sql: str, seconds: float) -> None:
        """Run it again and again, until Ctrl-C."""
        try:
            while True:
                now = datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000)
                self.output.line(f"{now.isoformat(' ', 'seconds')} (every {seconds:g}s)\n")
                self.run_statement(sql)
                SYSTEM_CLOCK.sleep(seconds)
        except KeyboardInterrupt:
            print()
