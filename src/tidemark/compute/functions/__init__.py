"""The functions and operators that an expression may use: `FUNCTIONS` is the whole list.

Each entry gives, per overload, the argument types, the type of the result, how it is written in
Spark SQL, and when it fails. Types follow PostgreSQL: `integer / integer` truncates, `integer +
bigint` is bigint, dividing numerics gives a bare numeric, a quoted literal takes the type of the
other side.

**Errors are data.** Spark runs in ANSI mode, where `1/0` would end the query. So everything here
is written with functions that give NULL instead of raising (`try_add`, `try_cast`, `nullif`
guards), and the conditions under which PostgreSQL would have raised are listed beside them;
`render_expr.py` turns those into a second expression, the error message of the row.

Decimals need care: Spark silently drops decimals of a product or quotient whose type would exceed
38 digits. Results here have the scale that PostgreSQL's rules ask for, and are exact to it, or
overflow visibly.

Templates: `{0}`, `{1}` are the arguments, `{v}` the call's own value, `{T}` the Spark type of the
result and `{type}` its SQL name. `{min}` is the least value of an integer type.
"""

from __future__ import annotations

from tidemark.compute.casts import cast
from tidemark.compute.functions.overload import Overload
from tidemark.compute.functions.resolve import (
    FUNCTIONS,
    at_time_zone,
    call,
    call_by_name,
    overload_of,
    unknown,
)

__all__ = [
    "FUNCTIONS",
    "Overload",
    "at_time_zone",
    "call",
    "call_by_name",
    "cast",
    "overload_of",
    "unknown",
]
