"""The shape that the delta engine maintains: one block of joins, then at most one reduction.

    finish outputs, predicates          over the reduction's columns     (HAVING, SELECT list)
    reduce keys, aggregates             over the block's outputs
    block  outputs, predicates          over all leaves' columns, side by side
    leaves Get, Get, ...

Any tree of filters, projections and joins collapses into one block by substitution; `shape_of`
does that, and refuses with a reason what does not fit. Then the block is cut to what it needs:
`RULES`, in order.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidemark.compute.casts import cast
from tidemark.compute.expr import (
    Call,
    Cast,
    Col,
    Expr,
    columns_of,
    conjuncts,
    shift,
    substitute,
)
from tidemark.compute.plan import (
    Aggregate,
    Constant,
    Filter,
    Finish,
    Get,
    Join,
    Plan,
    Project,
    Reduce,
)
from tidemark.errors import Unsupported
from tidemark.types import BOOLEAN, Column, numeric

SUMMABLE_DIGITS = 30
"""Terms of a sum have at most this many digits, which leaves room for 10^8 of the largest."""

SUMMABLE_SCALE = 22
"""Wider numerics with more decimals than this would keep too few digits before the point."""


class Block(msgspec.Struct, frozen=True):
    """SELECT outputs FROM leaves WHERE predicates, columns of all leaves numbered in a row."""

    leaves: tuple[Get, ...]
    predicates: tuple[Expr, ...]
    outputs: tuple[Expr, ...]

    def offset(self, leaf: int) -> int:
        return sum(len(get.columns) for get in self.leaves[:leaf])

    def leaf_of(self, column: int) -> int:
        """Which leaf a column belongs to."""
        for leaf, get in enumerate(self.leaves):
            if column < len(get.columns):
                return leaf
            column -= len(get.columns)
        raise IndexError(column)

    def used(self, leaf: int) -> tuple[int, ...]:
        """Positions, within the leaf, of the columns that anything refers to."""
        start = self.offset(leaf)
        stop = start + len(self.leaves[leaf].columns)
        wanted = set().union(*(columns_of(expr) for expr in (*self.predicates, *self.outputs)))
        return tuple(sorted(col - start for col in wanted if start <= col < stop))


class Reduction(msgspec.Struct, frozen=True):
    """Groups the block's outputs: the first `keys` of them are the key."""

    keys: int
    aggregates: tuple[Aggregate, ...]


class Shape(msgspec.Struct, frozen=True):
    block: Block
    reduction: Reduction | None
    predicates: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(name, expr.type) for name, expr in zip(self.names, self.outputs, strict=True)
        )


class Edge(msgspec.Struct, frozen=True):
    """Two leaves joined by equality of plain columns (positions within each leaf)."""

    left: int
    right: int
    left_columns: tuple[int, ...]
    right_columns: tuple[int, ...]


def shape_of(plan: Plan) -> Shape:
    """The maintained form of `plan`, or `Unsupported` with the reason and what to do."""
    shape = _shape(plan)
    for rule in RULES:
        shape = rule(shape)
    _check_joins(shape.block)
    return shape


