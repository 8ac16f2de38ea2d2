"""How a query will be answered: by look-ups, by a small read, or by Spark.

    SELECT v FROM t WHERE k = 5 ORDER BY v LIMIT 3       k is indexed: a look-up, then Arrow
    SELECT k, v FROM t WHERE v > 'a'                     t is small: read it here, then Arrow
    SELECT count(*) FROM t JOIN s ON ... WHERE t.k = 5   Spark, over what a look-up finds of t

Two questions, then. What of each collection is needed (`Asked`): the predicates on its own columns,
which choose an index and otherwise are pushed down into the read. And whether what follows is so
`Simple` that no Spark job is needed for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import product
from typing import NamedTuple

import pyarrow as pa

from tidemark.compute.arrow_expr import MIRRORED, answer, comparable, widens
from tidemark.compute.constants import value_of
from tidemark.compute.expr import Call, Cast, Col, Expr, Lit, conjuncts
from tidemark.compute.literals import WIDE, fits
from tidemark.compute.optimise import push_down, through
from tidemark.compute.plan import (
    Constant,
    Filter,
    Finish,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    OrderBy,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    inputs_of,
)
from tidemark.types import DOUBLE, SqlType

MOST_KEYS = 1_000
"""A look-up of more keys than this is a scan's work."""

Key = tuple[str, ...]


class Simple(NamedTuple):
    """A query of one collection that Arrow can answer: filter, project, order, limit."""

    get: Get
    predicates: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
    order_by: tuple[OrderBy, ...]
    limit: int | None
    offset: int
    keep: int


def simple(plan: Plan) -> Simple | None:
    """The query as a Simple one, if it is."""
    finish = plan if isinstance(plan, Finish) else None
    node = plan.input if isinstance(plan, Finish) else plan
    layers: list[Filter | Project] = []
    while isinstance(node, Filter | Project):
        layers.append(node)
        node = node.input
    if not isinstance(node, Get):
        return None
    outputs: tuple[Expr, ...] = tuple(Col(i, c.type) for i, c in enumerate(node.columns))
    predicates: list[Expr] = []
    for layer in reversed(layers):
        if isinstance(layer, Filter):
            predicates += conjuncts(through(outputs, layer.predicate))
        else:
            outputs = tuple(through(outputs, each) for each in layer.outputs)
    order_by = finish.order_by if finish is not None else ()
    found = Simple(
        node,
        tuple(predicates),
        outputs,
        order_by,
        finish.limit if finish is not None else None,
        finish.offset if finish is not None else 0,
        finish.keep if finish is not None else len(outputs),
    )
    asked = [answer(each, str) for each in (*predicates, *outputs)]
    sortable = all(_sortable(outputs[order.index].type) for order in order_by)
    return found if None not in asked and found.keep and sortable else None


def grows(plan: Plan) -> bool:
    """Whether there may be more rows in the result than in all that it reads."""
    if isinstance(plan, Finish) and plan.limit is not None and plan.limit <= MOST_KEYS:
        return False
    if isinstance(plan, Reduce) and not plan.keys:
        return False
    several = isinstance(plan, Join | OuterJoin | FlatMap | Let | LetRec | Constant)
    return several or any(map(grows, inputs_of(plan)))


def _sortable(type_: SqlType) -> bool:
    return comparable(type_) or type_ == DOUBLE


class Asked(NamedTuple):
    """A collection of a query, and the predicates that its rows must pass to matter at all."""

    get: Get
    predicates: tuple[Expr, ...]


def asked_of(plan: Plan) -> list[Asked]:
    """Each collection of the plan once; one that is read in several places is asked for whole."""
    found = list(_asked(push_down(plan)))
    times = Counter(each.get for each in found)
    return [
        each if times[each.get] == 1 else Asked(each.get, ())
        for each in {each.get: each for each in found}.values()
    ]


def _asked(plan: Plan) -> Iterator[Asked]:
    match plan:
        case Get():
            yield Asked(plan, ())
        case Filter(input=Get() as get, predicate=predicate):
            yield Asked(get, conjuncts(predicate))
        case _:
            for input_ in inputs_of(plan):
                yield from _asked(input_)


# Keys.


def chosen_key(asked: Asked, keys: Iterable[Key]) -> tuple[Key, pa.Table] | None:
    """Of the keys that the collection is indexed by, the one that leaves the fewest rows (it has
    the most columns), and the values to look up."""
    for key in sorted(keys, key=len, reverse=True):
        values = key_values(asked, key)
        if values is not None:
            return key, values
    return None


