"""Literals: how constants are read when a statement is planned, and written as Spark SQL.

A quoted string or NULL has no type of its own until its context gives it one; until then it has
the type `UNKNOWN`, which never leaves the planner. Conversions of literals happen here, once, so
that `VALUES` of ten thousand rows becomes ten thousand rows of plain constants.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation, Overflow

from tidemark.compute.arrays import array_text, read_array
from tidemark.compute.expr import Lit
from tidemark.compute.intervals import kept, read_interval, seconds_of
from tidemark.compute.jsonb import canonical
from tidemark.errors import DataError, Unsupported
from tidemark.types import BIGINT, BOOLEAN, INTEGER, MAX_PRECISION, SqlType, numeric

UNKNOWN = SqlType("unknown")
"""The type of a quoted literal, a NULL or an untyped parameter before its context gives one."""

_MOMENTS = ("date", "timestamp", "timestamp with time zone")
BYTEA_PREFIX = "\\x"

INTEGER_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
TRUE_WORDS = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
FALSE_WORDS = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")

# The same patterns guard the run-time casts from text (casts.py), so both accept the same input.
NUMBER = r"[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?"
SPECIAL_FLOAT = r"[+-]?(?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)|[nN][aA][nN]"
ISO_DATE = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
ISO_TIME = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]+)?)?"
ISO_ZONE = r"[zZ]|[+-][0-9]{2}(?::?[0-9]{2})?"

WIDE = Context(prec=2 * MAX_PRECISION)
MOST_DIGITS = 4_300
"""Python reads no longer integers, as that takes it long."""
_TIMESTAMP = re.compile(rf"({ISO_DATE})(?:[ tT]({ISO_TIME}))?\s*({ISO_ZONE})?")


def _decimal(text: str) -> Decimal:
    try:
        return WIDE.create_decimal(text)
    except Overflow:
        raise DataError("value overflows numeric format", sqlstate="22003") from None


def number_literal(text: str) -> Lit:
    """An unquoted number: integer, bigint or a numeric just wide enough, as PostgreSQL types it."""
    if text.lstrip("-").isdecimal() and len(text) <= MOST_DIGITS:
        value = int(text)
        if fits(value, INTEGER):
            return Lit(str(value), INTEGER)
        if fits(value, BIGINT):
            return Lit(str(value), BIGINT)
    value = _decimal(text)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(value.as_tuple().digits) + max(0, exponent), scale, 1)
    if precision > MAX_PRECISION:
        raise DataError(
            f"the number {text} does not fit into {MAX_PRECISION} digits",
            hint=f"'{text}'::double precision is not exact, but can be larger and smaller",
            sqlstate="22003",
        )
    return Lit(format(value, "f"), numeric(precision, scale))


def fits(value: int, type_: SqlType) -> bool:
    bound = 1 << (INTEGER_BITS[type_.name] - 1)
    return -bound <= value < bound


def typed(text: str, type_: SqlType) -> Lit:
    """The quoted literal `text` read as `type_`; raises DataError where PostgreSQL would."""
    if type_.element is not None:
        return _read_array(text, type_, type_.element)
    read = _READERS.get(type_.name)
    if read is None:
        raise Unsupported(f"literals of type {type_} are not supported")
    return Lit(read(text, type_), type_)


def _read_array(text: str, type_: SqlType, element: SqlType) -> Lit:
    cells = [each if each is None else typed(each, element).value for each in read_array(text)]
    return Lit(array_text(cells), type_)


def elements_of(literal: Lit) -> list[Lit]:
    """The elements of an array's literal, which is not null."""
    assert literal.type.element is not None
    return [Lit(text, literal.type.element) for text in read_array(literal.value or "{}")]


def converted(literal: Lit, type_: SqlType) -> Lit | None:
    """A typed literal as another type, or None where only the running cast can tell."""
    source, text = literal.type, literal.value
    if text is None or source == type_:
        return Lit(text, type_)
    if source == UNKNOWN:
        return typed(text, type_)
    if source.name in _MOMENTS and type_.name in _MOMENTS:
        return typed(text, type_)  # all of them in UTC
    if not (source.is_number and type_.is_number):
        return None
    if source.name == "double precision":
        return None
    if type_.name == "double precision":
        return Lit(_double_text(float(text)), type_)
    value = WIDE.create_decimal(text)
    if type_.is_integer:
        whole = int(value.quantize(Decimal(1), ROUND_HALF_UP, WIDE))
        return Lit(str(whole), type_) if fits(whole, type_) else None
    rounded = _to_scale(value, type_)
    return None if rounded is None else Lit(rounded, type_)


def spark_literal(literal: Lit) -> str:
    """The literal as typed Spark SQL; whatever the text holds, it stays one literal."""
    text, type_ = literal.value, literal.type
    if text is None:
        return f"CAST(NULL AS {type_.spark_value})"
    if type_.element is not None:
        cells = ", ".join(spark_literal(each) for each in elements_of(literal))
        return f"array({cells})" if cells else f"CAST(array() AS {type_.spark_value})"
    match type_.name:
        case "boolean":
            return "true" if text in ("true", "t") else "false"
        case "text" | "jsonb":
            return quoted(text)
        case "bytea":
            return f"X'{text.removeprefix(BYTEA_PREFIX)}'"
        case "integer":
            return f"({text})" if text.startswith("-") else text
        case "timestamp":
            return f"TIMESTAMP_NTZ{quoted(text)}"
        case "timestamp with time zone":
            return f"TIMESTAMP{quoted(text)}"
        case "date":
            return f"DATE{quoted(text)}"
        case "interval":
            return f"CAST('{seconds_of(literal)}' AS {type_.spark})"
        case _:
            return f"CAST({quoted(text)} AS {type_.spark})"


