"""Random queries out of what a maintained view supports, as SQL text.

Each query comes in two spellings of the same meaning: ours (PostgreSQL's) and Spark's. They are
the same text but for these, where the two languages differ:

    ours                  Spark               because
    a / b  of integers    a div b             Spark's / of integers gives a fraction
    d1 - d2  of dates     datediff(d1, d2)    Spark gives an interval
    avg(x)                avg(x as decimal)   Spark averages integers in floating point
    date_trunc(u, t)      cast as timestamp   Spark gives an instant
    cast(.. AS text)      AS STRING           the type's name

What remains is in how results print (`sum` of bigint is numeric here and bigint there, an average
has 16 decimals here and 10 there): `maintained.normal` makes numbers comparable to six decimals.
Left out of the random queries, since a whole Spark query fails where a view holds an error row:
anything that can fail (see `test_cases.py`), and floating point, whose sums a view refuses.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import NamedTuple

from histories import MONEY, VALUES, Table

from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    INTEGER,
    TEXT,
    TIMESTAMP,
    Column,
    SqlType,
)


class Query(NamedTuple):
    """`versioned` is Spark's spelling over rows of many versions at once, told apart by `_v`: it
    is in every join, group and select list. None for a query that has a row over nothing."""

    ours: str
    spark: str
    versioned: str | None = None


class Sql(NamedTuple):
    """A piece of a query in all spellings."""

    type: SqlType
    ours: str
    spark: str
    versioned: str

    @property
    def is_constant(self) -> bool:
        return re.search(r"\b[abc]\.", self.ours) is None


class Source(NamedTuple):
    """One relation of FROM."""

    alias: str
    columns: tuple[Column, ...]


TYPES = (INTEGER, BIGINT, MONEY, TEXT, DATE, TIMESTAMP, BOOLEAN)
NUMBERS = (INTEGER, BIGINT, MONEY)
PATTERNS = ("a%", "%b", "_", "%", "", "B_")
COMPARISONS = ("=", "<>", "<>", "<", "<=", ">", ">=")

# Templates by result type: argument types, ours, and Spark's where it differs.
Template = tuple[tuple[SqlType, ...], str, str | None]
TEMPLATES: dict[SqlType, tuple[Template, ...]] = {
    INTEGER: (
        ((INTEGER, INTEGER), "({0} + {1})", None),
        ((INTEGER, INTEGER), "({0} - {1})", None),
        ((INTEGER,), "({0} * 3)", None),
        ((INTEGER,), "({0} / 2)", "({0} div 2)"),
        ((INTEGER,), "({0} % 2)", None),
        ((INTEGER,), "(- {0})", None),
        ((INTEGER,), "abs({0})", None),
        ((TEXT,), "length({0})", None),
        ((DATE, DATE), "({0} - {1})", "datediff({0}, {1})"),
        ((INTEGER, INTEGER), "greatest({0}, {1})", None),
        ((INTEGER, INTEGER), "nullif({0}, {1})", None),
    ),
    BIGINT: (
        ((BIGINT, INTEGER), "({0} + {1})", None),
        ((BIGINT,), "({0} * 2)", None),
        ((INTEGER,), "CAST({0} AS bigint)", None),
        ((BIGINT, BIGINT), "least({0}, {1})", None),
    ),
    MONEY: (
        ((MONEY, MONEY), "({0} + {1})", None),
        ((MONEY, INTEGER), "({0} - {1})", None),
        ((MONEY, INTEGER), "({0} * {1})", None),
        ((MONEY, MONEY), "({0} * {1})", None),
        ((INTEGER,), "CAST({0} AS numeric(10,2))", None),
        ((MONEY,), "round({0}, 1)", None),
        ((MONEY,), "(- {0})", None),
    ),
    TEXT: (
        ((TEXT, TEXT), "({0} || {1})", None),
        ((TEXT,), "upper({0})", None),
        ((TEXT,), "lower({0})", None),
        ((TEXT,), "substring({0}, 1, 1)", None),
        ((INTEGER,), "CAST({0} AS text)", "CAST({0} AS STRING)"),
        ((TEXT, TEXT), "nullif({0}, {1})", None),
    ),
    DATE: (
        ((DATE,), "({0} + 3)", None),
        ((TIMESTAMP,), "CAST({0} AS date)", None),
    ),
    TIMESTAMP: (
        (
            (TIMESTAMP,),
            "date_trunc('hour', {0})",
            "CAST(date_trunc('hour', {0}) AS TIMESTAMP_NTZ)",
        ),
        ((DATE,), "CAST({0} AS timestamp)", "CAST({0} AS TIMESTAMP_NTZ)"),
    ),
    BOOLEAN: (),
}


def random_query(rng: random.Random, tables: Mapping[str, Table]) -> Query:
    return _Writer(rng, tables).query()


class _Writer:
    def __init__(self, rng: random.Random, tables: Mapping[str, Table]):
        self._rng = rng
        self._tables = tables
        self._sources: list[Source] = []

    # Whole queries.

    def query(self) -> Query:
        rng = self._rng
        from_, conditions = self._from()
        if rng.random() < 0.45:
            conditions.append(self._predicate(2))
        where = _joined(" AND ", conditions)
        kind = rng.choice(("select", "distinct", "group", "group", "group", "global"))
        if kind in ("select", "distinct"):
            items = [self._item(2) for _ in range(rng.choice((1, 2, 3)))]
            return self._assembled(items, from_, where, distinct=kind == "distinct")
        keys = [self._key() for _ in range(rng.choice((1, 1, 2)))] if kind == "group" else []
        items = [key for key in keys if rng.random() < 0.8]
        items += [self._aggregate_item() for _ in range(rng.choice((1, 2, 3)))]
        having = self._having() if rng.random() < 0.4 else None
        return self._assembled(items, from_, where, keys=keys, having=having)

    def _assembled(
        self,
        items: list[Sql],
        from_: Sql,
        where: Sql | None,
        *,
        distinct: bool = False,
        keys: list[Sql] | None = None,
        having: Sql | None = None,
    ) -> Query:
        texts = []
        version = same("a._v")
        for side in ("ours", "spark", "versioned"):
            listed = ", ".join(f"{getattr(item, side)} AS c{at}" for at, item in enumerate(items))
            if side == "versioned":
                listed = f"a._v AS _v, {listed}"
                if keys is not None:
                    keys = [version, *keys]
            text = f"SELECT {'DISTINCT ' if distinct else ''}{listed} FROM {getattr(from_, side)}"
            if where is not None:
                text += f" WHERE {getattr(where, side)}"
            if keys:
                text += f" GROUP BY {', '.join(getattr(key, side) for key in keys)}"
            if having is not None:
                text += f" HAVING {getattr(having, side)}"
            texts.append(text)
        return Query(*texts)._replace(**({"versioned": None} if keys == [version] else {}))

    # FROM: one to three relations in a chain, a star or a triangle, sometimes one with itself.

    def _from(self) -> tuple[Sql, list[Sql]]:
        rng = self._rng
        conditions: list[Sql] = []
        text = self._source("a")
        comma = rng.random() < 0.3
        for alias in "bc"[: rng.choice((0, 0, 1, 1, 1, 2, 2))]:
            partner = rng.choice(self._sources)
            if not comma and alias == "b" and rng.random() < 0.15:
                added = self._source(alias, plain=True)
                if {"k"} <= {column.name for column in partner.columns}:
                    text = _both(
                        "{0} JOIN {1} USING (k)",
                        text,
                        added,
                        versioned="{0} JOIN {1} USING (k, _v)",
                    )
                    continue
                self._sources.pop()
            added = self._source(alias)
            on = self._equalities(partner, self._sources[-1])
            on.append(Sql(BOOLEAN, "true", "true", f"a._v = {alias}._v"))
            if len(self._sources) == 3 and rng.random() < 0.3:
                other = next(s for s in self._sources[:2] if s is not partner)
                on += self._equalities(other, self._sources[-1])
            if rng.random() < 0.15:
                on.append(self._predicate(1))
            if comma:
                text = _both("{0}, {1}", text, added)
                conditions += on
            else:
                joined = _joined(" AND ", on)
                assert joined is not None
                text = _both("{0} JOIN {1} ON {2}", text, added, joined)
        return text, conditions

    def _source(self, alias: str, *, plain: bool = False) -> Sql:
        rng = self._rng
        table = self._tables[rng.choice(sorted(self._tables))]
        if plain or rng.random() < 0.85:
            self._sources.append(Source(alias, table.columns))
            return same(f"{table.name} {alias}")
        # A subquery: projections and filters that must be merged into the view's own.
        inner = _Writer(rng, {})
        inner._sources = [Source("a", table.columns)]
        items = [inner._key() for _ in range(rng.choice((2, 3)))]
        items.append(same("a.k", INTEGER))
        where = inner._predicate(1) if rng.random() < 0.5 else None
        body = inner._assembled(items, same(f"{table.name} a"), where)
        columns = tuple(Column(f"c{at}", item.type) for at, item in enumerate(items))
        self._sources.append(Source(alias, columns))
        return _both("({0}) " + alias, Sql(BOOLEAN, *body))

    def _equalities(self, left: Source, right: Source) -> list[Sql]:
        """One or two pairs of columns of the two; any int and bigint may be compared."""
        pairs = [
            (a, b)
            for a in left.columns
            for b in right.columns
            if a.type == b.type or {a.type, b.type} == {INTEGER, BIGINT}
        ]
        found = []
        for a, b in self._rng.sample(pairs, min(len(pairs), self._rng.choice((1, 1, 2)))):
            sides = [f"{left.alias}.{a.name}", f"{right.alias}.{b.name}"]
            self._rng.shuffle(sides)
            found.append(same(" = ".join(sides)))
        return found

    # Expressions.

    def _item(self, depth: int) -> Sql:
        return self._expr(self._type(TYPES), depth)

    def _key(self) -> Sql:
        """Something to group by; not a constant, which would mean a position."""
        while True:
            found = self._expr(self._type(TYPES), self._rng.choice((0, 0, 1)))
            if not found.is_constant:
                return found

    def _type(self, among: tuple[SqlType, ...]) -> SqlType:
        """Mostly one that some column has: expressions of constants alone prove little."""
        have = {column.type for source in self._sources for column in source.columns}
        found = [type_ for type_ in among if type_ in have]
        return self._rng.choice(found if found and self._rng.random() < 0.95 else among)

    def _expr(self, type_: SqlType, depth: int) -> Sql:
        rng = self._rng
        if type_ == BOOLEAN and depth and rng.random() < 0.8:
            return self._predicate(depth)
        if not depth or rng.random() < 0.4:
            return self._column(type_) or self._literal(type_)
        choice = rng.random()
        if choice < 0.15:
            parts = [self._predicate(depth - 1), self._expr(type_, depth - 1)]
            if rng.random() < 0.7:
                parts.append(self._expr(type_, depth - 1))
                return _both("CASE WHEN {0} THEN {1} ELSE {2} END", *parts, type_=type_)
            return _both("CASE WHEN {0} THEN {1} END", *parts, type_=type_)
        if choice < 0.25:
            parts = [self._expr(type_, depth - 1), self._literal(type_, null=False)]
            return _both("coalesce({0}, {1})", *parts, type_=type_)
        templates = TEMPLATES[type_]
        if not templates:
            return self._column(type_) or self._literal(type_)
        have = {column.type for source in self._sources for column in source.columns}
        usable = [template for template in templates if have.issuperset(template[0])]
        types, ours, spark = rng.choice(usable or templates)
        args = [self._expr(arg, depth - 1) for arg in types]
        return _both(ours, *args, spark=spark, type_=type_)

    def _predicate(self, depth: int) -> Sql:
        rng = self._rng
        choice = rng.random()
        inner = max(depth - 1, 0)
        if depth and choice < 0.35:
            word = rng.choice(("AND", "OR", "OR"))
            template = (
                f"({{0}} {word} {{1}})" if rng.random() < 0.8 else f"(NOT {{0}} {word} {{1}})"
            )
            return _both(template, self._predicate(inner), self._predicate(inner))
        type_ = self._type(TYPES[:-1])
        subject = self._expr(type_, inner)
        if choice < 0.45:
            words = rng.choice(("IS NULL", "IS NOT NULL"))
            return _both(f"({{0}} {words})", subject)
        if choice < 0.55:
            listed = [self._literal(type_, null=False) for _ in range(rng.choice((1, 2, 3)))]
            if rng.random() < 0.15:
                listed.append(same("NULL", type_))
            values = _joined(", ", listed)
            assert values is not None
            return _both(rng.choice(("({0} IN ({1}))", "({0} NOT IN ({1}))")), subject, values)
        if choice < 0.65:
            text = self._expr(TEXT, inner)
            word = rng.choice(("LIKE", "NOT LIKE"))
            return _both(f"({{0}} {word} '{rng.choice(PATTERNS)}')", text)
        if choice < 0.7 and (flag := self._column(BOOLEAN)) is not None:
            return _both(rng.choice(("{0}", "(NOT {0})", "({0} IS TRUE)")), flag)
        if choice < 0.75:
            ends = [self._literal(type_, null=False) for _ in range(2)]
            return _both("({0} BETWEEN {1} AND {2})", subject, *ends)
        if type_ in NUMBERS and rng.random() < 0.3:
            type_ = rng.choice(NUMBERS)
        other = self._expr(type_, inner) if rng.random() < 0.5 else self._literal(type_)
        if rng.random() < 0.1:
            words = rng.choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
            return _both(f"({{0}} {words} {{1}})", subject, other)
        return _both(f"({{0}} {rng.choice(COMPARISONS)} {{1}})", subject, other)

    def _column(self, type_: SqlType) -> Sql | None:
        found = [
            f"{source.alias}.{column.name}"
            for source in self._sources
            for column in source.columns
            if column.type == type_
        ]
        if not found:
            return None
        return same(self._rng.choice(found), type_)

    def _literal(self, type_: SqlType, *, null: bool = True) -> Sql:
        if null and self._rng.random() < 0.04:
            return _both(
                f"CAST(NULL AS {type_})", spark=f"CAST(NULL AS {type_.spark})", type_=type_
            )
        value = self._rng.choice(VALUES[type_])
        if type_ == TEXT:
            text = f"'{value}'"
        elif type_ == DATE:
            text = f"DATE '{value}'"
        elif type_ == TIMESTAMP:
            text = f"TIMESTAMP '{value}'"
        elif type_ == BOOLEAN:
            text = "true" if value else "false"
        else:
            text = f"({value})" if value < 0 else str(value)
        return same(text, type_)

    # Aggregates.

    def _aggregate(self, fns: tuple[str, ...] = ("count", "sum", "avg", "min", "max", "*")) -> Sql:
        rng = self._rng
        fn = rng.choice(fns)
        if fn == "*":
            return same("count(*)", BIGINT)
        if fn == "count":
            return _both("count({0})", self._item(1), type_=BIGINT)
        if fn in ("sum", "avg"):
            arg = self._expr(self._type(NUMBERS), rng.choice((0, 1)))
            spark = "avg(CAST({0} AS DECIMAL(20,6)))" if fn == "avg" else None
            return _both(f"{fn}({{0}})", arg, spark=spark, type_=MONEY)
        arg = self._expr(self._type(TYPES[:-1]), rng.choice((0, 0, 1)))
        return _both(f"{fn}({{0}})", arg, type_=arg.type)

    def _number(self) -> Sql:
        return self._aggregate(("count", "sum", "avg", "*"))

    def _aggregate_item(self) -> Sql:
        rng = self._rng
        choice = rng.random()
        if choice < 0.7:
            return self._aggregate()
        if choice < 0.8:
            return _both("({0} + {1})", self._number(), self._number())
        if choice < 0.9:
            return _both("coalesce({0}, 0)", self._number())
        arg = self._expr(self._type(NUMBERS), 1)
        return _both("(max({0}) - min({0}))", arg)

    def _having(self) -> Sql:
        rng = self._rng
        limit = self._literal(rng.choice(NUMBERS[:2]), null=False)
        found = _both(f"({{0}} {rng.choice(COMPARISONS)} {{1}})", self._number(), limit)
        if rng.random() < 0.3:
            arg = self._expr(TEXT, 0)
            found = _both("({0} OR max({1}) IS NOT NULL)", found, arg)
        return found


def same(text: str, type_: SqlType = BOOLEAN) -> Sql:
    return Sql(type_, text, text, text)


def _both(
    template: str,
    *parts: Sql,
    spark: str | None = None,
    versioned: str | None = None,
    type_: SqlType = BOOLEAN,
) -> Sql:
    spark = spark or template
    return Sql(
        type_,
        template.format(*(part.ours for part in parts)),
        spark.format(*(part.spark for part in parts)),
        (versioned or spark).format(*(part.versioned for part in parts)),
    )


def _joined(word: str, parts: list[Sql]) -> Sql | None:
    template = word.join(f"{{{at}}}" for at in range(len(parts)))
    return _both(template, *parts) if parts else None
