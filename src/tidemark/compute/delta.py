"""The delta plan: how a shape's output changes when its inputs do, as Spark SQL text.

A tick covers an interval [lower, upper) that may hold many distinct times. They are numbered
0 .. n-1 (ranks: the SQL's constants then never change, and neither does its compiled form), and
everything known before the interval is at rank -1. Two queries turn updates into updates, exact
at every rank:

BLOCK    joins are bilinear, and time is the later of the two sides, so one join does it all:

             SELECT outputs, greatest(l0._t, l1._t) AS _t, l0._d * l1._d AS _d
             FROM leaf0 l0 JOIN leaf1 l1 ON ...     each leaf: what was there (rank -1), and changes
             WHERE greatest(l0._t, l1._t) >= 0      what was there joined with itself is old news

REDUCE   running sums of the accumulators over rank give every version of every touched group;
         a version begins at its rank (+1) and ends where the next begins (-1). For min and max
         the heads of the touched groups join the changes; a value counts while its running count
         is positive. Leaves: `delta` (k0.. keys, a0.. arguments, w0.. = argument * _d), `acc` and
         `head0`.. (the state before the interval).

The leaves at rank -1 come from look-ups in arrangements, following the join's equalities from
the changed rows outward (`probes`). A look-up may bring more rows than needed, never fewer: the
SQL applies every predicate again.
"""

from __future__ import annotations

import msgspec

from tidemark.compute.casts import cast
from tidemark.compute.expr import Call, Col, Expr, Lit, substitute
from tidemark.compute.functions import call
from tidemark.compute.render_expr import error, value
from tidemark.compute.shape import Block, Reduction, Shape, edges
from tidemark.types import BIGINT, Column, SqlType, numeric

PRIOR = -1
END_OF_TIME = 2**31 - 1


class Probe(msgspec.Struct, frozen=True):
    """Rows of leaf `into` whose `into_columns` equal some known row's `from_columns`."""

    from_leaf: int
    into: int
    from_columns: tuple[int, ...]
    into_columns: tuple[int, ...]


def probes(block: Block, start: int) -> tuple[Probe, ...]:
    """From changes of leaf `start`, every other leaf reached along the join's equalities."""
    reached, found = {start}, []
    while len(reached) < len(block.leaves):
        for edge in edges(block):
            for probe in (
                Probe(edge.left, edge.right, edge.left_columns, edge.right_columns),
                Probe(edge.right, edge.left, edge.right_columns, edge.left_columns),
            ):
                if probe.from_leaf in reached and probe.into not in reached:
                    reached.add(probe.into)
                    found.append(probe)
    return tuple(found)


