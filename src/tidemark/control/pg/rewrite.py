"""A query in PostgreSQL's SQL as one that DuckDB runs.

The two are close: DuckDB's grammar began as PostgreSQL's. What is left to do is `_STEPS`. Every
step takes the tree and puts other nodes into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from tidemark.compute.expr import Lit
from tidemark.compute.literals import UNKNOWN
from tidemark.compute.sql.dialect import identifier, parameter_number
from tidemark.compute.sql.output_names import output_name
from tidemark.compute.sql.spark_dialect import AS_FRACTION, TOWARD_ZERO
from tidemark.control.pg.casts import cast, first_select, put_arrays, put_casts, reg, wrap
from tidemark.errors import Unsupported
from tidemark.types import SqlType

SCALARS_IN_FROM = ("string_to_array",)
"""Functions of one row that may stand in FROM."""

_SCHEMAS = ("pg_catalog", "information_schema")
_BARE = (
    *("current_user", "current_role", "session_user", "user"),
    *("current_catalog", "current_schema"),
)
"""What the session answers without parentheses."""

_RENAMED = {
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "json_agg": "json_group_array",
    "jsonb_agg": "json_group_array",
    "row_to_json": "to_json",
}
_OPERATORS: dict[str, Callable[[exp.Expr, exp.Expr], exp.Expr]] = {
    "~": lambda a, b: exp.RegexpLike(this=a, expression=b),
    "!~": lambda a, b: exp.Not(this=exp.RegexpLike(this=a, expression=b)),
    "~*": lambda a, b: exp.RegexpILike(this=a, expression=b),
    "!~*": lambda a, b: exp.Not(this=exp.RegexpILike(this=a, expression=b)),
    "~~": lambda a, b: exp.Like(this=a, expression=b),
    "!~~": lambda a, b: exp.Not(this=exp.Like(this=a, expression=b)),
    "=": lambda a, b: exp.EQ(this=a, expression=b),
    "<>": lambda a, b: exp.NEQ(this=a, expression=b),
    "+": lambda a, b: exp.Add(this=a, expression=b),
}


class _Dialect(DuckDB):
    INDEX_OFFSET = 0  # Subscripts are as they were written: both begin at 1.


class Context:
    """What a rewritten query depends on: which of its tables are which relations, its parameters,
    what the session answers, which columns are arrays, and what names mean in casts."""

    def __init__(
        self,
        relations: list[tuple[exp.Table, str]],
        params: tuple[Lit, ...],
        answers: Mapping[str, Callable[..., exp.Expr]],
        arrays: Mapping[str, SqlType],
        oid: Callable[[str, str], int],
    ):
        self.relations = relations
        self.params = params
        self.answers = answers
        self.arrays = arrays
        self.oid = oid


def duckdb_sql(tree: exp.Expr, context: Context) -> str:
    """`tree` is taken apart: give it a copy, the one that `context.relations` is about."""
    for step in _STEPS:
        tree = step(tree, context)
    return tree.sql(dialect=_Dialect, identify=True, normalize_functions=False)


def _name_outputs(tree: exp.Expr, _: Context) -> exp.Expr:
    """DuckDB names columns in its own way; the first SELECT of a union names them all."""
    query = first_select(tree)
    if query is not None:
        named = [
            each
            if isinstance(each, exp.Alias | exp.Star)
            or (isinstance(each, exp.Column) and not _is_asked(each))
            else exp.Alias(this=each, alias=exp.to_identifier(output_name(each), quoted=True))
            for each in query.expressions
        ]
        query.set("expressions", named)
    return tree


def _fold_names(tree: exp.Expr, _: Context) -> exp.Expr:
    for node in tree.find_all(exp.Identifier):
        if not node.quoted:
            node.set("this", node.this.lower())
    return tree


def _put_parameters(tree: exp.Expr, context: Context) -> exp.Expr:
    for node in list(tree.find_all(exp.Parameter)):
        literal = context.params[parameter_number(node) - 1]
        value = exp.null() if literal.value is None else exp.Literal.string(literal.value)
        if literal.type != UNKNOWN:
            value = cast(value, str(literal.type))
        node.replace(value)
    return tree


def _name_relations(tree: exp.Expr, context: Context) -> exp.Expr:
    """Each by its id, under the name that the rest of the query calls it."""
    ids: dict[str, str] = {}
    for node, id_ in context.relations:
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name))
        ids[identifier(alias.this)] = id_
        node.set("this", exp.to_identifier(id_, quoted=True))
        node.set("db", None)
        node.set("catalog", None)
        node.set("alias", alias)
    for column in list(tree.find_all(exp.Column)):
        column.set("db", None)
        column.set("catalog", None)
        if column.name == "tableoid":
            id_ = ids.get(column.table) or (next(iter(ids.values())) if len(ids) == 1 else "")
            column.replace(reg("regclass", exp.Literal.string(id_), as_text=False))
    return tree


def _take_schemas_off(tree: exp.Expr, _: Context) -> exp.Expr:
    """`pg_catalog.format_type(...)`: functions have one name here."""
    for node in list(tree.find_all(exp.Dot)):
        schema, call = node.this, node.expression
        if isinstance(schema, exp.Identifier) and schema.name in _SCHEMAS:
            node.replace(call)
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Anonymous):
            node.set("db", None)
    return tree


def _put_operators(tree: exp.Expr, _: Context) -> exp.Expr:
    for node in list(tree.find_all(exp.Operator)):
        sign = str(node.args["operator"]).strip().removeprefix("pg_catalog.")
        if sign not in _OPERATORS:
            raise Unsupported(f"operator {sign} is not supported in a query of the catalog")
        node.replace(_OPERATORS[sign](node.this, node.expression))
    for node in list(tree.find_all(exp.Collate)):
        node.replace(node.this)
    return tree


def _put_escapes(tree: exp.Expr, _: Context) -> exp.Expr:
    """In PostgreSQL a backslash escapes what LIKE would match, unless the query says otherwise."""
    for node in list(tree.find_all(exp.Like, exp.ILike)):
        if not isinstance(node.parent, exp.Escape):
            wrap(node, lambda like: exp.Escape(this=like, expression=exp.Literal.string("\\")))
    return tree


def _answer(tree: exp.Expr, context: Context) -> exp.Expr:
    """What the session knows, with or without parentheses: `current_user`, `current_schemas(true)`."""
    for node in list(tree.find_all(exp.Anonymous, exp.Column)):
        if isinstance(node, exp.Column):
            if _is_asked(node):
                node.replace(context.answers[node.name]())
            continue
        name = identifier(node.this)
        node.set("this", _RENAMED.get(name, name))
        if name in context.answers:
            node.replace(context.answers[name](*node.expressions))
        elif name == "generate_series" and not isinstance(node.parent, exp.Table):
            wrap(node, lambda call: exp.Anonymous(this="unnest", expressions=[call]))
    return tree


def _is_asked(node: exp.Column) -> bool:
    """Whether the session answers it: a word that looks like a column and is none."""
    is_bare = node.table == "" and isinstance(node.this, exp.Identifier)
    return is_bare and not node.this.quoted and node.name in _BARE


def _put_sources(tree: exp.Expr, _: Context) -> exp.Expr:
    """Functions in FROM: the column that they give has the alias's name."""
    for node in list(tree.find_all(exp.Table)):
        call, alias = node.this, node.args.get("alias")
        if not isinstance(call, exp.Anonymous) or alias is None:
            continue
        if call.name in SCALARS_IN_FROM:
            query = exp.select(exp.Alias(this=call.copy(), alias=alias.this.copy()), copy=False)
            node.replace(exp.Subquery(this=query, alias=alias.copy()))
        elif not alias.columns and call.name != "pg_get_keywords":
            alias.set("columns", [alias.this.copy()])
    for node in list(tree.find_all(exp.Unnest)):
        if len(node.expressions) > 1:
            node.replace(_together(node))
    return tree


