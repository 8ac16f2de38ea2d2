"""Which overload a call means, with the casts that PostgreSQL would add."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from tidemark.compute.arrays import array_text
from tidemark.compute.casts import cast, castable, common_type
from tidemark.compute.expr import Call, Expr, Lit
from tidemark.compute.functions.angles import ANGLES
from tidemark.compute.functions.array import ARRAYS
from tidemark.compute.functions.doubles import DOUBLES
from tidemark.compute.functions.formats import FORMATS
from tidemark.compute.functions.json import JSON
from tidemark.compute.functions.logic import LOGIC
from tidemark.compute.functions.numbers import NUMBERS
from tidemark.compute.functions.overload import Args, Overload, Table
from tidemark.compute.functions.patterns import PATTERNS
from tidemark.compute.functions.text import TEXTS
from tidemark.compute.functions.time import TIMES
from tidemark.compute.intervals import kept
from tidemark.compute.literals import UNKNOWN, elements_of
from tidemark.compute.moments import extracted, interval_arithmetic, interval_seconds
from tidemark.errors import SqlError, Unsupported
from tidemark.types import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    INTERVAL,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    array_of,
    numeric,
    type_named,
)

FUNCTIONS: Table = {}
for _table in (LOGIC, NUMBERS, ANGLES, DOUBLES, TEXTS, PATTERNS, TIMES, FORMATS, ARRAYS, JSON):
    FUNCTIONS |= _table

ALIASES = {
    "!=": "<>",
    "mod": "%",
    "pow": "power",
    "^": "power",
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
    "log10": "log",
}
"""Other names of functions in the table."""

OPERATORS = frozenset("+ - * / % ^ = <> < <= > >= || like ilike & | # << >> ~ ~* -> ->> ?".split())


_BY_THEMSELVES = ("||", "like", "ilike", "~", "~*", "->", "->>", "?", "<<", ">>")
"""Operators beside which a quoted literal does not take the other side's type."""


def call_by_name(name: str, args: Args, beside: Iterable[str] = ()) -> Expr:
    """A call that somebody has written; what has no plain name is not for users.

    `beside` are names of functions that are not called like this, as aggregates are.
    """
    if not name.isidentifier():
        raise unknown(name, _signature(f'"{name}"', args))
    try:
        return call(name, args)
    except Unsupported as error:
        if error.sqlstate != "42883":
            raise
        raise unknown(name, _signature(name, args), beside) from None


def unknown(name: str, signature: str, beside: Iterable[str] = ()) -> Unsupported:
    known = sorted(key for key in [*FUNCTIONS, *ALIASES] if key.isidentifier())
    if close := get_close_matches(name, [*known, *beside], n=3, cutoff=0.75):
        hint = f"did you mean {' or '.join(close)}?"
    else:
        hint = f"it is none of the functions that Tidemark maintains: {', '.join(known)}"
    return Unsupported(f"function {signature} does not exist", hint=hint, sqlstate="42883")


