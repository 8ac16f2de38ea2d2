"""A double as two whole numbers: nothing of it is lost that a sum should have."""

from __future__ import annotations

import math
import random
import struct
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
