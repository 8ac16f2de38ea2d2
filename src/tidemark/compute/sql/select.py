"""SELECT and VALUES to plans: FROM, WHERE, GROUP BY, HAVING, the select list, ORDER BY, LIMIT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tidemark.compute.casts import common_type, settled
from tidemark.compute.expr import Call, Cast, Col, Expr, Lit
from tidemark.compute.functions import call, cast
from tidemark.compute.literals import UNKNOWN, number_literal
from tidemark.compute.plan import (
    Aggregate,
    Constant,
    Filter,
    Finish,
    Get,
    Join,
    OrderBy,
    Plan,
    Project,
    Reduce,
)
from tidemark.compute.sql.dialect import identifier
from tidemark.compute.sql.expressions import Expressions
from tidemark.compute.sql.scope import Resolver, Scope
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BIGINT, Column

ONE_ROW = Constant(((),), ())
"""What a SELECT without FROM selects from."""


def plan_query(
    tree: exp.Expr,
    resolver: Resolver,
    *,
    params: tuple[Lit, ...] = (),
    session: Mapping[str, Lit] | None = None,
    view: bool = False,
    names: tuple[str, ...] = (),
) -> Plan:
    """The plan of a query.

    `params` are the values of $1, $2, ...; `session` those of functions like `now()` and
    `version()` that are constant within one query (none in a view). As a `view`, an ORDER BY is
    ignored, a LIMIT refused, and column names must differ. `names` renames the first columns.
    """
    planner = _Planner(resolver, params, {} if view else session or {})
    if view:
        plan = planner.nested(tree, "a view")
    else:
        plan = planner.query(tree)
    plan = _renamed(plan, names)
    if view:
        _check_distinct_names(plan)
    return plan


@dataclass(slots=True)
class _Item:
    """One output column: its name and its expression over the (grouped) input."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class _Planner:
    resolver: Resolver
    params: tuple[Lit, ...]
    session: Mapping[str, Lit]
    ctes: Mapping[str, Plan] = field(default_factory=dict)

    # Queries -----------------------------------------------------------------------------------

    def query(self, tree: exp.Expr) -> Plan:
        """A whole query, with its ORDER BY and LIMIT as a Finish."""
        planner = self._with_ctes(tree)
        match tree:
            case exp.Select():
                return planner._select(tree)
            case exp.Values():
                return planner._finished_values(tree)
            case exp.Subquery() if not tree.args.get("alias"):
                return planner._parenthesised(tree)
            case exp.SetOperation():
                raise Unsupported(
                    f"{type(tree).__name__.upper()} is not supported",
                    hint="create a view per part and query them one by one",
                )
        raise Unsupported(f"{type(tree).__name__.upper()} is not a query that can be planned")

    def nested(self, tree: exp.Expr, where: str) -> Plan:
        """A query inside something: its order means nothing, a limit is refused."""
        plan = self.query(tree)
        if not isinstance(plan, Finish):
            return plan
        if plan.limit is not None or plan.offset:
            raise Unsupported(
                f"LIMIT and OFFSET in {where} are not supported",
                hint="limit the query that reads it instead",
            )
        if plan.keep == len(plan.input.columns):
            return plan.input
        columns = plan.columns
        cols = tuple(Col(at, column.type) for at, column in enumerate(columns))
        return Project(plan.input, cols, tuple(column.name for column in columns))

    def _with_ctes(self, tree: exp.Expr) -> _Planner:
        with_ = tree.args.get("with_")
        if with_ is None:
            return self
        if with_.args.get("recursive"):
            raise Unsupported("WITH RECURSIVE is not supported")
        planner = self
        mine: set[str] = set()
        for cte in with_.expressions:
            name = identifier(cte.args["alias"].this)
            if name in mine:
                raise SqlError(
                    f'WITH query name "{name}" specified more than once', sqlstate="42712"
                )
            mine.add(name)
            plan = planner.nested(cte.this, "WITH")
            plan = _renamed(plan, _alias_columns(cte), f'table "{name}"')
            planner = replace(planner, ctes={**planner.ctes, name: plan})
        return planner

    def _parenthesised(self, tree: exp.Subquery) -> Plan:
        if any(tree.args.get(part) for part in ("order", "limit", "offset")):
            plan = self.nested(tree.this, "parentheses")
            scope = Scope()
            scope.add(None, plan.columns, ())
            items = [_Item(scope.name_of(col), col) for col in scope.order]
            return self._finish(tree, plan, scope, items, None)
        return self.query(tree.this)

    def _finished_values(self, tree: exp.Values) -> Plan:
        plan = self._values(tree)
        scope = Scope()
        scope.add(None, plan.columns, ())
        items = [_Item(scope.name_of(col), col) for col in scope.order]
        return self._finish(tree, plan, scope, items, None)

    def _values(self, tree: exp.Values) -> Plan:
        plan_row = Expressions(Scope(), "VALUES", self.params, self.session).plan
        rows: list[list[Expr]] = []
        for row in tree.expressions:
            nodes = row.expressions if isinstance(row, exp.Tuple) else [row]
            rows.append([plan_row(node) for node in nodes])
        return values_plan(rows)

    # SELECT ------------------------------------------------------------------------------------

    def _select(self, tree: exp.Select) -> Plan:
        _refuse_extras(tree)
        plan, scope = self._from(tree)
        where = tree.args.get("where")
        if where:
            plan = Filter(plan, self._expressions(scope, "WHERE").predicate(where.this))

        aggregates: list[Aggregate] = []
        listed = self._expressions(scope, "SELECT", aggregates)
        items = self._items(tree, scope, listed)
        group, having = tree.args.get("group"), tree.args.get("having")
        keys = self._keys(group, scope, tree, items) if group else []
        condition = None
        if having:
            condition = self._expressions(scope, "HAVING", aggregates).predicate(having.this)
        # The aggregates of ORDER BY belong to the same Reduce, so they are planned before it.
        orders = self._orders(tree, scope, items, aggregates)

        if group or having or aggregates:
            grouping = _Grouping(scope, tuple(keys), len(keys))
            names = tuple(f"key{at}" for at in range(len(keys)))
            names += tuple(aggregate.fn for aggregate in aggregates)
            plan = Reduce(plan, tuple(keys), tuple(aggregates), names)
            items = [_Item(item.name, grouping.over(item.expr)) for item in items]
            orders = [(grouping.over(expr), how) for expr, how in orders]
            if condition is not None:
                plan = Filter(plan, grouping.over(condition))
        return self._output(tree, plan, items, orders)

    def _output(
        self,
        tree: exp.Expr,
        plan: Plan,
        items: list[_Item],
        orders: list[tuple[Expr, tuple[bool, bool | None]]],
    ) -> Plan:
        """The select list, DISTINCT, and the order with its hidden columns behind the rest."""
        outputs = [item.expr for item in items]
        names = [item.name for item in items]
        distinct = tree.args.get("distinct") is not None
        order_by: list[OrderBy] = []
        for expr, (descending, nulls_first) in orders:
            if expr not in outputs:
                if distinct:
                    raise SqlError(
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                        sqlstate="42P10",
                    )
                outputs.append(expr)
                names.append("?order?")
            order_by.append(OrderBy(outputs.index(expr), descending, nulls_first))
        plan = Project(plan, tuple(outputs), tuple(names))
        if distinct:
            cols = tuple(Col(at, expr.type) for at, expr in enumerate(outputs))
            plan = Reduce(plan, cols, (), tuple(names))
        limit, offset = self._bounds(tree)
        if not order_by and limit is None and not offset:
            return plan
        return Finish(plan, tuple(order_by), limit, offset, len(items))

    def _finish(
        self,
        tree: exp.Expr,
        plan: Plan,
        scope: Scope,
        items: list[_Item],
        aggregates: list[Aggregate] | None,
    ) -> Plan:
        orders = self._orders(tree, scope, items, aggregates)
        limit, offset = self._bounds(tree)
        if not orders and limit is None and not offset:
            return plan
        return self._output(tree, plan, items, orders)

    def _expressions(
        self, scope: Scope, clause: str, aggregates: list[Aggregate] | None = None
    ) -> Expressions:
        return Expressions(scope, clause, self.params, self.session, aggregates)

    def _items(self, tree: exp.Select, scope: Scope, listed: Expressions) -> list[_Item]:
        items: list[_Item] = []
        for node in tree.expressions:
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                items += self._star(node, scope)
                continue
            inner = node.this if isinstance(node, exp.Alias) else node
            name = identifier(node.args["alias"]) if isinstance(node, exp.Alias) else None
            items.append(_Item(name or output_name(inner), settled(listed.plan(inner))))
        if not items:
            raise Unsupported("SELECT without columns is not supported", hint="select something")
        return items

    def _star(self, node: exp.Expr, scope: Scope) -> list[_Item]:
        star = node.this if isinstance(node, exp.Column) else node
        if any(star.args.get(part) for part in ("except_", "replace", "rename")):
            raise Unsupported("* EXCEPT, REPLACE and RENAME are not supported")
        qualifier = (
            tuple(identifier(p) for p in node.parts[:-1]) if isinstance(node, exp.Column) else ()
        )
        if not scope.relations:
            raise SqlError("SELECT * with no tables specified is not valid")
        return [_Item(scope.name_of(col), col) for col in scope.star(qualifier)]

    # FROM --------------------------------------------------------------------------------------

    def _from(self, tree: exp.Select) -> tuple[Plan, Scope]:
        from_ = tree.args.get("from_")
        if from_ is None:
            return ONE_ROW, Scope()
        scope = Scope()
        inputs: list[Plan] = []
        on: list[Expr] = []
        self._join_chain(from_.this, tree.args.get("joins") or [], scope, inputs, on)
        return (inputs[0] if len(inputs) == 1 and not on else Join(tuple(inputs), tuple(on))), scope

    def _join_chain(
        self,
        first: exp.Expr,
        joins: list[exp.Join],
        scope: Scope,
        inputs: list[Plan],
        on: list[Expr],
    ) -> Scope:
        """Adds `first JOIN ... JOIN ...`; ON and USING see only what their own chain joins."""
        chain = self._item(first, scope, inputs, on)
        for join in joins:
            _refuse_join(join)
            added = self._item(join.this, scope, inputs, on)
            explicit = join.args.get("kind") or join.args.get("on") or join.args.get("using")
            if not explicit and not _is_comma(join):
                raise SqlError("syntax error: JOIN needs ON or USING")
            if not explicit:
                chain = added
                continue
            using = join.args.get("using")
            if using:
                pairs, chain = scope.merge(chain, added, [identifier(name) for name in using])
                on += [call("=", pair) for pair in pairs]
                continue
            chain = Scope(
                [*chain.relations, *added.relations], [*chain.order, *added.order], scope.width
            )
            if join.args.get("on"):
                on.append(self._expressions(chain, "JOIN/ON").predicate(join.args["on"]))
        return chain

    def _item(self, node: exp.Expr, scope: Scope, inputs: list[Plan], on: list[Expr]) -> Scope:
        inner = node.this
        if isinstance(node, exp.Subquery) and isinstance(inner, exp.Table):
            if node.args.get("alias"):
                raise Unsupported("an alias for a parenthesised join is not supported")
            return self._item(inner, scope, inputs, on)
        if isinstance(node, exp.Table) and node.args.get("joins"):
            joins = node.args["joins"]
            alone = node.copy()
            alone.set("joins", None)
            return self._join_chain(alone, joins, scope, inputs, on)
        name, plan, parts = self._relation(node)
        plan = _renamed(plan, _alias_columns(node), f'table "{name}"')
        inputs.append(plan)
        return scope.add(name, plan.columns, parts)

    def _relation(self, node: exp.Expr) -> tuple[str | None, Plan, tuple[str, ...]]:
        alias = node.args.get("alias")
        alias_name = identifier(alias.this) if alias and alias.this else None
        match node:
            case exp.Table():
                parts = _table_parts(node)
                if len(parts) == 1 and parts[0] in self.ctes:
                    return alias_name or parts[0], self.ctes[parts[0]], parts
                plan = self.resolver.resolve(parts)
                plan = plan.input if isinstance(plan, Finish) else plan
                return alias_name or parts[-1], plan, () if alias_name else parts
            case exp.Subquery():
                return alias_name, self.nested(_unwrapped(node), "a subquery"), ()
            case exp.Values():
                return alias_name, self._values(node), ()
            case exp.Lateral():
                raise Unsupported(
                    "LATERAL is not supported", hint="write the subquery without outer references"
                )
        raise Unsupported(f"{type(node).__name__.upper()} in FROM is not supported")

    # GROUP BY and ORDER BY -----------------------------------------------------------------------

    def _keys(
        self, group: exp.Group, scope: Scope, tree: exp.Select, items: list[_Item]
    ) -> list[Expr]:
        """The grouping expressions: ordinals, input columns, output names, or expressions."""
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise Unsupported(
                "GROUPING SETS, ROLLUP and CUBE are not supported",
                hint="group by plain expressions",
            )
        planner = self._expressions(scope, "GROUP BY")
        keys: list[Expr] = []
        for node in group.expressions:
            if isinstance(node, exp.Tuple | exp.Rollup | exp.Cube | exp.GroupingSets):
                raise Unsupported(
                    "GROUPING SETS, ROLLUP and CUBE are not supported",
                    hint="group by plain expressions",
                )
            item = _ordinal(node, items, "GROUP BY")
            if item is None and _bare_name(node) is not None:
                item = self._output_for_group(node, scope, items)
            if item is not None:
                if _has_aggregate(item.expr, scope):
                    raise SqlError(
                        "aggregate functions are not allowed in GROUP BY", sqlstate="42803"
                    )
                key = item.expr
            else:
                key = settled(planner.plan(node))
            if key not in keys:
                keys.append(key)
        return keys

    def _output_for_group(self, node: exp.Expr, scope: Scope, items: list[_Item]) -> _Item | None:
        """An output column of that name, unless an input column has it too."""
        name = _bare_name(node)
        if any(scope.name_of(col) == name for col in scope.order):
            return None
        return _named(items, name, "GROUP BY")

    def _orders(
        self,
        tree: exp.Expr,
        scope: Scope,
        items: list[_Item],
        aggregates: list[Aggregate] | None,
    ) -> list[tuple[Expr, tuple[bool, bool | None]]]:
        order = tree.args.get("order")
        found: list[tuple[Expr, tuple[bool, bool | None]]] = []
        for ordered in order.expressions if order else ():
            node = ordered.this
            descending = bool(ordered.args.get("desc"))
            nulls_first = ordered.args.get("nulls_first")
            # Nulls are the largest values: only what differs from that needs saying.
            how = (descending, None if nulls_first in (None, descending) else bool(nulls_first))
            item = _ordinal(node, items, "ORDER BY")
            if item is None and (name := _bare_name(node)) is not None:
                item = _named(items, name, "ORDER BY")
            if item is not None:
                found.append((item.expr, how))
                continue
            planner = self._expressions(scope, "ORDER BY", aggregates)
            found.append((settled(planner.plan(node)), how))
        return found

    def _bounds(self, tree: exp.Expr) -> tuple[int | None, int]:
        limit, offset = tree.args.get("limit"), tree.args.get("offset")
        count: exp.Expr | None = None
        if isinstance(limit, exp.Fetch):
            options = limit.args.get("limit_options")
            if options and (options.args.get("percent") or options.args.get("with_ties")):
                raise Unsupported("FETCH ... PERCENT and WITH TIES are not supported")
            count = limit.args.get("count") or exp.Literal.number(1)
        elif limit is not None:
            if limit.args.get("expressions"):
                raise SqlError('syntax error at or near "BY"')
            count = limit.expression
        return self._bound(count, "LIMIT"), self._bound(offset and offset.expression, "OFFSET") or 0

    def _bound(self, node: exp.Expr | None, clause: str) -> int | None:
        if node is None or (isinstance(node, exp.Var) and node.name.upper() == "ALL"):
            return None
        bound = cast(self._expressions(Scope(), clause).plan(node), BIGINT)
        if not isinstance(bound, Lit):
            raise Unsupported(f"{clause} must be a constant", hint="compute it beforehand")
        if bound.value is None:
            return None
        if int(bound.value) < 0:
            code = "2201W" if clause == "LIMIT" else "2201X"
            raise SqlError(f"{clause} must not be negative", sqlstate=code)
        return int(bound.value)


