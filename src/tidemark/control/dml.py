"""INSERT, UPDATE and DELETE as queries: which rows go, which rows come.

    INSERT   the new rows, in the table's column order
    UPDATE   each old row followed by its new row, in one wide row
    DELETE   the old rows

Values are converted to the column's type by PostgreSQL's assignment rules (42804 where there is
no such conversion). NOT NULL is checked when the rows are known, by whoever runs the query.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from tidemark.compute.casts import cast, castable
from tidemark.compute.expr import Col, Expr, Lit
from tidemark.compute.literals import UNKNOWN, converted
from tidemark.compute.plan import Constant, Filter, Finish, Get, Plan, Project
from tidemark.compute.sql import Resolver, plan_query
from tidemark.compute.sql.expressions import Expressions
from tidemark.compute.sql.scope import Scope
from tidemark.compute.sql.select import rows_plan
from tidemark.control import statements as s
from tidemark.errors import SqlError, Unsupported
from tidemark.types import Column

Params = tuple[Lit, ...]
Session = Mapping[str, Lit]


def plan_insert(
    statement: s.Insert,
    resolver: Resolver,
    *,
    params: Params = (),
    session: Session | None = None,
) -> Plan:
    """A plan of the new rows."""
    table = _table(resolver, statement.table)
    targets = _targets(table, statement.columns)
    if statement.query is None:
        return _literal_rows(statement, table, targets)
    tree = statement.query.tree
    if isinstance(tree, exp.Values) and not any(
        tree.args.get(part) for part in ("order", "limit", "offset", "with_")
    ):
        planner = Expressions(Scope(), "VALUES", params, session or {})
        return _value_rows(tree, planner, statement, table, targets)
    plan = plan_query(tree, resolver, params=params, session=session)
    _check_width(len(plan.columns), len(targets), explicit=bool(statement.columns))
    columns = plan.columns
    if isinstance(plan, Finish):
        if plan.limit is not None or plan.offset:
            raise Unsupported("INSERT ... SELECT ... LIMIT is not supported", hint="use WHERE")
        plan = plan.input
    given = {
        target: _assigned(Col(at, column.type), table.columns[target])
        for at, (target, column) in enumerate(zip(targets, columns, strict=False))
    }
    return Project(plan, _full_row(table, given), _names(table))


def plan_update(
    statement: s.Update,
    resolver: Resolver,
    *,
    params: Params = (),
    session: Session | None = None,
) -> Plan:
    """A plan of old and new rows, side by side; only rows that the condition selects."""
    table = _table(resolver, statement.table)
    planner = _over(table, statement.table, statement.alias, params, session)
    new: list[Expr] = [Col(at, column.type) for at, column in enumerate(table.columns)]
    for name, node in statement.assignments:
        at = _position(table, name, statement.table)
        new[at] = _assigned(planner.plan(node), table.columns[at])
    old = tuple(Col(at, column.type) for at, column in enumerate(table.columns))
    names = tuple(f"{when}_{name}" for when in ("old", "new") for name in _names(table))
    return Project(_selected(table, statement.where, planner), (*old, *new), names)


def plan_delete(
    statement: s.Delete,
    resolver: Resolver,
    *,
    params: Params = (),
    session: Session | None = None,
) -> Plan:
    """A plan of the rows that the condition selects."""
    table = _table(resolver, statement.table)
    planner = _over(table, statement.table, statement.alias, params, session)
    return _selected(table, statement.where, planner)


def _table(resolver: Resolver, name: s.Name) -> Get:
    table = resolver.resolve(name)
    if not isinstance(table, Get):
        raise SqlError(f'"{name[-1]}" is not a table', sqlstate="42809")
    return table


def _over(
    table: Get, name: s.Name, alias: str | None, params: Params, session: Session | None
) -> Expressions:
    scope = Scope()
    scope.add(alias or name[-1], table.columns, () if alias else name)
    return Expressions(scope, "WHERE", params, session or {})


def _selected(table: Get, where: exp.Expr | None, planner: Expressions) -> Plan:
    return table if where is None else Filter(table, planner.predicate(where))


def _targets(table: Get, names: tuple[str, ...]) -> list[int]:
    if not names:
        return list(range(len(table.columns)))
    return [_position(table, name, None) for name in names]


def _position(table: Get, name: str, relation: s.Name | None) -> int:
    for at, column in enumerate(table.columns):
        if column.name == name:
            return at
    of = f' of relation "{relation[-1]}"' if relation else ""
    raise SqlError(f'column "{name}"{of} does not exist', sqlstate="42703")


def _check_width(given: int, wanted: int, *, explicit: bool) -> None:
    if given > wanted:
        raise SqlError("INSERT has more expressions than target columns")
    if explicit and given < wanted:
        raise SqlError("INSERT has more target columns than expressions")


def _literal_rows(statement: s.Insert, table: Get, targets: list[int]) -> Plan:
    width = len(statement.rows[0])
    if any(len(row) != width for row in statement.rows):
        raise SqlError("VALUES lists must all be the same length")
    _check_width(width, len(targets), explicit=bool(statement.columns))
    return _constant_rows(statement.rows, table, targets[:width])


def _value_rows(
    tree: exp.Values, planner: Expressions, statement: s.Insert, table: Get, targets: list[int]
) -> Plan:
    """VALUES straight into columns: a parameter or quoted literal takes the column's type."""
    rows: list[list[Expr]] = []
    for row in tree.expressions:
        nodes = row.expressions if isinstance(row, exp.Tuple) else [row]
        if rows and len(nodes) != len(tree.expressions[0].expressions):
            raise SqlError("VALUES lists must all be the same length")
        _check_width(len(nodes), len(targets), explicit=bool(statement.columns))
        given = {
            target: _assigned(planner.plan(node), table.columns[target])
            for target, node in zip(targets, nodes, strict=False)
        }
        rows.append(list(_full_row(table, given)))
    return rows_plan(rows, table.columns)


