"""The optimiser: a plan as it was written to one that is cheap to maintain, by the list `RULES`.

    inline_lets        a name is what it stands for; equal sub-plans are found by their fingerprints
    factor             what every branch of an OR asks is asked beside it: a join finds its equality
    push_down          predicates go as near to the leaves as their columns allow
    distinct_apart     aggregates over distinct values get a DISTINCT of their own
    lower_outer_joins  left, full, semi and anti joins as unions of inner ones
    prune              no column is carried further than it is needed

Each rule is a function from plan to plan that keeps what the plan means. The last plans have no
Let and no OuterJoin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

import msgspec

from tidemark.compute.expr import (
    TRUE,
    Call,
    Col,
    Expr,
    Lit,
    columns_of,
    conjuncts,
    shift,
    substitute,
    walk,
)
from tidemark.compute.plan import (
    MOST_NODES,
    Aggregate,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    Local,
    Negate,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    Threshold,
    TopK,
    Union,
    Window,
    distinct,
    inputs_of,
    size,
    too_large,
    with_inputs,
)
from tidemark.compute.shape import ACCUMULATED
from tidemark.errors import Unsupported
from tidemark.types import BOOLEAN, Column


def optimised(plan: Plan) -> Plan:
    return reduce(lambda so_far, rule: rule(so_far), RULES, plan)


def bottom_up(plan: Plan, rewrite: Callable[[Plan], Plan]) -> Plan:
    inputs = tuple(bottom_up(input_, rewrite) for input_ in inputs_of(plan))
    return rewrite(with_inputs(plan, inputs))


# Names.


def inline_lets(plan: Plan) -> Plan:
    inlined = _inlined(plan, {})
    if size(inlined) > MOST_NODES:
        raise too_large()
    return inlined


def _inlined(plan: Plan, bound: dict[str, Plan]) -> Plan:
    match plan:
        case Local(name=name):
            return bound.get(name, plan)
        case Let(name=name, value=value, body=body):
            return _inlined(body, {**bound, name: _inlined(value, bound)})
        case LetRec(bindings=bindings):
            bound = {k: v for k, v in bound.items() if k not in {b.name for b in bindings}}
    return with_inputs(plan, tuple(_inlined(input_, bound) for input_ in inputs_of(plan)))


# Predicates.


def factor(plan: Plan) -> Plan:
    return bottom_up(plan, _factored)


def _factored(plan: Plan) -> Plan:
    match plan:
        case Filter(input=input_, predicate=predicate):
            return filtered(input_, _without_common(predicate))
        case Join(on=on) | OuterJoin(on=on):
            parts = tuple(part for predicate in on for part in _without_common(predicate))
            return msgspec.structs.replace(plan, on=parts)
        case _:
            return plan


def _without_common(predicate: Expr) -> tuple[Expr, ...]:
    """Conjuncts of `predicate`: (a AND b) OR (a AND c) is a, b OR c."""
    found: list[Expr] = []
    for part in conjuncts(predicate):
        if not (isinstance(part, Call) and part.fn == "or"):
            found.append(part)
            continue
        branches = [conjuncts(branch) for branch in _disjuncts(part)]
        common = [each for each in branches[0] if all(each in other for other in branches)]
        rest = [tuple(each for each in branch if each not in common) for branch in branches]
        found += common
        if not common:
            found.append(part)
        elif all(rest):
            found.append(Call("or", tuple(map(_all_of, rest)), BOOLEAN))
    return tuple(found)


def _disjuncts(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Call) and expr.fn == "or":
        return tuple(part for arg in expr.args for part in _disjuncts(arg))
    return (expr,)


def _all_of(predicates: tuple[Expr, ...]) -> Expr:
    return predicates[0] if len(predicates) == 1 else Call("and", predicates, BOOLEAN)


def push_down(plan: Plan) -> Plan:
    return _push(plan, ())


def _push(plan: Plan, predicates: tuple[Expr, ...]) -> Plan:
    """`plan` filtered by `predicates`, which are pushed as deep as they may go."""
    match plan:
        case Filter(input=input_, predicate=predicate):
            parts = conjuncts(predicate)
            timed = tuple(part for part in parts if is_temporal(part))
            rest = tuple(part for part in parts if not is_temporal(part))
            if timed:
                # What time does to a row is settled where it was written.
                return filtered(filtered(_push(input_, rest), timed), predicates)
            return _push(input_, (*rest, *predicates))
        case Project(input=input_, outputs=outputs):
            inside = tuple(through(outputs, predicate) for predicate in predicates)
            return with_inputs(plan, (_push(input_, inside),))
        case Union(inputs=inputs):
            return Union(tuple(_push(input_, predicates) for input_ in inputs))
        case Negate(input=input_) | Threshold(input=input_):
            return with_inputs(plan, (_push(input_, predicates),))
        case Join(inputs=inputs, on=on):
            sides, start = [], 0
            rest = [part for predicate in (*on, *predicates) for part in conjuncts(predicate)]
            for input_ in inputs:
                stop = start + len(input_.columns)
                own = [part for part in rest if _within(part, range(start, stop))]
                rest = [part for part in rest if part not in own]
                sides.append(_push(input_, tuple(shift(part, -start) for part in own)))
                start = stop
            timed = tuple(part for part in rest if is_temporal(part))
            plain = tuple(part for part in rest if not is_temporal(part))
            return filtered(Join(tuple(sides), plain), timed)
        case OuterJoin(on=on) if any(map(is_temporal, on)):
            raise Unsupported(
                "mz_now() in the condition of an outer join cannot be maintained",
                hint="filter one side in a subquery, or put the condition into WHERE",
            )
        case OuterJoin(kind=kind, left=left, right=right) if kind != "full":
            own, rest = _split(predicates, range(len(left.columns)))
            return filtered(with_inputs(plan, (_push(left, own), _push(right, ()))), rest)
        case Reduce(input=input_, keys=keys) if keys:
            own, rest = _split(predicates, range(len(keys)))
            inside = tuple(through(keys, predicate) for predicate in own)
            return filtered(with_inputs(plan, (_push(input_, inside),)), rest)
        case TopK(input=input_, group=group) | Window(input=input_, partition=group):
            own, rest = _split(predicates, group)
            return filtered(with_inputs(plan, (_push(input_, own),)), rest)
        case FlatMap(input=input_):
            own, rest = _split(predicates, range(len(input_.columns)))
            return filtered(with_inputs(plan, (_push(input_, own),)), rest)
        case _:
            inside = tuple(_push(input_, ()) for input_ in inputs_of(plan))
            return filtered(with_inputs(plan, inside), predicates)


def is_temporal(expr: Expr) -> bool:
    return any(isinstance(node, Call) and node.fn == "mz_now" for node in walk(expr))


def _within(expr: Expr, columns: Iterable[int]) -> bool:
    used = columns_of(expr)
    return bool(used) and used <= set(columns)


def _split(
    predicates: tuple[Expr, ...], columns: Iterable[int]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The predicates over nothing but `columns`, and the others."""
    own = tuple(part for part in predicates if _within(part, columns))
    return own, tuple(part for part in predicates if part not in own)


