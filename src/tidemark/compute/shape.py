"""The shape of a fragment: what one dataflow maintains.

    finish   outputs, predicates       over the tail's columns           (HAVING, the SELECT list)
    tail     by group, or none         over the body's outputs
    body     Block + Block - Block     a union: each adds or takes away its rows
    Block    outputs, predicates       over its leaves' columns, side by side; then what its flat
                                       maps make
    leaves   Get, Get, Constant, ...

Any tree of filters, projections, inner joins and unions collapses into such a body; fragments.py
does that, and cuts a plan where something does not fit. Then each block is cut to what it needs:
`RULES`, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tidemark.compute.casts import cast
from tidemark.compute.expr import Call, Cast, Col, Expr, Lit, columns_of, substitute
from tidemark.compute.plan import Aggregate, Constant, Get, OrderBy, Reduce, WindowFunction
from tidemark.errors import Unsupported
from tidemark.types import BOOLEAN, Column, SqlType, numeric

SUMMABLE_DIGITS = 30
"""Terms of a sum have at most this many digits, which leaves room for 10^8 of the largest."""

SUMMABLE_SCALE = 22
"""Wider numerics with more decimals than this would keep too few digits before the point."""

EQUALITIES = ("=", "is not distinct from")

Leaf: TypeAlias = Get | Constant


class Flat(msgspec.Struct, frozen=True):
    """A table function of the columns before it; what it makes are more columns."""

    fn: str
    args: tuple[Expr, ...]
    made: tuple[Column, ...]


class Block(msgspec.Struct, frozen=True):
    """SELECT outputs FROM leaves WHERE predicates, columns of all leaves numbered in a row."""

    leaves: tuple[Leaf, ...]
    predicates: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
    flat: tuple[Flat, ...] = ()
    negated: bool = False

    @property
    def width(self) -> int:
        """The columns of all leaves; those that flat maps make come behind."""
        return self.offset(len(self.leaves))

    def offset(self, leaf: int) -> int:
        return sum(len(get.columns) for get in self.leaves[:leaf])

    def leaf_of(self, column: int) -> int:
        """Which leaf a column belongs to."""
        for leaf, get in enumerate(self.leaves):
            if column < len(get.columns):
                return leaf
            column -= len(get.columns)
        raise IndexError(column)

    def type_of(self, column: int) -> SqlType:
        leaf = self.leaf_of(column)
        return self.leaves[leaf].columns[column - self.offset(leaf)].type

    def leaves_of(self, expr: Expr) -> set[int]:
        """The leaves that an expression looks at; -1 is what flat maps have made."""
        return {self.leaf_of(at) if at < self.width else -1 for at in columns_of(expr)}

    def name_of(self, column: int) -> str:
        made = [column.name for flat in self.flat for column in flat.made]
        if column >= self.width:
            return made[column - self.width]
        leaf = self.leaf_of(column)
        return self.leaves[leaf].columns[column - self.offset(leaf)].name

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Everything that refers to columns."""
        return (*self.predicates, *self.outputs, *(arg for flat in self.flat for arg in flat.args))


class Reduction(msgspec.Struct, frozen=True, tag="reduction"):
    """Groups the body's outputs: the first `keys` of them are the key.

    With `threshold` a group is a row, and is there as often as it counts.
    """

    keys: int
    aggregates: tuple[Aggregate, ...]
    threshold: bool = False


class Whole(msgspec.Struct, frozen=True, tag="whole"):
    """As a Reduction, but some aggregate needs all rows of its group (array_agg and the like).

    Arguments, orders and filters are columns of the body."""

    keys: int
    aggregates: tuple[Aggregate, ...]


class Top(msgspec.Struct, frozen=True, tag="top"):
    """Rows `offset` to `offset + limit` of each group by the columns `sorts`, all ascending.

    The first `width` outputs of the body are the row, the others only say where it stands.
    """

    group: tuple[int, ...]
    sorts: tuple[int, ...]
    width: int
    limit: int | None
    offset: int


