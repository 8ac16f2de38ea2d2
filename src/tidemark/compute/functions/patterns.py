"""Functions of regular expressions that use what matched; patterns are constants (regex.py)."""

from __future__ import annotations

import re

from tidemark.compute.expr import Expr, Lit
from tidemark.compute.functions.overload import Args, Overload, Table
from tidemark.compute.literals import quoted
from tidemark.compute.regex import java_pattern, matches_empty
from tidemark.errors import Unsupported
from tidemark.types import BOOLEAN, INTEGER, TEXT, SqlType, array_of


def constant(expr: Expr, what: str) -> str:
    if not isinstance(expr, Lit) or expr.value is None:
        raise Unsupported(f"{what} that is not a constant is not supported")
    return expr.value


def _java(args: Args, *, flags_at: int = 2, match_used: bool = True) -> str:
    pattern = constant(args[1], "a regular expression")
    flags = constant(args[flags_at], "flags") if len(args) > flags_at else ""
    if set(flags) - {"i"}:
        raise Unsupported(f"a regular expression with the flags {flags!r} is not supported")
    return java_pattern(pattern, ignore_case="i" in flags, match_used=match_used)


def _groups(java: str) -> int:
    return re.compile(java.replace("\\z", "\\Z")).groups


def _extracted(text: str, java: str, group: int) -> str:
    return f"regexp_extract({text}, {quoted(java)}, {group})"


def _write_match(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    """What the groups matched, or the whole match where there are none; null if there is none."""
    java = _java(args)
    count = _groups(java)
    # An optional group that matched nothing would be empty here and null in PostgreSQL.
    if count and re.search(r"\)[?*{]|\(\?", java[4:]):
        raise Unsupported("regexp_match with optional groups is not supported")
    cells = [_extracted(texts[0], java, group) for group in range(1, count + 1)]
    cells = cells or [_extracted(texts[0], java, 0)]
    return f"CASE WHEN {texts[0]} RLIKE {quoted(java)} THEN array({', '.join(cells)}) END"


def _write_part(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    """substring(text FROM pattern): the first group if there is one."""
    java = _java(args)
    found = _extracted(texts[0], java, min(_groups(java), 1))
    return f"CASE WHEN {texts[0]} RLIKE {quoted(java)} THEN {found} END"


def _write_substr(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    java = _java(args)
    found = _extracted(texts[0], java, 0)
    return f"CASE WHEN {texts[0]} RLIKE {quoted(java)} THEN {found} END"


def _write_like(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"({texts[0]} RLIKE {quoted(_java(args, match_used=False))})"


def _solid(args: Args) -> str:
    """A pattern that matches no empty text: of those each language counts others."""
    java = _java(args)
    if matches_empty(java):
        raise Unsupported("a regular expression that matches the empty text is not supported here")
    return quoted(java)


def _write_count(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"regexp_count({texts[0]}, {_solid(args)})"


def _write_instr(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"regexp_instr({texts[0]}, {_solid(args)})"


def _write_split(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"split({texts[0]}, {_solid(args)}, -1)"


PATTERNS: Table = {
    "regexp_match": (
        Overload("text text", array_of(TEXT), _write_match),
        Overload("text text text", array_of(TEXT), _write_match),
    ),
    "substring by pattern": (Overload("text text", TEXT, _write_part),),
    "regexp_substr": (Overload("text text", TEXT, _write_substr),),
    "regexp_like": (
        Overload("text text", BOOLEAN, _write_like),
        Overload("text text text", BOOLEAN, _write_like),
    ),
    "regexp_count": (Overload("text text", INTEGER, _write_count),),
    "regexp_instr": (Overload("text text", INTEGER, _write_instr),),
    "regexp_split_to_array": (
        Overload("text text", array_of(TEXT), _write_split),
        Overload("text text text", array_of(TEXT), _write_split),
    ),
}
