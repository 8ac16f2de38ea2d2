"""INSERT, UPDATE and DELETE as queries: which rows go, which rows come.

    INSERT   the new rows, in the table's column order
    UPDATE   each old row followed by its new row, in one wide row
    DELETE   the old rows

Values are converted to the column's type by PostgreSQL's assignment rules (42804 where there is
no such conversion). NOT NULL is checked when the rows are known, by whoever runs the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp

from tidemark.compute.expr import Col, Expr, Lit, columns_of
from tidemark.compute.literals import UNKNOWN
from tidemark.compute.plan import Constant, Finish, Get, Plan, Project
from tidemark.compute.sql import Resolver, plan_query
from tidemark.compute.sql.context import Context
from tidemark.compute.sql.dialect import hint_of
from tidemark.compute.sql.expressions import Expressions
from tidemark.compute.sql.from_ import from_clause
from tidemark.compute.sql.scope import Scope
from tidemark.compute.sql.select import rows_plan, surroundings
from tidemark.compute.sql.subqueries import Pending
from tidemark.control import statements as s
from tidemark.control.assign import assigned, assigned_literal, large
from tidemark.control.defaults import NO_DEFAULTS, Defaults, is_default
from tidemark.errors import SqlError, Unsupported
from tidemark.persist import DIFF
from tidemark.types import Column

Params = tuple[Lit, ...]
Session = Mapping[str, Lit]


def plan_insert(
    statement: s.Insert,
    resolver: Resolver,
    *,
    params: Params = (),
    session: Session | None = None,
    defaults: Defaults = NO_DEFAULTS,
) -> Plan:
    """A plan of the new rows; `defaults` are what columns are of which nothing is said."""
    table = _table(resolver, statement.table)
    targets = _targets(table, statement.columns)
    if statement.query is None:
        return _literal_rows(statement, table, targets, defaults)
    tree = statement.query.tree
    if isinstance(tree, exp.Values) and not any(
        tree.args.get(part) for part in ("order", "limit", "offset", "with_")
    ):
        planner = Expressions(Scope(), "VALUES", params, session or {})
        return _value_rows(tree, planner, statement, table, targets, defaults)
    # In no order that it asks for; what it sorts by has to have a type.
    settle = tree.args.get("order") is not None
    plan = plan_query(tree, resolver, params=params, session=session, settle=settle)
    _check_width(len(plan.columns), len(targets), explicit=bool(statement.columns))
    if isinstance(plan, Finish):
        if plan.limit is not None or plan.offset:
            raise Unsupported("INSERT ... SELECT ... LIMIT is not supported", hint="use WHERE")
        columns, plan = plan.columns, plan.input
    else:
        plan = _taken_for(plan, [table.columns[target] for target in targets])
        columns = plan.columns
    given = {
        target: assigned(Col(at, column.type), table.columns[target])
        for at, (target, column) in enumerate(zip(targets, columns, strict=False))
    }
    return Project(plan, _full_row(table, given, defaults), _names(table))


def _taken_for(plan: Plan, columns: list[Column]) -> Plan:
    """The plan, with the quoted literals and NULLs of its select list as the columns they go to."""
    if not isinstance(plan, Project):
        return plan
    outputs = list(plan.outputs)
    for at, (expr, column) in enumerate(zip(outputs, columns, strict=False)):
        if expr.type == UNKNOWN:
            outputs[at] = assigned(expr, column)
    return Project(plan.input, tuple(outputs), plan.names)


def plan_update(
    statement: s.Update,
    resolver: Resolver,
    *,
    params: Params = (),
    session: Session | None = None,
    defaults: Defaults = NO_DEFAULTS,
) -> Plan:
    """A plan of old and new rows, side by side; only rows that the condition selects."""
    table = _table(resolver, statement.table)
    rows = _Rows(table, statement, surroundings(resolver, params, session))
    new: list[Expr] = [Col(at, column.type) for at, column in enumerate(table.columns)]
    for name, node in statement.assignments:
        at = _position(table, name, statement.table)
        column = table.columns[at]
        if is_default(node):
            new[at] = _default(column, defaults)
        else:
            new[at] = large(node, column) or assigned(rows.value(node), column)
    old = tuple(Col(at, column.type) for at, column in enumerate(table.columns))
    names = tuple(f"{when}_{name}" for when in ("old", "new") for name in _names(table))
    plan, new = rows.pending.attached(rows.selected(), new)
    return Project(plan, (*old, *new), names)


def plan_delete(
    statement: s.Delete,
    resolver: Resolver,
    *,
    params: Params = (),
    session: Session | None = None,
) -> Plan:
    """A plan of the rows that the condition selects."""
    table = _table(resolver, statement.table)
    return _Rows(table, statement, surroundings(resolver, params, session)).selected()


def _table(resolver: Resolver, name: s.Name) -> Get:
    table = resolver.resolve(name)
    if not isinstance(table, Get):
        raise SqlError(f'"{name[-1]}" is not a table', sqlstate="42809")
    return table


class _Rows:
    """The rows of a table that UPDATE and DELETE are about, with what stands in FROM or USING.

    A table is a multiset, so a row is never joined to its partners: that it has one is a condition,

        DELETE FROM t USING u WHERE c          DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE c)

    and what it takes from it is a subquery, of which more than one row is an error:

        UPDATE t SET a = u.b FROM u WHERE c    UPDATE t SET a = (SELECT u.b FROM u WHERE c)
                                               WHERE EXISTS (SELECT 1 FROM u WHERE c)
    """

    def __init__(self, table: Get, statement: s.Update | s.Delete, context: Context):
        self._table = table
        self._where = statement.where
        self._source = statement.source
        self._context = context
        self.pending = Pending(context)
        name, alias = statement.table, statement.alias
        self._scope = Scope()
        self._scope.add(alias or name[-1], table.columns, () if alias else name)
        self._both = self._scope
        if statement.source is not None:
            others = from_clause(context, statement.source).scope
            self._check_apart(alias or name[-1], others)
            self._both = self._scope.beside(others)
            if self._where is not None:
                self._seen(self._where)

    def _check_apart(self, name: str, others: Scope) -> None:
        """The table itself, by a shorter name than the full one that it has here."""
        for each in others.relations:
            named = each.parts if each.name == name else ()
            if named and self._context.resolver.resolve(named) == self._table:
                raise SqlError(
                    f'table name "{name}" specified more than once',
                    hint="give one of them an alias",
                    sqlstate="42712",
                )

    def selected(self) -> Plan:
        where = self._where
        if self._source is not None:
            where = exp.Exists(this=self._partners(exp.Literal.number(1)))
        if where is None:
            return self._table
        return self.pending.filtered(self._table, self._planner(self._scope).predicate(where))

    def value(self, node: exp.Expr) -> Expr:
        """What a column is set to."""
        if self._source is not None:
            width = len(self._table.columns)
            uses = any(each >= width for each in columns_of(self._seen(node)))
            if uses or node.find(exp.Query):
                node = exp.Subquery(this=self._partners(node))
        return self._planner(self._scope).plan(node)

    def _partners(self, node: exp.Expr) -> exp.Select:
        assert self._source is not None
        query = self._source.copy()
        query.set("expressions", [node.copy()])
        if self._where is not None:
            query.set("where", exp.Where(this=self._where.copy()))
        return query

    def _seen(self, node: exp.Expr) -> Expr:
        """In a subquery a name would be of FROM before it is the table's; here it is ambiguous."""
        return self._planner(self._both, Pending(self._context)).plan(node)

    def _planner(self, scope: Scope, pending: Pending | None = None) -> Expressions:
        context = self._context
        return Expressions(
            scope, "WHERE", context.params, context.session, subqueries=pending or self.pending
        )


