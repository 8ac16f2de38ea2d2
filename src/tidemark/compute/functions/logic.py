"""Comparison and logic; how errors pass through these is in `render_expr.py`."""

from __future__ import annotations

from tidemark.compute.casts import Failure
from tidemark.compute.functions.numbers import write_negate
from tidemark.compute.functions.overload import Overload, Table, same
from tidemark.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TEXT, numeric

_REVERSED_BYTES = "concat(translate(hex({0}), '0123456789ABCDEF', 'FEDCBA9876543210'), 'G')"
"""G is greater than any digit: what goes on comes before what ends."""

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
    # Not for users: sorted upwards, what it gives is what the argument is sorted downwards.
    "reverse order": (
        Overload("int", same, "(~{0})"),
        Overload("exact", same, write_negate),
        Overload("double", DOUBLE, "CASE WHEN isnan({0}) THEN double('-Infinity') ELSE - {0} END"),
        Overload("boolean", BOOLEAN, "(NOT {0})"),
        Overload("date", INTEGER, "(- unix_date({0}))"),
        Overload("timestamp", BIGINT, "(- unix_micros(CAST({0} AS TIMESTAMP)))"),
        Overload("timestamptz", BIGINT, "(- unix_micros({0}))"),
        Overload("interval", numeric(20, 6), "(- {0})"),
        Overload("text", TEXT, _REVERSED_BYTES),
        Overload("bytea", TEXT, _REVERSED_BYTES),
    ),
    # Not for users: a moment later; after the last there is none.
    "after it": (
        Overload("bigint", BIGINT, "CASE WHEN {0} = 9223372036854775807 THEN {0} ELSE {0} + 1 END"),
    ),
    # Not for users: fails with its second argument where the first is true.
    "raise if": (Overload("boolean text", BOOLEAN, "{0}", (Failure("{0}", "{1}"),)),),
}
