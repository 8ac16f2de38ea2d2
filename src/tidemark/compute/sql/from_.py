"""FROM: tables, subqueries, functions and VALUES, and the joins between them.

Inner joins stay flat: one `Join` of all that is joined so. An outer join is a node over what has
been joined before it. Items separated by commas are chains of their own: ON and USING see only
what their own chain joins, while LATERAL sees everything to its left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tidemark.compute.casts import common_type
from tidemark.compute.expr import Col, Expr, conjuncts, substitute
from tidemark.compute.functions import call, cast
from tidemark.compute.plan import Finish, FlatMap, Get, OuterJoin, Plan, Project
from tidemark.compute.sql.context import Context
from tidemark.compute.sql.correlation import cols_of, level_of, names_of, outer_columns
from tidemark.compute.sql.decorrelate import lateral
from tidemark.compute.sql.dialect import identifier, start_of
from tidemark.compute.sql.expressions import Expressions
from tidemark.compute.sql.lowering import ONE_ROW, joined, plain
from tidemark.compute.sql.renaming import alias_columns, renamed, visible
from tidemark.compute.sql.scope import Scope, Shown
from tidemark.compute.sql.subqueries import SUBQUERY_BASE, Pending
from tidemark.compute.table_functions import TABLE_FUNCTIONS, typed_call
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BIGINT, Column

_WITHOUT_BEFORE = ("RIGHT", "FULL")


@dataclass(frozen=True, slots=True)
class Source:
    """A plan, and what its columns are called."""

    plan: Plan
    scope: Scope


@dataclass(frozen=True, slots=True)
class _Chain:
    """A chain of joins so far, behind the columns of what stands before it in FROM."""

    plan: Plan
    before: Scope
    scope: Scope
    """Of the chain alone; its columns are where they are in the plan."""

    @property
    def seen(self) -> Scope:
        """What LATERAL sees: everything to the left."""
        both = _together(self.before, self.scope)
        return Scope(both.relations, both.order, len(self.plan.columns), self.before.outer)


def from_clause(context: Context, tree: exp.Select) -> Source:
    from_ = tree.args.get("from_")
    result = Source(ONE_ROW, Scope(outer=context.outer))
    laterals = [_lateral_view(each) for each in tree.args.get("laterals") or []]
    joins = (tree.args.get("joins") or []) + laterals
    if from_ is None:
        if joins:
            raise SqlError("syntax error: JOIN without FROM")
        return result
    chains: list[tuple[exp.Expr, list[exp.Join]]] = [(from_.this, [])]
    for join in joins:
        if _is_comma(join):
            chains.append((join.this, []))
        else:
            chains[-1][1].append(join)
    for first, rest in chains:
        sides = {join.args.get("side") for join in rest}
        dependent = any(_is_dependent(node) for node in (first, *(join.this for join in rest)))
        if dependent and not sides.intersection(_WITHOUT_BEFORE):
            result = _chain(context, first, rest, result)
            continue
        mine = _chain(context, first, rest, Source(ONE_ROW, Scope(outer=context.outer)))
        result = Source(joined(result.plan, mine.plan), result.scope.beside(mine.scope))
    return result


def _lateral_view(node: exp.Expr) -> exp.Join:
    """Spark's LATERAL VIEW; OUTER keeps rows for which there is nothing."""
    if node.args.get("outer"):
        return exp.Join(this=node, side="LEFT", on=exp.true())
    return exp.Join(this=node)


def _chain(context: Context, first: exp.Expr, joins: Sequence[exp.Join], before: Source) -> Source:
    nothing = Scope(width=before.scope.width, outer=context.outer)
    chain = _Chain(before.plan, before.scope, nothing)
    chain = _joined(context, chain, exp.Join(this=first, kind="CROSS"))
    for join in joins:
        chain = _joined(context, chain, join)
    both = _together(before.scope, chain.scope)
    return Source(chain.plan, replace(both, width=len(chain.plan.columns)))


