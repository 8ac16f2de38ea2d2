"""Functions of dates and timestamps; the session's time zone is UTC."""

from __future__ import annotations

from zoneinfo import available_timezones

from tidemark.compute.casts import Failure
from tidemark.compute.expr import Lit
from tidemark.compute.functions.overload import Args, Overload, Table
from tidemark.compute.literals import quoted
from tidemark.errors import InvalidUsage, SqlError, Unsupported
from tidemark.types import BIGINT, BOOLEAN, DATE, INTERVAL, TIMESTAMP, TIMESTAMPTZ, SqlType, numeric

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
    "julian": ("(unix_date({1}) + 2440588)", numeric(10, 0)),
    "timezone": ("CASE WHEN {1} IS NOT NULL THEN 0 END", numeric(10, 0)),
    "timezone_hour": ("CASE WHEN {1} IS NOT NULL THEN 0 END", numeric(10, 0)),
    "timezone_minute": ("CASE WHEN {1} IS NOT NULL THEN 0 END", numeric(10, 0)),
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
_ZONE_FIELDS = ("timezone", "timezone_hour", "timezone_minute")
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
    "decade",
    "century",
    "millennium",
)
_LONG_UNITS = {
    "decade": "y_ - y_ % 10",
    "century": "(y_ - 1) - (y_ - 1) % 100 + 1",
    "millennium": "(y_ - 1) - (y_ - 1) % 1000 + 1",
}
"""The first year of each; that of the decade of year 1 is year 0, which is not kept."""


def _unit(args: Args, allowed: tuple[str, ...], function: str) -> str:
    literal = args[0]
    if not isinstance(literal, Lit) or literal.value is None:
        raise Unsupported(f"{function} of a unit that is not a constant is not supported")
    unit = literal.value.lower()
    unit = unit.removesuffix("s") if unit.removesuffix("s") in allowed else unit
    misplaced = (args[1].type == DATE and unit in _CLOCK_FIELDS) or (
        args[1].type != TIMESTAMPTZ and unit in _ZONE_FIELDS
    )
    misplaced = misplaced or (unit == "julian" and args[1].type != DATE)
    if unit not in allowed or misplaced:
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
    unit = _unit(args, _TRUNC_UNITS, "date_trunc")
    if unit in _LONG_UNITS:
        year = _LONG_UNITS[unit]
        first = f"make_date(CASE WHEN {year} < 1 THEN 1 ELSE {year} END, 1, 1)"
        years = f"array(extract(YEAR FROM {texts[1]}))"
        return f"CAST(transform({years}, y_ -> {first})[0] AS {type_.spark})"
    unit = unit.removesuffix("s").upper()
    # Spark truncates instants only; with the session in UTC the way there and back is exact.
    return f"CAST(date_trunc('{unit}', {texts[1]}) AS {type_.spark})"


_MOMENT_RANGE = Failure(
    "coalesce(extract(YEAR FROM {v}) NOT BETWEEN 1 AND 9999, true)", "'timestamp out of range'"
)
_LATER = (
    "({0} + CASE WHEN {1} BETWEEN -240000 AND 240000 THEN make_ym_interval(0, {1}) END"
    " + make_dt_interval(0, 0, 0, try_cast({2} AS DECIMAL(18,6))))"
)
"""Null where Spark would fail: what is that long leads out of the years from 1 to 9999."""
_EPOCH_MICROS = "unix_micros({0})"
_FLOOR_MILLIS = "(({x} - pmod({x}, 1000L)) div 1000L)"


def _write_now(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    raise InvalidUsage("mz_now() has no value in SQL: a temporal filter is planned as one")


_CLOCK_TEXT = (
    "CASE WHEN {0} BETWEEN 1 AND 9999 AND {5} >= 0 AND {5} < 60 THEN format_string("
    "'%04d-%02d-%02d %02d:%02d:%09.6f', {0}, {1}, {2}, {3}, {4}, {5}) END"
)


def _zone(args: Args) -> str:
    zone = args[1]
    if not isinstance(zone, Lit) or zone.value is None:
        raise Unsupported("AT TIME ZONE with a zone that is not a constant is not supported")
    known = {name.lower(): name for name in available_timezones()}
    if zone.value.lower() not in known:
        raise Unsupported(
            f'time zone "{zone.value}" is not supported',
            hint="use a name like Europe/Berlin or UTC",
            sqlstate="22023",
        )
    return quoted(known[zone.value.lower()])


def _write_local(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"CAST(from_utc_timestamp({texts[0]}, {_zone(args)}) AS TIMESTAMP_NTZ)"


def _write_of_local(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    zone, wall = _zone(args), f"CAST({texts[0]} AS TIMESTAMP)"
    later = "u_ + INTERVAL '1' HOUR"
    return (
        f"transform(array(to_utc_timestamp({wall}, {zone})), u_ -> CASE WHEN"
        f" from_utc_timestamp({later}, {zone}) = {wall} THEN {later} ELSE u_ END)[0]"
    )


_LONG = Failure("{v} IS NULL", "'interval out of range'")
_BY_ZERO = Failure("{1} = 0", "'division by zero'")


def _scaled(by: str) -> str:
    """An interval's microseconds as a double, `by` something, as PostgreSQL computes it."""
    micros = f"try_cast(rint(CAST({{0}} * 1000000BD AS DOUBLE) {by}) AS BIGINT)"
    return (
        f"CAST(CAST({micros} AS DECIMAL(20,0)) * CAST('0.000001' AS DECIMAL(7,6)) AS DECIMAL(20,6))"
    )


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
    # An interval from its seconds, and back.
    "interval of": (Overload("exact", INTERVAL, "try_cast({0} AS DECIMAL(20,6))", (_LONG,)),),
    "seconds of": (Overload("interval", numeric(20, 6), "{0}"),),
    "interval * double": (Overload("interval double", INTERVAL, _scaled("* {1}"), (_LONG,)),),
    "interval / double": (
        Overload("interval double", INTERVAL, _scaled("/ nullif({1}, 0D)"), (_BY_ZERO, _LONG)),
    ),
    "justify_hours": (Overload("interval", INTERVAL, "{0}"),),
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
    "make_timestamp": (
        Overload(
            "integer integer integer integer integer double",
            TIMESTAMP,
            f"try_cast({_CLOCK_TEXT} AS TIMESTAMP_NTZ)",
            (Failure("{v} IS NULL", "'date/time field value out of range'"),),
        ),
    ),
    "make_timestamptz": (
        Overload(
            "integer integer integer integer integer double",
            TIMESTAMPTZ,
            f"try_cast({_CLOCK_TEXT} AS TIMESTAMP)",
            (Failure("{v} IS NULL", "'date/time field value out of range'"),),
        ),
    ),
    "isfinite": tuple(
        Overload(moment, BOOLEAN, "CASE WHEN {0} IS NOT NULL THEN true END")
        for moment in ("timestamp", "timestamptz", "date")
    ),
    # AT TIME ZONE; a time that comes twice when clocks go back is the later one.
    "local time": (Overload("timestamptz text", TIMESTAMP, _write_local),),
    "time of local": (Overload("timestamp text", TIMESTAMPTZ, _write_of_local),),
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
