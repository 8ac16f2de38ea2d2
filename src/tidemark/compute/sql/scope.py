"""Names in scope: which relation and column of FROM a name refers to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from tidemark.compute.expr import Col
from tidemark.compute.plan import Get, Plan
from tidemark.errors import SqlError
from tidemark.types import Column


class Resolver(Protocol):
    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        """The relation so named; raises 42P01 if there is none.

        A view that is not materialized resolves to its plan and is inlined.
        """
        ...


@dataclass(frozen=True, slots=True)
class Relation:
    """One item of FROM: its name, and its columns from `offset` on in the flat join."""

    name: str | None
    columns: tuple[Column, ...]
    offset: int
    parts: tuple[str, ...] = ()

    @property
    def cols(self) -> list[Col]:
        return [Col(self.offset + at, column.type) for at, column in enumerate(self.columns)]


@dataclass(slots=True)
class Scope:
    """The relations of one FROM clause; `order` is what `*` shows.

    A column that USING merged into another is not in `order`; it can still be named through its
    relation.
    """

    relations: list[Relation] = field(default_factory=list)
    order: list[Col] = field(default_factory=list)
    width: int = 0

    def add(self, name: str | None, columns: tuple[Column, ...], parts: tuple[str, ...]) -> Scope:
        """Adds a relation behind the others; returns the scope of that relation alone."""
        if name is not None and any(relation.name == name for relation in self.relations):
            raise SqlError(f'table name "{name}" specified more than once', sqlstate="42712")
        relation = Relation(name, columns, self.width, parts)
        self.relations.append(relation)
        self.order += relation.cols
        self.width += len(columns)
        return Scope([relation], relation.cols, self.width)

    def column(self, parts: tuple[str, ...]) -> Col:
        """The column that `x`, `t.x` or `schema.t.x` names."""
        *qualifier, name = parts
        candidates = self._relation(tuple(qualifier)).cols if qualifier else self.order
        found = [col for col in candidates if self.name_of(col) == name]
        if not found:
            shown = ".".join(parts) if qualifier else f'"{name}"'
            raise SqlError(f"column {shown} does not exist", sqlstate="42703")
        if len(found) > 1:
            raise SqlError(f'column reference "{name}" is ambiguous', sqlstate="42702")
        return found[0]

    def star(self, qualifier: tuple[str, ...] = ()) -> list[Col]:
        return self._relation(qualifier).cols if qualifier else list(self.order)

    def name_of(self, col: Col) -> str:
        relation = self._relation_of(col)
        return relation.columns[col.index - relation.offset].name

    def qualified_name(self, col: Col) -> str:
        relation = self._relation_of(col)
        name = self.name_of(col)
        return f"{relation.name}.{name}" if relation.name else name

    def merge(
        self, left: Scope, right: Scope, names: list[str]
    ) -> tuple[list[tuple[Col, Col]], Scope]:
        """USING: the pairs of columns that must be equal, and what the joined scope shows."""
        pairs = [(left.column((name,)), right.column((name,))) for name in names]
        gone = {pair[0] for pair in pairs} | {pair[1] for pair in pairs}
        shown = [pair[0] for pair in pairs]
        shown += [col for col in [*left.order, *right.order] if col not in gone]
        joined = Scope([*left.relations, *right.relations], shown, self.width)
        before = [col for col in self.order if col not in left.order and col not in right.order]
        self.order = before + shown
        return pairs, joined

    def _relation(self, qualifier: tuple[str, ...]) -> Relation:
        for relation in self.relations:
            if relation.name != qualifier[-1]:
                continue
            if len(qualifier) > 1 and relation.parts[-len(qualifier) :] != qualifier:
                continue
            return relation
        raise SqlError(f'missing FROM-clause entry for table "{qualifier[-1]}"', sqlstate="42P01")

    def _relation_of(self, col: Col) -> Relation:
        return next(
            relation
            for relation in self.relations
            if relation.offset <= col.index < relation.offset + len(relation.columns)
        )