def _joined(context: Context, chain: _Chain, join: exp.Join) -> _Chain:
    side, kind = join.args.get("side") or "", join.args.get("kind") or ""
    method = join.args.get("method") or ""
    if method not in ("", "NATURAL") or kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"):
        what = " ".join(word for word in (method, side, kind) if word)
        raise Unsupported(f"{what} JOIN is not supported", hint="use JOIN ... ON or USING")
    on, using = join.args.get("on"), join.args.get("using")
    if kind == "CROSS" and (on or using or method):
        raise SqlError("syntax error: CROSS JOIN takes no condition")
    if not (on or using or method or kind == "CROSS"):
        raise SqlError("syntax error: JOIN needs ON or USING")
    is_lateral = _is_dependent(join.this)
    item = _item(context.inside(chain.seen) if is_lateral else context, join.this)
    if is_lateral and side in _WITHOUT_BEFORE and _mentions(item.plan):
        raise SqlError(
            f"invalid reference to the left side of a {side} JOIN",
            hint="the combining JOIN type must be INNER or LEFT for a LATERAL reference",
            sqlstate="42P10",
        )
    if is_lateral and (side in _WITHOUT_BEFORE or kind in ("SEMI", "ANTI")):
        item = Source(plain(item.plan), item.scope)
    width = len(chain.plan.columns)
    right = item.scope.moved(width)
    both = _together(chain.scope, right)
    both = replace(both, width=width + item.scope.width)
    pending = Pending(context)
    conditions: tuple[Expr, ...] = ()
    if using or method:
        names = (
            [identifier(name) for name in using or ()]
            if using
            else [each.name for each in chain.scope.order if item.scope.has(each.name)]
        )
        conditions, order = _merged(chain.scope, right, names, side)
        both = replace(both, order=order)
    elif on:
        planner = Expressions(both, "JOIN/ON", context.params, context.session, subqueries=pending)
        conditions = (planner.predicate(on),)
    if kind in ("SEMI", "ANTI"):
        return _Chain(
            OuterJoin(kind.lower(), chain.plan, item.plan, conditions), chain.before, chain.scope
        )
    plan = _combined(context, chain.plan, item.plan, conditions, side, is_lateral, pending)
    return _Chain(plan, chain.before, both)


def _combined(
    context: Context,
    left: Plan,
    right: Plan,
    on: tuple[Expr, ...],
    side: str,
    is_lateral: bool,
    pending: Pending,
) -> Plan:
    waiting = tuple(part for expr in on for part in conjuncts(expr) if _waits(part))
    if waiting:
        if side:
            raise Unsupported(
                f"subqueries in the ON of a {side} JOIN are not supported",
                hint="compute what it needs in a subquery that is joined",
            )
        on = tuple(part for expr in on for part in conjuncts(expr) if not _waits(part))
    if is_lateral and side in ("", "LEFT"):
        plan = lateral(left, right, context.names, on=on, left=side == "LEFT")
    elif side == "LEFT":
        plan = OuterJoin("left", left, right, on)
    elif side == "RIGHT":
        plan = _swapped(left, right, on)
    elif side == "FULL":
        plan = OuterJoin("full", left, right, on)
    else:
        plan = joined(left, right, on)
    for part in waiting:
        plan = pending.filtered(plan, part)
    return plan


def _swapped(left: Plan, right: Plan, on: tuple[Expr, ...]) -> Plan:
    """RIGHT JOIN: a left join the other way round, its columns put back in order."""
    width, other = len(left.columns), len(right.columns)

    def place(col: Col) -> Col:
        if col.index < 0:
            return col
        return Col(col.index + other if col.index < width else col.index - width, col.type)

    both = OuterJoin("left", right, left, tuple(substitute(expr, place) for expr in on))
    cols = (*cols_of(left), *(Col(width + c.index, c.type) for c in cols_of(right)))
    outputs = tuple(place(col) for col in cols)
    return Project(both, outputs, names_of(left.columns + right.columns))


