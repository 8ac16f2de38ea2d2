"""From a parsed query to a typed plan.

    text ──dialect──▶ sqlglot tree ──select──▶ Plan
                                     │ scope        which names are visible, and where
                                     └ expressions  typed scalar expressions, aggregates

The planner says what a query means and nothing about how it is run: joins are one flat `Join` of
everything in FROM, predicates stand where they were written, views and CTEs are inlined. The
optimiser takes it from there.

    plan_query(parse_query("SELECT a + 1 AS b FROM t WHERE a > 2"), resolver)

    Project [#0 + 1] as b
      Filter #0 > 2
        Get t (a)

Non-goals: whatever is not in the allow-lists here (outer joins, windows, set operations,
subqueries in expressions, ...) is refused by name, never approximated.
"""

from __future__ import annotations

from tidemark.compute.sql.dialect import count_parameters, parse_query, sql_type
from tidemark.compute.sql.scope import Resolver
from tidemark.compute.sql.select import plan_query

__all__ = ["Resolver", "count_parameters", "parse_query", "plan_query", "sql_type"]
