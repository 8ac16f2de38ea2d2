"""Batch SQL of what is computed by group: Reduce, TopK, Window.

Aggregates are written as measures (`count`, `sum`, ... as Spark has them) and an expression that
makes the result of those, so that averages round and sums overflow as PostgreSQL's do:

    avg(x)    n = count(x), s = sum(CAST(x AS DECIMAL(38, ...)))      CASE WHEN n > 0 THEN s / n END

The same serves a window, where each measure has an OVER behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemark.compute.aggregates import AGGREGATES, whole_error, whole_value
from tidemark.compute.batch_text import checked, column_name, listed, ordered, selected
from tidemark.compute.casts import cast
from tidemark.compute.expr import Call, Col, Expr, Lit
from tidemark.compute.functions import call
from tidemark.compute.plan import OrderBy, Reduce, TopK, Window, WindowFunction
from tidemark.compute.shape import SUMMABLE_DIGITS, SUMMABLE_SCALE
from tidemark.errors import Unsupported
from tidemark.types import BIGINT, DOUBLE, SqlType, numeric

_RANKS = ("rank", "dense_rank", "percent_rank", "cume_dist")
_PLACES = ("row_number", "ntile", "lag", "lead")
_PICKS = ("first_value", "last_value", "nth_value")
_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


class Measured(NamedTuple):
    """An aggregate's measures over `{0}`, `{1}`, ... (its arguments), and its result as an
    expression over their columns."""

    measures: tuple[tuple[str, SqlType], ...]
    result: Expr


def measured(fn: str, args: tuple[Expr, ...], type_: SqlType) -> Measured:
    match fn:
        case "count":
            return Measured(((f"count({'{d}{0}' if args else '1'})", BIGINT),), Col(0, BIGINT))
        case "min" | "max":
            return Measured(((f"{fn}({{0}})", type_),), Col(0, type_))
        case "bool_and" | "every" | "bool_or":
            extreme = "max" if fn == "bool_or" else "min"
            return Measured(((f"{extreme}({{0}})", type_),), Col(0, type_))
        case "sum" | "avg":
            wide = _sum_type(args[0].type)
            total: Expr = Col(1, wide)
            if fn == "avg":
                total = call("/", (total, Col(0, BIGINT)))
            some = call(">", (Col(0, BIGINT), Lit("0", BIGINT)))
            result = Call("case", (some, cast(total, type_), Lit(None, type_)), type_)
            sum_ = f"sum({{d}}CAST({{0}} AS {wide.spark}))"
            return Measured((("count({d}{0})", BIGINT), (sum_, wide)), result)
        case _:
            raise Unsupported(f"the aggregate {fn} cannot be queried yet")


def reduce_sql(plan: Reduce, source: str) -> str:
    """Keys and arguments first, then measures by key, then the results."""
    keys = [f"k{i}" for i in range(len(plan.keys))]
    inner = [f"{checked(key)} AS k{i}" for i, key in enumerate(plan.keys)]
    measures, results = [], [f"k{i} AS c{i}" for i in range(len(keys))]
    for at, agg in enumerate(plan.aggregates):
        args = tuple(_summable(agg.fn, _filtered(arg, agg.filter)) for arg in agg.args)
        texts = tuple(f"a{at}_{i}" for i in range(len(args)))
        inner += [f"{checked(arg)} AS {name}" for arg, name in zip(args, texts, strict=True)]
        filter_ = None
        if agg.filter is not None:
            filter_ = f"f{at}"
            inner.append(f"{checked(agg.filter)} AS {filter_}")
        order = tuple(f"o{at}_{i}" for i in range(len(agg.order_by)))
        for by, name in zip(agg.order_by, order, strict=True):
            inner.append(f"{checked(_filtered(by.expr, agg.filter))} AS {name}")
        if is_whole(agg.fn):
            measures.append(f"{whole_value(agg, texts, order, filter_)} AS m{at}")
            failed = whole_error(agg, texts, filter_)
            measures.append(f"{failed or 'CAST(NULL AS STRING)'} AS e{at}")
            result = f"CASE WHEN e{at} IS NULL THEN m{at} ELSE raise_error(e{at}) END"
        else:
            found = measured(agg.fn, args, agg.type)
            names = [f"m{at}_{i}" for i in range(len(found.measures))]
            once = "DISTINCT " if agg.distinct else ""
            only = f" FILTER (WHERE {filter_})" if filter_ else ""
            for (template, _), name in zip(found.measures, names, strict=True):
                measures.append(f"{template.format(*texts, d=once)}{only} AS {name}")
            result = checked(found.result, names.__getitem__)
        results.append(f"{result} AS c{len(results)}")
    group = f" GROUP BY {listed(keys)}" if keys else ""
    grouped = (
        f"SELECT {listed([*keys, *measures, 'count(1) AS n'])}"
        f" FROM (SELECT {selected(inner)} FROM ({source})){group}"
    )
    return f"SELECT {selected(results)} FROM ({grouped})"


def is_whole(fn: str) -> bool:
    return fn in AGGREGATES and AGGREGATES[fn].kind == "whole"


def top_k_sql(plan: TopK, source: str) -> str:
    width = len(plan.columns)
    over = _over(plan.group, [*_orders(plan.order_by), *_ties(plan.order_by, width)])
    ranked = f"SELECT *, row_number() OVER ({over or 'ORDER BY 1'}) AS _place FROM ({source})"
    wanted = [f"_place > {plan.offset}"]
    if plan.limit is not None:
        wanted.append(f"_place <= {plan.offset + plan.limit}")
    columns = selected(column_name(i) for i in range(width))
    return f"SELECT {columns} FROM ({ranked}) WHERE {' AND '.join(wanted)}"


def window_sql(plan: Window, source: str) -> str:
    at = len(plan.input.columns)
    made = [f"{_window_function(fn, plan)} AS c{at + i}" for i, fn in enumerate(plan.functions)]
    kept = [column_name(i) for i in range(at)]
    return f"SELECT {selected([*kept, *made])} FROM ({source})"


def _window_function(fn: WindowFunction, plan: Window) -> str:
    """Rows that `order_by` does not tell apart are peers: ranks, and frames of ranges, take them
    together; whatever counts places takes them in the order of all their columns."""
    by, ties = _orders(plan.order_by), _ties(plan.order_by, len(plan.input.columns))
    frame = fn.frame or ""
    in_places = frame.upper().startswith("ROWS")
    if frame.upper().startswith("GROUPS"):
        raise Unsupported("frames of GROUPS are not supported", hint="use ROWS or RANGE")
    peers = _over(plan.partition, by)
    places = _over(plan.partition, [*by, *ties] or ["1"])
    args = [checked(arg) for arg in fn.args]
    if fn.fn in _RANKS:
        ranked = _over(plan.partition, by or ["1"])
        return f"CAST({fn.fn}() OVER ({ranked}) AS {fn.type.spark})"
    if fn.fn in _PLACES:
        return f"CAST({fn.fn}({listed(args)}) OVER ({places}) AS {fn.type.spark})"
    if fn.fn in _PICKS and in_places:
        return f"{fn.fn}({listed(args)}) OVER ({places} {frame})"
    if fn.fn in _PICKS:
        return _pick_of_range(fn, args, plan, ties)
    over = f"{places} {frame}" if in_places else f"{peers} {frame}"
    call_args = tuple(_summable(fn.fn, arg) for arg in fn.args)
    found = measured(fn.fn, call_args, fn.type)
    texts = [checked(arg) for arg in call_args]
    measures = [f"{text.format(*texts, d='')} OVER ({over.strip()})" for text, _ in found.measures]
    return checked(found.result, measures.__getitem__)


def _pick_of_range(fn: WindowFunction, args: list[str], plan: Window, ties: list[str]) -> str:
    """The first, last or nth row of a frame that begins with the partition and ends with the
    row's last peer; or of the whole partition."""
    by = _orders(plan.order_by)
    places = _over(plan.partition, [*by, *ties] or ["1"])
    frame = " ".join((fn.frame or "").upper().split())
    whole = frame == _WHOLE.replace("ROWS", "RANGE") or not by
    if whole:
        return f"{fn.fn}({listed(args)}) OVER ({places} {_WHOLE})"
    if frame not in (
        "",
        "RANGE UNBOUNDED PRECEDING",
        "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    ):
        raise Unsupported(f"{fn.fn} over {fn.frame} is not supported", hint="use a frame of ROWS")
    if fn.fn == "first_value":
        return f"first_value({args[0]}) OVER ({places} {_WHOLE})"
    if fn.fn == "last_value":
        same = tuple(dict.fromkeys([*plan.partition, *(order.index for order in plan.order_by)]))
        return f"last_value({args[0]}) OVER ({_over(same, ties or ['1'])} {_WHOLE})"
    reached = f"count(1) OVER ({_over(plan.partition, by)}) >= {args[1]}"
    return f"CASE WHEN {reached} THEN nth_value({listed(args)}) OVER ({places} {_WHOLE}) END"


def _over(partition: tuple[int, ...], orders: list[str]) -> str:
    by = f"PARTITION BY {listed(column_name(i) for i in partition)}" if partition else ""
    order = f"ORDER BY {listed(orders)}" if orders else ""
    return f"{by} {order}".strip()


def _orders(order_by: tuple[OrderBy, ...]) -> list[str]:
    return [ordered(f"c{o.index}", o.descending, o.nulls_first) for o in order_by]


def _ties(order_by: tuple[OrderBy, ...], width: int) -> list[str]:
    told = {order.index for order in order_by}
    return [ordered(f"c{i}") for i in range(width) if i not in told]


def _filtered(arg: Expr, filter_: Expr | None) -> Expr:
    """An argument fails only where the filter lets its row pass."""
    if filter_ is None:
        return arg
    return Call("case", (filter_, arg, Lit(None, arg.type)), arg.type)


def _sum_type(type_: SqlType) -> SqlType:
    return DOUBLE if type_ == DOUBLE else numeric(38, type_.decimal[1])


def _summable(fn: str, arg: Expr) -> Expr:
    """A sum must not overflow while its terms are fine: a term too large is itself the error."""
    if fn not in ("sum", "avg") or arg.type.name != "numeric":
        return arg
    precision, scale = arg.type.decimal
    if precision <= SUMMABLE_DIGITS:
        return arg
    if scale > SUMMABLE_SCALE:
        raise Unsupported(
            f"{fn} over {arg.type} is not supported: too few digits are left for the sum",
            hint=f"cast to fewer decimals, e.g. {fn}(x::numeric(30,10))",
        )
    return cast(arg, numeric(SUMMABLE_DIGITS, scale))