def call(fn: str, args: Args) -> Expr:
    """`fn` applied to `args`, with the casts that PostgreSQL would add.

    Raises 42883 if there is no such function for these types, 42804 if arguments that must have
    one type have several.
    """
    if fn in ("+", "-", "*", "/", "negate"):
        made = interval_arithmetic(fn, args, call)
        if made is not None:
            return made
    if fn not in _OF_MONTHS:
        args = tuple(kept(arg) if arg.type == INTERVAL else arg for arg in args)
    match fn:
        case "case":
            return _case(args)
        case "array":
            return _array(args)
        case "nullif" if len(args) == 2:
            first, second = _pair(args)
            return _case((call("=", (first, second)), Lit(None, first.type), first))
        case "date_part" if len(args) == 2:
            return cast(call("extract", args), DOUBLE)
        case "extract" if len(args) == 2 and args[1].type == INTERVAL:
            return extracted(*args, call)
        case "||":
            args = _concatenated(args)
        case "concat" | "concat_ws":
            args = tuple(_printed(arg) for arg in args)
        case "jsonb_build_object":
            args = _members(args)
        case "#>" | "#>>" if len(args) == 2:
            return _at_path(fn, *args)
        case "jsonb_extract_path" | "jsonb_extract_path_text" if len(args) > 1:
            op = "#>>" if fn.endswith("text") else "#>"
            return _at_path(op, cast(args[0], JSONB), _array(args[1:]))
        case "?|" | "?&" if len(args) == 2:
            return _has_keys(fn, *args)
        case "-" if len(args) == 2 and args[0].type == JSONB:
            return call("jsonb -", args)
        case "div" if len(args) == 2:
            whole = call("-", (args[0], call("%", args)))
            return call("trunc", (call("/", (_exactly(whole), args[1])),))
        case "num_nulls" | "num_nonnulls" if args:
            return _null_count(fn, args)
        case "format" if args:
            return _formatted(args)
        case "substring" if len(args) == 2 and args[1].type in (TEXT, UNKNOWN):
            return call("substring by pattern", args)
        case "timezone" if len(args) == 2:
            return at_time_zone(args[1], args[0])
        case "@>" | "<@" | "&&" if len(args) == 2:
            return _containment(fn, args)
        case "coalesce" | "greatest" | "least" | "in" | "and" | "or":
            _check_together(fn, args)
    if fn in OPERATORS and fn not in _BY_THEMSELVES and len(args) == 2:
        args = _pair(args)
    if fn in _ORDERED and any(arg.type == JSONB or arg.type.element for arg in args):
        what = "jsonb" if any(arg.type == JSONB for arg in args) else "arrays"
        raise Unsupported(
            f"{fn} of {what} is not supported", hint="compare parts of it, or its text"
        )
    if fn in _COMPARED and any(arg.type == INTERVAL for arg in args):
        if any(arg.type not in (INTERVAL, UNKNOWN) for arg in args):
            raise _no_such_function(fn, args)
        return call(fn, tuple(interval_seconds(arg, call) for arg in args))
    name = ALIASES.get(fn, fn)
    if name not in FUNCTIONS:
        raise unknown(fn, _signature(fn, args))
    found = min(
        (
            (cost, index)
            for index, o in enumerate(FUNCTIONS[name])
            if (cost := _cost(o, args)) is not None
        ),
        default=None,
    )
    if found is None:
        raise _no_such_function(fn, args)
    overload = FUNCTIONS[name][found[1]]
    if overload.refused:
        raise Unsupported(
            f"function {_signature(fn, args)} is not supported", hint=overload.refused
        )
    coerced = _coerced(overload, args)
    result = overload.result if isinstance(overload.result, SqlType) else overload.result(coerced)
    if overload.operands is not None:
        coerced = tuple(
            cast(arg, type_) for arg, type_ in zip(coerced, overload.operands(coerced), strict=True)
        )
    if callable(overload.spark):
        # What a writer refuses (a pattern that is no constant) is refused when planned.
        overload.spark(tuple("" for _ in coerced), coerced, result)
    return Call(name, coerced, result)


def overload_of(expr: Call) -> Overload:
    """The overload that a call (whose arguments already have their types) uses."""
    costs = [
        (cost, index)
        for index, overload in enumerate(FUNCTIONS.get(expr.fn, ()))
        if (cost := _cost(overload, expr.args)) is not None
    ]
    if not costs:
        raise _no_such_function(expr.fn, expr.args)
    return FUNCTIONS[expr.fn][min(costs)[1]]


def _array(args: Args) -> Expr:
    """ARRAY[...]; of literals it is one."""
    if not args:
        raise SqlError(
            "cannot determine type of empty array",
            hint="write its type, e.g. '{}'::integer[]",
            sqlstate="42P18",
        )
    type_ = _check_together("array", args)
    cells = tuple(cast(arg, type_, context="implicit") for arg in args)
    if all(isinstance(cell, Lit) for cell in cells):
        texts = [cell.value for cell in cells if isinstance(cell, Lit)]
        return Lit(array_text(texts), array_of(type_))
    return Call("array", cells, array_of(type_))


