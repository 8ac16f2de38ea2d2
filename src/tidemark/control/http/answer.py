"""The statements of one request, one after the other, told to whoever asked.

They run as the wire would run them: a simple query's statements in turn, an extended one's with
their parameters; several are one transaction. The first error ends the request, and undoes what
it has written. What goes wrong on the way to the client is not
the session's affair: it passes through here as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

import structlog

from tidemark.control.http import values
from tidemark.control.http.requests import Request
from tidemark.control.pgwire import Done, Notice, Result, Rows, Session
from tidemark.control.pgwire.params import decode_params
from tidemark.control.pgwire.portal import Cursor
from tidemark.control.pgwire.session import check_wanted
from tidemark.errors import SqlError, TidemarkError, Unsupported
from tidemark.types import Column

log = structlog.get_logger("http")

T = TypeVar("T")

SLICE_ROWS = 1024
STREAM_TAG = "SUBSCRIBE"
"""How a result that may never end completes, if it does."""


class Asker(Protocol):
    """Who is told: for each statement `starting`, perhaps `columns` and `rows`, then `complete`;
    `failed` once at most, and then nothing more. Each may wait until the client has caught up."""

    takes_streams: bool

    async def starting(self, *, has_rows: bool, is_streaming: bool) -> None: ...

    async def columns(self, columns: tuple[Column, ...]) -> None: ...

    async def rows(self, rows: list[list[Any]]) -> None: ...

    async def complete(self, tag: str) -> None: ...

    async def failed(self, error: TidemarkError) -> None: ...


async def answer(session: Session, request: Request, asker: Asker) -> None:
    try:
        statements = [each async for each in _statements(session, request)]
        for at, (sql, given) in enumerate(statements, 1):
            check_wanted()
            if len(statements) > 1:
                session.begin_implicit()
            statement = await _sane(session.prepare(sql, ()))
            if request.query is not None and statement.param_oids:
                raise SqlError("there is no parameter $1", sqlstate="42P02")
            texts = [None if text is None else text.encode() for text in given]
            params = decode_params(statement.param_oids, (), texts)
            result = await _sane(session.execute(statement, params))
            await _tell(result, asker, session.end_implicit if at == len(statements) else None)
        check_wanted()
    except TidemarkError as error:
        session.fail()
        await session.end_implicit()
        await asker.failed(error)


async def _statements(
    session: Session, request: Request
) -> AsyncIterator[tuple[str, tuple[str | None, ...]]]:
    if request.query is not None:
        for sql in await session.split(request.query):
            yield sql, ()
    for query in request.queries or ():
        texts = await session.split(query.query)
        if len(texts) != 1:
            raise SqlError(
                f"each of the queries is one statement, not {len(texts)}",
                hint='several go into {"query": "…; …"}, or each into a query of its own',
            )
        yield texts[0], query.params


async def _tell(result: Result, asker: Asker, end: Callable[[], Awaitable[None]] | None) -> None:
    """`end` is what must succeed before the statement counts as done."""
    match result:
        case Rows():
            await _tell_rows(result, asker, end)
        case Done(tag):
            if end is not None:
                await _sane(end())
            await asker.starting(has_rows=False, is_streaming=False)
            await asker.complete(tag)
        case _:
            if (batches := getattr(result, "batches", None)) is not None:
                await Cursor(batches).close()
            raise Unsupported(
                "COPY is not possible over HTTP", hint="SELECT, or use a PostgreSQL client"
            )


async def _tell_rows(result: Rows, asker: Asker, end: Callable[[], Awaitable[None]] | None) -> None:
    is_streaming = result.tag == STREAM_TAG
    cursor = Cursor(result.batches)
    try:
        if is_streaming and not asker.takes_streams:
            raise Unsupported(
                "SUBSCRIBE has no end, so no single response can have it",
                hint="use the websocket: /api/experimental/sql",
            )
        await asker.starting(has_rows=True, is_streaming=is_streaming)
        await asker.columns(result.columns)
        sent = 0
        while (piece := await _sane(cursor.take(SLICE_ROWS))) is not None:
            sent += piece.num_rows
            await asker.rows(list(values.rows(piece, result.columns)))
            await asyncio.sleep(0)  # a client that keeps up makes nobody else wait
    finally:
        await cursor.close()
    if end is not None:
        await _sane(end())
    await asker.complete(result.completed(sent))


async def _sane(asked: Awaitable[T]) -> T:
    """What a session raises on purpose, or an internal error."""
    try:
        return await asked
    except TidemarkError:
        raise
    except Exception as error:
        log.error("internal error in a statement", exc_info=error)
        raise TidemarkError(f"internal error: {type(error).__name__}: {error}") from error


def error_json(error: TidemarkError) -> dict[str, Any]:
    found: dict[str, Any] = {"message": error.message, "code": error.sqlstate}
    more = {"hint": error.hint, "position": error.position}
    return found | {key: value for key, value in more.items() if value is not None}


def notice_json(notice: Notice) -> dict[str, Any]:
    found = {
        "message": notice.message,
        "code": notice.sqlstate,
        "severity": notice.severity.lower(),
    }
    return found | ({"hint": notice.hint} if notice.hint else {})
