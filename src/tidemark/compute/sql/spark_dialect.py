"""Spark SQL as an input language: parsed by its own rules, then said as the planner says it.

Only what is written differently is translated here: names of functions that mean the same, `/` of
integers (a fraction in Spark), LATERAL VIEW, CAST, identifiers in backticks. Where Spark and
PostgreSQL give one name to different functions, Spark's meaning is kept (`concat`, `log`, casts to
integers) or the function is refused (`initcap`). What the planner does not know is refused by it,
by name. What differs nevertheless is in docs/views.md: the types of some results.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from tidemark.compute.sql.dialect import OWN_GRAMMAR, TidemarkSql, start_of
from tidemark.errors import Unsupported

AS_FRACTION = "as fraction"
"""Not for users: an integer as a double, so that `/` gives a fraction; anything else as it is."""

TOWARD_ZERO = "toward zero"
"""Not for users: a number without its fraction, as Spark casts it; anything else as it is."""

_SAME = {
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "substr": "substring",
    "len": "length",
    "ucase": "upper",
    "lcase": "lower",
    "pow": "power",
    "ceiling": "ceil",
    "dayofmonth": "day",
    "explode": "unnest",
    "size": "cardinality",
    "mean": "avg",
    "instr": "strpos",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "sign": "sign",
}
_CASTS = {
    "int": exp.DType.INT,
    "smallint": exp.DType.SMALLINT,
    "bigint": exp.DType.BIGINT,
    "double": exp.DType.DOUBLE,
    "string": exp.DType.TEXT,
    "boolean": exp.DType.BOOLEAN,
    "date": exp.DType.DATE,
    "to_date": exp.DType.DATE,
}
_INTEGERS = (exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT)
_REFUSED = {
    "initcap": "Spark's capitalises after blanks only",
    "array_agg": "Spark's leaves nulls out, in no order; use max, min, or PostgreSQL's dialect",
    "collect_list": "it leaves nulls out, in no order; use max, min, or PostgreSQL's dialect",
    "posexplode": "use explode",
    "inline": "use explode",
    "stack": "use explode",
    "json_tuple": "use explode",
}
_PARTS = ("year", "quarter", "month", "day", "hour", "minute", "second")


class SparkSql(Spark):
    class Tokenizer(Spark.Tokenizer):
        SINGLE_TOKENS = {**Spark.Tokenizer.SINGLE_TOKENS, "$": TokenType.PARAMETER}  # noqa: RUF012
        VAR_SINGLE_TOKENS = set[str]()  # noqa: RUF012

    class Parser(Spark.Parser):
        STRICT_CAST = True
        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
        NO_PAREN_FUNCTIONS: dict[Any, Any] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: Spark.Parser.FUNCTION_PARSERS[name] for name in OWN_GRAMMAR
        }


class AroundSpark(TidemarkSql):
    """Statements of ours with a query in Spark SQL somewhere: what is quoted ends where it does
    there, so that nothing within a string looks like the query's end."""

    class Tokenizer(TidemarkSql.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012
        IDENTIFIER_ESCAPES = ["\\"]  # noqa: RUF012
        STRING_ESCAPES = ["\\"]  # noqa: RUF012


SPARK = SparkSql()
AROUND_SPARK = AroundSpark()


def joined_text(tokens: list[Token], sql: str) -> list[Token]:
    """The tokens with `'it''s'` as one string, as Spark has it since 4.0; sqlglot finds two."""
    found: list[Token] = []
    for token in tokens:
        last = found[-1] if found else None
        if (
            last is not None
            and last.token_type == token.token_type == TokenType.STRING
            and last.end + 1 == token.start
            and sql[last.end] == sql[token.start]
        ):
            text = f"{last.text}{sql[token.start]}{token.text}"
            found[-1] = Token(
                TokenType.STRING,
                text,
                line=token.line,
                col=token.col,
                start=last.start,
                end=token.end,
                comments=token.comments,
            )
        else:
            found.append(token)
    return found


def translated(tree: exp.Expr) -> exp.Expr:
    """A query that was parsed as Spark SQL, in the words of the planner."""
    tree = tree.copy()
    # From the leaves up: what is put in place of a node has its children as they should be.
    for node in reversed(list(tree.walk())):
        try:
            made = _node(node)
        except Unsupported as error:
            raise error.at(start_of(node)) from None
        if made is not node and (start := start_of(node)) is not None:
            made.meta.setdefault("start", start)
        if node is tree:
            tree = made
        elif made is not node:
            node.replace(made)
    return tree


def _node(node: exp.Expr) -> exp.Expr:
    match node:
        case exp.Identifier():
            # Spark's names have no case, in backticks or not.
            return exp.to_identifier(node.name.lower(), quoted=node.quoted)
        case exp.Div():
            return exp.Div(
                this=exp.Anonymous(this=AS_FRACTION, expressions=[node.this]),
                expression=node.expression,
            )
        case exp.IntDiv():
            return exp.Div(this=_bigint(node.this), expression=_bigint(node.expression))
        case exp.Any() if not isinstance(node.parent, exp.Binary):
            return exp.Anonymous(this=_SAME["any"], expressions=[node.this])
        case exp.If() if not isinstance(node.parent, exp.Case):
            branch = exp.If(this=node.this, true=node.args["true"])
            return exp.Case(ifs=[branch], default=node.args.get("false"))
        case exp.Group() if any(not each.expressions for each in _open_sets(node)):
            return _closed(node)
        case exp.Cast() if node.args["to"].this in _INTEGERS:
            node.set("this", exp.Anonymous(this=TOWARD_ZERO, expressions=[node.this]))
            return node
        case exp.Literal() if not node.is_string and "e" in node.name.lower():
            return exp.cast(node, exp.DType.DOUBLE)
        case exp.Bracket() | exp.Array():
            raise Unsupported(
                "[ ] is not supported in Spark's dialect", hint="there, the first element is [0]"
            )
        case exp.RawString():
            return exp.Literal.string(node.name)
        case exp.Substring():
            node.set("start", _first_place(node.args.get("start")))
            return node
        case exp.Anonymous():
            return _function(node)
    return node


def _function(node: exp.Anonymous) -> exp.Expr:
    name, args = str(node.this).lower(), node.expressions
    if name == "concat" and args:
        # Null as soon as one part is; PostgreSQL's leaves nulls out.
        joined = _text(args[0])
        for arg in args[1:]:
            joined = exp.DPipe(this=joined, expression=_text(arg))
        return exp.Paren(this=joined)
    if name == "array":
        return exp.Array(expressions=args)
    if name == "log" and len(args) == 1:
        return exp.Anonymous(this="ln", expressions=args)
    if _SAME.get(name, name) in _PARTS and len(args) == 1:
        part = exp.Extract(this=exp.Var(this=_SAME.get(name, name)), expression=args[0])
        return exp.cast(part, exp.DType.INT)
    if name in _REFUSED:
        raise Unsupported(f"{name} is not supported in Spark's dialect", hint=_REFUSED[name])
    if name in _CASTS and len(args) == 1:
        return _node(exp.cast(args[0], _CASTS[name]))
    if name in ("isnull", "isnotnull") and len(args) == 1:
        test = exp.Is(this=args[0], expression=exp.null())
        return exp.Paren(this=test if name == "isnull" else exp.Not(this=test))
    if name == "count_if" and len(args) == 1:
        every = exp.Anonymous(this="count", expressions=[exp.Star()])
        return exp.Filter(this=every, expression=exp.Where(this=args[0]))
    if name in ("date_add", "date_sub") and len(args) == 2:
        made = exp.Add if name == "date_add" else exp.Sub
        return exp.Paren(this=made(this=_date(args[0]), expression=exp.Paren(this=args[1])))
    if name == "datediff" and len(args) == 2:
        return exp.Paren(this=exp.Sub(this=_date(args[0]), expression=_date(args[1])))
    if name == "regexp_replace" and len(args) == 3:
        args = [*args, exp.Literal.string("g")]
    if _SAME.get(name, name) == "substring" and len(args) > 1:
        args = [args[0], _first_place(args[1]), *args[2:]]
    return exp.Anonymous(this=_SAME.get(name, name), expressions=args)


def _open_sets(group: exp.Group) -> list[exp.Expr]:
    return [*(group.args.get("rollup") or []), *(group.args.get("cube") or [])]


def _closed(group: exp.Group) -> exp.Group:
    """`GROUP BY a, b WITH ROLLUP` as `GROUP BY ROLLUP (a, b)`."""
    kind = type(_open_sets(group)[0])
    return exp.Group(expressions=[kind(expressions=group.expressions)])


def _first_place(start: exp.Expr | None) -> exp.Expr:
    """Where a substring starts: places count from one in both, but Spark takes zero for one and
    counts from the end below it."""
    if isinstance(start, exp.Literal) and start.name.isdecimal():
        return exp.Literal.number(max(int(start.name), 1))
    raise Unsupported(
        "substring from a place that is negative or not a constant is not supported in Spark's"
        " dialect",
        hint="use right(text, n), or PostgreSQL's dialect",
    )


def _date(node: exp.Expr) -> exp.Expr:
    return exp.cast(node, exp.DType.DATE)


def _bigint(node: exp.Expr) -> exp.Expr:
    return exp.cast(node, exp.DType.BIGINT)


def _text(node: exp.Expr) -> exp.Expr:
    return exp.cast(node, exp.DType.TEXT)
