"""Parameters of statements: where they stand, and what is given for them."""

from __future__ import annotations

from collections.abc import Iterable, Set

from sqlglot import exp

from tidemark.compute.expr import Asked, Lit, Told
from tidemark.compute.literals import UNKNOWN, converted, typed
from tidemark.compute.sql.dialect import parameter_number
from tidemark.control import statements as s
from tidemark.control.pg.casts import type_name
from tidemark.control.pg.types import type_oid
from tidemark.control.pgwire import Param
from tidemark.errors import SqlError
from tidemark.types import TEXT, Column, SqlType, array_of, type_named

TYPES = {
    type_named(name).oid: type_named(name)
    for name in (
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "double precision",
        "date",
        "timestamp",
        "timestamptz",
        "interval",
        "numeric",
        "bytea",
        "jsonb",
    )
}
"""By oid, of those that say something: text may be anything that is sent as text."""

_TEXT_OIDS = (25, 1043, 1042, 19)


def said_types(trees: list[exp.Expr], columns: tuple[Column, ...]) -> dict[int, int]:
    """The types of parameters, by number, where the statement says them: `$1::oid[]`, and VALUES
    that go straight into `columns` of a table. Drivers that send all in binary go by them."""
    found: dict[int, int] = {}
    for tree in trees:
        for node in tree.find_all(exp.Parameter):
            cast = node.parent
            if isinstance(cast, exp.Cast) and cast.this is node:
                name, is_array = type_name(cast.args["to"])
                oid = type_oid(name + "[]" * is_array)
                if oid is not None:
                    found.setdefault(parameter_number(node), oid)
        for row in tree.expressions if isinstance(tree, exp.Values) else ():
            for node, column in zip(row.expressions, columns, strict=False):
                if isinstance(node, exp.Parameter):
                    found.setdefault(parameter_number(node), column.type.oid)
    return found


def asked(oids: Iterable[int]) -> tuple[Lit, ...]:
    """Parameters while a statement is prepared; of those without a type it is noted what they are
    taken for."""
    return tuple(
        Lit(None, TYPES.get(oid, UNKNOWN)) if oid else Asked(None, UNKNOWN, Told()) for oid in oids
    )


def taken_for(params: tuple[Lit, ...]) -> dict[int, int]:
    """The types that were noted, by place: the first of each, but for text, which anything may be
    sent as."""
    found: dict[int, int] = {}
    for at, param in enumerate(params):
        types = param.told.types if isinstance(param, Asked) else []
        first = next((type_.oid for type_ in types if type_ != TEXT), None)
        if first in _INFERRED:
            found[at] = first
    return found


_INFERRED = {*TYPES, *(array_of(each).oid for each in (TEXT, *TYPES.values()))}


def literals(params: tuple[Param, ...], inferred: Set[int]) -> tuple[Lit, ...]:
    """Parameters as literals; what was `inferred` its context says again."""
    return tuple(
        Lit(param.value_text, UNKNOWN) if at in inferred else literal(param)
        for at, param in enumerate(params)
    )


def literal(param: Param) -> Lit:
    """A parameter as a literal: of its type if the client said one, else of its context's."""
    type_: SqlType | None = TYPES.get(param.oid)
    if param.value_text is None:
        return Lit(None, type_ or UNKNOWN)
    if param.oid in _TEXT_OIDS or type_ is None:
        # Clients send text both for strings and for "you know better": the context decides.
        return Lit(param.value_text, UNKNOWN)
    return typed(param.value_text, type_)


def argument(argument: Lit, oid: int) -> Lit:
    """An argument of EXECUTE as its parameter's type; if nobody has said one, as it is."""
    if argument.type == TEXT:
        argument = Lit(argument.value, UNKNOWN)  # a quoted literal
    type_ = TYPES.get(oid)
    if type_ is None:
        return argument
    made = converted(argument, type_)
    if made is None:
        raise SqlError(
            f"parameter of type {type_} cannot be given a value of type {argument.type}",
            hint="you will need to rewrite or cast the expression",
            sqlstate="42804",
        )
    return made


def trees(statement: s.Statement) -> list[exp.Expr]:
    """What there is in a statement that may have parameters."""
    match statement:
        case s.Declare(statement=inner):
            return trees(inner)
        case s.ExecutePrepared(arguments=arguments):
            return [] if arguments is None else [arguments.tree]
        case s.Select(query=query) | s.CopyTo(statement=s.Select(query=query)):
            return [query.tree]
        case s.Subscribe(query=query) | s.CopyTo(statement=s.Subscribe(query=query)):
            return [query.tree] if query is not None else []
        case s.Insert(query=query):
            return [query.tree] if query is not None else []
        case s.Update(assignments=assignments, where=where, source=source):
            found = (*(tree for _, tree in assignments), source, where)
            return [tree for tree in found if tree is not None]
        case s.Delete(where=where, source=source):
            return [tree for tree in (source, where) if tree is not None]
        case s.Explain(query=query):
            return [query.tree] if query is not None else []
        case _:
            return []