class Windowed(msgspec.Struct, frozen=True, tag="windowed"):
    """The row (the body's first `width` outputs) and one column per function over the window;
    the functions' arguments are columns of the body."""

    group: tuple[int, ...]
    order_by: tuple[OrderBy, ...]
    functions: tuple[WindowFunction, ...]
    width: int


class Temporal(msgspec.Struct, frozen=True, tag="temporal"):
    """The body's last two outputs say from when (or null) until before when (or null) a row
    counts; the others are the row."""


Tail: TypeAlias = Reduction | Whole | Top | Windowed | Temporal | None


class Shape(msgspec.Struct, frozen=True):
    blocks: tuple[Block, ...]
    tail: Tail
    predicates: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(name, expr.type) for name, expr in zip(self.names, self.outputs, strict=True)
        )

    @property
    def body(self) -> tuple[SqlType, ...]:
        """The types of the body's outputs."""
        return tuple(expr.type for expr in self.blocks[0].outputs)

    @property
    def gets(self) -> tuple[Get, ...]:
        return tuple(
            leaf for block in self.blocks for leaf in block.leaves if isinstance(leaf, Get)
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Ids of the collections that it reads, each once."""
        return tuple(dict.fromkeys(get.id for get in self.gets))


class Edge(msgspec.Struct, frozen=True):
    """Two leaves joined by equality of plain columns (positions within each leaf)."""

    left: int
    right: int
    left_columns: tuple[int, ...]
    right_columns: tuple[int, ...]


def edges(block: Block) -> tuple[Edge, ...]:
    """All pairs of leaves that an equality of plain columns joins."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for predicate in block.predicates:
        if not (isinstance(predicate, Call) and predicate.fn in EQUALITIES):
            continue
        sides = [plain_column(arg) for arg in predicate.args]
        if any(side is None or side >= block.width for side in sides):
            continue
        placed = sorted((block.leaf_of(col), col) for col in sides if col is not None)
        (left, left_col), (right, right_col) = placed
        if left != right:
            pair = (left_col - block.offset(left), right_col - block.offset(right))
            pairs = found.setdefault((left, right), [])
            if pair not in pairs:
                pairs.append(pair)
    return tuple(
        Edge(left, right, tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
        for (left, right), pairs in sorted(found.items())
    )


def plain_column(expr: Expr) -> int | None:
    """The column whose values `expr` has, if it is one; widening an integer changes nothing."""
    if isinstance(expr, Col):
        return expr.index
    if isinstance(expr, Cast) and expr.type.is_integer and expr.arg.type.is_integer:
        narrower = expr.arg.type.decimal <= expr.type.decimal
        return plain_column(expr.arg) if narrower else None
    return None


def reduction_of(reduce: Reduce) -> tuple[tuple[Expr, ...], Reduction | Whole]:
    """What a reduction needs of its input (keys, then arguments), and itself over just that."""
    keys = reduce.keys
    aggregates = [
        msgspec.structs.replace(
            agg,
            args=tuple(summable(agg.fn, filtered_arg(arg, agg.filter)) for arg in agg.args),
            order_by=tuple(
                msgspec.structs.replace(order, expr=filtered_arg(order.expr, agg.filter))
                for order in agg.order_by
            ),
        )
        for agg in reduce.aggregates
    ]
    # sum(x), max(x) and avg(x) share one x.
    needed: dict[Expr, None] = {}
    for agg in aggregates:
        filters = () if agg.filter is None else (agg.filter,)
        needed |= dict.fromkeys((*agg.args, *(order.expr for order in agg.order_by), *filters))
    args = list(needed)

    def moved(expr: Expr) -> Col:
        return Col(len(keys) + args.index(expr), expr.type)

    over = tuple(
        msgspec.structs.replace(
            agg,
            args=tuple(map(moved, agg.args)),
            filter=None if agg.filter is None else moved(agg.filter),
            order_by=tuple(
                msgspec.structs.replace(order, expr=moved(order.expr)) for order in agg.order_by
            ),
        )
        for agg in aggregates
    )
    kind = Whole if any(agg.fn not in ACCUMULATED for agg in aggregates) else Reduction
    return (*keys, *args), kind(len(keys), over)


ACCUMULATED = ("count", "sum", "avg", "min", "max")
"""Aggregates that need not see a group whole."""


def summable(fn: str, arg: Expr) -> Expr:
    """A sum must not overflow while its terms are fine: a term too large is itself the error,
    one that goes away with its row."""
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


def filtered_arg(arg: Expr, filter_: Expr | None) -> Expr:
    """An argument fails only where the filter lets its row pass."""
    if filter_ is None:
        return arg
    return Call("case", (filter_, arg, Lit(None, arg.type)), arg.type)


def tidy(block: Block) -> Block:
    for rule in RULES:
        block = rule(block)
    return block


def _drop_repeated_predicates(block: Block) -> Block:
    return msgspec.structs.replace(block, predicates=tuple(dict.fromkeys(block.predicates)))


def _infer_equalities(block: Block) -> Block:
    """a = b and b = c give a = c, so that a change of a can probe c straight away."""
    classes: list[set[int]] = []
    for predicate in block.predicates:
        if not (isinstance(predicate, Call) and predicate.fn == "="):
            continue
        sides = [plain_column(arg) for arg in predicate.args]
        pair = {side for side in sides if side is not None and side < block.width}
        if len(pair) == 2:
            joined = [group for group in classes if group & pair]
            classes = [group for group in classes if not group & pair]
            classes.append(pair.union(*joined))
    known = set(block.predicates)
    added = []
    for group in classes:
        members = sorted(group)
        for at, left in enumerate(members):
            for right in members[at + 1 :]:
                types = block.type_of(left), block.type_of(right)
                predicate = equals(Col(left, types[0]), Col(right, types[1]))
                flipped = equals(Col(right, types[1]), Col(left, types[0]))
                if types[0] == types[1] and predicate not in known and flipped not in known:
                    added.append(predicate)
    return msgspec.structs.replace(block, predicates=block.predicates + tuple(added))


def prune_columns(block: Block) -> Block:
    """Leaves keep only the columns that something refers to."""
    used = set().union(*map(columns_of, block.expressions))
    moved: dict[int, int] = {}
    leaves: list[Leaf] = []
    start = 0
    for leaf, get in enumerate(block.leaves):
        offset = block.offset(leaf)
        kept = [at for at in range(len(get.columns)) if offset + at in used]
        moved |= {offset + at: start + position for position, at in enumerate(kept)}
        leaves.append(_narrowed(get, kept))
        start += len(kept)
    made = sum(len(flat.made) for flat in block.flat)
    moved |= {block.width + at: start + at for at in range(made)}

    def renumber(expr: Expr) -> Expr:
        return substitute(expr, lambda col: Col(moved[col.index], col.type))

    return msgspec.structs.replace(
        block,
        leaves=tuple(leaves),
        predicates=tuple(map(renumber, block.predicates)),
        outputs=tuple(map(renumber, block.outputs)),
        flat=tuple(
            msgspec.structs.replace(flat, args=tuple(map(renumber, flat.args)))
            for flat in block.flat
        ),
    )


def _narrowed(leaf: Leaf, kept: list[int]) -> Leaf:
    columns = tuple(leaf.columns[at] for at in kept)
    if isinstance(leaf, Constant):
        return Constant(tuple(tuple(row[at] for at in kept) for row in leaf.rows), columns)
    whole = [key for key in leaf.keys if set(key) <= set(kept)]
    return Get(leaf.id, columns, tuple(tuple(kept.index(at) for at in key) for key in whole))


def equals(left: Expr, right: Expr) -> Expr:
    return Call("=", (left, right), BOOLEAN)


RULES: tuple[Callable[[Block], Block], ...] = (
    _drop_repeated_predicates,
    _infer_equalities,
    prune_columns,
)
