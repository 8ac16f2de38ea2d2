"""What a CHECK may call, on values of one request: text is str, bytea is bytes, jsonb its text.

A function whose argument is null is null and is not called, but for those in `NULLABLE`. What
fails raises: the request is then refused.

`OWN` are the functions that only a CHECK has, as signatures and HMACs are its business; all others
are typed by the planner's table (`compute/functions`), and mean what they mean there.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import hmac as hmacs
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tidemark.compute.expr import Call, Expr
from tidemark.compute.functions import cast
from tidemark.compute.jsonb import parsed, written
from tidemark.compute.literals import UNKNOWN
from tidemark.control.like import matcher
from tidemark.errors import DataError, SqlError
from tidemark.types import BOOLEAN, BYTEA, TEXT, SqlType

DIGESTS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
LINE = 76
"""Characters of base64 in a line, as PostgreSQL breaks them."""


# Only for a CHECK.


def hmac(data: str | bytes, key: str | bytes, algorithm: str) -> bytes:
    return hmacs.new(_bytes(key), _bytes(data), _known_digest(algorithm)).digest()


def digest(data: str | bytes, algorithm: str) -> bytes:
    return hashlib.new(_known_digest(algorithm), _bytes(data), usedforsecurity=False).digest()


def encode(data: bytes, encoding: str) -> str:
    match encoding.lower():
        case "hex":
            return data.hex()
        case "base64":
            text = base64.b64encode(data).decode()
            return "\n".join(text[at : at + LINE] for at in range(0, len(text), LINE))
    raise _no_encoding(encoding)


def decode(text: str, encoding: str) -> bytes:
    bare = re.sub(r"[ \t\n\r]", "", text)
    try:
        match encoding.lower():
            case "hex":
                return bytes.fromhex(bare)
            case "base64":
                return base64.b64decode(bare, validate=True)
    except (ValueError, binascii.Error):
        raise DataError(f"invalid {encoding.lower()} sequence", sqlstate="22023") from None
    raise _no_encoding(encoding)


def convert_from(data: bytes, encoding: str) -> str:
    if encoding.lower().replace("-", "") != "utf8":
        raise SqlError(f'invalid encoding name "{encoding}"', hint="use utf8", sqlstate="22023")
    return data.decode()


def constant_time_eq(a: str | bytes, b: str | bytes) -> bool:
    """Takes as long wherever they differ, so that its time tells nothing."""
    return hmacs.compare_digest(_bytes(a), _bytes(b))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _known_digest(name: str) -> str:
    if name.lower() not in DIGESTS:
        known = ", ".join(DIGESTS)
        raise SqlError(f'"{name}" is no known digest', hint=f"known: {known}", sqlstate="22023")
    return name.lower()


def _no_encoding(name: str) -> SqlError:
    return SqlError(f'unrecognized encoding: "{name}"', hint="known: hex, base64", sqlstate="22023")


_EITHER = (TEXT, BYTEA)
_ONLY_TEXT, _ONLY_BYTES = (TEXT,), (BYTEA,)

_Signature = tuple[tuple[tuple[SqlType, ...], ...], SqlType]

OWN: dict[str, _Signature] = {
    "hmac": ((_EITHER, _EITHER, _ONLY_TEXT), BYTEA),
    "digest": ((_EITHER, _ONLY_TEXT), BYTEA),
    "encode": ((_ONLY_BYTES, _ONLY_TEXT), TEXT),
    "decode": ((_ONLY_TEXT, _ONLY_TEXT), BYTEA),
    "convert_from": ((_ONLY_BYTES, _ONLY_TEXT), TEXT),
    "constant_time_eq": ((_EITHER, _EITHER), BOOLEAN),
}
"""The types that each argument may have, and that of the result."""


def own_call(name: str, args: tuple[Expr, ...]) -> Expr:
    """A call of one of `OWN`, or 42883."""
    accepted, result = OWN[name]
    given = tuple(cast(arg, TEXT) if arg.type == UNKNOWN else arg for arg in args)
    fits = len(given) == len(accepted) and all(
        arg.type in types for arg, types in zip(given, accepted, strict=True)
    )
    if fits and name == "constant_time_eq":
        fits = given[0].type == given[1].type
    if not fits:
        types = ", ".join(str(arg.type) for arg in given)
        raise SqlError(
            f"function {name}({types}) does not exist",
            hint="encode(bytea, 'hex') gives text, decode(text, 'hex') gives bytea",
            sqlstate="42883",
        )
    return Call(name, given, result)


# Of all SQL's, those that signatures and tokens are taken apart with.


def _substring(text: str, start: int, length: int | None = None) -> str:
    if length is not None and length < 0:
        raise DataError("negative substring length not allowed", sqlstate="22011")
    end = None if length is None else max(0, start - 1 + length)
    return text[max(0, start - 1) : end]


def _left(text: str, count: int) -> str:
    return text[:count]


def _right(text: str, count: int) -> str:
    return text[-count:] if count else ""


def _split_part(text: str, separator: str, at: int) -> str:
    if at == 0:
        raise DataError("field position must not be zero", sqlstate="22023")
    parts = text.split(separator) if separator else [text]
    place = at - 1 if at > 0 else len(parts) + at
    return parts[place] if 0 <= place < len(parts) else ""


def _like(text: str, pattern: str) -> bool:
    return matcher(pattern)(text)


def _ilike(text: str, pattern: str) -> bool:
    return matcher(pattern.lower())(text.lower())


def _trimmed(strip: Callable[..., str]) -> Callable[..., str]:
    return lambda text, characters=" ": strip(text, characters)


def _part(json: str, key: str | int) -> Any:
    """What is at a key or an index, as `parsed` has it; `...` if nothing is."""
    value = parsed(json)
    if isinstance(key, int):
        if not isinstance(value, list):
            value = [value] if key == 0 and not isinstance(value, dict) else []
        return value[key] if 0 <= key < len(value) else ...
    return value.get(key, ...) if isinstance(value, dict) else ...


def _json_part(json: str, key: str | int) -> str | None:
    part = _part(json, key)
    return None if part is ... else written(part)


def _json_text(json: str, key: str | int) -> str | None:
    """A string without its quotes, null as NULL, all else as its text."""
    part = _part(json, key)
    if part is ... or part is None:
        return None
    text = written(part)
    return parsed(text) if text.startswith('"') else text


def _has_key(json: str, key: str) -> bool:
    value = parsed(json)
    return key in value if isinstance(value, dict | list) else written(value) == written(key)


def _epoch(field: str, moment: dt.datetime) -> Decimal:
    if field != "epoch":
        raise SqlError(f"extract({field} ...) is not possible in a CHECK", hint="use epoch")
    since = moment.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return Decimal(since // dt.timedelta(microseconds=1)).scaleb(-6)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "hmac": hmac,
    "digest": digest,
    "encode": encode,
    "decode": decode,
    "convert_from": convert_from,
    "constant_time_eq": constant_time_eq,
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "not": operator.not_,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "negate": operator.neg,
    "abs": abs,
    "||": operator.add,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "octet_length": lambda value: len(_bytes(value)),
    "left": _left,
    "right": _right,
    "substring": _substring,
    "split_part": _split_part,
    "strpos": lambda text, part: text.find(part) + 1,
    "starts_with": str.startswith,
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "btrim": _trimmed(str.strip),
    "ltrim": _trimmed(str.lstrip),
    "rtrim": _trimmed(str.rstrip),
    "md5": lambda value: hashlib.md5(_bytes(value), usedforsecurity=False).hexdigest(),
    "like": _like,
    "ilike": _ilike,
    "->": _json_part,
    "->>": _json_text,
    "?": _has_key,
    "extract": _epoch,
}

NULLABLE: dict[str, Callable[..., Any]] = {
    "is null": lambda value: value is None,
    "is not null": lambda value: value is not None,
    "is true": lambda value: value is True,
    "is not true": lambda value: value is not True,
    "is false": lambda value: value is False,
    "is not false": lambda value: value is not False,
    "is distinct from": operator.ne,
    "is not distinct from": operator.eq,
    "concat": lambda *texts: "".join(text for text in texts if text is not None),
}
