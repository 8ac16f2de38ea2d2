"""The typed relational plan: what a query means, independent of how it is run.

    SELECT region, count(*) FROM orders JOIN customers ON customer = customers.id GROUP BY region

    Reduce keys=[#3] aggregates=[count(*)]
      Join on (#1 = #2)
        Get orders (id, customer)
        Get customers (id, region)

A node's columns are numbered from zero; a join's are those of its inputs, one after the other.
Plans are values: they are compared, hashed into fingerprints and sent to cluster replicas.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import msgspec

from tidemark.compute.expr import Expr, Lit
from tidemark.types import Column, SqlType


class Get(msgspec.Struct, frozen=True, tag="get"):
    """The contents of a collection, named by its catalog id."""

    id: str
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


class Join(msgspec.Struct, frozen=True, tag="join"):
    """The inner join of `inputs` where every predicate is true; none at all is a cross join."""

    inputs: tuple[Plan, ...]
    on: tuple[Expr, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for input_ in self.inputs for column in input_.columns)


class Aggregate(msgspec.Struct, frozen=True):
    """`fn` is count, sum, min, max or avg; `arg` None is `count(*)`."""

    fn: str
    arg: Expr | None
    type: SqlType


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


Plan: TypeAlias = Get | Constant | Filter | Project | Join | Reduce | Finish


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    match plan:
        case Get() | Constant():
            return ()
        case Join(inputs=inputs):
            return inputs
        case Filter(input=input_) | Project(input=input_) | Reduce(input=input_):
            return (input_,)
        case Finish(input=input_):
            return (input_,)


def collections_of(plan: Plan) -> tuple[str, ...]:
    """Ids of the collections that the plan reads, each once, in order of first use."""
    if isinstance(plan, Get):
        return (plan.id,)
    found = [id_ for input_ in inputs_of(plan) for id_ in collections_of(input_)]
    return tuple(dict.fromkeys(found))


def fingerprint(plan: Plan, *extra: object) -> str:
    """A short stable name for what a plan computes; equal plans share their state by it."""
    return hashlib.sha256(msgspec.json.encode([plan, *extra])).hexdigest()[:16]
