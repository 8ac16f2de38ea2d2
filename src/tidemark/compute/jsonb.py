"""jsonb in its canonical text, the one that Spark's `to_json(parse_json(...))` writes.

Equal values have equal texts, so `=`, DISTINCT and retractions need only compare them:

    {"b": 1.50, "a": [true, null]}    ->    {"a":[true,null],"b":1.5}

Keys are sorted and there once; numbers are exact up to 38 digits, and doubles if written with an
exponent. What could not be kept so is a ValueError. Before Java 19 Spark prints some doubles with
a digit too many (4.9E-324), and these are not equal to the same literal here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tidemark.types import MAX_PRECISION


def canonical(text: str) -> str:
    return written(parsed(text))


def parsed(text: str) -> Any:
    """The value, its numbers as texts that `written` writes."""
    return _DECODER.decode(text)


def documents(text: str) -> Iterator[Any]:
    """All documents of a text: one, or several one after the other, as lines of it say."""
    at = _SPACE.match(text, 0).end()  # pyright: ignore[reportOptionalMemberAccess]
    while at < len(text):
        value, at = _DECODER.raw_decode(text, at)
        yield value
        at = _SPACE.match(text, at).end()  # pyright: ignore[reportOptionalMemberAccess]


def printed(text: str) -> str:
    """A canonical text as PostgreSQL prints the value: short keys first, and with spaces."""
    if text[:1] not in ("{", "["):
        return _plain(text) if text[:1] in "-0123456789" else text
    return _printed(json.loads(text, parse_int=_Number, parse_float=_Number))


def _printed(value: Any) -> str:
    match value:
        case _Number():
            return _plain(value)
        case dict():
            keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
            return "{" + ", ".join(f"{written(k)}: {_printed(value[k])}" for k in keys) + "}"
        case list():
            return "[" + ", ".join(map(_printed, value)) + "]"
    return written(value)


def _plain(number: str) -> str:
    """A number that was written with an exponent is kept as Java prints it, 1.0E10."""
    if "E" not in number and not number.endswith(".0"):
        return str(number)
    plain = format(Decimal(number), "f")
    return (plain.rstrip("0").rstrip(".") if "." in plain else plain) or "0"


_ESCAPE = re.compile(r"(?<!\\)\\u([0-9a-f]{4})")
"""A control character; the text of a string has no other such escapes, but may have had a \\u."""


class _Number(str):
    """The text of a number."""


def _exact(text: str) -> _Number:
    value = Decimal(text)
    digits, exponent = value.as_tuple().digits, value.as_tuple().exponent
    if len(digits) > MAX_PRECISION or not isinstance(exponent, int) or -exponent > MAX_PRECISION:
        raise ValueError(f"the number {text} has more than {MAX_PRECISION} digits")
    plain = format(value, "f")
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return _Number("0" if plain in ("-0", "") else plain)


def _float(text: str) -> _Number:
    if "e" not in text.lower():
        return _exact(text)
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is out of range")
    return _Number(java_double(value))


def java_double(value: float) -> str:
    """As Java prints it: 1000.0, 1.0E10."""
    sign = "-" if math.copysign(1, value) < 0 else ""
    digits, _, exponent = f"{Decimal(repr(abs(value))):e}".lower().partition("e")
    point = int(exponent or 0)
    if value == 0 or -3 <= point < 7:
        plain = format(Decimal(repr(abs(value))), "f")
        return sign + (plain if "." in plain else plain + ".0")
    whole, _, fraction = digits.partition(".")
    return f"{sign}{whole}.{fraction.rstrip('0') or '0'}E{point}"


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _sorted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)  # a key that is there twice has its last value
    # Java compares strings by their UTF-16 units.
    return dict(
        sorted(found.items(), key=lambda pair: pair[0].encode("utf-16-be", "surrogatepass"))
    )


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(
    parse_int=_exact, parse_float=_float, parse_constant=_refused, object_pairs_hook=_sorted
)


def written(value: Any) -> str:
    match value:
        case _Number():
            return str(value)
        case str():
            value.encode()  # half a surrogate pair is no text
            text = json.dumps(value, ensure_ascii=False)
            return _ESCAPE.sub(lambda found: "\\u" + found[1].upper(), text)
        case dict():
            return "{" + ",".join(f"{written(k)}:{written(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)
