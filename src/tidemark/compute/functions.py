"""The functions and operators that an expression may use: `FUNCTIONS` is the whole list.

Each entry gives, per overload, the argument types, the type of the result, how it is written in
Spark SQL, and when it fails. Types follow PostgreSQL: `integer / integer` truncates, `integer +
bigint` is bigint, dividing numerics gives a bare numeric, a quoted literal takes the type of the
other side.

**Errors are data.** Spark runs in ANSI mode, where `1/0` would end the query. So everything here
is written with functions that give NULL instead of raising (`try_add`, `try_cast`, `nullif`
guards), and the conditions under which PostgreSQL would have raised are listed beside them;
`render_expr.py` turns those into a second expression, the error message of the row.

Decimals need care: Spark silently drops decimals of a product or quotient whose type would exceed
38 digits. Results here have the scale that PostgreSQL's rules ask for, and are exact to it, or
overflow visibly.

Templates: `{0}`, `{1}` are the arguments, `{v}` the call's own value, `{T}` the Spark type of the
result and `{type}` its SQL name. `{min}` is the least value of an integer type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.compute import decimals
from tidemark.compute.casts import (
    OUT_OF_RANGE,
    Failure,
    bounded,
    cast,
    castable,
    common_type,
    digits,
)
from tidemark.compute.expr import Call, Expr, Lit
from tidemark.compute.literals import UNKNOWN, spark_literal
from tidemark.errors import SqlError, Unsupported
from tidemark.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    numeric,
    type_named,
)

__all__ = ["FUNCTIONS", "Overload", "call", "cast", "overload_of"]

Args = tuple[Expr, ...]
Writer = Callable[[tuple[str, ...], Args, SqlType], str]


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function.

    `args` names a type per argument. `int` is any integer type and `any` any type at all, each
    the same for all arguments so named; `exact` is a numeric of any precision; a last `...`
    repeats the one before it.
    """

    args: str
    result: SqlType | Callable[[Args], SqlType]
    spark: str | Writer
    fails: tuple[Failure, ...] = ()
    operands: Callable[[Args], tuple[SqlType, ...]] | None = None
    refused: str | None = None


def _same(args: Args) -> SqlType:
    return args[0].type


def _sum_type(args: Args) -> SqlType:
    if NUMERIC in (args[0].type, args[1].type):
        return NUMERIC
    (a, a_scale), (b, b_scale) = digits(args[0].type), digits(args[1].type)
    return bounded(max(a, b) + 1, max(a_scale, b_scale))


def _sum_operands(args: Args) -> tuple[SqlType, SqlType]:
    """Operands one digit narrower than the result, so that Spark types the sum as we do."""
    precision, scale = _sum_type(args).decimal
    operand = numeric(precision - 1, min(scale, precision - 1))
    return operand, operand


def _product_type(args: Args) -> SqlType:
    if NUMERIC in (args[0].type, args[1].type):
        return NUMERIC
    (a, a_scale), (b, b_scale) = digits(args[0].type), digits(args[1].type)
    return bounded(a + b, a_scale + b_scale)


def _remainder_type(args: Args) -> SqlType:
    if NUMERIC in (args[0].type, args[1].type):
        return NUMERIC
    (a, a_scale), (b, b_scale) = digits(args[0].type), digits(args[1].type)
    return bounded(min(a, b), max(a_scale, b_scale))


def _whole_type(args: Args) -> SqlType:
    return bounded(digits(args[0].type)[0] + 1, 0)


def _rounded_type(args: Args) -> SqlType:
    places = _places(args)
    integral = digits(args[0].type)[0] + 1
    if places < 0:
        return bounded(integral, 0)
    if integral + places > 38:
        integral = max(38 - places, 0)
    return numeric(integral + places, places)


def _places(args: Args) -> int:
    literal = args[1]
    if not isinstance(literal, Lit) or literal.value is None:
        raise Unsupported(
            "round and trunc to a number of digits that is not a constant are not supported",
            hint="write the number of digits as a literal, e.g. round(x, 2)",
        )
    places = int(literal.value)
    if not -38 <= places <= 38:
        raise Unsupported(f"round and trunc to {places} digits: at most 38 are supported")
    return places


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
_CLOCK_FIELDS = ("hour", "minute", "second")
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


