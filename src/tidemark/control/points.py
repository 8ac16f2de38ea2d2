"""Prepared statements that look one key up: planned once, then answered by `lookups`.

    SELECT v, w FROM t WHERE k = $1        an index of t is by (k), in the session's cluster

When a statement has been run twice outside of a transaction, in the usual way, it is looked at: is
it of that kind? Then it is from there on a key to be looked up, for as long as the catalog and the
settings that names depend on stay as they are. Whatever is unusual (a null, a number that the column cannot
hold, a text that is not clearly a number, an index that is not there yet) goes the usual way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from tidemark.compute.expr import Call, Cast, Col, Expr, Lit
from tidemark.compute.literals import UNKNOWN, fits
from tidemark.compute.peek_plan import Asked, Simple, key_values, simple
from tidemark.compute.plan import Plan
from tidemark.compute.sql.dialect import parameter_number
from tidemark.control import statements as s
from tidemark.control.aside import LARGE
from tidemark.control.lookups import Answer, Key, Way
from tidemark.control.pgwire import Ready, Result, Rows
from tidemark.errors import TidemarkError
from tidemark.spark.collect import too_large
from tidemark.types import TEXT, Column, SqlType

if TYPE_CHECKING:
    from tidemark.control.prepared import Prepared
    from tidemark.control.session import Session

NAMES_DEPEND_ON = ("cluster", "database", "role", "search_path")
MOST_COLUMNS = 4
READY_BYTES = 64 * 1024
"""Larger answers are sent in slices, like any other."""

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
"""A number as everybody writes it."""


class Hole(NamedTuple):
    """One column of the key: the number of its parameter, or what the statement says."""

    type: SqlType
    parameter: int | None
    constant: int | str | None


class Point(NamedTuple):
    """A statement that looks up a key."""

    way: Way
    holes: tuple[Hole, ...]
    limit: int | None
    columns: tuple[Column, ...]


class Remembered:
    """What is known of a prepared statement, and what that depends on."""

    __slots__ = ("_known_for", "_run_for", "point", "runs")

    def __init__(self) -> None:
        self.runs = 0
        self.point: Point | None = None
        self._run_for: Circumstances | None = None
        self._known_for: Circumstances | None = None

    def holds(self, session: Session) -> bool:
        """Whether `point` is what it is now; if not, it is run as any other."""
        now = Circumstances.of(session)
        if self._known_for is not None and self._known_for.same(now):
            return True
        self._run_for, self._known_for = now, None
        self.runs += 1
        return False

    def is_worth_a_look(self, session: Session) -> bool:
        """It was run, and all that it depends on is still so: what it was allowed it is allowed."""
        # Most are run once.
        now = Circumstances.of(session)
        return self.runs > 1 and self._run_for is not None and self._run_for.same(now)

    def learn(self, point: Point | None) -> None:
        self.point, self._known_for, self._run_for = point, self._run_for, None


class Circumstances(NamedTuple):
    """Whatever the meaning of names, and who may use them, depends on."""

    items: object
    settings: tuple[str, ...]

    @staticmethod
    def of(session: Session) -> Circumstances:
        settings = tuple(map(session.variables.get, NAMES_DEPEND_ON))
        return Circumstances(session.coordinator.catalog.items, settings)

    def same(self, other: Circumstances) -> bool:
        return self.items is other.items and self.settings == other.settings


async def run(session: Session, prepared: Prepared, params: tuple[Lit, ...]) -> Result:
    """A statement: as a look-up if it is known to be one, else in the usual way."""
    recent = session.variables.get("real_time_recency") == "on"
    alone = session.transaction is None and session.behind_ms == 0 and not recent
    if alone and (rows := await answer(session, prepared, params)) is not None:
        return rows
    result = await session._execute(prepared.statement, params)
    if alone:
        consider(session, prepared, params)
    return result


async def answer(session: Session, prepared: Prepared, params: tuple[Lit, ...]) -> Rows | None:
    """The statement's rows, if it is known to be a look-up; else None."""
    known = prepared.remembered
    if not known.holds(session) or known.point is None:
        return None
    key = key_of(known.point, params)
    if key is None:
        return None
    found = await session.coordinator.lookups.find(known.point.way, key)
    return None if found is None else _rows(known.point, found, session.max_result_size)


def consider(session: Session, prepared: Prepared, params: tuple[Lit, ...]) -> None:
    """A statement was run in the usual way, and it went well: is it a look-up?"""
    if len(prepared.sql) < LARGE and prepared.remembered.is_worth_a_look(session):
        point = point_of(session, prepared.statement, params)
        if point is not None and point.columns == prepared.columns:
            point = point._replace(columns=prepared.columns)  # The very same need no comparing.
        prepared.remembered.learn(point)


def _rows(point: Point, found: Answer, max_bytes: int) -> Rows:
    if point.limit is not None:
        found = found._replace(stop=min(found.stop, found.start + point.limit))
    whole = found.found
    if 0 < max_bytes < whole.nbytes:
        mine = whole.rows.slice(found.start, found.stop - found.start)
        if mine.nbytes > max_bytes:
            raise too_large(max_bytes)
    if whole.nbytes > READY_BYTES:
        return Rows(point.columns, found.batches())

    def encoded(formats: tuple[int, ...]) -> list[bytes]:
        return whole.encoded(point.columns, formats)[found.start : found.stop]

    return Rows(point.columns, found.batches(), ready=Ready(found.stop - found.start, encoded))


