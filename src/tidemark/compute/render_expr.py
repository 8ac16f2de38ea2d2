"""Expressions as Spark SQL: one text for the value, one for the error.

    value(a / b)   try_cast((a div nullif(b, 0)) AS INT)
    error(a / b)   CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN
                     CASE WHEN b = 0 THEN 'division by zero' ... END END

`value` never raises. `error` is a nullable string: the message on rows where PostgreSQL would
have raised, NULL on the others; it is None (no text at all) for an expression that cannot fail.
**Where the error is not NULL the value means nothing**: look at the error first.

Only what would be evaluated can fail: CASE fails in the branch taken, coalesce up to the first
value that is not null, `false AND error` is false and `true OR error` is true. A strict function
of a NULL is NULL, whatever the other arguments are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.compute.arrays import loaded, read_array, stored, stored_text
from tidemark.compute.casts import OUT_OF_RANGE, OVERFLOW, PATTERNS, Failure, rule_for
from tidemark.compute.expr import Call, Cast, Col, Expr, Lit
from tidemark.compute.functions import overload_of
from tidemark.compute.functions.numbers import INFINITE
from tidemark.compute.literals import INTEGER_BITS, quoted, spark_literal
from tidemark.errors import InvalidUsage
from tidemark.types import SqlType

Column = Callable[[int], str]

MANY = 8
"""Doubles in a sum of sums."""


def value(expr: Expr, column: Column) -> str:
    """`expr` as Spark SQL over columns named by `column(index)`; never raises.

    An array comes as it is kept in a column, see `arrays.py`.
    """
    if isinstance(expr, Col):
        return column(expr.index)
    if isinstance(expr, Lit) and expr.type.element is not None:
        # As a text at once: an inline table takes no lambda.
        if expr.value is None:
            return f"CAST(NULL AS {expr.type.spark})"
        return quoted(stored_text(read_array(expr.value), expr.type))
    return stored(_value(expr, column), expr.type)


def _value(expr: Expr, column: Column) -> str:
    """The value within an expression, where an array is one of Spark's."""
    match expr:
        case Col(index=index, type=type_):
            return loaded(column(index), type_)
        case Lit():
            return spark_literal(expr)
        case Cast(arg=arg, type=type_):
            rule = rule_for(arg.type, type_)
            if rule is None or rule.refused:
                raise InvalidUsage(f"there is no cast from {arg.type} to {type_}")
            return _filled(rule.spark, (_value(arg, column),), type_)
        case Call(fn="case", args=args):
            return _case([_value(arg, column) for arg in args])
        case Call(args=args, type=type_):
            texts = tuple(_value(arg, column) for arg in args)
            spark = overload_of(expr).spark
            if callable(spark):
                return spark(texts, args, type_)
            if len(args) == 1 and expr.fn in ("greatest", "least"):
                return texts[0]
            return _filled(spark, texts, type_)


def error(expr: Expr, column: Column) -> str | None:
    """The error message of `expr` per row as Spark SQL, or None if it cannot fail."""
    return _first(_errors(expr, column))


def _errors(expr: Expr, column: Column) -> list[str]:
    """Messages, of which the first that is not null counts. A list as long as it can be: Spark's
    parser needs time and memory for what is nested that no query is worth."""
    match expr:
        case Col() | Lit():
            return []
        case Call(fn="case", args=args):
            return _some(_case_error(args, column))
        case Call(fn="coalesce", args=args):
            return _some(_coalesce_error(args, column))
        case Call(fn="and", args=args):
            return _some(_logic_error(args, column, decisive="NOT {0}"))
        case Call(fn="or", args=args):
            return _some(_logic_error(args, column, decisive="{0}"))
    args, fails = _failures(expr)
    return _call_errors(expr, args, fails, column)


def _failures(expr: Expr) -> tuple[tuple[Expr, ...], tuple[Failure, ...]]:
    """Arguments, and how a function or a cast of them can fail."""
    match expr:
        case Call(args=args):
            return args, overload_of(expr).fails
        case Cast(arg=arg, type=type_):
            rule = rule_for(arg.type, type_)
            return (arg,), rule.fails if rule else ()
    return (), ()


def call_error(
    expr: Expr, args: tuple[Expr, ...], fails: tuple[Failure, ...], column: Column
) -> str | None:
    """The error of an argument, or else that of the call itself."""
    return _first(_call_errors(expr, args, fails, column))


def _call_errors(
    expr: Expr, args: Sequence[Expr], fails: tuple[Failure, ...], column: Column
) -> list[str]:
    own: str | None = None
    if message := _overflow(expr):
        args = _operands(expr, lambda arg: _overflow(arg) in ("", message))
    elif _is_infinite(expr) and len(many := _operands(expr, _is_infinite)) > MANY:
        args, own = many, _infinite(expr, many, column)
    own = own or _own_error(expr, args, fails, column)
    return [each for arg in args for each in _errors(arg, column)] + _some(own)


def _operands(expr: Expr, is_inner: Callable[[Expr], bool]) -> list[Expr]:
    """What a sum of sums is computed from: of `a + b + c` a, b and c. Nothing within has to be looked
    at by itself, as the whole tells whether something there has overflowed."""
    found: list[Expr] = []
    for arg in _failures(expr)[0]:
        found.extend(_operands(arg, is_inner) if is_inner(arg) else (arg,))
    return found