def filtered(plan: Plan, predicates: tuple[Expr, ...]) -> Plan:
    return Filter(plan, _all_of(predicates)) if predicates else plan


def through(outputs: tuple[Expr, ...], expr: Expr) -> Expr:
    """`expr` over a projection's columns as an expression over its input."""
    return substitute(expr, lambda col: outputs[col.index])


# Aggregates.


def distinct_apart(plan: Plan) -> Plan:
    return bottom_up(plan, _apart)


def _apart(plan: Plan) -> Plan:
    """One Reduce for each set of arguments that counts once, and they meet on the keys."""
    if not isinstance(plan, Reduce):
        return plan
    keys = len(plan.keys)
    parts: dict[tuple[Expr, ...] | None, list[int]] = {}
    for at, agg in enumerate(plan.aggregates):
        once = agg.distinct and agg.fn in ACCUMULATED
        parts.setdefault(agg.args if once else None, []).append(at)
    if set(parts) <= {None}:
        return plan
    sides = [_part(plan, args, places) for args, places in parts.items()]
    joined, on, where = [], [], {}
    start = 0
    for side, places in zip(sides, parts.values(), strict=True):
        on += [
            Call("is not distinct from", (Col(i, key.type), Col(start + i, key.type)), BOOLEAN)
            for i, key in enumerate(plan.keys)
            if start
        ]
        where |= {place: start + keys + at for at, place in enumerate(places)}
        joined.append(side)
        start += len(side.columns)
    whole = joined[0] if len(joined) == 1 else Join(tuple(joined), tuple(on))
    outputs = [Col(i, key.type) for i, key in enumerate(plan.keys)]
    outputs += [Col(where[at], agg.type) for at, agg in enumerate(plan.aggregates)]
    return Project(whole, tuple(outputs), plan.names)


