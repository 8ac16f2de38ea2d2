"""Sums of doubles that do not depend on the order in which rows come and go.

Adding doubles rounds: take a row out again and the sum need not be what it was. So each is cut
into three whole numbers, which add up exactly, and only the totals become a double.

    x      whole   fraction * 2^93   rest * 2^186
    2.75       2       0.75 * 2^93              0
    -0.5       0       -0.5 * 2^93              0
    2^-100     0                 0           2^86
    sum        2       0.25 * 2^93           2^86     = 2.25 + 2^-100, as a double 2.25

Each of the three has 93 bits, 28 digits, which leaves room for 10^10 of them in a total. A value
loses only what it has behind 186 binary places (10^-56), so a sum of one is that one from 10^-40
on; values of 2^93 (10^28) and more are an error. Infinities and NaN are counted apart, as nothing
could take them out of a total.
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


def _whole(x: str) -> str:
    """What is before the point, as `high * 2^62 + low`, of which a BIGINT holds each; or null."""
    high = f"try_cast({x} * {_of(-62)} AS BIGINT)"
    low = f"try_cast({x} - CAST({high} AS DOUBLE) * {_of(62)} AS BIGINT)"
    product = f"CAST({high} AS DECIMAL(19,0)) * CAST({2**62} AS DECIMAL(19,0))"
    return f"try_cast({product} + CAST({low} AS DECIMAL(19,0)) AS DECIMAL(28,0))"


def _behind(x: str) -> str:
    """What is behind the point, 2^93 times. From 2^53 on a double has nothing there."""
    return f"(coalesce({x} - CAST(try_cast({x} AS BIGINT) AS DOUBLE), 0D) * {_of(BITS)})"


_RANGE = Failure(
    f"abs({{0}}) >= {_of(BITS)} AND abs({{0}}) < double('Infinity')",
    "'value out of range: double precision of 2^93 or more cannot be added up'",
)


def _total() -> str:
    """The totals as one double. Parts of the same sign: others cancel after they were rounded."""
    size = f"{2**BITS}BD"

    def signed(sign: str) -> tuple[str, str]:
        whole, fraction, rest = (
            f"{sign}coalesce(CAST({{{at}}} AS DECIMAL(38,0)), 0BD)" for at in (1, 2, 3)
        )
        fraction = f"({fraction} + ({rest} - pmod({rest}, {size})) div {size})"
        whole = f"({whole} + ({fraction} - pmod({fraction}, {size})) div {size})"
        parts = (f"pmod({rest}, {size})", f"pmod({fraction}, {size})", whole)
        powers = (-2 * BITS, -BITS, 0)
        terms = (
            f"CAST({part} AS DOUBLE) * {_of(n)}" for part, n in zip(parts, powers, strict=True)
        )
        return whole, " + ".join(terms)

    (whole, positive), (_, negative) = signed(""), signed("-")
    return f"(CASE WHEN {whole} < 0 THEN -({negative}) ELSE {positive} END)"


_TOTAL = _total()


def _finished(total: str) -> str:
    return (
        "CASE WHEN {4} > 0 AND {5} > 0 THEN double('NaN') WHEN {4} > 0 THEN double('Infinity')"
        f" WHEN {{5}} > 0 THEN double('-Infinity') WHEN {{0}} > 0 THEN {total} END"
    )


_PARTS = "bigint exact exact exact bigint bigint"

DOUBLES: Table = {
    # For `aggregates.composed` alone: what a value adds to each part,
    "whole of double": (Overload("double", PART, _whole("{0}"), (_RANGE,)),),
    "fraction of double": (Overload("double", PART, _whole(_behind("{0}"))),),
    "rest of double": (Overload("double", PART, _whole(f"rint({_behind(_behind('{0}'))})")),),
    # and what the parts are together: how many, the totals, how many are +inf or NaN, -inf or NaN.
    "sum of parts": (Overload(_PARTS, DOUBLE, _finished(_TOTAL)),),
    "avg of parts": (Overload(_PARTS, DOUBLE, _finished(f"{_TOTAL} / {{0}}")),),
}
