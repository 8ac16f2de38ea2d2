"""The typed relational plan: what a query means, independent of how it is run.

    SELECT region, count(*) FROM orders JOIN customers ON customer = customers.id GROUP BY region

    Reduce keys=[#3] aggregates=[count(*)]
      Join on (#1 = #2)
        Get orders (id, customer)
        Get customers (id, region)

A node's columns are numbered from zero; a join's are those of its inputs, one after the other.
Plans are values: they are compared, hashed into fingerprints and sent to cluster replicas.

    leaves      Get · Constant · Local (what an enclosing Let or LetRec binds)
    linear      Filter · Project · FlatMap · Union · Negate
    bilinear    Join (inner, of any number) · OuterJoin (left, full, semi, anti)
    by group    Reduce (GROUP BY, DISTINCT) · TopK · Window · Threshold
    sharing     Let · LetRec
    the end     Finish: order and limit of a query that is asked once
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import msgspec

from tidemark.compute.expr import Col, Expr, Lit
from tidemark.errors import Unsupported
from tidemark.types import Column, SqlType


class Get(msgspec.Struct, frozen=True, tag="get", omit_defaults=True):
    """The contents of a collection, named by its catalog id."""

    id: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    """Sets of columns whose values no two rows share, as far as known: for the order of joins."""


class Local(msgspec.Struct, frozen=True, tag="local"):
    """What the `Let` or `LetRec` around it binds to `name`."""

    name: str
    columns: tuple[Column, ...]


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """Rows known at planning time."""

    rows: tuple[tuple[Lit, ...], ...]
    columns: tuple[Column, ...]


class Filter(msgspec.Struct, frozen=True, tag="filter"):
    """Rows for which `predicate` is true."""

    input: Plan
    predicate: Expr

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


class Project(msgspec.Struct, frozen=True, tag="project"):
    """One output column per expression."""

    input: Plan
    outputs: tuple[Expr, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(name, expr.type) for name, expr in zip(self.names, self.outputs, strict=True)
        )


class FlatMap(msgspec.Struct, frozen=True, tag="flat_map"):
    """Each row as often as `fn(args)` has rows, with their columns (`made`) behind its own."""

    input: Plan
    fn: str
    args: tuple[Expr, ...]
    made: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns + self.made


class Union(msgspec.Struct, frozen=True, tag="union"):
    """UNION ALL: counts add up. Names are those of the first input; types are the same in all."""

    inputs: tuple[Plan, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.inputs[0].columns


class Negate(msgspec.Struct, frozen=True, tag="negate"):
    """Every count with the opposite sign; makes sense only inside a Union that outweighs it."""

    input: Plan

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


class Threshold(msgspec.Struct, frozen=True, tag="threshold"):
    """Rows whose count is positive, as often as that."""

    input: Plan

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


class Join(msgspec.Struct, frozen=True, tag="join"):
    """The inner join of `inputs` where every predicate is true; none at all is a cross join."""

    inputs: tuple[Plan, ...]
    on: tuple[Expr, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for input_ in self.inputs for column in input_.columns)


class OuterJoin(msgspec.Struct, frozen=True, tag="outer_join"):
    """`kind` is left, full, semi or anti; `on` sees the columns of both sides.

    What has no partner is padded with nulls; semi and anti have the left side's columns alone.
    """

    kind: str
    left: Plan
    right: Plan
    on: tuple[Expr, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        right = () if self.kind in ("semi", "anti") else self.right.columns
        return self.left.columns + right


class Order(msgspec.Struct, frozen=True):
    """Order within an aggregate: by `expr`, nulls where PostgreSQL puts them unless told."""

    expr: Expr
    descending: bool = False
    nulls_first: bool | None = None


class Aggregate(msgspec.Struct, frozen=True, omit_defaults=True):
    """`fn` of `args` over the rows of a group; `count` without arguments is `count(*)`.

    Over each value once if `distinct`, over rows that pass `filter`, in the order of `order_by`.
    """

    fn: str
    args: tuple[Expr, ...]
    type: SqlType
    distinct: bool = False
    filter: Expr | None = None
    order_by: tuple[Order, ...] = ()

    @property
    def arg(self) -> Expr | None:
        return self.args[0] if self.args else None


class Reduce(msgspec.Struct, frozen=True, tag="reduce"):
    """GROUP BY: the key columns, then one column per aggregate.

    With no keys there is exactly one row, even over nothing. With no aggregates it is DISTINCT.
    """

    input: Plan
    keys: tuple[Expr, ...]
    aggregates: tuple[Aggregate, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        types = [key.type for key in self.keys] + [agg.type for agg in self.aggregates]
        return tuple(Column(name, type_) for name, type_ in zip(self.names, types, strict=True))


class OrderBy(msgspec.Struct, frozen=True):
    """Column `index` of the input, as PostgreSQL orders: nulls last ascending, first descending."""

    index: int
    descending: bool = False
    nulls_first: bool | None = None


class TopK(msgspec.Struct, frozen=True, tag="top_k"):
    """Of each group (the columns `group`), the rows from `offset` on, at most `limit`.

    Rows that `order_by` does not tell apart are ordered by all their columns, so that the choice
    is the same for everybody.
    """

    input: Plan
    group: tuple[int, ...]
    order_by: tuple[OrderBy, ...]
    limit: int | None
    offset: int = 0

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


class WindowFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """`fn` is row_number, rank, dense_rank, lag, lead, first_value, ... or an aggregate.

    `args` are over the input's columns. `frame` is Spark SQL's (and PostgreSQL's) own text, such
    as `ROWS BETWEEN 1 PRECEDING AND CURRENT ROW`; None is the default.
    """

    fn: str
    args: tuple[Expr, ...]
    type: SqlType
    frame: str | None = None


class Window(msgspec.Struct, frozen=True, tag="window"):
    """The input's columns, then one per function over the window; ties as in `TopK`."""

    input: Plan
    partition: tuple[int, ...]
    order_by: tuple[OrderBy, ...]
    functions: tuple[WindowFunction, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        made = zip(self.names, self.functions, strict=True)
        return self.input.columns + tuple(Column(name, fn.type) for name, fn in made)


class Let(msgspec.Struct, frozen=True, tag="let"):
    """`body`, in which `Local(name)` is `value`."""

    name: str
    value: Plan
    body: Plan

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.body.columns


class Binding(msgspec.Struct, frozen=True):
    name: str
    columns: tuple[Column, ...]
    value: Plan


def limit_reached(limit: int) -> str:
    """What is said of a recursion that did not come to an end."""
    return (
        f"recursion limit of {limit} reached: if it has an end beyond, write"
        " WITH MUTUALLY RECURSIVE (RECURSION LIMIT n)"
    )


class LetRec(msgspec.Struct, frozen=True, tag="let_rec"):
    """WITH MUTUALLY RECURSIVE: the bindings begin empty and are computed one after the other,
    each from the newest values of all, round by round until a round changes nothing.

    After `limit` rounds it is an error, or with `return_at_limit` the result.
    """

    bindings: tuple[Binding, ...]
    body: Plan
    limit: int | None = None
    return_at_limit: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.body.columns


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """ORDER BY, LIMIT and OFFSET of a one-off query; only ever the root of a plan.

    `keep` is how many leading columns are shown; the rest were only ordered by.
    """

    input: Plan
    order_by: tuple[OrderBy, ...]
    limit: int | None
    offset: int
    keep: int

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns[: self.keep]


Plan: TypeAlias = (
    Get
    | Local
    | Constant
    | Filter
    | Project
    | FlatMap
    | Union
    | Negate
    | Threshold
    | Join
    | OuterJoin
    | Reduce
    | TopK
    | Window
    | Let
    | LetRec
    | Finish
)


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    match plan:
        case Get() | Local() | Constant():
            return ()
        case Join(inputs=inputs) | Union(inputs=inputs):
            return inputs
        case OuterJoin(left=left, right=right):
            return left, right
        case Let(value=value, body=body):
            return value, body
        case LetRec(bindings=bindings, body=body):
            return (*(binding.value for binding in bindings), body)
        case _:
            return (plan.input,)


def with_inputs(plan: Plan, inputs: tuple[Plan, ...]) -> Plan:
    """The same node over other inputs, which have the same columns."""
    match plan:
        case Get() | Local() | Constant():
            return plan
        case Join() | Union():
            return msgspec.structs.replace(plan, inputs=inputs)
        case OuterJoin():
            return msgspec.structs.replace(plan, left=inputs[0], right=inputs[1])
        case Let():
            return msgspec.structs.replace(plan, value=inputs[0], body=inputs[1])
        case LetRec(bindings=bindings):
            pairs = zip(bindings, inputs[:-1], strict=True)
            bound = tuple(msgspec.structs.replace(each, value=value) for each, value in pairs)
            return msgspec.structs.replace(plan, bindings=bound, body=inputs[-1])
        case _:
            return msgspec.structs.replace(plan, input=inputs[0])


def except_all(left: Plan, right: Plan) -> Plan:
    return Threshold(Union((left, Negate(right))))


def intersect_all(left: Plan, right: Plan) -> Plan:
    """What is left of `left` without what is only there."""
    return Union((left, Negate(except_all(left, right))))


def distinct(plan: Plan) -> Plan:
    columns = tuple(Col(i, column.type) for i, column in enumerate(plan.columns))
    return Reduce(plan, columns, (), tuple(column.name for column in plan.columns))


MOST_NODES = 5_000
"""A query whose plan is larger than this, all names written out, is refused."""


def size(plan: Plan) -> int:
    """Its nodes, as far as `MOST_NODES`: a name for two of what is itself a name for two, and so
    on, would take for ever to count."""
    found, todo = 0, [plan]
    while todo and found <= MOST_NODES:
        found += 1
        todo += inputs_of(todo.pop())
    return found


def too_large() -> Unsupported:
    return Unsupported(
        "the query is too large once its views and WITH queries are written out",
        hint="make some of them materialized views of their own",
    )


def collections_of(plan: Plan) -> tuple[str, ...]:
    """Ids of the collections that the plan reads, each once, in order of first use."""
    if isinstance(plan, Get):
        return (plan.id,)
    found = [id_ for input_ in inputs_of(plan) for id_ in collections_of(input_)]
    return tuple(dict.fromkeys(found))


def fingerprint(*what: object) -> str:
    """A short stable name for a plan, or parts of one; what is equal has the same."""
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:16]
