"""Functions that give rows: in FROM, and (one at a time) in a select list.

`TABLE_FUNCTIONS` is the whole list. Each says which arguments it takes, which columns it makes,
and how it is written in Spark SQL: as an array with an element per row, a struct where there is
more than one column. The array is NULL or empty where there are no rows; it never raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.compute.casts import cast, castable, common_type
from tidemark.compute.expr import Expr, Lit
from tidemark.compute.intervals import INTERVAL, interval_of
from tidemark.compute.literals import UNKNOWN
from tidemark.errors import SqlError, Unsupported
from tidemark.types import (
    BIGINT,
    DATE,
    INTEGER,
    JSONB,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    SqlType,
    numeric,
)

Args = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class TableFunction:
    """`typed` gives the arguments with their types, or None if it takes no such arguments."""

    typed: Callable[[Args], Args | None]
    columns: Callable[[Args], tuple[Column, ...]]
    array: str
    """Template: {0}, {1} ... are the arguments."""


def typed_call(name: str, args: Args) -> tuple[str, Args, tuple[Column, ...]]:
    """The function, its arguments with their types and the columns made.

    42883 if it takes no such arguments.
    """
    if name == "generate_series" and len(args) == 3 and args[2].type == INTERVAL:
        name = _BY_TIME
    function = TABLE_FUNCTIONS[name]
    typed = function.typed(args)
    if typed is None:
        types = ", ".join(arg.type.name for arg in args)
        name = name.removesuffix(" by time")
        raise SqlError(
            f"function {name}({types}) does not exist",
            hint="no function takes these types; an explicit cast may help",
            sqlstate="42883",
        )
    return name, typed, function.columns(typed)


def generator(name: str, texts: Sequence[str], made: int) -> str:
    """The Spark generator for a LATERAL VIEW; `made` tells if the rows are numbered as well."""
    function, texts = TABLE_FUNCTIONS[name], list(texts)
    if name == "generate_series" and len(texts) == 2:
        texts.append("1")
    array = function.array.format(*texts)
    width = 2 if name in _PAIRS else 1
    if made == width:
        return f"inline({array})" if width > 1 else f"explode({array})"
    fields = "e.key, e.value" if width > 1 else "e"
    numbered = f"transform({array}, (e, i) -> struct({fields}, CAST(i + 1 AS BIGINT)))"
    return f"inline({numbered})"


def _series(args: Args) -> Args | None:
    if len(args) not in (2, 3):
        return None
    type_ = common_type(arg.type for arg in args)
    type_ = INTEGER if type_ == TEXT and all(arg.type == UNKNOWN for arg in args) else type_
    if type_ not in (INTEGER, BIGINT) and not (type_ and type_.name == "smallint"):
        return None
    type_ = INTEGER if type_.name == "smallint" else type_
    typed = tuple(cast(arg, type_) for arg in args)
    if len(typed) == 3 and isinstance(typed[2], Lit) and typed[2].value == "0":
        raise SqlError("step size cannot equal zero", sqlstate="22023")
    return typed


def _time_series(args: Args) -> Args | None:
    """From and to as moments of one type, the step as seconds."""
    start, stop, step = args
    type_ = common_type((start.type, stop.type))
    type_ = TIMESTAMPTZ if type_ == DATE else type_
    if type_ not in (TIMESTAMP, TIMESTAMPTZ):
        return None
    if not isinstance(step, Lit) or step.value is None or interval_of(step).months:
        raise Unsupported(
            "generate_series by months is not supported",
            hint="step by days or less, or add the months to a moment: m + n * interval '1 month'",
        )
    seconds = interval_of(step).seconds
    if not seconds:
        raise SqlError("step size cannot equal zero", sqlstate="22023")
    return cast(start, type_), cast(stop, type_), Lit(f"{seconds:.6f}", numeric(18, 6))


def _takes(*types: SqlType) -> Callable[[Args], Args | None]:
    def typed(args: Args) -> Args | None:
        if len(args) != len(types):
            return None
        if not all(castable(a.type, t, "implicit") for a, t in zip(args, types, strict=True)):
            return None
        return tuple(cast(arg, type_) for arg, type_ in zip(args, types, strict=True))

    return typed


def _array(args: Args) -> Args | None:
    return args if len(args) == 1 and args[0].type.element is not None else None


def _makes(*columns: Column) -> Callable[[Args], tuple[Column, ...]]:
    return lambda args: columns


def _element(args: Args) -> tuple[Column, ...]:
    element = args[0].type.element
    assert element is not None
    return (Column("unnest", element),)


_VARIANTS = "try_cast(try_parse_json({0}) AS ARRAY<VARIANT>)"
_ENTRIES = "map_entries(try_cast(try_parse_json({0}) AS MAP<STRING, VARIANT>))"
_VALUE = Column("value", JSONB)
_PAIRS = ("jsonb_each", "jsonb_each_text")
_BY_TIME = "generate_series by time"
"""Not for users: generate_series of moments, with the step in seconds."""

TABLE_FUNCTIONS: dict[str, TableFunction] = {
    "generate_series": TableFunction(
        _series,
        lambda args: (Column("generate_series", args[0].type),),
        # Spark's sequence counts down by itself, and raises where the step leads away.
        "CASE WHEN ({2} > 0 AND {0} <= {1}) OR ({2} < 0 AND {0} >= {1})"
        " THEN sequence({0}, {1}, {2}) END",
    ),
    _BY_TIME: TableFunction(
        _time_series,
        lambda args: (Column("generate_series", args[0].type),),
        "CASE WHEN ({2} > 0 AND {0} <= {1}) OR ({2} < 0 AND {0} >= {1})"
        " THEN sequence({0}, {1}, make_dt_interval(0, 0, 0, {2})) END",
    ),
    "unnest": TableFunction(_array, _element, "{0}"),
    "jsonb_array_elements": TableFunction(
        _takes(JSONB), _makes(_VALUE), f"transform({_VARIANTS}, v -> to_json(v))"
    ),
    "jsonb_array_elements_text": TableFunction(
        _takes(JSONB),
        _makes(Column("value", TEXT)),
        f"transform({_VARIANTS}, v -> try_cast(v AS STRING))",
    ),
    "jsonb_each": TableFunction(
        _takes(JSONB),
        _makes(Column("key", TEXT), _VALUE),
        f"transform({_ENTRIES}, e -> struct(e.key AS key, to_json(e.value) AS value))",
    ),
    "jsonb_each_text": TableFunction(
        _takes(JSONB),
        _makes(Column("key", TEXT), Column("value", TEXT)),
        f"transform({_ENTRIES}, e -> struct(e.key AS key, try_cast(e.value AS STRING) AS value))",
    ),
    "jsonb_object_keys": TableFunction(
        _takes(JSONB), _makes(Column("jsonb_object_keys", TEXT)), "json_object_keys({0})"
    ),
    "regexp_split_to_table": TableFunction(
        _takes(TEXT, TEXT),
        _makes(Column("regexp_split_to_table", TEXT)),
        "split({0}, {1}, -1)",
    ),
}
