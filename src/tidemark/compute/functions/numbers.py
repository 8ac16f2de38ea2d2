"""Arithmetic and functions of numbers."""

from __future__ import annotations

from tidemark.compute import decimals
from tidemark.compute.casts import OUT_OF_RANGE, OVERFLOW, Failure, bounded, digits
from tidemark.compute.expr import Lit
from tidemark.compute.functions.overload import Args, Overload, Table, same
from tidemark.errors import Unsupported
from tidemark.types import BIGINT, DATE, DOUBLE, INTEGER, NUMERIC, SqlType, numeric


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


def write_negate(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    """Spark negates decimals in 34 digits; longer ones change their sign as text."""
    if type_.decimal[0] <= 34:
        return f"(- {texts[0]})"
    text = f"CAST({texts[0]} AS STRING)"
    flipped = f"CASE WHEN {texts[0]} < 0 THEN substr({text}, 2) ELSE concat('-', {text}) END"
    return f"CAST({flipped} AS {type_.spark})"


def _write_abs(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"CASE WHEN {texts[0]} < 0 THEN {write_negate(texts, args, type_)} ELSE {texts[0]} END"


def _write_round(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    places = _places(args) if len(args) > 1 else 0
    return f"CAST(round({texts[0]}, {places}) AS {type_.spark})"


def _write_trunc(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    x, places = texts[0], _places(args) if len(args) > 1 else 0
    return f"CAST(CASE WHEN {x} < 0 THEN ceil({x}, {places}) ELSE floor({x}, {places}) END AS {type_.spark})"


def _needs_numeric(name: str) -> str:
    return f"{name} of numeric is not supported; cast to double precision, e.g. {name}(x::double precision)"


_BY_ZERO = Failure("{1} = 0", "'division by zero'")
INFINITE = Failure(
    "abs({v}) = double('Infinity') AND abs({0}) <> double('Infinity')"
    " AND abs({1}) <> double('Infinity')",
    "'value out of range: overflow'",
)
_VANISHED = Failure("{v} = 0 AND {0} <> 0 AND {1} <> 0", "'value out of range: underflow'")
_QUOTIENT_VANISHED = Failure(
    "{v} = 0 AND {0} <> 0 AND abs({1}) <> double('Infinity')", "'value out of range: underflow'"
)
# PostgreSQL goes further, but years beyond four digits print and travel differently everywhere.
_DATE_RANGE = Failure(
    "coalesce({v} NOT BETWEEN DATE'0001-01-01' AND DATE'9999-12-31', true)", "'date out of range'"
)
_EXP_OVERFLOW = Failure(
    "{v} = double('Infinity') AND {0} <> double('Infinity')", "'value out of range: overflow'"
)
_EXP_UNDERFLOW = Failure(
    "{v} = 0 AND {0} <> double('-Infinity')", "'value out of range: underflow'"
)
_NO_LOGARITHM = (
    Failure("{0} = 0", "'cannot take logarithm of zero'"),
    Failure("{0} < 0", "'cannot take logarithm of a negative number'"),
)

NUMBERS: Table = {
    "+": (
        Overload("int int", same, "try_add({0}, {1})", (OUT_OF_RANGE,)),
        Overload("exact exact", _sum_type, "({0} + {1})", operands=_sum_operands),
        Overload("double double", DOUBLE, "({0} + {1})", (INFINITE,)),
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
        Overload("int int", same, "try_subtract({0}, {1})", (OUT_OF_RANGE,)),
        Overload("exact exact", _sum_type, "({0} - {1})", operands=_sum_operands),
        Overload("double double", DOUBLE, "({0} - {1})", (INFINITE,)),
        Overload("date date", INTEGER, "datediff({0}, {1})"),
        Overload(
            "date integer",
            DATE,
            "date_from_unix_date(try_subtract(unix_date({0}), {1}))",
            (_DATE_RANGE,),
        ),
    ),
    "*": (
        Overload("int int", same, "try_multiply({0}, {1})", (OUT_OF_RANGE,)),
        Overload("exact exact", _product_type, decimals.product, (OVERFLOW,)),
        Overload("double double", DOUBLE, "({0} * {1})", (INFINITE, _VANISHED)),
    ),
    "/": (
        Overload("int int", same, decimals.integer_quotient, (_BY_ZERO, OUT_OF_RANGE)),
        Overload("exact exact", NUMERIC, decimals.quotient, (_BY_ZERO, OVERFLOW)),
        Overload(
            "double double",
            DOUBLE,
            "try_divide({0}, {1})",
            (_BY_ZERO, INFINITE, _QUOTIENT_VANISHED),
        ),
    ),
    "%": (
        Overload("int int", same, "CAST(({0} % nullif({1}, 0)) AS {T})", (_BY_ZERO,)),
        Overload(
            "exact exact", _remainder_type, "CAST(({0} % nullif({1}, 0)) AS {T})", (_BY_ZERO,)
        ),
    ),
    "negate": (
        Overload(
            "int",
            same,
            "(- nullif({0}, {min}))",
            (Failure("{0} = {min}", "'{type} out of range'"),),
        ),
        Overload("exact", same, write_negate),
        Overload("double", DOUBLE, "(- {0})"),
    ),
    "abs": (
        Overload(
            "int",
            same,
            "abs(nullif({0}, {min}))",
            (Failure("{0} = {min}", "'{type} out of range'"),),
        ),
        Overload("exact", same, _write_abs),
        Overload("double", DOUBLE, "abs({0})"),
    ),
    "round": (
        Overload("double", DOUBLE, "rint({0})"),
        Overload("exact", _whole_type, _write_round, (OVERFLOW,)),
        Overload("exact integer", _rounded_type, _write_round, (OVERFLOW,)),
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
        Overload(
            "exact",
            NUMERIC,
            decimals.square_root,
            (Failure("{0} < 0", "'cannot take square root of a negative number'"),),
        ),
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
                INFINITE,
                Failure(
                    "{v} = 0 AND {0} <> 0 AND abs({0}) <> double('Infinity')"
                    " AND abs({1}) <> double('Infinity')",
                    "'value out of range: underflow'",
                ),
            ),
        ),
        Overload("exact exact", NUMERIC, "", refused=_needs_numeric("power")),
    ),
    "sign": (
        Overload("double", DOUBLE, "CASE WHEN isnan({0}) THEN 0D ELSE signum({0}) END"),
        Overload(
            "exact",
            numeric(1, 0),
            "CAST(CASE WHEN {0} > 0 THEN 1 WHEN {0} < 0 THEN -1 WHEN {0} = 0 THEN 0 END AS {T})",
        ),
    ),
    "exp": (
        Overload("double", DOUBLE, "exp({0})", (_EXP_OVERFLOW, _EXP_UNDERFLOW)),
        Overload("exact", NUMERIC, "", refused=_needs_numeric("exp")),
    ),
    "ln": (
        Overload("double", DOUBLE, "ln({0})", _NO_LOGARITHM),
        Overload("exact", NUMERIC, "", refused=_needs_numeric("ln")),
    ),
    "log": (
        Overload("double", DOUBLE, "log10({0})", _NO_LOGARITHM),
        Overload("exact", NUMERIC, "", refused=_needs_numeric("log")),
        Overload("exact exact", NUMERIC, "", refused=_needs_numeric("log")),
    ),
    "pi": (Overload("", DOUBLE, "pi()"),),
    "&": (Overload("int int", same, "({0} & {1})"),),
    "|": (Overload("int int", same, "({0} | {1})"),),
    "#": (Overload("int int", same, "({0} ^ {1})"),),
    "bitwise not": (Overload("int", same, "(~ {0})"),),
    "<<": (
        Overload("integer integer", INTEGER, "shiftleft({0}, {1})"),
        Overload("bigint integer", BIGINT, "shiftleft({0}, {1})"),
    ),
    ">>": (
        Overload("integer integer", INTEGER, "shiftright({0}, {1})"),
        Overload("bigint integer", BIGINT, "shiftright({0}, {1})"),
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
}
