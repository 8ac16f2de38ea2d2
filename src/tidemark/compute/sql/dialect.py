"""The dialect: sqlglot's Materialize, with its knowledge of functions taken out.

sqlglot turns functions into its own nodes, and sometimes into something that means less or more
(`date_part` becomes `EXTRACT`, `a[1]` becomes `a[0]`). Here every call keeps its name and its
arguments; only functions with a grammar of their own (CAST, EXTRACT, TRIM ...) are parsed
specially. What a name means is decided by the planner's allow-list alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.materialize import Materialize
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tidemark.errors import SqlError, Unsupported
from tidemark.types import SqlType, array_of, numeric, type_named

OWN_GRAMMAR = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")


_INTERVAL_FIELDS = frozenset("YEAR MONTH DAY HOUR MINUTE SECOND".split())


class TidemarkSql(Materialize):
    INDEX_OFFSET = 0  # subscripts stay as they are written

    class Tokenizer(Materialize.Tokenizer):
        # SHOW, EXPLAIN and the like are tokenized as any other text; control parses them.
        COMMANDS: set[Any] = set()  # noqa: RUF012
        # `oid` and `regclass` are names of types like any other: with arrays, and a schema.
        KEYWORDS = {  # noqa: RUF012
            word: kind
            for word, kind in Materialize.Tokenizer.KEYWORDS.items()
            if kind != TokenType.OBJECT_IDENTIFIER
        }

    class Parser(Materialize.Parser):
        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
        NO_PAREN_FUNCTIONS: dict[Any, Any] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: Materialize.Parser.FUNCTION_PARSERS[name] for name in OWN_GRAMMAR
        }

        # What stands behind an arrow is an expression, also in a function's arguments.
        LAMBDAS: dict[Any, Any] = {}  # noqa: RUF012
        JSON_OPERATORS = {  # noqa: RUF012
            **Materialize.Parser.JSON_OPERATORS,
            TokenType.ARROW: lambda self, this, part: exp.JSONExtract(this=this, expression=part),
            TokenType.DARROW: lambda self, this, part: exp.JSONExtractScalar(
                this=this, expression=part
            ),
        }

        def _parse_interval(
            self, require_interval: bool = True, parse_function_unit: bool = True
        ) -> exp.Add | exp.Interval | None:
            """`interval 'text' [unit [TO unit]]`; sqlglot's own drops what it does not know."""
            start = self._index
            if not (self._match(TokenType.INTERVAL) and self._match(TokenType.STRING)):
                self._retreat(start)
                return None
            text = exp.Literal.string(self._prev.text)
            unit = self._interval_field()
            if unit is not None and self._match_text_seq("TO"):
                unit = exp.IntervalSpan(this=unit, expression=self._interval_field())
            return self.expression(exp.Interval(this=text, unit=unit))

        def _parse_type(
            self, parse_interval: bool = True, fallback_to_identifier: bool = False
        ) -> exp.Expr | None:
            """`date '2024-01-01'::text` casts the date; sqlglot's own casts the literal first."""
            start = self._index
            kind = self._curr.token_type if self._curr is not None else None
            if kind in self.TYPE_TOKENS and kind != TokenType.INTERVAL:
                type_ = self._parse_types(check_func=True, allow_identifiers=False)
                if isinstance(type_, exp.DataType) and self._match(TokenType.STRING):
                    literal = exp.Literal.string(self._prev.text)
                    made = self.expression(exp.Cast(this=literal, to=type_))
                    return self._parse_column_ops(made)
                self._retreat(start)
            return super()._parse_type(parse_interval, fallback_to_identifier)

        def _parse_primary(self) -> exp.Expr | None:
            """Quoted texts on lines of their own are one; sqlglot's own concatenates them."""
            start = self._index
            found = super()._parse_primary()
            if not isinstance(found, exp.Concat):
                return found
            texts = self._tokens[start : self._index]
            for before, after in itertools.pairwise(texts):
                if "\n" not in self.sql[before.end + 1 : after.start]:
                    self.raise_error("Unexpected token", after)
            return self.expression(
                exp.Literal.string("".join(each.name for each in found.expressions)), texts[0]
            )

        def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
            if self._match_pair(TokenType.L_PAREN, TokenType.R_PAREN, advance=False):
                self.raise_error("Unexpected token", self._next)
            return super()._parse_in(this, alias)

        def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
            """After AS any word is a name; sqlglot's own stops at SELECT."""
            if not self._match_pair(TokenType.ALIAS, TokenType.SELECT):
                return super()._parse_alias(this, explicit)
            alias = exp.Identifier(this=self._prev.text, quoted=False)
            return self.expression(exp.Alias(this=this, alias=alias))

        def _interval_field(self) -> exp.Var | None:
            if self._curr is None or self._curr.text.upper() not in _INTERVAL_FIELDS:
                return None
            self._advance()
            return exp.Var(this=self._prev.text.upper())

        def _parse_with(self, skip_with_token: bool = False) -> exp.With | None:
            index = self._index
            is_with = skip_with_token or self._match(TokenType.WITH)
            if not (is_with and self._match_text_seq("MUTUALLY", "RECURSIVE")):
                self._retreat(index)
                return super()._parse_with(skip_with_token)
            limit, returns = self._parse_recursion_limit()
            with_ = exp.With(expressions=self._parse_csv(self._parse_recursive_binding))
            for name, part in (("mutually", True), ("limit", limit), ("return_at_limit", returns)):
                with_.set(name, part)
            return with_

        def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
            """`a JOIN b` without a condition must not look like `a, b`."""
            comma = self._curr is not None and self._curr.token_type == TokenType.COMMA
            join = super()._parse_join(*args, **kwargs)
            if isinstance(join, exp.Join) and not comma:
                conditions = ("side", "kind", "method", "on", "using")
                if not any(join.args.get(part) for part in conditions):
                    join.set("kind", "INNER")
            return join

        def _parse_recursion_limit(self) -> tuple[int | None, bool]:
            """`(RETURN AT RECURSION LIMIT n)`, `(ERROR AT RECURSION LIMIT n)`, or nothing."""
            if not self._match(TokenType.L_PAREN):
                return None, False
            returns = bool(self._match_text_seq("RETURN", "AT"))
            if not returns:
                self._match_text_seq("ERROR", "AT")
            if not self._match_text_seq("RECURSION", "LIMIT"):
                self.raise_error("Expected RECURSION LIMIT")
            limit = self._parse_number()
            if limit is None or not limit.name.isdecimal() or limit.name == "0":
                self.raise_error("Expected a positive number")
            self._match_r_paren()
            return int(limit.name) if limit is not None else None, returns

        def _parse_recursive_binding(self) -> exp.CTE:
            name = self._parse_id_var()
            columns = self._parse_wrapped_csv(self._parse_field_def)
            self._match(TokenType.ALIAS)
            query = self._parse_wrapped(self._parse_statement)
            return exp.CTE(this=query, alias=exp.TableAlias(this=name, columns=columns))


