"""One client's session: statements in, results out, with transactions and settings.

What a transaction is, and what it may do, says `transaction.py`. A statement outside of one is a
transaction of its own; several that are sent at once are one together, which the wire begins and
ends (`begin_implicit`, `end_implicit`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pyarrow as pa
from structlog.contextvars import bound_contextvars

from tidemark.compute.expr import Lit
from tidemark.compute.peek import at_time
from tidemark.compute.plan import Plan
from tidemark.compute.sql import count_parameters, plan_query
from tidemark.control import ddl, parameters, points, privileges, show, writes
from tidemark.control import statements as s
from tidemark.control.activity import Ran
from tidemark.control.aside import LARGE, size_of, too_deep
from tidemark.control.coordinator import Coordinator
from tidemark.control.cursors import Cursors
from tidemark.control.envelope import envelope_of
from tidemark.control.explained import columns_of, explained
from tidemark.control.hierarchy import no_database
from tidemark.control.identity import Acting, Identity
from tidemark.control.lexer import locate
from tidemark.control.names import Names
from tidemark.control.parse import parse, split
from tidemark.control.pg.engine import CatalogQuery
from tidemark.control.pg.session import Asking
from tidemark.control.pgwire import (
    Copy,
    Done,
    Notice,
    Param,
    Result,
    Rows,
    Statement,
    TransactionStatus,
)
from tidemark.control.pgwire.kept import Statements
from tidemark.control.pgwire.session import check_same_shape
from tidemark.control.prepared import Prepared, named
from tidemark.control.qualify import qualified
from tidemark.control.subscribe import subscribed, subscription
from tidemark.control.system_settings import check_memory, session_variables
from tidemark.control.transaction import Transaction
from tidemark.control.values import constant_table, folded, table_rows
from tidemark.control.variables import (
    ISOLATION,
    behind_ms,
    of_postgres,
    timeout_seconds,
    without_impossible,
)
from tidemark.control.verify import verified_view, verify, verify_columns
from tidemark.control.waiting import canceled
from tidemark.errors import SqlError, TidemarkError, Unsupported
from tidemark.types import TEXT, Column
from tidemark.units import byte_size

T = TypeVar("T")


class Session:
    """Implements `pgwire.Session`."""

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        user: str,
        database: str,
        options: dict[str, str],
        demanded: tuple[str, ...] = (),
    ):
        self.coordinator = coordinator
        self.identity = Identity(coordinator.catalog, user)
        self.pid = 0
        self._notices: list[Notice] = []
        given = without_impossible(options, demanded, self.notice)
        self.variables = session_variables(coordinator, given, self.identity.settings)
        self._names: Names | None = None
        self._size = 0
        self._set_database(database)
        self._set_cluster(self.variables.get("cluster"))
        if not self.acting.is_superuser:
            self.variables.changed["is_superuser"] = "off"
        self.variables.settle()
        self.statements: dict[str, Statement | None] = Statements()
        self._cursors = Cursors()
        self.transaction: Transaction | None = None
        self.who = coordinator.activity.connected(user, self.variables)
        self._ran: Ran | None = None

    # pgwire's side.

    @property
    def transaction_status(self) -> TransactionStatus:
        if self.transaction is None:
            return "I"
        return "E" if self.transaction.failed else "T"

    @property
    def idle_seconds(self) -> float | None:
        # An open transaction locks nothing, but what it reads at is kept from compaction.
        which = "idle_session_timeout"
        if self.transaction is not None:
            which = "idle_in_transaction_session_timeout"
        return timeout_seconds(self.variables.get(which)) or None

    async def split(self, sql: str) -> list[str]:
        self._size = len(sql)
        dialect = self.dialect
        return await self.aside(lambda: split(sql, dialect))

    async def prepare(self, sql: str, param_oids: tuple[int, ...]) -> Prepared:
        def prepared() -> Prepared:
            return self._prepare(parse(sql, self.dialect), sql, param_oids)

        self._size = len(sql)
        try:
            return prepared() if self._size < LARGE else await self.guarded(self.aside(prepared))
        except (RecursionError, TidemarkError) as error:
            self.coordinator.activity.refused()
            await self._let_go()
            if not isinstance(error, TidemarkError):
                raise too_deep() from None
            locate(error, sql, self.dialect)
            raise error from None

    def _prepare(self, statement: s.Statement, sql: str, param_oids: tuple[int, ...]) -> Prepared:
        self._check_usable(statement)
        trees = parameters.trees(statement)
        count = max((count_parameters(tree) for tree in trees), default=0)
        given = (*param_oids, *([0] * (count - len(param_oids))))
        if not all(given):
            said = parameters.said_types(
                trees, writes.targets(self.coordinator, qualified(statement, self.names))
            )
            given = tuple(oid or said.get(number, 0) for number, oid in enumerate(given, 1))
        params = parameters.asked(given)
        columns = self._columns(statement, params)
        writes.look(self, statement, params)
        found = parameters.taken_for(params)
        oids = tuple(oid or found.get(at, TEXT.oid) for at, oid in enumerate(given))
        return Prepared(sql, oids, columns, statement, self.dialect, frozenset(found))

    async def execute(self, statement: Statement, params: tuple[Param, ...]) -> Result:
        assert isinstance(statement, Prepared)
        activity = self.coordinator.activity
        ran = activity.began(self.who, statement.statement, statement.sql, has_params=bool(params))
        self._ran = ran
        try:
            with bound_contextvars(session=self.who.id, statement=ran.id):
                return activity.returned(ran, await self._execute_in_time(statement, params))
        except BaseException as error:
            activity.ended(ran, error)
            if isinstance(error, TidemarkError):
                if isinstance(statement.statement, s.ExecutePrepared):
                    error.position = None  # What it runs is not what the client has just sent.
                else:
                    locate(error, statement.sql, statement.dialect)
            raise

    async def _execute_in_time(self, statement: Prepared, params: tuple[Param, ...]) -> Result:
        self._check_runnable(statement)
        literals = parameters.literals(params, statement.inferred)
        self._size = size_of(statement.sql, literals)
        return await self.guarded(points.run(self, statement, literals))

    async def guarded(self, work: Awaitable[T]) -> T:
        """Run a statement, or a part of it, under its time limit; one that fails lets go."""
        seconds = timeout_seconds(self.variables.get("statement_timeout"))
        try:
            if not seconds:
                return await work
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError as error:
            await self._let_go()
            raise canceled("statement timeout", error) from error
        except RecursionError:
            await self._let_go()
            raise too_deep() from None
        except BaseException:
            await self._let_go()
            raise

    async def aside(self, work: Callable[[], T]) -> T:
        """Do what takes as long as the statement is: if that is large, not on the event loop."""
        return work() if self._size < LARGE else await self.coordinator.aside.run(work)

    def begin_implicit(self) -> None:
        if self.transaction is None:
            self._start(implicit=True)

    async def end_implicit(self) -> None:
        if self.transaction is not None and self.transaction.implicit:
            await self.guarded(self._finish())

    def cursor_columns(self, name: str) -> tuple[Column, ...] | None:
        return self._cursors.columns(name)

    def fail(self) -> None:
        if self.transaction is not None:
            self.transaction.failed = True

    def notices(self) -> list[Notice]:
        found, self._notices = self._notices, []
        return found

    def parameter_changes(self) -> dict[str, str]:
        found, self.variables.changed = self.variables.changed, {}
        return found

    async def close(self) -> None:
        self.coordinator.activity.left(self.who)
        await self._end_transaction(committed=False)
        await self._cursors.close_all()

    def notice(self, message: str, *, hint: str | None = None) -> None:
        self._notices.append(Notice(message=message, hint=hint))

    def warn(self, message: str, sqlstate: str) -> None:
        self._notices.append(Notice(message=message, severity="WARNING", sqlstate=sqlstate))

    # Statements.

    @property
    def acting(self) -> Acting:
        """The role that statements run for."""
        return self.identity.acting(self.variables)

    async def _execute(self, statement: s.Statement, params: tuple[Lit, ...]) -> Result:
        statement = qualified(statement, self.names)
        await self.aside(lambda: privileges.check(self, statement, params))
        match statement:
            case s.Select():
                return await self.select(statement, params)
            case s.CopyTo(statement=s.Select() as select):
                rows = await self.select(select, params)
                return Copy(rows.columns, rows.batches, statement.options)
            case s.CopyTo(statement=s.Subscribe() as subscribe):
                rows = await subscription(self, subscribe, params)
                return Copy(rows.columns, rows.batches, statement.options)
            case s.CopyFrom():
                return writes.copy_from(self, statement)
            case s.Declare():
                return await self._declare(statement, params)
            case s.Fetch(name=name, count=count, timeout=timeout):
                return self._cursors.fetch(name, count, timeout)
            case s.CloseCursor(name=None):
                await self._cursors.close_all()
                return Done("CLOSE CURSOR ALL")
            case s.CloseCursor(name=str(name)):
                await self._cursors.close(name)
                return Done("CLOSE CURSOR")
            case s.Prepare():
                return await self._prepare_named(statement)
            case s.ExecutePrepared():
                return await self._execute_prepared(statement, params)
            case s.Subscribe():
                return await subscription(self, statement, params)
            case s.Insert() | s.Update() | s.Delete() | s.Truncate():
                return await writes.write(self, statement, params)
            case s.Begin(modes=modes):
                return self._begin(modes)
            case s.Commit():
                return await self._commit()
            case s.Rollback():
                if self.transaction is None or self.transaction.implicit:
                    self.warn("there is no transaction in progress", "25P01")
                await self._end_transaction(committed=False)
                return Done("ROLLBACK")
            case s.Savepoint() | s.Release() | s.RollbackTo():
                return await self._savepoint(statement)
            case s.SetVariable(name="transaction", value=modes, local=local):
                self._set_modes(modes or "", local=local)
                return Done("SET")
            case s.SetVariable(local=True) if self.transaction is None:
                self.warn("SET LOCAL has no effect outside a transaction block", "25P01")
                return Done("SET")
            case s.SetVariable(name=name, value=value, local=local):
                self.set(name, value, local=local)
                return Done("SET")
            case s.ResetVariable(name=name):
                self.variables.reset(name)
                return Done("RESET")
            case s.Discard(what=what) if what != "all":
                return Done(f"DISCARD {what.upper()}")  # There is nothing of that kind.
            case s.Discard():
                if self.transaction is not None:
                    raise SqlError(
                        "DISCARD ALL cannot run inside a transaction block", sqlstate="25001"
                    )
                self.variables.reset(None)
                self.statements.clear()
                await self._cursors.close_all()
                return Done("DISCARD ALL")
            case s.Unlisten():
                return Done("UNLISTEN")
            case s.Deallocate(name=None):
                self.statements.clear()
                return Done("DEALLOCATE ALL")
            case s.Deallocate(name=str(name)):
                named(self.statements, name)
                del self.statements[name]
                return Done("DEALLOCATE")
            case s.ShowVariable():
                return show.variable(self.variables, self._of_postgres, statement)
            case s.Verify():
                return await self._verify(statement)
            case s.Explain():
                return await self._explain(statement, params)
            case _ if isinstance(statement, s.Show):
                return await show.run(self.coordinator, statement, self.names)
            case _:
                await self.end_implicit()  # What came before it happens before it.
                if self.transaction is not None:
                    raise SqlError(
                        "a transaction block cannot contain CREATE or DROP",
                        hint="COMMIT or ROLLBACK first; if it is your driver that begins transactions,"
                        " set it to autocommit",
                        sqlstate="25001",
                    )
                return await ddl.run(self, statement)

    def _columns(
        self, statement: s.Statement, params: tuple[Lit, ...]
    ) -> tuple[Column, ...] | None:
        """What the statement will return, without running it."""
        statement = qualified(statement, self.names)
        match statement:
            case s.Select():
                return self.read(statement, params).columns
            case s.Subscribe():
                plan = subscribed(self, statement, params)
                return envelope_of(statement, plan.columns).columns
            case s.Verify():
                return verify_columns(verified_view(self.coordinator, statement.name))
            case s.ShowVariable():
                return show.variable(self.variables, self._of_postgres, statement).columns
            case _ if isinstance(statement, s.Show):
                return show.columns_of(self.coordinator, statement, self.names)
            case s.Explain():
                return columns_of(statement)
            case s.Fetch(name=name):
                return self._cursors.named(name).columns
            case s.Insert() | s.Update() | s.Delete() if statement.returning:
                return writes.returned(self.coordinator, statement)
            case s.ExecutePrepared(name=name):
                prepared = named(self.statements, name)
                return None if prepared is None else prepared.columns
            case _:
                return None

    # What has a name.

    async def _declare(self, statement: s.Declare, params: tuple[Lit, ...]) -> Done:
        if self.transaction is None and not statement.hold:
            raise SqlError(
                "DECLARE CURSOR can only be used in transaction blocks",
                hint="BEGIN first, or declare it WITH HOLD",
                sqlstate="25P01",
            )
        self._cursors.check_free(statement.name)
        live = isinstance(statement.statement, s.Subscribe)
        if isinstance(statement.statement, s.Subscribe):
            rows = await subscription(self, statement.statement, params)
        else:
            rows = await self.select(statement.statement, params)
        self._cursors.declare(
            statement.name, rows, live=live, hold=statement.hold, binary=statement.binary
        )
        if self.transaction is None:
            await self._cursors.end_transaction(committed=True)
        return Done("DECLARE CURSOR")

    async def _prepare_named(self, statement: s.Prepare) -> Done:
        if statement.name in self.statements:
            raise SqlError(
                f'prepared statement "{statement.name}" already exists', sqlstate="42P05"
            )
        oids = tuple(type_.oid for type_ in statement.types)
        self.statements[statement.name] = await self.aside(
            lambda: self._prepare(statement.statement, statement.sql, oids)
        )
        return Done("PREPARE")

    async def _execute_prepared(
        self, statement: s.ExecutePrepared, params: tuple[Lit, ...]
    ) -> Result:
        prepared = named(self.statements, statement.name)
        if prepared is None:
            raise SqlError(f'prepared statement "{statement.name}" is empty', sqlstate="26000")
        self._check_runnable(prepared)
        arguments: tuple[Lit, ...] = ()
        if statement.arguments is not None:
            constant = folded(self._plan(statement.arguments, params))
            if constant is None:
                raise Unsupported(
                    "an argument of EXECUTE must be a literal", hint="compute it before"
                )
            (arguments,) = constant.rows  # pyright: ignore[reportAssignmentType] (literals only)
        given = prepared.given(statement.name, arguments)
        self._size = size_of(prepared.sql, given)
        return await self._execute(prepared.statement, given)

    # Reads.

    async def select(self, statement: s.Select, params: tuple[Lit, ...]) -> Rows:
        plan = await self.aside(lambda: self.read(statement, params))
        if isinstance(plan, CatalogQuery):
            # It sides with nobody: what there is has no history to read at one time.
            if self._ran is not None:
                self._ran.of_catalog = True
            return table_rows(*await plan.run(max_bytes=self.max_result_size))
        as_of, changes = await self.read_at(plan, statement.as_of)
        with self.coordinator.holds.at(as_of):  # What is large is folded for a while.
            constant = await self.aside(lambda: folded(at_time(plan, as_of)))
            if constant is not None:
                return table_rows(plan.columns, constant_table(constant, plan.columns))
            check_memory(self.coordinator)
            table = await self.coordinator.peek(
                plan,
                as_of,
                cluster=self.cluster,
                max_bytes=self.max_result_size,
                changes=changes,
                database=self.database,
            )
        return table_rows(plan.columns, table)

    @property
    def dialect(self) -> str:
        """What queries are written in."""
        return self.variables.get("dialect")

    def set(self, name: str, value: str | None, *, local: bool = False) -> None:
        """As SET and set_config do."""
        match name.lower(), value:
            case "cluster", str():
                self._set_cluster(value, local=local)
            case "database", str():
                self._set_database(value, local=local)
            case key, _:
                if key == "role":
                    self.identity.check(value)
                self.variables.set(name, value, local=local)

    @property
    def cluster(self) -> str:
        """Where queries run, and new objects go."""
        return self.variables.get("cluster")

    def _set_cluster(self, name: str, *, local: bool = False) -> None:
        known = self.coordinator.catalog.clusters
        name = name if name in known else name.lower()
        self.coordinator.clusters.named(name)
        self.variables.set("cluster", name, local=local)

    @property
    def database(self) -> str:
        return self.variables.get("database")

    def _set_database(self, name: str, *, local: bool = False) -> None:
        known = self.coordinator.catalog.databases
        name = name if name in known else name.lower()
        if name not in known:
            raise no_database(name)
        self.variables.set("database", name, local=local)

    @property
    def names(self) -> Names:
        """What names mean here."""
        database, path = self.database, self.variables.get("search_path")
        user = self.acting.name if "$user" in path else ""
        names = self._names
        if names is None or names.made_of != (database, user, path):
            names = Names(self.coordinator, database=database, user=user, search_path=path)
            self._names = names
        return names

    def catalog_query(self, statement: s.Select, params: tuple[Lit, ...]) -> CatalogQuery | None:
        """The query as one for the catalog's engine, if it reads nothing else."""
        if statement.as_of is not None:
            return None
        coordinator = self.coordinator
        asking = Asking(
            self.session_values(),
            {**self._of_postgres, **dict(self.variables.all())},
            self.set,
            self.names,
            now=(self.transaction and self.transaction.as_of)
            or coordinator.timelines[self.database].read_ts,
            started_ms=coordinator.engine.started_ms,
            pid=self.pid,
            role=self.acting.role,
        )
        return coordinator.engine.query(statement.query.tree, params, asking)

    def read(self, statement: s.Select, params: tuple[Lit, ...]) -> CatalogQuery | Plan:
        return self.catalog_query(statement, params) or self._plan(statement.query, params)

    def _plan(self, query: s.Query, params: tuple[Lit, ...]) -> Plan:
        plan = plan_query(query.tree, self.names, params=params, session=self.session_values())
        self.coordinator.database_of(plan)  # One that reads two is refused.
        return plan

    def session_values(self) -> dict[str, Lit]:
        """What `now()` and its kin mean in a one-off query."""
        transaction, clock = self.transaction, self.coordinator.clock
        now = show.now_literals(clock.now_ms() if transaction is None else transaction.began_ms)
        text = {
            "version": "PostgreSQL 16.0 (Tidemark 0.1.0)",
            **dict.fromkeys(("current_user", "current_role", "user"), self.acting.name),
            "session_user": self.identity.user.name,
            "current_database": self.database,
            "current_catalog": self.database,
            "current_schema": self.names.current_schema,
        }
        return {**now, **{name: Lit(value, TEXT) for name, value in text.items()}}

    async def read_at(
        self,
        plan: Plan,
        as_of: s.AsOf | None = None,
        *,
        strict: bool = False,
        database: str | None = None,
    ) -> tuple[int, dict[str, pa.Table]]:
        """When to read, and what the transaction has written itself. A time that is asked for is
        read as it was: the transaction neither adds to that nor rests on it. A query of no
        relations is asked of `database`, or else of the session's."""
        transaction, behind_ms = self.transaction, 0 if strict else self.behind_ms
        if as_of is not None:
            newest = self.newest(plan, None)
            return max(as_of.time, newest) if as_of.at_least else as_of.time, {}
        if transaction is None:
            return await self.now(plan, behind_ms, database), {}
        transaction.use(self.coordinator.database_of(plan))
        transaction.begin_read(self.coordinator.catalog, plan)
        if transaction.as_of is None:
            transaction.use(transaction.database or database or self.database)
            transaction.as_of = await self.now(plan, behind_ms, transaction.database)
            transaction.hold = self.coordinator.holds.acquire(transaction.as_of)
        return transaction.as_of, transaction.own_changes(self.coordinator.catalog, plan)

    async def now(self, plan: Plan, behind_ms: int | None, database: str | None = None) -> int:
        """The time to read at, by the session's settings."""
        recent = 0
        if self.variables.get("real_time_recency") == "on":
            if behind_ms != 0:
                raise SqlError(
                    "real_time_recency is for strict serializable transactions",
                    hint="SET transaction_isolation = 'strict serializable', or"
                    " SET real_time_recency = false",
                    sqlstate="22023",
                )
            seconds = timeout_seconds(self.variables.get("real_time_recency_timeout"))
            recent = await self.coordinator.recency.time(plan, seconds=seconds)
        return max(recent, self.newest(plan, behind_ms, database))

    def newest(self, plan: Plan, behind_ms: int | None, database: str | None = None) -> int:
        return self.coordinator.timestamp(
            plan, behind_ms=behind_ms, database=database or self.database
        )

    @property
    def _of_postgres(self) -> dict[str, str]:
        read_only = self.transaction is not None and self.transaction.read_only
        return of_postgres(is_superuser=self.acting.is_superuser, read_only=read_only)

    @property
    def max_result_size(self) -> int:
        return byte_size(self.variables.get("max_result_size"))

    @property
    def behind_ms(self) -> int | None:
        return behind_ms(self.variables.get("transaction_isolation"))

    async def _verify(self, statement: s.Verify) -> Rows:
        if self.transaction is not None:
            self.transaction.use(self.coordinator.item(statement.name).database)
        as_of = statement.as_of
        if as_of is None and self.transaction is not None and self.transaction.as_of is not None:
            as_of = s.AsOf(self.transaction.as_of)
        rows, notice = await verify(self.coordinator, statement.name, as_of, cluster=self.cluster)
        self._notices.append(notice)
        return rows

    async def _explain(self, statement: s.Explain, params: tuple[Lit, ...]) -> Rows:
        query, plan = statement.query, None
        if query is not None:
            plan = await self.aside(lambda: self._plan(query, params))
        return explained(
            self.coordinator,
            statement,
            plan,
            cluster=self.cluster,
            behind_ms=self.behind_ms,
            names=self.names,
        )

    # Transactions.

    def _begin(self, modes: str) -> Done:
        if self.transaction is None:
            self._start()
        elif self.transaction.implicit:
            self.transaction.implicit = False  # What came before it is part of it.
        else:
            self.warn("there is already a transaction in progress", "25001")
            return Done("BEGIN")
        if modes:
            self._set_modes(modes, local=True)
        return Done("BEGIN")

    def _start(self, *, implicit: bool = False) -> None:
        self.variables.begin()
        began_ms = self.coordinator.clock.now_ms()
        self.transaction = Transaction(began_ms=began_ms, implicit=implicit)

    def _set_modes(self, modes: str, *, local: bool) -> None:
        """The modes of BEGIN and SET TRANSACTION (local), or SET SESSION CHARACTERISTICS."""
        named = [name for name in ISOLATION if f"isolation level {name}" in modes]
        transaction = self.transaction
        if local and transaction is None:
            self.warn("SET TRANSACTION has no effect outside a transaction block", "25P01")
            return
        if not local and "read only" in modes:
            raise Unsupported(
                "sessions that only read are not supported", hint="use BEGIN READ ONLY"
            )
        if local and transaction is not None:
            if transaction.used:
                raise SqlError("SET TRANSACTION must come before any query", sqlstate="25001")
            if "read only" in modes or "read write" in modes:
                transaction.read_only = "read only" in modes
        if named:
            self.variables.set("transaction_isolation", max(named, key=len), local=local)

    async def _commit(self) -> Done:
        if self.transaction is None or self.transaction.implicit:
            self.warn("there is no transaction in progress", "25P01")
        return Done("COMMIT" if self.transaction is None else await self._finish())

    async def _finish(self) -> str:
        """Commit the transaction, or roll back one that has failed: which of the two it was."""
        transaction, committed = self.transaction, False
        assert transaction is not None
        try:
            if transaction.failed:
                return "ROLLBACK"
            if transaction.writes:
                writes.check_tables(self.coordinator.catalog, transaction.writes)
                assert transaction.database is not None
                timeline = self.coordinator.timelines[transaction.database]
                await timeline.write(transaction.writes, reads=transaction.reads)
            committed = True
            return "COMMIT"
        finally:
            await self._end_transaction(committed=committed)

    async def _savepoint(self, statement: s.Savepoint | s.Release | s.RollbackTo) -> Done:
        transaction = self.transaction
        if transaction is None or transaction.implicit:
            raise SqlError("savepoints are for transaction blocks: BEGIN first", sqlstate="25P01")
        done = await transaction.savepoints.run(
            statement, transaction.writes, self.variables, self._cursors
        )
        if isinstance(statement, s.RollbackTo):
            transaction.failed = False
        return done

    async def _let_go(self) -> None:
        """A transaction that has failed can only end, unless it can go back to a savepoint."""
        if self.transaction is not None and not self.transaction.savepoints:
            self.transaction.writes.clear()
            await self._cursors.end_transaction(committed=False)

    async def _end_transaction(self, *, committed: bool) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            self.variables.end(committed=committed)
            if transaction.hold is not None:
                self.coordinator.holds.release(transaction.hold)
            await self._cursors.end_transaction(committed=committed)

    def _check_runnable(self, prepared: Prepared) -> None:
        """Also that it returns what was said: once it has written, that would be too late."""
        statement = prepared.statement
        self._check_usable(statement)
        writing = isinstance(statement, writes.Returning) and statement.returning
        if writing or isinstance(statement, s.ExecutePrepared):
            check_same_shape(prepared.columns, self._columns(statement, ()))

    def _check_usable(self, statement: s.Statement) -> None:
        failed = self.transaction is not None and self.transaction.failed
        if failed and not isinstance(statement, s.Commit | s.Rollback | s.RollbackTo):
            raise SqlError(
                "current transaction is aborted, commands ignored until end of transaction block",
                sqlstate="25P02",
            )
