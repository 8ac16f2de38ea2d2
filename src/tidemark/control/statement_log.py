"""The statement log on disk: what has run, also before control was started.

    log/statements.jsonl      one line a statement, as it has ended
    log/statements.1.jsonl    those before, when the first was full

Lines are written by a thread of their own, some at a time: no statement waits for the disk, and a
crash loses those of the last second. A line that cannot be read is left out. Only the owner of the
files may read them; what is in them was made fit to be kept before it came here (`activity.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import msgspec
import structlog

from tidemark.control.activity import KEPT, Activity, Outcome, Ran, Who
from tidemark.control.variables import Variables

log = structlog.get_logger("statement-log")

WRITE_EVERY = 1.0
MOST_WAITING = 10_000
"""Lines that wait to be written; if there are more, the oldest are lost."""

MOST_LINES = 10_000
"""Of a file; then it becomes the one before."""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    id: int
    session: int
    user: str
    connected_ms: int
    kind: str
    sql: str
    application: str
    cluster: str
    isolation: str
    began_ms: int
    finished_ms: int
    outcome: Outcome
    rows: int = 0
    error_code: str | None = None
    error: str | None = None

    @property
    def ran(self) -> Ran:
        who = Who(self.session, self.user, self.connected_ms, Variables({}))
        return Ran(
            self.id,
            who,
            self.kind,
            self.sql,
            True,
            self.application,
            self.cluster,
            self.isolation,
            self.began_ms,
            0.0,
            self.rows,
            self.finished_ms,
            self.outcome,
            self.error_code,
            self.error,
        )


def line_of(ran: Ran) -> Line:
    assert ran.finished_ms is not None
    assert ran.outcome is not None
    return Line(
        ran.id,
        ran.who.id,
        ran.who.user,
        ran.who.connected_ms,
        ran.kind,
        ran.sql,
        ran.application,
        ran.cluster,
        ran.isolation,
        ran.began_ms,
        ran.finished_ms,
        ran.outcome,
        ran.rows,
        ran.error_code,
        ran.error,
    )


_LINE = msgspec.json.Decoder(Line)


class StatementLog:
    def __init__(self, folder: Path, *, most_lines: int = MOST_LINES):
        self._path = folder / "statements.jsonl"
        self._before = folder / "statements.1.jsonl"
        self._most_lines = most_lines
        self._lines = 0
        self._waiting: deque[Ran] = deque(maxlen=MOST_WAITING)
        self._task: asyncio.Task | None = None

    def read(self, most: int = KEPT) -> list[Ran]:
        """The newest, the oldest of them first."""
        found: list[Ran] = []
        for path in (self._before, self._path):
            lines = path.read_bytes().splitlines() if path.exists() else []
            self._lines = len(lines)
            found += self._decoded(lines[-most:])
        return found[-most:]

    def of(self, activity: Activity) -> Self:
        """The log of what is asked of a server, from now on and before."""
        activity.remember(self.read())
        activity.on_end = self._waiting.append
        return self

    def start(self) -> None:
        self._task = asyncio.create_task(self._write_loop(), name="statement-log")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._written()

    async def _write_loop(self) -> None:
        while True:
            await asyncio.sleep(WRITE_EVERY)
            await self._written()

    async def _written(self) -> None:
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not taken:
            return
        try:
            await asyncio.to_thread(self.write, taken)
        except OSError as error:
            log.warning("statements were not logged", count=len(taken), error=str(error))

    def write(self, rans: Iterable[Ran]) -> None:
        data = [msgspec.json.encode(line_of(ran)) for ran in rans]
        if self._lines + len(data) > self._most_lines and self._path.exists():
            self._path.replace(self._before)
            self._lines = 0
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
            # What a crash has left of a line ends here.
            file.write(b"".join(b"\n" + each for each in data))
        self._lines += len(data)

    def _decoded(self, lines: list[bytes]) -> list[Ran]:
        found = []
        for line in lines:
            try:
                found.append(_LINE.decode(line).ran)
            except msgspec.MsgspecError:
                continue  # Half of one, or an empty one.
        return found
