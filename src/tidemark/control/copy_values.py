"""A column of texts as a column of values, as PostgreSQL would read each of them.

The usual spellings of a type (`_USUAL`) are converted all at once by Arrow; whatever is spelled
otherwise, value by value by `typed`, which also says what is wrong with those that are no value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.expr import Lit
from tidemark.compute.literals import typed
from tidemark.control.values import literal_array
from tidemark.errors import TidemarkError
from tidemark.types import SqlType

_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DATE = f"{_YEAR}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?"
_UTC = r"(?:Z|[+]00(?::?00)?)$"


class BadValue(Exception):
    """The value `at` cannot be read."""

    def __init__(self, at: int, error: TidemarkError):
        super().__init__(error.message)
        self.at = at
        self.error = error


def read_column(texts: pa.Array, type_: SqlType) -> pa.Array:
    """`texts` is an array of large strings."""
    if type_.name == "text":
        return texts.cast(pa.string())
    usual = _usual(type_)
    if usual is None:
        return _one_by_one(texts, type_, range(len(texts)))
    pattern, convert = usual
    plain = pc.match_substring_regex(texts, f"^(?:{pattern})$")
    try:
        made = convert(pc.if_else(plain, texts, pa.scalar(None, texts.type)), type_.arrow)
    except pa.ArrowInvalid:  # such as the 30th of February: `typed` says it better
        return _one_by_one(texts, type_, range(len(texts)))
    odd = pc.fill_null(pc.invert(plain), False)
    if not pc.any(odd).as_py():
        return made
    found = _one_by_one(texts.filter(odd), type_, pc.indices_nonzero(odd).to_pylist())
    return pc.replace_with_mask(made, odd, found)


def _one_by_one(texts: pa.Array, type_: SqlType, positions: Sequence[int]) -> pa.Array:
    literals: list[Lit] = []
    for text, at in zip(texts.to_pylist(), positions, strict=True):
        try:
            literals.append(Lit(None, type_) if text is None else typed(text, type_))
        except TidemarkError as error:
            raise BadValue(at, error) from None
    return literal_array(literals, type_)


def _usual(type_: SqlType) -> tuple[str, Callable[[pa.Array, pa.DataType], pa.Array]] | None:
    """A pattern of texts that can be converted at once, and how; none of them can overflow."""
    match type_.name:
        case "smallint":
            return "-?[0-9]{1,4}", pc.cast
        case "integer":
            return "-?[0-9]{1,9}", pc.cast
        case "bigint":
            return "-?[0-9]{1,18}", pc.cast
        case "numeric":
            precision, scale = type_.decimal
            whole = precision - scale
            if whole == 0:
                return None
            fraction = f"(?:[.][0-9]{{1,{scale}}})?" if scale else ""
            return f"-?[0-9]{{1,{whole}}}{fraction}", pc.cast
        case "double precision":
            return "-?[0-9]{1,17}(?:[.][0-9]{1,17})?(?:[eE][+-]?[0-9]{1,2})?", pc.cast
        case "boolean":
            return "t|f|true|false", _booleans
        case "date":
            return _DATE, pc.cast
        case "timestamp":
            return f"{_DATE}(?:[ T]{_TIME})?", pc.cast
        case "timestamp with time zone":
            return f"{_DATE}[ T]{_TIME}{_UTC[:-1]}?", _instants
    return None


def _booleans(texts: pa.Array, _: pa.DataType) -> pa.Array:
    true = pc.is_in(texts, pa.array(["t", "true"], texts.type))
    return pc.if_else(pc.is_valid(texts), true, pa.scalar(None, pa.bool_()))


def _instants(texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    local = pc.replace_substring_regex(texts, _UTC, "")
    return local.cast(pa.timestamp("us")).cast(pa.int64()).cast(arrow)
