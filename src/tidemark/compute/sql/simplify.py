"""A condition that no padded row meets makes an outer join an inner one.

    WHERE x > (SELECT avg(y) FROM u WHERE u.k = t.k)

joins the average to every row of t, null where there is none; a null is not less than anything, so
rows that are in the result have a partner. Inner joins are cheaper to maintain and can be ordered.
"""

from __future__ import annotations

from tidemark.compute.expr import Call, Cast, Col, Expr, conjuncts
from tidemark.compute.plan import OuterJoin, Plan
from tidemark.compute.sql.lowering import joined

_STRICT = frozenset(["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "negate", "like"])


def without_padding(plan: Plan, predicate: Expr) -> Plan:
    """The input of a filter by `predicate`, its left joins made inner where that is the same."""
    if not (isinstance(plan, OuterJoin) and plan.kind == "left"):
        return plan
    width, left = len(plan.left.columns), without_padding(plan.left, predicate)
    if any(_needs(part, width, len(plan.columns)) for part in conjuncts(predicate)):
        return joined(left, plan.right, plan.on)
    return OuterJoin("left", left, plan.right, plan.on)


def _needs(expr: Expr, first: int, last: int) -> bool:
    """Whether `expr` is null as soon as the columns from `first` to `last` are all null."""
    match expr:
        case Col(index=index):
            return first <= index < last
        case Cast(arg=arg):
            return _needs(arg, first, last)
        case Call(fn=fn, args=args) if fn in _STRICT:
            return any(_needs(arg, first, last) for arg in args)
        case _:
            return False
