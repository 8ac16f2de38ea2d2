"""Functions that give rows: in FROM, and (one at a time) in a select list.

`TABLE_FUNCTIONS` is the whole list. Each says which arguments it takes, which columns it makes,
and how it is written in Spark SQL: as an array with an element per row, a struct where there is
more than one column. The array is NULL or empty where there are no rows; it does not raise where
none of `fails` is the case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.compute.casts import Failure, cast, castable, common_type
from tidemark.compute.expr import Call, Expr, Lit
from tidemark.compute.functions.array import SPLIT
from tidemark.compute.intervals import interval_of
from tidemark.compute.json_text import variant_text
from tidemark.compute.literals import UNKNOWN
from tidemark.compute.regex import java_pattern, matches_empty
from tidemark.compute.render_expr import call_error
from tidemark.errors import DataError, SqlError, Unsupported
from tidemark.types import (
    BIGINT,
    DATE,
    INTEGER,
    INTERVAL,
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
    fails: tuple[Failure, ...] = ()


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
        name = as_call(name, args).fn
        raise SqlError(
            f"function {name}({types}) does not exist",
            hint="no function takes these types; an explicit cast may help",
            sqlstate="42883",
        )
    return name, typed, function.columns(typed)


def as_call(name: str, args: Args) -> Call:
    """The call as an expression: to be spelled, and to ask for its columns."""
    return Call("generate_series" if name == _BY_TIME else name, args, args[0].type)


def rows_error(name: str, args: Args, column: Callable[[int], str]) -> str | None:
    """The error of a call per row as Spark SQL, or None if it cannot fail."""
    return call_error(as_call(name, args), args, TABLE_FUNCTIONS[name].fails, column)


def generator(
    name: str, texts: Sequence[str], made: int, failed: str | None, instead: str = "array(NULL)"
) -> str:
    """The Spark generator for a LATERAL VIEW; `made` tells if the rows are numbered as well.

    Where the call has `failed` there is one row, of nulls, or whatever `instead` gives.
    """
    array = TABLE_FUNCTIONS[name].array.format(*texts)
    if failed is not None:
        array = f"CASE WHEN ({failed}) IS NOT NULL THEN {instead} ELSE {array} END"
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
    return typed if len(typed) == 3 else (*typed, Lit("1", type_))


def _time_series(args: Args) -> Args | None:
    """From and to as moments of one type, the step as seconds."""
    start, stop, step = args
    type_ = common_type((start.type, stop.type))
    type_ = TIMESTAMPTZ if type_ == DATE else type_
    if type_ not in (TIMESTAMP, TIMESTAMPTZ):
        return None
    if not isinstance(step, Lit) or step.value is None:
        raise Unsupported(
            "generate_series by a step that is no constant is not supported",
            hint="number the steps: start + n * step, of generate_series(0, 10) AS s(n)",
        )
    if interval_of(step).months:
        raise Unsupported(
            "generate_series by months is not supported",
            hint="step by days or less, or add the months to a moment: m + n * interval '1 month'",
        )
    seconds = interval_of(step).seconds
    if not seconds:
        raise SqlError("step size cannot equal zero", sqlstate="22023")
    if abs(seconds) >= 10**12:
        raise DataError("interval out of range", sqlstate="22008")
    return cast(start, type_), cast(stop, type_), Lit(f"{seconds:.6f}", numeric(18, 6))


def _takes(*types: SqlType) -> Callable[[Args], Args | None]:
    def typed(args: Args) -> Args | None:
        if len(args) != len(types):
            return None
        if not all(castable(a.type, t, "implicit") for a, t in zip(args, types, strict=True)):
            return None
        return tuple(cast(arg, type_) for arg, type_ in zip(args, types, strict=True))

    return typed


def _split(args: Args) -> Args | None:
    """The text, and the pattern as Java has it."""
    typed = _takes(TEXT, TEXT)(args)
    if typed is None:
        return None
    text, pattern = typed
    if not isinstance(pattern, Lit) or pattern.value is None:
        raise Unsupported("a regular expression that is not a constant is not supported")
    java = java_pattern(pattern.value, match_used=True)
    if matches_empty(java):
        raise Unsupported(
            f"regexp_split_to_table by {pattern.value!r}, which matches the empty text, is not"
            " supported",
            hint="for the characters of a text: unnest(string_to_array(text, NULL))",
        )
    return text, Lit(java, TEXT)


def _array(args: Args) -> Args | None:
    return args if len(args) == 1 and args[0].type.element is not None else None


def _makes(*columns: Column) -> Callable[[Args], tuple[Column, ...]]:
    return lambda args: columns


def _element(args: Args) -> tuple[Column, ...]:
    element = args[0].type.element
    assert element is not None
    return (Column("unnest", element),)


def _no_object(message: str) -> Failure:
    return Failure("left({0}, 1) <> '{{'", f"'{message}'")


_VARIANTS = "try_cast(try_parse_json({0}) AS ARRAY<VARIANT>)"
_ENTRIES = "map_entries(try_cast(try_parse_json({0}) AS MAP<STRING, VARIANT>))"
_VALUE = Column("value", JSONB)

MOST_ROWS = 10_000_000
"""Of one call: an array of more would not fit into memory."""

_NO_STEP = Failure("{2} = 0", "'step size cannot equal zero'")
_TOO_MANY = f"'generate_series of more than {MOST_ROWS} rows'"
_NO_ARRAY = tuple(
    Failure(f"left({{0}}, 1) {test}", f"'cannot extract elements from {what}'")
    for test, what in (("= '{{'", "an object"), ("NOT IN ('[', '{{')", "a scalar"))
)
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
        (
            _NO_STEP,
            Failure(f"(CAST({{1}} AS DOUBLE) - {{0}}) / {{2}} >= {MOST_ROWS}", _TOO_MANY),
        ),
    ),
    _BY_TIME: TableFunction(
        _time_series,
        lambda args: (Column("generate_series", args[0].type),),
        "CASE WHEN ({2} > 0 AND {0} <= {1}) OR ({2} < 0 AND {0} >= {1})"
        " THEN sequence({0}, {1}, make_dt_interval(0, 0, 0, {2})) END",
        (Failure(f"timestampdiff(SECOND, {{0}}, {{1}}) / {{2}} >= {MOST_ROWS}", _TOO_MANY),),
    ),
    "unnest": TableFunction(_array, _element, "{0}"),
    "jsonb_array_elements": TableFunction(
        _takes(JSONB), _makes(_VALUE), f"transform({_VARIANTS}, v -> to_json(v))", _NO_ARRAY
    ),
    "jsonb_array_elements_text": TableFunction(
        _takes(JSONB),
        _makes(Column("value", TEXT)),
        f"transform({_VARIANTS}, v -> {variant_text('v')})",
        _NO_ARRAY,
    ),
    "jsonb_each": TableFunction(
        _takes(JSONB),
        _makes(Column("key", TEXT), _VALUE),
        f"transform({_ENTRIES}, e -> struct(e.key AS key, to_json(e.value) AS value))",
        (_no_object("cannot call jsonb_each on a non-object"),),
    ),
    "jsonb_each_text": TableFunction(
        _takes(JSONB),
        _makes(Column("key", TEXT), Column("value", TEXT)),
        f"transform({_ENTRIES}, e -> struct(e.key AS key, {variant_text('e.value')} AS value))",
        (_no_object("cannot call jsonb_each_text on a non-object"),),
    ),
    "jsonb_object_keys": TableFunction(
        _takes(JSONB),
        _makes(Column("jsonb_object_keys", TEXT)),
        "json_object_keys({0})",
        (
            Failure("left({0}, 1) = '['", "'cannot call jsonb_object_keys on an array'"),
            _no_object("cannot call jsonb_object_keys on a scalar"),
        ),
    ),
    "string_to_table": TableFunction(
        _takes(TEXT, TEXT), _makes(Column("string_to_table", TEXT)), SPLIT
    ),
    "regexp_split_to_table": TableFunction(
        _split,
        _makes(Column("regexp_split_to_table", TEXT)),
        "split({0}, {1}, -1)",
    ),
}
