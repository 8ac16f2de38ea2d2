"""What a reduction remembers of each group, and how its result is read off that.

    n           how many rows
    n3          how many of them have argument 3 not null        count(x), avg(x)
    s3          its sum                                          sum(x), avg(x)
    lo3, hi3    the least and the greatest                       min(x), max(x)
    w0          an aggregate that is computed from the whole     array_agg(x)

Maintained views and one-off queries finish the same accumulators in the same way, so that both
round alike.
"""

from __future__ import annotations

import msgspec

from tidemark.compute.casts import cast
from tidemark.compute.expr import Call, Col, Expr, Lit, substitute
from tidemark.compute.functions import call
from tidemark.compute.plan import Aggregate
from tidemark.compute.shape import ACCUMULATED, Reduction, Whole
from tidemark.types import BIGINT, MAX_PRECISION, Column, SqlType, numeric

EXTREMES = {"min": "lo", "max": "hi"}
CHOOSE = {end: fn for fn, end in EXTREMES.items()}


class Accumulators(msgspec.Struct, frozen=True):
    """`args` are the arguments' types; the rest says which of them are counted, summed, ordered.

    `extremes` are the ends of the ordered ones that matter: (3, "hi") for max of argument 3.
    """

    keys: tuple[SqlType, ...]
    args: tuple[SqlType, ...]
    counted: tuple[int, ...]
    summed: tuple[int, ...]
    extremes: tuple[tuple[int, str], ...]
    whole: tuple[SqlType, ...] = ()

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(Column(f"k{i}", type_) for i, type_ in enumerate(self.keys))

    @property
    def state(self) -> tuple[Column, ...]:
        """The accumulator shard's columns."""
        return (
            *self.key_columns,
            Column("n", BIGINT),
            *(Column(f"n{i}", BIGINT) for i in self.counted),
            *(Column(f"s{i}", sum_type(self.args[i])) for i in self.summed),
        )

    @property
    def ordered(self) -> tuple[int, ...]:
        return tuple(sorted({arg for arg, _ in self.extremes}))

    def ends(self, arg: int) -> tuple[str, ...]:
        return tuple(end for other, end in self.extremes if other == arg)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Everything that is known of a version of a group: its state and its extremes."""
        extremes = [Column(f"{end}{i}", self.args[i]) for i, end in self.extremes]
        whole = [Column(f"w{i}", type_) for i, type_ in enumerate(self.whole)]
        return (*self.state, *extremes, *whole)

    def head(self, arg: int) -> tuple[Column, ...]:
        """Columns of the shard that orders the values of `arg` within each group."""
        return (*self.key_columns, Column("v", self.args[arg]))

    def col(self, name: str) -> Col:
        names = [column.name for column in self.columns]
        at = names.index(name)
        return Col(at, self.columns[at].type)


def accumulators(body: tuple[SqlType, ...], tail: Reduction | Whole) -> Accumulators:
    """Of groups of rows with columns of the types `body`: keys first, then arguments."""
    counted, summed, extremes = set[int](), set[int](), set[tuple[int, str]]()
    whole: list[SqlType] = []
    for agg in tail.aggregates:
        if agg.fn not in ACCUMULATED:
            whole.append(agg.type)
            continue
        if agg.arg is None:
            continue
        arg = argument(agg.arg, tail)
        if agg.fn in EXTREMES:
            extremes.add((arg, EXTREMES[agg.fn]))
        else:
            counted.add(arg)
        if agg.fn in ("sum", "avg"):
            summed.add(arg)
    return Accumulators(
        keys=body[: tail.keys],
        args=body[tail.keys :],
        counted=tuple(sorted(counted)),
        summed=tuple(sorted(summed)),
        extremes=tuple(sorted(extremes)),
        whole=tuple(whole),
    )


def finish(exprs: tuple[Expr, ...], tail: Reduction | Whole, acc: Accumulators) -> tuple[Expr, ...]:
    """Expressions over a reduction's columns as expressions over those of a version."""
    reduced: list[Expr] = [acc.col(f"k{i}") for i in range(len(acc.keys))]
    whole = 0
    for agg in tail.aggregates:
        if agg.fn not in ACCUMULATED:
            reduced.append(acc.col(f"w{whole}"))
            whole += 1
        else:
            reduced.append(_result(agg, tail, acc))
    return tuple(substitute(expr, lambda col: reduced[col.index]) for expr in exprs)


def _result(agg: Aggregate, tail: Reduction | Whole, acc: Accumulators) -> Expr:
    if agg.arg is None:
        return acc.col("n")
    arg = argument(agg.arg, tail)
    if agg.fn == "count":
        return acc.col(f"n{arg}")
    if agg.fn in EXTREMES:
        return acc.col(f"{EXTREMES[agg.fn]}{arg}")
    total: Expr = acc.col(f"s{arg}")
    if agg.fn == "avg":
        total = call("/", (total, acc.col(f"n{arg}")))
    some = call(">", (acc.col(f"n{arg}"), Lit("0", BIGINT)))
    return Call("case", (some, cast(total, agg.type), Lit(None, agg.type)), agg.type)


def argument(expr: Expr, tail: Reduction | Whole) -> int:
    """The number of an argument, which is a column behind the keys."""
    assert isinstance(expr, Col)
    return expr.index - tail.keys


def sum_type(type_: SqlType) -> SqlType:
    return numeric(38, type_.decimal[1])


COPIES = 16
"""Digits of the largest `_diff` there is (persist's MOST_COPIES)."""


def weight_sql(value: str, type_: SqlType) -> str:
    """`value` (of `type_`) times `_d` as a sum of that type, exactly; nothing for null."""
    precision, scale = type_.decimal
    exact = sum_type(type_).spark
    if precision + COPIES < MAX_PRECISION or not scale:
        product = f"CAST({value} AS DECIMAL({precision}, {scale})) * CAST(_d AS DECIMAL({COPIES}))"
        # Most rows count once, and need no product of decimals.
        weight = f"CASE _d WHEN 1 THEN CAST({value} AS {exact}) ELSE CAST({product} AS {exact}) END"
        return f"coalesce({weight}, 0)"
    # Spark's decimal product would drop digits, repeated sums do not.
    wide = f"CAST({value} AS {exact})"
    copies = (
        f"aggregate(array_repeat({wide}, CAST(abs(_d) AS INT)), CAST(0 AS {exact}),"
        f" (x, y) -> CAST(x + y AS {exact}))"
    )
    return (
        f"CASE WHEN {value} IS NULL THEN CAST(0 AS {exact})"
        f" WHEN _d = 1 THEN {wide} WHEN _d = -1 THEN -{wide}"
        f" WHEN _d > 0 THEN {copies} ELSE -{copies} END"
    )
