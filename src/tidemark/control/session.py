"""One client's session: statements in, results out, with transactions and settings.

A transaction reads at one timestamp, or it writes: it takes the first statement's side and keeps
to it (reading one's own uncommitted writes is not offered, so it is refused, not got wrong).
Writes are kept until COMMIT and then happen at one time, all of them or none. A statement outside
a transaction is a transaction of its own.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Literal

import msgspec
import pyarrow as pa

from tidemark.compute.expr import Lit
from tidemark.compute.literals import UNKNOWN, typed
from tidemark.compute.plan import Constant, Plan
from tidemark.compute.sql import count_parameters, plan_query
from tidemark.control import ddl, dml, show
from tidemark.control import statements as s
from tidemark.control.coordinator import DATABASE, Coordinator
from tidemark.control.parse import parse, split
from tidemark.control.pgwire import (
    Copy,
    Deallocate,
    Done,
    Notice,
    Param,
    Result,
    Rows,
    Statement,
    TransactionStatus,
)
from tidemark.control.subscribe import subscribe, subscribe_columns
from tidemark.control.values import constant_table, folded, table_rows
from tidemark.control.variables import ISOLATION, Variables, timeout_seconds
from tidemark.errors import Cancelled, SqlError, TidemarkError, Unsupported
from tidemark.persist import DIFF
from tidemark.storage.tables import Write
from tidemark.types import TEXT, Column, SqlType, type_named

_OIDS = {
    type_named(name).oid: type_named(name)
    for name in (
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "double precision",
        "date",
        "timestamp",
        "timestamptz",
        "numeric",
        "bytea",
        "jsonb",
    )
}
TOO_DEEP = SqlError(
    "the statement is nested too deeply",
    hint="split it up, or put the values into a table",
    sqlstate="54001",
)

_TEXT_OIDS = (25, 1043, 1042, 19)


class Prepared(msgspec.Struct, frozen=True):
    """A statement that parsed, with what it takes and returns."""

    sql: str
    param_oids: tuple[int, ...]
    columns: tuple[Column, ...] | None
    statement: s.Statement


class Transaction:
    """An open transaction block: its side, its timestamp or its writes, and its lock."""

    def __init__(self, *, read_only: bool):
        self.read_only = read_only
        self.side: Literal["read", "write"] | None = None
        self.as_of: int | None = None
        self.hold: int | None = None
        self.writes: list[Write] = []
        self.exclusive = AsyncExitStack()
        self.is_exclusive = False
        self.failed = False


class Session:
    """Implements `pgwire.Session`."""

    def __init__(
        self, coordinator: Coordinator, *, user: str, database: str, options: dict[str, str]
    ):
        if database != DATABASE:
            raise SqlError(
                f'database "{database}" does not exist',
                hint=f"connect to {DATABASE}",
                sqlstate="3D000",
            )
        self.coordinator = coordinator
        self.user = user
        self.variables = Variables(options)
        self._transaction: Transaction | None = None
        self._notices: list[Notice] = []

    # pgwire's side.

    @property
    def transaction_status(self) -> TransactionStatus:
        if self._transaction is None:
            return "I"
        return "E" if self._transaction.failed else "T"

    def split(self, sql: str) -> list[str]:
        return split(sql)

    async def prepare(self, sql: str, param_oids: tuple[int, ...]) -> Prepared:
        try:
            return self._prepare(sql, param_oids)
        except RecursionError:
            await self._let_go()
            raise TOO_DEEP from None
        except TidemarkError:
            await self._let_go()
            raise

    def _prepare(self, sql: str, param_oids: tuple[int, ...]) -> Prepared:
        statement = parse(sql)
        self._check_usable(statement)
        count = max((count_parameters(tree) for tree in _trees(statement)), default=0)
        given = (*param_oids, *([0] * (count - len(param_oids))))
        params = tuple(Lit(None, _OIDS.get(oid, UNKNOWN)) for oid in given)
        columns = self._columns(statement, params)
        return Prepared(sql, tuple(oid or TEXT.oid for oid in given), columns, statement)

    async def execute(self, statement: Statement, params: tuple[Param, ...]) -> Result:
        assert isinstance(statement, Prepared)
        self._check_usable(statement.statement)
        literals = tuple(_literal(param) for param in params)
        seconds = timeout_seconds(self.variables.get("statement_timeout"))
        try:
            async with asyncio.timeout(seconds or None):
                return await self._execute(statement.statement, literals)
        except TimeoutError as error:
            await self._let_go()
            raise Cancelled("canceling statement due to statement timeout") from error
        except RecursionError:
            await self._let_go()
            raise TOO_DEEP from None
        except BaseException:
            await self._let_go()
            raise

    def fail(self) -> None:
        if self._transaction is not None:
            self._transaction.failed = True

    def notices(self) -> list[Notice]:
        found, self._notices = self._notices, []
        return found

    def parameter_changes(self) -> dict[str, str]:
        found, self.variables.changed = self.variables.changed, {}
        return found

    async def close(self) -> None:
        await self._end_transaction(committed=False)

    def notice(self, message: str, *, hint: str | None = None) -> None:
        self._notices.append(Notice(message=message, hint=hint))

    # Statements.

    async def _execute(self, statement: s.Statement, params: tuple[Lit, ...]) -> Result:
        match statement:
            case s.Select():
                return await self._select(statement, params)
            case s.CopyTo(statement=s.Select() as select):
                rows = await self._select(select, params)
                return Copy(rows.columns, rows.batches)
            case s.CopyTo(statement=s.Subscribe() as subscription):
                rows = self._subscribe(subscription)
                return Copy(rows.columns, rows.batches)
            case s.Subscribe():
                return self._subscribe(statement)
            case s.Insert() | s.Update() | s.Delete():
                return await self._write(statement, params)
            case s.Begin(modes=modes):
                return self._begin(modes)
            case s.Commit():
                return await self._commit()
            case s.Rollback():
                if self._transaction is None:
                    self.notice("there is no transaction in progress")
                await self._end_transaction(committed=False)
                return Done("ROLLBACK")
            case s.SetVariable(name="transaction", value=modes, local=local):
                self._set_modes(modes or "", local=local)
                return Done("SET")
            case s.SetVariable(local=True) if self._transaction is None:
                self.notice("SET LOCAL has no effect outside a transaction block")
                return Done("SET")
            case s.SetVariable(name=name, value=value, local=local):
                self.variables.set(name, value, local=local)
                return Done("SET")
            case s.ResetVariable(name=name):
                self.variables.reset(name)
                return Done("RESET")
            case s.Discard(what=what) if what != "all":
                return Done(f"DISCARD {what.upper()}")  # There is nothing of that kind.
            case s.Discard():
                if self._transaction is not None:
                    raise SqlError(
                        "DISCARD ALL cannot run inside a transaction block", sqlstate="25001"
                    )
                self.variables.reset(None)
                return Deallocate(None, "DISCARD ALL")
            case s.Deallocate(name=name):
                return Deallocate(name)
            case s.ShowVariable():
                return show.variable(self.variables, statement)
            case s.Explain():
                return self._explain(statement, params)
            case s.ShowObjects() | s.ShowColumns() | s.ShowCreate():
                return show.run(self.coordinator, statement)
            case _:
                if self._transaction is not None:
                    raise SqlError(
                        "a transaction block cannot contain CREATE or DROP",
                        hint="COMMIT or ROLLBACK first",
                        sqlstate="25001",
                    )
                return await ddl.run(self, statement)

    def _columns(
        self, statement: s.Statement, params: tuple[Lit, ...]
    ) -> tuple[Column, ...] | None:
        """What the statement will return, without running it."""
        match statement:
            case s.Select(query=query):
                return self._plan(query, params).columns
            case s.Subscribe():
                item = self._subscribed(statement)
                return subscribe_columns(item, progress=statement.progress)
            case s.ShowVariable():
                return show.variable(self.variables, statement).columns
            case s.ShowObjects() | s.ShowColumns() | s.ShowCreate():
                return show.run(self.coordinator, statement).columns
            case s.Explain():
                return (Column("plan", TEXT),)
            case _:
                return None

    # Reads.

    async def _select(self, statement: s.Select, params: tuple[Lit, ...]) -> Rows:
        plan = self._plan(statement.query, params)
        self._take_side("read")
        as_of = self._read_at(plan, statement.as_of)
        constant = folded(plan)
        if constant is not None:
            return table_rows(plan.columns, constant_table(constant, plan.columns))
        table = await self.coordinator.peek(plan, as_of)
        return table_rows(plan.columns, table)

    def _plan(self, query: s.Query, params: tuple[Lit, ...]) -> Plan:
        return plan_query(
            query.tree, self.coordinator, params=params, session=self._session_values()
        )

    def _session_values(self) -> dict[str, Lit]:
        """What `now()` and its kin mean in a one-off query."""
        now = show.now_literals(self.coordinator.clock)
        text = {
            "version": "PostgreSQL 16.0 (Tidemark 0.1.0)",
            "current_user": self.user,
            "session_user": self.user,
            "user": self.user,
            "current_database": DATABASE,
            "current_catalog": DATABASE,
            "current_schema": "public",
        }
        return {**now, **{name: Lit(value, TEXT) for name, value in text.items()}}

    def _read_at(self, plan: Plan, as_of: s.AsOf | None) -> int:
        transaction = self._transaction
        strict = self._strict
        if as_of is not None:
            newest = self.coordinator.timestamp(plan, strict=False)
            return max(as_of.time, newest) if as_of.at_least else as_of.time
        if transaction is None:
            return self.coordinator.timestamp(plan, strict=strict)
        if transaction.as_of is None:
            transaction.as_of = self.coordinator.timestamp(plan, strict=strict)
            transaction.hold = self.coordinator.holds.acquire(transaction.as_of)
        return transaction.as_of

    @property
    def _strict(self) -> bool:
        return self.variables.get("transaction_isolation") == "strict serializable"

    def _subscribe(self, statement: s.Subscribe) -> Rows:
        if self._transaction is not None and self._transaction.side is not None:
            raise SqlError(
                "SUBSCRIBE must be the only statement of its transaction", sqlstate="25001"
            )
        item = self._subscribed(statement)
        if statement.as_of is not None:
            as_of = statement.as_of.time
            if statement.as_of.at_least:
                as_of = max(as_of, self.coordinator.timestamp(item.get, strict=False))
        else:
            as_of = self.coordinator.timestamp(item.get, strict=self._strict)
        if statement.up_to is not None and statement.up_to < as_of:
            raise SqlError(
                f"UP TO {statement.up_to} is before AS OF {as_of}: nothing could ever be returned",
                sqlstate="22023",
            )
        stream = subscribe(
            self.coordinator,
            item,
            as_of=as_of,
            up_to=statement.up_to,
            snapshot=statement.snapshot,
            progress=statement.progress,
        )
        return Rows(subscribe_columns(item, progress=statement.progress), stream, "SUBSCRIBE")

    def _subscribed(self, statement: s.Subscribe):
        if statement.name is None:
            raise Unsupported(
                "SUBSCRIBE to a query is not supported yet",
                hint="create a materialized view of the query and SUBSCRIBE to that",
            )
        item = self.coordinator.relation(statement.name)
        if item.shard is None:
            raise Unsupported(
                f'"{item.name}" is not stored, so it cannot be subscribed to',
                hint="create a materialized view and SUBSCRIBE to that",
            )
        return item

    def _explain(self, statement: s.Explain, params: tuple[Lit, ...]) -> Rows:
        if statement.query is not None:
            plan = self._plan(statement.query, params)
        else:
            assert statement.name is not None
            item = self.coordinator.item(statement.name)
            if item.plan is None or item.kind.replace("-", " ") != statement.kind:
                raise SqlError(f'"{item.name}" is not a {statement.kind}', sqlstate="42809")
            plan = item.plan
        return show.explain(self.coordinator, plan, statement.stage, strict=self._strict)

    # Writes.

    async def _write(
        self, statement: s.Insert | s.Update | s.Delete, params: tuple[Lit, ...]
    ) -> Result:
        item = self.coordinator.writable(statement.table)
        values = self._session_values()
        match statement:
            case s.Insert():
                plan = dml.plan_insert(statement, self.coordinator, params=params, session=values)
                if isinstance(plan, Constant):
                    rows = with_diff(constant_table(plan, item.columns), 1)
                    await self._submit([self.coordinator.write_of(item, rows)])
                    return Done(f"INSERT 0 {rows.num_rows}")
            case s.Update():
                plan = dml.plan_update(statement, self.coordinator, params=params, session=values)
            case s.Delete():
                plan = dml.plan_delete(statement, self.coordinator, params=params, session=values)
        return await self._read_then_write(statement, item, plan)

    async def _read_then_write(self, statement, item, plan: Plan) -> Result:
        """Nothing is written by anyone between this statement's read and its write."""
        self._take_side("write")
        transaction = self._transaction
        if transaction is not None and transaction.writes and not isinstance(plan, Constant):
            raise SqlError(
                "this statement would have to read what the transaction has not committed yet",
                hint="COMMIT first, or run it in a transaction of its own",
                sqlstate="25001",
            )
        # Nobody else's write should have to wait while a replica starts, or a view catches up.
        await self.coordinator.cluster.wait_ready()
        recent = self.coordinator.timestamp(plan, strict=True)
        for shard in self.coordinator.shards_of(plan).values():
            await self.coordinator.wait_readable(shard, recent)
        async with AsyncExitStack() as stack:
            lock = stack if transaction is None else transaction.exclusive
            if transaction is None or not transaction.is_exclusive:
                await lock.enter_async_context(self.coordinator.timeline.exclusively())
            if transaction is not None:
                transaction.is_exclusive = True
            as_of = self.coordinator.timestamp(plan, strict=True)
            found = await self.coordinator.peek(plan, as_of)
            rows, count = _changes(statement, item.columns, found)
            write = self.coordinator.write_of(item, rows)
            if transaction is not None:
                transaction.writes.append(write)
            elif rows.num_rows:
                await self.coordinator.timeline.write_exclusively([write])
        tag = {s.Insert: "INSERT 0", s.Update: "UPDATE", s.Delete: "DELETE"}[type(statement)]
        return Done(f"{tag} {count}")

    async def _submit(self, writes: list[Write]) -> None:
        self._take_side("write")
        if self._transaction is not None:
            self._transaction.writes += writes
        else:
            await self.coordinator.timeline.write(writes)

    # Transactions.

    def _begin(self, modes: str) -> Done:
        if self._transaction is not None:
            self.notice("there is already a transaction in progress")
            return Done("BEGIN")
        self.variables.begin()
        self._transaction = Transaction(read_only="read only" in modes)
        self._set_modes(modes, local=True)
        return Done("BEGIN")

    def _set_modes(self, modes: str, *, local: bool) -> None:
        """The modes of BEGIN and SET TRANSACTION (local), or SET SESSION CHARACTERISTICS."""
        named = [name for name in ISOLATION if f"isolation level {name}" in modes]
        transaction = self._transaction
        if local and transaction is None:
            self.notice("SET TRANSACTION has no effect outside a transaction block")
            return
        if not local and "read only" in modes:
            raise Unsupported(
                "sessions that only read are not supported", hint="use BEGIN READ ONLY"
            )
        if local and transaction is not None:
            if transaction.side is not None:
                raise SqlError("SET TRANSACTION must come before any query", sqlstate="25001")
            if "read only" in modes or "read write" in modes:
                transaction.read_only = "read only" in modes
        if named:
            self.variables.set("transaction_isolation", max(named, key=len), local=local)

    async def _commit(self) -> Done:
        transaction = self._transaction
        if transaction is None:
            self.notice("there is no transaction in progress")
            return Done("COMMIT")
        committed = False
        try:
            if transaction.failed:
                return Done("ROLLBACK")
            if transaction.writes:
                self._check_tables(transaction.writes)
                timeline = self.coordinator.timeline
                write = timeline.write_exclusively if transaction.is_exclusive else timeline.write
                await write(transaction.writes)
            committed = True
            return Done("COMMIT")
        finally:
            await self._end_transaction(committed=committed)

    def _check_tables(self, writes: list[Write]) -> None:
        """A table may have been dropped since the statement that wrote to it."""
        known = {item.shard for item in self.coordinator.catalog.items.values()}
        if any(write.shard_id not in known for write in writes):
            raise SqlError(
                "a table that this transaction has written to was dropped; nothing was written",
                sqlstate="42P01",
            )

    async def _let_go(self) -> None:
        """A transaction that has failed can only end: nobody should have to wait for that."""
        if self._transaction is not None:
            self._transaction.writes.clear()
            self._transaction.is_exclusive = False
            await self._transaction.exclusive.aclose()

    async def _end_transaction(self, *, committed: bool) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self.variables.end(committed=committed)
            if transaction.hold is not None:
                self.coordinator.holds.release(transaction.hold)
            await transaction.exclusive.aclose()

    def _take_side(self, side: Literal["read", "write"]) -> None:
        transaction = self._transaction
        if transaction is None:
            return
        if transaction.read_only and side == "write":
            raise SqlError("cannot write in a read-only transaction", sqlstate="25006")
        if transaction.side not in (None, side):
            raise SqlError(
                f"transaction in {transaction.side}-only mode",
                hint="a transaction reads or writes, not both: COMMIT first, or use autocommit",
                sqlstate="25000",
            )
        transaction.side = side

    def _check_usable(self, statement: s.Statement) -> None:
        failed = self._transaction is not None and self._transaction.failed
        if failed and not isinstance(statement, s.Commit | s.Rollback):
            raise SqlError(
                "current transaction is aborted, commands ignored until end of transaction block",
                sqlstate="25P02",
            )


