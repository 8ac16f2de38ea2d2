"""Trigonometry, hyperbolic functions and cube roots of doubles."""

from __future__ import annotations

from tidemark.compute.casts import Failure
from tidemark.compute.functions.overload import Overload, Table
from tidemark.types import DOUBLE

_NO_ANGLE = Failure("abs({0}) = double('Infinity')", "'input is out of range'")
_NO_SINE = Failure("abs({0}) > 1 AND NOT isnan({0})", "'input is out of range'")


def _of_angle(name: str) -> tuple[Overload, ...]:
    return (Overload("double", DOUBLE, f"{name}({{0}})", (_NO_ANGLE,)),)


def _plain(name: str) -> tuple[Overload, ...]:
    return (Overload("double", DOUBLE, f"{name}({{0}})"),)


ANGLES: Table = {
    **{name: _of_angle(name) for name in ("sin", "cos", "tan", "cot")},
    **{
        name: (Overload("double", DOUBLE, f"{name}({{0}})", (_NO_SINE,)),)
        for name in ("asin", "acos")
    },
    **{name: _plain(name) for name in ("atan", "sinh", "cosh", "tanh", "degrees", "radians")},
    "cbrt": _plain("cbrt"),
    "atan2": (Overload("double double", DOUBLE, "atan2({0}, {1})"),),
}