def _targets(table: Get, names: tuple[str, ...]) -> list[int]:
    if not names:
        return list(range(len(table.columns)))
    return [_position(table, name, None) for name in names]


def _position(table: Get, name: str, relation: s.Name | None) -> int:
    for at, column in enumerate(table.columns):
        if column.name == name:
            return at
    of = f' of relation "{relation[-1]}"' if relation else ""
    hint = hint_of(name, (column.name for column in table.columns))
    raise SqlError(f'column "{name}"{of} does not exist', hint=hint, sqlstate="42703")


def _check_width(given: int, wanted: int, *, explicit: bool) -> None:
    if given > wanted:
        raise SqlError("INSERT has more expressions than target columns")
    if explicit and given < wanted:
        raise SqlError("INSERT has more target columns than expressions")


def _literal_rows(statement: s.Insert, table: Get, targets: list[int], defaults: Defaults) -> Plan:
    width = len(statement.rows[0])
    if any(len(row) != width for row in statement.rows):
        raise SqlError("VALUES lists must all be the same length")
    _check_width(width, len(targets), explicit=bool(statement.columns))
    return _constant_rows(statement.rows, table, targets[:width], defaults)


def _value_rows(
    tree: exp.Values,
    planner: Expressions,
    statement: s.Insert,
    table: Get,
    targets: list[int],
    defaults: Defaults,
) -> Plan:
    """VALUES straight into columns: a parameter or quoted literal takes the column's type."""
    rows: list[list[Expr]] = []
    for row in tree.expressions:
        nodes = row.expressions if isinstance(row, exp.Tuple) else [row]
        if rows and len(nodes) != len(tree.expressions[0].expressions):
            raise SqlError("VALUES lists must all be the same length")
        _check_width(len(nodes), len(targets), explicit=bool(statement.columns))
        given = {
            target: large(node, column) or assigned(planner.plan(node), column)
            for target, node in zip(targets, nodes, strict=False)
            for column in (table.columns[target],)
            if not is_default(node)
        }
        rows.append(list(_full_row(table, given, defaults)))
    return rows_plan(rows, table.columns)


