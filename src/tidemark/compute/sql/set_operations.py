"""UNION, INTERSECT and EXCEPT: branches brought to the same types, and put together."""

from __future__ import annotations

from sqlglot import exp

from tidemark.compute.casts import common_type
from tidemark.compute.functions import cast
from tidemark.compute.literals import UNKNOWN
from tidemark.compute.plan import (
    Local,
    Plan,
    Project,
    Union,
    distinct,
    except_all,
    intersect_all,
)
from tidemark.compute.sql.correlation import Names, bound, cols_of, is_leaf, names_of
from tidemark.errors import SqlError, Unsupported
from tidemark.types import SqlType


def combined(tree: exp.SetOperation, left: Plan, right: Plan, names: Names) -> Plan:
    word = type(tree).__name__.upper()
    if any(tree.args.get(part) for part in ("by_name", "on", "side", "kind")):
        raise Unsupported(f"{word} BY NAME is not supported", hint="list the columns in order")
    if len(left.columns) != len(right.columns):
        raise SqlError(f"each {word} query must have the same number of columns")
    types = [
        _common(word, mine.type, theirs.type)
        for mine, theirs in zip(left.columns, right.columns, strict=True)
    ]
    shown = names_of(left.columns)
    left, right = _typed(left, types, shown), _typed(right, types, shown)
    every = not tree.args.get("distinct")
    match tree:
        case exp.Union():
            inputs = [*_branches(left), *_branches(right)] if every else [left, right]
            union = Union(tuple(inputs))
            return union if every else distinct(union)
        case exp.Except():
            return except_all(left, right) if every else except_all(distinct(left), distinct(right))
        case exp.Intersect():
            left, right = (left, right) if every else (distinct(left), distinct(right))
            if is_leaf(left):
                return intersect_all(left, right)
            shared = Local(names.fresh("left"), left.columns)
            return bound(shared.name, left, intersect_all(shared, right), same_query=True)
    raise Unsupported(f"{word} is not supported")


def _branches(plan: Plan) -> tuple[Plan, ...]:
    return plan.inputs if isinstance(plan, Union) else (plan,)


def _common(word: str, left: SqlType, right: SqlType) -> SqlType:
    type_ = common_type((left, right))
    if type_ is None:
        raise SqlError(
            f"{word} types {left.name} and {right.name} cannot be matched", sqlstate="42804"
        )
    return type_


def _typed(plan: Plan, types: list[SqlType], names: tuple[str, ...]) -> Plan:
    """The plan with columns of these types; bare literals of a select list become such."""
    if [column.type for column in plan.columns] == types:
        return plan
    if isinstance(plan, Project):
        outputs = tuple(cast(expr, type_) for expr, type_ in zip(plan.outputs, types, strict=True))
        return Project(plan.input, outputs, plan.names)
    assert all(column.type != UNKNOWN for column in plan.columns)
    outputs = tuple(cast(col, type_) for col, type_ in zip(cols_of(plan), types, strict=True))
    return Project(plan, outputs, names)