@dataclass(frozen=True, slots=True)
class _Grouping:
    """Rewrites expressions over the input into expressions over the Reduce's output."""

    scope: Scope
    keys: tuple[Expr, ...]
    key_count: int

    def over(self, expr: Expr) -> Expr:
        if expr in self.keys:
            return Col(self.keys.index(expr), expr.type)
        match expr:
            case Col(index=index, type=type_) if index >= self.scope.width:
                return Col(self.key_count + index - self.scope.width, type_)
            case Col():
                raise SqlError(
                    f'column "{self.scope.qualified_name(expr)}" must appear in the GROUP BY '
                    "clause or be used in an aggregate function",
                    sqlstate="42803",
                )
            case Call(fn=fn, args=args, type=type_):
                return Call(fn, tuple(self.over(arg) for arg in args), type_)
            case Cast(arg=arg, type=type_):
                return Cast(self.over(arg), type_)
            case Lit():
                return expr


def values_plan(rows: list[list[Expr]]) -> Plan:
    """Rows of expressions as a Constant; columns named column1, column2, ..."""
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise SqlError("VALUES lists must all be the same length")
    columns: list[Column] = []
    for at in range(width):
        type_ = common_type({row[at].type for row in rows})
        if type_ is None:
            names = sorted({row[at].type.name for row in rows if row[at].type != UNKNOWN})
            raise SqlError(
                f"VALUES types {names[0]} and {names[1]} cannot be matched", sqlstate="42804"
            )
        columns.append(Column(f"column{at + 1}", type_))
    typed = [
        [cast(expr, column.type) for expr, column in zip(row, columns, strict=True)] for row in rows
    ]
    return rows_plan(typed, tuple(columns))


