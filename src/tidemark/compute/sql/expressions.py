"""Scalar expressions and aggregates: sqlglot nodes to typed expressions.

An aggregate becomes a column behind those of the input (`Col(width + n)`); `select.py` then turns
key expressions and these columns into columns of the `Reduce`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tidemark.compute.aggregates import AGGREGATES, aggregate, composed, is_aggregate
from tidemark.compute.casts import settled
from tidemark.compute.expr import Col, Expr, Lit
from tidemark.compute.functions import at_time_zone, call, call_by_name, cast, unknown
from tidemark.compute.intervals import cut_off, read_interval
from tidemark.compute.literals import UNKNOWN, elements_of, number_literal, typed
from tidemark.compute.plan import Aggregate, Order
from tidemark.compute.regex import similar_pattern
from tidemark.compute.sql.dialect import identifier, parameter_number, sql_type, start_of
from tidemark.compute.sql.over import FUNCTIONS as WINDOW_FUNCTIONS
from tidemark.compute.sql.over import plan_over
from tidemark.compute.sql.rows import collected, compared_rows
from tidemark.compute.sql.scope import Scope
from tidemark.compute.sql.temporal import (
    CLAUSES,
    MIRRORED,
    MZ_NOW,
    compared_with_now,
    misplaced,
)
from tidemark.compute.sql.windows import WindowCall
from tidemark.errors import SqlError, TidemarkError, Unsupported
from tidemark.types import BOOLEAN, DOUBLE, INTEGER, INTERVAL, JSONB, TEXT, array_of

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Pow: "^",
    exp.DPipe: "||",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.RegexpLike: "~",
    exp.RegexpILike: "~*",
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.JSONBExtract: "#>",
    exp.JSONBExtractScalar: "#>>",
    exp.JSONBContainsTopKey: "?",
    exp.JSONBContains: "?",
    exp.ArrayContainsAll: "@>",
    exp.ArrayContainedBy: "<@",
    exp.ArrayOverlaps: "&&",
    exp.JSONBContainsAnyTopKeys: "?|",
    exp.JSONBContainsAllTopKeys: "?&",
    exp.StartsWith: "starts_with",
    exp.NullSafeEQ: "is not distinct from",
    exp.NullSafeNEQ: "is distinct from",
}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)

_REFUSED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.WithinGroup: ("ordered-set aggregates", "use count, sum, avg, min or max"),
    exp.Distinct: ("DISTINCT in a function that is not an aggregate", "leave it out"),
    exp.Order: ("ORDER BY in a function that is not an aggregate", "leave it out"),
    exp.Subquery: ("subqueries in expressions", "write the subquery in FROM and join with it"),
    exp.Select: ("subqueries in expressions", "write the subquery in FROM and join with it"),
    exp.Exists: ("EXISTS", "join with a SELECT DISTINCT of the keys instead"),
    exp.Tuple: ("row values", "compare the columns one by one, joined by AND"),
    exp.Star: ("* in an expression", "name the columns"),
    exp.Collate: ("this COLLATE", 'text is ordered by code point, as COLLATE "C" does'),
    exp.TryCast: ("TRY_CAST", "use CAST; a bad value becomes an error row"),
}

CLOCK_FUNCTIONS = frozenset(
    "mz_now now current_timestamp current_date current_time localtime localtimestamp"
    " clock_timestamp statement_timestamp transaction_timestamp random".split()
)
SESSION_FUNCTIONS = frozenset(
    "version current_user session_user user current_role current_catalog current_schema"
    " current_database pg_backend_pid".split()
)
_CALLED_OTHERWISE = sorted({*AGGREGATES, *WINDOW_FUNCTIONS} - {"array"})
"""Functions with calls of their own, that a name which is none may have been meant for."""

_NO_PARENTHESES = (CLOCK_FUNCTIONS - {"mz_now", "now", "random"}) | (
    SESSION_FUNCTIONS - {"version", "current_database", "pg_backend_pid"}
)


@dataclass(slots=True)
class Expressions:
    """Plans the expressions of one clause, e.g. `WHERE`, over the columns of `scope`.

    `aggregates` collects the aggregates met; None where the clause allows none. `session` gives
    values to functions like `now()` that are constant within one query. `windows` collects window
    functions, None where there may be none; `named_windows` are those of the WINDOW clause.
    `subqueries` plans what is more than an expression (it gives None for anything else).
    """

    scope: Scope
    clause: str
    params: tuple[Lit, ...] = ()
    session: Mapping[str, Lit] = field(default_factory=dict)
    aggregates: list[Aggregate] | None = None
    windows: list[WindowCall] | None = None
    subqueries: Callable[[exp.Expr, Expressions], Expr | None] | None = None
    named_windows: Mapping[str, exp.Window] = field(default_factory=dict)

    def plan(self, node: exp.Expr) -> Expr:
        """The typed expression; a quoted literal without context stays UNKNOWN."""
        if self.subqueries is not None and (made := self.subqueries(node, self)) is not None:
            return made
        kind = type(node)
        if kind in _BINARY:
            return self._binary(node)
        match node:
            case exp.Paren(this=inner):
                return self.plan(inner)
            case exp.Column():
                return self._column(node)
            case exp.Literal() | exp.ByteString() | exp.RawString() | exp.National():
                if isinstance(node, exp.Literal) and not node.is_string:
                    return number_literal(node.name)
                return Lit(node.name, UNKNOWN)
            case exp.Boolean(this=truth):
                return Lit("true" if truth else "false", BOOLEAN)
            case exp.Null():
                return Lit(None, UNKNOWN)
            case exp.Parameter():
                return self._parameter(node)
            case exp.And() | exp.Or():
                fn = "and" if isinstance(node, exp.And) else "or"
                return call(fn, tuple(self.plan(part) for part in node.flatten(unnest=False)))
            case exp.Neg(this=exp.Literal(is_string=False) as literal):
                return number_literal(f"-{literal.name}")
            case exp.Neg(this=inner):
                return call("negate", (self.plan(inner),))
            case exp.Not():
                return self._not(node)
            case exp.Is():
                return self._is(node, negated=False)
            case exp.Like() | exp.ILike() | exp.Escape():
                return self._like(node)
            case exp.In():
                return self._in(node)
            case exp.Between():
                return self._between(node)
            case exp.Case():
                return self._case(node)
            case exp.Extract(this=unit, expression=moment):
                return call("extract", (Lit(unit.name.lower(), UNKNOWN), self.plan(moment)))
            case exp.Trim():
                return self._trim(node)
            case exp.SimilarTo(this=text, expression=pattern):
                like = similar_pattern(self.plan(pattern))
                return call("~", (self.plan(text), like))
            case exp.Collate(this=text, expression=exp.Identifier(this="C" | "POSIX")):
                return self.plan(text)
            case exp.UnicodeString(this=text, escape=False):
                return Lit(_unescaped(text), UNKNOWN)
            case exp.Overlay(this=text, expression=instead):
                parts = [text, instead, node.args.get("from_"), node.args.get("for_")]
                return call("overlay", tuple(self.plan(part) for part in parts if part))
            case exp.Substring():
                parts = [node.this, node.args.get("start"), node.args.get("length")]
                return call("substring", tuple(self.plan(part) for part in parts if part))
            case exp.StrPosition(this=text):
                return call("strpos", (self.plan(text), self.plan(node.args["substr"])))
            case exp.Anonymous():
                return self._function(node)
            case exp.BitwiseNot(this=inner):
                return call("bitwise not", (self.plan(inner),))
            case exp.AtTimeZone():
                return self._at_time_zone(node)
            case exp.Array():
                return call("array", tuple(self.plan(each) for each in node.expressions))
            case exp.Bracket():
                return self._subscript(node)
            case exp.Interval():
                return self._interval(node)
            case exp.Window():
                return plan_over(node, self, self.named_windows)
            case exp.Filter():
                return self._filtered(node)
            case exp.Dot(this=exp.Identifier() as schema, expression=exp.Anonymous() as function):
                if identifier(schema) == "pg_catalog":
                    return self._function(function)
        if isinstance(node, exp.Cast) and node.args["to"].this == exp.DType.INTERVAL:
            return self._cast_to_interval(node)
        if kind is exp.Cast:
            try:
                return self._cast(node)
            except TidemarkError as error:
                raise error.at(start_of(node)) from None
        raise refusal(node)

    def predicate(self, node: exp.Expr) -> Expr:
        """A condition; in a view it may be a temporal filter, or have some joined by AND."""
        inner = _unwrapped(node)
        if self.clause in CLAUSES and not self.session and _mentions_now(inner):
            if isinstance(inner, exp.And):
                parts = inner.flatten(unnest=False)
                return call("and", tuple(self.predicate(part) for part in parts))
            made = self._temporal(inner)
            if made is not None:
                return made
        planned = self.plan(node)
        try:
            return self.boolean(planned)
        except TidemarkError as error:
            raise error.at(start_of(node)) from None

    def _temporal(self, node: exp.Expr) -> Expr | None:
        """`mz_now() op e`, on either side, or `mz_now() BETWEEN a AND b`; None if it is neither."""
        if isinstance(node, exp.Between) and _is_now(node.this) and not node.args.get("symmetric"):
            low, high = self.plan(node.args["low"]), self.plan(node.args["high"])
            return call("and", (compared_with_now(">=", low), compared_with_now("<=", high)))
        op = _BINARY.get(type(node), "")
        if op not in MIRRORED:
            return None
        if _is_now(node.this):
            return compared_with_now(op, self.plan(node.expression))
        if _is_now(node.expression):
            return compared_with_now(MIRRORED[op], self.plan(node.this))
        return None

    def _interval(self, node: exp.Interval) -> Expr:
        unit = node.args.get("unit")
        if isinstance(unit, exp.IntervalSpan):
            if unit.expression is None or not any(sign in node.name for sign in "-:"):
                raise Unsupported(f"INTERVAL '{node.name}' {unit.sql()} is not supported")
            return cut_off(read_interval(node.name), unit.expression.name)
        if unit is None:
            return read_interval(node.name)
        return cut_off(read_interval(node.name, unit.name), unit.name)

    def _cast_to_interval(self, node: exp.Cast) -> Expr:
        sql_type(node.args["to"])  # Refuses `interval(3)`.
        text = self.plan(node.this)
        if isinstance(text, Lit) and text.type in (UNKNOWN, TEXT, INTERVAL):
            if text.type == INTERVAL or text.value is None:
                return Lit(text.value, INTERVAL)
            return read_interval(text.value)
        if text.type == INTERVAL:
            return text
        raise Unsupported(
            f"cannot cast type {text.type} to interval",
            hint="of a text only if it is a constant: interval '1 day'; of numbers: n * interval '1 second'",
        )

    def _cast(self, node: exp.Expr) -> Expr:
        to = node.args["to"]
        if to.this == exp.DType.VARCHAR and len(to.expressions) == 1:
            # To varchar(n) by name cuts off what is too long.
            limit = number_literal(to.expressions[0].name)
            return call("left", (cast(self.plan(node.this), TEXT), limit))
        type_ = sql_type(to)
        if type_ == DOUBLE and (number := number_text(node.this)) is not None:
            return typed(number, DOUBLE)  # 1e300 is a double, but no numeric
        if isinstance(node.this, exp.Array) and not node.this.expressions and type_.element:
            return cast(Lit("{}", UNKNOWN), type_)
        return cast(self.plan(node.this), type_)

    def boolean(self, expr: Expr) -> Expr:
        if expr.type == UNKNOWN:
            return cast(expr, BOOLEAN)
        if expr.type != BOOLEAN:
            raise SqlError(
                f"argument of {self.clause} must be type boolean, not type {expr.type}",
                sqlstate="42804",
            )
        return expr

    def _binary(self, node: exp.Expr) -> Expr:
        if isinstance(node, _COMPARISONS):
            for side in (node.this, node.expression):
                if isinstance(side, _COMPARISONS):
                    raise SqlError(
                        "syntax error: comparisons do not chain",
                        hint=f"put parentheses into {node.sql(dialect='postgres')}",
                    )
        op, right = _BINARY[type(node)], node.expression
        if isinstance(node, _COMPARISONS) and _are_rows(node.this, right):
            return compared_rows(op, self._row(node.this), self._row(right))
        if isinstance(node, _COMPARISONS) and (quantified := _quantified(right)) is not None:
            word, inner = quantified
            return call(f"{op} {word}", (self.plan(node.this), self.plan(inner)))
        args = self.plan(node.this), self.plan(right)
        try:
            return call(op, args)
        except TidemarkError as error:
            raise error.at(start_of(node)) from None

    def _at_time_zone(self, node: exp.AtTimeZone) -> Expr:
        return at_time_zone(self.plan(node.this), self.plan(node.args["zone"]))

    def _row(self, node: exp.Expr) -> list[Expr]:
        return [self.plan(each) for each in node.expressions]

    def _subscript(self, node: exp.Bracket) -> Expr:
        if len(node.expressions) != 1:
            raise Unsupported("arrays have one dimension", hint="use one subscript, e.g. a[1]")
        part = node.expressions[0]
        if isinstance(part, exp.Slice):
            low = self.plan(part.this) if part.this else Lit("1", INTEGER)
            high = self.plan(part.expression) if part.expression else Lit(str(2**31 - 1), INTEGER)
            return call("slice", (self.plan(node.this), low, high))
        return call("subscript", (self.plan(node.this), self.plan(node.expressions[0])))

    def _column(self, node: exp.Column) -> Expr:
        if isinstance(node.this, exp.Star):
            raise refusal(node.this)
        name = identifier(node.this)
        bare = len(node.parts) == 1 and not node.this.quoted
        if bare and name in _NO_PARENTHESES:
            return self._constant_function(name)
        try:
            return self.scope.column(tuple(identifier(part) for part in node.parts))
        except SqlError as error:
            raise error.at(start_of(node)) from None

    def _parameter(self, node: exp.Parameter) -> Expr:
        number = parameter_number(node)
        if number > len(self.params):
            raise SqlError(f"there is no parameter ${number}", sqlstate="42P02")
        return self.params[number - 1]

    def _not(self, node: exp.Not) -> Expr:
        if isinstance(node.this, exp.Is):
            return self._is(node.this, negated=True)
        return call("not", (self.boolean_argument(node.this, "NOT"),))

    def boolean_argument(self, node: exp.Expr, of: str) -> Expr:
        expr = self.plan(node)
        if expr.type not in (BOOLEAN, UNKNOWN):
            raise SqlError(
                f"argument of {of} must be type boolean, not type {expr.type}", sqlstate="42804"
            )
        return cast(expr, BOOLEAN)

    def _is(self, node: exp.Is, *, negated: bool) -> Expr:
        middle = "is not" if negated else "is"
        match node.expression:
            case exp.Null():
                return call(f"{middle} null", (self.plan(node.this),))
            case exp.Boolean(this=truth):
                word = "true" if truth else "false"
                of = f"{middle} {word}"
                return call(of, (self.boolean_argument(node.this, of.upper()),))
        raise refusal(node)

    def _like(self, node: exp.Expr) -> Expr:
        like, escape = (
            (node.this, node.expression) if isinstance(node, exp.Escape) else (node, None)
        )
        if not isinstance(like, exp.Like | exp.ILike):
            raise refusal(like)
        if isinstance(like.expression, exp.Any | exp.All) and escape is None:
            return self._like_each(like)
        pattern = self.plan(like.expression)
        if escape is not None:
            pattern = _with_backslashes(pattern, self.plan(escape))
        fn = "like" if isinstance(like, exp.Like) else "ilike"
        found = call(fn, (self.plan(like.this), pattern))
        return call("not", (found,)) if like.args.get("negate") else found

    def _like_each(self, like: exp.Expr) -> Expr:
        """LIKE ANY or ALL of constant patterns: LIKE of each."""
        patterns = cast(self.plan(_unwrapped(like.expression.this)), array_of(TEXT))
        if not isinstance(patterns, Lit) or patterns.value is None:
            raise Unsupported("LIKE ANY and LIKE ALL take constants", hint="join LIKEs by OR")
        fn = "like" if isinstance(like, exp.Like) else "ilike"
        text = self.plan(like.this)
        each: list[Expr] = []
        for pattern in elements_of(patterns):
            found = call(fn, (text, pattern))
            each.append(call("not", (found,)) if like.args.get("negate") else found)
        some = isinstance(like.expression, exp.Any)
        if not each:
            return Lit("false" if some else "true", BOOLEAN)
        return call("or" if some else "and", tuple(each))

    def _in(self, node: exp.In) -> Expr:
        if node.args.get("query"):
            raise Unsupported(
                "IN (SELECT ...) is not supported",
                hint="join with a SELECT DISTINCT of the keys instead",
            )
        if any(node.args.get(other) for other in ("unnest", "field")):
            raise refusal(node)
        if _are_rows(node.this, *node.expressions):
            row = self._row(node.this)
            same = [compared_rows("=", row, self._row(each)) for each in node.expressions]
            return call("or", tuple(same)) if len(same) > 1 else same[0]
        return call("in", tuple(self.plan(part) for part in (node.this, *node.expressions)))

    def _between(self, node: exp.Between) -> Expr:
        subject = self.plan(node.this)
        low, high = self.plan(node.args["low"]), self.plan(node.args["high"])
        if node.args.get("symmetric"):
            either = [
                call("and", (call(">=", (subject, a)), call("<=", (subject, b))))
                for a, b in ((low, high), (high, low))
            ]
            return call("or", tuple(either))
        return call("and", (call(">=", (subject, low)), call("<=", (subject, high))))

    def _case(self, node: exp.Case) -> Expr:
        parts: list[Expr] = []
        subject = self.plan(node.this) if node.this else None
        for branch in node.args["ifs"]:
            condition = self.plan(branch.this)
            if subject is not None:
                condition = call("=", (subject, condition))
            parts += [condition, self.plan(branch.args["true"])]
        default = node.args.get("default")
        return call("case", (*parts, self.plan(default) if default else Lit(None, UNKNOWN)))

    def _trim(self, node: exp.Trim) -> Expr:
        fn = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "btrim")
        characters = node.args.get("expression")
        args = (node.this, characters) if characters else (node.this,)
        return call(fn, tuple(self.plan(arg) for arg in args))

    def _function(self, node: exp.Anonymous) -> Expr:
        name = identifier(node.this)
        try:
            if name in WINDOW_FUNCTIONS:
                raise SqlError(f"window function {name} requires an OVER clause", sqlstate="42809")
            if is_aggregate(name):
                return self._aggregate(name, node.expressions)
            if name == "array" and len(node.expressions) == 1:
                return self.plan(collected(node.expressions[0]))
            if name in CLOCK_FUNCTIONS or name in SESSION_FUNCTIONS:
                return self._constant_function(name)
            if any(isinstance(arg, exp.Star) for arg in node.expressions):
                raise unknown(name, f"{name}(*)", _CALLED_OTHERWISE)
            args = tuple(self.plan(arg) for arg in node.expressions)
            return call_by_name(name, args, _CALLED_OTHERWISE)
        except SqlError as error:
            raise error.at(start_of(node)) from None

    def _filtered(self, node: exp.Filter) -> Expr:
        function = node.this
        name = identifier(function.this) if isinstance(function, exp.Anonymous) else ""
        if not is_aggregate(name):
            raise SqlError(
                f"FILTER specified, but {name or 'this'} is not an aggregate function",
                sqlstate="42809",
            )
        return self._aggregate(name, function.expressions, node.expression.this)

    def _constant_function(self, name: str) -> Expr:
        if name in self.session:
            return self.session[name]
        if name == "mz_now":
            if not self.session:
                raise misplaced()
            return MZ_NOW  # Of a query that is asked once: whoever runs it puts its time in.
        what = "changes with time" if name in CLOCK_FUNCTIONS else "depends on the session"
        hint = "write the value as a literal, or keep it in a table"
        if name in CLOCK_FUNCTIONS - {"random"}:
            hint = "for rows that come and go with time, compare mz_now() in WHERE; else " + hint
        raise Unsupported(
            f"{name} is not supported here: its value {what}, so a view over it could not be kept",
            hint=hint,
        )

    def _aggregate(self, name: str, nodes: list[exp.Expr], where: exp.Expr | None = None) -> Expr:
        if self.aggregates is None:
            raise SqlError(
                f"aggregate functions are not allowed in {self.clause}", sqlstate="42803"
            )
        try:
            planned = self.aggregate_call(name, nodes, where)
        except SqlError as nested:
            if "not allowed in an aggregate" in nested.message:
                raise SqlError(
                    "aggregate function calls cannot be nested", sqlstate="42803"
                ) from None
            raise
        expr = composed(planned, self._aggregated)
        return expr if expr is not None else self._aggregated(planned)

    def aggregate_call(self, name: str, nodes: list[exp.Expr], where: exp.Expr | None) -> Aggregate:
        """`name([DISTINCT] args [ORDER BY ...]) [FILTER (WHERE ...)]`, not placed anywhere yet."""
        inner = self
        if self.clause != "a window":  # whose aggregates are of aggregates
            inner = replace(self, clause="an aggregate", aggregates=None, windows=None)
        order_by: tuple[Order, ...] = ()
        if nodes and isinstance(nodes[-1], exp.Order):
            order_by = inner.orders(nodes[-1])
            nodes = [*nodes[:-1], nodes[-1].this]
        distinct = len(nodes) == 1 and isinstance(nodes[0], exp.Distinct)
        if distinct:
            nodes = nodes[0].expressions
        passes = None
        if where is not None:
            passes = replace(inner, clause="FILTER").predicate(where)
        if len(nodes) == 1 and isinstance(nodes[0], exp.Star):
            if name != "count" or distinct:
                raise SqlError(f"{name}(*) is not an aggregate", sqlstate="42883")
            nodes = []
        elif not nodes and name == "count":
            raise SqlError(
                "count(*) must be used to call a parameterless aggregate function",
                sqlstate="42809",
            )
        args = tuple(inner.plan(node) for node in nodes)
        return aggregate(name, args, distinct=distinct, filter=passes, order_by=order_by)

    def _aggregated(self, aggregate: Aggregate) -> Expr:
        assert self.aggregates is not None
        if aggregate not in self.aggregates:
            self.aggregates.append(aggregate)
        return Col(self.scope.width + self.aggregates.index(aggregate), aggregate.type)

    def orders(self, node: exp.Order) -> tuple[Order, ...]:
        """The expressions of an ORDER BY inside a call or a window."""
        found: list[Order] = []
        for ordered in node.expressions:
            descending = bool(ordered.args.get("desc"))
            nulls_first = ordered.args.get("nulls_first")
            # Nulls are the largest values: only what differs from that needs saying.
            told = None if nulls_first in (None, descending) else bool(nulls_first)
            expr = sortable(settled(self.plan(ordered.this)))
            found.append(Order(expr, descending, told))
        return tuple(found)


def sortable(expr: Expr) -> Expr:
    """`expr` of an ORDER BY; refused where our order of its values is not PostgreSQL's."""
    if expr.type == JSONB:
        raise Unsupported("ORDER BY jsonb is not supported", hint="order by parts of it")
    if expr.type.element is not None:
        raise Unsupported("ORDER BY an array is not supported", hint="order by its elements")
    return expr


