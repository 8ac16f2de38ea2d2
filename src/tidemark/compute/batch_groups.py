"""Batch SQL of what is computed by group: Reduce, TopK, Window.

Aggregates are written as measures (`count`, `sum`, ... as Spark has them) and an expression that
makes the result of those, so that averages round and sums overflow as PostgreSQL's do:

    avg(x)    n = count(x), s = sum(CAST(x AS DECIMAL(38, ...)))      CASE WHEN n > 0 THEN s / n END

The same serves a window, where each measure has an OVER behind it.
"""

from __future__ import annotations

from tidemark.compute.aggregates import AGGREGATES, whole_error, whole_value
from tidemark.compute.batch_text import checked, column_name, listed, raising, selected
from tidemark.compute.plan import Reduce, TopK, Window
from tidemark.compute.shape import filtered_arg, summable
from tidemark.compute.windows import Over, measured, window_args, window_function


def reduce_sql(plan: Reduce, source: str) -> str:
    """Keys and arguments first, then measures by key, then the results."""
    keys = [f"k{i}" for i in range(len(plan.keys))]
    inner = [f"{checked(key)} AS k{i}" for i, key in enumerate(plan.keys)]
    measures, results = [], [f"k{i} AS c{i}" for i in range(len(keys))]
    for at, agg in enumerate(plan.aggregates):
        args = tuple(summable(agg.fn, filtered_arg(arg, agg.filter)) for arg in agg.args)
        texts = tuple(f"a{at}_{i}" for i in range(len(args)))
        inner += [f"{checked(arg)} AS {name}" for arg, name in zip(args, texts, strict=True)]
        filter_ = None
        if agg.filter is not None:
            filter_ = f"f{at}"
            inner.append(f"{checked(agg.filter)} AS {filter_}")
        order = tuple(f"o{at}_{i}" for i in range(len(agg.order_by)))
        for by, name in zip(agg.order_by, order, strict=True):
            inner.append(f"{checked(filtered_arg(by.expr, agg.filter))} AS {name}")
        if is_whole(agg.fn):
            measures.append(f"{whole_value(agg, texts, order, filter_)} AS m{at}")
            failed = whole_error(agg, texts, filter_)
            measures.append(f"{failed or 'CAST(NULL AS STRING)'} AS e{at}")
            result = f"CASE WHEN e{at} IS NULL THEN m{at} ELSE raise_error(e{at}) END"
        else:
            found = measured(agg.fn, tuple(arg.type for arg in args), agg.type)
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
    over = Over(tuple(map(column_name, plan.group)), plan.order_by, width, column_name)
    ranked = f"SELECT *, row_number() OVER ({over.places}) AS _place FROM ({source})"
    wanted = [f"_place > {plan.offset}"]
    if plan.limit is not None:
        wanted.append(f"_place <= {plan.offset + plan.limit}")
    columns = selected(column_name(i) for i in range(width))
    return f"SELECT {columns} FROM ({ranked}) WHERE {' AND '.join(wanted)}"


def window_sql(plan: Window, source: str) -> str:
    width = len(plan.input.columns)
    over = Over(tuple(map(column_name, plan.partition)), plan.order_by, width, column_name)
    columns = [column_name(i) for i in range(width)]
    for fn in plan.functions:
        args = [checked(arg) for arg in window_args(fn)]
        plain, failed = window_function(fn, args, over)
        columns.append(f"{raising(plain, failed)} AS c{len(columns)}")
    return f"SELECT {selected(columns)} FROM ({source})"