def rows_plan(rows: list[list[Expr]], columns: tuple[Column, ...]) -> Plan:
    """A Constant; an expression that is no literal is computed over it, chosen by row number."""
    computed = [at for at in range(len(columns)) if any(not isinstance(r[at], Lit) for r in rows)]
    constants = tuple(
        tuple(expr if isinstance(expr, Lit) else Lit(None, expr.type) for expr in row)
        for row in rows
    )
    if not computed:
        return Constant(constants, columns)
    names = tuple(column.name for column in columns)
    numbered = Constant(
        tuple((number_literal(str(n)), *row) for n, row in enumerate(constants)),
        (Column("row", number_literal("0").type), *columns),
    )
    number = Col(0, number_literal("0").type)
    outputs: list[Expr] = [Col(at + 1, column.type) for at, column in enumerate(columns)]
    for at in computed:
        branches: list[Expr] = []
        for n, row in enumerate(rows[:-1]):
            branches += [call("=", (number, number_literal(str(n)))), row[at]]
        otherwise = rows[-1][at]
        outputs[at] = call("case", (*branches, otherwise)) if branches else otherwise
    return Project(numbered, tuple(outputs), names)


def output_name(node: exp.Expr) -> str:
    """What PostgreSQL calls a column without an alias."""
    match node:
        case exp.Column():
            return identifier(node.this)
        case exp.Paren(this=inner):
            return output_name(inner)
        case exp.Anonymous():
            return identifier(node.this)
        case exp.Dot(expression=exp.Anonymous() as function):
            return identifier(function.this)
        case exp.Case():
            default = node.args.get("default")
            name = output_name(default) if default is not None else "?column?"
            return name if isinstance(default, exp.Column) else "case"
        case exp.Extract():
            return "extract"
        case exp.Substring():
            return "substring"
        case exp.StrPosition():
            return "position"
        case exp.Trim():
            position = node.args.get("position") or ""
            return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "btrim")
        case exp.Boolean():
            return "bool"
        case exp.Cast(this=inner):
            name = output_name(inner)
            return name if name != "?column?" else _TYPE_NAME.get(node.args["to"].this, name)
    return "?column?"


