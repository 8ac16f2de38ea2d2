"""Filters on rows, and which parts need not be read for them.

A filter is what `pyarrow.parquet` calls one: `[("price", ">", 100), ("kind", "=", "bid")]` is a
conjunction, a list of such lists is their disjunction. Values compare as Arrow compares them; a
comparison with null is not true. Error rows pass every filter: an error is not lost because the
row it stands for would not have been wanted.

A part's statistics are bounds: they may be wider than what the part holds, never narrower. A
part is skipped only if they show that no row of it can match, and if it has no error rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Context
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.errors import InvalidUsage
from tidemark.persist.state import Bound, ColumnStats, Part
from tidemark.persist.updates import DIFF, ERR, row_names

Predicate = tuple[str, str, Any]
Filter = Sequence[Predicate] | Sequence[Sequence[Predicate]]

MAX_TEXT = 32
"""Bounds of strings are cut to this many characters."""

_EXACT = Context(prec=76)

OPERATORS = ("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in")


def clauses(filter: Filter, schema: pa.Schema) -> list[list[Predicate]]:
    """The filter as a disjunction of conjunctions, if it is one over `schema`'s rows."""
    items: list[Any] = list(filter)
    if items and all(isinstance(item, tuple) for item in items):
        items = [items]
    if not items or not all(_is_clause(item) for item in items):
        raise InvalidUsage(f"not a filter: {filter!r}", hint='use [("column", ">", value), ...]')
    known = row_names(schema)
    for column, operator, value in (predicate for clause in items for predicate in clause):
        if column not in known:
            raise InvalidUsage(f"cannot filter on {column!r}", hint=f"columns: {', '.join(known)}")
        if operator not in OPERATORS:
            raise InvalidUsage(
                f"cannot filter with {operator!r}", hint=f"operators: {' '.join(OPERATORS)}"
            )
        if operator in ("in", "not in") and not _is_list(value):
            raise InvalidUsage(
                f"{column} {operator} {value!r}: not a list of values",
                hint="at least one, and no nulls: nothing compares with null",
            )
    found = [list(clause) for clause in items]
    try:
        schema.empty_table().filter(expression(found))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise InvalidUsage(f"cannot filter by {filter!r}: {reason}") from error
    return found


def _is_list(value: Any) -> bool:
    found = isinstance(value, list | tuple | set | frozenset)
    return found and bool(value) and None not in value


def _is_clause(item: Any) -> bool:
    return (
        isinstance(item, list)
        and bool(item)
        and all(isinstance(p, tuple) and len(p) == 3 and isinstance(p[0], str) for p in item)
    )


def expression(clauses: list[list[Predicate]]) -> pc.Expression:
    """What Arrow evaluates row by row."""
    return pq.filters_to_expression(clauses) | pc.field(ERR).is_valid()


def columns_of(clauses: list[list[Predicate]]) -> set[str]:
    return {column for clause in clauses for column, _, _ in clause}


def may_match(part: Part, clauses: list[list[Predicate]], schema: pa.Schema) -> bool:
    """False only if no row of the part can pass."""
    if part.errors or not part.stats:
        return True
    return any(all(_possible(part, p, schema) for p in clause) for clause in clauses)


def _possible(part: Part, predicate: Predicate, schema: pa.Schema) -> bool:
    column, operator, value = predicate
    stats = part.stats.get(column)
    if stats is None:
        return True
    if stats.nulls == part.rows:
        # To Arrow null is not in any list, unless the list has a null.
        return operator in ("in", "not in")
    if operator in ("!=", "not in"):
        return True
    kind = schema.field(column).type
    if operator == "in":
        return any(_within(stats, encoded(one, kind), "=") for one in _values(value))
    return _within(stats, encoded(value, kind), operator)


def _values(value: Any) -> Collection[Any]:
    return value if isinstance(value, Collection) and not isinstance(value, str) else [value]


def _within(stats: ColumnStats, value: Bound, operator: str) -> bool:
    least: Any = stats.least
    most: Any = stats.most
    given: Any = value
    if given is None:
        return True
    below = least is not None and given < least
    above = most is not None and given > most
    match operator:
        case "<":
            return least is None or least < given
        case "<=":
            return not below
        case ">":
            return most is None or most > given
        case ">=":
            return not above
        case _:
            return not (below or above)


def statistics(updates: pa.Table) -> dict[str, ColumnStats]:
    """Bounds and null counts of every row column that has an order we know, and of `_diff`."""
    return {
        name: _column_statistics(updates.column(name))
        for name in (*row_names(updates.schema), DIFF)
        if _is_ordered(updates.schema.field(name).type)
    }


def _column_statistics(column: pa.ChunkedArray) -> ColumnStats:
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return ColumnStats(column.null_count)
    bounds = pc.min_max(column)
    least, most = encoded(bounds["min"], column.type), encoded(bounds["max"], column.type)
    if isinstance(least, str) and isinstance(most, str):
        least, most = least[:MAX_TEXT], _above(most)
    return ColumnStats(column.null_count, _storable(least), _storable(most))


def _storable(bound: Bound) -> Bound:
    """Decimals may have more than the 64 bits that an integer has in the state."""
    return None if isinstance(bound, int) and not -(2**63) <= bound < 2**63 else bound


def _is_ordered(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_string(kind)
    )


def encoded(value: Any, kind: pa.DataType) -> Bound:
    """A value of `kind` in the form in which statistics keep it; None if it has none."""
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if not scalar.is_valid or scalar.type != kind:
        return None
    if not isinstance(value, pa.Scalar) and scalar.as_py() != value:
        return None  # 1.5 for an integer, a time of day for a date: Arrow compares more exactly.
    if pa.types.is_decimal128(kind):
        return int(scalar.as_py().scaleb(kind.scale, _EXACT))
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return scalar.value
    found = scalar.as_py()
    return None if isinstance(found, float) and found != found else found


def _above(text: str) -> str | None:
    """Something short that is not below `text`."""
    if len(text) <= MAX_TEXT:
        return text
    head = text[:MAX_TEXT]
    following = ord(head[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:
        following = 0xE000
    return head[:-1] + chr(following) if following <= 0x10FFFF else None
