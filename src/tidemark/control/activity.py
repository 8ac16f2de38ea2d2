"""Who is connected, what runs, and what has run lately: statements of every session, however it
came in.

For each statement there is one `Ran`, from its beginning to the end of its last row. The newest are
kept, a fixed number of them; all are counted. What a statement says may be secret: parameters are
never kept, secrets and passwords are left out, and neither is kept what an error says of those.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import lru_cache, partial
from typing import Literal

import msgspec
import pyarrow as pa
import structlog

from tidemark.clock import Clock
from tidemark.control import statements as s
from tidemark.control.pgwire import Copy, CopyIn, Done, Result, Rows
from tidemark.control.variables import Variables, timeout_seconds
from tidemark.errors import Cancelled, TidemarkError

log = structlog.get_logger("activity")

KEPT = 1_000
MOST_TEXT = 2_000
"""Characters that are kept of a statement."""

CONSOLE = "tidemark_console"
"""The application that looks at the catalog every few seconds: if that were kept, what people have
asked would be gone within minutes."""

REFUSED = "refused"
"""The kind of statements that could not even be prepared."""

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

_AS, _OPTIONS, _PASSWORD = (re.compile(x, re.I) for x in (r"\bas\b", r"\(", r"\bpassword\b"))
"""Where what may be kept of a statement ends."""

SLOW = "log_min_duration_statement"
SELDOM_SLOW = 0.001
"""Seconds: below that nobody is asked what is slow."""

Outcome = Literal["success", "error", "canceled"]


class Who(msgspec.Struct, frozen=True, eq=False):
    """A session: its number, user and settings."""

    id: int
    user: str
    connected_ms: int
    variables: Variables


class Ran(msgspec.Struct, eq=False):
    """A statement; `finished_ms` and `outcome` are None while it runs. If it is `discreet`, an error
    might say what nobody should read."""

    id: int
    who: Who
    kind: str
    sql: str
    discreet: bool
    application: str
    cluster: str
    isolation: str
    began_ms: int
    began: float
    rows: int = 0
    finished_ms: int | None = None
    outcome: Outcome | None = None
    error_code: str | None = None
    error: str | None = None
    of_catalog: bool = False
    """It read nothing but system relations."""

    @property
    def is_routine(self) -> bool:
        return self.of_catalog and self.application == CONSOLE and self.outcome == "success"


class Durations:
    """How many took how long: `counts` by the bounds that they stayed below, the last by none."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class Activity:
    """What is asked of one server. If `is_logged`, each statement is a line of the log when it has
    ended; if not, it is one if it took longer than its session wants to leave unsaid. `on_end` is
    told of each, too."""

    def __init__(self, clock: Clock, *, kept: int = KEPT):
        self.is_logged = False
        self.on_end: Callable[[Ran], None] = lambda _: None
        self._clock = clock
        self._last = 0
        self._ended: deque[Ran] = deque(maxlen=kept)
        self.sessions: dict[int, Who] = {}
        self.running: dict[int, Ran] = {}
        self.durations: dict[tuple[str, Outcome], Durations] = {}

    @property
    def recent(self) -> Iterable[Ran]:
        """What has run lately, and what runs."""
        return (*self._ended, *self.running.values())

    def remember(self, earlier: list[Ran]) -> None:
        """What ran before this process did; the numbers go on from there."""
        self._ended.extend(earlier)
        self._last = max([self._last, *(max(ran.id, ran.who.id) for ran in earlier)])

    def connected(self, user: str, variables: Variables) -> Who:
        who = Who(self._next(), user, self._clock.now_ms(), variables)
        self.sessions[who.id] = who
        return who

    def left(self, who: Who) -> None:
        self.sessions.pop(who.id, None)

    def refused(self) -> None:
        """A statement that could not be prepared: it is counted, but what it says is not kept, as
        nobody knows what it is."""
        self._durations(REFUSED, "error").add(0.0)

    def began(self, who: Who, statement: s.Statement, sql: str, *, has_params: bool) -> Ran:
        shown = _shown(statement, sql)
        ran = Ran(
            self._next(),
            who,
            kind_of(statement),
            shown[:MOST_TEXT],
            has_params or shown != sql,
            who.variables.get("application_name"),
            who.variables.get("cluster"),
            who.variables.get("transaction_isolation"),
            self._clock.now_ms(),
            self._clock.monotonic(),
        )
        self.running[ran.id] = ran
        return ran

    def returned(self, ran: Ran, result: Result) -> Result:
        """It has a result; if that has rows, the statement runs until they are read."""
        if isinstance(result, Rows) and result.ready is not None:
            ran.rows = result.ready.count
            self.ended(ran)
            return result
        if isinstance(result, Rows | Copy):
            return msgspec.structs.replace(result, batches=_Watched(self, ran, result.batches))
        if isinstance(result, CopyIn):
            return msgspec.structs.replace(result, load=partial(self._loaded, ran, result.load))
        self.ended(ran)
        return result

    async def _loaded(
        self,
        ran: Ran,
        load: Callable[[AsyncIterator[bytes]], Awaitable[Done]],
        pieces: AsyncIterator[bytes],
    ) -> Done:
        try:
            done = await load(pieces)
        except BaseException as error:
            self.ended(ran, error)
            raise
        self.ended(ran)
        return done

    def ended(self, ran: Ran, problem: BaseException | None = None) -> None:
        """Once and for all; without a `problem` it was a success."""
        if self.running.pop(ran.id, None) is None:
            return
        ran.finished_ms = self._clock.now_ms()
        ran.outcome = "success" if problem is None else _outcome(problem)
        if ran.outcome == "error":
            known = problem if isinstance(problem, TidemarkError) else TidemarkError(str(problem))
            ran.error_code = known.sqlstate
            ran.error = None if ran.discreet else known.message[:MOST_TEXT]
        seconds = self._clock.monotonic() - ran.began
        self._durations(ran.kind, ran.outcome).add(seconds)
        if not ran.is_routine:
            self._ended.append(ran)
            self.on_end(ran)
        slow = _is_slow(ran, seconds)
        if self.is_logged or slow:
            say, event = (log.warning, "slow statement") if slow else (log.info, "statement")
            say(
                event,
                session=ran.who.id,
                statement=ran.id,
                user=ran.who.user,
                application=ran.application,
                cluster=ran.cluster,
                kind=ran.kind,
                outcome=ran.outcome,
                ms=round(seconds * 1000, 3),
                rows=ran.rows,
                error_code=ran.error_code,
                sql=ran.sql,
            )

    def _durations(self, kind: str, outcome: Outcome) -> Durations:
        return self.durations.setdefault((kind, outcome), Durations())

    def _next(self) -> int:
        self._last += 1
        return self._last


