"""One client's conversation, from ReadyForQuery to ReadyForQuery.

Messages are taken one at a time, in order. A CancelRequest cancels what is handled just now; the
connection itself goes on. Three rules keep the client in step:

C1  Messages leave whole: `Wire.send` never waits, so a cancellation falls between two messages.
C2  Every Query and every Sync is answered by exactly one ReadyForQuery, sent outside of what
    can be cancelled.
C3  After an error in an extended-protocol message, everything up to the Sync is skipped.
C4  What is sent at once is one transaction: the statements of a Query, and what is executed up to a
    Sync. One that is alone there is a transaction of its own, so an Execute waits for the message
    that follows it; nobody may expect an answer before having sent one.

A hang-up or a shutdown cancels the whole connection instead: `run` closes portals and session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from functools import lru_cache
from typing import Any

import structlog

from tidemark.control.pgwire import codec
from tidemark.control.pgwire.codec import FrontendMessage, ProtocolViolation
from tidemark.control.pgwire.copy_out import CopyEncoder
from tidemark.control.pgwire.kept import check_portals
from tidemark.control.pgwire.params import decode_params, each_format
from tidemark.control.pgwire.portal import Cursor, Portal, data_rows, stream
from tidemark.control.pgwire.session import (
    Copy,
    CopyIn,
    Done,
    Rows,
    Session,
    Statement,
    check_same_shape,
    check_wanted,
    idle_for_too_long,
)
from tidemark.control.pgwire.wire import HungUp, Wire
from tidemark.control.waiting import canceled
from tidemark.errors import Cancelled, SqlError, TidemarkError
from tidemark.types import Column

log = structlog.get_logger(__name__)

_UNNAMED = ""

_MOST_IN_A_ROW = 64
"""Messages of one client that are there already, and may not need to wait for anything."""

_row_description = lru_cache(codec.row_description)
"""Drivers ask for the same one every time."""

_AT_ONCE = "BD"
"""Bind and Describe: they take no time, and a task of their own would be most of their cost."""


class Connection:
    def __init__(self, wire: Wire, session: Session):
        self._wire = wire
        self._session = session
        self._statements = session.statements
        self._portals: dict[str, Portal] = {}
        self._running: asyncio.Task[None] | None = None
        self._cancelling = False
        self._skipping = False
        self._ahead: codec.Frame | None = None
        self._is_last = False
        self._in_a_row = 0

    def cancel_statement(self) -> None:
        """Cancel what is running, if anything is; the connection goes on."""
        if self._running is not None and not self._cancelling:
            self._cancelling = True
            self._running.cancel()

    async def run(self) -> None:
        """Answer messages until Terminate; raises ProtocolViolation and HungUp."""
        try:
            await self._ready()
            while True:
                frame = await self._next()
                if frame.tag == "X":
                    return
                if frame.tag == "S":
                    self._skipping = False
                    await self._answer(frame)
                elif not self._skipping:
                    if frame.tag == "E":
                        self._ahead = await self._next()
                        if self._ahead.tag != "S":
                            self._session.begin_implicit()
                    await self._answer(frame)
        finally:
            await self._close_portals()

    async def _next(self) -> codec.Frame:
        frame = self._wire.take() if self._ahead is None else await self._receive()
        if frame is not None:
            self._in_a_row += 1
            if self._in_a_row % _MOST_IN_A_ROW == 0:
                await asyncio.sleep(0)  # others have a turn, too
            return frame
        seconds = self._session.idle_seconds
        if seconds is None:
            return await self._wire.receive()
        try:
            async with asyncio.timeout(seconds):
                return await self._wire.receive()
        except TimeoutError:
            raise idle_for_too_long(self._session.transaction_status) from None

    async def _receive(self) -> codec.Frame:
        ahead, self._ahead = self._ahead, None
        return ahead or await self._wire.receive()

    async def _answer(self, frame: codec.Frame) -> None:
        ends = frame.tag in ("Q", "S")
        try:
            message = codec.decode(frame)
            if frame.tag in _AT_ONCE:
                await self._at_once(self._handle(message))
            elif frame.tag != "S" or self._session.transaction_status != "I":
                await self._cancellable(self._handle(message))
        except ProtocolViolation:
            raise
        except TidemarkError as error:
            self._send_error(error)
            self._skipping = not ends
            self._is_last = False  # There is no completion for the commit to come before.
            await self._wire.flush()  # a Flush that the client sent along is skipped
        if ends:
            await self._session.end_implicit()  # After an error there is nothing left to fail.
            await self._ready()
        elif self._wire.is_full:
            await self._wire.flush()  # who pipelines without end, and reads nothing, has to wait

    async def _cancellable(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` so that `cancel_statement` stops it, and only it.

        A task of its own would be most of what a small statement costs. So it runs in the task of
        the connection, which a hang-up or a shutdown cancels as well: who has asked says which.
        """
        task = self._running = asyncio.current_task()
        assert task is not None
        failure: BaseException | None = None
        try:
            await work
        except (asyncio.CancelledError, Exception) as error:
            failure = error
        finally:
            self._running = None
            if self._cancelling:
                self._cancelling = False
                task.uncancel()
        if task.cancelling():
            raise asyncio.CancelledError  # the connection itself is being cancelled
        if isinstance(failure, asyncio.CancelledError):
            raise canceled("user request", failure)
        if failure is not None:
            try:
                raise _explained(failure)
            finally:
                failure = None  # It would keep itself, and all rows that its statement had.

    async def _at_once(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what does not wait for anything, so that there is nothing to cancel."""
        try:
            await work
        except Exception as error:
            raise _explained(error) from None

    async def _handle(self, message: FrontendMessage) -> None:
        match message:
            case codec.Query():
                await self._query(message.sql)
            case codec.Parse():
                await self._parse(message)
            case codec.Bind():
                await self._bind(message)
            case codec.Describe(kind="S"):
                self._describe_statement(self._statement(message.name))
            case codec.Describe():
                self._describe_portal(message.name)
            case codec.Execute():
                await self._execute(message.portal, message.max_rows)
            case codec.Close(kind="S"):
                self._statements.pop(message.name, None)
                self._wire.send(codec.CLOSE_COMPLETE)
            case codec.Close():
                await self._close_portal(message.name)
                self._wire.send(codec.CLOSE_COMPLETE)
            case codec.Flush():
                await self._wire.flush()
            case codec.Sync():
                await self._session.end_implicit()
            case codec.CopyData() | codec.CopyDone() | codec.CopyFail():
                pass  # left over from a COPY that has failed; the protocol says to ignore it
            case codec.PasswordMessage():
                raise ProtocolViolation("unexpected password message: no password was asked for")
            case _:
                raise AssertionError(f"unreachable: {message!r}")

    # -- simple query

    async def _query(self, sql: str) -> None:
        self._statements.pop(_UNNAMED, None)
        await self._close_portal(_UNNAMED)
        texts = await self._session.split(sql)
        if not texts:
            self._wire.send(codec.EMPTY_QUERY)
        begins = 0
        for number, text in enumerate(texts, 1):
            check_wanted()  # What came before may have been too far to be cancelled.
            begins = max(sql.find(text, begins), begins)
            if len(texts) > 1:
                self._session.begin_implicit()
            self._is_last = number == len(texts) > 1
            try:
                statement = await self._session.prepare(text, ())
                if statement.param_oids:
                    raise SqlError("there is no parameter $1", sqlstate="42P02")
                result = await self._session.execute(statement, ())
            except TidemarkError as error:
                if error.position is not None:
                    error.position += begins  # The client knows only the whole of what it sent.
                raise
            begins += len(text)
            if isinstance(result, Rows):
                formats = each_format((1,) if result.binary else (), len(result.columns))
                self._describe_columns(result.columns, formats)
                await self._send_rows(result, formats)
            else:
                await self._send_other(result)
                if self._wire.is_full:
                    await self._wire.flush()

    # -- extended query

    async def _parse(self, message: codec.Parse) -> None:
        name = message.name
        if name == _UNNAMED:
            self._statements.pop(_UNNAMED, None)
        elif name in self._statements:
            raise SqlError(f'prepared statement "{name}" already exists', sqlstate="42P05")
        texts = await self._session.split(message.sql)
        if len(texts) > 1:
            raise SqlError("cannot insert multiple commands into a prepared statement")
        statement = None
        if texts:
            statement = await self._session.prepare(texts[0], message.param_oids)
        self._statements[name] = statement
        self._wire.send(codec.PARSE_COMPLETE)

    async def _bind(self, message: codec.Bind) -> None:
        statement = self._statement(message.statement)
        oids = statement.param_oids if statement is not None else ()
        params = decode_params(oids, message.param_formats, message.values)
        columns = _columns(statement)
        formats = () if columns is None else each_format(message.result_formats, len(columns))
        if message.portal == _UNNAMED:
            await self._close_portal(_UNNAMED)
        elif message.portal in self._portals:
            raise SqlError(f'portal "{message.portal}" already exists', sqlstate="42P03")
        check_portals(self._portals, message.portal, params)
        self._portals[message.portal] = Portal(statement, params, formats)
        self._wire.send(codec.BIND_COMPLETE)

    async def _execute(self, name: str, max_rows: int) -> None:
        portal = self._portal(name)
        if portal.statement is None:
            self._wire.send(codec.EMPTY_QUERY)
            return
        try:
            await self._run_portal(portal, portal.statement, max_rows)
        except BaseException:
            await self._close_portal(name)
            raise

    async def _run_portal(self, portal: Portal, statement: Statement, max_rows: int) -> None:
        is_first_run = portal.result is None
        if portal.result is None:
            portal.result = await self._session.execute(statement, portal.params)
            if isinstance(portal.result, Rows):
                portal.cursor = Cursor(portal.result.batches)
                check_same_shape(statement.columns, portal.result.columns)
        if isinstance(portal.result, Rows):
            await self._send_portal_rows(portal, portal.result, max_rows, is_first=is_first_run)
        elif is_first_run:
            await self._send_other(portal.result)
        else:
            raise SqlError("portal cannot be run again: it has completed", sqlstate="55000")

    async def _send_portal_rows(
        self, portal: Portal, result: Rows, max_rows: int, *, is_first: bool
    ) -> None:
        sent, ended = 0, True
        ready = result.ready
        if portal.cursor is not None and ready is not None and is_first and max_rows <= 0:
            self._wire.send(*ready.encoded(portal.formats))
            sent = ready.count
        elif portal.cursor is not None:
            encode = data_rows(result.columns, portal.formats)
            limit = max_rows if max_rows > 0 else None
            sent, ended = await stream(self._wire, portal.cursor, encode, limit)
        if not ended:
            self._wire.send(codec.PORTAL_SUSPENDED)
            return
        await portal.close()
        await self._complete(result.completed(sent))

    def _describe_statement(self, statement: Statement | None) -> None:
        oids = statement.param_oids if statement is not None else ()
        self._wire.send(codec.parameter_description(oids))
        columns = _columns(statement)
        self._describe_columns(columns, each_format((), len(columns or ())))

    def _describe_portal(self, name: str) -> None:
        declared = self._session.cursor_columns(name)
        if declared is not None and name not in self._portals:
            self._describe_columns(declared, each_format((), len(declared)))
            return
        portal = self._portal(name)
        self._describe_columns(_columns(portal.statement), portal.formats)

    def _describe_columns(
        self, columns: tuple[Column, ...] | None, formats: tuple[int, ...]
    ) -> None:
        if columns is None:
            self._wire.send(codec.NO_DATA)
        else:
            self._wire.send(_row_description(columns, formats))

    def _statement(self, name: str) -> Statement | None:
        if name not in self._statements:
            raise SqlError(f'prepared statement "{name}" does not exist', sqlstate="26000")
        return self._statements[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise SqlError(f'portal "{name}" does not exist', sqlstate="34000")
        return self._portals[name]

    async def _close_portal(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None:
            await portal.close()

    async def _close_portals(self) -> None:
        for name in list(self._portals):
            try:
                await self._close_portal(name)
            except Exception as error:
                log.error("closing a portal failed", exc_info=error)

    # -- results

    async def _send_rows(self, result: Rows, formats: tuple[int, ...]) -> None:
        cursor = Cursor(result.batches)
        try:
            sent, _ = await stream(self._wire, cursor, data_rows(result.columns, formats))
        finally:
            await cursor.close()
        await self._complete(result.completed(sent))

    async def _send_other(self, result: Copy | CopyIn | Done) -> None:
        match result:
            case Done(tag):
                await self._complete(tag)
            case Copy():
                await self._send_copy(result)
            case CopyIn():
                await self._take_copy(result)

    async def _send_copy(self, result: Copy) -> None:
        cursor = Cursor(result.batches)
        encoder = CopyEncoder(result.columns, result.options)
        try:
            binary = result.options.format == "binary"
            self._wire.send(codec.copy_out_response(len(result.columns), binary=binary))
            self._wire.send(*encoder.begin())
            await self._wire.flush()
            sent, _ = await stream(self._wire, cursor, encoder.rows)
        finally:
            await cursor.close()
        self._wire.send(*encoder.end(), codec.COPY_DONE)
        await self._complete(f"COPY {sent}")

    async def _take_copy(self, result: CopyIn) -> None:
        self._wire.send(codec.copy_in_response(result.column_count, binary=result.binary))
        await self._wire.flush()
        async with aclosing(self._copy_data()) as data:
            done = await result.load(data)
        await self._complete(done.tag)

    async def _copy_data(self) -> AsyncGenerator[bytes]:
        """What the client sends, up to its CopyDone.

        Clients send a Sync along with the Execute, before they know that this is a COPY; they
        send another one after the data, which is the one that counts.
        """
        while True:
            frame = await self._receive()
            match codec.decode(frame):
                case codec.CopyData(data):
                    yield data
                case codec.CopyDone():
                    return
                case codec.CopyFail(reason):
                    raise Cancelled(f"COPY from stdin failed: {reason}")
                case codec.Sync() | codec.Flush():
                    pass
                case _:
                    raise ProtocolViolation(
                        f"unexpected message type {frame.tag!r} during COPY from stdin"
                    )

    async def _complete(self, tag: str) -> None:
        if self._is_last:
            self._is_last = False
            await self._session.end_implicit()  # What becomes of it is known before it is told.
        self._send_news()
        self._wire.send(codec.command_complete(tag))

    def _send_error(self, error: TidemarkError) -> None:
        self._session.fail()
        self._send_news()
        self._wire.send(
            codec.error_response(
                message=error.message,
                sqlstate=error.sqlstate,
                hint=error.hint,
                context=error.context,
                position=error.position,
            )
        )

    async def _ready(self) -> None:
        if self._session.transaction_status == "I":
            await self._close_portals()  # a portal lives no longer than its transaction
        self._send_news()
        self._wire.send(codec.ready_for_query(self._session.transaction_status))
        await self._wire.flush()

    def _send_news(self) -> None:
        for notice in self._session.notices():
            self._wire.send(
                codec.notice_response(
                    message=notice.message,
                    sqlstate=notice.sqlstate,
                    severity=notice.severity,
                    hint=notice.hint,
                )
            )
        for name, value in self._session.parameter_changes().items():
            self._wire.send(codec.parameter_status(name, value))


def _explained(error: BaseException) -> BaseException:
    """What the client is told; the log has the rest."""
    if isinstance(error, Exception) and not isinstance(error, TidemarkError | HungUp):
        log.error("internal error in a statement", exc_info=error)
        return TidemarkError(f"internal error: {type(error).__name__}: {error}")
    return error


def _columns(statement: Statement | None) -> tuple[Column, ...] | None:
    return None if statement is None else statement.columns