def _part(plan: Reduce, args: tuple[Expr, ...] | None, places: list[int]) -> Plan:
    chosen = tuple(plan.aggregates[at] for at in places)
    names = (*plan.names[: len(plan.keys)], *(f"a{i}" for i in range(len(places))))
    if args is None:
        return Reduce(plan.input, plan.keys, chosen, names)
    outputs = (*plan.keys, *args)
    labels = tuple(f"c{i}" for i in range(len(outputs)))
    once = distinct(Project(plan.input, outputs, labels))
    cols = tuple(Col(i, expr.type) for i, expr in enumerate(outputs))
    keys = len(plan.keys)
    chosen = tuple(msgspec.structs.replace(agg, args=cols[keys:], distinct=False) for agg in chosen)
    return Reduce(once, cols[:keys], chosen, names)


# Outer joins.


def lower_outer_joins(plan: Plan) -> Plan:
    return bottom_up(plan, _lower)


def _lower(plan: Plan) -> Plan:
    if not isinstance(plan, OuterJoin):
        return plan
    left, right = plan.left, plan.right
    on = tuple(part for predicate in plan.on for part in conjuncts(predicate))
    if plan.kind == "semi":
        return _matched(left, right, on)
    if plan.kind == "anti":
        return _unmatched(left, right, on)
    names = tuple(column.name for column in plan.columns)
    nulls = [tuple(Lit(None, column.type) for column in side.columns) for side in (left, right)]
    alone = Project(_unmatched(left, right, on), (*_cols(left), *nulls[1]), names)
    parts: list[Plan] = [Join((left, right), on), alone]
    if plan.kind == "full":
        width = len(left.columns)
        other = len(right.columns)

        def flip(col: Col) -> Expr:
            at = col.index + other if col.index < width else col.index - width
            return Col(at, col.type)

        flipped = tuple(substitute(part, flip) for part in on)
        alone = _unmatched(right, left, flipped)
        parts.append(Project(alone, (*nulls[0], *_cols(right)), names))
    return Union(tuple(parts))


def _cols(plan: Plan, start: int = 0) -> tuple[Col, ...]:
    return tuple(Col(start + i, column.type) for i, column in enumerate(plan.columns))


def _unmatched(left: Plan, right: Plan, on: tuple[Expr, ...]) -> Plan:
    return Union((left, Negate(_matched(left, right, on))))