class Accumulators(msgspec.Struct, frozen=True):
    """What a reduction remembers per group: see `columns` for the order within a version."""

    keys: tuple[SqlType, ...]
    args: tuple[SqlType, ...]
    counted: tuple[int, ...]
    summed: tuple[int, ...]
    ordered: tuple[int, ...]

    @property
    def state(self) -> tuple[Column, ...]:
        """The accumulator shard's columns."""
        return (
            *(Column(f"k{i}", type_) for i, type_ in enumerate(self.keys)),
            Column("n", BIGINT),
            *(Column(f"n{i}", BIGINT) for i in self.counted),
            *(Column(f"s{i}", sum_type(self.args[i])) for i in self.summed),
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Everything that is known of a version of a group: its state and its extremes."""
        extremes = [Column(f"{end}{i}", self.args[i]) for i in self.ordered for end in ("lo", "hi")]
        return (*self.state, *extremes)

    def head(self, arg: int) -> tuple[Column, ...]:
        """Columns of the shard that orders the values of `arg` within each group."""
        keys = (Column(f"k{i}", type_) for i, type_ in enumerate(self.keys))
        return (*keys, Column("v", self.args[arg]))

    def col(self, name: str) -> Col:
        names = [column.name for column in self.columns]
        at = names.index(name)
        return Col(at, self.columns[at].type)


def accumulators(block: Block, reduction: Reduction) -> Accumulators:
    types = [expr.type for expr in block.outputs]
    wanted: dict[str, set[int]] = {"counted": set(), "summed": set(), "ordered": set()}
    for agg in reduction.aggregates:
        if agg.arg is None:
            continue
        arg = _arg(agg.arg, reduction)
        if agg.fn in ("min", "max"):
            wanted["ordered"].add(arg)
        else:
            wanted["counted"].add(arg)
        if agg.fn in ("sum", "avg"):
            wanted["summed"].add(arg)
    return Accumulators(
        keys=tuple(types[: reduction.keys]),
        args=tuple(types[reduction.keys :]),
        **{name: tuple(sorted(args)) for name, args in wanted.items()},
    )


def sum_type(type_: SqlType) -> SqlType:
    return numeric(38, type_.decimal[1])


def block_sql(block: Block, *, small: bool) -> str:
    """Changes of the block's outputs: o0.., `_err`, `_t`, `_d`, unconsolidated."""
    aliases = [f"l{leaf}" for leaf in range(len(block.leaves))]

    def column(index: int) -> str:
        leaf = block.leaf_of(index)
        return f"l{leaf}.c{index - block.offset(leaf)}"

    time = f"greatest({', '.join(f'{a}._t' for a in aliases)})" if len(aliases) > 1 else "l0._t"
    errors = [error(expr, column) for expr in (*block.predicates, *block.outputs)]
    where = [_holds(predicate, column) for predicate in block.predicates]
    select = [
        *(f"{value(e, column)} AS o{i}" for i, e in enumerate(block.outputs)),
        f"{_first_error(errors)} AS _err",
        f"{time} AS _t",
        f"{' * '.join(f'{alias}._d' for alias in aliases)} AS _d",
    ]
    source = " CROSS JOIN ".join(
        f"{_leaf(f'leaf{leaf}', small)} {alias}" for leaf, alias in enumerate(aliases)
    )
    return "\n".join(
        [
            "SELECT " + ",\n       ".join(select),
            f"FROM {source}",
            "WHERE " + "\n  AND ".join([*where, f"{time} >= 0"]),
        ]
    )


def reduce_sql(shape: Shape, *, small: bool) -> str:
    """Versions of the touched groups that begin (+1) or end (-1) in the interval:
    accumulators, extremes, o0.. (the view's columns), `_keep`, `_err`, `_t`, `_d`."""
    assert shape.reduction is not None
    acc = accumulators(shape.block, shape.reduction)
    keys = [f"k{i}" for i in range(len(acc.keys))]
    sums = [column.name for column in acc.state[len(keys) :]]
    by = ", ".join([*keys, "_t"])
    increments = [
        "_d AS n",
        *(f"CASE WHEN a{i} IS NOT NULL THEN _d ELSE 0L END AS n{i}" for i in acc.counted),
        *(f"w{i} AS s{i}" for i in acc.summed),
    ]
    sources = [
        f"SELECT {', '.join([*keys, '_t', *increments])} FROM {_leaf('delta', small)}",
        f"SELECT {', '.join([*keys, f'{PRIOR} AS _t', *sums])} FROM {_leaf('acc', small)}",
    ]
    if not keys:
        # One group that always exists: it must have a version even if nothing ever came.
        zeros = ", ".join(f"CAST(0 AS {c.type.spark}) AS {c.name}" for c in acc.state)
        sources.append(f"SELECT 0 AS _t, {zeros}")
    everything = "\n    UNION ALL ".join(sources)
    ctes = [
        f"changes AS (\n  SELECT {by}, {', '.join(f'sum({s}) AS {s}' for s in sums)}\n"
        f"  FROM ({everything})\n  GROUP BY {by})",
        f"running AS (\n  SELECT {by}, "
        + ", ".join(f"sum({s}) OVER ({_window(keys)}) AS {s}" for s in sums)
        + f",\n    lead(_t) OVER ({_window(keys)}) AS _next\n  FROM changes)",
    ]
    versions = "running"
    for i in acc.ordered:
        known = [*keys, *sums, *_extremes(acc, before=i), "_t", "_next"]
        ctes += _extreme_ctes(i, keys, known, versions, small)
        versions = f"extremes{i}"
    outputs, predicates = finish_exprs(shape, acc)
    names = [column.name for column in acc.columns]
    errors = [error(expr, names.__getitem__) for expr in (*predicates, *outputs)]
    failed = _first_error(errors)
    if predicates:
        # A group that HAVING drops does not fail.
        holds = " AND ".join(_holds(expr, names.__getitem__) for expr in predicates)
        failed = f"CASE WHEN {holds} THEN {failed} END"
    keep = [value(expr, names.__getitem__) for expr in predicates]
    select = [
        *names,
        *(f"{value(e, names.__getitem__)} AS o{i}" for i, e in enumerate(outputs)),
        f"{' AND '.join(f'coalesce({k}, false)' for k in keep) or 'true'} AS _keep",
        f"{failed} AS _err",
        "s._t AS _t",
        "s._d AS _d",
    ]
    exists = "n > 0" if keys else "true"
    return (
        "WITH "
        + ",\n".join(ctes)
        + "\nSELECT "
        + ",\n       ".join(select)
        + f"\nFROM {versions} LATERAL VIEW stack(2, _t, 1L, _next, -1L) s AS _t, _d"
        + f"\nWHERE s._t >= 0 AND {exists}"
    )


def finish_exprs(shape: Shape, acc: Accumulators) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The view's outputs and HAVING, over the columns of a version."""
    assert shape.reduction is not None
    reduced: list[Expr] = [acc.col(f"k{i}") for i in range(len(acc.keys))]
    for agg in shape.reduction.aggregates:
        if agg.arg is None:
            reduced.append(acc.col("n"))
            continue
        arg = _arg(agg.arg, shape.reduction)
        if agg.fn == "count":
            reduced.append(acc.col(f"n{arg}"))
        elif agg.fn in ("min", "max"):
            reduced.append(acc.col(f"{'lo' if agg.fn == 'min' else 'hi'}{arg}"))
        else:
            total: Expr = acc.col(f"s{arg}")
            if agg.fn == "avg":
                total = call("/", (total, acc.col(f"n{arg}")))
            some = call(">", (acc.col(f"n{arg}"), Lit("0", BIGINT)))
            result = cast(total, agg.type)
            reduced.append(Call("case", (some, result, Lit(None, agg.type)), agg.type))

    def through(expr: Expr) -> Expr:
        return substitute(expr, lambda col: reduced[col.index])

    return tuple(map(through, shape.outputs)), tuple(map(through, shape.predicates))


def _extreme_ctes(
    arg: int, keys: list[str], known: list[str], versions: str, small: bool
) -> list[str]:
    """Every version so far, with the least and the greatest value of `arg` alive in it."""
    by = ", ".join([*keys, "v", "_t"])
    selected = ", ".join([*keys, f"a{arg} AS v", "_t", "_d"])
    heads = ", ".join([*keys, "v", f"{PRIOR} AS _t", "_diff AS _d"])
    on = " AND ".join(
        [*(f"r.{k} <=> l.{k}" for k in keys), "l._live > 0", "r._t >= l._t", "r._t < l._until"]
    )
    group = ", ".join(f"r.{name}" for name in known)
    return [
        f"values{arg} AS (\n  SELECT {by}, sum(_d) AS _d\n  FROM ("
        f"SELECT {selected} FROM {_leaf('delta', small)}\n    UNION ALL "
        f"SELECT {heads} FROM {_leaf(f'head{arg}', small)})\n"
        f"  WHERE v IS NOT NULL\n  GROUP BY {by})",
        f"lives{arg} AS (\n  SELECT {by}, sum(_d) OVER ({_window([*keys, 'v'])}) AS _live,\n"
        f"    coalesce(lead(_t) OVER ({_window([*keys, 'v'])}), {END_OF_TIME}) AS _until\n"
        f"  FROM values{arg})",
        f"extremes{arg} AS (\n  SELECT {group}, min(l.v) AS lo{arg}, max(l.v) AS hi{arg}\n"
        f"  FROM {versions} r LEFT JOIN lives{arg} l ON {on}\n  GROUP BY {group})",
    ]


def _extremes(acc: Accumulators, *, before: int) -> list[str]:
    return [f"{end}{i}" for i in acc.ordered if i < before for end in ("lo", "hi")]


def _window(keys: list[str]) -> str:
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    return f"{partition}ORDER BY _t"


def _leaf(name: str, small: bool) -> str:
    # One partition everywhere means no exchange anywhere.
    return f"(SELECT /*+ COALESCE(1) */ * FROM {name})" if small else name


def _holds(predicate: Expr, column) -> str:
    """The row passes, or the predicate failed on it: then the row goes on as an error."""
    passed, failed = value(predicate, column), error(predicate, column)
    return f"({passed})" if failed is None else f"(({failed}) IS NOT NULL OR ({passed}))"


def _first_error(errors: list[str | None]) -> str:
    found = [error for error in errors if error is not None]
    if not found:
        return "CAST(NULL AS STRING)"
    return found[0] if len(found) == 1 else f"coalesce({', '.join(found)})"


def weight_sql(value: str, type_: SqlType) -> str:
    """`value` times `_d`, exactly: Spark's decimal product may drop digits, repeated sums do not."""
    wide = f"CAST({value} AS {type_.spark})"
    copies = (
        f"aggregate(array_repeat({wide}, CAST(abs(_d) AS INT)), CAST(0 AS {type_.spark}),"
        f" (x, y) -> CAST(x + y AS {type_.spark}))"
    )
    return (
        f"CASE WHEN {value} IS NULL THEN CAST(0 AS {type_.spark})"
        f" WHEN _d = 1 THEN {wide} WHEN _d = -1 THEN -{wide}"
        f" WHEN _d > 0 THEN {copies} ELSE -{copies} END"
    )


def _arg(expr: Expr, reduction: Reduction) -> int:
    assert isinstance(expr, Col)
    return expr.index - reduction.keys