_TYPE_NAME = {
    exp.DType.BOOLEAN: "bool",
    exp.DType.SMALLINT: "int2",
    exp.DType.INT: "int4",
    exp.DType.BIGINT: "int8",
    exp.DType.DECIMAL: "numeric",
    exp.DType.DOUBLE: "float8",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "varchar",
    exp.DType.VARBINARY: "bytea",
    exp.DType.JSONB: "jsonb",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamptz",
}

_SELECT_PARTS = frozenset(
    "expressions from_ joins where group having distinct order limit offset with_ hint".split()
)
_EXTRA_NAMES = {
    "windows": "WINDOW",
    "locks": "FOR UPDATE and FOR SHARE",
    "into": "SELECT INTO",
    "qualify": "QUALIFY",
    "laterals": "LATERAL",
}


def _refuse_extras(tree: exp.Select) -> None:
    for name, part in tree.args.items():
        if part and name not in _SELECT_PARTS:
            what = _EXTRA_NAMES.get(name, name.strip("_").upper())
            raise Unsupported(f"{what} is not supported")
    distinct = tree.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        raise Unsupported(
            "DISTINCT ON is not supported", hint="use GROUP BY with min or max instead"
        )


def _refuse_join(join: exp.Join) -> None:
    side, kind = join.args.get("side") or "", join.args.get("kind") or ""
    method = join.args.get("method") or ""
    if side in ("LEFT", "RIGHT", "FULL") or kind == "OUTER":
        raise Unsupported(
            f"{side or 'OUTER'} JOIN is not supported",
            hint="use an inner JOIN; outer joins cannot be maintained yet",
        )
    if method or kind not in ("", "INNER", "CROSS"):
        what = " ".join(word for word in (method, side, kind) if word)
        raise Unsupported(f"{what} JOIN is not supported", hint="use JOIN ... ON or USING")


