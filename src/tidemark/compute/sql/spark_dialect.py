"""Spark SQL as an input language: parsed by its own rules, then said as the planner says it.

Only what is written differently is translated here: names of functions that mean the same, `/` of
integers (a fraction in Spark), LATERAL VIEW, CAST, identifiers in backticks. Where Spark and
PostgreSQL give one name to different functions, Spark's meaning is kept (`concat`, `log`). What the
planner does not know is refused by it, by name.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from tidemark.compute.sql.dialect import OWN_GRAMMAR
from tidemark.errors import Unsupported

AS_FRACTION = "as fraction"
"""Not for users: an integer as a double, so that `/` gives a fraction; anything else as it is."""

_SAME = {
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "substr": "substring",
    "len": "length",
    "ucase": "upper",
    "lcase": "lower",
    "pow": "power",
    "ceiling": "ceil",
    "dayofmonth": "day",
    "explode": "unnest",
    "size": "cardinality",
    "collect_list": "array_agg",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "sign": "sign",
}
_PARTS = ("year", "quarter", "month", "day", "hour", "minute", "second")


class SparkSql(Spark):
    class Parser(Spark.Parser):
        STRICT_CAST = True
        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
        NO_PAREN_FUNCTIONS: dict[Any, Any] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: Spark.Parser.FUNCTION_PARSERS[name] for name in OWN_GRAMMAR
        }


SPARK = SparkSql()


def translated(tree: exp.Expr) -> exp.Expr:
    """A query that was parsed as Spark SQL, in the words of the planner."""
    tree = tree.copy()
    # From the leaves up: what is put in place of a node has its children as they should be.
    for node in reversed(list(tree.walk())):
        made = _node(node)
        if node is tree:
            tree = made
        elif made is not node:
            node.replace(made)
    return tree


def _node(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Identifier():
            # Spark's names have no case, in backticks or not.
            return exp.to_identifier(node.name.lower(), quoted=node.quoted)
        case exp.Div():
            node.set("this", exp.Anonymous(this=AS_FRACTION, expressions=[node.this]))
            return node
        case exp.IntDiv():
            return exp.Div(this=_bigint(node.this), expression=_bigint(node.expression))
        case exp.Any() if not isinstance(node.parent, exp.Binary):
            return exp.Anonymous(this=_SAME["any"], expressions=[node.this])
        case exp.If() if not isinstance(node.parent, exp.Case):
            branch = exp.If(this=node.this, true=node.args["true"])
            return exp.Case(ifs=[branch], default=node.args.get("false"))
        case exp.Group() if any(not each.expressions for each in _open_sets(node)):
            return _closed(node)
        case exp.Anonymous():
            return _function(node)
    return node


def _function(node: exp.Anonymous) -> exp.Expr:
    name, args = str(node.this).lower(), node.expressions
    if name == "concat" and args:
        # Null as soon as one part is; PostgreSQL's leaves nulls out.
        joined = _text(args[0])
        for arg in args[1:]:
            joined = exp.DPipe(this=joined, expression=_text(arg))
        return exp.Paren(this=joined)
    if name == "log" and len(args) == 1:
        return exp.Anonymous(this="ln", expressions=args)
    if _SAME.get(name, name) in _PARTS and len(args) == 1:
        part = exp.Extract(this=exp.Var(this=_SAME.get(name, name)), expression=args[0])
        return exp.cast(part, exp.DType.INT)
    if name in ("posexplode", "inline", "stack", "json_tuple"):
        raise Unsupported(f"{name} is not supported", hint="use explode")
    return exp.Anonymous(this=_SAME.get(name, name), expressions=args)


def _open_sets(group: exp.Group) -> list[exp.Expr]:
    return [*(group.args.get("rollup") or []), *(group.args.get("cube") or [])]


def _closed(group: exp.Group) -> exp.Group:
    """`GROUP BY a, b WITH ROLLUP` as `GROUP BY ROLLUP (a, b)`."""
    kind = type(_open_sets(group)[0])
    return exp.Group(expressions=[kind(expressions=group.expressions)])


def _bigint(node: exp.Expr) -> exp.Expr:
    return exp.cast(node, exp.DType.BIGINT)


def _text(node: exp.Expr) -> exp.Expr:
    return exp.cast(node, exp.DType.TEXT)
