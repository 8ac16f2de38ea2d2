"""jsonb: its parts, and how it is built. Kept as canonical text, see `jsonb.py`."""

from __future__ import annotations

from typing import Any

from tidemark.compute.casts import JSON_TYPE, Failure
from tidemark.compute.expr import Lit
from tidemark.compute.functions.overload import Args, Overload, Table
from tidemark.compute.json_text import json_text, variant_text
from tidemark.compute.jsonb import parsed, written
from tidemark.compute.literals import quoted
from tidemark.errors import Unsupported
from tidemark.types import BOOLEAN, INTEGER, JSONB, TEXT, SqlType


def _path(args: Args) -> str | None:
    """The path of a constant key or index, as Spark writes it; None where it cannot."""
    part = args[1]
    if not isinstance(part, Lit) or part.value is None:
        return None
    key = part.value
    if part.type.is_integer:
        return f"$[{key}]" if int(key) >= 0 else None
    if not key or "?" in key or ("'" in key and '"' in key):
        return None
    return f'$["{key}"]' if "'" in key else f"$['{key}']"


def _part(texts: tuple[str, ...], args: Args) -> str:
    path, json = _path(args), f"try_parse_json({texts[0]})"
    if path is not None:
        part = f"try_variant_get({json}, {quoted(path)}, 'variant')"
    elif args[1].type.is_integer:
        at = f"CASE WHEN {texts[1]} < 0 THEN {texts[1]} ELSE {texts[1]} + 1 END"
        part = f"try_element_at(try_cast({json} AS ARRAY<VARIANT>), {at})"
    else:
        return f"try_element_at(try_cast({json} AS MAP<STRING, VARIANT>), {texts[1]})"
    if not args[1].type.is_integer or (path is not None and path != "$[0]"):
        return part
    # To PostgreSQL a scalar is an array of itself, here.
    return (
        f"CASE WHEN left({texts[0]}, 1) IN ('{{', '[') THEN {part}"
        f" WHEN {texts[1]} IN (0, -1) THEN {json} END"
    )


def _write_part(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"to_json({_part(texts, args)})"


def _write_part_text(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    return f"transform(array({_part(texts, args)}), v_ -> {variant_text('v_')})[0]"


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


def elements(text: str) -> str:
    """The texts of an array's elements; null for what is no array."""
    return f"transform(try_cast(try_parse_json({text}) AS ARRAY<VARIANT>), v_ -> to_json(v_))"


def _map(text: str) -> str:
    return f"try_cast(try_parse_json({text}) AS MAP<STRING, VARIANT>)"


def _members_text(entries: str) -> str:
    member = "concat(to_json(CAST(e_.key AS VARIANT)), ':', to_json(e_.value))"
    return f"array_join(transform({entries}, e_ -> {member}), ',')"


def _write_contains(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    wanted = args[1]
    if not isinstance(wanted, Lit) or wanted.value is None:
        raise Unsupported(
            "jsonb containment of something that is not a constant is not supported",
            hint="write what must be contained as a literal",
        )
    inner = _contains("j_", parsed(wanted.value), 0)
    whole = f"transform(array({texts[0]}), j_ -> {inner})[0]"
    return f"CASE WHEN {texts[0]} IS NOT NULL THEN coalesce({whole}, false) END"


def _contains(text: str, wanted: Any, depth: int) -> str:
    """Whether the jsonb `text` contains the constant; null counts as no."""
    if isinstance(wanted, dict):
        tests = [f"left({text}, 1) = '{{'"]
        for key, value in wanted.items():
            name = f"m{depth}_"
            member = f"to_json(try_element_at({_map(text)}, {quoted(key)}))"
            tests.append(f"exists(array({member}), {name} -> {_contains(name, value, depth + 1)})")
        return f"({' AND '.join(tests)})"
    if isinstance(wanted, list):
        tests = [f"left({text}, 1) = '['"]
        for value in wanted:
            name = f"m{depth}_"
            tests.append(f"exists({elements(text)}, {name} -> {_contains(name, value, depth + 1)})")
        return f"({' AND '.join(tests)})"
    same = quoted(written(wanted))
    if depth:
        return f"({text} = {same})"
    # At the top an array contains what is one of its elements.
    return f"({text} = {same} OR coalesce(exists({elements(text)}, m_ -> m_ = {same}), false))"


def _write_without(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    """The object without a key, or the array without a string."""
    left = f"filter(map_entries({_map(texts[0])}), e_ -> e_.key <> {texts[1]})"
    string = json_text(texts[1], TEXT)
    rest = f"array_join(filter({elements(texts[0])}, x_ -> x_ <> {string}), ',')"
    return (
        f"CASE left({texts[0]}, 1) WHEN '{{' THEN concat('{{', {_members_text(left)}, '}}')"
        f" WHEN '[' THEN concat('[', {rest}, ']') END"
    )


def _write_without_at(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    at = f"CASE WHEN {texts[1]} < 0 THEN json_array_length({texts[0]}) + {texts[1]} ELSE {texts[1]} END"
    rest = f"filter({elements(texts[0])}, (x_, i_) -> i_ <> {at})"
    return f"CASE WHEN left({texts[0]}, 1) = '[' THEN concat('[', array_join({rest}, ','), ']') END"


def _joined(a: str, b: str) -> str:
    """Objects are merged, what is right of it wins; anything else is an array of its own."""
    kept = f"filter(map_entries({_map(a)}), e_ -> NOT array_contains(map_keys({_map(b)}), e_.key))"
    inside = f"nullif(substr({b}, 2, length({b}) - 2), '')"
    merged = f"concat_ws(',', nullif({_members_text(kept)}, ''), {inside})"

    def bare(text: str) -> str:
        body = f"substr({text}, 2, length({text}) - 2)"
        return f"nullif(CASE WHEN left({text}, 1) = '[' THEN {body} ELSE {text} END, '')"

    return (
        f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN NULL"
        f" WHEN left({a}, 1) = '{{' AND left({b}, 1) = '{{'"
        f" THEN to_json(try_parse_json(concat('{{', {merged}, '}}')))"
        f" ELSE concat('[', concat_ws(',', {bare(a)}, {bare(b)}), ']') END"
    )


def write_joined(texts: tuple[str, ...], args: Args, type_: SqlType) -> str:
    pair = f"named_struct('a', {texts[0]}, 'b', {texts[1]})"
    return f"transform(array({pair}), s_ -> {_joined('s_.a', 's_.b')})[0]"


_NO_CONTAINER = Failure("left({0}, 1) NOT IN ('{{', '[')", "'cannot delete from scalar'")
_NO_ARRAY = Failure("left({0}, 1) = '{{'", "'cannot delete from object using integer index'")
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
    "jsonb @>": (Overload("jsonb jsonb", BOOLEAN, _write_contains),),
    "jsonb -": (
        Overload("jsonb text", JSONB, _write_without, (_NO_CONTAINER,)),
        Overload("jsonb integer", JSONB, _write_without_at, (_NO_ARRAY, _NO_CONTAINER)),
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
    "jsonb_build_array": (
        Overload("each ...", JSONB, _write_built_array),
        Overload("", JSONB, "'[]'"),
    ),
    "jsonb_build_object": (
        Overload("each ...", JSONB, _write_built_object),
        Overload("", JSONB, "'{{}}'"),
    ),
}