def _case(args: Args) -> Expr:
    """`case(cond1, value1, ..., otherwise)`; the values meet in one type."""
    conditions, values = args[0:-1:2], (*args[1:-1:2], args[-1])
    for condition in conditions:
        if condition.type not in (BOOLEAN, UNKNOWN):
            raise SqlError(
                f"argument of CASE/WHEN must be type boolean, not type {condition.type}",
                sqlstate="42804",
            )
    type_ = _check_together("case", (values[-1], *values[:-1]))
    parts: list[Expr] = []
    for condition, value in zip(conditions, values, strict=False):
        parts += [cast(condition, BOOLEAN), cast(value, type_, context="implicit")]
    return Call("case", (*parts, cast(values[-1], type_, context="implicit")), type_)


def _check_together(fn: str, args: Args) -> SqlType:
    """The common type of arguments that must share one."""
    if fn in ("and", "or"):
        for arg in args:
            if arg.type not in (BOOLEAN, UNKNOWN):
                raise SqlError(
                    f"argument of {fn.upper()} must be type boolean, not type {arg.type}",
                    sqlstate="42804",
                )
        return BOOLEAN
    type_ = common_type(arg.type for arg in args)
    if type_ is None and fn == "in":
        other = next(a for a in args[1:] if common_type((args[0].type, a.type)) is None)
        raise _no_such_function("=", (args[0], other))
    if type_ is None:
        names = list(dict.fromkeys(arg.type.name for arg in args if arg.type != UNKNOWN))
        raise SqlError(
            f"{fn.upper()} types {names[0]} and {names[1]} cannot be matched", sqlstate="42804"
        )
    return type_


def _pair(args: Args) -> Args:
    """A quoted literal beside a typed operand takes that operand's type."""
    left, right = args
    if left.type == UNKNOWN and right.type != UNKNOWN:
        return _beside(left, right), right
    if right.type == UNKNOWN and left.type != UNKNOWN:
        return left, _beside(right, left)
    return args


def _beside(literal: Expr, other: Expr) -> Expr:
    # numeric(10,2) = '1.005' compares with 1.005: the type, not the precision, is taken over.
    return cast(literal, NUMERIC if other.type.name == "numeric" else other.type)


def _concatenated(args: Args) -> Args:
    """`text || anything` prints the other side; two values that are not text have no `||`."""
    array = next((arg.type for arg in args if arg.type.element is not None), None)
    if array is not None:
        return tuple(cast(arg, array) if arg.type == UNKNOWN else arg for arg in args)
    if any(arg.type == JSONB for arg in args):
        return tuple(cast(arg, JSONB) if arg.type == UNKNOWN else arg for arg in args)
    if len(args) == 2 and any(arg.type in (TEXT, UNKNOWN) for arg in args):
        return tuple(cast(arg, TEXT) for arg in args)
    return args


def _printed(arg: Expr) -> Expr:
    """As PostgreSQL prints it: other than the cast to text, a boolean is t or f."""
    if arg.type == BOOLEAN:
        return call(
            "case", (arg, Lit("t", TEXT), call("not", (arg,)), Lit("f", TEXT), Lit(None, TEXT))
        )
    return cast(arg, TEXT)


def _members(args: Args) -> Args:
    if len(args) % 2:
        raise SqlError("argument list must have even number of elements", sqlstate="22023")
    if any(isinstance(key, Lit) and key.value is None for key in args[::2]):
        raise SqlError("key must not be null", sqlstate="22004")
    return tuple(_printed(arg) if at % 2 == 0 else arg for at, arg in enumerate(args))


def _at_path(fn: str, json: Expr, path: Expr) -> Expr:
    """A step for each element; one that is a number may be a key or an index."""
    path = cast(path, array_of(TEXT))
    if not isinstance(path, Lit) or path.value is None:
        raise Unsupported(f"{fn} with a path that is not a constant is not supported")
    steps = elements_of(path)
    if fn == "#>>" and not steps:  # The whole, whose text is that of the one element of an array.
        json, steps = call("jsonb_build_array", (json,)), (Lit("0", TEXT),)
    at = json
    for n, step in enumerate(steps):
        op = "->>" if fn == "#>>" and n == len(steps) - 1 else "->"
        by_key = call(op, (at, step))
        number = step.value is not None and step.value.isdecimal()
        by_index = (call(op, (at, cast(Lit(step.value, UNKNOWN), INTEGER))),) if number else ()
        at = call("coalesce", (by_key, *by_index)) if number else by_key
    return at


