"""Comparison and logic; how errors pass through these is in `render_expr.py`."""

from __future__ import annotations

from tidemark.compute.casts import Failure
from tidemark.compute.functions.overload import Overload, Table, same
from tidemark.types import BOOLEAN

LOGIC: Table = {
    "=": (Overload("any any", BOOLEAN, "({0} = {1})"),),
    "<>": (Overload("any any", BOOLEAN, "({0} <> {1})"),),
    "<": (Overload("any any", BOOLEAN, "({0} < {1})"),),
    "<=": (Overload("any any", BOOLEAN, "({0} <= {1})"),),
    ">": (Overload("any any", BOOLEAN, "({0} > {1})"),),
    ">=": (Overload("any any", BOOLEAN, "({0} >= {1})"),),
    "is distinct from": (Overload("any any", BOOLEAN, "(NOT ({0} <=> {1}))"),),
    "is not distinct from": (Overload("any any", BOOLEAN, "({0} <=> {1})"),),
    "in": (Overload("any any ...", BOOLEAN, "({0} IN ({rest}))"),),
    "greatest": (Overload("any ...", same, "greatest({all})"),),
    "least": (Overload("any ...", same, "least({all})"),),
    "and": (Overload("boolean ...", BOOLEAN, "({ands})"),),
    "or": (Overload("boolean ...", BOOLEAN, "({ors})"),),
    "not": (Overload("boolean", BOOLEAN, "(NOT {0})"),),
    "is null": (Overload("any", BOOLEAN, "({0} IS NULL)"),),
    "is not null": (Overload("any", BOOLEAN, "({0} IS NOT NULL)"),),
    "is true": (Overload("boolean", BOOLEAN, "({0} IS TRUE)"),),
    "is not true": (Overload("boolean", BOOLEAN, "({0} IS NOT TRUE)"),),
    "is false": (Overload("boolean", BOOLEAN, "({0} IS FALSE)"),),
    "is not false": (Overload("boolean", BOOLEAN, "({0} IS NOT FALSE)"),),
    "coalesce": (Overload("any ...", same, "coalesce({all})"),),
    # Not for users: fails with its second argument where the first is true.
    "raise if": (Overload("boolean text", BOOLEAN, "{0}", (Failure("{0}", "{1}"),)),),
}
