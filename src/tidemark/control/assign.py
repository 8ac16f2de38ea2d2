"""Values on their way into columns, by PostgreSQL's assignment rules."""

from __future__ import annotations

from sqlglot import exp

from tidemark.compute.casts import cast, castable
from tidemark.compute.expr import Expr, Lit
from tidemark.compute.intervals import interval_text, kept, seconds_of
from tidemark.compute.literals import UNKNOWN, converted, typed
from tidemark.compute.sql.expressions import number_text
from tidemark.errors import SqlError
from tidemark.types import DOUBLE, INTERVAL, Column


def assigned_literal(literal: Lit, column: Column) -> Lit:
    if literal.type == column.type != INTERVAL:
        return literal
    if literal.value is None:
        return Lit(None, column.type)
    if literal.type != UNKNOWN:
        _check(literal, column)
    if column.type.name == "text" and literal.type == INTERVAL:
        return Lit(interval_text(seconds_of(literal)), column.type)
    if column.type.name == "text" and literal.type != UNKNOWN:
        return Lit(literal.value, column.type)
    made = converted(literal, column.type)
    if made is None:
        raise SqlError(_overflow(column), sqlstate="22003")
    return kept(made) if column.type == INTERVAL else made


def _overflow(column: Column) -> str:
    return (
        "numeric field overflow" if column.type.name == "numeric" else f"{column.type} out of range"
    )


def assigned(value: Expr, column: Column) -> Expr:
    _check(value, column)
    made = cast(value, column.type, context="assignment")
    return kept(made) if column.type == INTERVAL else made


def large(node: exp.Expr, column: Column) -> Lit | None:
    """A plain number on its way into doubles: it may be too large, or too small, for all else."""
    number = number_text(node) if column.type == DOUBLE else None
    return typed(number, DOUBLE) if number is not None else None


def _check(value: Expr, column: Column) -> None:
    if not castable(value.type, column.type, "assignment"):
        raise SqlError(
            f'column "{column.name}" is of type {column.type} but expression is of type {value.type}',
            hint="you will need to rewrite or cast the expression",
            sqlstate="42804",
        )
