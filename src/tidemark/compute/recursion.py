"""Recursive queries, asked once: rounds of batch queries until one changes nothing.

    WITH MUTUALLY RECURSIVE reach (a, b) AS (SELECT a, b FROM edge UNION SELECT ...)

    round   reach           a view over rows that are held here (few) or by Spark (many)
    0       {}
    1       edges
    2       paths of two    each round reads the views and replaces them, one after the other
    3       the same: done

Bindings around a recursion become views too: `without_recursion` leaves a plan that is one query.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemark.compute.batch import Relation, batch_sql
from tidemark.compute.batch_text import names_of, view_of
from tidemark.compute.plan import (
    Binding,
    Let,
    LetRec,
    Local,
    Plan,
    inputs_of,
    limit_reached,
    with_inputs,
)
from tidemark.errors import DataError
from tidemark.spark.frames import SMALL_ROWS, local_frame
from tidemark.types import Column

Names = dict[str, str]


class _Rows(NamedTuple):
    """What a binding holds: `table` if it is small."""

    frame: DataFrame
    table: pa.Table | None


class Recursion:
    """Evaluates the recursive parts of one query's plan in one Spark session."""

    def __init__(self, session: SparkSession, relation: Relation):
        self._session = session
        self._relation = relation
        self._numbers = count()

    def without_recursion(self, plan: Plan, names: Names | None = None) -> Plan:
        """The plan with every recursion evaluated, its results in views of the session.

        `names` are the views of the bindings around it: each gets a number, since names may be
        bound again further in.
        """
        names = names or {}
        match plan:
            case Local(name=name, columns=columns):
                return Local(names.get(name, name), columns)
            case Let(name=name, value=value, body=body):
                bound = self.without_recursion(value, names)
                mine = self._numbered(name)
                self._frame(bound).createOrReplaceTempView(view_of(mine))
                return self.without_recursion(body, {**names, name: mine})
            case LetRec(body=body):
                return self.without_recursion(body, self._fixpoint(plan, names))
        inputs = tuple(self.without_recursion(input_, names) for input_ in inputs_of(plan))
        return with_inputs(plan, inputs)

    def _fixpoint(self, plan: LetRec, names: Names) -> Names:
        inside = names | {binding.name: self._numbered(binding.name) for binding in plan.bindings}
        held: dict[str, _Rows] = {}
        for binding in plan.bindings:
            held[binding.name] = _held(self._session, _nothing(binding.columns))
            held[binding.name].frame.createOrReplaceTempView(view_of(inside[binding.name]))
        for rounds in count():
            if rounds == plan.limit:
                if plan.return_at_limit:
                    break
                raise DataError(limit_reached(rounds))
            changed = [self._renew(binding, held, inside) for binding in plan.bindings]
            if not any(changed):
                break
        return inside

    def _renew(self, binding: Binding, held: dict[str, _Rows], inside: Names) -> bool:
        """Compute one binding from the newest values of all; whether it changed."""
        frame = self._frame(self.without_recursion(binding.value, inside))
        new = _materialised(self._session, frame, binding.columns)
        changed = not _same(held[binding.name], new)
        held[binding.name] = new
        new.frame.createOrReplaceTempView(view_of(inside[binding.name]))
        return changed

    def _frame(self, plan: Plan) -> DataFrame:
        return self._session.sql(batch_sql(plan, self._relation))

    def _numbered(self, name: str) -> str:
        return f"{name} {next(self._numbers)}"


def is_recursive(plan: Plan) -> bool:
    return isinstance(plan, LetRec) or any(map(is_recursive, inputs_of(plan)))


def _materialised(session: SparkSession, frame: DataFrame, columns: tuple[Column, ...]) -> _Rows:
    few = frame.limit(SMALL_ROWS + 1).toArrow()
    if few.num_rows <= SMALL_ROWS:
        return _held(session, few.cast(_schema(columns)) if columns else few)
    return _Rows(frame.localCheckpoint(), None)


def _held(session: SparkSession, table: pa.Table) -> _Rows:
    return _Rows(local_frame(session, table), table)


def _same(old: _Rows, new: _Rows) -> bool:
    if old.table is not None and new.table is not None:
        return old.table.num_rows == new.table.num_rows and _sorted(old.table) == _sorted(new.table)
    if (old.table is None) != (new.table is None):
        return False
    less, more = old.frame.exceptAll(new.frame), new.frame.exceptAll(old.frame)
    return less.union(more).isEmpty()


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def _nothing(columns: tuple[Column, ...]) -> pa.Table:
    return _schema(columns).empty_table()


def _schema(columns: tuple[Column, ...]) -> pa.Schema:
    if not columns:
        return pa.schema([pa.field("none", pa.int32())])
    pairs = zip(names_of(columns), columns, strict=True)
    return pa.schema([pa.field(name, column.type.arrow) for name, column in pairs])