def edges(block: Block) -> tuple[Edge, ...]:
    """All pairs of leaves that an equality of plain columns joins."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for predicate in block.predicates:
        if not (isinstance(predicate, Call) and predicate.fn == "="):
            continue
        sides = [plain_column(arg) for arg in predicate.args]
        if None in sides:
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


def _shape(plan: Plan) -> Shape:
    match plan:
        case Finish(input=input_, limit=None, offset=0, keep=keep):
            # A view is a multiset: an order without a limit means nothing.
            shape = _shape(input_)
            return msgspec.structs.replace(
                shape, outputs=shape.outputs[:keep], names=shape.names[:keep]
            )
        case Finish():
            raise Unsupported(
                "LIMIT cannot be maintained incrementally yet",
                hint="create the view without it and put LIMIT into the query that reads the view",
            )
        case Filter(input=input_, predicate=predicate):
            shape = _shape(input_)
            more = tuple(_through(shape.outputs, part) for part in conjuncts(predicate))
            if shape.reduction is None:
                block = msgspec.structs.replace(
                    shape.block, predicates=shape.block.predicates + more
                )
                return msgspec.structs.replace(shape, block=block)
            return msgspec.structs.replace(shape, predicates=shape.predicates + more)
        case Project(input=input_, outputs=outputs, names=names):
            shape = _shape(input_)
            return msgspec.structs.replace(
                shape,
                outputs=tuple(_through(shape.outputs, expr) for expr in outputs),
                names=names,
            )
        case Reduce(input=input_, names=names):
            block, into = _block(input_)
            outputs, reduction = reduction_of(plan)
            outputs = tuple(_through(into, expr) for expr in outputs)
            return Shape(
                block=msgspec.structs.replace(block, outputs=outputs),
                reduction=reduction,
                predicates=(),
                outputs=tuple(Col(i, column.type) for i, column in enumerate(plan.columns)),
                names=names,
            )
        case _:
            block, into = _block(plan)
            names = tuple(column.name for column in plan.columns)
            return Shape(block, None, (), into, names)


def reduction_of(reduce: Reduce) -> tuple[tuple[Expr, ...], Reduction]:
    """What a reduction needs of its input (keys, then arguments), and itself over just that."""
    keys = reduce.keys
    aggregates = [_summable(agg) for agg in reduce.aggregates]
    # sum(x), max(x) and avg(x) share one x.
    args = list(dict.fromkeys(agg.arg for agg in aggregates if agg.arg is not None))
    moved = tuple(
        agg
        if agg.arg is None
        else msgspec.structs.replace(
            agg, args=(Col(len(keys) + args.index(agg.arg), agg.arg.type),)
        )
        for agg in aggregates
    )
    return (*keys, *args), Reduction(len(keys), moved)


def _summable(agg: Aggregate) -> Aggregate:
    """A sum must not overflow while its terms are fine: a term too large is itself the error,
    one that goes away with its row."""
    arg = agg.arg
    if agg.fn not in ("sum", "avg") or arg is None or arg.type.name != "numeric":
        return agg
    precision, scale = arg.type.decimal
    if precision <= SUMMABLE_DIGITS:
        return agg
    if scale > SUMMABLE_SCALE:
        raise Unsupported(
            f"{agg.fn} over {arg.type} is not supported: too few digits are left for the sum",
            hint=f"cast to fewer decimals, e.g. {agg.fn}(x::numeric(30,10))",
        )
    narrow = numeric(SUMMABLE_DIGITS, scale)
    return msgspec.structs.replace(agg, args=(cast(arg, narrow),))


def _block(plan: Plan) -> tuple[Block, tuple[Expr, ...]]:
    """A block for `plan`, and the plan's columns as expressions over the block's leaves."""
    match plan:
        case Get():
            columns = tuple(Col(i, column.type) for i, column in enumerate(plan.columns))
            return Block((plan,), (), ()), columns
        case Filter(input=input_, predicate=predicate):
            block, into = _block(input_)
            more = tuple(_through(into, part) for part in conjuncts(predicate))
            return msgspec.structs.replace(block, predicates=block.predicates + more), into
        case Project(input=input_, outputs=outputs):
            block, into = _block(input_)
            return block, tuple(_through(into, expr) for expr in outputs)
        case Join(inputs=inputs, on=on):
            leaves: tuple[Get, ...] = ()
            predicates: tuple[Expr, ...] = ()
            into = ()
            for input_ in inputs:
                block, columns = _block(input_)
                by = sum(len(get.columns) for get in leaves)
                leaves += block.leaves
                predicates += tuple(shift(expr, by) for expr in block.predicates)
                into += tuple(shift(expr, by) for expr in columns)
            predicates += tuple(part for expr in on for part in conjuncts(_through(into, expr)))
            return Block(leaves, predicates, ()), into
        case Reduce():
            raise Unsupported(
                "a GROUP BY or DISTINCT below another join or GROUP BY cannot be maintained yet",
                hint="make the inner query a materialized view of its own and select from that",
            )
        case Constant():
            raise Unsupported(
                "a view over constants has nothing to maintain",
                hint="put the rows into a table",
            )
        case Finish():
            raise Unsupported(
                "ORDER BY and LIMIT inside a view cannot be maintained yet",
                hint="put them into the query that reads the view",
            )
        case _:
            raise Unsupported(f"{type(plan).__name__} cannot be maintained yet")


def _through(into: tuple[Expr, ...], expr: Expr) -> Expr:
    return substitute(expr, lambda col: into[col.index])


def _merge_projection(shape: Shape) -> Shape:
    """Without a reduction the final projection is the block's own."""
    if shape.reduction is not None:
        return shape
    block = msgspec.structs.replace(shape.block, outputs=shape.outputs)
    outputs = tuple(Col(i, expr.type) for i, expr in enumerate(shape.outputs))
    return msgspec.structs.replace(shape, block=block, outputs=outputs)


