"""What stands in an expression but is more than one: subqueries, GROUPING, functions with rows.

While a clause's expressions are planned, each such thing is remembered here and its place taken by
a column from a private range. When the clause is evaluated over a plan, `attached` joins the
subqueries in it to that plan and puts their values where the marks were; `filtered` does so for a
condition, where EXISTS and IN can become semi and anti joins.

Between the two, GROUP BY may have changed what the columns are; `change` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from tidemark.compute.casts import settled
from tidemark.compute.expr import TRUE, Call, Col, Expr, Lit, conjuncts, substitute, walk
from tidemark.compute.functions import call, cast
from tidemark.compute.plan import (
    Aggregate,
    Filter,
    FlatMap,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    distinct,
)
from tidemark.compute.sql.cardinality import never_null
from tidemark.compute.sql.context import Context
from tidemark.compute.sql.correlation import (
    Names,
    cols_of,
    level_of,
    map_outer,
    narrowed,
    outer_columns,
    outward,
)
from tidemark.compute.sql.correlation import index_of as outer_index
from tidemark.compute.sql.decorrelate import COUNT, exists, scalar
from tidemark.compute.sql.dialect import identifier
from tidemark.compute.sql.expressions import Expressions
from tidemark.compute.sql.lowering import ONE_ROW, joined, plain
from tidemark.compute.sql.simplify import without_padding
from tidemark.compute.sql.spark_dialect import AS_FRACTION, TOWARD_ZERO
from tidemark.compute.table_functions import TABLE_FUNCTIONS, typed_call
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, SqlType

SUBQUERY_BASE = 2_000_000
GROUPING_BASE = 3_000_000
ROWS_BASE = 4_000_000

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Like: "like",
    exp.ILike: "ilike",
}

Change = Callable[[Expr], Expr]


@dataclass(frozen=True, slots=True)
class Subquery:
    """`kind` is value, exists, any or all; the last two compare `operands` by `operator`."""

    kind: str
    plan: Plan
    operator: str = ""
    operands: tuple[Expr, ...] = ()


@dataclass(slots=True)
class Pending:
    """What the expressions of one SELECT still wait for."""

    context: Context
    subqueries: list[Subquery] = field(default_factory=list)
    groupings: list[tuple[Expr, ...]] = field(default_factory=list)
    rows: list[FlatMap] = field(default_factory=list)

    # While expressions are planned -------------------------------------------------------------

    def __call__(self, node: exp.Expr, planner: Expressions) -> Expr | None:
        """The mark that stands for `node`; None if it is an ordinary expression."""
        node = _as_parsed_without_parentheses(node)
        match node:
            case exp.Subquery() | exp.Select() | exp.SetOperation():
                plan = self._query(node, planner, 1, scalar=True)
                return self._mark(Subquery("value", plan), plan.columns[0].type)
            case exp.Exists(this=query):
                inside = self.context.inside(planner.scope)
                plan = inside.nested(inside, _unwrapped(query))
                return self._mark(Subquery("exists", plan), BOOLEAN)
            case exp.In(this=operand) if query := node.args.get("query"):
                return self._quantified("any", "=", operand, query, planner)
            case exp.Binary() if type(node) in _OPERATORS:
                return self._comparison(node, planner)
            case exp.Anonymous(this=name) if name == AS_FRACTION:
                expr = planner.plan(node.expressions[0])
                return cast(expr, DOUBLE) if expr.type.is_integer else expr
            case exp.Anonymous(this=name) if name == TOWARD_ZERO:
                expr = planner.plan(node.expressions[0])
                fraction = expr.type == DOUBLE or expr.type.name == "numeric"
                return call("trunc", (expr,)) if fraction else expr
            case exp.Anonymous() if identifier(node.this) == "grouping":
                args = tuple(settled(planner.plan(arg)) for arg in node.expressions)
                if args not in self.groupings:
                    self.groupings.append(args)
                return Col(GROUPING_BASE + self.groupings.index(args), INTEGER)
            case exp.Anonymous() if identifier(node.this) in TABLE_FUNCTIONS:
                return self._rows(identifier(node.this), node.expressions, planner)
            case exp.Unnest():
                return self._rows("unnest", node.expressions, planner)
        return None

    def _comparison(self, node: exp.Binary, planner: Expressions) -> Expr | None:
        side = _as_parsed_without_parentheses(node.expression)
        operator = _OPERATORS[type(node)]
        if isinstance(side, exp.Any | exp.All):
            query = side.this
            while isinstance(query, exp.Paren):
                query = query.this
            if not isinstance(query, exp.Query):
                return None
            kind = "any" if isinstance(side, exp.Any) else "all"
            return self._quantified(kind, operator, node.this, query, planner)
        left, right = _row_parts(node.this), _row_parts(side)
        if left is None or right is None or operator not in ("=", "<>"):
            return None
        if len(left) != len(right):
            raise SqlError("unequal number of entries in row expressions")
        pairs = [
            call("=", (planner.plan(a), planner.plan(b))) for a, b in zip(left, right, strict=True)
        ]
        same = pairs[0] if len(pairs) == 1 else call("and", tuple(pairs))
        return same if operator == "=" else call("not", (same,))

    def _quantified(
        self, kind: str, operator: str, operand: exp.Expr, query: exp.Expr, planner: Expressions
    ) -> Expr:
        parts = _row_parts(operand)
        nodes = parts if parts is not None else [operand]
        if parts is not None and operator not in ("=", "<>"):
            raise Unsupported(
                f"row values with {operator} ANY and ALL are not supported",
                hint="compare the columns one by one",
            )
        operands = tuple(planner.plan(node) for node in nodes)
        plan = self._query(query, planner, len(operands))
        # Said now, while the message can name the types.
        _compared(operator, operands, tuple(Lit(None, c.type) for c in plan.columns))
        return self._mark(Subquery(kind, plan, operator, operands), BOOLEAN)

    def _query(
        self, node: exp.Expr, planner: Expressions, width: int, *, scalar: bool = False
    ) -> Plan:
        inside = self.context.inside(planner.scope)
        plan = inside.nested(inside, _unwrapped(node))
        if len(plan.columns) > width:
            only = "must return only one column" if scalar else "has too many columns"
            raise SqlError(f"subquery {only}")
        if len(plan.columns) < width:
            raise SqlError("subquery has too few columns")
        return plan

    def _rows(self, name: str, nodes: list[exp.Expr], planner: Expressions) -> Expr:
        if planner.clause != "SELECT":
            raise SqlError(
                f"set-returning functions are not allowed in {planner.clause}", sqlstate="0A000"
            )
        fn, args, columns = typed_call(name, tuple(planner.plan(node) for node in nodes))
        if len(columns) != 1:
            raise Unsupported(
                f"{name} in the select list is not supported", hint=f"write FROM {name}(...)"
            )
        made = FlatMap(ONE_ROW, fn, args, columns)
        if made not in self.rows:
            self.rows.append(made)
        if len(self.rows) > 1:
            raise Unsupported(
                "more than one set-returning function in a select list is not supported",
                hint="write them in FROM",
            )
        return Col(ROWS_BASE, made.columns[-1].type)

    def _mark(self, subquery: Subquery, type_: SqlType) -> Col:
        if subquery not in self.subqueries:
            self.subqueries.append(subquery)
        return Col(SUBQUERY_BASE + self.subqueries.index(subquery), type_)

    # When they are evaluated -------------------------------------------------------------------

    def attached(
        self, plan: Plan, exprs: Sequence[Expr], change: Change | None = None
    ) -> tuple[Plan, list[Expr]]:
        """The plan with the subqueries of `exprs` joined to it, and the expressions over it.

        `exprs` are changed already; what the subqueries refer to is not.
        """
        values: dict[int, Expr] = {}
        for at in _marks(exprs):
            subquery = self.subqueries[at]
            operands = [change(expr) if change else expr for expr in subquery.operands]
            plan, operands = self.attached(plan, operands, change)
            plan, values[at] = _value(
                plan, _changed(subquery.plan, change), subquery, operands, self.context.names
            )

        def place(col: Col) -> Expr:
            marked = SUBQUERY_BASE <= col.index < GROUPING_BASE
            return values[col.index - SUBQUERY_BASE] if marked else col

        return plan, [substitute(expr, place) for expr in exprs]

    def filtered(self, plan: Plan, predicate: Expr, change: Change | None = None) -> Plan:
        """The rows of `plan` for which `predicate` (changed already) is true."""
        if not list(_marks([predicate])):
            return Filter(without_padding(plan, predicate), predicate)
        width = len(plan.columns)
        parts = conjuncts(predicate)
        simple = [part for part in parts if not list(_marks([part]))]
        if simple:
            plan = Filter(without_padding(plan, _all(simple)), _all(simple))
        rest: list[Expr] = []
        for part in parts:
            if part in simple:
                continue
            made = self._joined(plan, part, change)
            if made is None:
                rest.append(part)
            else:
                plan = made
        if rest:
            plan, values = self.attached(plan, rest, change)
            plan = Filter(without_padding(plan, _all(values)), _all(values))
        return narrowed(plan, width)

    def _joined(self, plan: Plan, part: Expr, change: Change | None) -> Plan | None:
        """[NOT] EXISTS and comparisons with ANY and ALL as a semi or anti join."""
        negated = isinstance(part, Call) and part.fn == "not"
        mark = part.args[0] if isinstance(part, Call) and negated else part
        if not (isinstance(mark, Col) and SUBQUERY_BASE <= mark.index < GROUPING_BASE):
            return None
        subquery = self.subqueries[mark.index - SUBQUERY_BASE]
        sub = _changed(subquery.plan, change)
        if subquery.kind == "exists":
            return exists(plan, sub, negated=negated)
        operands = tuple(change(expr) if change else expr for expr in subquery.operands)
        if subquery.kind == "value" or list(_marks(operands)):
            return None
        not_in = negated and (subquery.kind, subquery.operator) == ("any", "=")
        not_in = not_in or (not negated and (subquery.kind, subquery.operator) == ("all", "<>"))
        if not_in and len(operands) == 1 and not _mentions(sub):
            return _not_in(plan, plain(sub), operands[0])
        # Kept: some row makes it true (ANY), no row makes it anything but false (NOT ANY),
        # no row makes it anything but true (ALL), some row makes it false (NOT ALL).
        test = {
            ("any", False): None,
            ("any", True): "is not false",
            ("all", False): "is not true",
            ("all", True): "is false",
        }[subquery.kind, negated]
        anti = (subquery.kind == "any") == negated

        def matching(outputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
            mine = tuple(outward(operand) for operand in operands)
            compared = _compared(subquery.operator, mine, outputs)
            return conjuncts(compared) if test is None else (call(test, (compared,)),)

        return exists(plan, sub, negated=anti, matching=matching)

    def with_rows(
        self, plan: Plan, exprs: Sequence[Expr], change: Change | None = None
    ) -> tuple[Plan, list[Expr]]:
        """The plan with the rows of the set-returning function, and the expressions over it."""
        if not self.rows:
            return plan, list(exprs)
        made = self.rows[0]
        args = [change(arg) if change else arg for arg in made.args]
        plan, args = self.attached(plan, args, change)
        width = len(plan.columns)
        plan = FlatMap(plan, made.fn, tuple(args), made.made)

        def place(col: Col) -> Expr:
            return Col(width, col.type) if col.index == ROWS_BASE else col

        return plan, [substitute(expr, place) for expr in exprs]


# Values ----------------------------------------------------------------------------------------


def _value(
    plan: Plan, sub: Plan, subquery: Subquery, operands: Sequence[Expr], names: Names
) -> tuple[Plan, Expr]:
    match subquery.kind:
        case "value":
            return scalar(plan, sub, names)
        case "exists":
            some = call(">", (Col(0, BIGINT), Lit("0", BIGINT)))
            counted = Reduce(sub, (), (COUNT,), ("count",))
            return scalar(plan, Project(counted, (some,), ("exists",)), names)
    simple = subquery.kind == "any" and subquery.operator == "=" and len(operands) == 1
    if simple and not _mentions(sub):
        return _among(plan, plain(sub), operands[0])
    mine = tuple(outward(operand) for operand in operands)
    compared = _compared(subquery.operator, mine, cols_of(sub))
    each = Project(sub, (compared,), ("compared",))
    result = Col(0, BOOLEAN)
    decisive = result if subquery.kind == "any" else call("not", (result,))
    counts = tuple(
        Aggregate("count", (call("case", (when, TRUE, Lit(None, BOOLEAN))),), BIGINT)
        for when in (decisive, call("is null", (result,)))
    )
    decided = Lit("true" if subquery.kind == "any" else "false", BOOLEAN)
    otherwise = Lit("false" if subquery.kind == "any" else "true", BOOLEAN)
    some = [call(">", (Col(at, BIGINT), Lit("0", BIGINT))) for at in (0, 1)]
    value = call("case", (some[0], decided, some[1], Lit(None, BOOLEAN), otherwise))
    reduced = Reduce(each, (), counts, ("decisive", "unknown"))
    return scalar(plan, Project(reduced, (value,), ("?column?",)), names)


def _among(plan: Plan, sub: Plan, operand: Expr) -> tuple[Plan, Expr]:
    """`operand IN (sub)` as a value, by one equality: the values there are, each once."""
    first = len(plan.columns)
    flagged = joined(plan, _flags(sub))
    empty, with_null = Col(first, BOOLEAN), Col(first + 1, BOOLEAN)
    type_ = sub.columns[0].type
    values = Project(distinct(sub), (Col(0, type_), TRUE), ("value", "found"))
    same = call("=", (operand, Col(first + 2, type_)))
    plan = OuterJoin("left", flagged, values, (same,))
    unknown = call("or", (call("is null", (operand,)), with_null))
    found = call("is not null", (Col(first + 3, BOOLEAN),))
    no, null = Lit("false", BOOLEAN), Lit(None, BOOLEAN)
    return plan, call("case", (found, TRUE, empty, no, unknown, null, no))


def _not_in(plan: Plan, sub: Plan, operand: Expr) -> Plan:
    """Rows whose `operand` is surely not in `sub`: equal to none, and no null on either side
    unless there is nothing to compare with."""
    first = len(plan.columns)
    same = call("=", (operand, Col(first, sub.columns[0].type)))
    result = OuterJoin("anti", plan, sub, (same,))
    never = never_null(plan, operand), never_null(sub, Col(0, sub.columns[0].type))
    if all(never):
        return result
    empty, with_null = Col(first, BOOLEAN), Col(first + 1, BOOLEAN)
    sure = (call("not", (with_null,)), call("is not null", (operand,)))
    kept = call("or", (empty, call("and", sure)))
    return narrowed(Filter(joined(result, _flags(sub)), kept), first)


def _flags(sub: Plan) -> Plan:
    """One row: whether there is nothing in `sub`, and whether there is a null."""
    value = Col(0, sub.columns[0].type)
    counts = (COUNT, Aggregate("count", (value,), BIGINT))
    counted = Reduce(sub, (), counts, ("count", "present"))
    every, present = Col(0, BIGINT), Col(1, BIGINT)
    empty = call("=", (every, Lit("0", BIGINT)))
    return Project(counted, (empty, call("<", (present, every))), ("empty", "with_null"))


def _compared(operator: str, left: Sequence[Expr], right: Sequence[Expr]) -> Expr:
    if len(left) == 1:
        return call(operator, (left[0], right[0]))
    same = call("and", tuple(call("=", pair) for pair in zip(left, right, strict=True)))
    return same if operator == "=" else call("not", (same,))


# Small things ----------------------------------------------------------------------------------


def _changed(sub: Plan, change: Change | None) -> Plan:
    """The subquery after GROUP BY has changed the columns that it refers to."""
    if change is None:
        return sub

    def place(col: Col) -> Expr:
        if level_of(col) != 1:
            return col
        try:
            return outward(change(Col(outer_index(col), col.type)))
        except SqlError as ungrouped:
            name = ungrouped.message.split('"')[1]
            raise SqlError(
                f'subquery uses ungrouped column "{name}" from outer query', sqlstate="42803"
            ) from None

    return map_outer(sub, place)


def _mentions(sub: Plan) -> bool:
    return any(level_of(col) == 1 for col in outer_columns(sub))


def _marks(exprs: Sequence[Expr]) -> list[int]:
    found = [
        node.index - SUBQUERY_BASE
        for expr in exprs
        for node in walk(expr)
        if isinstance(node, Col) and SUBQUERY_BASE <= node.index < GROUPING_BASE
    ]
    return list(dict.fromkeys(found))


def _as_parsed_without_parentheses(node: exp.Expr) -> exp.Expr:
    """EXISTS ((SELECT ...)) and the like, which sqlglot takes for calls of functions."""
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 1:
        kind = {"exists": exp.Exists, "all": exp.All, "any": exp.Any, "some": exp.Any}.get(
            identifier(node.this)
        )
        query = node.expressions[0]
        if kind is not None and isinstance(query, exp.Query):
            return kind(this=query)
    return node


def _row_parts(node: exp.Expr) -> list[exp.Expr] | None:
    """The parts of `(a, b)` or `ROW(a, b)`."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Tuple):
        return node.expressions
    if isinstance(node, exp.Anonymous) and identifier(node.this) == "row":
        return node.expressions
    return None


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Subquery | exp.Paren) and not any(
        node.args.get(part) for part in ("order", "limit", "offset", "with_")
    ):
        node = node.this
    return node


def _all(parts: Sequence[Expr]) -> Expr:
    return parts[0] if len(parts) == 1 else call("and", tuple(parts))
