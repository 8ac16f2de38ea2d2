"""Sums of doubles that do not depend on the order in which rows come and go.

Adding doubles rounds: take a row out again and the sum need not be what it was. So each is cut
at the point into two whole numbers, which add up exactly, and only the totals become a double.

    x      whole   fraction * 2^93
    2.75       2       0.75 * 2^93
    -0.5       0       -0.5 * 2^93
    sum        2       0.25 * 2^93     = 2.25

Each of the two has 93 bits, 28 digits, which leaves room for 10^10 of them in a total. A value loses
only what it has behind 93 binary places (10^-28), so a sum of one is that one from 10^-12 on;
values of 2^93 (10^28) and more are an error. Infinities and NaN are counted apart, as nothing could
take them out of a total.
"""

from __future__ import annotations

from tidemark.compute.casts import Failure
from tidemark.compute.functions.overload import Overload, Table
from tidemark.types import DOUBLE, numeric

BITS = 93
PART = numeric(28, 0)


def _of(power: int) -> str:
    """A power of two as a double."""
    return f"{2.0**power!r}D"


def _decimal(high: str, low: str) -> str:
    """`high * 2^62 + low`, of which a BIGINT holds each."""
    first, second = (f"CAST(try_cast({part} AS BIGINT) AS DECIMAL(19,0))" for part in (high, low))
    return f"CAST({first} * CAST({2**62} AS DECIMAL(19,0)) + {second} AS DECIMAL(28,0))"


_TRUNCATED = "CAST(try_cast({0} AS BIGINT) AS DOUBLE)"
_HIGH = f"CAST(try_cast({{0}} * {_of(-62)} AS BIGINT) AS DOUBLE)"
_WHOLE = (
    f"CASE WHEN abs({{0}}) < {_of(62)} THEN CAST(try_cast({{0}} AS BIGINT) AS DECIMAL(28,0))"
    f" WHEN abs({{0}}) < {_of(BITS)} THEN"
    f" {_decimal(f'{{0}} * {_of(-62)}', f'{{0}} - {_HIGH} * {_of(62)}')} END"
)
_BEHIND = f"({{0}} - {_TRUNCATED})"
_BEHIND_HIGH = f"CAST(try_cast({_BEHIND} * {_of(BITS - 62)} AS BIGINT) AS DOUBLE)"
_FRACTION = (
    f"CASE WHEN abs({{0}}) < {_of(53)} THEN "
    + _decimal(
        f"{_BEHIND} * {_of(BITS - 62)}",
        f"rint({_BEHIND} * {_of(BITS)} - {_BEHIND_HIGH} * {_of(62)})",
    )
    + " END"
)
_RANGE = Failure(
    f"abs({{0}}) >= {_of(BITS)} AND abs({{0}}) < double('Infinity')",
    "'value out of range: double precision of 2^93 or more cannot be added up'",
)
_TOTAL = (
    f"(coalesce(CAST({{1}} AS DOUBLE), 0D) + coalesce(CAST({{2}} AS DOUBLE), 0D) * {_of(-BITS)})"
)


def _finished(total: str) -> str:
    return (
        "CASE WHEN {3} > 0 AND {4} > 0 THEN double('NaN') WHEN {3} > 0 THEN double('Infinity')"
        f" WHEN {{4}} > 0 THEN double('-Infinity') WHEN {{0}} > 0 THEN {total} END"
    )


_PARTS = "bigint exact exact bigint bigint"

DOUBLES: Table = {
    # For `aggregates.composed` alone: what a value adds to each part,
    "whole of double": (Overload("double", PART, _WHOLE, (_RANGE,)),),
    "fraction of double": (Overload("double", PART, _FRACTION),),
    # and what the parts are together: how many, the totals, how many are +inf or NaN, -inf or NaN.
    "sum of parts": (Overload(_PARTS, DOUBLE, _finished(_TOTAL)),),
    "avg of parts": (Overload(_PARTS, DOUBLE, _finished(f"{_TOTAL} / {{0}}")),),
}