def _write_negate(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    """Spark negates decimals in 34 digits; longer ones change their sign as text."""
    if type_.decimal[0] <= 34:
        return f"(- {texts[0]})"
    text = f"CAST({texts[0]} AS STRING)"
    flipped = f"CASE WHEN {texts[0]} < 0 THEN substr({text}, 2) ELSE concat('-', {text}) END"
    return f"CAST({flipped} AS {type_.spark})"


def _write_abs(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"CASE WHEN {texts[0]} < 0 THEN {_write_negate(texts, args, type_)} ELSE {texts[0]} END"


def _write_round(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    places = _places(args) if len(args) > 1 else 0
    return f"CAST(round({texts[0]}, {places}) AS {type_.spark})"


def _write_trunc(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    x, places = texts[0], _places(args) if len(args) > 1 else 0
    return f"CAST(CASE WHEN {x} < 0 THEN ceil({x}, {places}) ELSE floor({x}, {places}) END AS {type_.spark})"


def _write_like(operator: str) -> Writer:
    def write(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
        # Spark rejects a backslash before an ordinary character, PostgreSQL drops it.
        pattern = (
            rf"regexp_replace({texts[1]}, '(?s)\\\\([^%_\\\\])|(\\\\.)|\\\\$', '\u00241\u00242')"
        )
        return f"({texts[0]} {operator} {_plain_pattern(args[1]) or pattern})"

    return write


def _plain_pattern(pattern: Expr) -> str | None:
    if isinstance(pattern, Lit) and pattern.value is not None and "\\" not in pattern.value:
        return spark_literal(pattern)
    return None


def _needs_numeric(name: str) -> str:
    return f"{name} of numeric is not supported; cast to double precision, e.g. {name}(x::double precision)"


# Failures --------------------------------------------------------------------------------------

_BY_ZERO = Failure("{1} = 0", "'division by zero'")
_INFINITE = Failure(
    "abs({v}) = double('Infinity') AND abs({0}) <> double('Infinity')"
    " AND abs({1}) <> double('Infinity')",
    "'value out of range: overflow'",
)
_VANISHED = Failure("{v} = 0 AND {0} <> 0 AND {1} <> 0", "'value out of range: underflow'")
_QUOTIENT_VANISHED = Failure(
    "{v} = 0 AND {0} <> 0 AND abs({1}) <> double('Infinity')", "'value out of range: underflow'"
)
_OVERFLOW = Failure("{v} IS NULL", "'numeric field overflow'")
# PostgreSQL goes further, but years beyond four digits print and travel differently everywhere.
_DATE_RANGE = Failure(
    "coalesce({v} NOT BETWEEN DATE'0001-01-01' AND DATE'9999-12-31', true)", "'date out of range'"
)
_BAD_PATTERN = Failure(
    "{1} RLIKE '(?s)(^|[^\\\\\\\\])(\\\\\\\\\\\\\\\\)*\\\\\\\\$'",
    "'LIKE pattern must not end with escape character'",
)

FUNCTIONS: dict[str, tuple[Overload, ...]] = {
    # Arithmetic
    "+": (
        Overload("int int", _same, "try_add({0}, {1})", (OUT_OF_RANGE,)),
        Overload("exact exact", _sum_type, "({0} + {1})", operands=_sum_operands),
        Overload("double double", DOUBLE, "({0} + {1})", (_INFINITE,)),
        Overload(
            "date integer",
            DATE,
            "date_from_unix_date(try_add(unix_date({0}), {1}))",
            (_DATE_RANGE,),
        ),
        Overload(
            "integer date",
            DATE,
            "date_from_unix_date(try_add(unix_date({1}), {0}))",
            (_DATE_RANGE,),
        ),
    ),
    "-": (
        Overload("int int", _same, "try_subtract({0}, {1})", (OUT_OF_RANGE,)),
        Overload("exact exact", _sum_type, "({0} - {1})", operands=_sum_operands),
        Overload("double double", DOUBLE, "({0} - {1})", (_INFINITE,)),
        Overload("date date", INTEGER, "datediff({0}, {1})"),
        Overload(
            "date integer",
            DATE,
            "date_from_unix_date(try_subtract(unix_date({0}), {1}))",
            (_DATE_RANGE,),
        ),
    ),
    "*": (
        Overload("int int", _same, "try_multiply({0}, {1})", (OUT_OF_RANGE,)),
        Overload("exact exact", _product_type, decimals.product, (_OVERFLOW,)),
        Overload("double double", DOUBLE, "({0} * {1})", (_INFINITE, _VANISHED)),
    ),
    "/": (
        Overload("int int", _same, decimals.integer_quotient, (_BY_ZERO, OUT_OF_RANGE)),
        Overload("exact exact", NUMERIC, decimals.quotient, (_BY_ZERO, _OVERFLOW)),
        Overload(
            "double double",
            DOUBLE,
            "try_divide({0}, {1})",
            (_BY_ZERO, _INFINITE, _QUOTIENT_VANISHED),
        ),
    ),
    "%": (
        Overload("int int", _same, "CAST(({0} % nullif({1}, 0)) AS {T})", (_BY_ZERO,)),
        Overload(
            "exact exact", _remainder_type, "CAST(({0} % nullif({1}, 0)) AS {T})", (_BY_ZERO,)
        ),
    ),
    "negate": (
        Overload(
            "int",
            _same,
            "(- nullif({0}, {min}))",
            (Failure("{0} = {min}", "'{type} out of range'"),),
        ),
        Overload("exact", _same, _write_negate),
        Overload("double", DOUBLE, "(- {0})"),
    ),
    "abs": (
        Overload(
            "int",
            _same,
            "abs(nullif({0}, {min}))",
            (Failure("{0} = {min}", "'{type} out of range'"),),
        ),
        Overload("exact", _same, _write_abs),
        Overload("double", DOUBLE, "abs({0})"),
    ),
    "round": (
        Overload("double", DOUBLE, "rint({0})"),
        Overload("exact", _whole_type, _write_round, (_OVERFLOW,)),
        Overload("exact integer", _rounded_type, _write_round, (_OVERFLOW,)),
    ),
    "trunc": (
        Overload(
            "double",
            DOUBLE,
            "CASE WHEN abs({0}) < 1e15D THEN CAST(CAST({0} AS BIGINT) AS DOUBLE) ELSE {0} END",
        ),
        Overload("exact", _whole_type, _write_trunc),
        Overload("exact integer", _rounded_type, _write_trunc),
    ),
    "floor": (
        Overload(
            "double",
            DOUBLE,
            "CASE WHEN abs({0}) < 1e15D THEN CAST(floor({0}) AS DOUBLE) ELSE {0} END",
        ),
        Overload("exact", _whole_type, "CAST(floor({0}) AS {T})"),
    ),
    "ceil": (
        Overload(
            "double",
            DOUBLE,
            "CASE WHEN abs({0}) < 1e15D THEN CAST(ceil({0}) AS DOUBLE) ELSE {0} END",
        ),
        Overload("exact", _whole_type, "CAST(ceil({0}) AS {T})"),
    ),
    "sqrt": (
        Overload(
            "double",
            DOUBLE,
            "sqrt({0})",
            (Failure("{0} < 0", "'cannot take square root of a negative number'"),),
        ),
        Overload("exact", NUMERIC, "", refused=_needs_numeric("sqrt")),
    ),
    "power": (
        Overload(
            "double double",
            DOUBLE,
            "power({0}, {1})",
            (
                Failure("{0} = 0 AND {1} < 0", "'zero raised to a negative power is undefined'"),
                Failure(
                    "{0} < 0 AND abs({0}) <> double('Infinity') AND rint({1}) <> {1}",
                    "'a negative number raised to a non-integer power yields a complex result'",
                ),
                _INFINITE,
                Failure(
                    "{v} = 0 AND {0} <> 0 AND abs({0}) <> double('Infinity')"
                    " AND abs({1}) <> double('Infinity')",
                    "'value out of range: underflow'",
                ),
            ),
        ),
        Overload("exact exact", NUMERIC, "", refused=_needs_numeric("power")),
    ),
    # Of a count, a sum and a sum of squares: what `aggregates.composed` asks for
    **{
        f"{name} of sums": (
            Overload(
                "bigint exact exact",
                NUMERIC,
                decimals.variance(sample=sample, root=root),
                (Failure(f"{{v}} IS NULL AND {{0}} > {int(sample)}", "'numeric field overflow'"),),
            ),
        )
        for name, sample, root in (
            ("var_pop", False, False),
            ("var_samp", True, False),
            ("stddev_pop", False, True),
            ("stddev_samp", True, True),
        )
    },
    # Comparison
    "=": (Overload("any any", BOOLEAN, "({0} = {1})"),),
    "<>": (Overload("any any", BOOLEAN, "({0} <> {1})"),),
    "<": (Overload("any any", BOOLEAN, "({0} < {1})"),),
    "<=": (Overload("any any", BOOLEAN, "({0} <= {1})"),),
    ">": (Overload("any any", BOOLEAN, "({0} > {1})"),),
    ">=": (Overload("any any", BOOLEAN, "({0} >= {1})"),),
    "is distinct from": (Overload("any any", BOOLEAN, "(NOT ({0} <=> {1}))"),),
    "is not distinct from": (Overload("any any", BOOLEAN, "({0} <=> {1})"),),
    "in": (Overload("any any ...", BOOLEAN, "({0} IN ({rest}))"),),
    "greatest": (Overload("any ...", _same, "greatest({all})"),),
    "least": (Overload("any ...", _same, "least({all})"),),
    # Logic; how errors pass through these is in render_expr.py
    "and": (Overload("boolean ...", BOOLEAN, "({ands})"),),
    "or": (Overload("boolean ...", BOOLEAN, "({ors})"),),
    "not": (Overload("boolean", BOOLEAN, "(NOT {0})"),),
    "is null": (Overload("any", BOOLEAN, "({0} IS NULL)"),),
    "is not null": (Overload("any", BOOLEAN, "({0} IS NOT NULL)"),),
    "is true": (Overload("boolean", BOOLEAN, "({0} IS TRUE)"),),
    "is not true": (Overload("boolean", BOOLEAN, "({0} IS NOT TRUE)"),),
    "is false": (Overload("boolean", BOOLEAN, "({0} IS FALSE)"),),
    "is not false": (Overload("boolean", BOOLEAN, "({0} IS NOT FALSE)"),),
    "coalesce": (Overload("any ...", _same, "coalesce({all})"),),
    # Not for users: fails with its second argument where the first is true.
    "raise if": (Overload("boolean text", BOOLEAN, "{0}", (Failure("{0}", "{1}"),)),),
    # Text
    "||": (Overload("text text", TEXT, "concat({0}, {1})"),),
    "lower": (Overload("text", TEXT, "lower({0})"),),
    "upper": (Overload("text", TEXT, "upper({0})"),),
    "length": (Overload("text", INTEGER, "char_length({0})"),),
    "replace": (Overload("text text text", TEXT, "replace({0}, {1}, {2})"),),
    "substring": (
        # Positions start at 1; those before it count towards the length.
        Overload("text integer", TEXT, "substring({0}, CASE WHEN {1} < 1 THEN 1 ELSE {1} END)"),
        Overload(
            "text integer integer",
            TEXT,
            "substring({0}, CASE WHEN {1} < 1 THEN 1 ELSE {1} END,"
            " CAST(greatest(CASE WHEN {1} < 1 THEN CAST({1} AS BIGINT) - 1 + {2} ELSE {2} END,"
            " CASE WHEN {2} IS NOT NULL THEN 0 END) AS INT))",
            (Failure("{2} < 0", "'negative substring length not allowed'"),),
        ),
    ),
    "btrim": (
        Overload("text", TEXT, "trim({0})"),
        Overload("text text", TEXT, "trim(BOTH {1} FROM {0})"),
    ),
    "ltrim": (
        Overload("text", TEXT, "ltrim({0})"),
        Overload("text text", TEXT, "trim(LEADING {1} FROM {0})"),
    ),
    "rtrim": (
        Overload("text", TEXT, "rtrim({0})"),
        Overload("text text", TEXT, "trim(TRAILING {1} FROM {0})"),
    ),
    # A negative length leaves that many characters out at the other end.
    "left": (
        Overload(
            "text integer",
            TEXT,
            "CASE WHEN {1} < 0 THEN left({0}, char_length({0}) + {1}) ELSE left({0}, {1}) END",
        ),
    ),
    "right": (
        Overload(
            "text integer",
            TEXT,
            "CASE WHEN {1} < 0 THEN right({0}, char_length({0}) + {1}) ELSE right({0}, {1}) END",
        ),
    ),
    "strpos": (Overload("text text", INTEGER, "instr({0}, {1})"),),
    "starts_with": (Overload("text text", BOOLEAN, "startswith({0}, {1})"),),
    "split_part": (
        Overload(
            "text text integer",
            TEXT,
            "split_part({0}, {1}, nullif({2}, 0))",
            (Failure("{2} = 0", "'field position must not be zero'"),),
        ),
    ),
    "like": (Overload("text text", BOOLEAN, _write_like("LIKE"), (_BAD_PATTERN,)),),
    "ilike": (Overload("text text", BOOLEAN, _write_like("ILIKE"), (_BAD_PATTERN,)),),
    # Time; the session's time zone is UTC
    "extract": (
        Overload("text timestamp", _extract_type, _write_extract),
        Overload("text timestamptz", _extract_type, _write_extract),
        Overload("text date", _extract_type, _write_extract),
    ),
    "date_trunc": (
        Overload("text timestamptz", _trunc_result, _write_date_trunc),
        Overload("text timestamp", _trunc_result, _write_date_trunc),
    ),
}

ALIASES = {
    "!=": "<>",
    "mod": "%",
    "pow": "power",
    "^": "power",
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
}
"""Other names of functions in the table."""

OPERATORS = frozenset(
    ["+", "-", "*", "/", "%", "^", "=", "<>", "<", "<=", ">", ">=", "||", "like", "ilike"]
)


def call(fn: str, args: Args) -> Expr:
    """`fn` applied to `args`, with the casts that PostgreSQL would add.

    Raises 42883 if there is no such function for these types, 42804 if arguments that must have
    one type have several.
    """
    match fn:
        case "case":
            return _case(args)
        case "nullif" if len(args) == 2:
            first, second = _pair(args)
            return _case((call("=", (first, second)), Lit(None, first.type), first))
        case "date_part" if len(args) == 2:
            return cast(call("extract", args), DOUBLE)
        case "||":
            args = _concatenated(args)
        case "coalesce" | "greatest" | "least" | "in" | "and" | "or":
            _check_together(fn, args)
    if fn in OPERATORS and fn not in ("||", "like", "ilike") and len(args) == 2:
        args = _pair(args)
    if fn in _ORDERED and any(arg.type == JSONB for arg in args):
        raise Unsupported(
            f"{fn} of jsonb is not supported", hint="compare parts of it, or its text"
        )
    name = ALIASES.get(fn, fn)
    if name not in FUNCTIONS:
        raise Unsupported(
            f"function {_signature(fn, args)} does not exist",
            hint="it is none of the functions that Tidemark maintains: "
            + ", ".join(sorted(key for key in [*FUNCTIONS, *ALIASES] if key[0].isalpha())),
            sqlstate="42883",
        )
    found = min(
        (
            (cost, index)
            for index, o in enumerate(FUNCTIONS[name])
            if (cost := _cost(o, args)) is not None
        ),
        default=None,
    )
    if found is None:
        raise _no_such_function(fn, args)
    overload = FUNCTIONS[name][found[1]]
    if overload.refused:
        raise Unsupported(
            f"function {_signature(fn, args)} is not supported", hint=overload.refused
        )
    coerced = _coerced(overload, args)
    result = overload.result if isinstance(overload.result, SqlType) else overload.result(coerced)
    if overload.operands is not None:
        coerced = tuple(
            cast(arg, type_) for arg, type_ in zip(coerced, overload.operands(coerced), strict=True)
        )
    return Call(name, coerced, result)


def overload_of(expr: Call) -> Overload:
    """The overload that a call (whose arguments already have their types) uses."""
    costs = [
        (cost, index)
        for index, overload in enumerate(FUNCTIONS.get(expr.fn, ()))
        if (cost := _cost(overload, expr.args)) is not None
    ]
    if not costs:
        raise _no_such_function(expr.fn, expr.args)
    return FUNCTIONS[expr.fn][min(costs)[1]]


def _case(args: Args) -> Expr:
    """`case(cond1, value1, ..., otherwise)`; the values meet in one type."""
    conditions, values = args[0:-1:2], (*args[1:-1:2], args[-1])
    for condition in conditions:
        if condition.type not in (BOOLEAN, UNKNOWN):
            raise SqlError(
                f"argument of CASE/WHEN must be type boolean, not type {condition.type}",
                sqlstate="42804",
            )
    type_ = _check_together("case", values)
    parts: list[Expr] = []
    for condition, value in zip(conditions, values, strict=False):
        parts += [cast(condition, BOOLEAN), cast(value, type_, context="implicit")]
    return Call("case", (*parts, cast(values[-1], type_, context="implicit")), type_)


def _check_together(fn: str, args: Args) -> SqlType:
    """The common type of arguments that must share one."""
    if fn in ("and", "or"):
        for arg in args:
            if arg.type not in (BOOLEAN, UNKNOWN):
                raise SqlError(
                    f"argument of {fn.upper()} must be type boolean, not type {arg.type}",
                    sqlstate="42804",
                )
        return BOOLEAN
    type_ = common_type(arg.type for arg in args)
    if type_ is None and fn == "in":
        other = next(a for a in args[1:] if common_type((args[0].type, a.type)) is None)
        raise _no_such_function("=", (args[0], other))
    if type_ is None:
        names = list(dict.fromkeys(arg.type.name for arg in args if arg.type != UNKNOWN))
        raise SqlError(
            f"{fn.upper()} types {names[0]} and {names[1]} cannot be matched", sqlstate="42804"
        )
    return type_


def _pair(args: Args) -> Args:
    """A quoted literal beside a typed operand takes that operand's type."""
    left, right = args
    if left.type == UNKNOWN and right.type != UNKNOWN:
        return _beside(left, right), right
    if right.type == UNKNOWN and left.type != UNKNOWN:
        return left, _beside(right, left)
    return args


def _beside(literal: Expr, other: Expr) -> Expr:
    # numeric(10,2) = '1.005' compares with 1.005: the type, not the precision, is taken over.
    return cast(literal, NUMERIC if other.type.name == "numeric" else other.type)


def _concatenated(args: Args) -> Args:
    """`text || anything` prints the other side; two values that are not text have no `||`."""
    if len(args) == 2 and any(arg.type in (TEXT, UNKNOWN) for arg in args):
        return tuple(cast(arg, TEXT) for arg in args)
    return args


_ORDERED = ("<", "<=", ">", ">=", "greatest", "least")
_SHORT = {"double": "double precision", "timestamptz": "timestamp with time zone"}


def _patterns(overload: Overload, count: int) -> list[str] | None:
    patterns = overload.args.split()
    if patterns[-1] == "...":
        fixed = patterns[:-1]
        if count < len(fixed):
            return None
        return fixed + [fixed[-1]] * (count - len(fixed))
    return patterns if len(patterns) == count else None


def _cost(overload: Overload, args: Args) -> int | None:
    """How many arguments must be converted implicitly; None if the overload does not fit."""
    patterns = _patterns(overload, len(args))
    if patterns is None:
        return None
    cost = 0
    for pattern, arg in zip(patterns, args, strict=True):
        type_ = arg.type
        match pattern:
            case "any":
                continue
            case "int":
                exact, possible = type_.is_integer, type_ == UNKNOWN
            case "exact":
                exact, possible = type_.name == "numeric", type_.is_exact or type_ == UNKNOWN
            case _:
                target = type_named(_SHORT.get(pattern, pattern))
                exact = type_ == target or (type_ == UNKNOWN and target == TEXT)
                possible = castable(type_, target, "implicit")
        if not exact:
            if not possible:
                return None
            cost += 1
    together = [arg.type for pattern, arg in zip(patterns, args, strict=True) if pattern == "any"]
    if together and common_type(together) is None:
        return None
    return cost


def _coerced(overload: Overload, args: Args) -> Args:
    patterns = _patterns(overload, len(args))
    assert patterns is not None
    shared = {
        kind: common_type(arg.type for p, arg in zip(patterns, args, strict=True) if p == kind)
        for kind in ("any", "int")
    }
    coerced: list[Expr] = []
    for pattern, arg in zip(patterns, args, strict=True):
        match pattern:
            case "any" | "int":
                type_ = shared[pattern]
                assert type_ is not None
                # int only meets text when every argument is a quoted literal.
                target = INTEGER if pattern == "int" and type_ == TEXT else type_
            case "exact":
                target = arg.type if arg.type.name == "numeric" else _as_numeric(arg.type)
            case _:
                target = type_named(_SHORT.get(pattern, pattern))
        coerced.append(cast(arg, target))
    return tuple(coerced)


def _as_numeric(type_: SqlType) -> SqlType:
    return numeric(type_.decimal[0], 0) if type_.is_integer else NUMERIC


def _signature(fn: str, args: Args) -> str:
    return f"{fn}({', '.join(arg.type.name for arg in args)})"


def _no_such_function(fn: str, args: Args) -> SqlError:
    if fn == "negate":
        what = f"operator does not exist: - {args[0].type.name}"
    elif fn in OPERATORS and len(args) == 2:
        symbol = {"like": "~~", "ilike": "~~*"}.get(fn, fn)
        what = f"operator does not exist: {args[0].type.name} {symbol} {args[1].type.name}"
        moments = (DATE, TIMESTAMP, TIMESTAMPTZ)
        if fn in "+-" and any(arg.type in moments for arg in args):
            return Unsupported(what, hint="intervals are not supported", sqlstate="42883")
    else:
        what = f"function {_signature(fn, args)} does not exist"
    return SqlError(
        what,
        hint="no function or operator takes these types; an explicit cast may help",
        sqlstate="42883",
    )