DIALECT = TidemarkSql()


def tokenize(sql: str, dialect: Dialect = DIALECT) -> list[Token]:
    try:
        return dialect.tokenize(sql)
    except TokenError:
        raise SqlError(f"unterminated quoted string or comment in: {sql[-60:]}") from None


def start_of(node: exp.Expr) -> int | None:
    """Where in the text a node begins, as far as the parser has said."""
    starts = (each.meta.get("start") for each in node.walk())
    return min((start for start in starts if start is not None), default=None)


def without_places(tree: exp.Expr) -> exp.Expr:
    """A tree of something that nobody has written."""
    for node in tree.walk():
        node.meta.pop("start", None)
    return tree


def hint_of(name: str, known: Iterable[str], shown: Mapping[str, str] | None = None) -> str | None:
    """Names like one that is not there, as a hint; some may have to be `shown` otherwise."""
    close = get_close_matches(name, sorted(set(known)), n=3, cutoff=0.75)
    listed = " or ".join((shown or {}).get(each, each) for each in close)
    return f"did you mean {listed}?" if close else None


def parse_tokens(tokens: Sequence[Token], sql: str, dialect: Dialect = DIALECT) -> exp.Expr:
    """One query, or one expression, out of the tokens of `sql`."""
    _check_lists(tokens, sql)
    try:
        parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE)
        trees = [tree for tree in parser.parse(list(tokens), sql) if tree is not None]
    except ParseError as parse_error:
        raise syntax_error(sql, tokens, parse_error) from None
    if len(trees) != 1:
        raise SqlError("syntax error at end of input")
    return trees[0]


_CLOSERS = (TokenType.FROM, TokenType.R_PAREN, TokenType.R_BRACKET)
_LISTS = (TokenType.GROUP_BY, TokenType.PARTITION_BY)
_OPENERS = (
    *(TokenType.SELECT, TokenType.DISTINCT, TokenType.ORDER_BY, *_LISTS),
    *(TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.COMMA),
)
_CLAUSES = (TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT)


