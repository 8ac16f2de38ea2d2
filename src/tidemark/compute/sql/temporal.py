"""`mz_now()` in a view: temporal filters.

A row that passes `mz_now() < created + interval '1 hour'` is in the view until then. For that to
be maintained, the comparison must stand alone or be joined to others by AND, and it comes out in
one form: `mz_now` on the left, on the right whole milliseconds since 1970,

    created + interval '1 hour' > mz_now()    ->    mz_now < ceil milliseconds(created + ...)

which is exact because mz_now is a whole number m of milliseconds: m < x if and only if
m < ceil(x), m <= x if and only if m <= floor(x), and m = x if and only if ceil(x) <= m <= floor(x).
"""

from __future__ import annotations

from tidemark.compute.casts import cast
from tidemark.compute.expr import Call, Expr, Lit
from tidemark.compute.functions import call
from tidemark.compute.literals import UNKNOWN
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BIGINT, BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ

MZ_NOW = Call("mz_now", (), BIGINT)
CLAUSES = ("WHERE", "HAVING", "JOIN/ON")
_ROUNDING = {"<": "ceil", ">=": "ceil", "<=": "floor", ">": "floor"}
MIRRORED = {"<": ">", "<=": ">=", "=": "=", ">=": "<=", ">": "<"}


def compared_with_now(op: str, bound: Expr) -> Expr:
    """`mz_now() op bound`."""
    if op == "=" and not bound.type.is_integer:
        return call("and", (compared_with_now(">=", bound), compared_with_now("<=", bound)))
    return Call(op, (MZ_NOW, _milliseconds(bound, _ROUNDING.get(op, "floor"))), BOOLEAN)


def misplaced() -> Unsupported:
    return Unsupported(
        "mz_now() cannot be used here: a view can be kept only if mz_now() is compared with an "
        "expression, in WHERE or HAVING, alone or among conditions joined by AND",
        hint="compare it directly, e.g. mz_now() <= ts + interval '1 hour', with one of < <= = >= >",
    )


def _milliseconds(bound: Expr, rounding: str) -> Expr:
    if bound.type == UNKNOWN and isinstance(bound, Lit):
        number = (bound.value or "").strip().lstrip("-").isdecimal()
        bound = cast(bound, BIGINT if number or bound.value is None else TIMESTAMPTZ)
    if bound.type.is_integer:
        return cast(bound, BIGINT)
    if bound.type.name == "numeric":
        return cast(call(rounding, (bound,)), BIGINT)
    if bound.type in (DATE, TIMESTAMP, TIMESTAMPTZ):
        return call(f"{rounding} milliseconds", (cast(bound, TIMESTAMPTZ),))
    raise SqlError(
        f"operator does not exist: mz_timestamp = {bound.type}",
        hint="compare mz_now() with a timestamp, a date, or a number of milliseconds",
        sqlstate="42883",
    )
