"""jsonb: its parts, and how it is built. Kept as canonical text, see `jsonb.py`."""

from __future__ import annotations

from tidemark.compute.casts import JSON_TYPE, Failure
from tidemark.compute.expr import Lit
from tidemark.compute.functions.overload import Args, Overload, Table
from tidemark.compute.json_text import json_text
from tidemark.compute.literals import quoted
from tidemark.errors import Unsupported
from tidemark.types import BOOLEAN, INTEGER, JSONB, TEXT, SqlType


def _path(args: Args) -> str:
    """The path of a constant key or index, as Spark writes it."""
    part = args[1]
    if not isinstance(part, Lit) or part.value is None:
        raise Unsupported(
            "a jsonb key that is not a constant is not supported", hint="write it as a literal"
        )
    key = part.value
    if part.type.is_integer:
        if int(key) < 0:
            raise Unsupported("jsonb subscripts that count from the end are not supported")
        return f"$[{key}]"
    if not key or "?" in key or ("'" in key and '"' in key):
        raise Unsupported(f"the jsonb key {key!r} is not supported")
    return f'$["{key}"]' if "'" in key else f"$['{key}']"


def _part(texts: tuple[str, ...], args: Args) -> str:
    path, json = _path(args), f"try_parse_json({texts[0]})"
    part = f"try_variant_get({json}, {quoted(path)}, 'variant')"
    if path != "$[0]":
        return part
    # To PostgreSQL a scalar is an array of itself, here.
    return f"CASE WHEN left({texts[0]}, 1) IN ('{{', '[') THEN {part} ELSE {json} END"


def _write_part(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"to_json({_part(texts, args)})"


def _write_part_text(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    """A string without its quotes, null as NULL, all else as its text."""
    printed = (
        "CASE WHEN is_variant_null(v_) THEN NULL"
        " WHEN schema_of_variant(v_) = 'STRING' THEN CAST(v_ AS STRING) ELSE to_json(v_) END"
    )
    return f"transform(array({_part(texts, args)}), v_ -> {printed})[0]"


def _write_has_key(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    key = json_text(texts[1], TEXT)
    elements = f"CAST(try_parse_json({texts[0]}) AS ARRAY<VARIANT>)"
    return (
        f"CASE left({texts[0]}, 1) WHEN '{{' THEN {_part(texts, args)} IS NOT NULL"
        f" WHEN '[' THEN coalesce(exists({elements}, x_ -> to_json(x_) = {key}), false)"
        f" ELSE {texts[0]} = {key} END"
    )


def _write_to_jsonb(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return json_text(texts[0], args[0].type)


def _or_null(text: str, type_: SqlType) -> str:
    return f"coalesce({json_text(text, type_)}, 'null')"


def _write_built_array(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    cells = [_or_null(text, arg.type) for text, arg in zip(texts, args, strict=True)]
    return f"concat('[', concat_ws(',', {', '.join(cells)}), ']')"


def _write_built_object(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    """Keys are constants; one that is there twice has its last value."""
    members: dict[str, str] = {}
    for at in range(0, len(args) - 1, 2):
        key = args[at]
        if not isinstance(key, Lit) or key.value is None:
            raise Unsupported(
                "jsonb_build_object with a key that is not a constant is not supported",
                hint="use jsonb_object_agg, or write the key as a literal",
            )
        members[key.value] = (
            f"{json_text(texts[at], TEXT)}, ':', {_or_null(texts[at + 1], args[at + 1].type)}"
        )
    cells = ", ',', ".join(members.values())
    return f"to_json(try_parse_json(concat('{{', {cells}, '}}')))"


_NOT_ARRAY = Failure(
    "{v} IS NULL",
    "CASE WHEN {0} LIKE '{{%' THEN 'cannot get array length of a non-array'"
    " ELSE 'cannot get array length of a scalar' END",
)

JSON: Table = {
    "->": (
        Overload("jsonb integer", JSONB, _write_part),
        Overload("jsonb text", JSONB, _write_part),
    ),
    "->>": (
        Overload("jsonb integer", TEXT, _write_part_text),
        Overload("jsonb text", TEXT, _write_part_text),
    ),
    "?": (Overload("jsonb text", BOOLEAN, _write_has_key),),
    "jsonb_typeof": (Overload("jsonb", TEXT, JSON_TYPE),),
    "jsonb_array_length": (
        Overload(
            "jsonb",
            INTEGER,
            "CASE WHEN {0} LIKE '[%' THEN json_array_length({0}) END",
            (_NOT_ARRAY,),
        ),
    ),
    "to_jsonb": (Overload("any", JSONB, _write_to_jsonb),),
    # Arguments of any types, each its own: `resolve` gives them theirs.
    "jsonb_build_array": (Overload("each ...", JSONB, _write_built_array),),
    "jsonb_build_object": (Overload("each ...", JSONB, _write_built_object),),
}