def quoted(text: str) -> str:
    """A Spark string literal.

    Backslashes and quotes are escaped; so is the dollar sign, because Spark substitutes
    `${variables}` in SQL text before parsing it, inside quotes too.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def invalid_input(type_: SqlType | str, text: str) -> DataError:
    name = type_ if isinstance(type_, str) else type_.name
    return DataError(f'invalid input syntax for type {name}: "{text}"', sqlstate="22P02")


def _read_boolean(text: str, _: SqlType) -> str:
    word = text.strip().lower()
    if word in TRUE_WORDS:
        return "true"
    if word in FALSE_WORDS:
        return "false"
    raise invalid_input(BOOLEAN, text)


def _read_integer(text: str, type_: SqlType) -> str:
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        raise invalid_input(type_, text)
    if len(text) > MOST_DIGITS or not fits(int(text), type_):
        raise DataError(f'value "{text}" is out of range for type {type_}', sqlstate="22003")
    return str(int(text))


def _read_numeric(text: str, type_: SqlType) -> str:
    if not re.fullmatch(NUMBER, text.strip()):
        raise invalid_input(type_, text)
    rounded = _to_scale(_decimal(text.strip()), type_)
    if rounded is None:
        raise DataError("numeric field overflow", sqlstate="22003")
    return rounded


def _read_double(text: str, type_: SqlType) -> str:
    if not re.fullmatch(f"{NUMBER}|{SPECIAL_FLOAT}", text.strip()):
        raise invalid_input(type_, text)
    value = float(text)
    if abs(value) == float("inf") and re.fullmatch(NUMBER, text.strip()):
        raise DataError(f'"{text}" is out of range for type double precision', sqlstate="22003")
    return _double_text(value)


def _read_bytea(text: str, type_: SqlType) -> str:
    """The hex format; of the escape format only text that has nothing to escape."""
    if text.startswith(BYTEA_PREFIX):
        try:
            return BYTEA_PREFIX + bytes.fromhex(text.removeprefix(BYTEA_PREFIX)).hex()
        except ValueError:
            raise invalid_input(type_, text) from None
    if "\\" in text:
        raise invalid_input(type_, text)
    return BYTEA_PREFIX + text.encode().hex()


def _read_jsonb(text: str, type_: SqlType) -> str:
    try:
        return canonical(text)
    except (ValueError, RecursionError):
        raise invalid_input(type_, text) from None


def _read_date(text: str, type_: SqlType) -> str:
    return _moment(text, type_).date().isoformat()


def _read_timestamp(text: str, type_: SqlType) -> str:
    return moment_text(_moment(text, type_).replace(tzinfo=None))


def _read_timestamptz(text: str, type_: SqlType) -> str:
    moment = _moment(text, type_)
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return moment_text(moment) + "+00"


def moment_of(literal: Lit) -> dt.datetime:
    """A date's, timestamp's or timestamptz's literal, in UTC; it is not null."""
    return _moment(literal.value or "", literal.type).replace(tzinfo=None)


def moment_text(moment: dt.datetime) -> str:
    text = moment.isoformat(sep=" ")
    return text.rstrip("0") if moment.microsecond else text


def _moment(text: str, type_: SqlType) -> dt.datetime:
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        raise invalid_input(type_, text)
    date, time, zone = found.groups()
    year, month, day = (int(part) for part in date.split("-"))
    hour, minute, second = [*(time or "0:0").split(":"), "0"][:3]
    # Like Spark's own cast: digits beyond the microsecond are cut off.
    fraction = (second.partition(".")[2] + "000000")[:6]
    try:
        moment = dt.datetime(
            year, month, day, int(hour), int(minute), int(second.partition(".")[0]), int(fraction)
        )
        return moment.replace(tzinfo=_zone(zone)) if zone else moment
    except ValueError:
        raise DataError(f'date/time field value out of range: "{text}"', sqlstate="22008") from None


def _zone(text: str) -> dt.timezone:
    if text in "zZ":
        return dt.UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return dt.timezone(-offset if text[0] == "-" else offset)


def _to_scale(value: Decimal, type_: SqlType) -> str | None:
    """`value` rounded half away from zero to the type's scale, or None if it does not fit."""
    precision, scale = type_.decimal
    try:
        rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, WIDE)
    except InvalidOperation:
        return None
    if rounded.adjusted() >= precision - scale and rounded != 0:
        return None
    text = format(rounded, "f")
    if type_.precision is None and "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _double_text(value: float) -> str:
    if value != value:
        return "NaN"
    if abs(value) == float("inf"):
        return "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    return text[:-2] if text.endswith(".0") else text


_READERS = {
    "boolean": _read_boolean,
    "smallint": _read_integer,
    "integer": _read_integer,
    "bigint": _read_integer,
    "numeric": _read_numeric,
    "double precision": _read_double,
    "text": lambda text, _: text,
    "bytea": _read_bytea,
    "jsonb": _read_jsonb,
    "date": _read_date,
    "timestamp": _read_timestamp,
    "timestamp with time zone": _read_timestamptz,
    "interval": lambda text, _: kept(read_interval(text)).value,
}
