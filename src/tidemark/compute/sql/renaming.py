"""Column names given to a plan from outside: aliases, and the columns of a view."""

from __future__ import annotations

from sqlglot import exp

from tidemark.compute.plan import Finish, FlatMap, Let, LetRec, Plan, Project
from tidemark.compute.sql.correlation import cols_of, names_of, narrowed
from tidemark.compute.sql.dialect import identifier
from tidemark.errors import SqlError
from tidemark.types import Column


def alias_columns(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    offset = node.args.get("offset") if isinstance(node, exp.Unnest) else None
    # sqlglot takes the last column of UNNEST ... WITH ORDINALITY AS s(x, o) for the number's name.
    numbered = [offset] if isinstance(offset, exp.Identifier) and columns else []
    return tuple(identifier(column) for column in [*(columns or ()), *numbered])


def renamed(plan: Plan, names: tuple[str, ...], what: str = "the query") -> Plan:
    """The plan with its first columns renamed."""
    columns = plan.columns
    if not names:
        return plan
    if len(names) > len(columns):
        raise SqlError(
            f"{what} has {len(columns)} columns available but {len(names)} columns specified",
            sqlstate="42P10",
        )
    every = (*names, *names_of(columns[len(names) :]))
    match plan:
        case Project(input=input_, outputs=outputs):
            return Project(input_, outputs, every)
        case FlatMap(made=made) if len(made) == len(columns):
            given = tuple(Column(name, each.type) for name, each in zip(every, made, strict=True))
            return FlatMap(plan.input, plan.fn, plan.args, given)
        case Let(name=name, value=value, body=body):
            return Let(name, value, renamed(body, every))
        case LetRec(bindings=bindings, body=body):
            return LetRec(bindings, renamed(body, every), plan.limit, plan.return_at_limit)
        case Finish(input=input_):
            hidden = names_of(input_.columns[plan.keep :])
            inner = renamed(input_, (*every, *hidden))
            return Finish(inner, plan.order_by, plan.limit, plan.offset, plan.keep)
        case _:
            return Project(plan, cols_of(plan), every)


def check_distinct_names(plan: Plan) -> None:
    seen: set[str] = set()
    for column in plan.columns:
        if column.name in seen:
            raise SqlError(f'column "{column.name}" specified more than once', sqlstate="42701")
        seen.add(column.name)


def visible(plan: Finish) -> Plan:
    """What a query shows, whatever its order."""
    return narrowed(plan.input, plan.keep)