def _merged(
    left: Scope, right: Scope, names: list[str], side: str
) -> tuple[tuple[Expr, ...], list[Shown]]:
    """USING: the conditions, and what is shown: the merged columns, then the rest of both."""
    conditions: list[Expr] = []
    shown: list[Shown] = []
    for at, name in enumerate(names):
        if name in names[:at]:
            raise SqlError(
                f'column name "{name}" appears more than once in USING clause', sqlstate="42701"
            )
        mine, theirs = _using(left, name, "left"), _using(right, name, "right")
        conditions.append(call("=", (mine, theirs)))
        type_ = common_type((mine.type, theirs.type)) or mine.type
        kept = cast(theirs if side == "RIGHT" else mine, type_)
        if side == "FULL":
            kept = call("coalesce", (mine, theirs))
        shown.append(Shown(name, kept))
    rest = [each for each in [*left.order, *right.order] if each.name not in names]
    return tuple(conditions), shown + rest


def _using(scope: Scope, name: str, which: str) -> Expr:
    found = [each.expr for each in scope.order if each.name == name]
    if not found:
        raise SqlError(
            f'column "{name}" specified in USING clause does not exist in {which} table',
            sqlstate="42703",
        )
    if len(found) > 1:
        raise SqlError(
            f'common column name "{name}" appears more than once in {which} table',
            sqlstate="42702",
        )
    return found[0]


# Items -----------------------------------------------------------------------------------------


def _item(context: Context, node: exp.Expr) -> Source:
    inner = node.this
    if isinstance(node, exp.Subquery) and (
        isinstance(inner, exp.Table)
        or (isinstance(inner, exp.Subquery | exp.Lateral) and inner.args.get("joins"))
    ):
        return _aliased(node, _item(context, inner))
    if not isinstance(node, exp.Select) and node.args.get("joins"):
        alone = node.copy()
        alone.set("joins", None)
        return _chain(
            context, alone, node.args["joins"], Source(ONE_ROW, Scope(outer=context.outer))
        )
    name, plan, parts = _relation(context, node)
    plan = renamed(plan, alias_columns(node), f'table "{name}"')
    scope = Scope(outer=context.outer)
    scope.add(name, plan.columns, parts)
    return Source(plan, scope)


def _aliased(node: exp.Subquery, source: Source) -> Source:
    """`(a JOIN b ...) AS j`: the shown columns, all of one relation."""
    name = _alias(node)
    if name is None:
        return source
    order = source.scope.order
    plan = Project(
        source.plan, tuple(each.expr for each in order), tuple(each.name for each in order)
    )
    plan = renamed(plan, alias_columns(node), f'table "{name}"')
    scope = Scope(outer=source.scope.outer)
    scope.add(name, plan.columns, ())
    return Source(plan, scope)


def _relation(context: Context, node: exp.Expr) -> tuple[str | None, Plan, tuple[str, ...]]:
    alias = _alias(node)
    if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
        return alias, context.nested(context, _unwrapped(node.this)), ()
    called = _called(node)
    if called is not None:
        name, plan = _function(context, node, *called)
        return alias or name, plan, ()
    match node:
        case exp.Table():
            parts = _table_parts(node)
            if len(parts) == 1 and parts[0] in context.ctes:
                return alias or parts[0], context.ctes[parts[0]], parts
            try:
                plan = context.resolver.resolve(parts)
                plan = visible(plan) if isinstance(plan, Finish) else plan
                plan = plan if isinstance(plan, Get) else context.names.put_in(plan)
            except SqlError as error:
                raise error.at(start_of(node)) from None
            return alias or parts[-1], plan, () if alias else parts
        case exp.Subquery():
            return alias, context.nested(context, _unwrapped(node)), ()
        case exp.Values():
            return alias, context.nested(context, node), ()
    raise Unsupported(f"{type(node).__name__.upper()} in FROM is not supported")