def _matched(left: Plan, right: Plan, on: tuple[Expr, ...]) -> Plan:
    """The rows of `left` that have a partner, as often as they are there.

    Where the sides meet only in equalities, the partners' keys alone decide; otherwise whatever
    the condition looks at of the left side does.
    """
    width = len(left.columns)
    pairs: list[tuple[Expr, Expr, str]] = []
    ours: list[Expr] = []
    theirs: list[Expr] = []
    mixed = False
    for part in on:
        used = columns_of(part)
        pair = _equated(part, width)
        if pair is not None:
            pairs.append(pair)
        elif all(index >= width for index in used):
            theirs.append(shift(part, -width))
        elif all(index < width for index in used):
            ours.append(part)
        else:
            mixed = True
    names = tuple(column.name for column in left.columns)
    if not mixed:
        keys = tuple(shift(their, -width) for _, their, _ in pairs) or (TRUE,)
        labels = tuple(f"c{i}" for i in range(len(keys)))
        partners = _once(Project(filtered(right, tuple(theirs)), keys, labels))
        met = [
            Call(fn, (our, Col(width + i, their.type)), BOOLEAN)
            for i, (our, their, fn) in enumerate(pairs)
        ]
        return Project(Join((left, partners), (*ours, *met)), _cols(left), names)
    looked_at = sorted(set().union(*(columns_of(part) for part in on)) & set(range(width)))
    seen = tuple(Col(at, left.columns[at].type) for at in looked_at)
    labels = tuple(f"c{i}" for i in range(len(seen)))
    partners = distinct(Project(Join((left, right), on), seen, labels))
    met = [
        Call("is not distinct from", (col, Col(width + i, col.type)), BOOLEAN)
        for i, col in enumerate(seen)
    ]
    return Project(Join((left, partners), tuple(met)), _cols(left), names)


def _equated(part: Expr, width: int) -> tuple[Expr, Expr, str] | None:
    """Left expression, right expression and the operator, if `part` says that they are equal."""
    if not isinstance(part, Call) or part.fn not in ("=", "is not distinct from"):
        return None
    one, other = part.args
    for our, their in ((one, other), (other, one)):
        mine, yours = columns_of(our), columns_of(their)
        if mine and yours and max(mine) < width <= min(yours) and our.type == their.type:
            return our, their, part.fn
    return None


def _once(plan: Plan) -> Plan:
    """DISTINCT, unless no row can be there twice."""
    return plan if keys_of(plan) else distinct(plan)


