"""The aggregates: `AGGREGATES` is the whole list, with the type and the kind of each.

    accumulable   kept from numbers that add up as rows come and go: count, sum, avg, and what
                  `composed` makes of them (bool_and, bool_or, variances and deviations)
    ordered       the first or last of the values in order: min, max
    whole         computed anew from all rows of a group: array_agg, string_agg, jsonb_agg, ...

What reaches a plan is normal: `every` is bool_and, `stddev` is stddev_samp and so on; what
`composed` splits never reaches it, its parts do; a FILTER stands only at whole aggregates (at the
others it is a CASE around the argument, as all of them skip nulls); ORDER BY only at whole ones;
DISTINCT not where it makes no difference.

    bool_and(x)      count(x) > 0, and count(CASE WHEN NOT x THEN 1 END) = 0
    var_samp(x)      of count(x), sum(x), sum(x * x): see `decimals.variance`
    sum(x), avg(x)   of doubles, of sums of whole numbers: see `functions/doubles.py`

A whole aggregate is written for Spark by `whole_value` and `whole_error`, over a group's rows,
each there as often as it counts. Without an ORDER BY the values themselves are the order, and
they also decide among rows that ORDER BY does not tell apart: a result is the same whenever and
wherever it is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tidemark.compute.arrays import loaded, stored
from tidemark.compute.casts import cast, castable
from tidemark.compute.expr import Call, Expr, Lit
from tidemark.compute.functions import call
from tidemark.compute.intervals import kept
from tidemark.compute.json_text import json_text
from tidemark.compute.literals import UNKNOWN
from tidemark.compute.plan import Aggregate, Order
from tidemark.errors import SqlError, Unsupported
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DOUBLE,
    INTERVAL,
    JSONB,
    NUMERIC,
    TEXT,
    SqlType,
    array_of,
    numeric,
)

Kind = Literal["accumulable", "ordered", "whole"]
Types = tuple[SqlType, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """`result` is the type for arguments of some types, None if there is no such aggregate."""

    kind: Kind
    result: Callable[[Types], SqlType | None]
    distinct_matters: bool = True


def _one(accepts: Callable[[SqlType], SqlType | None]) -> Callable[[Types], SqlType | None]:
    return lambda types: accepts(types[0]) if len(types) == 1 else None


def _sum(type_: SqlType) -> SqlType | None:
    if type_ == INTERVAL:
        return INTERVAL
    if type_.name in ("smallint", "integer"):
        return BIGINT
    if not type_.is_exact:
        return DOUBLE if type_ == DOUBLE else None
    return NUMERIC if type_ == NUMERIC else numeric(38, type_.decimal[1])


def _average(type_: SqlType) -> SqlType | None:
    if type_ in (INTERVAL, DOUBLE):
        return type_
    return NUMERIC if type_.is_exact else None


def _deviation(type_: SqlType) -> SqlType | None:
    return NUMERIC if type_.is_exact else None


def _extreme(type_: SqlType) -> SqlType | None:
    unordered = type_ in (BOOLEAN, BYTEA, JSONB) or type_.element is not None
    return None if unordered else type_


def _boolean(type_: SqlType) -> SqlType | None:
    return BOOLEAN if type_ == BOOLEAN else None


def _string_agg(types: Types) -> SqlType | None:
    return TEXT if types == (TEXT, TEXT) else None


AGGREGATES: dict[str, Rule] = {
    "count": Rule("accumulable", lambda types: BIGINT if len(types) <= 1 else None),
    "sum": Rule("accumulable", _one(_sum)),
    "avg": Rule("accumulable", _one(_average)),
    "bool_and": Rule("accumulable", _one(_boolean), distinct_matters=False),
    "bool_or": Rule("accumulable", _one(_boolean), distinct_matters=False),
    "var_pop": Rule("accumulable", _one(_deviation)),
    "var_samp": Rule("accumulable", _one(_deviation)),
    "stddev_pop": Rule("accumulable", _one(_deviation)),
    "stddev_samp": Rule("accumulable", _one(_deviation)),
    "min": Rule("ordered", _one(_extreme), distinct_matters=False),
    "max": Rule("ordered", _one(_extreme), distinct_matters=False),
    "array_agg": Rule("whole", _one(array_of)),
    "string_agg": Rule("whole", _string_agg),
    "jsonb_agg": Rule("whole", _one(lambda _: JSONB)),
    "jsonb_object_agg": Rule("whole", lambda types: JSONB if len(types) == 2 else None),
}

ALIASES = {"every": "bool_and", "stddev": "stddev_samp", "variance": "var_samp"}

COMPOSED = ("bool_and", "bool_or", "var_pop", "var_samp", "stddev_pop", "stddev_samp")
"""Computed from other aggregates, so that no plan ever holds them. Nor does any hold a sum or an
average of intervals, which is one of seconds, or of doubles."""


def is_aggregate(name: str) -> bool:
    return name in AGGREGATES or name in ALIASES


def result_type(name: str, types: Types) -> SqlType:
    """The type of an aggregate over values of some types; 42883 if there is none."""
    fn = ALIASES.get(name, name)
    rule = AGGREGATES[fn]
    if fn in COMPOSED[2:] and types == (DOUBLE,):
        raise Unsupported(
            f"{name}(double precision) is not supported: it cannot be kept exactly as rows "
            "come and go",
            hint=f"cast to numeric, e.g. {name}(x::numeric)",
        )
    found = rule.result(types)
    if found is None:
        raise SqlError(
            f"function {name}({', '.join(str(type_) for type_ in types)}) does not exist",
            hint="no aggregate takes these types; an explicit cast may help",
            sqlstate="42883",
        )
    return found


def aggregate(
    name: str,
    args: tuple[Expr, ...],
    *,
    distinct: bool = False,
    filter: Expr | None = None,
    order_by: tuple[Order, ...] = (),
) -> Aggregate:
    """The aggregate in normal form; raises as PostgreSQL does where there is none."""
    fn = ALIASES.get(name, name)
    rule = AGGREGATES[fn]
    typed = tuple(_settled(fn, at, arg) for at, arg in enumerate(args))
    type_ = result_type(name, tuple(arg.type for arg in typed))
    if distinct and any(order.expr not in typed for order in order_by):
        raise SqlError(
            "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            sqlstate="42P10",
        )
    distinct = distinct and rule.distinct_matters
    if rule.kind == "whole":
        return Aggregate(fn, typed, type_, distinct, filter, order_by)
    if filter is not None:
        counted = typed[0] if typed else Lit("1", BIGINT)
        typed = (call("case", (filter, counted, Lit(None, counted.type))),)
    return Aggregate(fn, typed, type_, distinct)


def composed(agg: Aggregate, column: Callable[[Aggregate], Expr]) -> Expr | None:
    """The aggregate as an expression over others, which `column` places; None if it is simple."""
    if agg.type == INTERVAL and agg.fn in ("sum", "avg"):
        seconds = call("seconds of", agg.args)
        return call("interval of", (column(aggregate(agg.fn, (seconds,), distinct=agg.distinct)),))
    if agg.fn in ("sum", "avg") and agg.type == DOUBLE:
        return _of_doubles(agg, column)
    if agg.fn not in COMPOSED:
        return None
    (arg,) = agg.args
    if agg.fn in ("bool_and", "bool_or"):
        deciding = call("not", (arg,)) if agg.fn == "bool_and" else arg
        one = call("case", (deciding, Lit("1", BIGINT), Lit(None, BIGINT)))
        zero = Lit("0", BIGINT)
        some = call(">", (column(aggregate("count", (arg,))), zero))
        decided = column(aggregate("count", (one,)))
        holds = call("=" if agg.fn == "bool_and" else ">", (decided, zero))
        return Call("case", (some, holds, Lit(None, BOOLEAN)), BOOLEAN)
    _refuse_distinct(agg)
    exact = arg if arg.type.name == "numeric" else cast(arg, numeric(arg.type.decimal[0], 0))
    parts = [
        column(aggregate("count", (exact,))),
        column(aggregate("sum", (exact,))),
        column(aggregate("sum", (call("*", (exact, exact)),))),
    ]
    return call(f"{agg.fn} of sums", tuple(parts))


def _of_doubles(agg: Aggregate, column: Callable[[Aggregate], Expr]) -> Expr:
    _refuse_distinct(agg)
    (arg,) = agg.args

    def count_of(*values: str) -> Expr:
        found = call("in", (arg, *(Lit(value, DOUBLE) for value in values)))
        return call("case", (found, Lit("1", BIGINT), Lit(None, BIGINT)))

    parts = [
        aggregate("count", (arg,)),
        *(
            aggregate("sum", (call(f"{part} of double", (arg,)),))
            for part in ("whole", "fraction", "rest")
        ),
        aggregate("count", (count_of("Infinity", "NaN"),)),
        aggregate("count", (count_of("-Infinity", "NaN"),)),
    ]
    return call(f"{agg.fn} of parts", tuple(column(part) for part in parts))


def _refuse_distinct(agg: Aggregate) -> None:
    if agg.distinct:
        raise Unsupported(
            f"{agg.fn}(DISTINCT ...) is not supported for {agg.args[0].type}",
            hint="aggregate over a subquery with SELECT DISTINCT",
        )


def _settled(fn: str, at: int, arg: Expr) -> Expr:
    """A quoted literal is text; what becomes text is converted where PostgreSQL would."""
    if arg.type == INTERVAL:
        arg = kept(arg)
    if arg.type == UNKNOWN or (fn == "jsonb_object_agg" and at == 0):
        return cast(arg, TEXT)
    if fn == "string_agg" and arg.type != TEXT and castable(arg.type, TEXT, "implicit"):
        return cast(arg, TEXT)
    return arg


# Whole aggregates as Spark SQL -------------------------------------------------------------------


def whole_value(
    agg: Aggregate, args: tuple[str, ...], order: tuple[str, ...], filter: str | None
) -> str:
    """The aggregate over the rows of a group; never raises.

    `args`, `order` and `filter` are the Spark SQL of the aggregate's own expressions.
    """
    rows = _rows(agg, args, order, filter)
    match agg.fn:
        case "array_agg":
            made = stored(f"transform({rows}, e -> e.v0)", agg.type)
        case "string_agg":
            # A separator stands before each value but the first; one that is null is empty.
            parts = "CASE WHEN i = 0 THEN e.v0 ELSE concat(coalesce(e.v1, ''), e.v0) END"
            made = f"array_join(transform({rows}, (e, i) -> {parts}), '')"
        case "jsonb_agg":
            element = f"coalesce({_json('e.v0', agg.args[0].type)}, 'null')"
            made = f"concat('[', array_join(transform({rows}, e -> {element}), ','), ']')"
        case "jsonb_object_agg":
            made = _object(rows, agg.args[1].type)
        case _:
            raise Unsupported(f"{agg.fn} is not computed from whole groups")
    return f"CASE WHEN size({_collected(agg, args, order, filter)}) > 0 THEN {made} END"


def whole_error(agg: Aggregate, args: tuple[str, ...], filter: str | None) -> str | None:
    """The message where the aggregate itself fails, None if it cannot."""
    if agg.fn != "jsonb_object_agg":
        return None
    passes = f"({filter}) AND " if filter else ""
    return (
        f"CASE WHEN count(CASE WHEN {passes}({args[0]}) IS NULL THEN 1 END) > 0"
        " THEN 'field name must not be null' END"
    )


def _collected(
    agg: Aggregate, args: tuple[str, ...], order: tuple[str, ...], filter: str | None
) -> str:
    """The rows that count, as an array of structs: v0, v1 are the arguments, o0, .. the order."""
    fields = [f"'v{i}', {arg}" for i, arg in enumerate(args)]
    fields += [f"'o{i}', {text}" for i, text in enumerate(order)]
    conditions = [f"({filter})"] if filter else []
    if agg.fn in ("string_agg", "jsonb_object_agg"):
        conditions.append(f"({args[0]}) IS NOT NULL")
    where = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
    rows = f"collect_list(named_struct({', '.join(fields)})){where}"
    return f"array_distinct({rows})" if agg.distinct else rows


def _rows(agg: Aggregate, args: tuple[str, ...], order: tuple[str, ...], filter: str | None) -> str:
    keys = [
        (
            f"o{i}",
            each.descending,
            each.descending if each.nulls_first is None else each.nulls_first,
        )
        for i, each in enumerate(agg.order_by)
    ]
    keys += [(f"v{i}", False, False) for i in range(len(args))]
    compared = "0"
    for name, descending, nulls_first in reversed(keys):
        less, null = (1 if descending else -1), (-1 if nulls_first else 1)
        compared = (
            f"CASE WHEN l.{name} <=> r.{name} THEN {compared}"
            f" WHEN l.{name} IS NULL THEN {null} WHEN r.{name} IS NULL THEN {-null}"
            f" WHEN l.{name} < r.{name} THEN {less} ELSE {-less} END"
        )
    return f"array_sort({_collected(agg, args, order, filter)}, (l, r) -> {compared})"


def _json(text: str, type_: SqlType) -> str:
    return json_text(loaded(text, type_), type_)


def _object(rows: str, type_: SqlType) -> str:
    """A key that is there twice has its last value: values are ranked within their key first."""
    ranked = f"array_sort(transform({rows}, (e, i) -> named_struct('k', e.v0, 'i', i, 'v', e.v1)))"
    last = "filter(a, (e, i) -> NOT (get(a, i + 1).k <=> e.k))"
    key, element = json_text("e.k", TEXT), f"coalesce({_json('e.v', type_)}, 'null')"
    texts = f"array_join(transform({last}, e -> concat({key}, ':', {element})), ',')"
    # Java orders keys by UTF-16 units, so the last word on the order is its own.
    whole = f"to_json(try_parse_json(concat('{{', {texts}, '}}')))"
    return f"transform(array({ranked}), a -> {whole})[0]"
