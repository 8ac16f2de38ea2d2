"""Casts: which types convert to which, how each conversion is written, and when it fails.

`CASTS` is the whole list. A cast is *implicit* (done silently wherever types must meet),
*assignment* (done when a value is stored into a column) or *explicit* (must be written), as in
PostgreSQL. What cannot be converted faithfully is refused by name.

Templates: `{0}` is the argument, `{v}` the cast's own value, `{T}` the Spark type of the result
and `{type}` its SQL name. The first failure whose condition holds gives the error's message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tidemark.compute import literals
from tidemark.compute.expr import Asked, Cast, Expr, Lit
from tidemark.compute.intervals import SPARK_TEXT, kept
from tidemark.compute.json_text import spaced
from tidemark.compute.literals import UNKNOWN
from tidemark.errors import SqlError, Unsupported
from tidemark.types import (
    BARE_NUMERIC_SCALE,
    DATE,
    INTERVAL,
    MAX_PRECISION,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    array_of,
    numeric,
)

Context = Literal["implicit", "assignment", "explicit"]
_STRENGTH = {"implicit": 0, "assignment": 1, "explicit": 2}


@dataclass(frozen=True, slots=True)
class Failure:
    """`message` (a Spark string expression) is the error of a row on which `when` is true."""

    when: str
    message: str


@dataclass(frozen=True, slots=True)
class CastRule:
    context: Context
    spark: str
    fails: tuple[Failure, ...] = ()
    refused: str | None = None


OUT_OF_RANGE = Failure("{v} IS NULL", "'{type} out of range'")
OVERFLOW = Failure("{v} IS NULL", "'numeric field overflow'")
_BAD_INPUT = Failure("{v} IS NULL", "concat('invalid input syntax for type {type}: \"', {0}, '\"')")
_INTEGER_TEXT = (
    Failure(
        "{v} IS NULL AND {0} RLIKE '^\\\\s*[+-]?[0-9]+\\\\s*$'",
        "concat('value \"', {0}, '\" is out of range for type {type}')",
    ),
    _BAD_INPUT,
)
_NUMERIC_TEXT = (
    Failure("{v} IS NULL AND {0} RLIKE '^\\\\s*{NUMBER}\\\\s*$'", "'numeric field overflow'"),
    _BAD_INPUT,
)
_DOUBLE_TEXT = (
    Failure(
        "abs({v}) = double('Infinity') AND NOT lower({0}) LIKE '%inf%'",
        "concat('\"', {0}, '\" is out of range for type double precision')",
    ),
    _BAD_INPUT,
)
_TIME_TEXT = (
    Failure(
        "{v} IS NULL AND {0} RLIKE '{MOMENT}'",
        "concat('date/time field value out of range: \"', {0}, '\"')",
    ),
    _BAD_INPUT,
)
_WORDS = ", ".join(
    [f"'{word}', true" for word in literals.TRUE_WORDS]
    + [f"'{word}', false" for word in literals.FALSE_WORDS]
)

_PLAIN = "CAST({0} AS {T})"
_TRY = "try_cast({0} AS {T})"
_BYTEA = (
    "CASE WHEN {0} LIKE '\\\\\\\\x%' AND char_length({0}) % 2 = 0"
    " THEN try_to_binary(substr({0}, 3), 'hex')"
    " WHEN NOT contains({0}, '\\\\') THEN CAST({0} AS BINARY) END"
)
# Spark's parser stops after a document; a text that is more than one is none as part of another.
_JSONB = (
    "CASE WHEN json_array_length(concat('[', {0}, ']')) = 1"
    " AND json_object_keys(concat('{{\"\":', {0}, '}}')) IS NOT NULL"
    " THEN to_json(try_parse_json({0})) END"
)
# The shortest text that reads back the same: of 15, 16 or 17 digits, without trailing zeros.
# Java's own has a digit too many at times, and its exponents are not PostgreSQL's.
_DIGITS = (
    "CASE WHEN try_cast(format_string('%.14e', x_) AS DOUBLE) = x_ THEN format_string('%.14e', x_)"
    " WHEN try_cast(format_string('%.15e', x_) AS DOUBLE) = x_ THEN format_string('%.15e', x_)"
    " ELSE format_string('%.16e', x_) END"
)
_DOUBLE_TO_TEXT = (
    "transform(array({0}), x_ -> CASE WHEN x_ IS NULL THEN NULL WHEN isnan(x_) THEN 'NaN'"
    " WHEN abs(x_) = double('Infinity') THEN CAST(x_ AS STRING)"
    " WHEN x_ = 0 THEN CASE WHEN CAST(x_ AS STRING) LIKE '-%' THEN '-0' ELSE '0' END"
    " WHEN abs(x_) >= 1e-4D AND abs(x_) < 1e15D THEN"
    f" rtrim('.', rtrim('0', CAST(try_cast({_DIGITS} AS DECIMAL(38,22)) AS STRING)))"
    f" ELSE regexp_replace({_DIGITS}, '[.]?0*e', 'e') END)[0]"
)

JSON_TYPE = (
    "CASE left({0}, 1) WHEN '{{' THEN 'object' WHEN '[' THEN 'array' WHEN '\"' THEN 'string'"
    " WHEN 't' THEN 'boolean' WHEN 'f' THEN 'boolean' WHEN 'n' THEN 'null'"
    " ELSE CASE WHEN {0} IS NOT NULL THEN 'number' END END"
)
_JSON_NUMBER = "{0} RLIKE '^-?[0-9]'"
_NOT_SO_IN_JSON = (
    f"concat('cannot cast jsonb ', replace({JSON_TYPE}, 'number', 'numeric'), ' to type {{type}}')"
)


def _from_json(spark: str, is_such: str, failure: Failure) -> CastRule:
    return CastRule(
        "explicit",
        f"CASE WHEN {is_such} THEN {spark} END",
        (Failure(f"NOT ({is_such})", _NOT_SO_IN_JSON), failure),
    )


CASTS: dict[tuple[str, str], CastRule] = {
    ("boolean", "integer"): CastRule("explicit", _PLAIN),
    ("boolean", "text"): CastRule("assignment", _PLAIN),
    ("smallint", "integer"): CastRule("implicit", _PLAIN),
    ("smallint", "bigint"): CastRule("implicit", _PLAIN),
    ("smallint", "numeric"): CastRule("implicit", _TRY, (OVERFLOW,)),
    ("smallint", "double precision"): CastRule("implicit", _PLAIN),
    ("smallint", "text"): CastRule("assignment", _PLAIN),
    ("integer", "boolean"): CastRule("explicit", "({0} <> 0)"),
    ("integer", "smallint"): CastRule("assignment", _TRY, (OUT_OF_RANGE,)),
    ("integer", "bigint"): CastRule("implicit", _PLAIN),
    ("integer", "numeric"): CastRule("implicit", _TRY, (OVERFLOW,)),
    ("integer", "double precision"): CastRule("implicit", _PLAIN),
    ("integer", "text"): CastRule("assignment", _PLAIN),
    ("bigint", "smallint"): CastRule("assignment", _TRY, (OUT_OF_RANGE,)),
    ("bigint", "integer"): CastRule("assignment", _TRY, (OUT_OF_RANGE,)),
    ("bigint", "numeric"): CastRule("implicit", _TRY, (OVERFLOW,)),
    ("bigint", "double precision"): CastRule("implicit", _PLAIN),
    ("bigint", "text"): CastRule("assignment", _PLAIN),
    # numeric to integer rounds half away from zero, double to integer half to even.
    ("numeric", "smallint"): CastRule(
        "assignment", "try_cast(round({0}, 0) AS {T})", (OUT_OF_RANGE,)
    ),
    ("numeric", "integer"): CastRule(
        "assignment", "try_cast(round({0}, 0) AS {T})", (OUT_OF_RANGE,)
    ),
    ("numeric", "bigint"): CastRule(
        "assignment", "try_cast(round({0}, 0) AS {T})", (OUT_OF_RANGE,)
    ),
    ("numeric", "numeric"): CastRule("implicit", _TRY, (OVERFLOW,)),
    ("numeric", "double precision"): CastRule("implicit", _PLAIN),
    ("numeric", "text"): CastRule("assignment", _PLAIN),
    ("double precision", "smallint"): CastRule(
        "assignment", "try_cast(rint({0}) AS {T})", (OUT_OF_RANGE,)
    ),
    ("double precision", "integer"): CastRule(
        "assignment", "try_cast(rint({0}) AS {T})", (OUT_OF_RANGE,)
    ),
    # 2^63 is a double but not a bigint; Spark's range check lets it through.
    ("double precision", "bigint"): CastRule(
        "assignment",
        "try_cast(nullif(rint({0}), 9223372036854775808D) AS {T})",
        (OUT_OF_RANGE,),
    ),
    # PostgreSQL keeps the 15 digits that a double surely has.
    ("double precision", "numeric"): CastRule(
        "assignment", "try_cast(format_string('%.14e', {0}) AS {T})", (OVERFLOW,)
    ),
    ("double precision", "text"): CastRule("assignment", _DOUBLE_TO_TEXT),
    ("text", "boolean"): CastRule(
        "explicit", f"try_element_at(map({_WORDS}), lower(trim({{0}})))", (_BAD_INPUT,)
    ),
    ("text", "smallint"): CastRule("explicit", _TRY, _INTEGER_TEXT),
    ("text", "integer"): CastRule("explicit", _TRY, _INTEGER_TEXT),
    ("text", "bigint"): CastRule("explicit", _TRY, _INTEGER_TEXT),
    ("text", "numeric"): CastRule(
        "explicit",
        "try_cast(regexp_extract({0}, '^\\\\s*({NUMBER})\\\\s*$', 1) AS {T})",
        _NUMERIC_TEXT,
    ),
    ("text", "double precision"): CastRule(
        "explicit",
        "try_cast(regexp_extract({0}, '^\\\\s*({NUMBER}|{SPECIAL_FLOAT})\\\\s*$', 1) AS {T})",
        _DOUBLE_TEXT,
    ),
    # ISO 8601 only; PostgreSQL's freer notations ('Jan 8 1999', 'yesterday') are bad input here.
    ("text", "date"): CastRule(
        "explicit", "try_cast(regexp_extract({0}, '{MOMENT}', 1) AS {T})", _TIME_TEXT
    ),
    ("text", "timestamp"): CastRule(
        "explicit",
        "try_cast(regexp_replace(regexp_extract({0}, '{MOMENT}', 0), '{TRAILING_ZONE}', '') AS {T})",
        _TIME_TEXT,
    ),
    ("text", "timestamp with time zone"): CastRule(
        "explicit", "try_cast(regexp_extract({0}, '{MOMENT}', 0) AS {T})", _TIME_TEXT
    ),
    ("text", "bytea"): CastRule("explicit", _BYTEA, (_BAD_INPUT,)),
    ("bytea", "text"): CastRule("explicit", "concat('\\\\x', lower(hex({0})))"),
    ("text", "jsonb"): CastRule("explicit", _JSONB, (_BAD_INPUT,)),
    ("jsonb", "text"): CastRule("assignment", spaced("{0}")),
    ("jsonb", "boolean"): _from_json("{0} = 'true'", "{0} IN ('true', 'false')", OVERFLOW),
    **{
        ("jsonb", name): _from_json(
            "try_cast(round(try_cast({0} AS DECIMAL(38,16)), 0) AS {T})", _JSON_NUMBER, OUT_OF_RANGE
        )
        for name in ("smallint", "integer", "bigint")
    },
    ("jsonb", "numeric"): _from_json("try_cast({0} AS {T})", _JSON_NUMBER, OVERFLOW),
    ("jsonb", "double precision"): _from_json("CAST({0} AS {T})", _JSON_NUMBER, OVERFLOW),
    ("date", "timestamp"): CastRule("implicit", _PLAIN),
    ("date", "timestamp with time zone"): CastRule("implicit", _PLAIN),
    ("date", "text"): CastRule("assignment", _PLAIN),
    ("timestamp", "date"): CastRule("assignment", _PLAIN),
    ("timestamp", "timestamp with time zone"): CastRule("implicit", _PLAIN),
    ("timestamp", "text"): CastRule("assignment", _PLAIN),
    ("timestamp with time zone", "date"): CastRule("assignment", _PLAIN),
    ("timestamp with time zone", "timestamp"): CastRule("assignment", _PLAIN),
    ("timestamp with time zone", "text"): CastRule("assignment", "concat({0}, '+00')"),
    ("interval", "text"): CastRule("assignment", SPARK_TEXT),
}

PATTERNS = {
    "NUMBER": literals.NUMBER,
    "SPECIAL_FLOAT": literals.SPECIAL_FLOAT,
    "MOMENT": (
        rf"^\\s*({literals.ISO_DATE})(?:[ tT]{literals.ISO_TIME})?\\s*(?:{literals.ISO_ZONE})?\\s*$"
    ),
    "TRAILING_ZONE": rf"(?<=[0-9])\\s*(?:[zZ]|(?<=:[0-9][0-9]|[.][0-9]{{1,9}})(?:{literals.ISO_ZONE}))\\s*$",
}
"""Regular expressions that the templates name; written for Spark, so backslashes are doubled."""


def rule_for(source: SqlType, target: SqlType) -> CastRule | None:
    if source.element is not None and target.element is not None:
        return _array_rule(source.element, target.element)
    if source.element is not None and target == TEXT:
        return _array_to_text(source.element)
    rule = CASTS.get((source.name, target.name))
    if rule is None or rule.refused:
        return rule
    if target.name == "numeric" and source.is_exact and _contains(target, source):
        return CastRule(rule.context, _PLAIN)
    if target == TEXT and source == NUMERIC:
        return CastRule(rule.context, "rtrim('.', rtrim('0', CAST({0} AS {T})))")
    return rule


def _array_rule(source: SqlType, target: SqlType) -> CastRule | None:
    """Element by element; only where no element can fail."""
    rule = rule_for(source, target)
    if rule is None or rule.refused:
        return rule
    if rule.fails:
        what = f"an element of type {source} may not fit {target}"
        return CastRule(rule.context, "", refused=f"{what}; convert elements before they meet")
    element = rule.spark.replace("{0}", "x_").replace("{T}", target.spark)
    return CastRule(rule.context, f"transform({{0}}, x_ -> {element})")


_NEEDS_QUOTES = "y_ = '' OR upper(y_) = 'NULL' OR y_ RLIKE '[\\\\s{{}},\"\\\\\\\\]'"


def _array_to_text(element: SqlType) -> CastRule | None:
    """As PostgreSQL prints it: what needs quotes gets them."""
    printed = "x_"
    if element.name == "boolean":
        printed = "CASE WHEN x_ THEN 't' WHEN NOT x_ THEN 'f' END"
    elif element != TEXT:
        rule = rule_for(element, TEXT)
        if rule is None or rule.refused:
            return rule
        printed = rule.spark.replace("{0}", "x_").replace("{T}", "STRING")
    escaped = "regexp_replace(y_, '([\"\\\\\\\\])', '\\\\\\\\\u00241')"
    cell = f"CASE WHEN {_NEEDS_QUOTES} THEN concat('\"', {escaped}, '\"') ELSE y_ END"
    cells = f"transform(transform({{0}}, x_ -> {printed}), y_ -> {cell})"
    return CastRule("assignment", f"concat('{{{{', array_join({cells}, ',', 'NULL'), '}}}}')")


def cast(expr: Expr, type_: SqlType, *, context: Context = "explicit") -> Expr:
    """`expr` as `type_`; a literal is converted at once. 42846 if there is no such cast."""
    if expr.type == type_:
        return expr
    if isinstance(expr, Lit) and (expr.type == UNKNOWN or expr.value is None):
        if isinstance(expr, Asked):
            expr.told.types.append(type_)
        return Lit(None, type_) if expr.value is None else literals.typed(expr.value, type_)
    rule = rule_for(expr.type, type_)
    if rule is None or _STRENGTH[rule.context] > _STRENGTH[context]:
        raise SqlError(f"cannot cast type {expr.type} to {type_}", sqlstate="42846")
    if rule.refused:
        raise Unsupported(f"cannot cast type {expr.type} to {type_}", hint=rule.refused)
    folded = literals.converted(expr, type_) if isinstance(expr, Lit) else None
    return folded if folded is not None else Cast(expr, type_)


def castable(source: SqlType, target: SqlType, context: Context) -> bool:
    if source.name == target.name or source == UNKNOWN:
        return True
    rule = rule_for(source, target)
    return rule is not None and _STRENGTH[rule.context] <= _STRENGTH[context]


def settled(expr: Expr) -> Expr:
    """A literal that found no context is text, as in PostgreSQL; an interval has no months."""
    if expr.type == INTERVAL:
        return kept(expr)
    return cast(expr, TEXT) if expr.type == UNKNOWN else expr


def common_type(types: Iterable[SqlType]) -> SqlType | None:
    """The type in which values of all these types meet; None if there is none."""
    known = [type_ for type_ in types if type_ != UNKNOWN]
    if not known:
        return TEXT
    result = known[0]
    for type_ in known[1:]:
        met = _meet(result, type_)
        if met is None:
            return None
        result = met
    return result


def bounded(integral: int, scale: int) -> SqlType:
    """A numeric of so many digits before and after the point, as far as 38 digits go.

    The scale is kept and digits in front are given up (an overflow there is an error that the
    user sees), unless even bare numeric has fewer decimals: then it is bare numeric.
    """
    if integral + scale <= MAX_PRECISION:
        return numeric(max(integral + scale, 1), scale)
    return numeric(MAX_PRECISION, scale) if scale <= BARE_NUMERIC_SCALE else NUMERIC


def digits(type_: SqlType) -> tuple[int, int]:
    """Digits before and after the decimal point."""
    precision, scale = type_.decimal
    return precision - scale, scale


_INTEGERS = ("smallint", "integer", "bigint")
_MOMENTS = (DATE, TIMESTAMP, TIMESTAMPTZ)


def _meet(a: SqlType, b: SqlType) -> SqlType | None:
    if a == b:
        return a
    if a.element is not None and b.element is not None:
        met = _meet(a.element, b.element)
        return None if met is None else array_of(met)
    if a.is_integer and b.is_integer:
        return max(a, b, key=lambda type_: _INTEGERS.index(type_.name))
    if a.is_exact and b.is_exact:
        if NUMERIC in (a, b):
            return NUMERIC
        (a_integral, a_scale), (b_integral, b_scale) = digits(a), digits(b)
        return bounded(max(a_integral, b_integral), max(a_scale, b_scale))
    if a.is_number and b.is_number:
        return a if a.name == "double precision" else b
    if a in _MOMENTS and b in _MOMENTS:
        return max(a, b, key=_MOMENTS.index)
    return None


def _contains(target: SqlType, source: SqlType) -> bool:
    """True if every value of `source` fits; rounding to fewer decimals may need one digit more."""
    (integral, scale), (source_integral, source_scale) = digits(target), digits(source)
    return integral >= source_integral + (1 if scale < source_scale else 0)
