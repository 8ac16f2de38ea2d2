"""Queries of system relations alone, answered inside control by DuckDB over Arrow tables.

One in-memory database has the functions (`database.py`), for each way of looking at the catalog (a
database and a search path) that sessions have; every query has a cursor of its own, and in it the
relations that it reads, as they are when it is asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import duckdb
import pyarrow as pa
from sqlglot import exp

from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.expr import Lit
from tidemark.compute.functions import FUNCTIONS
from tidemark.compute.sql.dialect import identifier
from tidemark.control.pg import functions
from tidemark.control.pg.casts import SYSTEM_TYPES, type_name
from tidemark.control.pg.database import bound, described, fetched, opened, schema_of, table_of
from tidemark.control.pg.rewrite import SCALARS_IN_FROM, Context, duckdb_sql
from tidemark.control.pg.seen import Seen
from tidemark.control.pg.session import Asking
from tidemark.control.relation import SystemRelation
from tidemark.errors import SqlError
from tidemark.types import Column

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator

T = TypeVar("T")

THREADS = 4
"""Queries at a time, of their own: one that takes long holds up nothing but its like."""

MOST_VIEWS = 16
"""Ways of looking that are kept; another is made when it is needed."""

_FROM = ("generate_series", "generate_subscripts", "unnest", "pg_get_keywords")
"""Functions that may stand where a relation does."""


class CatalogQuery:
    """A query that the engine takes, in DuckDB's words."""

    def __init__(self, engine: Engine, sql: str, relations: list[SystemRelation], asking: Asking):
        self._engine = engine
        self._view = engine.view(asking.database, asking.path)
        self._sql = sql
        self._relations = relations
        self._asking = asking

    @property
    def relations(self) -> list[SystemRelation]:
        return self._relations

    @property
    def columns(self) -> tuple[Column, ...]:
        """What it returns; nothing is read for that."""
        with self._view.cursor() as cursor:
            for each in self._relations:
                cursor.register(each.id, schema_of(each.columns).empty_table())
            return described(bound(cursor, self._sql))

    async def run(self, *, max_bytes: int = 0) -> tuple[tuple[Column, ...], pa.Table]:
        """The result, which may take up to `max_bytes` if that is not 0."""
        self._asking.take_effect()
        cursor = self._view.cursor()
        for each in self._relations:
            cursor.register(each.id, self._view.table(each, self._asking))
        return await self._engine.aside(cursor, fetched, self._sql, max_bytes)


class View:
    """One way of looking: the functions as they answer there, and what follows from the objects
    alone, which is kept until they change."""

    def __init__(self, coordinator: Coordinator, database: str, path: tuple[str, ...]):
        self._make = lambda: Seen(coordinator, database, path)
        self._seen = self._make()
        self._database: duckdb.DuckDBPyConnection | None = None
        self._kept: dict[str, pa.Table] = {}

    def seen(self) -> Seen:
        if not self._seen.is_current:
            self._seen, self._kept = self._make(), {}
        return self._seen

    def cursor(self) -> duckdb.DuckDBPyConnection:
        if self._database is None:
            self._database = opened(self.seen)
        return self._database.cursor()

    def table(self, relation: SystemRelation, asking: Asking) -> pa.Table:
        """The relation now."""
        seen = self.seen()
        if relation.id == asking.settings.id:
            return table_of(asking.settings, seen)
        if relation.schema.startswith("mz_"):
            return table_of(relation, seen)
        if relation.id not in self._kept:
            self._kept[relation.id] = table_of(relation, seen)
        return self._kept[relation.id]

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


class Engine:
    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator
        self.started_ms = coordinator.clock.now_ms()
        self._arrays = {
            column.name: column.type
            for each in coordinator.system
            for column in each.columns
            if column.type.element is not None
        }
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="catalog-query")
        self._lock = threading.Lock()  # Large queries are prepared in threads.
        self._views: dict[tuple[str, tuple[str, ...]], View] = {}
        self._running: set[duckdb.DuckDBPyConnection] = set()

    def view(self, database: str, path: tuple[str, ...] = ()) -> View:
        with self._lock:
            found = self._views.pop((database, path), None)
            if found is None:
                found = View(self._coordinator, database, path)
            self._views[database, path] = found  # The newest is the last.
            if len(self._views) > MOST_VIEWS:
                # Not closed: a query may still be running in it.
                del self._views[next(iter(self._views))]
            return found

    def seen(self, database: str) -> Seen:
        return self.view(database).seen()

    async def aside(
        self, cursor: duckdb.DuckDBPyConnection, work: Callable[..., T], *args: object
    ) -> T:
        """What may take long, in a thread; it is stopped when nobody waits for it any more."""
        self._running.add(cursor)
        running = self.threads.submit(work, cursor, *args)
        running.add_done_callback(lambda _: self._running.discard(cursor))
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            _interrupt(cursor)
            raise

    def query(self, tree: exp.Expr, params: tuple[Lit, ...], asking: Asking) -> CatalogQuery | None:
        """The query, if it is about nothing but the catalog."""
        found = _relations(tree, asking)
        if found is None or not (found or _calls(tree, asking)):
            return None
        copy = tree.copy()  # It is rewritten in place.
        found = _relations(copy, asking) or []
        context = Context(
            [(node, each.id) for node, each in found],
            params,
            asking.answers,
            self._arrays,
            lambda kind, name: _oid(self.view(asking.database, asking.path).seen(), kind, name),
        )
        relations = {each.id: each for _, each in found}
        return CatalogQuery(self, duckdb_sql(copy, context), list(relations.values()), asking)

    def close(self) -> None:
        """What still runs is stopped, and waited for: nothing that is in use can be closed."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        while running := list(self._running):
            for cursor in running:
                _interrupt(cursor)
            SYSTEM_CLOCK.sleep(0.01)
        for view in self._views.values():
            view.close()


def _interrupt(cursor: duckdb.DuckDBPyConnection) -> None:
    with suppress(duckdb.ConnectionException):  # It may be through, and closed, by now.
        cursor.interrupt()


def _oid(seen: Seen, kind: str, name: str) -> int:
    found = functions.OIDS[kind](seen, name)
    if found is None:
        what = {"regclass": "relation", "regtype": "type", "regnamespace": "schema"}[kind]
        state = {"regclass": "42P01", "regtype": "42704", "regnamespace": "3F000"}[kind]
        raise SqlError(f'{what} "{name}" does not exist', sqlstate=state)
    return found


def _relations(tree: exp.Expr, asking: Asking) -> list[tuple[exp.Table, SystemRelation]] | None:
    """The system relations of a query; None if it reads anything else."""
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    found: list[tuple[exp.Table, SystemRelation]] = []
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Anonymous):
            if identifier(node.this.this) not in (*_FROM, *SCALARS_IN_FROM):
                return None
            continue
        parts = tuple(identifier(part) for part in node.parts)
        if len(parts) == 1 and parts[0] in ctes:
            continue
        relation = asking.system(parts)
        if relation is None:
            return None
        found.append((node, relation))
    return found


def _calls(tree: exp.Expr, asking: Asking) -> bool:
    """Whether a query without relations asks something that only the catalog answers."""
    # What views may call is the planner's, which is exact; the time is for the transaction to say.
    known = (functions.NAMES | asking.own) - FUNCTIONS.keys() - {"mz_now"}
    for node in tree.find_all(exp.Anonymous):
        if identifier(node.this) in known:
            return True
    return any(type_name(node.args["to"])[0] in SYSTEM_TYPES for node in tree.find_all(exp.Cast))
