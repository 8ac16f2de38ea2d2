"""Queries to plans: SELECT, VALUES and set operations, with what stands around them.

The clauses of a SELECT are planned in the order in which they are evaluated:

    FROM · WHERE · GROUP BY · HAVING · window functions · the select list · DISTINCT · ORDER BY · LIMIT

Expressions of all clauses are read first, because aggregates, window functions and subqueries
collect from several of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from tidemark.compute.casts import settled
from tidemark.compute.expr import Col, Expr, Lit, columns_of, substitute, walk
from tidemark.compute.literals import UNKNOWN
from tidemark.compute.plan import (
    MOST_NODES,
    Aggregate,
    OrderBy,
    Plan,
    Project,
    Reduce,
    TopK,
    size,
    too_large,
)
from tidemark.compute.sql.context import Context
from tidemark.compute.sql.correlation import (
    aggregate_expressions,
    cols_of,
    has_outer,
    has_own,
    map_aggregate,
)
from tidemark.compute.sql.ctes import with_ctes
from tidemark.compute.sql.dialect import identifier
from tidemark.compute.sql.expressions import Expressions
from tidemark.compute.sql.from_ import from_clause
from tidemark.compute.sql.grouping import Grouping, Keys, change_window, grouped, grouping_keys
from tidemark.compute.sql.lowering import ONE_ROW
from tidemark.compute.sql.ordering import (
    Item,
    Ordered,
    bare_name,
    bounds_of,
    check_distinct_on,
    limited,
    named,
    ordered_as,
    ordinal,
)
from tidemark.compute.sql.output_names import output_name
from tidemark.compute.sql.renaming import check_distinct_names, renamed
from tidemark.compute.sql.scope import Resolver, Scope
from tidemark.compute.sql.set_operations import combined
from tidemark.compute.sql.subqueries import ROWS_BASE, Pending
from tidemark.compute.sql.values import rows_plan, values_plan
from tidemark.compute.sql.windows import WINDOW_BASE, WindowCall, with_windows
from tidemark.errors import SqlError, Unsupported

__all__ = ["ONE_ROW", "plan_query", "rows_plan", "surroundings", "values_plan"]


def plan_query(
    tree: exp.Expr,
    resolver: Resolver,
    *,
    params: tuple[Lit, ...] = (),
    session: Mapping[str, Lit] | None = None,
    view: bool = False,
    names: tuple[str, ...] = (),
    settle: bool = True,
) -> Plan:
    """The plan of a query.

    `params` are the values of $1, $2, ...; `session` those of functions like `now()` and
    `version()` that are constant within one query (none in a view). As a `view`, an ORDER BY
    without a limit is ignored, and column names must differ. `names` renames the first columns.
    Unless it is to `settle`, bare literals in its select list have no type yet.
    """
    context = Context(resolver, _nested, params, {} if view else session or {})
    plan = _query(context, tree, root=not view, settle=settle)
    plan = renamed(plan, names)
    if view:
        check_distinct_names(plan)
        if size(plan) > MOST_NODES:  # It could be made, but not read.
            raise too_large()
    return plan


def surroundings(
    resolver: Resolver, params: tuple[Lit, ...], session: Mapping[str, Lit] | None
) -> Context:
    """For clauses that stand in no query, as those of UPDATE."""
    return Context(resolver, _nested, params, session or {})


# Queries ---------------------------------------------------------------------------------------


def _nested(context: Context, tree: exp.Expr) -> Plan:
    return _query(context, tree, root=False)


def _unsettled(context: Context, tree: exp.Expr) -> Plan:
    return _query(context, tree, root=False, settle=False)


def _query(context: Context, tree: exp.Expr, *, root: bool, settle: bool = True) -> Plan:
    """A query; unless it is to `settle`, bare literals in its select list have no type yet."""

    def body(inside: Context) -> Plan:
        match tree:
            case exp.Select():
                return _Select(inside, tree).plan(root=root, settle=settle)
            case exp.Values():
                return _finished(inside, tree, _values(inside, tree), root=root)
            case exp.Subquery() if not tree.args.get("alias"):
                return _parenthesised(inside, tree, root=root, settle=settle)
            case exp.SetOperation():
                left = _unsettled(inside, tree.this)
                right = _unsettled(inside, tree.expression)
                plan = combined(tree, left, right, inside.names)
                return _finished(inside, tree, plan, root=root)
        raise Unsupported(f"{type(tree).__name__.upper()} is not a query that can be planned")

    return with_ctes(context, tree, body, _unsettled)


def _parenthesised(context: Context, tree: exp.Subquery, *, root: bool, settle: bool) -> Plan:
    if any(tree.args.get(part) for part in ("order", "limit", "offset")):
        return _finished(context, tree, _nested(context, tree.this), root=root)
    return _query(context, tree.this, root=root, settle=settle)


def _values(context: Context, tree: exp.Values) -> Plan:
    pending = Pending(context)
    scope = Scope(outer=context.outer)
    planner = Expressions(scope, "VALUES", context.params, context.session, subqueries=pending)
    rows: list[list[Expr]] = []
    for row in tree.expressions:
        nodes = row.expressions if isinstance(row, exp.Tuple) else [row]
        rows.append([planner.plan(node) for node in nodes])
    if pending.subqueries:
        raise Unsupported("subqueries in VALUES are not supported", hint="use SELECT ... UNION ALL")
    return values_plan(rows)


def _finished(context: Context, tree: exp.Expr, plan: Plan, *, root: bool) -> Plan:
    """ORDER BY and LIMIT of something whose output columns are all there is to order by."""
    order, bounds = tree.args.get("order"), bounds_of(context, tree)
    items = [
        Item(column.name, col) for column, col in zip(plan.columns, cols_of(plan), strict=True)
    ]
    order_by: list[OrderBy] = []
    for node in order.expressions if order else ():
        item = ordinal(node.this, items, "ORDER BY")
        item = item or named(items, bare_name(node.this), "ORDER BY")
        if item is None and (name := bare_name(node.this)) is not None:
            raise SqlError(f'column "{name}" does not exist', sqlstate="42703")
        if item is None:
            raise Unsupported(
                "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                hint="only names and positions of result columns can be used here",
            )
        order_by.append(ordered_as(node, item.expr).at(next(iter(columns_of(item.expr)))))
    if isinstance(tree, exp.Values) and root and (order_by or bounds != (None, 0)):
        names = tuple(item.name for item in items)
        plan = Project(plan, cols_of(plan), names)
    return limited(plan, tuple(order_by), bounds, len(items), root=root)


# SELECT ----------------------------------------------------------------------------------------


class _Select:
    """One SELECT; its expressions are planned over `scope` and collect what they wait for."""

    def __init__(self, context: Context, tree: exp.Select):
        _refuse_extras(tree)
        self.context = context
        self.tree = tree
        self.named_windows = {
            identifier(each.this): each for each in tree.args.get("windows") or ()
        }
        source = from_clause(context, self.tree)
        self.source, self.scope = source.plan, source.scope
        self.aggregates: list[Aggregate] = []
        self.windows: list[WindowCall] = []
        self.pending = Pending(context)

    def plan(self, *, root: bool, settle: bool) -> Plan:
        tree = self.tree
        plan = self.source
        where = tree.args.get("where")
        if where:
            plan = self.pending.filtered(plan, self._planner("WHERE").predicate(where.this))
        items = self._items(settle=settle)
        group, having = tree.args.get("group"), tree.args.get("having")
        keys = grouping_keys(group, lambda node: self._key(node, items))
        condition = None
        if having:
            planner = self._planner("HAVING", self.aggregates)
            condition = planner.predicate(having.this)
        on = self._distinct_on(items)
        orders = self._orders(items)
        bounds = bounds_of(self.context, tree)
        if not root and bounds == (None, 0) and on is None:
            orders = [] if not _is_distinct(tree) else orders

        change: Callable[[Expr], Expr] | None = None
        if group or having or self.aggregates:
            plan, grouping = self._grouped(plan, keys)
            change = grouping.over
            items = [Item(item.name, change(item.expr)) for item in items]
            orders = [replace(order, expr=change(order.expr)) for order in orders]
            on = None if on is None else [change(expr) for expr in on]
            if condition is not None:
                plan = self.pending.filtered(plan, change(condition), change)
        elif self.pending.groupings:
            raise SqlError(
                "arguments to GROUPING must be grouping expressions of the associated query level",
                sqlstate="42803",
            )
        return self._output(plan, items, orders, on, bounds, change, root=root)

    def _grouped(self, plan: Plan, keys: Keys) -> tuple[Plan, Grouping]:
        for aggregate in self.aggregates:
            inside = list(aggregate_expressions(aggregate))
            if any(map(has_outer, inside)) and not any(map(has_own, inside)):
                raise Unsupported(
                    f"{aggregate.fn} of an outer query's columns in a subquery is not supported",
                    hint="compute the aggregate in a subquery in FROM",
                )
        waiting = [*keys.exprs]
        for aggregate in self.aggregates:
            waiting += aggregate_expressions(aggregate)
        plan, over_plan = self.pending.attached(plan, waiting)
        found = dict(zip(waiting, over_plan, strict=True))
        aggregates = [map_aggregate(each, found.__getitem__) for each in self.aggregates]
        plan = grouped(
            plan,
            keys,
            [found[key] for key in keys.exprs],
            aggregates,
            self.pending.groupings,
            self.context.names,
        )
        return plan, Grouping(self.scope, keys.exprs, len(aggregates))

    def _output(
        self,
        plan: Plan,
        items: list[Item],
        orders: list[Ordered],
        on: list[Expr] | None,
        bounds: tuple[int | None, int],
        change: Callable[[Expr], Expr] | None,
        *,
        root: bool,
    ) -> Plan:
        """The select list, DISTINCT, and the order with its hidden columns behind the rest."""
        outputs = [item.expr for item in items]
        names = [item.name for item in items]
        is_distinct = _is_distinct(self.tree)
        for order in orders:
            if order.expr not in outputs:
                if is_distinct:
                    raise SqlError(
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                        sqlstate="42P10",
                    )
                outputs.append(order.expr)
                names.append("?order?")
        for expr in on or ():
            if expr not in outputs:
                outputs.append(expr)
                names.append("?distinct?")
        order_by = tuple(order.at(outputs.index(order.expr)) for order in orders)
        group = tuple(dict.fromkeys(outputs.index(expr) for expr in on or ()))

        plan, outputs = self._with_windows(plan, outputs, change)
        plan, outputs = self.pending.with_rows(plan, outputs, change)
        plan, outputs = self.pending.attached(plan, outputs, change)
        plan = Project(plan, tuple(outputs), tuple(names))
        if is_distinct:
            plan = Reduce(plan, cols_of(plan), (), tuple(names))
        if on is not None:
            plan = TopK(plan, group, order_by, 1)
        return limited(plan, order_by, bounds, len(items), root=root)

    def _with_windows(
        self, plan: Plan, outputs: list[Expr], change: Callable[[Expr], Expr] | None
    ) -> tuple[Plan, list[Expr]]:
        if not self.windows:
            return plan, outputs
        windows = [change_window(each, change) if change else each for each in self.windows]
        waiting: list[Expr] = []
        for window in windows:
            change_window(window, lambda expr: (waiting.append(expr), expr)[1])
        plan, over_plan = self.pending.attached(plan, waiting, change)
        found = dict(zip(waiting, over_plan, strict=True))
        calls = [change_window(each, found.__getitem__) for each in windows]
        plan, places = with_windows(plan, calls)

        def place(col: Col) -> Expr:
            at = col.index - WINDOW_BASE
            return places[at] if 0 <= at < len(places) else col

        return plan, [substitute(expr, place) for expr in outputs]

    # Expressions -------------------------------------------------------------------------------

    def _planner(
        self,
        clause: str,
        aggregates: list[Aggregate] | None = None,
        windows: list[WindowCall] | None = None,
    ) -> Expressions:
        return Expressions(
            self.scope,
            clause,
            self.context.params,
            self.context.session,
            aggregates=aggregates,
            windows=windows,
            subqueries=self.pending,
            named_windows=self.named_windows,
        )

    def _items(self, *, settle: bool) -> list[Item]:
        listed = self._planner("SELECT", self.aggregates, self.windows)
        settle = settle or self.tree.args.get("distinct") is not None
        items: list[Item] = []
        for node in self.tree.expressions:
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                items += self._star(node)
                continue
            inner = node.this if isinstance(node, exp.Alias) else node
            name = identifier(node.args["alias"]) if isinstance(node, exp.Alias) else None
            expr = listed.plan(inner)
            keep = not settle and isinstance(expr, Lit) and expr.type == UNKNOWN
            items.append(Item(name or output_name(inner), expr if keep else settled(expr)))
        if not items:
            raise Unsupported("SELECT without columns is not supported", hint="select something")
        return items

    def _star(self, node: exp.Expr) -> list[Item]:
        star = node.this if isinstance(node, exp.Column) else node
        if any(star.args.get(part) for part in ("except_", "replace", "rename")):
            raise Unsupported("* EXCEPT, REPLACE and RENAME are not supported")
        qualifier = (
            tuple(identifier(p) for p in node.parts[:-1]) if isinstance(node, exp.Column) else ()
        )
        if not self.scope.relations:
            raise SqlError("SELECT * with no tables specified is not valid")
        return [Item(each.name, each.expr) for each in self.scope.star(qualifier)]

    def _key(self, node: exp.Expr, items: list[Item]) -> Expr:
        """A grouping expression: ordinal, input column, output name, or expression."""
        item = ordinal(node, items, "GROUP BY")
        if item is None and (name := bare_name(node)) is not None and not self.scope.has(name):
            item = named(items, name, "GROUP BY")
        if item is None:
            return settled(self._planner("GROUP BY").plan(node))
        for part in walk(item.expr):
            if isinstance(part, Col) and self.scope.width <= part.index:
                if part.index < self.scope.width + len(self.aggregates):
                    raise SqlError(
                        "aggregate functions are not allowed in GROUP BY", sqlstate="42803"
                    )
                if WINDOW_BASE <= part.index < WINDOW_BASE + len(self.windows):
                    raise SqlError("window functions are not allowed in GROUP BY", sqlstate="42P20")
                if part.index == ROWS_BASE:
                    raise Unsupported(
                        "grouping by a set-returning function of the select list is not supported",
                        hint="write it in FROM and group by its column",
                    )
        return item.expr

    def _orders(self, items: list[Item]) -> list[Ordered]:
        order = self.tree.args.get("order")
        return [
            ordered_as(node, self._ordering(node.this, items, "ORDER BY"))
            for node in (order.expressions if order else ())
        ]

    def _distinct_on(self, items: list[Item]) -> list[Expr] | None:
        distinct = self.tree.args.get("distinct")
        on = distinct.args.get("on") if distinct is not None else None
        if on is None:
            return None
        nodes = on.expressions if isinstance(on, exp.Tuple) else [on]
        exprs = [self._ordering(node, items, "SELECT DISTINCT ON") for node in nodes]
        check_distinct_on(exprs, self._orders(items))
        return exprs

    def _ordering(self, node: exp.Expr, items: list[Item], clause: str) -> Expr:
        item = ordinal(node, items, clause)
        if item is None and (name := bare_name(node)) is not None:
            item = named(items, name, clause)
        if item is not None:
            return item.expr
        return settled(self._planner(clause, self.aggregates, self.windows).plan(node))


def _is_distinct(tree: exp.Select) -> bool:
    distinct = tree.args.get("distinct")
    return distinct is not None and not distinct.args.get("on")


_SELECT_PARTS = frozenset(
    "expressions from_ joins where group having distinct order limit offset with_ hint windows"
    " laterals".split()
)
_EXTRA_NAMES = {
    "locks": "FOR UPDATE and FOR SHARE",
    "into": "SELECT INTO",
    "qualify": "QUALIFY",
}


def _refuse_extras(tree: exp.Select) -> None:
    for name, part in tree.args.items():
        if part and name not in _SELECT_PARTS:
            what = _EXTRA_NAMES.get(name, name.strip("_").upper())
            raise Unsupported(f"{what} is not supported")
