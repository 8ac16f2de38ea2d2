"""The delta of what looks at rows of a group: top-k, window functions, array_agg and its kind.

    changes     what happened to each row of the touched groups; what was there is at rank -1
    versions    the ranks at which a group changed, each valid until the next
    contents    the rows of each version, with how often they are there
    result      the operator over each version's rows; it begins (+) and ends (-) with the version

Of a group only its head is given where no more can matter (a top-k): rows beyond it may then
count less than nothing, which is the same as not being there. Leaves: `delta` (b0.. the body's
outputs, _t, _d), `rows` (b0.., _diff: the group before the interval) and, for the one group of an
aggregate without keys, `always` (_t: since when it exists).
"""

from __future__ import annotations

from tidemark.compute.accumulators import CHOOSE, accumulators, finish, sum_type
from tidemark.compute.aggregates import whole_error, whole_value
from tidemark.compute.delta import PRIOR, finished, first_error, leaf_sql
from tidemark.compute.plan import Aggregate
from tidemark.compute.render_expr import value
from tidemark.compute.shape import ACCUMULATED, Shape, Top, Whole, Windowed
from tidemark.compute.windows import Over, window_function


def group_sql(shape: Shape, *, small: bool) -> str:
    """Rows of the result that begin or end: o0.., `_keep`, `_err`, `_t`, `_d`."""
    tail = shape.tail
    match tail:
        case Top(group=group):
            result = _top(shape, tail)
        case Windowed(group=group):
            result = _windowed(shape, tail)
        case Whole(keys=keys):
            group = tuple(range(keys))
            result = _whole(shape, tail)
        case _:
            raise TypeError(tail)
    columns = [f"b{i}" for i in range(len(shape.body))]
    keys = [f"b{i}" for i in group]
    by = ", ".join(keys)
    every = ", ".join([*columns, "_t"])
    partition = f"PARTITION BY {by} " if keys else ""
    # Without keys the same for all, which Spark cannot know: a product would be shuffled.
    same = [f"v.{key} <=> c.{key}" for key in keys] or ["v._t * 0 = c._t * 0"]
    changed = f"SELECT DISTINCT {', '.join([*keys, '_t'])} FROM changes"
    if isinstance(tail, Whole) and not keys:
        changed = f"SELECT _t FROM changes UNION SELECT _t FROM {leaf_sql('always', small)}"
    ctes = [
        f"changes AS (\n  SELECT {every}, sum(_d) AS _d\n  FROM ("
        f"SELECT {every}, _d FROM {leaf_sql('delta', small)}\n    UNION ALL "
        f"SELECT {', '.join(columns)}, {PRIOR} AS _t, _diff AS _d FROM {leaf_sql('rows', small)})\n"
        f"  GROUP BY {every})",
        f"versions AS (\n  SELECT {', '.join([*keys, '_t'])},"
        f" lead(_t) OVER ({partition}ORDER BY _t) AS _next\n  FROM ({changed}))",
        f"contents AS (\n  SELECT {', '.join(f'c.{c}' for c in columns)}, v._t, v._next,"
        f" sum(c._d) AS _n\n  FROM versions v JOIN changes c"
        f" ON {' AND '.join([*same, 'c._t <= v._t'])}\n"
        f"  GROUP BY {', '.join(f'c.{c}' for c in columns)}, v._t, v._next\n"
        f"  HAVING sum(c._d) > 0)",
        *result,
    ]
    select = ", ".join(name for name in _result_names(shape))
    return (
        "WITH "
        + ",\n".join(ctes)
        + f"\nSELECT {select}, s._t AS _t, s._d AS _d"
        + "\nFROM result LATERAL VIEW stack(2, _t, _m, _next, -_m) s AS _t, _d"
        + "\nWHERE s._t >= 0"
    )


def _result_names(shape: Shape) -> list[str]:
    return [*(f"o{i}" for i in range(len(shape.outputs))), "_keep", "_err"]


def _result(select: list[str], source: str) -> str:
    listed = ",\n    ".join([*select, "_t", "_next"])
    return f"result AS (\n  SELECT {listed}\n  FROM {source})"


def _body(index: int) -> str:
    return f"b{index}"