def key_values(asked: Asked, key: Key) -> pa.Table | None:
    """The keys whose rows are all that can pass; None if it is not so."""
    places = {column.name: at for at, column in enumerate(asked.get.columns)}
    lists: list[tuple[Lit, ...]] = []
    for name in key:
        at = places.get(name)
        if at is None or not key_type(asked.get.columns[at].type):
            return None
        column = Col(at, asked.get.columns[at].type)
        found = (_equal_to(each, column) for each in asked.predicates)
        values = next((each for each in found if each is not None), None)
        if values is None:
            return None
        lists.append(tuple(dict.fromkeys(values)))
    if not key or math.prod(map(len, lists)) > MOST_KEYS:
        return None
    rows = list(product(*lists))
    types = [asked.get.columns[places[name]].type.arrow for name in key]
    arrays = [pa.array([value_of(row[i]) for row in rows], t) for i, t in enumerate(types)]
    return pa.table(arrays, [str(i) for i in range(len(key))])


def key_type(type_: SqlType) -> bool:
    """Whether equal values of a type are equal as they are stored."""
    return comparable(type_) or type_ == DOUBLE


def _equal_to(expr: Expr, column: Col) -> tuple[Lit, ...] | None:
    """The values that `column` must have one of for `expr` to be true."""
    match expr:
        case Call(fn="=", args=(left, right)):
            for side, literal in ((left, right), (right, left)):
                if isinstance(literal, Lit) and _is_column(side, column):
                    return _as_stored((literal,), column.type)
        case Call(fn="in", args=(first, *listed)) if _is_column(first, column):
            literals = tuple(each for each in listed if isinstance(each, Lit))
            if len(literals) == len(listed):
                return _as_stored(literals, column.type)
        case Call(fn="or", args=args):
            found = [_equal_to(arg, column) for arg in args]
            known = [each for each in found if each is not None]
            if len(known) == len(found):
                return tuple(value for each in known for value in each)
        case Call(fn="and", args=args):
            found = (_equal_to(arg, column) for arg in args)
            return next((each for each in found if each is not None), None)
    return None


def _is_column(expr: Expr, column: Col) -> bool:
    if isinstance(expr, Cast) and widens(expr.arg.type, expr.type):
        return expr.type.is_exact and expr.arg == column
    return expr == column


def _as_stored(literals: tuple[Lit, ...], type_: SqlType) -> tuple[Lit, ...]:
    """The values as the column has them; nothing equals null, nor what it cannot hold."""
    texts = [each.value for each in literals if each.value is not None]
    if type_.is_integer:
        whole = [int(number) for text in texts if (number := Decimal(text)) == int(number)]
        return tuple(Lit(str(number), type_) for number in whole if fits(number, type_))
    if type_.is_exact:
        texts = [text for text in texts if _holds(type_, Decimal(text))]
    return tuple(Lit(text, type_) for text in texts)


def _holds(type_: SqlType, value: Decimal) -> bool:
    digits, scale = type_.decimal
    exponent = WIDE.normalize(value).as_tuple().exponent
    assert isinstance(exponent, int)
    return -exponent <= scale and (value == 0 or value.adjusted() < digits - scale)


# Filters that a reader understands.


def reader_filter(asked: Asked) -> list[tuple[str, str, object]]:
    """Predicates that persist can skip parts by; the query asks them again."""
    found = []
    for each in asked.predicates:
        pushed = _pushed(each, asked.get)
        if pushed is not None:
            found.append(pushed)
    return found


def _pushed(expr: Expr, get: Get) -> tuple[str, str, object] | None:
    match expr:
        case Call(fn=fn, args=(Col() as column, Lit(value=str()) as literal)) if fn in MIRRORED:
            operator = "!=" if fn == "<>" else fn
        case Call(fn=fn, args=(Lit(value=str()) as literal, Col() as column)) if fn in MIRRORED:
            operator = "!=" if fn == "<>" else MIRRORED[fn]
        case Call(fn="in", args=(Col() as column, *listed)) if all(
            isinstance(each, Lit) and each.value is not None and each.type == column.type
            for each in listed
        ):
            values = [value_of(each) for each in listed if isinstance(each, Lit)]
            return (get.columns[column.index].name, "in", values) if _filters(column.type) else None
        case _:
            return None
    if literal.type != column.type or not _filters(column.type):
        return None
    return get.columns[column.index].name, operator, value_of(literal)


def _filters(type_: SqlType) -> bool:
    return type_.is_exact or type_.name in ("text", "date", "timestamp", "boolean")
