"""Queries as small trees: printed as PostgreSQL's SQL (which is ours too), and cut down.

A tree need not know what it means: `Expr` is a template with arguments, so any part can be
replaced by a simpler one of its type. What a cut breaks (a name that is gone, an aggregate without
its GROUP BY) PostgreSQL refuses, and the shrinker tries another.

Where several answers would be right the printed text asks for one: LIMIT and DISTINCT ON order by
all output columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

LITERALS = {
    "integer": "1",
    "bigint": "CAST(1 AS bigint)",
    "numeric": "1.5",
    "text": "'a'",
    "date": "DATE '2024-02-28'",
    "timestamp": "TIMESTAMP '2024-02-28 07:30:15'",
    "boolean": "true",
}


@dataclass(frozen=True, slots=True)
class Expr:
    """`template` with `{0}`, `{1}`, ... for its arguments; `type` is a key of `LITERALS`, or one
    that only comes out at the top (`integer[]`)."""

    type: str
    template: str
    args: tuple[Expr | Query, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table or the name of a WITH."""

    name: str
    alias: str


@dataclass(frozen=True, slots=True)
class Derived:
    query: Query
    alias: str
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    call: Expr
    alias: str
    column: str


@dataclass(frozen=True, slots=True)
class Joined:
    """`kind` as SQL writes it; no `on` for a cross join, nor where columns are `using`."""

    kind: str
    left: From
    right: From
    on: tuple[Expr, ...]
    using: str = ""


