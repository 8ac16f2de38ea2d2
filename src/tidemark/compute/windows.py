"""Window functions as Spark SQL.

Rows that the window's order does not tell apart are peers: ranks, and frames of ranges, take them
together; whatever counts places takes them in the order of all their columns, so that everybody
sees the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidemark.compute.batch_text import listed, ordered
from tidemark.compute.casts import cast
from tidemark.compute.expr import Call, Col, Expr, Lit
from tidemark.compute.functions import call
from tidemark.compute.plan import OrderBy, WindowFunction
from tidemark.compute.render_expr import error, value
from tidemark.compute.shape import summable
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


def measured(fn: str, args: tuple[SqlType, ...], type_: SqlType) -> Measured:
    match fn:
        case "count":
            return Measured(((f"count({'{d}{0}' if args else '1'})", BIGINT),), Col(0, BIGINT))
        case "min" | "max":
            return Measured(((f"{fn}({{0}})", type_),), Col(0, type_))
        case "bool_and" | "every" | "bool_or":
            extreme = "max" if fn == "bool_or" else "min"
            return Measured(((f"{extreme}({{0}})", type_),), Col(0, type_))
        case "sum" | "avg":
            wide = DOUBLE if args[0] == DOUBLE else numeric(38, args[0].decimal[1])
            total: Expr = Col(1, wide)
            if fn == "avg":
                total = call("/", (total, Col(0, BIGINT)))
            some = call(">", (Col(0, BIGINT), Lit("0", BIGINT)))
            result = Call("case", (some, cast(total, type_), Lit(None, type_)), type_)
            sum_ = f"sum({{d}}CAST({{0}} AS {wide.spark}))"
            return Measured((("count({d}{0})", BIGINT), (sum_, wide)), result)
        case _:
            raise Unsupported(f"the aggregate {fn} cannot be queried yet")


class Over(NamedTuple):
    """A window: what partitions it, its order, and the columns of its rows, named by `column`."""

    partition: tuple[str, ...]
    order_by: tuple[OrderBy, ...]
    width: int
    column: Callable[[int], str]

    @property
    def peers(self) -> str:
        return self.written(self._orders())

    @property
    def places(self) -> str:
        return self.written([*self._orders(), *self.ties] or ["1"])

    @property
    def ranked(self) -> str:
        return self.written(self._orders() or ["1"])

    @property
    def ties(self) -> list[str]:
        told = {order.index for order in self.order_by}
        return [ordered(self.column(i)) for i in range(self.width) if i not in told]

    def written(self, orders: Iterable[str], also: Iterable[str] = ()) -> str:
        partition = dict.fromkeys([*self.partition, *also])
        by = f"PARTITION BY {listed(partition)}" if partition else ""
        order = listed(orders)
        return f"{by} {f'ORDER BY {order}' if order else ''}".strip()

    def _orders(self) -> list[str]:
        return [ordered(self.column(o.index), o.descending, o.nulls_first) for o in self.order_by]


def window_args(fn: WindowFunction) -> tuple[Expr, ...]:
    """The arguments as they are to be computed: terms of a sum so that it cannot overflow."""
    return tuple(summable(fn.fn, arg) for arg in fn.args)


def window_function(fn: WindowFunction, args: list[str], over: Over) -> tuple[str, str | None]:
    """The function's value, and its error if it can fail; `args` are `window_args` as SQL."""
    frame = fn.frame or ""
    in_places = frame.upper().startswith("ROWS")
    if frame.upper().startswith("GROUPS"):
        raise Unsupported("frames of GROUPS are not supported", hint="use ROWS or RANGE")
    if fn.fn in _RANKS:
        return f"CAST({fn.fn}() OVER ({over.ranked}) AS {fn.type.spark})", None
    if fn.fn in _PLACES:
        return f"CAST({fn.fn}({listed(args)}) OVER ({over.places}) AS {fn.type.spark})", None
    if fn.fn in _PICKS and in_places:
        return f"{fn.fn}({listed(args)}) OVER ({over.places} {frame})", None
    if fn.fn in _PICKS:
        return _pick_of_range(fn, args, over), None
    where = f"{over.places if in_places else over.peers} {frame}".strip()
    found = measured(fn.fn, tuple(arg.type for arg in window_args(fn)), fn.type)
    measures = [f"{text.format(*args, d='')} OVER ({where})" for text, _ in found.measures]
    column = measures.__getitem__
    return value(found.result, column), error(found.result, column)


def _pick_of_range(fn: WindowFunction, args: list[str], over: Over) -> str:
    """The first, last or nth row of a frame that begins with the partition and ends with the
    row's last peer; or of the whole partition."""
    frame = " ".join((fn.frame or "").upper().split())
    if frame == _WHOLE.replace("ROWS", "RANGE") or not over.order_by:
        return f"{fn.fn}({listed(args)}) OVER ({over.places} {_WHOLE})"
    if frame not in (
        "",
        "RANGE UNBOUNDED PRECEDING",
        "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    ):
        raise Unsupported(f"{fn.fn} over {fn.frame} is not supported", hint="use a frame of ROWS")
    if fn.fn == "first_value":
        return f"first_value({args[0]}) OVER ({over.places} {_WHOLE})"
    if fn.fn == "last_value":
        same = [over.column(order.index) for order in over.order_by]
        return f"last_value({args[0]}) OVER ({over.written(over.ties or ['1'], same)} {_WHOLE})"
    reached = f"count(1) OVER ({over.peers}) >= {args[1]}"
    return f"CASE WHEN {reached} THEN nth_value({listed(args)}) OVER ({over.places} {_WHOLE}) END"
