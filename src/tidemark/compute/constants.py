"""Constants of a plan as Arrow."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidemark.compute.arrays import read_array, stored_text
from tidemark.compute.expr import Lit
from tidemark.compute.intervals import seconds_of
from tidemark.compute.literals import BYTEA_PREFIX, WIDE
from tidemark.compute.plan import Constant
from tidemark.persist import DIFF


def constant_rows(leaf: Constant) -> pa.Table:
    """The rows of a constant, each with its count."""
    arrays = {
        column.name: pa.array([value_of(row[at]) for row in leaf.rows], column.type.arrow)
        for at, column in enumerate(leaf.columns)
    }
    return pa.table({**arrays, DIFF: pa.array([1] * len(leaf.rows), pa.int64())})


def value_of(literal: Lit) -> Any:
    """What Arrow makes an array of."""
    text = literal.value
    if text is None:
        return None
    if literal.type.element is not None:
        return stored_text(read_array(text), literal.type)
    match literal.type.name:
        case "boolean":
            return text in ("true", "t")
        case "smallint" | "integer" | "bigint":
            return int(text)
        case "numeric":
            _, scale = literal.type.decimal
            return Decimal(text).quantize(Decimal(1).scaleb(-scale), context=WIDE)
        case "interval":
            return seconds_of(literal)
        case "double precision":
            return float(text)
        case "bytea":
            return bytes.fromhex(text.removeprefix(BYTEA_PREFIX))
        case "date":
            return dt.date.fromisoformat(text)
        case "timestamp" | "timestamp with time zone":
            return dt.datetime.fromisoformat(text)
        case _:
            return text
