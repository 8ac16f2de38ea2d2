"""A plan as fragments: shapes that feed each other, the last of which is the view.

    SELECT region, n FROM (SELECT region, count(*) AS n FROM ... GROUP BY region)   two fragments
    ORDER BY n DESC LIMIT 3

    f-1c09…  reduce   customers ⋈ orders by region           state: accumulators
    view     top      f-1c09… by n                           state: rows in order

A shape is a body of joins and unions with at most one operator that needs groups on top; where a
plan has more, it is *cut*: what lies below becomes a fragment of its own, with a shard of its own,
and is read by the one above like any other collection. A fragment is named by the fingerprint of
its shape, which names its inputs by their fingerprints in turn: views that contain the same
sub-plan share it, whoever came first, and a view that is replaced keeps what its new plan still
contains.

Cut are, below another operator: groups of any kind (Reduce, TopK, Window, Threshold), temporal
filters, unions below joins, and projections that compute a join's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from tidemark.compute.expr import Call, Col, Expr, Lit, columns_of, conjuncts, shift
from tidemark.compute.functions import call
from tidemark.compute.optimise import (
    bottom_up,
    filtered,
    is_temporal,
    keys_of,
    optimised,
    through,
)
from tidemark.compute.plan import (
    Binding,
    Constant,
    Filter,
    Finish,
    FlatMap,
    Get,
    Join,
    LetRec,
    Local,
    Negate,
    OrderBy,
    Plan,
    Project,
    Reduce,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
    collections_of,
    fingerprint,
)
from tidemark.compute.render_expr import error
from tidemark.compute.shape import (
    EQUALITIES,
    Block,
    Flat,
    Leaf,
    Reduction,
    Shape,
    Temporal,
    Top,
    Windowed,
    plain_column,
    prune_columns,
    reduction_of,
    tidy,
)
from tidemark.compute.windows import window_args
from tidemark.errors import Unsupported
from tidemark.types import BIGINT, DOUBLE, Column

DEFAULT_LIMIT = 100
"""Rounds after which a recursion that says nothing about it is taken to have no end."""

FORMAT = 1
"""Part of every fingerprint: raised when the same shape keeps another state than before."""


class Fragment(msgspec.Struct, frozen=True):
    """`deaf_to` are inputs whose errors are not its own."""

    id: str
    shape: Shape
    deaf_to: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.shape.columns

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.shape.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Ids of the collections that it makes."""
        return (self.id,)


class Recursive(msgspec.Struct, frozen=True):
    """The bindings of a WITH MUTUALLY RECURSIVE, kept by fixpoint.py in rounds of fragments.

    `result(i)` is the id of the collection that holds binding i.
    """

    id: str
    bindings: tuple[Binding, ...]
    limit: int
    return_at_limit: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        found = [id_ for binding in self.bindings for id_ in collections_of(binding.value)]
        return tuple(dict.fromkeys(found))

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.result(i) for i in range(len(self.bindings)))

    def result(self, binding: int) -> str:
        return f"{self.id}-{binding}"

    def results(self) -> dict[str, Get]:
        return {
            binding.name: Get(self.result(i), _positional(binding.columns))
            for i, binding in enumerate(self.bindings)
        }


class Round(msgspec.Struct, frozen=True):
    """One round of a recursion: its fragments in order, and the collections of its bindings."""

    fragments: tuple[Fragment, ...]
    made: dict[str, Get]


Piece: TypeAlias = Fragment | Recursive


def fragments_of(plan: Plan) -> tuple[Piece, ...]:
    """Pieces in an order in which each reads only inputs and pieces before it.

    The last is the view, with its names. Raises `Unsupported` with the reason and what to do.
    """
    if not collections_of(plan):
        raise Unsupported(
            "a view over constants has nothing to maintain", hint="put the rows into a table"
        )
    cutter = _Cutter()
    plan = _unordered(plan)
    names = tuple(column.name for column in plan.columns)
    shape = cutter.shape(cutter.unrecursive(optimised(plan)), names)
    return (*cutter.pieces.values(), Fragment(state_id(shape), shape))


