"""GROUP BY: keys, grouping sets, and expressions over the groups instead of the rows.

GROUPING SETS, ROLLUP and CUBE are a union of ordinary groupings, each with nulls for the keys that
it does not group by:

    GROUP BY ROLLUP (a, b)    Union
                                Project [a, b, ...]         Reduce keys=[a, b]
                                Project [a, null, ...]      Reduce keys=[a]
                                Project [null, null, ...]   Reduce keys=[]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from sqlglot import exp

from tidemark.compute.expr import Call, Cast, Col, Expr, Lit
from tidemark.compute.plan import Aggregate, Local, Order, Plan, Project, Reduce, Union
from tidemark.compute.sql.correlation import Names, bound, is_leaf, map_aggregate
from tidemark.compute.sql.scope import Scope
from tidemark.compute.sql.subqueries import GROUPING_BASE, ROWS_BASE
from tidemark.compute.sql.windows import WINDOW_BASE, WindowCall
from tidemark.errors import SqlError, Unsupported
from tidemark.types import INTEGER

_MOST_SETS = 256


@dataclass(frozen=True, slots=True)
class Keys:
    """The distinct grouping expressions, and which of them each grouping set groups by."""

    exprs: tuple[Expr, ...]
    sets: tuple[tuple[int, ...], ...]

    @property
    def plain(self) -> bool:
        return self.sets == (tuple(range(len(self.exprs))),)


def grouping_keys(group: exp.Group | None, key_of: Callable[[exp.Expr], Expr]) -> Keys:
    """What GROUP BY says; `key_of` plans one grouping expression."""
    exprs: list[Expr] = []

    def place(node: exp.Expr) -> int:
        key = key_of(node)
        if key not in exprs:
            exprs.append(key)
        return exprs.index(key)

    parts = list(group.expressions) if group else []
    for name in ("rollup", "cube", "grouping_sets"):
        parts += (group.args.get(name) or []) if group else []
    if group is not None and (group.args.get("all") or group.args.get("totals")):
        raise Unsupported("GROUP BY ALL and WITH TOTALS are not supported")
    choices = [_sets(part, place) for part in parts]
    number = 1
    for choice in choices:
        number *= len(choice)
    if number > _MOST_SETS:
        raise Unsupported(f"more than {_MOST_SETS} grouping sets are not supported")
    sets = [tuple(sorted({at for part in chosen for at in part})) for chosen in product(*choices)]
    if group is not None and group.args.get("all") is False:  # GROUP BY DISTINCT
        sets = list(dict.fromkeys(sets))
    return Keys(tuple(exprs), tuple(sets))


def _sets(node: exp.Expr, place: Callable[[exp.Expr], int]) -> list[tuple[int, ...]]:
    """The sets that one item of GROUP BY stands for."""
    match node:
        case exp.Rollup():
            units = [_unit(each, place) for each in node.expressions]
            return [_flat(units[:end]) for end in range(len(units), -1, -1)]
        case exp.Cube():
            units = [_unit(each, place) for each in node.expressions]
            sizes = range(len(units), -1, -1)
            return [_flat(some) for size in sizes for some in combinations(units, size)]
        case exp.GroupingSets():
            return [each for inner in node.expressions for each in _sets(inner, place)]
        case _:
            return [_unit(node, place)]


def _unit(node: exp.Expr, place: Callable[[exp.Expr], int]) -> tuple[int, ...]:
    if isinstance(node, exp.Tuple):
        return tuple(place(each) for each in node.expressions)
    return (place(node),)


def _flat(units: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(at for unit in units for at in unit)


def grouped(
    plan: Plan,
    keys: Keys,
    over_plan: Sequence[Expr],
    aggregates: Sequence[Aggregate],
    groupings: Sequence[tuple[Expr, ...]],
    names: Names,
) -> Plan:
    """The groups: a column per key, per aggregate, and per GROUPING().

    `over_plan` are the keys as expressions over `plan` (subqueries in them are joined to it).
    """
    key_names = tuple(f"key{at}" for at in range(len(over_plan)))
    agg_names = tuple(aggregate.fn for aggregate in aggregates)
    masks = [[_position(keys, arg) for arg in args] for args in groupings]
    if keys.plain:
        reduced = Reduce(plan, tuple(over_plan), tuple(aggregates), key_names + agg_names)
        if not masks:
            return reduced
    shared = plan if is_leaf(plan) else Local(names.fresh("grouped"), plan.columns)
    branches: list[Plan] = []
    for chosen in keys.sets:
        mine = tuple(over_plan[at] for at in chosen)
        labels = tuple(key_names[at] for at in chosen) + agg_names
        reduced = Reduce(shared, mine, tuple(aggregates), labels)
        outputs: list[Expr] = [
            Col(chosen.index(at), key.type) if at in chosen else Lit(None, key.type)
            for at, key in enumerate(over_plan)
        ]
        outputs += [Col(len(chosen) + n, each.type) for n, each in enumerate(aggregates)]
        outputs += [_mask(mask, chosen) for mask in masks]
        labels = (*key_names, *agg_names, *("grouping" for _ in masks))
        branches.append(Project(reduced, tuple(outputs), labels))
    result = branches[0] if len(branches) == 1 else Union(tuple(branches))
    if isinstance(shared, Local) and shared is not plan:
        return bound(shared.name, plan, result, same_query=True)
    return result


def _position(keys: Keys, arg: Expr) -> int:
    if arg not in keys.exprs:
        raise SqlError(
            "arguments to GROUPING must be grouping expressions of the associated query level",
            sqlstate="42803",
        )
    return keys.exprs.index(arg)


def _mask(positions: Sequence[int], chosen: Sequence[int]) -> Lit:
    """A bit per argument, the last the lowest: 1 where the set does not group by it."""
    bits = 0
    for at in positions:
        bits = bits * 2 + (at not in chosen)
    return Lit(str(bits), INTEGER)


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rewrites expressions over the rows into expressions over the groups."""

    scope: Scope
    keys: tuple[Expr, ...]
    aggregates: int

    def over(self, expr: Expr) -> Expr:
        if expr in self.keys:
            return Col(self.keys.index(expr), expr.type)
        match expr:
            case Col(index=index, type=type_) if GROUPING_BASE <= index < ROWS_BASE:
                return Col(len(self.keys) + self.aggregates + index - GROUPING_BASE, type_)
            case Col(index=index) if index < 0 or index >= WINDOW_BASE:
                return expr
            case Col(index=index, type=type_) if index >= self.scope.width:
                return Col(len(self.keys) + index - self.scope.width, type_)
            case Col():
                raise SqlError(
                    f'column "{self.scope.qualified_name(expr)}" must appear in the GROUP BY '
                    "clause or be used in an aggregate function",
                    sqlstate="42803",
                )
            case Call(fn=fn, args=args, type=type_):
                return Call(fn, tuple(self.over(arg) for arg in args), type_)
            case Cast(arg=arg, type=type_):
                return Cast(self.over(arg), type_)
            case Lit():
                return expr


def change_window(window: WindowCall, change: Callable[[Expr], Expr]) -> WindowCall:
    function = window.function
    made = Aggregate(function.fn, function.args, function.type)
    args = map_aggregate(made, change).args
    return WindowCall(
        type(function)(function.fn, args, function.type, function.frame),
        tuple(change(expr) for expr in window.partition),
        tuple(
            Order(change(order.expr), order.descending, order.nulls_first)
            for order in window.order_by
        ),
    )
