"""Expressions as people read them: in EXPLAIN, and in what an error row says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemark.compute.expr import Call, Cast, Col, Expr, Lit, columns_of
from tidemark.compute.intervals import interval_of
from tidemark.compute.literals import quoted
from tidemark.types import INTERVAL


def by_number(index: int) -> str:
    return f"#{index}"


def spelled(expr: Expr, name: Callable[[int], str] = by_number) -> str:
    def of(inner: Expr) -> str:
        return spelled(inner, name)

    match expr:
        case Col(index=index):
            return name(index)
        case Lit(value=None):
            return "NULL"
        case Lit(type=type_) if type_ == INTERVAL:
            return f"interval '{interval_of(expr)}'"
        case Lit(value=value, type=type_):
            return str(value) if type_.is_number else f"'{value}'"
        case Cast(arg=arg, type=type_):
            return f"{of(arg)}::{type_}"
        case Call(fn=fn, args=(left, right)) if not fn[0].isalnum() or fn in ("and", "or"):
            return f"({of(left)} {fn} {of(right)})"
        case Call(fn=fn, args=args):
            return f"{fn}({', '.join(map(of, args))})"


def located(
    error: str, expr: Expr, name: Callable[[int], str], column: Callable[[int], str]
) -> str:
    """An error (as SQL) that says in which expression and for which values it happened.

    division by zero in (amount / items) where amount = 3.00, items = 0
    """
    used = {name(at): column(at) for at in sorted(columns_of(expr))}
    where = f", ' where ', {values_sql(used)}" if used else ""
    return f"concat({error}, {quoted(f' in {spelled(expr, name)}')}{where})"


def values_sql(named: Mapping[str, str]) -> str:
    """Names and values (as SQL), to be put together by `concat`."""
    listed = [
        f"{quoted(f'{name} = ')}, coalesce(CAST({text} AS STRING), 'NULL')"
        for name, text in named.items()
    ]
    return ", ', ', ".join(listed)