def _top(shape: Shape, tail: Top) -> list[str]:
    """How many of each row lie between `offset` and `offset + limit` rows from the top."""
    sorts = ", ".join(f"b{i} ASC NULLS LAST" for i in tail.sorts)
    by = ", ".join([*(f"b{i}" for i in tail.group), "_t"])
    stop = "_upto" if tail.limit is None else f"least(_upto, {tail.offset + tail.limit}L)"
    ranked = (
        f"ranked AS (\n  SELECT *, sum(_n) OVER (PARTITION BY {by} ORDER BY {sorts}"
        f" ROWS UNBOUNDED PRECEDING) AS _upto\n  FROM contents)"
    )
    shown = finished(shape.outputs, shape.predicates, _body)
    count = f"{stop} - greatest(_upto - _n, {tail.offset}L)"
    return [ranked, _result([*shown, f"{count} AS _m"], f"ranked WHERE {count} > 0")]


def _windowed(shape: Shape, tail: Windowed) -> list[str]:
    keys = (*(f"b{i}" for i in tail.group), "_t")
    over = Over(keys, tail.order_by, tail.width, _body)
    made, failures = [], []
    for i, fn in enumerate(tail.functions):
        args = [value(arg, _body) for arg in fn.args]
        plain, failed = window_function(fn, args, over)
        made.append(f"{plain} AS x{i}")
        if failed is not None:
            failures.append(failed)
    made.append(f"{first_error(failures)} AS _failed")
    rows = [
        "singles AS (\n  SELECT * FROM contents"
        " LATERAL VIEW explode(array_repeat(1, CAST(_n AS INT))) x AS _one)",
        f"windowed AS (\n  SELECT *, {', '.join(made)}\n  FROM singles)",
    ]

    def column(index: int) -> str:
        return f"b{index}" if index < tail.width else f"x{index - tail.width}"

    failed = "_failed" if failures else None
    shown = finished(shape.outputs, shape.predicates, column, failed)
    return [*rows, _result([*shown, "1L AS _m"], "windowed")]


def _whole(shape: Shape, tail: Whole) -> list[str]:
    acc = accumulators(shape.body, tail)
    keys = tail.keys
    measured = [*(f"b{i} AS k{i}" for i in range(keys)), "count(_one) AS n"]
    measured += [f"count(b{keys + i}) AS n{i}" for i in acc.counted]
    measured += [
        f"coalesce(sum(CAST(b{keys + i} AS {exact})), CAST(0 AS {exact})) AS s{i}"
        for i in acc.summed
        for exact in (sum_type(acc.args[i]).spark,)
    ]
    measured += [f"{CHOOSE[end]}(b{keys + i}) AS {end}{i}" for i, end in acc.extremes]
    failures = []
    whole = [agg for agg in tail.aggregates if agg.fn not in ACCUMULATED]
    for i, agg in enumerate(whole):
        args, orders, passes = _texts(agg)
        if not keys:
            # The one group has a row even if it is empty: that of `versions` alone.
            passes = f"_one IS NOT NULL{f' AND {passes}' if passes else ''}"
        measured.append(f"{whole_value(agg, args, orders, passes)} AS w{i}")
        failed = whole_error(agg, args, passes)
        if failed is not None:
            failures.append(failed)
    measured.append(f"{first_error(failures)} AS _failed")
    names = [column.name for column in acc.columns]
    source = "contents LATERAL VIEW explode(array_repeat(1, CAST(_n AS INT))) x AS _one"
    if not keys:
        source = (
            "versions v LEFT JOIN (SELECT * FROM contents LATERAL VIEW"
            " explode(array_repeat(1, CAST(_n AS INT))) x AS _one) c ON v._t <=> c._t"
        )
    times = ["_t", "_next"] if keys else ["v._t", "v._next"]
    by = ", ".join([*(f"b{i}" for i in range(keys)), *times])
    grouped = (
        f"grouped AS (\n  SELECT {', '.join([*measured, *times])}\n  FROM {source}\n"
        f"  GROUP BY {by})"
    )
    shown = finished(
        finish(shape.outputs, tail, acc),
        finish(shape.predicates, tail, acc),
        names.__getitem__,
        failed="_failed" if failures else None,
    )
    return [grouped, _result([*shown, "1L AS _m"], "grouped")]


def _texts(agg: Aggregate) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """An aggregate's arguments, order and filter: columns of the body, all of them."""

    def text(expr) -> str:
        return f"b{expr.index}"

    passes = None if agg.filter is None else text(agg.filter)
    return (
        tuple(map(text, agg.args)),
        tuple(text(order.expr) for order in agg.order_by),
        passes,
    )
