"""Chance without state: a draw is a hash of (seed, stream, key), the same whenever it is asked for.

All of it is integer arithmetic, so the result does not depend on a platform's floating point.
Changing anything here changes existing sources: the pinned rows in the tests are there to catch it.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Bits: TypeAlias = npt.NDArray[np.uint64]

_HALF = np.uint64(32)


def draw(seed: int, stream: int, *key: Ints) -> Bits:
    """64 random bits for each key of the stream; a single draw if there is no key."""
    bits = _splitmix64(np.array([seed], dtype=np.uint64))
    for part in (np.array([stream]), *key):
        bits = _splitmix64(bits + part.astype(np.uint64))
    return bits


def _splitmix64(x: Bits) -> Bits:
    """Steele, Lea and Flood's finaliser: a bijection that scatters neighbouring inputs."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def below(bits: Bits, bound: int | Ints) -> Ints:
    """Uniform over [0, bound); a bound is less than 2³²."""
    scaled = (bits >> _HALF) * np.asarray(bound, dtype=np.uint64)
    return (scaled >> _HALF).astype(np.int64)


def skewed_below(bits: Bits, bound: int) -> Ints:
    """Over [0, bound), the small ones more often: 0 comes up with probability bound^(-1/2)."""
    x = bits >> _HALF
    return below(x * x, bound)


def coprime_stride(n: int) -> int:
    """A stride that visits all of [0, n) in an order that looks shuffled."""
    stride = max(1, n * 618 // 1000)
    while math.gcd(stride, n) != 1:
        stride += 1
    return stride