class _Watched:
    """The batches of a result, counted as they are read. It has ended when they have, or when
    nobody wants any more."""

    def __init__(self, activity: Activity, ran: Ran, batches: AsyncIterator[pa.RecordBatch]):
        self._activity = activity
        self._ran = ran
        self._batches = batches

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        try:
            batch = await anext(self._batches)
        except StopAsyncIteration:
            self._activity.ended(self._ran)
            raise
        except BaseException as problem:
            self._activity.ended(self._ran, problem)
            raise
        self._ran.rows += batch.num_rows
        return batch

    async def aclose(self) -> None:
        self._activity.ended(self._ran, asyncio.CancelledError())
        aclose = getattr(self._batches, "aclose", None)
        if aclose is not None:
            await aclose()


_ENDLESS = ("subscribe", "fetch")
"""They take as long as somebody wants more."""


def _is_slow(ran: Ran, seconds: float) -> bool:
    if seconds < SELDOM_SLOW or ran.kind in _ENDLESS or "SUBSCRIBE" in ran.sql[:60].upper():
        return False
    limit = ran.who.variables.get(SLOW)
    return limit != "-1" and seconds >= timeout_seconds(limit)


def kind_of(statement: s.Statement) -> str:
    """`create_materialized_view`."""
    return _words(type(statement).__name__)


@lru_cache
def _words(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _shown(statement: s.Statement, sql: str) -> str:
    """What may be kept of it. Whoever writes a password where none should be has written it, too."""
    match statement:
        case s.CreateSecret() | s.AlterSecret():
            last = _AS.search(sql)
        case s.CreateConnection() | s.AlterConnection():
            last = _OPTIONS.search(sql)
        case _:
            last = _PASSWORD.search(sql)
    return sql if last is None else sql[: last.end()]


def _outcome(problem: BaseException) -> Outcome:
    stopped = isinstance(problem, Cancelled | asyncio.CancelledError | GeneratorExit)
    return "canceled" if stopped else "error"
