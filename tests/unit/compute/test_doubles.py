"""A double as whole numbers: nothing of it is lost that a sum should have."""

from __future__ import annotations

import math
import random
import struct
from decimal import Decimal
from fractions import Fraction

from pyspark.sql import Row, SparkSession

from tidemark.compute.functions.doubles import BITS, DOUBLES

INF, NAN = float("inf"), float("nan")
CHOSEN = [
    *(0.0, -0.0, 1.0, 0.1, 5e-324, 1e-30, 1e308, INF, -INF, NAN),
    *(
        sign * 2.0**power
        for power in (-93, -94, -133, -134, -186, -187, -188, 52, 53, 61, 62, 63, 92, 93)
        for sign in (1, -1)
    ),
    *(math.nextafter(2.0**power, 0) for power in (-40, 0, 53, 62, 63, BITS)),
    2.0**52 + 0.5,
]


def drawn(seed: int) -> list[float]:
    """Any bits at all, and numbers of any size that can be added up."""
    rng = random.Random(seed)
    (*bits,) = struct.unpack("1000d", rng.randbytes(8000))
    return bits + [rng.choice((1, -1)) * rng.random() * 10.0 ** rng.randint(-60, 28) for _ in bits]


def test_a_double_is_its_parts(spark: SparkSession) -> None:
    seed = 3
    overloads = [DOUBLES[f"{part} of double"][0] for part in ("whole", "fraction", "rest")]
    (too_large,) = overloads[0].fails
    frame = spark.createDataFrame([(x,) for x in CHOSEN + drawn(seed)], "x double")
    texts = [str(overload.spark) for overload in overloads] + [too_large.when]
    found = frame.selectExpr(
        "x", *(f"{text.format('x')} AS {name}" for text, name in zip(texts, "wfre", strict=True))
    )
    for row in found.collect():
        _check(row, seed)


def test_totals_that_cancel_leave_what_is_left(spark: SparkSession) -> None:
    """Parts of different signs would each be rounded first."""
    overload = DOUBLES["sum of parts"][0]
    rng = random.Random(5)
    lists = [[3.0, -2.5, -0.5, 1e-12], [1.0, -0.5, -0.5, 1e-20], [100.0, -99.9, -0.1, 1e-16]]
    lists += [[-x for x in each] for each in lists] + [[], [0.0], [-1.0, 1.0], [2.0**92, -1e-30]]
    for _ in range(300):
        some = [rng.choice((1, -1)) * rng.random() * 10.0 ** rng.randint(-12, 20) for _ in range(5)]
        lists.append([*some, *(-x for x in some[: rng.randint(0, 5)]), rng.random() * 1e-15])
    rows = []
    for each in lists:
        total = sum(map(Fraction, each), Fraction(0))
        whole, fraction, rest = 0, 0, 0
        for x in each:
            exact = Fraction(x)
            w = int(exact)
            f = int((exact - w) * 2**BITS)
            whole, fraction = whole + w, fraction + f
            rest += int((exact - w - Fraction(f, 2**BITS)) * 2 ** (2 * BITS))
        rows.append((len(each), Decimal(whole), Decimal(fraction), Decimal(rest), float(total)))
    parts = "n bigint, w decimal(38,0), f decimal(38,0), r decimal(38,0), total double"
    frame = spark.createDataFrame(rows, parts)
    text = str(overload.spark).format("n", "w", "f", "r", "0L", "0L")
    for row in frame.selectExpr("*", f"{text} AS found").collect():
        if row.n == 0:
            assert row.found is None
        else:
            near = math.isclose(row.found, row.total, rel_tol=2.0**-51, abs_tol=2.0**-180)
            assert near, f"{row} of seed 5"


def _check(row: Row, seed: int) -> None:
    x, because = row.x, f"{row} of seed {seed}"
    if not math.isfinite(x):
        assert (row.w, row.e) == (None, False), because
        assert not any((row.f, row.r)), because
    elif abs(x) >= 2.0**BITS:
        assert row.e is True, because
    else:
        parts = (row.w, row.f, row.r)
        whole = sum(Fraction(int(part), 2 ** (BITS * at)) for at, part in enumerate(parts))
        lost = abs(whole - Fraction(x))
        assert lost <= (0 if abs(x) >= 2.0**-133 else Fraction(1, 2 ** (2 * BITS + 1))), because
        assert row.e is False, because
