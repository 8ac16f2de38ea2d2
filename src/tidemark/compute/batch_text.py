"""Pieces of the SQL text that batch queries are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidemark.compute.expr import Expr
from tidemark.compute.render_expr import error, value
from tidemark.types import Column


def checked(expr: Expr, column: Callable[[int], str] | None = None) -> str:
    """The expression's value, or a failed query where it fails."""
    column = column or column_name
    plain, failed = value(expr, column), error(expr, column)
    if failed is None:
        return plain
    return f"CASE WHEN ({failed}) IS NULL THEN {plain} ELSE raise_error({failed}) END"


def column_name(index: int) -> str:
    return f"c{index}"


def names_of(columns: tuple[Column, ...]) -> list[str]:
    return [f"c{i}" for i in range(len(columns))]


def listed(items: Iterable[str]) -> str:
    return ", ".join(items)


def selected(items: Iterable[str]) -> str:
    """A select list; rows without columns have one that nobody asks for."""
    return listed(items) or "1 AS none"


def ordered(text: str, descending: bool = False, nulls_first: bool | None = None) -> str:
    """As PostgreSQL orders: nulls are larger than everything unless told."""
    first = descending if nulls_first is None else nulls_first
    return f"{text} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def view_of(name: str) -> str:
    """What a Let's or LetRec's `name` is called in Spark."""
    return f"`let {name.replace('`', '``')}`"
