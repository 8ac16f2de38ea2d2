"""Data of any common kind into the CSV that COPY reads, column by column.

CSV, because Arrow writes it without a look at single values: everything is quoted but nulls, which
is how COPY tells an empty text from none. Only what Arrow cannot print as PostgreSQL reads it
(binary, lists, structs) goes through Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tidemark.client.show import cell
from tidemark.errors import DataError, InvalidUsage

Loadable = Any
"""What `table_of` takes."""

JsonColumns = Callable[[], Collection[str]]
"""The names of the table's `jsonb` columns, which are asked for where there are lists: only there a
list is JSON, and not an array."""

BLOCK_ROWS = 65_536
_CSV = pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid")


@contextmanager
def as_rows() -> Iterator[None]:
    """What Arrow makes no columns of is ours to say."""
    try:
        yield
    except pa.ArrowException as error:
        raise DataError(
            f"this cannot be inserted: {error}",
            hint="the values of a column are of one type, and all columns have as many",
        ) from error


def table_of(data: Loadable, json_columns: JsonColumns = tuple) -> pa.Table:
    table = _table(data, json_columns)
    for at, field in enumerate(table.schema):
        if _is_list(field.type) and field.name in json_columns():
            table = table.set_column(at, field.name, _each(table.column(at), _json))
    return table


def _table(data: Loadable, json_columns: JsonColumns) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if hasattr(data, "toArrow"):  # Spark's
        return data.toArrow()
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return pa.table({name: _array(name, v, json_columns) for name, v in data.items()})
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        return _of_dicts(data, json_columns)
    if type(data).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(_frame(data, json_columns), preserve_index=False)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    raise InvalidUsage(
        f"a {type(data).__name__} cannot be inserted",
        hint="give an Arrow table, a pandas, Polars or Spark data frame, a dict of columns, or a "
        "list of dicts",
    )


def _of_dicts(rows: Sequence[Mapping[str, object]], json_columns: JsonColumns) -> pa.Table:
    """What the first row leaves out, a later one may have."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table(
        {name: _array(name, [row.get(name) for row in rows], json_columns) for name in names}
    )


def _frame(data: Any, json_columns: JsonColumns) -> Any:
    """One of pandas', without dicts."""
    frame = data.copy(deep=False)
    for at, name in enumerate(frame.columns):
        values = frame.iloc[:, at]
        column = _column(str(name), values, json_columns)
        if column is not values:
            # A series, as of lists that are equally long a frame makes more than one column.
            frame.isetitem(at, type(values)(column, index=values.index, dtype=object))
    return frame


def _array(name: str, values: Any, json_columns: JsonColumns) -> Any:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise InvalidUsage(
            f"column {name}: {values!r} is one value, not a column of them",
            hint="a dict has columns; one row is a list of one dict",
        )
    column = _column(name, values, json_columns)
    if not isinstance(column, Sequence):
        return column
    try:
        return pa.array(column, from_pandas=column is not values)  # Its NaN is a null.
    except pa.ArrowException as error:
        raise DataError(
            f"column {name} cannot be inserted: {error}",
            hint="the values of a column are of one type",
        ) from error


def _column(name: str, values: Any, json_columns: JsonColumns) -> Any:
    """Dicts are JSON: as an Arrow struct, each would get the keys of all others."""
    if not isinstance(values, Sequence) and str(getattr(values, "dtype", "")) != "object":
        return values
    if any(isinstance(value, list | tuple) for value in values):
        if name in json_columns():
            return [_json(v) if isinstance(v, Mapping | list | tuple) else v for v in values]
        if any(isinstance(v, list | tuple) and _has_dicts(v) for v in values):
            return [_dicts_as_json(v) if isinstance(v, list | tuple) else v for v in values]
    return _dicts_as_json(values) if _has_dicts(values) else values


def _has_dicts(values: Any) -> bool:
    return any(isinstance(value, Mapping) for value in values)


def _dicts_as_json(values: Any) -> list:
    return [_json(value) if isinstance(value, Mapping) else value for value in values]


def _json(value: object) -> str:
    # Numpy's numbers and arrays have a Python value; what else JSON lacks is a text.
    return json.dumps(value, default=lambda v: v.tolist() if hasattr(v, "tolist") else str(v))


def csv_blocks(table: pa.Table) -> Iterator[bytes]:
    names = [str(at) for at in range(table.num_columns)]
    for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
        texts = pa.record_batch([_texts(column) for column in batch.columns], names=names)
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(texts, sink, _CSV)
        yield sink.getvalue().to_pybytes()


def _texts(column: pa.Array) -> pa.Array:
    """The values as PostgreSQL reads them."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _texts(column.storage)
    if pa.types.is_dictionary(kind):
        return _texts(column.dictionary_decode())
    if _is_binary(kind):
        return _each(column, lambda value: "\\x" + value.hex())
    if _is_list(kind):
        return _array_texts(column)
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return _each(column, _json)
    if pa.types.is_duration(kind):
        micros = column.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(micros, "microseconds", " ")
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column.cast(pa.string())


def _array_texts(column: pa.Array) -> pa.Array:
    """`{1,2,NULL}`, of elements that are printed all at once."""
    column = column.cast(pa.list_(column.type.value_type))
    elements = _texts(column.flatten()).to_pylist()
    found: list[str | None] = []
    at = 0
    for length in column.value_lengths().to_pylist():
        found.append(None if length is None else cell(elements[at : at + length]))
        at += length or 0
    return pa.array(found, pa.string())


def _each(column: pa.Array | pa.ChunkedArray, printed: Callable[[Any], str]) -> pa.Array:
    values = [None if value is None else printed(value) for value in column.to_pylist()]
    return pa.array(values, pa.string())


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        test(kind)
        for test in (
            types.is_binary,
            types.is_large_binary,
            types.is_fixed_size_binary,
            types.is_binary_view,
        )
    )


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        test(kind) for test in (types.is_list, types.is_large_list, types.is_fixed_size_list)
    )
