"""Arrays: subscripts, searches, and comparison with ANY and ALL.

Names of lambda variables end in an underscore, as no column's name does.
"""

from __future__ import annotations

from tidemark.compute.casts import rule_for
from tidemark.compute.functions.overload import Args, Overload, Table, same
from tidemark.errors import Unsupported
from tidemark.types import BOOLEAN, INTEGER, TEXT, SqlType, array_of


def _element(args: Args) -> SqlType:
    assert args[0].type.element is not None
    return args[0].type.element


def _second(args: Args) -> SqlType:
    return args[1].type


def _write_array_to_string(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    element = _element(args)
    if element.name == "boolean":
        printed = "CASE WHEN x_ THEN 't' ELSE 'f' END"
    elif element == TEXT:
        printed = "x_"
    else:
        rule = rule_for(element, TEXT)
        if rule is None or rule.refused or rule.fails:
            raise Unsupported(f"array_to_string of {args[0].type} is not supported")
        printed = rule.spark.replace("{0}", "x_").replace("{T}", "STRING")
    cells = f"transform({texts[0]}, x_ -> CASE WHEN x_ IS NOT NULL THEN {printed} END)"
    if len(texts) == 2:
        return f"array_join({cells}, {texts[1]})"
    # A null there is nothing to show nulls as.
    return (
        f"CASE WHEN {texts[2]} IS NULL THEN array_join({cells}, {texts[1]})"
        f" ELSE array_join({cells}, {texts[1]}, {texts[2]}) END"
    )


_QUOTED = "concat('\\\\Q', replace({1}, '\\\\E', '\\\\E\\\\\\\\E\\\\Q'), '\\\\E')"
SPLIT = (
    "CASE WHEN {0} IS NULL THEN CAST(NULL AS ARRAY<STRING>)"
    " WHEN {0} = '' THEN CAST(array() AS ARRAY<STRING>)"
    " WHEN {1} IS NULL THEN split({0}, '')"
    " WHEN {1} = '' THEN array({0})"
    f" ELSE split({{0}}, {_QUOTED}, -1) END"
)
_APPENDED = "concat(coalesce({0}, CAST(array() AS {T})), array({1}))"
_PREPENDED = "concat(array({0}), coalesce({1}, CAST(array() AS {T})))"
_JOINED = "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE concat({0}, {1}) END"
_CONTAINS = (
    "CASE WHEN {0} IS NOT NULL"
    " THEN forall({1}, y_ -> coalesce(exists({0}, x_ -> x_ = y_), false)) END"
)
_OVERLAPS = (
    "CASE WHEN {1} IS NOT NULL"
    " THEN exists({0}, x_ -> coalesce(exists({1}, y_ -> x_ = y_), false)) END"
)

ARRAY_CONCATENATION = (
    Overload("array array", same, _JOINED),
    Overload("array element", same, _APPENDED),
    Overload("element array", _second, _PREPENDED),
)

ARRAYS: Table = {
    "array": (Overload("any ...", lambda args: array_of(args[0].type), "array({all})"),),
    "subscript": (Overload("array integer", _element, "get({0}, try_subtract({1}, 1))"),),
    "array_length": (
        Overload("array integer", INTEGER, "CASE WHEN {1} = 1 THEN nullif(array_size({0}), 0) END"),
    ),
    "cardinality": (Overload("array", INTEGER, "array_size({0})"),),
    "array_position": (
        Overload(
            "array element",
            INTEGER,
            "try_element_at(filter(transform({0}, (x_, i_) -> CASE WHEN x_ <=> {1} THEN i_ + 1 END),"
            " n_ -> n_ IS NOT NULL), 1)",
        ),
    ),
    "array_to_string": (
        Overload("array text", TEXT, _write_array_to_string),
        Overload("array text text", TEXT, _write_array_to_string),
    ),
    "string_to_array": (
        Overload("text text", array_of(TEXT), SPLIT),
        Overload("text text text", array_of(TEXT), f"transform({SPLIT}, x_ -> nullif(x_, {{2}}))"),
    ),
    "slice": (
        Overload(
            "array integer integer",
            same,
            "slice({0}, greatest({1}, 1),"
            " greatest(least({2}, array_size({0})) - greatest({1}, 1) + 1, 0))",
        ),
    ),
    "array_upper": (
        Overload("array integer", INTEGER, "CASE WHEN {1} = 1 THEN nullif(array_size({0}), 0) END"),
    ),
    "array_lower": (
        Overload("array integer", INTEGER, "CASE WHEN {1} = 1 AND array_size({0}) > 0 THEN 1 END"),
    ),
    "array_ndims": (Overload("array", INTEGER, "CASE WHEN array_size({0}) > 0 THEN 1 END"),),
    "array_dims": (
        Overload(
            "array",
            TEXT,
            "CASE WHEN array_size({0}) > 0 THEN concat('[1:', array_size({0}), ']') END",
        ),
    ),
    "array_positions": (
        Overload(
            "array element",
            array_of(INTEGER),
            "filter(transform({0}, (x_, i_) -> CASE WHEN x_ <=> {1} THEN i_ + 1 END),"
            " n_ -> n_ IS NOT NULL)",
        ),
    ),
    "array_replace": (
        Overload(
            "array element element",
            same,
            "transform({0}, x_ -> CASE WHEN x_ <=> {1} THEN {2} ELSE x_ END)",
        ),
    ),
    "array_append": (Overload("array element", same, _APPENDED),),
    "array_prepend": (Overload("element array", _second, _PREPENDED),),
    "array_cat": (Overload("array array", same, _JOINED),),
    "array_remove": (Overload("array element", same, "filter({0}, x_ -> NOT (x_ <=> {1}))"),),
    "array @>": (Overload("array array", BOOLEAN, _CONTAINS),),
    "array &&": (Overload("array array", BOOLEAN, _OVERLAPS),),
    **{
        f"{op} {word}": (
            Overload("element array", BOOLEAN, f"{test}({{1}}, x_ -> ({{0}} {op} x_))"),
        )
        for op in ("=", "<>", "<", "<=", ">", ">=")
        for word, test in (("any", "exists"), ("all", "forall"))
    },
}