def _overflow(expr: Expr) -> str | None:
    """The message of a number that is null where it overflows, empty if it cannot; else None."""
    if not (_is_arithmetic(expr) or isinstance(expr, Cast)) or not expr.type.is_number:
        return None
    _, fails = _failures(expr)
    if not fails:
        return ""
    if fails not in ((OUT_OF_RANGE,), (OVERFLOW,)):
        return None
    return fails[0].message.replace("{type}", expr.type.name)


def _is_arithmetic(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn in ("+", "-", "*")


def _is_infinite(expr: Expr) -> bool:
    return _is_arithmetic(expr) and _failures(expr)[1] == (INFINITE,)


def _infinite(expr: Expr, operands: list[Expr], column: Column) -> str:
    """Of doubles all that is known is that they were finite and the whole is not. One that was not
    hides what overflows beside it, which is why few are looked at one by one."""
    finite = [f"abs({_value(each, column)}) < double('Infinity')" for each in operands]
    when = f"abs({_value(expr, column)}) >= double('Infinity') AND {' AND '.join(finite)}"
    return f"CASE WHEN {when} THEN {INFINITE.message} END"


def _own_error(
    expr: Expr, args: Sequence[Expr], fails: tuple[Failure, ...], column: Column
) -> str | None:
    """When the function itself fails, its arguments being fine and not null."""
    possible = [failure for failure in fails if not _ruled_out(failure, args)]
    if not possible:
        return None
    texts = tuple(_value(arg, column) for arg in args)
    own = _value(expr, column) if any("{v}" in failure.when for failure in possible) else ""
    branches = " ".join(
        f"WHEN {_filled(failure.when, texts, expr.type, own)}"
        f" THEN {_filled(failure.message, texts, expr.type, own)}"
        for failure in possible
    )
    present = [
        f"{text} IS NOT NULL"
        for text, arg in zip(texts, args, strict=True)
        if not (isinstance(arg, Lit) and arg.value is not None)
    ]
    case = f"CASE {branches} END"
    return f"CASE WHEN {' AND '.join(present)} THEN {case} END" if present else case


def _ruled_out(failure: Failure, args: Sequence[Expr]) -> bool:
    """True for a failure that a constant argument excludes: `x / 2`, `name LIKE 'a%'`."""
    at = 2 if failure.when == "{2} = 0" else 1
    decides = args[at] if len(args) > at else None
    if not isinstance(decides, Lit) or decides.value is None:
        return False
    text = decides.value
    if failure.when in ("{1} = 0", "{2} = 0"):
        return any(digit in "123456789" for digit in text.lower().partition("e")[0])
    return "LIKE pattern" in failure.message and not text.endswith("\\")


def _case_error(args: tuple[Expr, ...], column: Column) -> str | None:
    errors = [error(arg, column) for arg in args]
    if not any(errors):
        return None
    branches: list[str] = []
    for at in range(0, len(args) - 1, 2):
        if errors[at] is not None:
            branches.append(f"WHEN {errors[at]} IS NOT NULL THEN {errors[at]}")
        branches.append(f"WHEN {_value(args[at], column)} THEN {errors[at + 1] or 'NULL'}")
    return f"CASE {' '.join(branches)} ELSE {errors[-1] or 'NULL'} END"


def _coalesce_error(args: tuple[Expr, ...], column: Column) -> str | None:
    found: str | None = None
    for arg in reversed(args):
        mine = error(arg, column)
        if found is not None:
            found = f"CASE WHEN {_value(arg, column)} IS NULL THEN {found} END"
        found = _first([mine, found])
    return found


def _logic_error(args: tuple[Expr, ...], column: Column, *, decisive: str) -> str | None:
    """An argument that decides the result silences the errors of all others."""
    errors = [error(arg, column) for arg in args]
    if not any(errors):
        return None
    deciders: list[str] = []
    for arg, mine in zip(args, errors, strict=True):
        decides = decisive.format(_value(arg, column))
        deciders.append(decides if mine is None else f"({mine} IS NULL AND {decides})")
    return f"CASE WHEN {' OR '.join(deciders)} THEN NULL ELSE {_first(errors)} END"


def _first(errors: Sequence[str | None]) -> str | None:
    some = [text for text in errors if text is not None]
    if len(some) < 2:
        return some[0] if some else None
    return f"coalesce({', '.join(some)})"


def _some(error: str | None) -> list[str]:
    return [] if error is None else [error]


def _case(texts: list[str]) -> str:
    branches = " ".join(
        f"WHEN {texts[at]} THEN {texts[at + 1]}" for at in range(0, len(texts) - 1, 2)
    )
    return f"CASE {branches} ELSE {texts[-1]} END"


def _filled(template: str, texts: tuple[str, ...], type_: SqlType, own: str = "") -> str:
    return template.format(
        *texts,
        v=own,
        T=type_.spark_value,
        type=type_.name,
        min=_least(type_),
        all=", ".join(texts),
        rest=", ".join(texts[1:]),
        ands=" AND ".join(texts),
        ors=" OR ".join(texts),
        **PATTERNS,
    )


def _least(type_: SqlType) -> str:
    bits = INTEGER_BITS.get(type_.name)
    return f"CAST('{-(1 << (bits - 1))}' AS {type_.spark})" if bits else ""
