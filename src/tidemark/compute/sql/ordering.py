"""ORDER BY, LIMIT, OFFSET, FETCH and DISTINCT ON.

At the root of a query that is asked once they are a `Finish`. Inside something that is kept (a
view, a subquery, one side of a UNION) a limit is a `TopK`, and an order without one means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tidemark.compute.expr import Expr, Lit
from tidemark.compute.functions import cast
from tidemark.compute.plan import Finish, OrderBy, Plan, TopK
from tidemark.compute.sql.context import Context
from tidemark.compute.sql.correlation import narrowed
from tidemark.compute.sql.dialect import identifier
from tidemark.compute.sql.expressions import Expressions, sortable
from tidemark.compute.sql.scope import Scope
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BIGINT


@dataclass(slots=True)
class Item:
    """One output column: its name and its expression over the (grouped) input."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Ordered:
    """One expression of ORDER BY."""

    expr: Expr
    descending: bool
    nulls_first: bool | None

    def at(self, index: int) -> OrderBy:
        return OrderBy(index, self.descending, self.nulls_first)


def ordered_as(node: exp.Expr, expr: Expr) -> Ordered:
    descending, nulls_first = bool(node.args.get("desc")), node.args.get("nulls_first")
    # Nulls are the largest values: only what differs from that needs saying.
    said = None if nulls_first in (None, descending) else bool(nulls_first)
    return Ordered(sortable(expr), descending, said)


def limited(
    plan: Plan,
    order_by: tuple[OrderBy, ...],
    bounds: tuple[int | None, int],
    keep: int,
    *,
    root: bool,
) -> Plan:
    """The first `keep` columns of the rows that the bounds leave, in order if it is the root."""
    limit, offset = bounds
    if root and (order_by or limit is not None or offset):
        return Finish(plan, order_by, limit, offset, keep)
    if limit is not None or offset:
        plan = TopK(plan, (), order_by, limit, offset)
    return narrowed(plan, keep)


def bounds_of(context: Context, tree: exp.Expr) -> tuple[int | None, int]:
    """LIMIT (or FETCH) and OFFSET."""
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    count: exp.Expr | None = None
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        if options and (options.args.get("percent") or options.args.get("with_ties")):
            raise Unsupported("FETCH ... PERCENT and WITH TIES are not supported")
        count = limit.args.get("count") or exp.Literal.number(1)
    elif limit is not None:
        if limit.args.get("expressions"):
            raise SqlError('syntax error at or near "BY"')
        count = limit.expression
    skipped = _bound(context, offset and offset.expression, "OFFSET")
    return _bound(context, count, "LIMIT"), skipped or 0


def _bound(context: Context, node: exp.Expr | None, clause: str) -> int | None:
    if node is None or (isinstance(node, exp.Var) and node.name.upper() == "ALL"):
        return None
    planner = Expressions(Scope(), clause, context.params, context.session)
    bound = cast(planner.plan(node), BIGINT)
    if not isinstance(bound, Lit):
        raise Unsupported(f"{clause} must be a constant", hint="compute it beforehand")
    if bound.value is None:
        return None
    if int(bound.value) < 0:
        code = "2201W" if clause == "LIMIT" else "2201X"
        raise SqlError(f"{clause} must not be negative", sqlstate=code)
    return int(bound.value)


def check_distinct_on(on: list[Expr], orders: list[Ordered]) -> None:
    """The expressions of DISTINCT ON come first in ORDER BY, in any order."""
    missing = set(on)
    for order in orders:
        if not missing:
            return
        if order.expr not in on:
            raise SqlError(
                "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                sqlstate="42P10",
            )
        missing.discard(order.expr)


# Names of output columns in ORDER BY and GROUP BY ------------------------------------------------


def ordinal(node: exp.Expr, items: list[Item], clause: str) -> Item | None:
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string or not node.name.isdecimal():
        raise SqlError(f"non-integer constant in {clause}")
    position = int(node.name)
    if not 1 <= position <= len(items):
        raise SqlError(f"{clause} position {position} is not in select list", sqlstate="42P10")
    return items[position - 1]


def bare_name(node: exp.Expr) -> str | None:
    if (
        isinstance(node, exp.Column)
        and len(node.parts) == 1
        and not isinstance(node.this, exp.Star)
    ):
        return identifier(node.this)
    return None


def named(items: list[Item], name: str | None, clause: str) -> Item | None:
    found = [item for item in items if item.name == name]
    if found and any(item.expr != found[0].expr for item in found):
        raise SqlError(f'{clause} "{name}" is ambiguous', sqlstate="42702")
    return found[0] if found else None
