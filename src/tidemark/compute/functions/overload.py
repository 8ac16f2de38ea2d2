"""What an entry of the table of functions says: see `functions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.compute.casts import Failure
from tidemark.compute.expr import Expr
from tidemark.types import SqlType

Args = tuple[Expr, ...]
Writer = Callable[[tuple[str, ...], Args, SqlType], str]


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function.

    `args` names a type per argument. `int` is any integer type and `any` any type at all, each
    the same for all arguments so named; `exact` is a numeric of any precision; `array` is an
    array, `element` what is in it; a last `...` repeats the one before it.
    """

    args: str
    result: SqlType | Callable[[Args], SqlType]
    spark: str | Writer
    fails: tuple[Failure, ...] = ()
    operands: Callable[[Args], tuple[SqlType, ...]] | None = None
    refused: str | None = None


def same(args: Args) -> SqlType:
    return args[0].type


Table = dict[str, tuple[Overload, ...]]