def _is_comma(join: exp.Join) -> bool:
    return not any(join.args.get(part) for part in ("side", "kind", "method", "on", "using"))


def _table_parts(node: exp.Table) -> tuple[str, ...]:
    if not isinstance(node.this, exp.Identifier):
        raise Unsupported(
            f"table functions are not supported: {node.sql(dialect='postgres')[:60]}",
            hint="keep the rows in a table, or write them as VALUES",
        )
    for name, part in node.args.items():
        if part and name not in ("this", "db", "catalog", "alias", "joins", "only"):
            raise Unsupported(f"{name.strip('_').upper()} on a table is not supported")
    return tuple(identifier(part) for part in node.parts)


def _unwrapped(node: exp.Expr) -> exp.Expr:
    inner = node.this
    while isinstance(inner, exp.Subquery) and not any(
        inner.args.get(part) for part in ("order", "limit", "offset", "with_")
    ):
        inner = inner.this
    return inner


def _alias_columns(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    return tuple(identifier(column) for column in columns or ())


def _renamed(plan: Plan, names: tuple[str, ...], what: str = "the query") -> Plan:
    """The plan with its first columns renamed."""
    columns = plan.columns
    if not names:
        return plan
    if len(names) > len(columns):
        raise SqlError(
            f"{what} has {len(columns)} columns available but {len(names)} columns specified",
            sqlstate="42P10",
        )
    every = (*names, *(column.name for column in columns[len(names) :]))
    match plan:
        case Get() | Constant():
            cols = tuple(Col(at, column.type) for at, column in enumerate(columns))
            return Project(plan, cols, every)
        case Project(input=input_, outputs=outputs):
            return Project(input_, outputs, every)
        case Finish(input=input_):
            hidden = tuple(column.name for column in input_.columns[plan.keep :])
            renamed = _renamed(input_, (*every, *hidden))
            return Finish(renamed, plan.order_by, plan.limit, plan.offset, plan.keep)
        case _:
            cols = tuple(Col(at, column.type) for at, column in enumerate(columns))
            return Project(plan, cols, every)


def _check_distinct_names(plan: Plan) -> None:
    seen: set[str] = set()
    for column in plan.columns:
        if column.name in seen:
            raise SqlError(f'column "{column.name}" specified more than once', sqlstate="42701")
        seen.add(column.name)


def _ordinal(node: exp.Expr, items: list[_Item], clause: str) -> _Item | None:
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string or not node.name.isdigit():
        raise SqlError(f"non-integer constant in {clause}")
    position = int(node.name)
    if not 1 <= position <= len(items):
        raise SqlError(f"{clause} position {position} is not in select list", sqlstate="42P10")
    return items[position - 1]


def _bare_name(node: exp.Expr) -> str | None:
    if (
        isinstance(node, exp.Column)
        and len(node.parts) == 1
        and not isinstance(node.this, exp.Star)
    ):
        return identifier(node.this)
    return None


def _named(items: list[_Item], name: str | None, clause: str) -> _Item | None:
    found = [item for item in items if item.name == name]
    if found and any(item.expr != found[0].expr for item in found):
        raise SqlError(f'{clause} "{name}" is ambiguous', sqlstate="42702")
    return found[0] if found else None


def _has_aggregate(expr: Expr, scope: Scope) -> bool:
    match expr:
        case Col(index=index):
            return index >= scope.width
        case Call(args=args):
            return any(_has_aggregate(arg, scope) for arg in args)
        case Cast(arg=arg):
            return _has_aggregate(arg, scope)
        case _:
            return False