def keys_of(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Sets of columns whose values no two rows share, as far as the plan tells."""
    match plan:
        case Get(keys=keys):
            return keys
        case Filter(input=input_):
            return keys_of(input_)
        case Project(input=input_, outputs=outputs):
            places = {expr.index: at for at, expr in enumerate(outputs) if isinstance(expr, Col)}
            return tuple(
                tuple(places[at] for at in key)
                for key in keys_of(input_)
                if all(at in places for at in key)
            )
        case Reduce(keys=keys):
            return (tuple(range(len(keys))),)
        case TopK(input=input_, group=group, limit=1):
            return (group, *keys_of(input_))
        case TopK(input=input_) | Window(input=input_):
            return keys_of(input_)
        case _:
            return ()


# Columns.


def prune(plan: Plan) -> Plan:
    return _pruned(plan, list(range(len(plan.columns))))


def _pruned(plan: Plan, needed: list[int]) -> Plan:
    """`plan` with just the columns `needed`, in that order."""
    match plan:
        case Constant(rows=rows, columns=columns):
            kept = tuple(tuple(row[at] for at in needed) for row in rows)
            return Constant(kept, tuple(columns[at] for at in needed))
        case Get() | Local():
            return picked(plan, needed)
        case Project(input=input_, outputs=outputs, names=names):
            chosen = tuple(outputs[at] for at in needed)
            inside, moved = _over(input_, chosen)
            return Project(inside, moved, tuple(names[at] for at in needed))
        case Filter(input=input_, predicate=predicate):
            columns = [Col(at, plan.columns[at].type) for at in needed]
            inside, (condition, *kept) = _over(input_, (predicate, *columns))
            return picked(Filter(inside, condition), _indices(kept))
        case Union(inputs=inputs):
            return Union(tuple(_pruned(input_, needed) for input_ in inputs))
        case Negate(input=input_):
            return Negate(_pruned(input_, needed))
        case Join(inputs=inputs, on=on):
            used = set(needed).union(*map(columns_of, on))
            places: dict[int, int] = {}
            sides, start = [], 0
            for input_ in inputs:
                own = [at for at in range(len(input_.columns)) if start + at in used]
                for at in own:
                    places[start + at] = len(places)
                sides.append(_pruned(input_, own))
                start += len(input_.columns)
            moved = tuple(_moved(predicate, places) for predicate in on)
            return picked(Join(tuple(sides), moved), [places[at] for at in needed])
        case FlatMap(input=input_, args=args):
            width = len(input_.columns)
            columns = [Col(at, plan.columns[at].type) for at in needed if at < width]
            inside, moved = _over(input_, (*args, *columns))
            kept = _indices(list(moved[len(args) :]))
            flat = msgspec.structs.replace(plan, input=inside, args=moved[: len(args)])
            behind = len(inside.columns) - width
            return picked(flat, [kept.pop(0) if at < width else at + behind for at in needed])
        case Reduce(input=input_, keys=keys, aggregates=aggregates, names=names):
            count = len(keys)
            kept = [at for at in range(len(aggregates)) if count + at in needed]
            chosen = tuple(aggregates[at] for at in kept)
            inside, moved = _over(input_, (*keys, *(e for agg in chosen for e in _parts(agg))))
            rest = list(moved[count:])
            over = tuple(_with_parts(agg, [rest.pop(0) for _ in _parts(agg)]) for agg in chosen)
            labels = (*names[:count], *(names[count + at] for at in kept))
            places = {at: at for at in range(count)}
            places |= {count + at: count + i for i, at in enumerate(kept)}
            reduced = Reduce(inside, moved[:count], over, labels)
            return picked(reduced, [places[at] for at in needed])
        case _:
            # Rows are told apart by all their columns: by which are equal, by ties in an order.
            return picked(with_inputs(plan, tuple(map(prune, inputs_of(plan)))), needed)


def _over(input_: Plan, exprs: tuple[Expr, ...]) -> tuple[Plan, tuple[Expr, ...]]:
    """`input_` with the columns that `exprs` look at, and the expressions over those."""
    used = sorted(set().union(*map(columns_of, exprs)))
    places = {at: i for i, at in enumerate(used)}
    return _pruned(input_, used), tuple(_moved(expr, places) for expr in exprs)


def _moved(expr: Expr, places: dict[int, int]) -> Expr:
    return substitute(expr, lambda col: Col(places[col.index], col.type))


def _indices(cols: list[Expr]) -> list[int]:
    return [col.index for col in cols if isinstance(col, Col)]


def _parts(agg: Aggregate) -> tuple[Expr, ...]:
    """The expressions of an aggregate, over the rows of its group."""
    filters = () if agg.filter is None else (agg.filter,)
    return (*agg.args, *(order.expr for order in agg.order_by), *filters)


def _with_parts(agg: Aggregate, parts: list[Expr]) -> Aggregate:
    args = tuple(parts.pop(0) for _ in agg.args)
    orders = tuple(msgspec.structs.replace(order, expr=parts.pop(0)) for order in agg.order_by)
    filter_ = parts.pop(0) if parts else None
    return msgspec.structs.replace(agg, args=args, order_by=orders, filter=filter_)


def picked(plan: Plan, columns: list[int]) -> Plan:
    """The columns of `plan` with these numbers."""
    if columns == list(range(len(plan.columns))):
        return plan
    chosen: list[Column] = [plan.columns[at] for at in columns]
    outputs = tuple(Col(at, column.type) for at, column in zip(columns, chosen, strict=True))
    return Project(plan, outputs, tuple(column.name for column in chosen))


RULES: tuple[Callable[[Plan], Plan], ...] = (
    inline_lets,
    factor,
    push_down,
    distinct_apart,
    lower_outer_joins,
    prune,
)
