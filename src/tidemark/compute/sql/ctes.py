"""WITH: common table expressions, recursive ones too.

What is used once is inlined; what is used more than once is bound by a `Let` around the query.
WITH MUTUALLY RECURSIVE declares the columns of its bindings, because they are needed before their
queries are planned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlglot import exp

from tidemark.compute.functions import cast
from tidemark.compute.plan import Binding, Finish, LetRec, Local, Plan, Project
from tidemark.compute.sql.context import Context
from tidemark.compute.sql.correlation import bound, cols_of, names_of
from tidemark.compute.sql.dialect import identifier, sql_type
from tidemark.compute.sql.renaming import alias_columns, renamed
from tidemark.errors import SqlError, Unsupported
from tidemark.types import Column


def with_ctes(
    context: Context, tree: exp.Expr, body: Callable[[Context], Plan], unsettled: Nested
) -> Plan:
    """`body`, planned where the names of the query's WITH mean something.

    `unsettled` plans a query whose bare literals take the type that is asked of them.
    """
    with_ = tree.args.get("with_")
    if with_ is None:
        return body(context)
    if with_.args.get("mutually"):
        return _recursive(context, with_, body, unsettled)
    if with_.args.get("recursive"):
        raise Unsupported(
            "WITH RECURSIVE is not supported",
            hint="use WITH MUTUALLY RECURSIVE name (column type, ...) AS (...)",
        )
    values: list[tuple[Local, Plan]] = []
    mine: set[str] = set()
    for cte in with_.expressions:
        name = identifier(cte.args["alias"].this)
        _check_new(name, mine)
        if not isinstance(cte.this, exp.Query | exp.Values):
            raise Unsupported(
                "data-modifying statements in WITH are not supported", hint="run them first"
            )
        plan = context.nested(context, cte.this)
        plan = renamed(plan, alias_columns(cte), f'table "{name}"')
        local = Local(context.names.fresh(name), plan.columns)
        values.append((local, plan))
        context = context.with_ctes({name: local})
    result = body(context)
    for local, plan in reversed(values):
        result = around(result, partial(bound, local.name, plan))
    return result


Nested = Callable[[Context, exp.Expr], Plan]


def around(plan: Plan, wrap: Callable[[Plan], Plan]) -> Plan:
    """`wrap` of a query's rows; its order and limit stay outside."""
    if isinstance(plan, Finish):
        return Finish(wrap(plan.input), plan.order_by, plan.limit, plan.offset, plan.keep)
    return wrap(plan)


def _recursive(
    context: Context, with_: exp.Expr, body: Callable[[Context], Plan], unsettled: Nested
) -> Plan:
    mine: set[str] = set()
    locals_: dict[str, Local] = {}
    for cte in with_.expressions:
        name = identifier(cte.args["alias"].this)
        _check_new(name, mine)
        columns = tuple(
            Column(identifier(each.this), sql_type(each.args["kind"]))
            for each in cte.args["alias"].args["columns"]
        )
        locals_[name] = Local(context.names.fresh(name), columns)
    context = context.with_ctes(locals_)
    bindings = tuple(
        Binding(
            local.name,
            local.columns,
            _declared(unsettled(context, cte.this), local.columns, name),
        )
        for cte, (name, local) in zip(with_.expressions, locals_.items(), strict=True)
    )
    limit = with_.args.get("limit")
    returns = bool(with_.args.get("return_at_limit"))
    return around(body(context), lambda inner: LetRec(bindings, inner, limit, returns))


def _declared(plan: Plan, columns: tuple[Column, ...], name: str) -> Plan:
    """The query of a binding, as the columns that were declared for it."""
    if len(plan.columns) != len(columns):
        raise SqlError(
            f'WITH MUTUALLY RECURSIVE query "{name}" declared {len(columns)} columns, '
            f"but its query returns {len(plan.columns)}",
            sqlstate="42P10",
        )
    given = plan.outputs if isinstance(plan, Project) else cols_of(plan)
    source = plan.input if isinstance(plan, Project) else plan
    outputs = tuple(
        cast(expr, column.type, context="assignment")
        for expr, column in zip(given, columns, strict=True)
    )
    return Project(source, outputs, names_of(columns))


def _check_new(name: str, seen: set[str]) -> None:
    if name in seen:
        raise SqlError(f'WITH query name "{name}" specified more than once', sqlstate="42712")
    seen.add(name)
