"""Subqueries joined to the plan of the query around them: nothing correlated is left behind.

    scalar     (SELECT ...) as a value: one more column, null where there is no row
    exists     WHERE [NOT] EXISTS / IN: a semi or anti join
    lateral    FROM t, LATERAL (SELECT ...): the rows of both, side by side

Each looks for the cheap form first. Where the subquery's own rows can be had without the outer
query, and the correlated predicates are conditions on those rows (`pulled`), they become the
condition of the join. A correlated aggregate whose predicates are equalities is grouped by its
own sides of them. Everything else goes through the domain of outer values (`lowering.py`).

An outer column of level 1 in a subquery is a column of the plan given as `outer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.compute.expr import Call, Col, Expr, Lit, conjuncts, substitute
from tidemark.compute.functions import call
from tidemark.compute.plan import (
    Aggregate,
    Filter,
    FlatMap,
    Join,
    Local,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    TopK,
    Window,
    WindowFunction,
    distinct,
)
from tidemark.compute.sql.cardinality import at_most_one
from tidemark.compute.sql.correlation import (
    Names,
    aggregate_expressions,
    bound,
    cols_of,
    has_outer,
    has_own,
    index_of,
    inward,
    is_leaf,
    level_of,
    map_aggregate,
    names_of,
    outer_columns,
)
from tidemark.compute.sql.lowering import ONE_ROW, joined, of_nothing, over, plain, same_row
from tidemark.types import BIGINT, BOOLEAN, TEXT, SqlType

COUNT = Aggregate("count", (), BIGINT)
_TOO_MANY = Lit("more than one row returned by a subquery used as an expression", TEXT)
_WITHOUT_MIN = ("boolean", "bytea", "jsonb", "interval")


# A value ---------------------------------------------------------------------------------------


def scalar(outer: Plan, sub: Plan, names: Names) -> tuple[Plan, Expr]:
    """`outer` with what the value of `sub` needs joined to it, and that value.

    More than one row is an error of the outer row, as in PostgreSQL.
    """
    width = len(outer.columns)
    grouped = _grouped_scalar(outer, sub)
    if grouped is not None:
        return grouped
    one, type_ = at_most_one(sub), sub.columns[0].type
    if not _refs(sub):
        value = plain(sub)
        value = value if one else _counted(value, 0)
        plan = OuterJoin("left", outer, value, ())
        return plan, Col(width, type_) if one else _checked(width, type_)

    def join(base: Plan, made: Plan, on: tuple[Expr, ...], domain: int) -> Plan:
        return OuterJoin("left", base, made if one else _counted(made, domain), on)

    plan, domain = _through_domain(outer, sub, names, join)
    at = width + domain
    return plan, Col(at, type_) if one else _checked(at, type_)


def _grouped_scalar(outer: Plan, sub: Plan) -> tuple[Plan, Expr] | None:
    """An aggregate without keys, grouped by its own sides of the equalities that correlate it."""
    outputs: tuple[Expr, ...] = cols_of(sub)
    conditions: list[Expr] = []
    plan = sub
    while not isinstance(plan, Reduce):
        match plan:
            case Project(input=input_, outputs=inner):
                outputs = tuple(_into(expr, inner) for expr in outputs)
                conditions = [_into(expr, inner) for expr in conditions]
                plan = input_
            case Filter(input=input_, predicate=predicate):
                conditions.append(predicate)
                plan = input_
            case _:
                return None
    if plan.keys:
        return None
    found = pulled(plan.input)
    if found is None:
        return None
    aggregates = _aggregates_into(plan, found.outputs)
    if any(has_outer(expr) for each in aggregates for expr in aggregate_expressions(each)):
        return None
    pairs = [_equality(predicate) for predicate in found.predicates]
    if any(pair is None for pair in pairs):
        return None
    keys = tuple(dict.fromkeys(own for pair in pairs if pair for own in [pair[0]]))
    key_names = tuple(f"key{at}" for at in range(len(keys)))
    reduced = Reduce(plain(found.plan), keys, aggregates, (*key_names, *plan.names))
    width = len(outer.columns)

    def place(col: Col) -> Expr:
        if col.index < 0:
            return inward(col)
        result = Col(width + len(keys) + col.index, col.type)
        return of_nothing(aggregates[col.index], result) if keys else result

    on = tuple(
        Call("=", (_inward(theirs), Col(width + keys.index(own), own.type)), BOOLEAN)
        for pair in pairs
        if pair
        for own, theirs in [pair]
    )
    result = OuterJoin("left", outer, reduced, on) if keys else joined(outer, reduced)
    value = substitute(outputs[0], place)
    if conditions:
        holds = call("and", tuple(conditions)) if len(conditions) > 1 else conditions[0]
        value = call("case", (substitute(holds, place), value, Lit(None, value.type)))
    return result, value


def _counted(plan: Plan, domain: int) -> Plan:
    """Per domain row: how many rows there are, and the last column of one of them."""
    cols = cols_of(plan)
    by, value = cols[:domain], cols[-1]
    names = (*names_of(plan.columns[:domain]), "count", plan.columns[-1].name)
    if _has_min(value.type):
        aggregates = (COUNT, Aggregate("min", (value,), value.type))
        return Reduce(plan, by, aggregates, names)
    count = WindowFunction("count", (), BIGINT)
    counted = Window(plan, tuple(range(domain)), (), (count,), ("count",))
    return Project(counted, (*by, Col(len(cols), BIGINT), value), names)


def _checked(at: int, type_: SqlType) -> Expr:
    """The value behind the count in column `at`: an error where it is evaluated, not before."""
    many = call(">", (Col(at, BIGINT), Lit("1", BIGINT)))
    failing = call("raise if", (many, _TOO_MANY))
    return call("case", (failing, Lit(None, type_), Col(at + 1, type_)))


def _has_min(type_: SqlType) -> bool:
    return type_.name not in _WITHOUT_MIN and not type_.name.endswith("[]")


# A condition -----------------------------------------------------------------------------------


def exists(
    outer: Plan,
    sub: Plan,
    *,
    negated: bool,
    matching: Callable[[tuple[Expr, ...]], Sequence[Expr]] = lambda outputs: (),
) -> Plan | None:
    """The rows of `outer` for which `sub` has a row (or none); None if it takes more than a join.

    `matching` gives further conditions on the subquery's output expressions; its own columns are
    theirs, those of `outer` are outer columns of level 1.
    """
    found = pulled(sub, as_set=True)
    if found is None:
        return None
    predicates = [*found.predicates, *matching(found.outputs)]
    right = plain(found.plan)
    if not predicates:
        return joined(outer, _whether(right, negated=negated))
    on = tuple(_onto(predicate, len(outer.columns)) for predicate in predicates)
    return OuterJoin("anti" if negated else "semi", outer, right, on)


def _whether(plan: Plan, *, negated: bool) -> Plan:
    """One row without columns if there is something in `plan` (or nothing)."""
    counted = Reduce(plan, (), (COUNT,), ("count",))
    wanted = call("=" if negated else ">", (Col(0, BIGINT), Lit("0", BIGINT)))
    return Project(Filter(counted, wanted), (), ())


# Rows ------------------------------------------------------------------------------------------


def lateral(
    outer: Plan, sub: Plan, names: Names, *, on: tuple[Expr, ...] = (), left: bool = False
) -> Plan:
    """The columns of `outer`, then those of `sub` for that row; `on` is over both.

    With `left`, a row for which there is none is padded with nulls.
    """
    width = len(outer.columns)
    columns = names_of(outer.columns + sub.columns)

    def join(base: Plan, made: Plan, same: tuple[Expr, ...], domain: int) -> Plan:
        def place(col: Col) -> Col:
            return Col(col.index + domain, col.type) if col.index >= width else col

        every = same + tuple(substitute(expr, place) for expr in on)
        both = OuterJoin("left", base, made, every) if left else joined(base, made, every)
        cols = cols_of(both)
        return Project(both, cols[:width] + cols[width + domain :], columns)

    if not _refs(sub):
        right = plain(sub)
        return OuterJoin("left", outer, right, on) if left else joined(outer, right, on)
    if isinstance(sub, FlatMap) and sub.input == ONE_ROW and not left:
        made = FlatMap(outer, sub.fn, tuple(_onto(arg, width) for arg in sub.args), sub.made)
        return Filter(made, _all(on)) if on else made
    found = pulled(sub)
    if found is not None and not (left and any(has_outer(expr) for expr in found.outputs)):
        conditions = tuple(_onto(expr, width) for expr in found.predicates)
        outputs = tuple(_onto(expr, width) for expr in found.outputs)
        everything = (*cols_of(outer), *outputs)
        right = plain(found.plan)
        conditions += tuple(_into(expr, everything) for expr in on)
        both = (
            OuterJoin("left", outer, right, conditions)
            if left
            else joined(outer, right, conditions)
        )
        if not left or all(isinstance(expr, Col) for expr in outputs):
            return both if everything == cols_of(both) else Project(both, everything, columns)
    return _through_domain(outer, sub, names, join)[0]


# Through the domain ----------------------------------------------------------------------------


def _through_domain(
    outer: Plan,
    sub: Plan,
    names: Names,
    join: Callable[[Plan, Plan, tuple[Expr, ...], int], Plan],
) -> tuple[Plan, int]:
    """`join(outer, sub per row of the domain, same values, width of the domain)`."""
    refs = _refs(sub)
    shared = outer if is_leaf(outer) else Local(names.fresh("outer"), outer.columns)
    picked = tuple(Col(index_of(ref), ref.type) for ref in refs)
    domain = distinct(Project(shared, picked, tuple(f"outer{at}" for at in range(len(refs)))))
    given = Local(names.fresh("domain"), domain.columns)
    width = len(outer.columns)
    there = tuple(Col(width + at, ref.type) for at, ref in enumerate(refs))
    plan = join(shared, over(sub, given, refs), same_row(picked, there), len(refs))
    plan = bound(given.name, domain, plan, same_query=True)
    if isinstance(shared, Local) and shared is not outer:
        plan = bound(shared.name, outer, plan, same_query=True)
    return plan, len(refs)


def _refs(sub: Plan) -> tuple[Col, ...]:
    mine = {col for col in outer_columns(sub) if level_of(col) == 1}
    return tuple(sorted(mine, key=index_of))


# What a subquery is without its correlated predicates ------------------------------------------


@dataclass(frozen=True, slots=True)
class Pulled:
    """For any outer row: `outputs` of the rows of `plan` for which all `predicates` hold.

    The plan mentions nothing of the outer query; predicates and outputs may.
    """

    plan: Plan
    predicates: tuple[Expr, ...]
    outputs: tuple[Expr, ...]


def pulled(sub: Plan, *, as_set: bool = False) -> Pulled | None:
    """None where correlation is not only in predicates. `as_set`: how often a row is there does
    not matter."""
    if not _refs(sub):
        return Pulled(sub, (), cols_of(sub))
    match sub:
        case Project(input=input_, outputs=outputs):
            found = pulled(input_, as_set=as_set)
            if found is None:
                return None
            return Pulled(
                found.plan,
                found.predicates,
                tuple(_into(expr, found.outputs) for expr in outputs),
            )
        case Filter(input=input_, predicate=predicate):
            found = pulled(input_, as_set=as_set)
            return found and _filtered(found, conjuncts(predicate))
        case Join(inputs=inputs, on=on):
            return _pulled_join(inputs, on, as_set=as_set)
        case Reduce(input=input_, keys=keys, aggregates=()) if keys and as_set:
            found = pulled(input_, as_set=True)
            if found is None:
                return None
            return Pulled(
                found.plan, found.predicates, tuple(_into(key, found.outputs) for key in keys)
            )
        case Reduce(keys=keys) if keys:
            return _pulled_reduce(sub)
        case TopK():
            return _pulled_top_k(sub)
        case _:
            return None


def _filtered(found: Pulled, predicates: Sequence[Expr]) -> Pulled:
    mine = [_into(predicate, found.outputs) for predicate in predicates]
    own = [predicate for predicate in mine if not has_outer(predicate)]
    theirs = tuple(predicate for predicate in mine if has_outer(predicate))
    plan = Filter(found.plan, _all(own)) if own else found.plan
    return Pulled(plan, found.predicates + theirs, found.outputs)


def _pulled_join(inputs: tuple[Plan, ...], on: tuple[Expr, ...], *, as_set: bool) -> Pulled | None:
    plans: list[Plan] = []
    predicates: list[Expr] = []
    outputs: list[Expr] = []
    width = 0
    for input_ in inputs:
        found = pulled(input_, as_set=as_set)
        if found is None:
            return None

        def place(col: Col, by: int = width) -> Col:
            return Col(col.index + by, col.type) if col.index >= 0 else col

        plans.append(found.plan)
        predicates += [substitute(expr, place) for expr in found.predicates]
        outputs += [substitute(expr, place) for expr in found.outputs]
        width += len(found.plan.columns)
    mine = [_into(part, outputs) for expr in on for part in conjuncts(expr)]
    own = tuple(expr for expr in mine if not has_outer(expr))
    theirs = [expr for expr in mine if has_outer(expr)]
    return Pulled(Join(tuple(plans), own), (*predicates, *theirs), tuple(outputs))


def _pulled_reduce(sub: Reduce) -> Pulled | None:
    """Grouped by the own sides of the equalities as well."""
    found = pulled(sub.input)
    if found is None:
        return None
    keys = [_into(key, found.outputs) for key in sub.keys]
    aggregates = _aggregates_into(sub, found.outputs)
    own, predicates = _by_equalities(found, len(keys) + len(aggregates))
    inside = [*keys, *(expr for each in aggregates for expr in aggregate_expressions(each))]
    if own is None or any(has_outer(expr) for expr in inside):
        return None
    # The further keys go behind the aggregates, so that the others keep their places.
    every = len(keys)
    reduced = Reduce(
        found.plan,
        (*keys, *own),
        aggregates,
        (*sub.names[:every], *(f"key{at}" for at in range(len(own))), *sub.names[every:]),
    )
    cols = cols_of(reduced)
    order = cols[:every] + cols[every + len(own) :] + cols[every : every + len(own)]
    names = names_of(reduced.columns)
    named = names[:every] + names[every + len(own) :] + names[every : every + len(own)]
    plan = Project(reduced, order, named)
    return Pulled(plan, predicates, cols_of(plan)[: len(sub.columns)])


def _pulled_top_k(sub: TopK) -> Pulled | None:
    """Chosen within each value of the own sides of the equalities."""
    found = pulled(sub.input)
    if found is None or any(has_outer(expr) for expr in found.outputs):
        return None
    width = len(found.outputs)
    own, predicates = _by_equalities(found, width)
    if own is None:
        return None
    names = (*names_of(sub.columns), *(f"key{at}" for at in range(len(own))))
    picked = Project(found.plan, (*found.outputs, *own), names)
    group = (*sub.group, *range(width, width + len(own)))
    plan = TopK(picked, group, sub.order_by, sub.limit, sub.offset)
    return Pulled(plan, predicates, cols_of(plan)[:width])


def _by_equalities(found: Pulled, width: int) -> tuple[list[Expr] | None, tuple[Expr, ...]]:
    """The own sides, and the predicates with columns from `width` on in their place."""
    own: list[Expr] = []
    predicates: list[Expr] = []
    for predicate in found.predicates:
        pair = _equality(predicate)
        if pair is None:
            return None, ()
        if pair[0] not in own:
            own.append(pair[0])
        place = Col(width + own.index(pair[0]), pair[0].type)
        predicates.append(Call("=", (place, pair[1]), BOOLEAN))
    return own, tuple(predicates)


def _equality(predicate: Expr) -> tuple[Expr, Expr] | None:
    """`own = outer` as a pair, whichever way round it was written."""
    if not (isinstance(predicate, Call) and predicate.fn == "="):
        return None
    for own, theirs in (predicate.args, predicate.args[::-1]):
        if not has_outer(own) and has_own(own) and not has_own(theirs):
            return own, theirs
    return None


def _into(expr: Expr, outputs: Sequence[Expr]) -> Expr:
    """An expression over some outputs, as one over what the outputs are over."""
    return substitute(expr, lambda col: outputs[col.index] if col.index >= 0 else col)


def _aggregates_into(plan: Reduce, outputs: Sequence[Expr]) -> tuple[Aggregate, ...]:
    return tuple(map_aggregate(each, lambda expr: _into(expr, outputs)) for each in plan.aggregates)


def _onto(expr: Expr, width: int) -> Expr:
    """An expression of the subquery over a join of the outer plan and the subquery's."""
    return substitute(
        expr, lambda col: Col(col.index + width, col.type) if col.index >= 0 else inward(col)
    )


def _inward(expr: Expr) -> Expr:
    return substitute(expr, lambda col: inward(col) if col.index < 0 else col)


def _all(parts: Sequence[Expr]) -> Expr:
    return parts[0] if len(parts) == 1 else call("and", tuple(parts))