@dataclass(frozen=True, slots=True)
class Values:
    rows: tuple[tuple[Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class Sorting:
    """How the output columns are ordered, one after the other and over again."""

    directions: tuple[str, ...]
    limit: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Select:
    """`grouping` is how `keys` group: "" plainly, else ROLLUP, CUBE or SETS; None not at all.
    `distinct_on` is by how many leading columns."""

    items: tuple[Expr, ...]
    source: From | None = None
    where: tuple[Expr, ...] = ()
    grouping: str | None = None
    keys: tuple[Expr, ...] = ()
    having: tuple[Expr, ...] = ()
    distinct: bool = False
    distinct_on: int = 0
    sorting: Sorting | None = None


@dataclass(frozen=True, slots=True)
class SetOperation:
    operator: str
    left: Query
    right: Query
    sorting: Sorting | None = None


@dataclass(frozen=True, slots=True)
class With:
    name: str
    value: Query
    body: Query


From: TypeAlias = Table | Derived | Function | Joined
Query: TypeAlias = Select | SetOperation | Values | With
Node: TypeAlias = Any


def sql(node: Node) -> str:
    match node:
        case Expr(template=template, args=args):
            return template.format(*(sql(arg) for arg in args))
        case Table(name=name, alias=alias):
            return f"{name} AS {alias}"
        case Derived(query=query, alias=alias, lateral=lateral):
            named = f" ({', '.join(f'c{i}' for i in range(width(query)))})"
            columns = named if isinstance(query, Values) else ""
            return f"{'LATERAL ' if lateral else ''}({sql(query)}) AS {alias}{columns}"
        case Function(call=call, alias=alias, column=column):
            return f"{sql(call)} AS {alias} ({column})"
        case Joined(kind=kind, left=left, right=right, on=on):
            condition = "" if kind == "CROSS JOIN" else f" ON {_all(on)}"
            if node.using:
                condition = f" USING ({node.using})"
            inner = f"({sql(right)})" if isinstance(right, Joined) else sql(right)
            return f"{sql(left)} {kind} {inner}{condition}"
        case Values(rows=rows):
            return f"VALUES {', '.join(f'({_list(row)})' for row in rows)}"
        case Select():
            return _select(node)
        case SetOperation(operator=operator, left=left, right=right, sorting=sorting):
            order = _order(sorting, width(node)) if sorting else ""
            return f"({sql(left)}) {operator} ({sql(right)}){order}"
        case With(name=name, value=value, body=body):
            return f"WITH {name} AS ({sql(value)}) {sql(body)}"
    raise TypeError(node)


def width(query: Query) -> int:
    match query:
        case Select(items=items):
            return len(items)
        case Values(rows=rows):
            return len(rows[0])
        case SetOperation(left=left):
            return width(left)
        case With(body=body):
            return width(body)


def _select(node: Select) -> str:
    parts = ["SELECT"]
    if node.distinct_on:
        parts.append(f"DISTINCT ON ({', '.join(f'c{i}' for i in range(node.distinct_on))})")
    elif node.distinct:
        parts.append("DISTINCT")
    parts.append(", ".join(f"{sql(item)} AS c{i}" for i, item in enumerate(node.items)))
    if node.source is not None:
        parts.append(f"FROM {sql(node.source)}")
    if node.where:
        parts.append(f"WHERE {_all(node.where)}")
    if node.grouping is not None and node.keys:
        parts.append(f"GROUP BY {_grouping(node)}")
    if node.having:
        parts.append(f"HAVING {_all(node.having)}")
    text = " ".join(parts)
    if node.sorting is not None:
        return text + _order(node.sorting, len(node.items))
    if node.distinct_on:
        return f"{text} ORDER BY {', '.join(f'{i + 1}' for i in range(len(node.items)))}"
    return text


def _grouping(node: Select) -> str:
    keys = _list(node.keys)
    if node.grouping == "SETS":
        singles = ", ".join(f"({sql(key)})" for key in node.keys)
        return f"GROUPING SETS (({keys}), {singles}, ())"
    return f"{node.grouping}({keys})" if node.grouping else keys


def _order(sorting: Sorting, columns: int) -> str:
    by = [f"{i + 1}{sorting.directions[i % len(sorting.directions)]}" for i in range(columns)]
    offset = f" OFFSET {sorting.offset}" if sorting.offset else ""
    return f" ORDER BY {', '.join(by)} LIMIT {sorting.limit}{offset}"


def _all(conditions: tuple[Expr, ...]) -> str:
    return " AND ".join(sql(each) for each in conditions) or "true"


def _list(nodes: tuple[Node, ...]) -> str:
    return ", ".join(sql(node) for node in nodes)


# Cutting down -----------------------------------------------------------------------------------


def size(node: Node) -> int:
    return len(sql(node))


def tables_of(node: Node) -> set[str]:
    return {each.name for each in walk(node) if isinstance(each, Table)}


def walk(node: Node) -> Iterator[Node]:
    yield node
    for _, child in _children(node):
        yield from walk(child)


def simpler(node: Node) -> Iterator[Node]:
    """Trees with one thing less, roughly the largest cuts first."""
    yield from _instead(node)
    yield from _without_a_part(node)
    for place, child in _children(node):
        for smaller in simpler(child):
            yield _put(node, place, smaller)


def _instead(node: Node) -> Iterator[Node]:
    """What may stand where `node` stands."""
    match node:
        case Expr(type=type_, args=args):
            if type_ in LITERALS and args:
                yield Expr(type_, LITERALS[type_])
            yield from (arg for arg in args if isinstance(arg, Expr) and arg.type == type_)
        case SetOperation(left=left, right=right):
            yield left
            yield right
        case With(name=name, value=value, body=body):
            yield value
            yield body
            yield _inlined(body, name, value)
        case Select(source=Derived(query=query)):
            yield query
        case Joined(left=left, right=right):
            yield left
            yield right


def _without_a_part(node: Node) -> Iterator[Node]:
    match node:
        case Select():
            yield from _without_a_join(node)
            if len(node.items) > 1:
                for at in range(len(node.items)):
                    yield replace(node, items=node.items[:at] + node.items[at + 1 :])
            for name in ("where", "having", "keys"):
                parts = getattr(node, name)
                for at in range(len(parts)):
                    yield replace(node, **{name: parts[:at] + parts[at + 1 :]})
            if node.grouping:
                yield replace(node, grouping="")
            if node.distinct or node.distinct_on:
                yield replace(node, distinct=False, distinct_on=0)
            if node.sorting is not None:
                yield replace(node, sorting=None)
        case SetOperation(sorting=Sorting()):
            yield replace(node, sorting=None)
        case Joined(on=on):
            for at in range(len(on)):
                yield replace(node, on=on[:at] + on[at + 1 :])
            if node.kind not in ("CROSS JOIN", "JOIN"):
                yield replace(node, kind="JOIN")
        case Values(rows=rows) if len(rows) > 1:
            for at in range(len(rows)):
                yield replace(node, rows=rows[:at] + rows[at + 1 :])


def _without_a_join(node: Select) -> Iterator[Node]:
    """One side of a join alone, with literals where the other side's columns were."""
    for joined in walk(node.source) if node.source is not None else ():
        if isinstance(joined, Joined):
            for kept, gone in ((joined.left, joined.right), (joined.right, joined.left)):
                cut = replace(node, source=_replaced(node.source, joined, kept))
                yield _without_columns(cut, _aliases(gone))


def _inlined(node: Node, name: str, value: Query) -> Node:
    if isinstance(node, Table) and node.name == name:
        return Derived(value, node.alias)
    return _mapped(node, lambda child: _inlined(child, name, value))


def _replaced(node: Node, old: Node, new: Node) -> Node:
    return new if node is old else _mapped(node, lambda child: _replaced(child, old, new))


def _without_columns(node: Node, aliases: set[str]) -> Node:
    if isinstance(node, Expr) and not node.args:
        found = re.match(r"(\w+)\.\w+$", node.template)
        if found and found.group(1) in aliases and node.type in LITERALS:
            return Expr(node.type, LITERALS[node.type])
        return node
    return _mapped(node, lambda child: _without_columns(child, aliases))


def _aliases(node: From) -> set[str]:
    return {each.alias for each in walk(node) if isinstance(each, Table | Derived | Function)}


def _children(node: Node) -> list[tuple[tuple[str, int | None], Node]]:
    """Parts of a tree, each with its place: a field, and the position within."""
    found: list[tuple[tuple[str, int | None], Node]] = []
    if isinstance(node, tuple):
        return [(("", at), item) for at, item in enumerate(node)]
    if not hasattr(node, "__dataclass_fields__"):
        return found
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, tuple):
            found += [((field.name, at), item) for at, item in enumerate(value)]
        elif hasattr(value, "__dataclass_fields__"):
            found.append(((field.name, None), value))
    return found


def _put(node: Node, place: tuple[str, int | None], child: Node) -> Node:
    name, at = place
    if isinstance(node, tuple):
        return (*node[:at], child, *node[at + 1 :])
    if at is None:
        return replace(node, **{name: child})
    items = getattr(node, name)
    return replace(node, **{name: (*items[:at], child, *items[at + 1 :])})


def _mapped(node: Node, change: Any) -> Node:
    for place, child in _children(node):
        changed = change(child)
        if changed is not child:
            node = _put(node, place, changed)
    return node
