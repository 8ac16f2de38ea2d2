"""Values of SQL types as the canonical text of their jsonb, in Spark SQL: see `jsonb.py`.

1.50 (numeric)              1.5
it's (text)                 "it's"
2024-05-01 10:00+00         "2024-05-01T10:00:00+00:00"
{1,NULL} (integer[])        [1,null]
"""

from __future__ import annotations

from tidemark.compute.intervals import SPARK_TEXT
from tidemark.errors import Unsupported
from tidemark.types import SqlType

_SEPARATOR = '\\\\G((?:[^",:]++|"(?:[^"\\\\\\\\]++|\\\\\\\\.)*+")*+[,:])'


def spaced(text: str) -> str:
    """A canonical text with a space behind each `,` and `:` that is not in a string."""
    return f"regexp_replace({text}, '{_SEPARATOR}', '\\u00241 ')"


def variant_text(name: str) -> str:
    """A variant as `->>` gives it: a string without its quotes, null as NULL, else its text."""
    return (
        f"CASE WHEN is_variant_null({name}) THEN NULL"
        f" WHEN schema_of_variant({name}) = 'STRING' THEN CAST({name} AS STRING)"
        f" ELSE {spaced(f'to_json({name})')} END"
    )


def json_text(text: str, type_: SqlType) -> str:
    """The jsonb of the Spark expression `text`; SQL's NULL stays NULL."""
    if type_.element is not None:
        element = f"coalesce({json_text('x', type_.element)}, 'null')"
        return f"concat('[', array_join(transform({text}, x -> {element}), ','), ']')"
    match type_.name:
        case "jsonb":
            return text
        case "boolean" | "smallint" | "integer" | "bigint":
            return f"CAST({text} AS STRING)"
        case "numeric":
            plain = f"CAST({text} AS STRING)"
            return plain if type_.decimal[1] == 0 else f"rtrim('.', rtrim('0', {plain}))"
        case "double precision":
            return (
                f"CASE WHEN isnan({text}) OR abs({text}) = double('Infinity')"
                f" THEN concat('\"', CAST({text} AS STRING), '\"')"
                f" ELSE to_json(try_parse_json(CAST({text} AS STRING))) END"
            )
        case "text":
            return f"to_json(CAST({text} AS VARIANT))"
        case "date":
            return f"concat('\"', CAST({text} AS STRING), '\"')"
        case "timestamp":
            return f"concat('\"', replace(CAST({text} AS STRING), ' ', 'T'), '\"')"
        case "timestamp with time zone":
            return f"concat('\"', replace(CAST({text} AS STRING), ' ', 'T'), '+00:00\"')"
        case "interval":
            return f"concat('\"', {SPARK_TEXT.format(text)}, '\"')"
        case "bytea":
            return f"concat('\"\\\\\\\\x', lower(hex({text})), '\"')"
    raise Unsupported(f"{type_} as jsonb is not supported")
