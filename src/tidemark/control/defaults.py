"""What columns are when nobody says it: DEFAULT of CREATE TABLE.

A default is kept as it was written. It becomes a literal once for each statement that needs it, so
`now()` is the same in all rows that the statement makes, as it is in what it says itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from sqlglot import exp

from tidemark.compute.expr import Lit
from tidemark.compute.sql.dialect import parse_tokens, tokenize
from tidemark.compute.sql.expressions import Expressions
from tidemark.compute.sql.scope import Scope
from tidemark.control.assign import assigned, assigned_literal, large
from tidemark.errors import SqlError, TidemarkError, Unsupported
from tidemark.types import DOUBLE, Column

Defaults = Mapping[str, Lit]
"""By the names of columns, of those that have one; the others are null."""

NO_DEFAULTS: Defaults = MappingProxyType({})


def literals(
    columns: tuple[Column, ...], texts: Mapping[str, str], session: Mapping[str, Lit]
) -> Defaults:
    """The defaults as a statement of this session means them; raises if one is none."""
    by_name = {column.name: column for column in columns}
    try:
        return {name: _literal(by_name[name], text, session) for name, text in texts.items()}
    except TidemarkError as error:
        error.position = None  # In the default, not in the statement.
        raise


def is_default(node: exp.Expr) -> bool:
    """Whether this is the word DEFAULT, in place of a value."""
    return isinstance(node, exp.Var) and node.name.upper() == "DEFAULT"


@lru_cache(maxsize=1024)
def _parsed(text: str) -> exp.Expr:
    sql = f"SELECT {text}"
    tree = parse_tokens(tokenize(sql), sql)
    said = {part for part, value in tree.args.items() if value}
    if not isinstance(tree, exp.Select) or said != {"expressions"} or len(tree.expressions) != 1:
        raise SqlError(f'syntax error at or near "{text}"')
    return tree.expressions[0]


def _literal(column: Column, text: str, session: Mapping[str, Lit]) -> Lit:
    node = _parsed(text)
    if (number := large(node, column)) is not None:
        return number
    value = Expressions(Scope(), "DEFAULT", (), session).plan(node)
    if isinstance(value, Lit) and value.type != DOUBLE:
        return assigned_literal(value, column)
    made = assigned(value, column)
    if not isinstance(made, Lit):
        raise Unsupported(
            f'DEFAULT of column "{column.name}" is to be computed, which is not supported',
            hint="use a constant, or a function of the session: 0, 'new', now(), current_user",
        )
    return made