def _has_keys(fn: str, json: Expr, keys: Expr) -> Expr:
    """`?|` and `?&` of constant keys: `?` of each."""
    keys = cast(keys, array_of(TEXT))
    if not isinstance(keys, Lit) or keys.value is None:
        raise Unsupported(f"{fn} with keys that are not constants is not supported")
    has = tuple(call("?", (json, key)) for key in elements_of(keys) if key.value is not None)
    return call("or" if fn == "?|" else "and", has) if has else Lit("false", BOOLEAN)


def _exactly(expr: Expr) -> Expr:
    return expr if expr.type.name == "numeric" else cast(expr, _as_numeric(expr.type))


def _null_count(fn: str, args: Args) -> Expr:
    test = "is null" if fn == "num_nulls" else "is not null"
    one, zero = Lit("1", INTEGER), Lit("0", INTEGER)
    total: Expr = zero
    for arg in args:
        total = call("+", (total, call("case", (call(test, (arg,)), one, zero))))
    return total


_DIRECTIVE = re.compile(r"%(?:(\d+)\$)?(.?)", re.DOTALL)


def _formatted(args: Args) -> Expr:
    """format('%s and %L', ...): a constant format, as the concatenation of its parts."""
    pattern = args[0]
    if not isinstance(pattern, Lit) or pattern.value is None:
        raise Unsupported("format with a format that is not a constant is not supported")
    parts: list[Expr] = [Lit("", TEXT)]
    at = used = 0
    for found in _DIRECTIVE.finditer(pattern.value):
        parts.append(Lit(pattern.value[at : found.start()], TEXT))
        at = found.end()
        number, letter = found.groups()
        if letter == "%":
            parts.append(Lit("%", TEXT))
            continue
        used = int(number) if number else used + 1
        if letter not in ("s", "L"):
            raise Unsupported(f'format with "%{letter}" is not supported', hint="use %s or %L")
        if used >= len(args):
            raise SqlError("too few arguments for format()", sqlstate="22023")
        text = _printed(args[used])
        parts.append(text if letter == "s" else call("quote_nullable", (text,)))
    parts.append(Lit(pattern.value[at:], TEXT))
    return call("concat", tuple(parts))


def at_time_zone(moment: Expr, zone: Expr) -> Expr:
    """`moment AT TIME ZONE zone`: what clocks there show, or the moment when they show it."""
    if isinstance(zone, Lit) and (zone.value or "").upper() in ("UTC", "GMT", "Z"):
        if moment.type == TIMESTAMPTZ:
            return cast(moment, TIMESTAMP)
        if moment.type == TIMESTAMP:
            return cast(moment, TIMESTAMPTZ)
        return cast(cast(moment, TIMESTAMPTZ), TIMESTAMP)
    if moment.type == TIMESTAMP:
        return call("time of local", (moment, zone))
    return call("local time", (cast(moment, TIMESTAMPTZ), zone))


_COMPARED = ("=", "<>", "!=", "<", "<=", ">", ">=", "is distinct from", "is not distinct from")


def _containment(fn: str, args: Args) -> Expr:
    if any(arg.type == JSONB for arg in args) and fn != "&&":
        return call("jsonb @>", args[::-1] if fn == "<@" else args)
    if not any(arg.type.element is not None for arg in args):
        raise Unsupported(
            f"{args[0].type} {fn} {args[1].type} is not supported",
            hint="compare parts of it, e.g. (j ->> 'a') = 'x'",
        )
    return call("array &&" if fn == "&&" else "array @>", args[::-1] if fn == "<@" else args)


