"""From a parsed query to a typed plan.

    text ──dialect──▶ sqlglot tree ──select──▶ Plan
           spark_dialect               │ ctes, set_operations      around a SELECT
                                       │ from_                     joins, LATERAL, table functions
                                       │ grouping, ordering        GROUP BY ... , ORDER BY, LIMIT
                                       │ scope                     which names are visible, and where
                                       │ expressions               typed scalar expressions
                                       └ subqueries, windows       what expressions wait for

The planner says what a query means and nothing about how it is run: inner joins are one flat `Join`,
predicates stand where they were written, views and CTEs that are used once are inlined. It leaves
no subquery in an expression: `decorrelate` joins them to the plan around them, and `lowering` does
so for any plan at all. The optimiser takes it from there.

    plan_query(parse_query("SELECT a + 1 AS b FROM t WHERE a IN (SELECT c FROM u)"), resolver)

    Project [#0 + 1] as b
      OuterJoin semi on #0 = #1
        Get t (a)
        Project [#0]  Get u (c)

Non-goals: whatever is not in the allow-lists here is refused by name, never approximated.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from tidemark.compute.sql import dialect as _postgres
from tidemark.compute.sql.dialect import count_parameters, sql_type
from tidemark.compute.sql.scope import Resolver
from tidemark.compute.sql.select import plan_query
from tidemark.compute.sql.spark_dialect import SPARK, joined_text, translated
from tidemark.errors import InvalidUsage

__all__ = [
    "Resolver",
    "count_parameters",
    "parse_part",
    "parse_query",
    "plan_query",
    "sql_type",
]


def parse_query(sql: str, dialect: str = "postgres") -> exp.Expr:
    """A query's tree, for `plan_query`; `dialect` is postgres or spark."""
    match dialect:
        case "postgres":
            return _postgres.parse_query(sql)
        case "spark":
            tokens = joined_text(_postgres.tokenize(sql, SPARK), sql)
            return translated(_postgres.query_of(tokens, sql, SPARK))
    raise InvalidUsage(f"dialect {dialect!r}: it must be postgres or spark")


def parse_part(
    tokens: Sequence[Token], sql: str, dialect: str = "postgres", *, before: str = ""
) -> exp.Expr:
    """A query or an expression within a statement of ours, with `before` put before it. `tokens`
    are the statement's; another dialect makes its own of the same text, in the same places."""
    if dialect == "postgres":
        return _postgres.parse_tokens([*_postgres.tokenize(before), *tokens], sql)
    start, end = tokens[0].start, tokens[-1].end + 1
    text = " " * start + sql[start:end]
    mine = joined_text(_postgres.tokenize(text, SPARK), text)
    return translated(_postgres.parse_tokens([*SPARK.tokenize(before), *mine], sql, SPARK))