def _function(
    context: Context, node: exp.Expr, name: str, nodes: list[exp.Expr]
) -> tuple[str, Plan]:
    """A function's rows; its arguments may refer to what stands to the left."""
    if name not in TABLE_FUNCTIONS:
        raise Unsupported(
            f"table functions are not supported: {name} in FROM",
            hint="supported: " + ", ".join(TABLE_FUNCTIONS),
        )
    scope = Scope(outer=context.outer)
    planner = Expressions(scope, f"{name} in FROM", context.params, context.session)
    fn, args, columns = typed_call(name, tuple(planner.plan(each) for each in nodes))
    if [column.name for column in columns] == [name] and (alias := _alias(node)) is not None:
        # A function with one column lends it its alias: FROM generate_series(1, 3) AS g.
        columns = (Column(alias, columns[0].type),)
    if node.args.get("ordinality") or node.args.get("offset"):
        columns += (Column("ordinality", BIGINT),)
    return name, FlatMap(ONE_ROW, fn, args, columns)


def _called(node: exp.Expr) -> tuple[str, list[exp.Expr]] | None:
    """Name and arguments if the item is a function call."""
    inner = node.this if isinstance(node, exp.Table | exp.Lateral) else node
    match inner:
        case exp.Anonymous():
            return identifier(inner.this), inner.expressions
        case exp.Unnest():
            return "unnest", inner.expressions
        case exp.Dot(expression=exp.Anonymous() as function):
            return identifier(function.this), function.expressions
    return None


def _is_dependent(node: exp.Expr) -> bool:
    """Whether an item may refer to what stands to its left."""
    return isinstance(node, exp.Lateral) or _called(node) is not None


def _is_comma(join: exp.Join) -> bool:
    return not any(join.args.get(part) for part in ("side", "kind", "method", "on", "using"))


def _mentions(plan: Plan) -> bool:
    return any(level_of(col) == 1 for col in outer_columns(plan))


def _waits(expr: Expr) -> bool:
    return bool([at for at in _columns(expr) if at >= SUBQUERY_BASE])


def _columns(expr: Expr) -> list[int]:
    found: list[int] = []
    substitute(expr, lambda col: (found.append(col.index), col)[1])
    return found


def _together(left: Scope, right: Scope) -> Scope:
    """Both scopes; the columns of both are where they are already."""
    taken = {each.name for each in left.relations if each.name is not None}
    for relation in right.relations:
        if relation.name in taken:
            raise SqlError(
                f'table name "{relation.name}" specified more than once', sqlstate="42712"
            )
    return Scope(
        [*left.relations, *right.relations], [*left.order, *right.order], right.width, left.outer
    )


def _table_parts(node: exp.Table) -> tuple[str, ...]:
    if not isinstance(node.this, exp.Identifier) and not _is_dotted(node.this):
        raise Unsupported(
            f"table functions are not supported: {node.sql(dialect='postgres')[:60]}",
            hint="keep the rows in a table, or write them as VALUES",
        )
    for name, part in node.args.items():
        if part and name not in ("this", "db", "catalog", "alias", "joins", "only"):
            raise Unsupported(f"{name.strip('_').upper()} on a table is not supported")
    return tuple(identifier(part) for part in node.parts)


def _is_dotted(node: exp.Expr) -> bool:
    """Names of more than three parts."""
    return isinstance(node, exp.Dot) and all(
        isinstance(part, exp.Identifier) for part in node.flatten()
    )


def _alias(node: exp.Expr) -> str | None:
    alias = node.args.get("alias")
    return identifier(alias.this) if alias and alias.this else None


def _unwrapped(node: exp.Expr) -> exp.Expr:
    inner = node.this
    while isinstance(inner, exp.Subquery) and not any(
        inner.args.get(part) for part in ("order", "limit", "offset", "with_")
    ):
        inner = inner.this
    return inner