def _are_rows(*nodes: exp.Expr) -> bool:
    return all(isinstance(node, exp.Tuple) for node in nodes)


def _unwrapped(node: exp.Expr) -> exp.Expr:
    return _unwrapped(node.this) if isinstance(node, exp.Paren) else node


def _unescaped(text: str) -> str:
    r"""U&'d\0061t\+000061' as the characters it stands for."""
    return re.sub(
        r"\\(\\|[0-9a-fA-F]{4}|\+[0-9a-fA-F]{6})",
        lambda found: "\\" if found[1] == "\\" else chr(int(found[1].lstrip("+"), 16)),
        text,
    )


def _is_now(node: exp.Expr) -> bool:
    inner = _unwrapped(node)
    return isinstance(inner, exp.Anonymous) and identifier(inner.this) == "mz_now"


def _quantified(node: exp.Expr) -> tuple[str, exp.Expr] | None:
    """`any` or `all`, and the array behind it; None if it is neither, or has a query."""
    if isinstance(node, exp.Any):
        word, inner = "any", node.this
    elif isinstance(node, exp.Anonymous) and identifier(node.this) in ("all", "some", "any"):
        word = "all" if identifier(node.this) == "all" else "any"
        inner = node.expressions[0] if len(node.expressions) == 1 else None
    else:
        return None
    return (word, inner) if isinstance(inner, exp.Expr) else None