_OF_MONTHS = (*_COMPARED, "extract", "date_part")
"""What an interval of months can be asked, which is no value."""

_ORDERED = ("<", "<=", ">", ">=", "greatest", "least")
_SHORT = {"double": "double precision", "timestamptz": "timestamp with time zone"}


def _patterns(overload: Overload, count: int) -> list[str] | None:
    patterns = overload.args.split()
    if patterns and patterns[-1] == "...":
        fixed = patterns[:-1]
        if count < len(fixed):
            return None
        return fixed + [fixed[-1]] * (count - len(fixed))
    return patterns if len(patterns) == count else None


def _cost(overload: Overload, args: Args) -> int | None:
    """How many arguments must be converted implicitly; None if the overload does not fit."""
    patterns = _patterns(overload, len(args))
    if patterns is None:
        return None
    cost = 0
    for pattern, arg in zip(patterns, args, strict=True):
        type_ = arg.type
        match pattern:
            case "any" | "each":
                continue
            case "int":
                exact, possible = type_.is_integer, type_ == UNKNOWN
            case "exact":
                exact, possible = type_.name == "numeric", type_.is_exact or type_ == UNKNOWN
            case "array":
                exact, possible = type_.element is not None, type_ == UNKNOWN
            case "element":
                exact, possible = type_.element is None, False
            case _:
                target = type_named(_SHORT.get(pattern, pattern))
                exact = type_ == target or (type_ == UNKNOWN and target == TEXT)
                possible = castable(type_, target, "implicit")
        if not exact:
            if not possible:
                return None
            cost += 1
    together = [arg.type for pattern, arg in zip(patterns, args, strict=True) if pattern == "any"]
    if together and common_type(together) is None:
        return None
    if "array" in patterns and _element_type(patterns, args) is None:
        return None
    return cost


def _element_type(patterns: list[str], args: Args) -> SqlType | None:
    """The type in which the elements of all arrays, and those beside them, meet."""
    types: list[SqlType] = []
    for pattern, arg in zip(patterns, args, strict=True):
        if pattern == "array" and arg.type.element is not None:
            types.append(arg.type.element)
        elif pattern == "element":
            types.append(arg.type)
    return common_type(types)


def _coerced(overload: Overload, args: Args) -> Args:
    patterns = _patterns(overload, len(args))
    assert patterns is not None
    shared = {
        kind: common_type(arg.type for p, arg in zip(patterns, args, strict=True) if p == kind)
        for kind in ("any", "int")
    }
    coerced: list[Expr] = []
    for pattern, arg in zip(patterns, args, strict=True):
        match pattern:
            case "any" | "int":
                type_ = shared[pattern]
                assert type_ is not None
                # int only meets text when every argument is a quoted literal.
                target = INTEGER if pattern == "int" and type_ == TEXT else type_
            case "each":
                target = TEXT if arg.type == UNKNOWN else arg.type
            case "array" | "element":
                element = _element_type(patterns, args)
                assert element is not None
                target = array_of(element) if pattern == "array" else element
            case "exact":
                target = arg.type if arg.type.name == "numeric" else _as_numeric(arg.type)
            case _:
                target = type_named(_SHORT.get(pattern, pattern))
        coerced.append(cast(arg, target))
    return tuple(coerced)


def _as_numeric(type_: SqlType) -> SqlType:
    return numeric(type_.decimal[0], 0) if type_.is_integer else NUMERIC


def _signature(fn: str, args: Args) -> str:
    return f"{fn}({', '.join(arg.type.name for arg in args)})"


def _no_such_function(fn: str, args: Args) -> SqlError:
    if fn == "negate":
        what = f"operator does not exist: - {args[0].type.name}"
    elif fn in OPERATORS and len(args) == 2:
        symbol = {"like": "~~", "ilike": "~~*"}.get(fn, fn)
        what = f"operator does not exist: {args[0].type.name} {symbol} {args[1].type.name}"
    else:
        what = f"function {_signature(fn, args)} does not exist"
    return SqlError(
        what,
        hint="no function or operator takes these types; an explicit cast may help",
        sqlstate="42883",
    )