def _check_lists(tokens: Sequence[Token], sql: str) -> None:
    """sqlglot does not mind a comma with nothing before or after it, nor an empty GROUP BY."""
    for token, following in itertools.pairwise([*tokens, None]):
        kind = token and token.token_type
        if following is None:
            if token is not None and kind in (TokenType.COMMA, *_LISTS):
                raise SqlError("syntax error at end of input").at(token.end + 1)
        elif (
            (kind is TokenType.COMMA and following.token_type in _CLOSERS)
            or (kind in _LISTS and following.token_type in (*_CLOSERS, *_CLAUSES))
            or (kind in _OPENERS and following.token_type is TokenType.COMMA)
        ):
            word = sql[following.start : following.end + 1].split()[0]
            raise SqlError(f'syntax error at or near "{word}"').at(following.start)


def parse_query(sql: str, dialect: Dialect = DIALECT) -> exp.Expr:
    return query_of(tokenize(sql, dialect), sql, dialect)


def query_of(tokens: Sequence[Token], sql: str, dialect: Dialect = DIALECT) -> exp.Expr:
    tree = parse_tokens(tokens, sql, dialect)
    if not isinstance(tree, exp.Query | exp.Values):
        raise SqlError(f'syntax error at or near "{sql.split()[0] if sql.split() else ""}"')
    return tree


def syntax_error(sql: str, tokens: Sequence[Token], parse_error: ParseError) -> SqlError:
    """PostgreSQL's wording; sqlglot points at the last token that it understood."""
    details = parse_error.errors[0] if parse_error.errors else {}
    line, column = details.get("line"), details.get("col")
    # A token's line and column are those of its end.
    found = (at for at, each in enumerate(tokens) if (each.line, each.col) == (line, column))
    at = next(found, len(tokens))
    if "Unexpected token" not in str(details.get("description")):
        at += 1
    if at >= len(tokens):
        return SqlError("syntax error at end of input").at(tokens[-1].end + 1 if tokens else 0)
    token = tokens[at]
    return SqlError(f'syntax error at or near "{sql[token.start : token.end + 1]}"').at(token.start)


def identifier(node: exp.Expr | str | None) -> str:
    """An identifier as it is stored: folded to lower case unless it was quoted."""
    if isinstance(node, exp.Identifier):
        return node.name if node.quoted else node.name.lower()
    if isinstance(node, exp.Expr):
        return node.name.lower()
    return (node or "").lower()


_TYPE_NAMES = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "bigint",
    exp.DType.DECIMAL: "numeric",
    exp.DType.DOUBLE: "double precision",
    exp.DType.FLOAT: "real",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "varchar",
    exp.DType.VARBINARY: "bytea",
    exp.DType.JSONB: "jsonb",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamptz",
    exp.DType.INTERVAL: "interval",
}


def sql_type(node: exp.DataType) -> SqlType:
    """The type that a type's name in SQL stands for; what is not supported is refused by name."""
    kind = node.this
    if kind == exp.DType.ARRAY and len(node.expressions) == 1:
        return array_of(sql_type(node.expressions[0]))
    name = _TYPE_NAMES.get(kind) if isinstance(kind, exp.DType) else None
    if name is None:
        type_named(node.sql(dialect=DIALECT).lower())
        raise Unsupported(f'type "{node.sql(dialect=DIALECT).lower()}" is not supported')
    limits = [parameter.name for parameter in node.expressions]
    if name == "numeric" and limits:
        if len(limits) > 2 or not all(limit.isdecimal() for limit in limits):
            raise SqlError("invalid NUMERIC type modifier", sqlstate="22023")
        return numeric(*(int(limit) for limit in limits))
    if limits:
        raise Unsupported(
            f"type {name}({', '.join(limits)}) is not supported: limits on {name} are not enforced",
            hint=f"use {'text' if name == 'varchar' else name} without a limit",
        )
    return type_named(name)


def count_parameters(tree: exp.Expr) -> int:
    """How many parameters a statement takes: the highest n of its $n."""
    return max((parameter_number(node) for node in tree.find_all(exp.Parameter)), default=0)


def parameter_number(node: exp.Parameter) -> int:
    number = node.name
    if not number.isdecimal() or int(number) < 1:
        raise SqlError(f'there is no parameter "{number}"', sqlstate="42P02")
    return int(number)