def with_diff(rows: pa.Table, diff: int) -> pa.Table:
    return rows.append_column(DIFF, pa.repeat(pa.scalar(diff, pa.int64()), rows.num_rows))


def _changes(statement, columns: tuple[Column, ...], found: pa.Table) -> tuple[pa.Table, int]:
    """What a read-then-write statement found, as rows with `_diff`, and how many rows it hit."""
    names = [column.name for column in columns]
    width = len(columns)
    first = found.select(list(range(width))).rename_columns(names)
    match statement:
        case s.Insert():
            return with_diff(first, 1), found.num_rows
        case s.Delete():
            return with_diff(first, -1), found.num_rows
        case _:
            second = found.select(list(range(width, 2 * width))).rename_columns(names)
            both = pa.concat_tables([with_diff(first, -1), with_diff(second, 1)])
            return both, found.num_rows


def _literal(param: Param) -> Lit:
    """A parameter as a literal: of its type if the client said one, else of its context's."""
    type_: SqlType | None = _OIDS.get(param.oid)
    if param.value_text is None:
        return Lit(None, type_ or UNKNOWN)
    if param.oid in _TEXT_OIDS or type_ is None:
        # Clients send text both for strings and for "you know better": the context decides.
        return Lit(param.value_text, UNKNOWN)
    return typed(param.value_text, type_)


def _trees(statement: s.Statement) -> list:
    match statement:
        case s.Select(query=query) | s.CopyTo(statement=s.Select(query=query)):
            return [query.tree]
        case s.Insert(query=query):
            return [query.tree] if query is not None else []
        case s.Update(assignments=assignments, where=where):
            trees = [tree for _, tree in assignments]
            return trees if where is None else [*trees, where]
        case s.Delete(where=where):
            return [] if where is None else [where]
        case s.Explain(query=query):
            return [query.tree] if query is not None else []
        case _:
            return []
