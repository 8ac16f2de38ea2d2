"""Functions of text."""

from __future__ import annotations

import re

from tidemark.compute.casts import Failure
from tidemark.compute.expr import Expr, Lit
from tidemark.compute.functions.array import ARRAY_CONCATENATION
from tidemark.compute.functions.json import write_joined
from tidemark.compute.functions.overload import Args, Overload, Table, Writer
from tidemark.compute.functions.patterns import constant as _constant
from tidemark.compute.literals import quoted, spark_literal
from tidemark.compute.regex import java_pattern, java_replacement
from tidemark.errors import Unsupported
from tidemark.types import BOOLEAN, BYTEA, INTEGER, JSONB, TEXT, SqlType


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


MOST_BYTES = 16 * 1024 * 1024
"""Of a value that is made longer: several of them must fit into a JVM's heap."""

_LENGTH = "CASE WHEN {1} < 0 THEN 0 ELSE {1} END"
"""As greatest of it and zero, but null if it is."""

_INITCAP = (
    "transform(array(split(lower({0}), '')), a_ -> array_join(transform(a_, (c_, i_) -> CASE WHEN"
    " i_ = 0 OR NOT coalesce(get(a_, i_ - 1) RLIKE '[a-zA-Z0-9]|[^\\\\x00-\\\\x7F]', false)"
    " THEN upper(c_) ELSE c_ END), ''))[0]"
)

_QUOTED_LITERAL = (
    "concat(CASE WHEN contains({0}, '\\\\') THEN 'E' ELSE '' END, '\\'',"
    " replace(replace({0}, '\\\\', '\\\\\\\\'), '\\'', '\\'\\''), '\\'')"
)
_OVERLAY = (
    "concat(substring({{0}}, 1, {{2}} - 1), {{1}},"
    " substring({{0}}, greatest(CAST({{2}} AS BIGINT) + {0}, 1)))"
)
_OVERLAY_FAILS = (Failure("{2} < 1", "'negative substring length not allowed'"),)
_TOO_LONG = (Failure("{v} IS NULL", "'requested length too large'"),)
_NOT_ENCODED = "'invalid data to decode'"
_ENCODINGS = ("hex", "base64")


def _padded(value: str) -> str:
    return f"CASE WHEN {{1}} <= {MOST_BYTES} THEN {value} END"


def _encoding(args: Args) -> str:
    name = _constant(args[1], "an encoding").lower()
    if name not in _ENCODINGS:
        raise Unsupported(f"the encoding {name!r} is not supported", hint="use hex or base64")
    return name


def _write_encode(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    if _encoding(args) == "hex":
        return f"lower(hex({texts[0]}))"
    # PostgreSQL breaks lines after 76 characters.
    return f"regexp_replace(base64({texts[0]}), '\\\\r', '')"


def _write_decode(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    text, encoding = texts[0], _encoding(args)
    if encoding == "base64":
        text = f"regexp_replace({text}, '[ \\\\t\\\\r\\\\n]', '')"
    # Spark fills up what is cut off in the middle.
    whole = 2 if encoding == "hex" else 4
    return (
        f"CASE WHEN char_length({text}) % {whole} = 0 THEN try_to_binary({text}, '{encoding}') END"
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
        Overload("text integer", TEXT, _padded(f"lpad({{0}}, {_LENGTH}, ' ')"), _TOO_LONG),
        Overload("text integer text", TEXT, _padded(f"lpad({{0}}, {_LENGTH}, {{2}})"), _TOO_LONG),
    ),
    "rpad": (
        Overload("text integer", TEXT, _padded(f"rpad({{0}}, {_LENGTH}, ' ')"), _TOO_LONG),
        Overload("text integer text", TEXT, _padded(f"rpad({{0}}, {_LENGTH}, {{2}})"), _TOO_LONG),
    ),
    "repeat": (
        Overload(
            "text integer",
            TEXT,
            f"CASE WHEN CAST(octet_length({{0}}) AS BIGINT) * {{1}} <= {MOST_BYTES}L"
            f" THEN repeat({{0}}, {_LENGTH}) END",
            _TOO_LONG,
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
    "sha256": (Overload("bytea", BYTEA, "unhex(sha2({0}, 256))"),),
    "encode": (Overload("bytea text", TEXT, _write_encode),),
    "decode": (
        Overload("text text", BYTEA, _write_decode, (Failure("{v} IS NULL", _NOT_ENCODED),)),
    ),
    "quote_literal": (Overload("text", TEXT, _QUOTED_LITERAL),),
    "quote_nullable": (Overload("text", TEXT, f"coalesce({_QUOTED_LITERAL}, 'NULL')"),),
    "overlay": (
        Overload("text text integer", TEXT, _OVERLAY.format("char_length({1})"), _OVERLAY_FAILS),
        Overload("text text integer integer", TEXT, _OVERLAY.format("{3}"), _OVERLAY_FAILS),
    ),
    "bit_length": (
        Overload("text", INTEGER, "(octet_length({0}) * 8)"),
        Overload("bytea", INTEGER, "(octet_length({0}) * 8)"),
    ),
    "octet_length": (
        Overload("text", INTEGER, "octet_length({0})"),
        Overload("bytea", INTEGER, "octet_length({0})"),
    ),
    "||": (
        Overload("text text", TEXT, "concat({0}, {1})"),
        Overload("bytea bytea", BYTEA, "concat({0}, {1})"),
        Overload("jsonb jsonb", JSONB, write_joined),
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
