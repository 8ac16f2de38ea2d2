"""Random queries in all of the grammar, as trees (`query_tree.py`), from a seed alone.

Values are few, so that things match, repeat and are missing. Every query has one right answer:
numbers stay small, what divides is never zero (but for `may_fail`), whatever depends on an order
is ordered by everything. Results that round differently (averages, deviations) stay at the top,
where they are compared to six decimals.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import histories
from query_tree import (
    Derived,
    Expr,
    From,
    Function,
    Joined,
    Query,
    Select,
    SetOperation,
    Sorting,
    Table,
    Values,
    With,
)

TYPES = ("integer", "bigint", "numeric", "text", "date", "timestamp", "boolean")
COMPARABLE = ("integer", "integer", "text", "numeric", "bigint", "date", "timestamp")

CONSTANTS: dict[str, tuple[str, ...]] = {
    "integer": ("0", "1", "2", "3", "-1"),
    "bigint": ("CAST(2 AS bigint)", "10000000000"),
    "numeric": ("0.00", "1.50", "-2.25", "0.1"),
    "text": ("''", "'a'", "CAST('b' AS text)", "CAST('Ba' AS text)"),
    "date": ("DATE '2024-02-28'", "DATE '2024-01-31'"),
    "timestamp": ("TIMESTAMP '2024-02-28 07:30:15.00025'", "TIMESTAMP '2024-01-01 00:00:00'"),
    "boolean": ("true", "false"),
}

# What makes a value of a type: argument types and text.
SCALARS: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "integer": (
        (("integer", "integer"), "({0} + {1})"),
        (("integer", "integer"), "({0} - {1})"),
        (("integer",), "({0} * 3)"),
        (("integer",), "({0} / 2)"),
        (("integer", "integer"), "({0} / nullif({1}, 0))"),
        (("integer",), "({0} % 2)"),
        (("integer",), "abs({0})"),
        (("integer",), "(- {0})"),
        (("text",), "length({0})"),
        (("text",), "strpos({0}, 'b')"),
        (("date", "date"), "({0} - {1})"),
        (("integer", "integer"), "greatest({0}, {1})"),
        (("integer", "integer"), "nullif({0}, {1})"),
        (("boolean",), "CAST({0} AS integer)"),
        (("numeric",), "CAST({0} AS integer)"),
    ),
    "bigint": (
        (("integer", "bigint"), "({0} + {1})"),
        (("bigint",), "({0} - 1)"),
        (("integer",), "CAST({0} AS bigint)"),
        (("bigint", "bigint"), "least({0}, {1})"),
        (("bigint",), "({0} / 3)"),
    ),
    "numeric": (
        (("numeric", "numeric"), "({0} + {1})"),
        (("numeric", "integer"), "({0} - {1})"),
        (("numeric", "integer"), "({0} * {1})"),
        (("numeric",), "round({0}, 1)"),
        (("numeric",), "abs({0})"),
        (("numeric",), "floor({0})"),
        (("integer",), "CAST({0} AS numeric)"),
        (("date",), "extract(month FROM {0})"),
        (("timestamp",), "extract(hour FROM {0})"),
    ),
    "text": (
        (("text", "text"), "({0} || {1})"),
        (("text",), "upper({0})"),
        (("text",), "lower({0})"),
        (("text",), "substring({0} from 1 for 2)"),
        (("text",), "left({0}, 1)"),
        (("text",), "right({0}, -1)"),
        (("text",), "replace({0}, 'a', 'xy')"),
        (("text",), "btrim({0}, 'a')"),
        (("integer",), "CAST({0} AS text)"),
        (("date",), "CAST({0} AS text)"),
        (("boolean",), "CAST({0} AS text)"),
        (("text",), "split_part({0}, 'b', 1)"),
        (("text", "integer"), "({0} || {1})"),
    ),
    "date": (
        (("date", "integer"), "({0} + {1})"),
        (("timestamp",), "CAST({0} AS date)"),
        (("date", "date"), "greatest({0}, {1})"),
    ),
    "timestamp": (
        (("timestamp",), "date_trunc('hour', {0})"),
        (("timestamp",), "date_trunc('month', {0})"),
        (("date",), "CAST({0} AS timestamp)"),
        (("timestamp",), "({0} + INTERVAL '90 minutes')"),
        (("timestamp",), "({0} - INTERVAL '1 month')"),
        (("date",), "({0} + INTERVAL '1 day')"),
    ),
    "boolean": (
        (("boolean", "boolean"), "({0} AND {1})"),
        (("boolean", "boolean"), "({0} OR {1})"),
        (("boolean",), "(NOT {0})"),
        (("boolean",), "({0} IS NOT TRUE)"),
        (("text",), "({0} LIKE 'a%')"),
        (("text",), "({0} NOT LIKE '%b')"),
        (("text",), "({0} IN ('a', 'b', ''))"),
        (("integer",), "({0} NOT IN (1, 2))"),
        (("integer", "integer"), "({0} BETWEEN {1} AND 2)"),
        (("date",), "({0} > DATE '2024-02-01')"),
        (("text",), "({0} ~ '^[ab]')"),
        (("integer", "integer"), "({0} = ANY (ARRAY[{1}, 2]))"),
        (("text", "text"), "starts_with({0}, {1})"),
    ),
}

AGGREGATES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("bigint", (), "count(*)"),
    ("bigint", (), "count(*)"),
    ("bigint", ("text",), "count({0})"),
    ("bigint", ("integer",), "count(DISTINCT {0})"),
    ("bigint", ("integer",), "sum({0})"),
    ("bigint", ("integer",), "sum(DISTINCT {0})"),
    ("numeric", ("bigint",), "sum({0})"),
    ("numeric", ("numeric",), "sum({0})"),
    ("integer", ("integer",), "min({0})"),
    ("integer", ("integer",), "max({0})"),
    ("text", ("text",), "min({0})"),
    ("text", ("text",), "max({0})"),
    ("numeric", ("numeric",), "max({0})"),
    ("date", ("date",), "min({0})"),
    ("timestamp", ("timestamp",), "max({0})"),
    ("boolean", ("boolean",), "bool_and({0})"),
    ("boolean", ("boolean",), "bool_or({0})"),
    ("text", ("text",), "string_agg({0}, '-' ORDER BY {0})"),
)
# Only at the top: they round, or their type does nothing else.
TOP_AGGREGATES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("average", ("integer",), "avg({0})"),
    ("average", ("numeric",), "avg({0})"),
    ("average", ("integer",), "avg(DISTINCT {0})"),
    ("average", ("integer",), "stddev({0})"),
    ("average", ("numeric",), "var_pop({0})"),
    ("integer[]", ("integer",), "array_agg({0} ORDER BY {0})"),
    ("text[]", ("text",), "array_agg(CAST({0} AS text) ORDER BY {0} DESC)"),
    ("integer[]", ("integer",), "array_agg(DISTINCT {0} ORDER BY {0})"),
)
DIRECTIONS = ("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST")


@dataclass(frozen=True, slots=True)
class Source:
    alias: str
    columns: tuple[tuple[str, str], ...]
    """Names and types."""


Scope = tuple[Source, ...]


def category(type_: histories.SqlType) -> str:
    return type_.name


def random_tree(rng: random.Random, tables: Mapping[str, histories.Table]) -> Query:
    known = {
        name: tuple((c.name, category(c.type)) for c in table.columns)
        for name, table in tables.items()
    }
    return _Fuzzer(rng, known).top()


class _Fuzzer:
    def __init__(self, rng: random.Random, tables: dict[str, tuple[tuple[str, str], ...]]):
        self.rng = rng
        self.tables = tables
        self._aliases = 0

    # Queries ------------------------------------------------------------------------------------

    def top(self) -> Query:
        depth = self.rng.choice((0, 1, 1, 2, 2, 3))
        if self.chance(0.12):
            return self.with_(depth)
        return self.query(depth, self.types(), (), top=True)

    def query(
        self, depth: int, types: tuple[str, ...], outer: Scope, *, top: bool = False
    ) -> Query:
        """A query whose output columns have these types."""
        if depth and self.chance(0.15):
            kind = self.rng.choice(("UNION", "UNION", "INTERSECT", "EXCEPT"))
            every = self.rng.choice((" ALL", " ALL", ""))
            if top and self.chance(0.25):
                # An error of either side is one of the whole, of what is subtracted, too.
                return SetOperation(
                    kind + every, self.failing(depth - 1, types), self.failing(depth - 1, types)
                )
            left = self.query(depth - 1, types, outer)
            right = self.query(depth - 1, types, outer)
            sorting = self.sorting() if self.chance(0.15) else None
            return SetOperation(kind + every, left, right, sorting)
        return self.select(depth, types, outer, top=top)

    def failing(self, depth: int, types: tuple[str, ...]) -> Select:
        """A query that fails for some rows; all of them are asked for."""
        source, scope = self.sources(depth, ())
        items = tuple(self.item(each, scope, depth) for each in types)
        divisor = self.expr("integer", scope, 0, column=True)
        return Select((*items, Expr("integer", "(12 / {0})", (divisor,))), source, ())

    def with_(self, depth: int) -> Query:
        types = self.types()
        value = self.query(depth, types, ())
        name = self.alias("w")
        self.tables = self.tables | {name: _columns(types)}
        left, right = (Source(self.alias("a"), _columns(types)) for _ in range(2))
        kind = self.rng.random()
        if kind < 0.5:
            joined = Joined(
                self.rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN")),
                Table(name, left.alias),
                Table(name, right.alias),
                (self.equality((left,), (right,)),),
            )
            body: Query = self.rest_of_select(self.types(), joined, (left, right), (), 1)
        elif kind < 0.75:
            body = SetOperation(
                self.rng.choice(("UNION ALL", "EXCEPT ALL", "INTERSECT", "EXCEPT")),
                self.rest_of_select(types, Table(name, left.alias), (left,), (), 0),
                self.rest_of_select(types, Table(name, right.alias), (right,), (), 0),
            )
        else:
            body = self.query(1, self.types(), ())
        return With(name, value, body)

    def select(self, depth: int, types: tuple[str, ...], outer: Scope, *, top: bool) -> Select:
        source, scope = self.sources(depth, outer)
        return self.rest_of_select(types, source, scope, outer, depth, top=top)

    def rest_of_select(
        self,
        types: tuple[str, ...],
        source: From,
        scope: Scope,
        outer: Scope,
        depth: int,
        *,
        top: bool = False,
    ) -> Select:
        seen = scope + outer
        where = tuple(
            self.predicate(seen, depth, inner=scope)
            for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2)))
        )
        if outer and self.chance(0.9):
            where = (self.equality(scope, outer), *where)
        kind = self.rng.random()
        if kind < 0.33:
            made = self.grouped(types, source, where, scope, outer, depth, top=top)
        elif kind < 0.45 and not outer:
            items = tuple(
                self.windowed(t, scope) if self.chance(0.5) else self.expr(t, scope, 1)
                for t in types
            )
            made = Select(items, source, where)
        else:
            items = tuple(self.item(t, seen, depth) for t in types)
            if top and self.chance(0.1):
                items = (*items, Expr("integer", "(12 / {0})", (self.expr("integer", scope, 0),)))
                return Select(items, source, where)
            made = Select(items, source, where)
        return self.finished(made)

    def finished(self, made: Select) -> Select:
        choice = self.rng.random()
        if choice < 0.1:
            return replace(made, distinct=True)
        if choice < 0.17 and made.grouping is None:
            return replace(made, distinct_on=self.rng.randint(1, len(made.items)))
        if choice < 0.25:
            return replace(made, sorting=self.sorting())
        return made

    def grouped(
        self,
        types: tuple[str, ...],
        source: From,
        where: tuple[Expr, ...],
        scope: Scope,
        outer: Scope,
        depth: int,
        *,
        top: bool,
    ) -> Select:
        keys = tuple(
            key
            for key in (
                self.expr(self.rng.choice(TYPES), scope, self.rng.choice((0, 0, 1)), column=True)
                for _ in range(self.rng.choice((0, 1, 1, 2)))
            )
            if key.args or (key.template[0].islower() and "." in key.template)
        )
        items = [self.over_group(t, keys, scope) for t in types]
        if top:
            for _ in range(self.rng.choice((0, 1, 2))):
                items.append(self.aggregate(self.rng.choice(TOP_AGGREGATES), scope))
            items += keys
            if self.chance(0.15):
                count = self.aggregate(self.rng.choice(AGGREGATES[:5]), scope)
                items.append(
                    self.rng.choice(
                        (
                            Expr("numeric", "sum({0}) OVER ()", (count,)),
                            Expr("bigint", "rank() OVER (ORDER BY {0} DESC)", (count,)),
                        )
                    )
                )
        having: tuple[Expr, ...] = ()
        if depth and self.chance(0.08):
            count = self.aggregate(self.rng.choice(AGGREGATES[:4]), scope)
            having = (
                Expr(
                    "boolean",
                    f"({{0}} {self.comparison()} {{1}})",
                    (count, self.scalar_subquery("bigint", outer)),
                ),
            )
        elif self.chance(0.25):
            count = self.aggregate(self.rng.choice(AGGREGATES[:5]), scope)
            having = (Expr("boolean", f"({{0}} {self.comparison()} 1)", (count,)),)
        grouping = ""
        if keys and self.chance(0.15):
            grouping = self.rng.choice(("ROLLUP", "CUBE", "SETS"))
        return Select(tuple(items), source, where, grouping, keys, having)

    def over_group(self, type_: str, keys: tuple[Expr, ...], scope: Scope) -> Expr:
        fitting = [key for key in keys if key.type == type_]
        if fitting and self.chance(0.6):
            return self.rng.choice(fitting)
        choices = [agg for agg in AGGREGATES if agg[0] == type_]
        made = self.aggregate(self.rng.choice(choices), scope) if choices else self.constant(type_)
        if self.chance(0.25):
            made = Expr(type_, "coalesce({0}, {1})", (made, self.constant(type_)))
        return made

    def aggregate(self, agg: tuple[str, tuple[str, ...], str], scope: Scope) -> Expr:
        type_, types, template = agg
        args = tuple(self.expr(each, scope, self.rng.choice((0, 0, 1))) for each in types)
        made = Expr(type_, template, args)
        if self.chance(0.2):
            filter_ = self.comparison_of(scope, 0)
            made = Expr(type_, template + f" FILTER (WHERE {{{len(args)}}})", (*args, filter_))
        return made

    def windowed(self, type_: str, scope: Scope) -> Expr:
        """Ordered by everything where places matter; ranks and running sums have peers."""
        part = self.expr(self.rng.choice(COMPARABLE), scope, 0, column=True)
        by = self.expr(self.rng.choice(COMPARABLE), scope, 0, column=True)
        every = ", ".join(f"{s.alias}.{name}" for s in scope for name, _ in s.columns)
        direction = self.rng.choice(DIRECTIONS)
        partition = "PARTITION BY {0} " if self.chance(0.6) else ""
        loose = f"OVER ({partition}ORDER BY {{1}}{direction})"
        strict = f"OVER ({partition}ORDER BY {{1}}{direction}, {every}"
        frame = self.rng.choice(
            ("", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " ROWS UNBOUNDED PRECEDING")
        )
        arg = self.expr(type_, scope, 0)
        choices = [
            f"lag({{2}}) {strict})",
            f"lead({{2}}, 2) {strict})",
            f"first_value({{2}}) {strict}{frame})",
            f"last_value({{2}}) {strict}{frame})",
            f"nth_value({{2}}, 2) {strict}{frame})",
        ]
        if type_ == "bigint":
            arg = self.expr("integer", scope, 0)
            choices = [
                f"row_number() {strict})",
                f"rank() {loose}",
                f"dense_rank() {loose}",
                f"count(*) {loose}",
                f"sum({{2}}) {loose}",
                f"sum({{2}}) {strict}{frame})",
                f"count({{2}}) OVER ({partition.strip()})",
            ]
        elif type_ in ("integer", "text", "date") and self.chance(0.3):
            choices = [f"min({{2}}) {loose}", f"max({{2}}) OVER ({partition.strip()})"]
        return Expr(type_, self.rng.choice(choices), (part, by, arg))

    def sorting(self) -> Sorting:
        directions = tuple(self.rng.choice(DIRECTIONS) for _ in range(3))
        return Sorting(directions, self.rng.choice((1, 2, 3, 5)), self.rng.choice((0, 0, 0, 1)))

    # FROM ---------------------------------------------------------------------------------------

    def sources(self, depth: int, outer: Scope) -> tuple[From, Scope]:
        made, source = self.source(depth)
        scope = (source,)
        for _ in range(self.rng.choice((0, 0, 1, 1, 2) if depth else (0, 0, 1))):
            kind = self.rng.random()
            if kind < 0.1 and depth:
                made, scope = self.lateral(made, scope, depth)
                continue
            if kind < 0.17:
                made, scope = self.function(made, scope)
                continue
            right, other = self.source(depth)
            joined, on = "JOIN", (self.equality(scope, (other,)),)
            if kind < 0.24:
                joined, on = "CROSS JOIN", ()
            elif kind < 0.34:
                on = (self.inequality(scope, (other,)),)
                joined = self.rng.choice(("JOIN", "LEFT JOIN"))
            elif kind < 0.7:
                joined = self.rng.choice(("LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
            if joined != "FULL JOIN" and on and self.chance(0.25):
                both = (*scope, other)
                if depth and self.chance(0.2):
                    on = (*on, self.subquery_predicate((other,), both, 0))
                else:
                    on = (*on, self.comparison_of(both, 0))
            elif on and self.chance(0.3) and _shared(scope, other, "k"):
                made, scope = Joined(joined, made, right, (), "k"), (*scope, other)
                continue
            made, scope = Joined(joined, made, right, on), (*scope, other)
        return made, scope

    def source(self, depth: int) -> tuple[From, Source]:
        alias = self.alias("a")
        kind = self.rng.random()
        if depth and kind < 0.35:
            types = self.types()
            return Derived(self.query(depth - 1, types, ()), alias), Source(alias, _columns(types))
        if depth and kind < 0.4:
            types = self.types()
            rows = tuple(
                tuple(self.typed_constant(t) for t in types)
                for _ in range(self.rng.choice((1, 2, 3)))
            )
            return Derived(Values(rows), alias), Source(alias, _columns(types))
        name = self.rng.choice(sorted(self.tables))
        return Table(name, alias), Source(alias, self.tables[name])

    def lateral(self, made: From, scope: Scope, depth: int) -> tuple[From, Scope]:
        types = self.types()
        query = self.query(depth - 1, types, scope)
        if isinstance(query, Select) and query.grouping is None and not query.distinct_on:
            query = replace(query, distinct=False, sorting=self.sorting())
        source = Source(self.alias("l"), _columns(types))
        derived = Derived(query, source.alias, lateral=True)
        kind = self.rng.choice(("CROSS JOIN", "LEFT JOIN"))
        on = () if kind == "CROSS JOIN" else (Expr("boolean", "true"),)
        return Joined(kind, made, derived, on), (*scope, source)

    def function(self, made: From, scope: Scope) -> tuple[From, Scope]:
        source = Source(self.alias("f"), (("g", "integer"),))
        stop = self.expr("integer", scope, 0)
        if self.chance(0.6):
            call = Expr("rows", "generate_series(1, {0})", (stop,))
        else:
            call = Expr("rows", "unnest(ARRAY[{0}, 2, NULL])", (stop,))
        return Joined("CROSS JOIN", made, Function(call, source.alias, "g"), ()), (*scope, source)

    # Expressions --------------------------------------------------------------------------------

    def item(self, type_: str, scope: Scope, depth: int) -> Expr:
        if depth and type_ == "boolean" and self.chance(0.4):
            return self.subquery_predicate(scope, scope)
        if depth and self.chance(0.12):
            made = self.scalar_subquery(type_, scope)
            if self.chance(0.3):
                args = (self.comparison_of(scope, 0), made)
                made = Expr(type_, "CASE WHEN {0} THEN {1} END", args)
            return made
        return self.expr(type_, scope, self.rng.choice((0, 1, 1, 2)))

    def scalar_subquery(self, type_: str, outer: Scope) -> Expr:
        """At most one row: an aggregate over everything, or the first of all."""
        inner, source = self.source(0)
        where = (self.equality((source,), outer),) if self.chance(0.7) else ()
        choices = [agg for agg in AGGREGATES if agg[0] == type_]
        if choices and self.chance(0.7):
            item = self.aggregate(self.rng.choice(choices), (source,))
            query = Select((item,), inner, where, "")
        else:
            item = self.expr(type_, (source,), 1)
            query = Select((item,), inner, where, sorting=replace(self.sorting(), limit=1))
        return Expr(type_, "({0})", (query,))

    def predicate(self, scope: Scope, depth: int, *, inner: Scope) -> Expr:
        kind = self.rng.random()
        if kind < 0.22 and depth:
            made = self.subquery_predicate(scope, inner)
            if self.chance(0.25):
                word = self.rng.choice(("({0} OR {1})", "({0} AND NOT {1})", "({1} = {0})"))
                made = Expr("boolean", word, (self.comparison_of(inner, 0), made))
            return made
        if kind < 0.3 and depth:
            type_ = self.rng.choice(("integer", "bigint", "text"))
            args = (self.expr(type_, scope, 0), self.scalar_subquery(type_, inner))
            return Expr("boolean", f"({{0}} {self.comparison()} {{1}})", args)
        return self.comparison_of(scope, 1)

    def subquery_predicate(self, scope: Scope, outer: Scope, depth: int = 1) -> Expr:
        """EXISTS, IN, ANY or ALL; now and then with another inside that sees both."""
        made, source = self.source(1)
        where = tuple(self.comparison_of((source,), 0) for _ in range(self.rng.choice((0, 1))))
        if depth and self.chance(0.2):
            where = (*where, self.subquery_predicate((source,), (source, *outer), depth - 1))
        kind = self.rng.random()
        if kind < 0.5:
            where = (self.equality((source,), outer), *where)
            query: Query = Select((Expr("integer", "1"),), made, where)
            return Expr(
                "boolean", self.rng.choice(("EXISTS ({0})", "(NOT EXISTS ({0}))")), (query,)
            )
        if self.chance(0.3):
            where = (self.equality((source,), outer), *where)
        type_ = self.rng.choice(("integer", "text", "bigint"))
        query = Select((self.expr(type_, (source,), 0),), made, where)
        if self.chance(0.15):
            query = SetOperation("UNION ALL", query, Values(((self.typed_constant(type_),),)))
        word = self.rng.choice(("IN", "IN", "NOT IN"))
        if kind > 0.85:
            word = self.rng.choice(("< ANY", ">= ALL", "<> ALL", "= ANY"))
        return Expr("boolean", f"({{0}} {word} ({{1}}))", (self.expr(type_, scope, 0), query))

    def equality(self, left: Scope, right: Scope) -> Expr:
        shared = [t for t in COMPARABLE if _has(left, t) and _has(right, t)]
        type_ = self.rng.choice(shared) if shared else "integer"
        return Expr("boolean", "({0} = {1})", (self.leaf(type_, left), self.leaf(type_, right)))

    def inequality(self, left: Scope, right: Scope) -> Expr:
        type_ = self.rng.choice(("integer", "text", "date"))
        args = (self.leaf(type_, left), self.leaf(type_, right))
        return Expr("boolean", f"({{0}} {self.rng.choice(('<', '<=', '<>'))} {{1}})", args)

    def comparison_of(self, scope: Scope, depth: int) -> Expr:
        kind = self.rng.random()
        if kind < 0.2 or depth:
            return self.expr("boolean", scope, depth)
        type_ = self.rng.choice([t for t in COMPARABLE if _has(scope, t)] or COMPARABLE)
        left = self.expr(type_, scope, depth, column=True)
        if kind < 0.35:
            return Expr("boolean", self.rng.choice(("({0} IS NULL)", "({0} IS NOT NULL)")), (left,))
        right = self.constant(type_) if self.chance(0.4) else self.expr(type_, scope, depth)
        if right == left:
            return Expr("boolean", "({0} IS NOT NULL)", (left,))
        return Expr("boolean", f"({{0}} {self.comparison()} {{1}})", (left, right))

    def comparison(self) -> str:
        return self.rng.choice(("=", "<>", "<>", "<", "<=", ">", ">=", ">=", "IS DISTINCT FROM"))

    def expr(self, type_: str, scope: Scope, depth: int, *, column: bool = False) -> Expr:
        if depth <= 0:
            return self.leaf(type_, scope) if column or self.chance(0.85) else self.constant(type_)
        kind = self.rng.random()
        if kind < 0.1:
            args = (self.expr(type_, scope, depth - 1), self.expr(type_, scope, 0))
            return Expr(type_, "coalesce({0}, {1})", args)
        if kind < 0.22:
            args = (
                self.comparison_of(scope, 0),
                self.expr(type_, scope, depth - 1),
                self.expr(type_, scope, 0),
            )
            otherwise = self.rng.choice((" ELSE {2}", ""))
            return Expr(type_, f"CASE WHEN {{0}} THEN {{1}}{otherwise} END", args)
        if type_ == "boolean" and kind < 0.6:
            return self.comparison_of(scope, depth - 1)
        types, template = self.rng.choice(SCALARS[type_])
        return Expr(type_, template, tuple(self.expr(t, scope, depth - 1) for t in types))

    def leaf(self, type_: str, scope: Scope) -> Expr:
        found = [f"{s.alias}.{name}" for s in scope for name, each in s.columns if each == type_]
        if found:
            return Expr(type_, self.rng.choice(found))
        possible = [each for each in SCALARS[type_] if all(_has(scope, t) for t in each[0])]
        if not possible or self.chance(0.15):
            return self.constant(type_)
        types, template = self.rng.choice(possible)
        return Expr(type_, template, tuple(self.leaf(t, scope) for t in types))

    def constant(self, type_: str) -> Expr:
        if self.chance(0.04):
            return Expr(type_, f"CAST(NULL AS {type_})")
        return Expr(type_, self.rng.choice(CONSTANTS[type_]))

    def typed_constant(self, type_: str) -> Expr:
        """With its type written down: VALUES takes the type of its first row."""
        made = self.constant(type_)
        return (
            made
            if "CAST" in made.template
            else replace(made, template=f"CAST({made.template} AS {type_})")
        )

    # Choices ------------------------------------------------------------------------------------

    def types(self) -> tuple[str, ...]:
        return ("integer", *(self.rng.choice(TYPES) for _ in range(self.rng.choice((0, 1, 1, 2)))))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def alias(self, prefix: str) -> str:
        self._aliases += 1
        return f"{prefix}{self._aliases}"


def _columns(types: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((f"c{at}", type_) for at, type_ in enumerate(types))


def _shared(scope: Scope, other: Source, name: str) -> bool:
    """Whether USING takes the name: it is there once on each side."""
    return len(scope) == 1 and all(name in dict(s.columns) for s in (*scope, other))


def _has(scope: Scope, type_: str) -> bool:
    return any(each == type_ for source in scope for _, each in source.columns)
