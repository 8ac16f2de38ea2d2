"""Names in scope: which relation and column of FROM a name refers to, here or further out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from tidemark.compute.expr import Col, Expr, shift
from tidemark.compute.plan import Get, Plan
from tidemark.compute.sql.correlation import outward
from tidemark.compute.sql.dialect import hint_of
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
    """One item of FROM: its name, and its columns from `offset` on in the join of all."""

    name: str | None
    columns: tuple[Column, ...]
    offset: int
    parts: tuple[str, ...] = ()

    @property
    def shown(self) -> list[Shown]:
        return [
            Shown(column.name, Col(self.offset + at, column.type))
            for at, column in enumerate(self.columns)
        ]


@dataclass(frozen=True, slots=True)
class Shown:
    """A column as a name finds it; what USING has merged may be more than one column."""

    name: str
    expr: Expr


@dataclass(slots=True)
class Scope:
    """The relations of one FROM clause; `order` is what `*` shows.

    A column that USING merged into another is not in `order`; it can still be named through its
    relation. What is not found here is looked for in `outer`, the scope of the query around.
    """

    relations: list[Relation] = field(default_factory=list)
    order: list[Shown] = field(default_factory=list)
    width: int = 0
    outer: Scope | None = None

    def add(self, name: str | None, columns: tuple[Column, ...], parts: tuple[str, ...]) -> None:
        """Adds a relation behind the others."""
        relation = Relation(name, columns, self.width, parts)
        self._check_new(relation)
        self.relations.append(relation)
        self.order += relation.shown
        self.width += len(columns)

    def beside(self, right: Scope) -> Scope:
        """Both scopes, the columns of `right` behind those of this one."""
        moved = right.moved(self.width)
        for relation in moved.relations:
            self._check_new(relation)
        return Scope(
            [*self.relations, *moved.relations],
            [*self.order, *moved.order],
            self.width + right.width,
            self.outer,
        )

    def moved(self, by: int) -> Scope:
        relations = [
            Relation(each.name, each.columns, each.offset + by, each.parts)
            for each in self.relations
        ]
        order = [Shown(each.name, shift(each.expr, by)) for each in self.order]
        return Scope(relations, order, self.width, self.outer)

    def column(self, parts: tuple[str, ...]) -> Expr:
        """The column that `x`, `t.x` or `schema.t.x` names."""
        *qualifier, name = parts
        if qualifier:
            relation = self._relation(tuple(qualifier))
            if relation is None and self.outer is not None:
                return outward(self.outer.column(parts))
            candidates = self._known(relation, tuple(qualifier)).shown
        else:
            candidates = self.order
        found = [each.expr for each in candidates if each.name == name]
        if len(found) > 1:
            raise SqlError(f'column reference "{name}" is ambiguous', sqlstate="42702")
        if found:
            return found[0]
        if not qualifier and (alone := self._value_of(name)) is not None:
            return alone
        shown = ".".join(parts) if qualifier else f'"{name}"'
        hint = hint_of(name, (each.name for each in candidates))
        missing = SqlError(f"column {shown} does not exist", hint=hint, sqlstate="42703")
        if qualifier or self.outer is None:
            raise missing
        try:
            return outward(self.outer.column(parts))
        except SqlError as further:
            raise (missing if further.sqlstate == "42703" else further) from None

    def _value_of(self, name: str) -> Expr | None:
        """Of `FROM jsonb_array_elements(j) AS e` both `e` and `e.value` are the element."""
        relation = self._relation((name,))
        if relation is None or [column.name for column in relation.columns] != ["value"]:
            return None
        return relation.shown[0].expr

    def has(self, name: str | None) -> bool:
        """Whether a column of this very FROM has that name."""
        return any(each.name == name for each in self.order)

    def star(self, qualifier: tuple[str, ...] = ()) -> list[Shown]:
        if not qualifier:
            return list(self.order)
        return self._known(self._relation(qualifier), qualifier).shown

    def qualified_name(self, col: Col) -> str:
        relation = next(
            each
            for each in self.relations
            if each.offset <= col.index < each.offset + len(each.columns)
        )
        name = relation.columns[col.index - relation.offset].name
        return f"{relation.name}.{name}" if relation.name else name

    def _check_new(self, relation: Relation) -> None:
        name = relation.name
        for each in self.relations if name is not None else ():
            # Those of two schemas may have one name: what tells them apart is the schema.
            apart = each.parts and relation.parts and each.parts != relation.parts
            if each.name == name and not apart:
                raise SqlError(f'table name "{name}" specified more than once', sqlstate="42712")

    def _relation(self, qualifier: tuple[str, ...]) -> Relation | None:
        found = [
            relation
            for relation in self.relations
            if relation.name == qualifier[-1]
            and (len(qualifier) == 1 or relation.parts[-len(qualifier) :] == qualifier)
        ]
        if len(found) > 1:
            shown = ".".join(qualifier)
            raise SqlError(f'table reference "{shown}" is ambiguous', sqlstate="42P09")
        return found[0] if found else None

    def _known(self, relation: Relation | None, qualifier: tuple[str, ...]) -> Relation:
        if relation is None:
            raise SqlError(
                f'missing FROM-clause entry for table "{qualifier[-1]}"',
                hint=hint_of(qualifier[-1], (each.name or "" for each in self.relations)),
                sqlstate="42P01",
            )
        return relation
