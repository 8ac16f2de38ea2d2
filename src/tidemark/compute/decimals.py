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


def square_root(texts: Texts, args: Args, type_: SqlType) -> str:
    """To 16 decimals: a double knows the first 15 digits, one step of Newton's doubles them."""
    return f"transform(array({texts[0]}), v -> {_root('v', type_)})[0]"


def _root(v: str, type_: SqlType) -> str:
    bare = Col(0, type_)
    step = quotient((v, "y"), (bare, bare), type_)
    middle = f"({_sum('y', '+', step, BARE_NUMERIC_SCALE, 30)} * CAST('0.5' AS DECIMAL(1,1)))"
    first = f"CAST(sqrt(CAST({v} AS DOUBLE)) AS {type_.spark})"
    better = f"transform(array({first}), y -> CAST({middle} AS {type_.spark}))[0]"
    return f"CASE WHEN {v} <= 0 THEN {v} ELSE {better} END"


def _sum(a: str, sign: str, b: str, scale: int, precision: int = MAX_PRECISION - 1) -> str:
    """Operands narrow enough that Spark keeps every decimal of their sum."""
    narrow = f"DECIMAL({precision},{scale})"
    return f"(try_cast({a} AS {narrow}) {sign} try_cast({b} AS {narrow}))"


def variance(*, sample: bool, root: bool) -> Callable[[Texts, Args, SqlType], str]:
    """Of a count n, a sum s and a sum of squares q; NULL for too few values or on overflow.

    n*q - s*s has twice the digits of s, so the mean goes first. With m = s/n cut to the decimals
    of s, and the rest r = s - n*m, which is small:

        sum of (x - mean)^2  =  q - s*s/n  =  q - m*(n*m + 2*r) - r*r/n  =  q - m*(s + r) - r*r/n

    All but the last term is exact while the squares are (values of up to 8 decimals; from there on
    squares are rounded to 16). The sums and the result must fit 22 digits before the point.
    """

    def write(texts: Texts, args: Args, type_: SqlType) -> str:
        total, squares = args[1].type, args[2].type
        scale, fine = total.decimal[1], squares.decimal[1]
        n, count = "CAST(p.n AS DECIMAL(19,0))", Col(0, SqlType("numeric", 19, 0))
        s, q, bare = Col(0, total), Col(0, squares), Col(0, type_)
        zero = f"CAST(0 AS {type_.spark})"
        mean = quotient(("p.s", n), (s, count), type_)
        explained = product(("p.m", "p.t"), (s, s), squares)
        rest = quotient((product(("p.r", "p.r"), (s, s), squares), n), (q, count), type_)
        deviations = _sum(_sum("p.q", "-", explained, fine), "-", rest, BARE_NUMERIC_SCALE)
        degrees = "CAST(p.n - 1 AS DECIMAL(19,0))" if sample else n
        steps = {
            "c": mean,
            "m": f"try_cast(CASE WHEN p.c < 0 THEN ceil(p.c, {scale}) ELSE floor(p.c, {scale}) END"
            f" AS {total.spark})",
            "r": _sum("p.s", "-", product((n, "p.m"), (count, s), total), scale),
            "t": _sum("p.s", "+", "p.r", scale),
            "d": f"try_cast({deviations} AS {type_.spark})",
            "v": quotient(
                (f"CASE WHEN p.d < 0 THEN {zero} ELSE p.d END", degrees), (bare, count), type_
            ),
        }
        text = f"named_struct('n', {texts[0]}, 's', {texts[1]}, 'q', {texts[2]})"
        known = "'n', p.n, 's', p.s, 'q', p.q"
        for name, step in steps.items():
            text = f"transform(array({text}), p -> named_struct({known}, '{name}', {step}))[0]"
            known += f", '{name}', p.{name}"
        final = f"transform(array({text}.v), v -> {_root('v', type_)})[0]" if root else f"{text}.v"
        return f"CASE WHEN {texts[0]} > {1 if sample else 0} THEN {final} END"

    return write


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
