"""Functions of dates and timestamps; the session's time zone is UTC."""

from __future__ import annotations

from tidemark.compute.casts import Failure
from tidemark.compute.expr import Lit
from tidemark.compute.functions.overload import Args, Overload, Table
from tidemark.errors import InvalidUsage, SqlError, Unsupported
from tidemark.types import BIGINT, DATE, TIMESTAMP, TIMESTAMPTZ, SqlType, numeric

_EXTRACTS: dict[str, tuple[str, SqlType]] = {
    "year": ("extract(YEAR FROM {1})", numeric(10, 0)),
    "quarter": ("extract(QUARTER FROM {1})", numeric(10, 0)),
    "month": ("extract(MONTH FROM {1})", numeric(10, 0)),
    "week": ("extract(WEEK FROM {1})", numeric(10, 0)),
    "day": ("extract(DAY FROM {1})", numeric(10, 0)),
    "doy": ("extract(DOY FROM {1})", numeric(10, 0)),
    "dow": ("(extract(DAYOFWEEK FROM {1}) - 1)", numeric(10, 0)),
    "isodow": ("extract(DAYOFWEEK_ISO FROM {1})", numeric(10, 0)),
    "hour": ("extract(HOUR FROM {1})", numeric(10, 0)),
    "minute": ("extract(MINUTE FROM {1})", numeric(10, 0)),
    "second": ("extract(SECOND FROM {1})", numeric(8, 6)),
    "epoch": (
        "CAST(unix_micros(CAST({1} AS TIMESTAMP)) AS DECIMAL(20,0)) * CAST('0.000001' AS DECIMAL(7,6))",
        numeric(24, 6),
    ),
}
_EXTRACTS |= {
    "isoyear": ("extract(YEAROFWEEK FROM {1})", numeric(10, 0)),
    "decade": ("(extract(YEAR FROM {1}) div 10)", numeric(10, 0)),
    "century": ("((extract(YEAR FROM {1}) + 99) div 100)", numeric(10, 0)),
    "millennium": ("((extract(YEAR FROM {1}) + 999) div 1000)", numeric(10, 0)),
    "milliseconds": ("(extract(SECOND FROM {1}) * 1000)", numeric(8, 3)),
    "microseconds": ("(extract(SECOND FROM {1}) * 1000000)", numeric(8, 0)),
}
_CLOCK_FIELDS = ("hour", "minute", "second", "milliseconds", "microseconds")
_TRUNC_UNITS = (
    "microseconds",
    "milliseconds",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
)


def _unit(args: Args, allowed: tuple[str, ...], function: str) -> str:
    literal = args[0]
    if not isinstance(literal, Lit) or literal.value is None:
        raise Unsupported(f"{function} of a unit that is not a constant is not supported")
    unit = literal.value.lower()
    unit = unit.removesuffix("s") if unit.removesuffix("s") in allowed else unit
    if unit not in allowed or (args[1].type == DATE and unit in _CLOCK_FIELDS):
        raise SqlError(
            f'unit "{literal.value}" not supported for type {args[1].type}',
            hint="supported: " + ", ".join(allowed),
            sqlstate="0A000",
        )
    return unit


def _extract_type(args: Args) -> SqlType:
    unit = _unit(args, tuple(_EXTRACTS), "extract")
    if unit == "epoch" and args[1].type == DATE:
        return numeric(20, 0)
    return _EXTRACTS[unit][1]


def _write_extract(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    template, _ = _EXTRACTS[_unit(args, tuple(_EXTRACTS), "extract")]
    return f"CAST({template.format(*texts)} AS {type_.spark})"


def _trunc_result(args: Args) -> SqlType:
    _unit(args, _TRUNC_UNITS, "date_trunc")
    return args[1].type


def _write_date_trunc(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    unit = _unit(args, _TRUNC_UNITS, "date_trunc").removesuffix("s").upper()
    # Spark truncates instants only; with the session in UTC the way there and back is exact.
    return f"CAST(date_trunc('{unit}', {texts[1]}) AS {type_.spark})"


_MOMENT_RANGE = Failure(
    "coalesce(extract(YEAR FROM {v}) NOT BETWEEN 1 AND 9999, true)", "'timestamp out of range'"
)
_LATER = "({0} + make_ym_interval(0, {1}) + make_dt_interval(0, 0, 0, CAST({2} AS DECIMAL(18,6))))"
_EPOCH_MICROS = "unix_micros({0})"
_FLOOR_MILLIS = "(({x} - pmod({x}, 1000L)) div 1000L)"


def _write_now(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    raise InvalidUsage("mz_now() has no value in SQL: a temporal filter is planned as one")


TIMES: Table = {
    "extract": (
        Overload("text timestamp", _extract_type, _write_extract),
        Overload("text timestamptz", _extract_type, _write_extract),
        Overload("text date", _extract_type, _write_extract),
    ),
    # Not for users: moment + interval, as months and seconds; see moments.py and sql/temporal.py
    "add interval": (
        Overload("timestamptz integer exact", TIMESTAMPTZ, _LATER, (_MOMENT_RANGE,)),
        Overload("timestamp integer exact", TIMESTAMP, _LATER, (_MOMENT_RANGE,)),
    ),
    "floor milliseconds": (Overload("timestamptz", BIGINT, _FLOOR_MILLIS.format(x=_EPOCH_MICROS)),),
    "ceil milliseconds": (
        Overload("timestamptz", BIGINT, f"(- {_FLOOR_MILLIS.format(x=f'(- {_EPOCH_MICROS})')})"),
    ),
    "mz_now": (Overload("", BIGINT, _write_now),),
    "make_date": (
        Overload(
            "integer integer integer",
            DATE,
            "CASE WHEN {0} BETWEEN 1 AND 9999 AND {1} BETWEEN 1 AND 12 AND {2} BETWEEN 1 AND 31"
            " THEN try_cast(format_string('%04d-%02d-%02d', {0}, {1}, {2}) AS DATE) END",
            (
                Failure(
                    "{v} IS NULL",
                    "format_string('date field value out of range: %d-%02d-%02d', {0}, {1}, {2})",
                ),
            ),
        ),
    ),
    "to_timestamp": (
        Overload(
            "double",
            TIMESTAMPTZ,
            "timestamp_micros(try_cast(CASE WHEN {0} BETWEEN -62135596800D AND 253402300799D"
            " THEN rint({0} * 1000000D) END AS BIGINT))",
            (Failure("{v} IS NULL", "'timestamp out of range'"),),
        ),
    ),
    "date_trunc": (
        Overload("text timestamptz", _trunc_result, _write_date_trunc),
        Overload("text timestamp", _trunc_result, _write_date_trunc),
    ),
}
