"""Names in statements, made full: `qualified` is what is between a session and all that acts on it.

What is there is found through the search path, what is new goes into the first schema of it. A name
of nothing stays as it was said, and whoever needs it says that there is no such thing. Names inside
queries are resolved as they are planned (`names.py`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tidemark.control import statements as s
from tidemark.control.names import Names

_CREATED: dict[type, tuple[str, ...]] = {
    s.CreateTable: ("name",),
    s.CreateTableAs: ("name",),
    s.CreateSource: ("name",),
    s.CreateSecret: ("name",),
    s.CreateConnection: ("name",),
    s.CreateKafkaSource: ("name",),
    s.CreateWebhookSource: ("name",),
    s.CreateSink: ("name",),
    s.CreateView: ("name",),
    s.CreateMaterializedView: ("name",),
}
"""Fields that name what is to be made."""

_FOUND: dict[type, tuple[str, ...]] = {
    s.AlterSecret: ("name",),
    s.AlterConnection: ("name",),
    s.AlterObject: ("name",),
    s.MoveObject: ("name",),
    s.CreateKafkaSource: ("connection",),
    s.CreateSink: ("relation", "connection"),
    s.CreateIndex: ("relation",),
    s.ShowIndexes: ("relation",),
    s.ShowColumns: ("name",),
    s.ShowCreate: ("name",),
    s.Insert: ("table",),
    s.Update: ("table",),
    s.Delete: ("table",),
    s.Truncate: ("table",),
    s.CopyFrom: ("table",),
    s.Subscribe: ("name",),
    s.Verify: ("name",),
    s.Explain: ("name",),
}
"""Fields that name what is there."""


def qualified(statement: Any, names: Names) -> Any:
    """The statement with full names, wherever it is not a query that has them."""
    kind = type(statement)
    if kind is s.Select:
        return statement
    changes: dict[str, Any] = {}
    for field in _CREATED.get(kind, ()):
        changes[field] = names.created(getattr(statement, field))
    for field in _FOUND.get(kind, ()):
        if (name := getattr(statement, field)) is not None:
            changes[field] = names.located(name)
    match statement:
        case s.CopyTo() | s.Declare():
            changes["statement"] = qualified(statement.statement, names)
        case s.ShowMatching():
            changes["show"] = qualified(statement.show, names)
        case s.Explain() if statement.create is not None:
            changes["create"] = qualified(statement.create, names)
        case s.Comment(kind=None) if len(statement.name) > 1:
            # Of a column, whose name comes last.
            changes["name"] = (*names.located(statement.name[:-1]), statement.name[-1])
        case s.Comment(kind=str()):
            changes["name"] = names.located(statement.name)
        case s.CreateWebhookSource():
            changes["check_with"] = tuple(
                dataclasses.replace(each, secret=names.located(each.secret))
                if each.what == "secret"
                else each
                for each in statement.check_with
            )
        case s.Drop():
            changes["names"] = tuple(map(names.located, statement.names))
        case s.CreateConnection() | s.AlterConnection():
            changes["options"] = tuple(
                (option, _secret(value, names)) for option, value in statement.options
            )
        case s.CreateKafkaSource():
            changes["key"] = _format(statement.key, names)
            changes["value"] = _format(statement.value, names)
            if statement.progress is not None:
                changes["progress"] = names.created(statement.progress)
        case s.CreateIndex() if statement.name is not None:
            # An index is where its relation is.
            relation = names.find(statement.relation)
            where = relation.full_name[:2] if relation is not None else ()
            name = statement.name
            changes["name"] = names.created(name if len(name) > 1 else (*where, *name))
    return dataclasses.replace(statement, **changes) if changes else statement


def _secret(value: str | s.SecretNamed, names: Names) -> str | s.SecretNamed:
    if isinstance(value, s.SecretNamed):
        return s.SecretNamed(names.located(value.name))
    return value


def _format(format: s.Format | None, names: Names) -> s.Format | None:
    if format is None or format.registry is None:
        return format
    return dataclasses.replace(format, registry=names.located(format.registry))