def _mentions_now(node: exp.Expr) -> bool:
    return any(map(_is_now, node.find_all(exp.Anonymous)))


def refusal(node: exp.Expr) -> Unsupported:
    for kind, (what, instead) in _REFUSED.items():
        if isinstance(node, kind):
            return Unsupported(f"{what}: not supported", hint=instead)
    return Unsupported(
        f"{type(node).__name__.upper()} is not supported: {node.sql(dialect='postgres')[:80]}"
    )


def _with_backslashes(pattern: Expr, escape: Expr) -> Expr:
    """A pattern with another escape character, rewritten with the default one."""
    if not (isinstance(pattern, Lit) and isinstance(escape, Lit)):
        raise Unsupported("LIKE ... ESCAPE is supported for constant patterns only")
    if pattern.value is None or escape.value is None:
        return Lit(None, UNKNOWN)
    if len(escape.value) > 1:
        raise SqlError("invalid escape string", sqlstate="22025")
    out, characters = "", iter(pattern.value)
    for character in characters:
        if character == escape.value:
            following = next(characters, "")
            out += f"\\{following}"
        else:
            out += "\\\\" if character == "\\" else character
    return Lit(out, UNKNOWN)


def number_text(node: exp.Expr) -> str | None:
    """What a plain number says, with its sign."""
    match node:
        case exp.Literal(is_string=False):
            return node.name
        case exp.Neg(this=exp.Literal(is_string=False) as literal):
            return f"-{literal.name}"
    return None
