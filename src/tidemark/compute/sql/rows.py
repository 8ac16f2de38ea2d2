"""Several values as one: `(a, b) < (1, 2)`, and ARRAY(SELECT ...).

Rows are compared column by column, the first that differs decides.
"""

from __future__ import annotations

from sqlglot import exp

from tidemark.compute.expr import Expr
from tidemark.compute.functions import call
from tidemark.errors import SqlError, Unsupported


def compared_rows(op: str, left: list[Expr], right: list[Expr]) -> Expr:
    if len(left) != len(right):
        raise SqlError("unequal number of entries in row expressions", sqlstate="42601")
    if op in ("=", "<>"):
        each = tuple(call(op, pair) for pair in zip(left, right, strict=True))
        if len(each) == 1:
            return each[0]
        return call("and" if op == "=" else "or", each)
    *before, last = zip(left, right, strict=True)
    found = call(op, last)
    for pair in reversed(before):
        strictly = call(op[0], pair)
        found = call("or", (strictly, call("and", (call("=", pair), found))))
    return found


_WHOLE = ("group", "having", "distinct", "limit", "offset", "windows", "with_")


def collected(query: exp.Expr) -> exp.Expr:
    """`ARRAY(SELECT x FROM t ORDER BY y)` as coalesce((SELECT array_agg(x ORDER BY y) FROM t), '{}')."""
    made = query.copy()
    order = made.args.get("order")
    simple = isinstance(made, exp.Select) and not any(made.args.get(part) for part in _WHOLE)
    if len(getattr(made, "expressions", ())) != 1 and simple:
        raise SqlError("subquery must return only one column", sqlstate="42601")
    by_number = order is not None and any(
        isinstance(each.this, exp.Literal) for each in order.expressions
    )
    if not simple or by_number or made.find(exp.Window):
        raise Unsupported(
            "ARRAY of such a query is not supported",
            hint="use (SELECT array_agg(x ORDER BY x) FROM (...) AS s (x))",
        )
    value = made.expressions[0].unalias()
    if order is not None:
        value = exp.Order(this=value, expressions=order.expressions)
        made.set("order", None)
    made.set("expressions", [exp.Anonymous(this="array_agg", expressions=[value])])
    empty = exp.Literal.string("{}")
    return exp.Anonymous(this="coalesce", expressions=[exp.Subquery(this=made), empty])
