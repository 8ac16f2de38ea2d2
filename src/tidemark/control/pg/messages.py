"""What DuckDB says of a query that fails, as PostgreSQL says it.

What no pattern is for is said in DuckDB's words, up to where they become advice about DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import duckdb

from tidemark.errors import Cancelled, SqlError, TidemarkError, TooLarge

MEMORY = "256MB"

_TYPES = {
    "INT16": "smallint",
    "INT32": "integer",
    "INT64": "bigint",
    "INTEGER_LITERAL": "integer",
    "STRING_LITERAL": "unknown",
    "VARCHAR": "text",
    "UINTEGER": "oid",
    "DOUBLE": "double precision",
    "BOOL": "boolean",
}


def _type(name: str) -> str:
    return _TYPES.get(name) or ("numeric" if name.startswith("DECIMAL") else name.lower())


def _types(names: str) -> str:
    return ", ".join(_type(name) for name in re.split(r", (?![0-9])", names) if name)


_Message = str | Callable[..., str]
_MESSAGES: tuple[tuple[str, _Message, str], ...] = (
    (r'SqlError: relation "(.+?)" does not exist', 'relation "{}" does not exist', "42P01"),
    (r'SqlError: (\w+) "(.+?)" does not exist', '{} "{}" does not exist', "42704"),
    (r"SqlError: (unrecognized privilege type.*?)( \(|$)", "{}", "22023"),
    (r'Referenced column "(.+?)" not found', 'column "{}" does not exist', "42703"),
    (r'"(.+?)" does not have a column named "(.+?)"', "column {}.{} does not exist", "42703"),
    (r'Referenced table "(.+?)" not found', 'missing FROM-clause entry for table "{}"', "42P01"),
    (r"Function with name (\S+) does not exist", "function {} does not exist", "42883"),
    (
        r"No function matches the given name and argument types '(\S+?)\((.*)\)'",
        lambda name, types: f"function {name}({_types(types)}) does not exist",
        "42883",
    ),
    (
        r'Could not choose a best candidate function for the function call "(\W+)\((.*), (.*)\)"',
        lambda name, a, b: f"operator is not unique: {_type(a)} {name} {_type(b)}",
        "42725",
    ),
    (
        r'Could not choose a best candidate function for the function call "(\S+?)\((.*)\)"',
        lambda name, types: f"function {name}({_types(types)}) is not unique",
        "42725",
    ),
    (r"Type with name (\S+) does not exist", 'type "{}" does not exist', "42704"),
    (r"column (\S+) must appear in the GROUP BY", "column {} must appear in the GROUP BY", "42803"),
    (r"Division by zero", "division by zero", "22012"),
    (r"Overflow in \w+ of (\w+)", lambda type_: f"{_type(type_)} out of range", "22003"),
    (
        r"out of range for the destination type (\w+)",
        lambda type_: f"{_type(type_)} out of range",
        "22003",
    ),
    (
        r"Could not convert string '(.*)' to (\w+)",
        lambda text, type_: f'invalid input syntax for type {_type(type_)}: "{text}"',
        "22P02",
    ),
    (
        r'invalid (date|timestamp) field format: "(.*?)"',
        'invalid input syntax for type {}: "{}"',
        "22007",
    ),
    (
        r'(date|timestamp) field value out of range: "(.*?)"',
        'date/time field value out of range: "{1}"',
        "22008",
    ),
    (
        r"More than one row returned by a subquery",
        "more than one row returned by a subquery used as an expression",
        "21000",
    ),
    (r"LIMIT/OFFSET cannot be negative", "LIMIT and OFFSET must not be negative", "2201W"),
    (r"(syntax error at or near .*)", "{}", "42601"),
)
"""What DuckDB says, how PostgreSQL says it, and under which SQLSTATE."""

_SQLSTATES = (
    (duckdb.ConversionException, "22P02"),
    (duckdb.OutOfRangeException, "22003"),
    (duckdb.InvalidInputException, "22023"),
    (duckdb.ParserException, "42601"),
    (duckdb.BinderException, "42804"),
)

_ADVICE = re.compile(r"[.!;,]?\s+(?:Use |You |In order to |Try |Please |SET |Did you ).*")


def explained_error(error: duckdb.Error) -> TidemarkError:
    if isinstance(error, duckdb.InterruptException):
        return Cancelled("canceling statement due to user request")
    if isinstance(error, duckdb.OutOfMemoryException):
        return TooLarge(f"a query of the catalog took more than {MEMORY}", hint="ask for less")
    first = str(error).splitlines()[0]
    for pattern, message, state in _MESSAGES:
        if found := re.search(pattern, first):
            said = message.format if isinstance(message, str) else message
            return SqlError(said(*found.groups()), sqlstate=state)
    state = next((code for type_, code in _SQLSTATES if isinstance(error, type_)), "0A000")
    said = _ADVICE.sub("", first.partition("Error: ")[2] or first)
    return SqlError(
        f"this query of the catalog cannot be answered: {said}",
        hint="system relations take simple queries; SELECT what is needed of them",
        sqlstate=state,
    )