def _drop_repeated_predicates(shape: Shape) -> Shape:
    predicates = tuple(dict.fromkeys(shape.block.predicates))
    block = msgspec.structs.replace(shape.block, predicates=predicates)
    return msgspec.structs.replace(shape, block=block)


def _infer_equalities(shape: Shape) -> Shape:
    """a = b and b = c give a = c, so that a change of a can probe c straight away."""
    block = shape.block
    classes: list[set[int]] = []
    for edge in edges(block):
        for left, right in zip(edge.left_columns, edge.right_columns, strict=True):
            pair = {block.offset(edge.left) + left, block.offset(edge.right) + right}
            joined = [group for group in classes if group & pair]
            classes = [group for group in classes if not group & pair]
            classes.append(pair.union(*joined))
    types = [column.type for get in block.leaves for column in get.columns]
    known = set(block.predicates)
    added = []
    for group in classes:
        members = sorted(group)
        for at, left in enumerate(members):
            for right in members[at + 1 :]:
                same = types[left] == types[right]
                predicate = equals(Col(left, types[left]), Col(right, types[right]))
                flipped = equals(Col(right, types[right]), Col(left, types[left]))
                if same and predicate not in known and flipped not in known:
                    added.append(predicate)
    block = msgspec.structs.replace(block, predicates=block.predicates + tuple(added))
    return msgspec.structs.replace(shape, block=block)


def _prune_columns(shape: Shape) -> Shape:
    """Leaves keep only the columns that something refers to."""
    block = shape.block
    moved: dict[int, int] = {}
    leaves, start = [], 0
    for leaf, get in enumerate(block.leaves):
        used = block.used(leaf)
        for position, column in enumerate(used):
            moved[block.offset(leaf) + column] = start + position
        leaves.append(Get(get.id, tuple(get.columns[column] for column in used)))
        start += len(used)

    def renumber(col: Col) -> Expr:
        return Col(moved[col.index], col.type)

    block = Block(
        tuple(leaves),
        tuple(substitute(expr, renumber) for expr in block.predicates),
        tuple(substitute(expr, renumber) for expr in block.outputs),
    )
    return msgspec.structs.replace(shape, block=block)


def equals(left: Expr, right: Expr) -> Expr:
    return Call("=", (left, right), BOOLEAN)


def _check_joins(block: Block) -> None:
    """Every leaf must be reachable from every other by equalities of plain columns."""
    reached = {0}
    for _ in block.leaves:
        for edge in edges(block):
            if edge.left in reached or edge.right in reached:
                reached |= {edge.left, edge.right}
    if len(reached) < len(block.leaves):
        raise Unsupported(
            "every join of a maintained view needs an equality between columns of its two sides",
            hint="join ON a.x = b.y; to join on an expression, make it a column of a materialized "
            "view first",
        )


RULES: tuple[Callable[[Shape], Shape], ...] = (
    _merge_projection,
    _drop_repeated_predicates,
    _infer_equalities,
    _prune_columns,
)
