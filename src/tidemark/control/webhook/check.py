"""A source's CHECK: SQL into a typed condition, and whether a request meets it.

A condition sees what its WITH names and nothing else. Secrets have their values only while a
request is looked at; a condition that fails says so, and never why: whoever sends requests must
not learn from that what would pass.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import structlog
from sqlglot import exp

from tidemark.compute.expr import Call, Col, Expr
from tidemark.compute.functions import call
from tidemark.compute.sql.dialect import identifier
from tidemark.compute.sql.expressions import Expressions
from tidemark.compute.sql.scope import Scope
from tidemark.control.webhook.body import Headers, header_json, text_of
from tidemark.control.webhook.evaluate import check_possible, evaluate
from tidemark.control.webhook.functions import OWN, own_call
from tidemark.control.webhook.spec import Check, Given
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BYTEA, JSONB, TEXT, TIMESTAMPTZ, Column, SqlType

log = structlog.get_logger("webhook")

_NOW = ("now", "current_timestamp")


def planned_check(condition: exp.Expr, named: list[tuple[str, Given]]) -> Check:
    """The condition over what WITH has `named`, as users call it."""
    columns = tuple(Column(name, _type(given)) for name, given in named)
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise SqlError(
                f'WITH names "{name}" more than once', hint="call one of them something else: AS x"
            )
    given = [each for _, each in named]
    planner = Expressions(_scope(columns), "CHECK", subqueries=_own(given))
    try:
        planned = planner.boolean(planner.plan(condition))
    except SqlError as error:
        if error.sqlstate == "42703":
            hint = "name what the condition uses: CHECK (WITH (HEADERS, BODY, SECRET s) ...)"
            raise SqlError(error.message, hint=hint, sqlstate="42703") from None
        raise
    check_possible(planned)
    return Check(tuple(given), planned)


def passes(
    check: Check,
    headers: Headers,
    body: bytes,
    *,
    secret: Callable[[str], str],
    now: dt.datetime,
) -> bool:
    """Whether a request meets the condition; `secret` gives a secret's value by its id."""
    row = [_value(given, headers, body, secret, now) for given in check.given]
    try:
        return evaluate(check.condition, row) is True
    except Exception as error:
        # Its text may say what was compared with what.
        log.debug("a CHECK could not be evaluated", error=type(error).__name__)
        return False


def _scope(columns: tuple[Column, ...]) -> Scope:
    scope = Scope()
    scope.add(None, columns, ())
    return scope


def _own(given: list[Given]) -> Callable[[exp.Expr, Expressions], Expr | None]:
    """What is in a CHECK and in no other expression, for the planner to ask first."""

    def plan(node: exp.Expr, planner: Expressions) -> Expr | None:
        match node:
            case exp.Anonymous() if (name := identifier(node.this)) in OWN:
                return own_call(name, tuple(planner.plan(arg) for arg in node.expressions))
            case exp.Anonymous() if identifier(node.this) in _NOW:
                return _now(given)
            case exp.Column(this=exp.Identifier(quoted=False)) if node.name.lower() in _NOW[1:]:
                return _now(given)
            case exp.JSONExtract(this=subject, expression=key):
                return _header(planner.plan(subject), planner.plan(key), given)
            case exp.DPipe(this=left, expression=right):
                sides = planner.plan(left), planner.plan(right)
                if all(side.type == BYTEA for side in sides):
                    return Call("||", sides, BYTEA)
                return call("||", sides)
            case exp.Subquery() | exp.Select() | exp.Exists():
                raise Unsupported(
                    "a CHECK cannot read relations", hint="it sees the request and secrets"
                )
        return None

    return plan


def _header(subject: Expr, key: Expr, given: list[Given]) -> Expr:
    """`headers -> 'x'` is text: headers are a map of texts, though kept as jsonb."""
    is_headers = isinstance(subject, Col) and given[subject.index].what == "headers"
    return call("->>" if is_headers else "->", (subject, key))


def _now(given: list[Given]) -> Expr:
    """The time of the request: a column of its own, behind those that have names."""
    now = Given("now")
    if now not in given:
        given.append(now)
    return Col(given.index(now), TIMESTAMPTZ)


def _type(given: Given) -> SqlType:
    return JSONB if given.what == "headers" else BYTEA if given.as_bytes else TEXT


def _value(
    given: Given, headers: Headers, body: bytes, secret: Callable[[str], str], now: dt.datetime
) -> Any:
    match given.what:
        case "headers":
            return header_json({n: text_of(v, f"header {n}") for n, v in headers.items()})
        case "body":
            return body if given.as_bytes else text_of(body, "body")
        case "secret":
            value = secret(given.secret)
            return value.encode() if given.as_bytes else value
        case "now":
            return now
