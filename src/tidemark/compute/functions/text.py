"""Functions of text."""

from __future__ import annotations

import re

from tidemark.compute.casts import Failure
from tidemark.compute.expr import Expr, Lit
from tidemark.compute.functions.array import ARRAY_CONCATENATION
from tidemark.compute.functions.overload import Args, Overload, Table, Writer
from tidemark.compute.literals import quoted, spark_literal
from tidemark.compute.regex import java_pattern, java_replacement
from tidemark.errors import Unsupported
from tidemark.types import BOOLEAN, INTEGER, TEXT, SqlType


def _write_like(operator: str) -> Writer:
    def write(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
        # Spark rejects a backslash before an ordinary character, PostgreSQL drops it.
        pattern = (
            rf"regexp_replace({texts[1]}, '(?s)\\\\([^%_\\\\])|(\\\\.)|\\\\$', '\u00241\u00242')"
        )
        return f"({texts[0]} {operator} {_plain_pattern(args[1]) or pattern})"

    return write


def _plain_pattern(pattern: Expr) -> str | None:
    if isinstance(pattern, Lit) and pattern.value is not None and "\\" not in pattern.value:
        return spark_literal(pattern)
    return None


_BAD_PATTERN = Failure(
    "{1} RLIKE '(?s)(^|[^\\\\\\\\])(\\\\\\\\\\\\\\\\)*\\\\\\\\$'",
    "'LIKE pattern must not end with escape character'",
)


def _write_regex(*, ignore_case: bool) -> Writer:
    def write(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
        pattern = _constant(args[1], "a regular expression")
        return f"({texts[0]} RLIKE {quoted(java_pattern(pattern, ignore_case=ignore_case))})"

    return write


def _write_regexp_replace(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    """The first match, or every one with the flag g; Spark itself always replaces every one."""
    pattern = _constant(args[1], "a regular expression")
    replacement = _constant(args[2], "a replacement")
    flags = _constant(args[3], "flags") if len(args) > 3 else ""
    if set(flags) - set("gi"):
        raise Unsupported(f"regexp_replace with the flags {flags!r} is not supported")
    java = java_pattern(pattern, ignore_case="i" in flags, match_used=True)
    if "g" in flags:
        return (
            f"regexp_replace({texts[0]}, {quoted(java)}, {quoted(java_replacement(replacement))})"
        )
    options, body = java.split(")", 1)
    renumbered = re.sub(r"\\([1-9])", lambda found: f"\\{int(found[1]) + 2}", body)
    first = f"{options})\\A(.*?)({renumbered})"
    return (
        f"regexp_replace({texts[0]}, {quoted(first)},"
        f" {quoted('$1' + java_replacement(replacement, shift=2))})"
    )


def _constant(expr: Expr, what: str) -> str:
    if not isinstance(expr, Lit) or expr.value is None:
        raise Unsupported(f"{what} that is not a constant is not supported")
    return expr.value


_LENGTH = "CASE WHEN {1} < 0 THEN 0 ELSE {1} END"
"""As greatest of it and zero, but null if it is."""

_INITCAP = (
    "transform(array(split(lower({0}), '')), a_ -> array_join(transform(a_, (c_, i_) -> CASE WHEN"
    " i_ = 0 OR NOT coalesce(get(a_, i_ - 1) RLIKE '[a-zA-Z0-9]|[^\\\\x00-\\\\x7F]', false)"
    " THEN upper(c_) ELSE c_ END), ''))[0]"
)

TEXTS: Table = {
    "~": (Overload("text text", BOOLEAN, _write_regex(ignore_case=False)),),
    "~*": (Overload("text text", BOOLEAN, _write_regex(ignore_case=True)),),
    "regexp_replace": (
        Overload("text text text", TEXT, _write_regexp_replace),
        Overload("text text text text", TEXT, _write_regexp_replace),
    ),
    # What they join is text already, nulls are left out: see `resolve`.
    "concat": (Overload("text ...", TEXT, "concat_ws('', {all})"),),
    "concat_ws": (Overload("text text ...", TEXT, "concat_ws({0}, {rest})"),),
    "lpad": (
        Overload("text integer", TEXT, f"lpad({{0}}, {_LENGTH}, ' ')"),
        Overload("text integer text", TEXT, f"lpad({{0}}, {_LENGTH}, {{2}})"),
    ),
    "rpad": (
        Overload("text integer", TEXT, f"rpad({{0}}, {_LENGTH}, ' ')"),
        Overload("text integer text", TEXT, f"rpad({{0}}, {_LENGTH}, {{2}})"),
    ),
    "repeat": (
        Overload(
            "text integer",
            TEXT,
            "CASE WHEN CAST(octet_length({0}) AS BIGINT) * {1} < 268435456L"
            f" THEN repeat({{0}}, {_LENGTH}) END",
            (Failure("{v} IS NULL", "'requested length too large'"),),
        ),
    ),
    "reverse": (Overload("text", TEXT, "reverse({0})"),),
    "translate": (Overload("text text text", TEXT, "translate({0}, {1}, {2})"),),
    "initcap": (Overload("text", TEXT, _INITCAP),),
    "ascii": (Overload("text", INTEGER, "ascii({0})"),),
    "chr": (
        Overload(
            "integer",
            TEXT,
            "CASE WHEN {0} BETWEEN 1 AND 55295 OR {0} BETWEEN 57344 AND 1114111"
            " THEN decode(unhex(lpad(hex({0}), 8, '0')), 'UTF-32') END",
            (
                Failure("{0} = 0", "'null character not permitted'"),
                Failure("{0} < 0", "'character number must be positive'"),
                Failure(
                    "{0} > 1114111",
                    "concat('requested character too large for encoding: ', {0})",
                ),
                Failure(
                    "{v} IS NULL",
                    "concat('requested character not valid for encoding: ', {0})",
                ),
            ),
        ),
    ),
    "md5": (
        Overload("text", TEXT, "md5({0})"),
        Overload("bytea", TEXT, "md5({0})"),
    ),
    "to_hex": (
        Overload("integer", TEXT, "lower(hex(CAST({0} AS BIGINT) & 4294967295L))"),
        Overload("bigint", TEXT, "lower(hex({0}))"),
    ),
    "octet_length": (
        Overload("text", INTEGER, "octet_length({0})"),
        Overload("bytea", INTEGER, "octet_length({0})"),
    ),
    "||": (
        Overload("text text", TEXT, "concat({0}, {1})"),
        *ARRAY_CONCATENATION,
    ),
    "lower": (Overload("text", TEXT, "lower({0})"),),
    "upper": (Overload("text", TEXT, "upper({0})"),),
    "length": (
        Overload("text", INTEGER, "char_length({0})"),
        Overload("bytea", INTEGER, "octet_length({0})"),
    ),
    "replace": (Overload("text text text", TEXT, "replace({0}, {1}, {2})"),),
    "substring": (
        # Positions start at 1; those before it count towards the length.
        Overload("text integer", TEXT, "substring({0}, CASE WHEN {1} < 1 THEN 1 ELSE {1} END)"),
        Overload(
            "text integer integer",
            TEXT,
            "substring({0}, CASE WHEN {1} < 1 THEN 1 ELSE {1} END,"
            " CAST(greatest(CASE WHEN {1} < 1 THEN CAST({1} AS BIGINT) - 1 + {2} ELSE {2} END,"
            " CASE WHEN {2} IS NOT NULL THEN 0 END) AS INT))",
            (Failure("{2} < 0", "'negative substring length not allowed'"),),
        ),
    ),
    "btrim": (
        Overload("text", TEXT, "trim({0})"),
        Overload("text text", TEXT, "trim(BOTH {1} FROM {0})"),
    ),
    "ltrim": (
        Overload("text", TEXT, "ltrim({0})"),
        Overload("text text", TEXT, "trim(LEADING {1} FROM {0})"),
    ),
    "rtrim": (
        Overload("text", TEXT, "rtrim({0})"),
        Overload("text text", TEXT, "trim(TRAILING {1} FROM {0})"),
    ),
    # A negative length leaves that many characters out at the other end.
    "left": (
        Overload(
            "text integer",
            TEXT,
            "CASE WHEN {1} < 0 THEN left({0}, char_length({0}) + {1}) ELSE left({0}, {1}) END",
        ),
    ),
    "right": (
        Overload(
            "text integer",
            TEXT,
            "CASE WHEN {1} < 0 THEN right({0}, char_length({0}) + {1}) ELSE right({0}, {1}) END",
        ),
    ),
    "strpos": (Overload("text text", INTEGER, "instr({0}, {1})"),),
    "starts_with": (Overload("text text", BOOLEAN, "startswith({0}, {1})"),),
    "split_part": (
        Overload(
            "text text integer",
            TEXT,
            "split_part({0}, {1}, nullif({2}, 0))",
            (Failure("{2} = 0", "'field position must not be zero'"),),
        ),
    ),
    "like": (Overload("text text", BOOLEAN, _write_like("LIKE"), (_BAD_PATTERN,)),),
    "ilike": (Overload("text text", BOOLEAN, _write_like("ILIKE"), (_BAD_PATTERN,)),),
}