def _constant_rows(
    rows: tuple[tuple[Lit, ...], ...], table: Get, targets: list[int], defaults: Defaults
) -> Plan:
    """Literals as literals of the columns' types; the fast path for large INSERTs."""
    position = {target: at for at, target in enumerate(targets)}
    missing = {
        at: _default(column, defaults)
        for at, column in enumerate(table.columns)
        if at not in position
    }
    columns = [table.columns[target] for target in targets]
    made: list[tuple[Lit, ...]] = []
    for row in rows:
        values = [
            assigned_literal(literal, column) for literal, column in zip(row, columns, strict=True)
        ]
        made.append(
            tuple(
                values[position[at]] if at in position else missing[at]
                for at in range(len(table.columns))
            )
        )
    return Constant(tuple(made), table.columns)


def _default(column: Column, defaults: Defaults) -> Lit:
    return defaults.get(column.name) or Lit(None, column.type)


def _full_row(table: Get, given: dict[int, Expr], defaults: Defaults) -> tuple[Expr, ...]:
    return tuple(
        given.get(at) or _default(column, defaults) for at, column in enumerate(table.columns)
    )


def _names(table: Get) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)


def with_diff(rows: pa.Table, diff: int) -> pa.Table:
    return rows.append_column(DIFF, pa.repeat(pa.scalar(diff, pa.int64()), rows.num_rows))


class Changes(NamedTuple):
    """`rows` with `_diff`, and of them those that the statement has made, or taken away."""

    rows: pa.Table
    hit: pa.Table


def changes(statement, columns: tuple[Column, ...], found: pa.Table) -> Changes:
    """What a read-then-write statement found, as what it changes."""
    names = [column.name for column in columns]
    width = len(columns)
    first = found.select(list(range(width))).rename_columns(names)
    match statement:
        case s.Insert():
            return Changes(with_diff(first, 1), first)
        case s.Delete() | s.Truncate():
            return Changes(with_diff(first, -1), first)
        case _:
            second = found.select(list(range(width, 2 * width))).rename_columns(names)
            both = pa.concat_tables([with_diff(first, -1), with_diff(second, 1)])
            return Changes(both, second)