def _together(node: exp.Unnest) -> exp.Expr:
    """`unnest(a, b) WITH ORDINALITY t(x, y, n)`: DuckDB does that only where columns are chosen."""
    lists = [exp.Anonymous(this="unnest", expressions=[each.copy()]) for each in node.expressions]
    alias, offset = node.args["alias"].copy(), node.args.get("offset")
    if isinstance(offset, exp.Identifier):
        first = node.expressions[0].copy()
        one = exp.Literal.number(1)
        lists.append(exp.Anonymous(this="generate_subscripts", expressions=[first, one]))
        alias.append("columns", offset.copy())
    return exp.Lateral(this=exp.Subquery(this=exp.select(*lists, copy=False)), alias=alias)


def _group_by_place(tree: exp.Expr, _: Context) -> exp.Expr:
    """A name that is both an output's and a relation's means the output; to DuckDB, the row."""
    for query in tree.find_all(exp.Select):
        relations = {each.alias_or_name for each in _sources(query)}
        outputs = [each.alias if isinstance(each, exp.Alias) else "" for each in query.expressions]
        for clause in (query.args.get("group"), query.args.get("order")):
            for node in clause.expressions if clause is not None else ():
                column = node.this if isinstance(node, exp.Ordered) else node
                is_bare = isinstance(column, exp.Column) and not column.table
                if is_bare and column.name in relations and column.name in outputs:
                    column.replace(exp.Literal.number(outputs.index(column.name) + 1))
    return tree


def _sources(query: exp.Select) -> list[exp.Expr]:
    from_ = query.args.get("from_")
    joined = [join.this for join in query.args.get("joins") or ()]
    return [from_.this, *joined] if from_ is not None else joined


def _put_fractions(tree: exp.Expr, _: Context) -> exp.Expr:
    """What Spark's dialect leaves in a tree; the catalog's own numbers are all integers."""
    for node in list(tree.find_all(exp.Anonymous)):
        if node.this == AS_FRACTION:
            node.replace(cast(node.expressions[0], "double precision"))
        elif node.this == TOWARD_ZERO:
            node.replace(node.expressions[0])
    return tree


def _put_averages(tree: exp.Expr, _: Context) -> exp.Expr:
    """An average is a numeric, with FILTER and OVER around it or not."""
    for node in list(tree.find_all(exp.Anonymous)):
        if node.name == "avg":
            whole: exp.Expr = node
            while isinstance(whole.parent, exp.Filter | exp.Window) and whole.arg_key == "this":
                whole = whole.parent
            wrap(whole, lambda average: cast(average, "numeric"))
    return tree


_STEPS = (
    _put_fractions,
    _put_parameters,
    _name_outputs,
    _name_relations,
    _take_schemas_off,
    _fold_names,
    _put_operators,
    _put_escapes,
    _answer,
    _put_sources,
    _group_by_place,
    put_casts,
    put_arrays,
    _put_averages,
)