def key_of(point: Point, params: tuple[Lit, ...]) -> Key | None:
    """The key that is asked for; None if it takes the planner to say."""
    key: list[int | str] = []
    for hole in point.holes:
        if hole.parameter is None:
            assert hole.constant is not None
            key.append(hole.constant)
            continue
        given = params[hole.parameter]
        if given.value is None:
            return None
        if not hole.type.is_integer:
            key.append(given.value)
        elif _WHOLE.fullmatch(given.value) and fits(number := int(given.value), hole.type):
            key.append(number)
        else:
            return None
    return tuple(key)


# What kind of statement it is.


def point_of(session: Session, statement: s.Statement, params: tuple[Lit, ...]) -> Point | None:
    if not isinstance(statement, s.Select) or statement.as_of is not None:
        return None
    tree = statement.query.tree
    if not _compared(tree, len(params)) or not all(map(_plain, params)):
        return None
    # Numbers that are told apart, and that any of these types can be.
    said = {node.this for node in tree.find_all(exp.Literal)}
    marks = [text for n in range(101, 128) if (text := str(n)) not in said][: len(params)]
    if len(marks) < len(params):
        return None
    marked = tuple(Lit(text, each.type) for text, each in zip(marks, params, strict=True))
    try:
        plan = session._plan(statement.query, marked)
    except TidemarkError:
        return None
    query = simple(plan)
    return None if query is None else _point(session, query, plan, marks)


def _compared(tree: exp.Expr, count: int) -> bool:
    """Whether each parameter is there once, and just compared with a column: then what it is makes
    no difference to the plan but for itself."""
    found = list(tree.find_all(exp.Parameter))
    if sorted(map(parameter_number, found)) != list(range(1, count + 1)):
        return False
    for node in found:
        parent = node.parent
        if not isinstance(parent, exp.EQ):
            return False
        other = parent.expression if parent.this is node else parent.this
        if not isinstance(other, exp.Column):
            return False
    return True


def _plain(param: Lit) -> bool:
    return param.type.is_integer or param.type in (UNKNOWN, TEXT)


def _point(session: Session, query: Simple, plan: Plan, marks: list[str]) -> Point | None:
    get, outputs = (
        query.get,
        [each for each in query.outputs[: query.keep] if isinstance(each, Col)],
    )
    if len(outputs) != query.keep or query.order_by or query.offset:
        return None
    item = session.coordinator.catalog.items.get(get.id)
    if item is None or item.shard is None:
        return None
    wanted: dict[str, Lit] = {}
    for predicate in query.predicates:
        found = _equality(predicate)
        if found is None or (name := get.columns[found[0].index].name) in wanted:
            return None
        wanted[name] = found[1]
    key = _index_key(session, get.id, set(wanted))
    if key is None:
        return None
    values = key_values(Asked(get, query.predicates), key)
    if values is None or values.num_rows != 1:
        return None  # None of it, if a constant is nothing that the column can be.
    types = {column.name: column.type for column in get.columns}
    holes = [_hole(types[name], wanted[name], marks) for name in key]
    used = [hole.parameter for hole in holes if hole.parameter is not None]
    if sorted(used) != list(range(len(marks))):
        return None
    way = Way(
        session.cluster,
        item.database,
        item.shard,
        key,
        tuple(hole.type for hole in holes),
        tuple(get.columns[each.index].name for each in outputs),
    )
    return Point(way, tuple(holes), query.limit, plan.columns)


def _equality(predicate: Expr) -> tuple[Col, Lit] | None:
    """A column of whole numbers or of text, and what it must be."""
    match predicate:
        case (
            Call(fn="=", args=(side, Lit() as literal))
            | Call(fn="=", args=(Lit() as literal, side))
        ):
            # A number of a wider type: those that the column cannot hold go the usual way.
            column = side.arg if isinstance(side, Cast) and side.type.is_integer else side
        case _:
            return None
    if not isinstance(column, Col):
        return None
    whole = column.type.is_integer and literal.type.is_integer
    same = column.type == TEXT == literal.type
    return (column, literal) if (whole or same) and literal.value is not None else None


def _hole(type_: SqlType, literal: Lit, marks: list[str]) -> Hole:
    assert literal.value is not None
    if literal.value in marks:
        return Hole(type_, marks.index(literal.value), None)
    return Hole(type_, None, int(literal.value) if type_.is_integer else literal.value)


def _index_key(session: Session, relation: str, columns: set[str]) -> tuple[str, ...] | None:
    """The key of an index by exactly these columns."""
    if not 0 < len(columns) <= MOST_COLUMNS:
        return None
    for item in session.coordinator.catalog.items.values():
        here = item.kind == "index" and item.cluster == session.cluster
        if here and relation in item.depends and set(item.key) == columns:
            return item.key
    return None
