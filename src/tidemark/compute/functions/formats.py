"""to_char of dates and timestamps: a constant format, taken apart when it is planned.

    to_char(t, 'FMDay, DD Mon YYYY')     trim(day), ', ', dd, ' ', mon, ' ', yyyy

Each piece is written for Spark on its own, over `x_`, the moment; what is no piece stands for
itself. What PostgreSQL knows beyond this list (TH, roman numbers, SP) is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidemark.compute.functions.overload import Args, Overload, Table
from tidemark.compute.functions.patterns import constant
from tidemark.compute.literals import quoted
from tidemark.errors import Unsupported
from tidemark.types import TEXT, SqlType


@dataclass(frozen=True, slots=True)
class Piece:
    """`spark` is a number to be padded with zeros to `width`, or a text where that is 0."""

    spark: str
    width: int = 0


_NAMES = {"MONTH": ("date_format(x_, 'MMMM')", 9), "DAY": ("date_format(x_, 'EEEE')", 9)}
_SHORT = {"MON": "date_format(x_, 'MMM')", "DY": "date_format(x_, 'E')"}
_YEAR, _WEEK_YEAR = "extract(YEAR FROM x_)", "extract(YEAROFWEEK FROM x_)"
_DAYS = "unix_date(CAST(x_ AS DATE))"
_ISO_MONDAY = "(extract(WEEK FROM x_) - 1) * 7 + extract(DAYOFWEEK_ISO FROM x_)"  # of the ISO year
_NUMBERS = {
    "YYYY": Piece(_YEAR, 4),
    "YYY": Piece(f"{_YEAR} % 1000", 3),
    "YY": Piece(f"{_YEAR} % 100", 2),
    "Y": Piece(f"{_YEAR} % 10", 1),
    "IYYY": Piece(_WEEK_YEAR, 4),
    "IYY": Piece(f"{_WEEK_YEAR} % 1000", 3),
    "IY": Piece(f"{_WEEK_YEAR} % 100", 2),
    "I": Piece(f"{_WEEK_YEAR} % 10", 1),
    "CC": Piece(f"({_YEAR} + 99) div 100", 2),
    "Q": Piece("extract(QUARTER FROM x_)", 1),
    "MM": Piece("extract(MONTH FROM x_)", 2),
    "WW": Piece("(extract(DOY FROM x_) - 1) div 7 + 1", 2),
    "IW": Piece("extract(WEEK FROM x_)", 2),
    "W": Piece("(extract(DAY FROM x_) - 1) div 7 + 1", 1),
    "DDD": Piece("extract(DOY FROM x_)", 3),
    "IDDD": Piece(_ISO_MONDAY, 3),
    "DD": Piece("extract(DAY FROM x_)", 2),
    "D": Piece("extract(DAYOFWEEK FROM x_)", 1),
    "ID": Piece("extract(DAYOFWEEK_ISO FROM x_)", 1),
    "J": Piece(f"{_DAYS} + 2440588", 1),
    "HH24": Piece("hour(x_)", 2),
    "HH12": Piece("(hour(x_) + 11) % 12 + 1", 2),
    "HH": Piece("(hour(x_) + 11) % 12 + 1", 2),
    "MI": Piece("minute(x_)", 2),
    "SS": Piece("second(x_)", 2),
    "SSSSS": Piece("hour(x_) * 3600 + minute(x_) * 60 + second(x_)", 1),
    "SSSS": Piece("hour(x_) * 3600 + minute(x_) * 60 + second(x_)", 1),
    "MS": Piece("CAST(date_format(x_, 'SSS') AS INT)", 3),
    "US": Piece("CAST(date_format(x_, 'SSSSSS') AS INT)", 6),
}
_HALVES = {
    "AM": ("AM", "PM"),
    "PM": ("AM", "PM"),
    "A.M.": ("A.M.", "P.M."),
    "P.M.": ("A.M.", "P.M."),
}
_ZONES = {"TZ": "UTC", "OF": "+00", "TZH": "+00", "TZM": "00"}
_UNKNOWN = ("TH", "SP", "TM", "RM", "BC", "AD", "B.C.", "A.D.", "Y,YYY", "FX")
_CODES = sorted([*_NUMBERS, *_NAMES, *_SHORT, *_HALVES, *_ZONES, *_UNKNOWN], key=len, reverse=True)
_TOKEN = re.compile(
    r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<fill>FM)?(?P<code>'
    + "|".join(map(re.escape, _CODES))
    + r")|(?P<other>.)",
    re.DOTALL | re.IGNORECASE,
)


def _write_to_char(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    pattern = constant(args[1], "a format of to_char")
    cells: list[str] = []
    for token in _TOKEN.finditer(pattern):
        if token["code"]:
            cells.append(_written(token["code"], bare=bool(token["fill"]), pattern=pattern))
        elif token["quoted"] is not None:
            cells.append(quoted(re.sub(r"\\(.)", r"\1", token["quoted"])))
        else:
            cells.append(quoted(token["other"]))
    made = f"concat({', '.join(cells)})" if cells else "''"
    return f"transform(array({texts[0]}), x_ -> CASE WHEN x_ IS NOT NULL THEN {made} END)[0]"


def _written(code: str, *, bare: bool, pattern: str) -> str:
    upper = code.upper()
    if upper in _NUMBERS:
        piece = _NUMBERS[upper]
        number = f"CAST({piece.spark} AS STRING)"
        # Without leading zeros if FM says so; what is wider is not cut.
        if bare or piece.width == 1:
            return number
        return f"lpad({number}, greatest({piece.width}, length({number})), '0')"
    if upper in _NAMES:
        name, width = _NAMES[upper]
        cased = _cased(name, code)
        return cased if bare else f"rpad({cased}, {width}, ' ')"
    if upper in _SHORT:
        return _cased(_SHORT[upper], code)
    if upper in _HALVES:
        before, after = _HALVES[upper]
        if code[0].islower():
            before, after = before.lower(), after.lower()
        return f"CASE WHEN hour(x_) < 12 THEN '{before}' ELSE '{after}' END"
    if upper in _ZONES:
        zone = _ZONES[upper]
        return quoted(zone.lower() if code.islower() else zone)
    raise Unsupported(f"to_char with {code} is not supported: {pattern!r}")


def _cased(name: str, code: str) -> str:
    if code.isupper():
        return f"upper({name})"
    return f"lower({name})" if code.islower() else name


FORMATS: Table = {
    "to_char": tuple(
        Overload(f"{moment} text", TEXT, _write_to_char) for moment in ("timestamp", "timestamptz")
    ),
}
