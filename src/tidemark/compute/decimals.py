"""Products and quotients of decimals, exact where Spark's own would lose digits.

Spark types `DECIMAL(38,16) * DECIMAL(38,16)` as DECIMAL(38,6): once a result type would exceed 38
digits it gives up decimals, silently. A product is therefore split at the decimal point,

    a * b = (ah + al) * (bh + bl) = ah*bh + ah*bl + al*bh + al*bl

where h is the whole part and l the fraction. All four have the sign of the result and each fits
the type that Spark gives it, so only `al*bl` is ever rounded, at the last digit.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.compute.casts import digits
from tidemark.compute.expr import Col, Expr, Lit
from tidemark.types import BARE_NUMERIC_SCALE, MAX_PRECISION, SqlType

Texts = tuple[str, ...]
Args = tuple[Expr, ...]


def product(texts: Texts, args: Args, type_: SqlType) -> str:
    (a_integral, a_scale), (b_integral, b_scale) = digits(args[0].type), digits(args[1].type)
    if a_integral + a_scale + b_integral + b_scale < MAX_PRECISION:
        return f"CAST(({texts[0]} * {texts[1]}) AS {type_.spark})"

    def split(a: str, b: str) -> str:
        scale = type_.decimal[1]
        room = MAX_PRECISION - 1 - scale
        a_whole, b_whole = _whole(a, a_integral, room), _whole(b, b_integral, room)
        terms = [f"try_multiply({a_whole}, {b_whole})"]
        if b_scale:
            terms.append(f"{a_whole} * {_fraction(b, b_scale)}")
        if a_scale:
            terms.append(f"{_fraction(a, a_scale)} * {b_whole}")
        if a_scale and b_scale:
            terms.append(f"{_fraction(a, a_scale)} * {_fraction(b, b_scale)}")
        # Each partial sum is cut to one digit less than the result, so that Spark's sum fits it.
        narrow = f"DECIMAL({MAX_PRECISION - 1},{scale})"
        total = terms[0]
        for term in terms[1:]:
            total = f"(try_cast({total} AS {narrow}) + try_cast({term} AS {narrow}))"
        return f"try_cast({total} AS {type_.spark})"

    return _bound(split, texts, args)


def quotient(texts: Texts, args: Args, type_: SqlType) -> str:
    """`a / b` to 16 decimals.

    Spark types a quotient with `integral(a) + scale(b)` digits in front; 22 of them leave room
    for 16 decimals. A divisor with many decimals would leave too few for the dividend, so there
    the whole quotient and the fraction are computed apart: the remainder is smaller than the
    divisor, and the larger the divisor, the less its last decimals matter.
    """
    (a_integral, a_scale), (_, b_scale) = digits(args[0].type), digits(args[1].type)
    room = MAX_PRECISION - BARE_NUMERIC_SCALE
    if b_scale <= 6:
        a, b = texts
        integral = min(a_integral, room - b_scale)
        scale = min(max(a_scale, BARE_NUMERIC_SCALE), MAX_PRECISION - integral)
        dividend = f"try_cast({a} AS DECIMAL({integral + scale},{scale}))"
        return f"try_cast(try_divide({dividend}, {b}) AS {type_.spark})"

    def apart(a: str, b: str) -> str:
        narrow = f"DECIMAL({MAX_PRECISION - 1},{BARE_NUMERIC_SCALE})"
        ladder = " ".join(
            f"WHEN abs({b}) < 1e{integral}BD THEN"
            f" CAST(try_divide(CAST({a} % {b} AS DECIMAL({integral + BARE_NUMERIC_SCALE},{BARE_NUMERIC_SCALE})),"
            f" CAST({b} AS DECIMAL({room},{room - integral}))) AS {narrow})"
            for integral in (6, 10, 16, room)
        )
        return (
            f"CASE WHEN {b} <> 0 AND abs(try_divide({a}, {b})) < 9.2e18BD THEN"
            f" CAST(CAST({a} div {b} AS {narrow}) + CASE {ladder} END AS {type_.spark}) END"
        )

    return _bound(apart, texts, args)


def integer_quotient(texts: Texts, args: Args, type_: SqlType) -> str:
    """Truncated towards zero; the least integer divided by -1 does not fit and gives NULL."""
    a, b = texts
    if type_.name == "bigint":
        # 19 digits by 19 digits leaves 19 decimals: enough that nothing rounds up to a whole.
        return f"try_cast(try_divide(CAST({a} AS DECIMAL(19,0)), CAST({b} AS DECIMAL(19,0))) AS BIGINT)"
    return f"try_cast(({a} div nullif({b}, 0)) AS {type_.spark})"


def _bound(write: Callable[[str, str], str], texts: Texts, args: Args) -> str:
    """`write(a, b)`, which names its operands many times: computed ones are bound to names."""
    if all(isinstance(arg, Col | Lit) for arg in args):
        return write(*texts)
    pair = f"array(named_struct('a', {texts[0]}, 'b', {texts[1]}))"
    return f"transform({pair}, p -> {write('p.a', 'p.b')})[0]"


def _whole(text: str, integral: int, room: int) -> str:
    """The part before the point, truncated: a cast would round, so the fraction goes first."""
    return f"try_cast(({text} - {text} % 1) AS DECIMAL({max(1, min(integral, room))},0))"


def _fraction(text: str, scale: int) -> str:
    return f"CAST(({text} % 1) AS DECIMAL({scale},{scale}))"