def _constant_rows(rows: tuple[tuple[Lit, ...], ...], table: Get, targets: list[int]) -> Plan:
    """Literals as literals of the columns' types; the fast path for large INSERTs."""
    position = {target: at for at, target in enumerate(targets)}
    missing = {
        at: Lit(None, column.type) for at, column in enumerate(table.columns) if at not in position
    }
    columns = [table.columns[target] for target in targets]
    made: list[tuple[Lit, ...]] = []
    for row in rows:
        values = [
            _assigned_literal(literal, column) for literal, column in zip(row, columns, strict=True)
        ]
        made.append(
            tuple(
                values[position[at]] if at in position else missing[at]
                for at in range(len(table.columns))
            )
        )
    return Constant(tuple(made), table.columns)


def _assigned_literal(literal: Lit, column: Column) -> Lit:
    if literal.type == column.type:
        return literal
    if literal.value is None:
        return Lit(None, column.type)
    if literal.type != UNKNOWN:
        _check_assignable(literal, column)
    if column.type.name == "text" and literal.type != UNKNOWN:
        return Lit(literal.value, column.type)
    made = converted(literal, column.type)
    if made is None:
        raise SqlError(_overflow(column), sqlstate="22003")
    return made


def _overflow(column: Column) -> str:
    return (
        "numeric field overflow" if column.type.name == "numeric" else f"{column.type} out of range"
    )


def _assigned(value: Expr, column: Column) -> Expr:
    _check_assignable(value, column)
    return cast(value, column.type, context="assignment")


def _check_assignable(value: Expr, column: Column) -> None:
    if not castable(value.type, column.type, "assignment"):
        raise SqlError(
            f'column "{column.name}" is of type {column.type} but expression is of type {value.type}',
            hint="you will need to rewrite or cast the expression",
            sqlstate="42804",
        )


def _full_row(table: Get, given: dict[int, Expr]) -> tuple[Expr, ...]:
    return tuple(given.get(at, Lit(None, column.type)) for at, column in enumerate(table.columns))


def _names(table: Get) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)
