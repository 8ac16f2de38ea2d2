"""What all parts of the planner share while they plan one query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tidemark.compute.expr import Lit
from tidemark.compute.plan import Plan
from tidemark.compute.sql.correlation import Names
from tidemark.compute.sql.scope import Resolver, Scope


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of a query: what names mean, and what it is inside of.

    `nested` plans a query in another; it is here so that FROM and expressions can use it.
    """

    resolver: Resolver
    nested: Callable[[Context, exp.Expr], Plan]
    params: tuple[Lit, ...] = ()
    session: Mapping[str, Lit] = field(default_factory=dict)
    ctes: Mapping[str, Plan] = field(default_factory=dict)
    outer: Scope | None = None
    names: Names = field(default_factory=Names)

    def inside(self, scope: Scope) -> Context:
        """For a query that may refer to the columns of `scope`."""
        return replace(self, outer=scope)

    def with_ctes(self, ctes: Mapping[str, Plan]) -> Context:
        return replace(self, ctes={**self.ctes, **ctes})