def round_of(recursive: Recursive, before: Round | None) -> Round:
    """The round after `before`; each binding reads the newest values of all."""
    newest: dict[str, Plan] = {
        binding.name: Constant((), _positional(binding.columns)) for binding in recursive.bindings
    }
    if before is not None:
        newest |= before.made
    cutter = _Cutter()
    made: dict[str, Get] = {}
    for binding in recursive.bindings:
        get = cutter.cut(bound(binding.value, newest))
        newest[binding.name] = made[binding.name] = get
    # Errors of the round before are made again by this one, from the same rows.
    past = {get.id for get in before.made.values()} if before is not None else set[str]()
    past -= {get.id for get in made.values()}
    fragments = [
        msgspec.structs.replace(piece, deaf_to=tuple(id_ for id_ in piece.inputs if id_ in past))
        for piece in cutter.pieces.values()
        if isinstance(piece, Fragment)
    ]
    return Round(tuple(fragments), made)


def bound(plan: Plan, values: Mapping[str, Plan]) -> Plan:
    """`plan` with what its names stand for."""
    return bottom_up(
        plan, lambda node: values.get(node.name, node) if isinstance(node, Local) else node
    )


def _positional(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(Column(f"c{i}", column.type) for i, column in enumerate(columns))


def state_id(shape: Shape) -> str:
    """The name of what a shape keeps: the same for shapes that differ in their finish alone."""
    return _name(shape.blocks, shape.tail)


def _name(*what: object) -> str:
    return f"f-{fingerprint(FORMAT, *what)}"


def _unordered(plan: Plan) -> Plan:
    """A view is a multiset: an order without a limit means nothing."""
    if not isinstance(plan, Finish):
        return plan
    columns = plan.columns
    body = plan.input
    if plan.limit is not None or plan.offset:
        body = TopK(body, (), plan.order_by, plan.limit, plan.offset)
    outputs = tuple(Col(at, column.type) for at, column in enumerate(columns))
    return Project(body, outputs, tuple(column.name for column in columns))


class _Cutter:
    def __init__(self) -> None:
        self.pieces: dict[str, Piece] = {}

    def unrecursive(self, plan: Plan) -> Plan:
        """The plan with its recursions as pieces of their own, read as collections."""
        return bottom_up(plan, self._without)

    def _without(self, plan: Plan) -> Plan:
        if not isinstance(plan, LetRec):
            return plan
        name = _name(plan.bindings, plan.limit, plan.return_at_limit)
        limit = plan.limit or DEFAULT_LIMIT
        recursive = Recursive(name, plan.bindings, limit, plan.return_at_limit)
        inside = {each for binding in plan.bindings for each in _pieces_in(binding.value, self)}
        if inside:
            raise Unsupported(
                "WITH MUTUALLY RECURSIVE inside another cannot be maintained",
                hint="make the inner one a materialized view of its own",
            )
        self.pieces[name] = recursive
        return bound(plan.body, recursive.results())

    def cut(self, plan: Plan) -> Get:
        """`plan` as a fragment of its own, read as a collection."""
        names = tuple(f"c{i}" for i in range(len(plan.columns)))
        shape = self.shape(plan, names)
        fragment = Fragment(_name(shape), shape)
        self.pieces[fragment.id] = fragment
        return Get(fragment.id, fragment.columns, keys_of(plan))

    def shape(self, plan: Plan, names: tuple[str, ...]) -> Shape:
        """The whole plan as one shape, over whatever had to be cut."""
        core, outputs, predicates = _peeled(plan)
        columns = tuple(Col(i, column.type) for i, column in enumerate(core.columns))
        match core:
            case Reduce():
                needed, tail = reduction_of(core)
                blocks = self._body(core.input, needed)
            case Threshold(input=input_):
                blocks, tail = self._body(input_, columns), Reduction(len(columns), (), True)
            case TopK():
                needed, tail = _top(core)
                blocks = self._body(core.input, needed)
            case Window(input=input_, partition=group, order_by=orders, functions=functions):
                row = columns[: len(input_.columns)]
                args = dict.fromkeys(arg for fn in functions for arg in window_args(fn))
                needed = (*row, *(arg for arg in args if arg not in row and not _is_fixed(arg)))
                blocks = self._body(input_, needed)
                over = tuple(_over(fn, needed) for fn in functions)
                tail = Windowed(group, orders, over, len(row))
            case Filter(input=input_, predicate=predicate):
                # Whatever else is asked of the row is asked before it waits for its time.
                bounds, rest = _temporal(predicate)
                blocks = self._body(filtered(input_, (*rest, *predicates)), (*outputs, *bounds))
                row = tuple(Col(i, expr.type) for i, expr in enumerate(outputs))
                return Shape(blocks, Temporal(), (), row, names)
            case _:
                blocks = self._body(plan, tuple(Col(i, c.type) for i, c in enumerate(plan.columns)))
                outputs = tuple(Col(i, column.type) for i, column in enumerate(plan.columns))
                return Shape(blocks, None, (), outputs, names)
        return Shape(blocks, tail, predicates, outputs, names)

    def _body(self, plan: Plan, outputs: tuple[Expr, ...]) -> tuple[Block, ...]:
        """Blocks whose outputs are `outputs` over the plan's columns."""
        made = (
            msgspec.structs.replace(
                block, outputs=tuple(through(block.outputs, expr) for expr in outputs)
            )
            for block in self._blocks(plan)
        )
        return tuple(tidy(self._with_plain_keys(prune_columns(block))) for block in made)

    def _blocks(self, plan: Plan) -> tuple[Block, ...]:
        """Blocks that add up to `plan`, with its columns as outputs."""
        match plan:
            case Get() | Constant():
                columns = tuple(Col(i, column.type) for i, column in enumerate(plan.columns))
                return (Block((_distinctly_named(plan),), (), columns),)
            case Filter(input=input_, predicate=predicate) if not is_temporal(predicate):
                parts = conjuncts(predicate)
                return tuple(_where(block, parts) for block in self._blocks(input_))
            case Project(input=input_, outputs=outputs):
                return tuple(
                    msgspec.structs.replace(
                        block, outputs=tuple(through(block.outputs, expr) for expr in outputs)
                    )
                    for block in self._blocks(input_)
                )
            case Union(inputs=inputs):
                return tuple(block for input_ in inputs for block in self._blocks(input_))
            case Negate(input=input_):
                return tuple(
                    msgspec.structs.replace(block, negated=not block.negated)
                    for block in self._blocks(input_)
                )
            case FlatMap(input=input_):
                return tuple(_flat(block, plan) for block in self._blocks(input_))
            case Join(inputs=inputs, on=on):
                joined = _side_by_side([self._side(input_) for input_ in inputs])
                parts = [part for predicate in on for part in conjuncts(predicate)]
                return (_where(joined, parts),)
            case _:
                return self._blocks(self.cut(plan))

    def _side(self, plan: Plan) -> Block:
        """One side of a join: a single block of plain leaves, cut if it is not."""
        blocks = self._blocks(plan)
        if len(blocks) == 1 and not blocks[0].negated and not blocks[0].flat:
            return blocks[0]
        (block,) = self._blocks(self.cut(plan))
        return block

    def _with_plain_keys(self, block: Block) -> Block:
        """Where an expression of one leaf is joined with others, it becomes a column of that leaf."""
        wanted: dict[int, list[Expr]] = {}
        for predicate in block.predicates:
            if not (isinstance(predicate, Call) and predicate.fn in EQUALITIES):
                continue
            sides = [block.leaves_of(arg) for arg in predicate.args]
            if not all(len(side) == 1 for side in sides) or sides[0] == sides[1]:
                continue
            if {-1} in sides:
                continue  # What a flat map makes is no leaf's.
            for arg, side in zip(predicate.args, sides, strict=True):
                if plain_column(arg) is None:
                    wanted.setdefault(next(iter(side)), []).append(arg)
        # From the last leaf on: one that grows moves only those behind it.
        for leaf, exprs in sorted(wanted.items(), reverse=True):
            block = self._computed(block, leaf, list(dict.fromkeys(exprs)))
        return block

    def _computed(self, block: Block, leaf: int, exprs: list[Expr]) -> Block:
        """`block` with `exprs` (over its columns) as further columns of one of its leaves."""
        start, get = block.offset(leaf), block.leaves[leaf]
        width = len(get.columns)
        own = tuple(p for p in block.predicates if block.leaves_of(p) == {leaf})
        inside = filtered(get, tuple(shift(predicate, -start) for predicate in own))
        columns = [Col(i, column.type) for i, column in enumerate(get.columns)]
        made = [shift(expr, -start) for expr in exprs]
        names = tuple(f"c{i}" for i in range(width + len(made)))
        cut = self.cut(Project(inside, (*columns, *made), names))
        places = {expr: start + width + at for at, expr in enumerate(exprs)}

        def moved(expr: Expr) -> Expr:
            if expr in places:
                return Col(places[expr], expr.type)
            if isinstance(expr, Col):
                behind = expr.index >= start + width
                return Col(expr.index + (len(exprs) if behind else 0), expr.type)
            if isinstance(expr, Lit):
                return expr
            return _rebuilt(expr, moved)

        leaves = (*block.leaves[:leaf], cut, *block.leaves[leaf + 1 :])
        return msgspec.structs.replace(
            block,
            leaves=leaves,
            predicates=tuple(moved(p) for p in block.predicates if p not in own),
            outputs=tuple(map(moved, block.outputs)),
            flat=tuple(
                msgspec.structs.replace(flat, args=tuple(map(moved, flat.args)))
                for flat in block.flat
            ),
        )


def _distinctly_named(leaf: Leaf) -> Leaf:
    if isinstance(leaf, Get):
        return leaf
    return Constant(leaf.rows, tuple(Column(f"c{i}", c.type) for i, c in enumerate(leaf.columns)))


def _pieces_in(plan: Plan, cutter: _Cutter) -> set[str]:
    return {id_ for id_ in collections_of(plan) if id_.rpartition("-")[0] in cutter.pieces}


def _rebuilt(expr: Expr, moved) -> Expr:
    if isinstance(expr, Call):
        return msgspec.structs.replace(expr, args=tuple(map(moved, expr.args)))
    assert not isinstance(expr, Col | Lit)
    return msgspec.structs.replace(expr, arg=moved(expr.arg))


def _where(block: Block, parts: Iterable[Expr]) -> Block:
    more = tuple(through(block.outputs, part) for part in parts)
    return msgspec.structs.replace(block, predicates=block.predicates + more)


def _flat(block: Block, plan: FlatMap) -> Block:
    start = block.width + sum(len(flat.made) for flat in block.flat)
    made = tuple(Col(start + i, column.type) for i, column in enumerate(plan.made))
    flat = Flat(plan.fn, tuple(through(block.outputs, arg) for arg in plan.args), plan.made)
    return msgspec.structs.replace(block, flat=(*block.flat, flat), outputs=(*block.outputs, *made))


def _side_by_side(blocks: list[Block]) -> Block:
    leaves, predicates, outputs = (), (), ()
    start = 0
    for block in blocks:
        leaves += block.leaves
        predicates += tuple(shift(expr, start) for expr in block.predicates)
        outputs += tuple(shift(expr, start) for expr in block.outputs)
        start += block.width
    return Block(leaves, predicates, outputs)


def _peeled(plan: Plan) -> tuple[Plan, tuple[Expr, ...], tuple[Expr, ...]]:
    """The first node that is no plain projection or filter; outputs and predicates over it."""
    match plan:
        case Project(input=input_, outputs=outputs):
            core, inside, predicates = _peeled(input_)
            return core, tuple(through(inside, expr) for expr in outputs), predicates
        case Filter(input=input_, predicate=predicate) if not is_temporal(predicate):
            core, inside, predicates = _peeled(input_)
            more = tuple(through(inside, part) for part in conjuncts(predicate))
            return core, inside, predicates + more
        case _:
            return plan, tuple(Col(i, c.type) for i, c in enumerate(plan.columns)), ()


def _top(plan: TopK) -> tuple[tuple[Expr, ...], Top]:
    """The row, and columns that put rows in order when sorted upwards with nulls at the end."""
    columns = [Col(i, column.type) for i, column in enumerate(plan.columns)]
    listed = [column.name for column in plan.columns if column.type.element is not None]
    if listed:
        raise Unsupported(
            f'LIMIT and DISTINCT ON over the array column "{listed[0]}" cannot be maintained',
            hint="turn it into text first, e.g. with array_to_string",
        )
    needed: list[Expr] = list(columns)
    sorts: list[int] = []
    for order in plan.order_by:
        for expr in _ascending(columns[order.index], order):
            if expr not in needed:
                needed.append(expr)
            sorts.append(needed.index(expr))
    sorts += [at for at in range(len(columns)) if at not in sorts]
    top = Top(plan.group, tuple(sorts), len(columns), plan.limit, plan.offset)
    return tuple(needed), top


def _ascending(col: Col, order: OrderBy) -> list[Expr]:
    nulls_first = order.descending if order.nulls_first is None else order.nulls_first
    found: list[Expr] = [call("is not null", (col,))] if nulls_first else []
    if not order.descending:
        return [*found, col]
    if col.type == DOUBLE:
        # Downwards NaN comes before infinity, which in reverse is as small as it can be.
        found.append(call("<>", (col, Lit("NaN", DOUBLE))))
    return [*found, call("reverse order", (col,))]


def _over(fn: WindowFunction, columns: tuple[Expr, ...]) -> WindowFunction:
    """The function with its arguments taken from the columns that hold them."""
    args = tuple(
        arg if _is_fixed(arg) else Col(columns.index(arg), arg.type) for arg in window_args(fn)
    )
    return msgspec.structs.replace(fn, args=args)


def _is_fixed(arg: Expr) -> bool:
    """Constants stay where they are: Spark takes nothing else for how far a lag looks back."""
    return not columns_of(arg) and error(arg, str) is None


def _temporal(predicate: Expr) -> tuple[tuple[Expr, Expr], tuple[Expr, ...]]:
    """From when, until before when a row passes; and what else is asked of it."""
    least: list[Expr] = []
    beyond: list[Expr] = []
    rest: list[Expr] = []
    for part in conjuncts(predicate):
        if not is_temporal(part):
            rest.append(part)
            continue
        assert isinstance(part, Call)
        bound = part.args[1]
        after = call("after it", (bound,))
        match part.fn:
            case ">=":
                least.append(bound)
            case ">":
                least.append(after)
            case "<":
                beyond.append(bound)
            case "<=":
                beyond.append(after)
            case "=":
                least.append(bound)
                beyond.append(after)
        # A bound that is unknown is never met.
        rest.append(call("is not null", (bound,)))
    return (_extreme("greatest", least), _extreme("least", beyond)), tuple(rest)


def _extreme(fn: str, exprs: list[Expr]) -> Expr:
    if not exprs:
        return Lit(None, BIGINT)
    return exprs[0] if len(exprs) == 1 else call(fn, tuple(exprs))
