"""What the readers of all formats are made of.

A value that several others are made of is bound by `let`, because Spark would compute an
expression again wherever it is mentioned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.types import JSONB, SqlType

ERROR = "_error"
THERE = "_there"

Read = Callable[[Column], Column]
"""From bytes to a struct of `_error` (only the reason), `_there` and columns; of null, whatever."""


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of `value`, which is computed once."""
    return F.transform(F.array(value), body).getItem(0)


def result(reason: Column, columns: Mapping[str, Column], there: Column | None = None) -> Column:
    """What a Read returns."""
    return F.struct(
        reason.cast("string").alias(ERROR),
        (F.lit(True) if there is None else there).alias(THERE),
        *(value.alias(name) for name, value in columns.items()),
    )


def first_reason(*checks: tuple[Column, str | Column]) -> Column:
    """The reason of the first condition that holds, or null."""
    reasons = (
        F.when(F.coalesce(bad, F.lit(False)), F.lit(why) if isinstance(why, str) else why)
        for bad, why in checks
    )
    return F.coalesce(*reasons, F.lit(None).cast("string"))


def utf8(message: Column) -> Column:
    """The message as text, null if it is none."""
    text = message.cast("string")
    return F.when(F.is_valid_utf8(text), text)


def sql_value(value: Column, type_: SqlType) -> Column:
    """A value of Spark's as its SQL type; what SQL has no type for is a canonical jsonb."""
    if type_ != JSONB:
        return value.cast(type_.spark)
    text = F.to_json(value, {"ignoreNullFields": "false"})
    return F.to_json(F.try_parse_json(text))


def on_calendar(moment: Column) -> Column:
    """True for the years that every client can show."""
    return F.year(moment).between(1, 9999)
