"""One client's conversation, from ReadyForQuery to ReadyForQuery.

Messages are taken one at a time, in order. Each is handled in a task of its own, which is what
a CancelRequest cancels; the connection itself goes on. Three rules keep the client in step:

C1  Messages leave whole: `Wire.send` never waits, so a cancellation falls between two messages.
C2  Every Query and every Sync is answered by exactly one ReadyForQuery, sent outside the task
    that can be cancelled.
C3  After an error in an extended-protocol message, everything up to the Sync is skipped.

A hang-up or a shutdown cancels the whole connection instead: `run` closes portals and session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from tidemark.control.pgwire import codec
from tidemark.control.pgwire.codec import FrontendMessage, ProtocolViolation
from tidemark.control.pgwire.params import decode_params, each_format
from tidemark.control.pgwire.portal import Cursor, Portal, copy_rows, data_rows, stream
from tidemark.control.pgwire.session import (
    Copy,
    Deallocate,
    Done,
    Rows,
    Session,
    Statement,
)
from tidemark.control.pgwire.wire import HungUp, Wire
from tidemark.errors import Cancelled, SqlError, TidemarkError, Unsupported
from tidemark.types import Column

log = structlog.get_logger(__name__)

_UNNAMED = ""


class Connection:
    def __init__(self, wire: Wire, session: Session):
        self._wire = wire
        self._session = session
        self._statements: dict[str, Statement | None] = {}
        self._portals: dict[str, Portal] = {}
        self._running: asyncio.Task[None] | None = None
        self._skipping = False

    def cancel_statement(self) -> None:
        """Cancel what is running, if anything is; the connection goes on."""
        if self._running is not None:
            self._running.cancel()

    async def run(self) -> None:
        """Answer messages until Terminate; raises ProtocolViolation and HungUp."""
        try:
            await self._ready()
            while True:
                frame = await self._wire.receive()
                if frame.tag == "X":
                    return
                if frame.tag == "S":
                    self._skipping = False
                    codec.decode(frame)
                    await self._ready()
                elif not self._skipping:
                    await self._answer(frame)
        finally:
            await self._close_portals()

    async def _answer(self, frame: codec.Frame) -> None:
        try:
            await self._cancellable(self._handle(codec.decode(frame)))
        except ProtocolViolation:
            raise
        except TidemarkError as error:
            self._send_error(error)
            self._skipping = frame.tag != "Q"
            await self._wire.flush()  # a Flush that the client sent along is skipped
        if frame.tag == "Q":
            await self._ready()

    async def _cancellable(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` so that `cancel_statement` stops it, and only it."""
        task = self._running = asyncio.create_task(work)
        try:
            await asyncio.wait({task})
        finally:
            self._running = None
            if not task.done():  # the connection itself is being cancelled
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise Cancelled("canceling statement due to user request")
        error = task.exception()
        if error is None:
            return
        if isinstance(error, Exception) and not isinstance(error, TidemarkError | HungUp):
            log.error("internal error in a statement", exc_info=error)
            raise TidemarkError(f"internal error: {type(error).__name__}: {error}") from error
        raise error

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
                portal = self._portal(message.name)
                self._describe_columns(_columns(portal.statement), portal.formats)
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
        texts = self._session.split(sql)
        if not texts:
            self._wire.send(codec.EMPTY_QUERY)
        for text in texts:
            statement = await self._session.prepare(text, ())
            if statement.param_oids:
                raise SqlError("there is no parameter $1", sqlstate="42P02")
            result = await self._session.execute(statement, ())
            if isinstance(result, Rows):
                formats = each_format((), len(result.columns))
                self._describe_columns(result.columns, formats)
                await self._send_rows(result, formats)
            else:
                await self._send_other(result)

    # -- extended query

    async def _parse(self, message: codec.Parse) -> None:
        name = message.name
        if name == _UNNAMED:
            self._statements.pop(_UNNAMED, None)
        elif name in self._statements:
            raise SqlError(f'prepared statement "{name}" already exists', sqlstate="42P05")
        texts = self._session.split(message.sql)
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
                _check_same_shape(statement.columns, portal.result.columns)
        if isinstance(portal.result, Rows):
            await self._send_portal_rows(portal, portal.result, max_rows)
        elif is_first_run:
            await self._send_other(portal.result)
        else:
            raise SqlError("portal cannot be run again: it has completed", sqlstate="55000")

    async def _send_portal_rows(self, portal: Portal, result: Rows, max_rows: int) -> None:
        sent, ended = 0, True
        if portal.cursor is not None:
            encode = data_rows(result.columns, portal.formats)
            limit = max_rows if max_rows > 0 else None
            sent, ended = await stream(self._wire, portal.cursor, encode, limit)
        if not ended:
            self._wire.send(codec.PORTAL_SUSPENDED)
            return
        await portal.close()
        self._complete(result.tag or f"SELECT {sent}")

    def _describe_statement(self, statement: Statement | None) -> None:
        oids = statement.param_oids if statement is not None else ()
        self._wire.send(codec.parameter_description(oids))
        columns = _columns(statement)
        self._describe_columns(columns, each_format((), len(columns or ())))

    def _describe_columns(
        self, columns: tuple[Column, ...] | None, formats: tuple[int, ...]
    ) -> None:
        if columns is None:
            self._wire.send(codec.NO_DATA)
        else:
            self._wire.send(codec.row_description(columns, formats))

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
        self._complete(result.tag or f"SELECT {sent}")

    async def _send_other(self, result: Copy | Done | Deallocate) -> None:
        match result:
            case Done(tag):
                self._complete(tag)
            case Deallocate(name, tag):
                if name is None:
                    self._statements.clear()
                else:
                    self._statement(name)
                    del self._statements[name]
                self._complete(tag)
            case Copy():
                await self._send_copy(result)

    async def _send_copy(self, result: Copy) -> None:
        cursor = Cursor(result.batches)
        try:
            self._wire.send(codec.copy_out_response(len(result.columns)))
            await self._wire.flush()
            sent, _ = await stream(self._wire, cursor, copy_rows(result.columns))
        finally:
            await cursor.close()
        self._wire.send(codec.COPY_DONE)
        self._complete(f"COPY {sent}")

    def _complete(self, tag: str) -> None:
        self._send_news()
        self._wire.send(codec.command_complete(tag))

    def _send_error(self, error: TidemarkError) -> None:
        self._session.fail()
        self._send_news()
        self._wire.send(
            codec.error_response(message=error.message, sqlstate=error.sqlstate, hint=error.hint)
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


def _columns(statement: Statement | None) -> tuple[Column, ...] | None:
    return None if statement is None else statement.columns


def _check_same_shape(described: tuple[Column, ...] | None, actual: tuple[Column, ...]) -> None:
    """The client decodes by what it was told; a result that differs must not reach it."""
    if [c.type.oid for c in described or ()] != [c.type.oid for c in actual]:
        raise Unsupported(
            "cached plan must not change result type", hint="Prepare the statement again."
        )
