"""The value of a typed expression over one request: small, and no part of any data path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemark.compute.constants import value_of
from tidemark.compute.expr import Call, Cast, Col, Expr, Lit, walk
from tidemark.compute.literals import converted, fits, moment_text, typed
from tidemark.control.webhook.functions import FUNCTIONS, NULLABLE, OWN
from tidemark.errors import DataError, Unsupported
from tidemark.types import (
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    JSONB,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
)

_MOMENTS = (DATE, TIMESTAMP, TIMESTAMPTZ)
_LAZY = ("and", "or", "case", "coalesce", "in")
"""Not all of whose arguments count, or are looked at."""


def check_possible(expr: Expr) -> None:
    """Refuse by name what cannot be evaluated here."""
    for node in walk(expr):
        if node.type == DOUBLE or node.type.element is not None:
            raise Unsupported(
                f"values of type {node.type} are not possible in a CHECK",
                hint="use numeric, or text",
            )
        if isinstance(node, Call) and not (
            node.fn in FUNCTIONS or node.fn in NULLABLE or node.fn in _LAZY
        ):
            known = sorted(name for name in [*FUNCTIONS, *NULLABLE] if name.isidentifier())
            raise Unsupported(
                f"{node.fn} is not possible in a CHECK",
                hint=f"functions that are: {', '.join(known)}",
            )
        if isinstance(node, Call) and (node.fn in OWN or node.fn == "extract"):
            _check_constants(node)
        if isinstance(node, Cast) and not _is_possible(node.arg.type, node.type):
            raise Unsupported(
                f"a cast of {node.arg.type} to {node.type} is not possible in a CHECK"
            )


def _check_constants(call: Call) -> None:
    """What is wrong with a constant is told now, not to whoever sends requests."""
    at = 0 if call.fn == "extract" else -1
    last = call.args[at]
    if isinstance(last, Lit) and last.value is not None and call.fn != "constant_time_eq":
        sample = {TEXT: "", BYTEA: b""}
        given = [sample.get(arg.type) for arg in call.args]
        given[at] = last.value
        if call.fn == "extract":
            given[1] = value_of(typed("1970-01-01", call.args[1].type))
        FUNCTIONS[call.fn](*given)


def evaluate(expr: Expr, row: Sequence[Any]) -> Any:
    """Null is None. Raises where PostgreSQL would."""
    match expr:
        case Col(index=index):
            return row[index]
        case Lit():
            return value_of(expr)
        case Cast(arg=arg, type=type_):
            return _converted(evaluate(arg, row), arg.type, type_)
        case Call(fn=fn, args=args) if fn in _LAZY:
            return _lazily(fn, args, row)
        case Call(fn=fn, args=args):
            values = [evaluate(arg, row) for arg in args]
            if fn in NULLABLE:
                return NULLABLE[fn](*values)
            if any(value is None for value in values):
                return None
            return _in_range(FUNCTIONS[fn](*values), expr.type)


def _lazily(fn: str, args: tuple[Expr, ...], row: Sequence[Any]) -> Any:
    match fn:
        case "and" | "or":
            decided = fn == "or"
            unknown = False
            for arg in args:
                value = evaluate(arg, row)
                if value is decided:
                    return decided
                unknown = unknown or value is None
            return None if unknown else not decided
        case "case":
            for at in range(0, len(args) - 1, 2):
                if evaluate(args[at], row) is True:
                    return evaluate(args[at + 1], row)
            return evaluate(args[-1], row)
        case "coalesce":
            values = (evaluate(arg, row) for arg in args)
            return next((value for value in values if value is not None), None)
        case _:
            subject, *listed = (evaluate(arg, row) for arg in args)
            if subject is None:
                return None
            if subject in [value for value in listed if value is not None]:
                return True
            return None if None in listed else False


def _in_range(value: Any, type_: SqlType) -> Any:
    if type_.is_integer and value is not None and not fits(value, type_):
        raise DataError(f"{type_} out of range", sqlstate="22003")
    return value


def _is_possible(source: SqlType, target: SqlType) -> bool:
    if TEXT in (source, target) or (source.is_exact and target.is_exact):
        return True
    if source == JSONB:
        return target == BOOLEAN or target.is_exact
    return source in _MOMENTS and target in _MOMENTS


def _converted(value: Any, source: SqlType, target: SqlType) -> Any:
    """By way of the texts that literals have, so that it means what the planner means by it."""
    if value is None or source == target:
        return value
    text = _text(value, source)
    if target == TEXT:
        return text
    if source in (TEXT, JSONB):
        if source == JSONB and (target == BOOLEAN) != (text in ("true", "false")):
            raise DataError(f"cannot cast this jsonb to type {target}", sqlstate="22023")
        return value_of(typed(text, target))
    made = converted(Lit(text, source), target)
    if made is None:
        raise DataError(f"{target} out of range", sqlstate="22003")
    return value_of(made)


def _text(value: Any, type_: SqlType) -> str:
    match type_.name:
        case "boolean":
            return "true" if value else "false"
        case "bytea":
            return f"\\x{value.hex()}"
        case "numeric":
            text = format(value, "f")
            bare = type_.precision is None and "." in text
            return text.rstrip("0").rstrip(".") if bare else text
        case "timestamp":
            return moment_text(value)
        case "timestamp with time zone":
            return moment_text(value.replace(tzinfo=None)) + "+00"
        case _:
            return str(value)
