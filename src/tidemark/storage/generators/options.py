"""Options of load generators: text or numbers in, checked values out."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import NamedTuple, TypeAlias

from tidemark.errors import SqlError


class Decimals(NamedTuple):
    """Decimal numbers from `low` to `high`, both included."""

    low: Decimal
    high: Decimal


Limit: TypeAlias = range | Decimals
"""What an option allows: the integers of a range, or decimals between two bounds."""


def checked(name: str, value: str | int, allowed: Limit) -> int | Decimal:
    if isinstance(allowed, range):
        number, kind, low, high = _integer(value), "an integer", allowed[0], allowed[-1]
    else:
        number, kind, (low, high) = _decimal(value), "a number", allowed
    if number is None or not low <= number <= high:
        raise refused(name, value, f"it must be {kind} from {low} to {high}")
    return number


def refused(name: str, value: object, hint: str) -> SqlError:
    return SqlError(
        f'option "{name}" of a load generator is {value!r}', hint=hint, sqlstate="22023"
    )


def _integer(value: str | int) -> int | None:
    try:
        return int(value) if type(value) in (int, str) else None
    except ValueError:
        return None


def _decimal(value: str | int) -> Decimal | None:
    try:
        number = Decimal(value) if type(value) in (int, str) else None
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None
