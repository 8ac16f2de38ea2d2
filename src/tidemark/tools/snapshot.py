"""A shard's contents at one time, in whichever format, chunk after chunk.

All rows and columns are streamed in bounded memory; some of them are read as a snapshot, for
which parts that cannot matter are skipped. `_diff` says how often a row is there; error rows come
along, with what is wrong in `_err`, or are all that is shown.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa

from tidemark.errors import InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import ERR, TIME, Lease, PersistClient
from tidemark.persist.filters import OPERATORS
from tidemark.persist.holds import check_as_of
from tidemark.persist.part import read_part
from tidemark.persist.read import overlapping, projected
from tidemark.persist.runs import schema_of
from tidemark.persist.state import State
from tidemark.persist.updates import (
    META_FIELDS,
    advance,
    between,
    concat,
    consolidate,
    diff_sum,
    row_names,
    split_errors,
)
from tidemark.tools.output import print_table

FORMATS = ("table", "json", "csv", "arrow", "parquet")
TABLE_ROWS = 100
"""What a table shows unless told otherwise."""

PIECE_ROWS = 10_000

_PREDICATE = re.compile(
    r"""\s*(?:"(?P<quoted>[^"]+)"|(?P<name>\w+))\s*"""
    r"""(?P<operator>not\s+in\b|in\b|<=|>=|!=|==|=|<|>)\s*(?P<value>.+?)\s*""",
    re.IGNORECASE,
)
_ITEM = re.compile(r"""\s*('(?:[^']|'')*'|"[^"]*"|[^,'"\s][^,]*?)\s*(,|$)""")


class Query(NamedTuple):
    as_of: int
    schema: pa.Schema
    chunks: Generator[pa.Table, None, None]
    errors: int = 0
    """How many rows are in error."""


def query(
    client: PersistClient,
    shard_id: str,
    *,
    as_of: str,
    columns: list[str] | None,
    filters: list[str],
    errors: bool = False,
) -> Query:
    """What to print; everything that could be typed wrong is found here. `errors`: only rows in
    error, of which a key may be known, but no other column."""
    if errors and filters:
        raise InvalidUsage(
            "--errors takes no --filter", hint="rows in error have no values to filter by"
        )
    # From the choice of a time to the first row, since must not pass it.
    hold = client.open_reader(shard_id).hold()
    try:
        found = _query(client, shard_id, as_of, columns, filters, errors)
    except BaseException:
        hold.release()
        raise
    return found._replace(chunks=_held(found.chunks, hold))


def _held(chunks: Iterator[pa.Table], hold: Lease) -> Generator[pa.Table, None, None]:
    with hold:
        yield from chunks


def _query(
    client: PersistClient,
    shard_id: str,
    as_of: str,
    columns: list[str] | None,
    filters: list[str],
    errors: bool,
) -> Query:
    state = client.state(shard_id)
    time = _as_of(state, as_of)
    if not state.schemas:
        return Query(time, pa.schema(META_FIELDS).remove(0), _selected(iter(()), []))
    schema = schema_of(state)
    if errors and columns is None:
        columns = list(state.key)
    shape = projected(schema, columns)
    shape = shape.remove(shape.get_field_index(TIME))
    failed = _in_error(client, shard_id, time, columns if errors else [])
    count = diff_sum(failed)
    if errors:
        return Query(time, shape, _selected(iter([failed]), shape.names), count)
    if columns is None and not filters:
        chunks = client.open_reader(shard_id).stream(time)
    else:
        predicates = [parse(text, schema) for text in filters]
        reader = client.open_reader(shard_id, columns=columns, filter=predicates or None)
        chunks = iter([reader.snapshot(time, timeout=0)])
    return Query(time, shape, _selected(chunks, shape.names), count)


def _in_error(
    client: PersistClient, shard_id: str, time: int, columns: list[str] | None
) -> pa.Table:
    """The rows in error at `time`, for which only parts are read that have such."""
    state = client.state(shard_id)
    if not any(part.errors for part in state.parts):
        return projected(schema_of(state), columns).empty_table()
    with client.open_reader(shard_id).lease(time) as lease:
        schema = schema_of(lease.state)
        shape = projected(schema, columns)
        found = [
            split_errors(read_part(client.blob, part, schema, columns=shape.names))[1]
            for part in overlapping(lease.state, Frontier.MIN, Frontier(time + 1))
            if part.errors
        ]
    return consolidate(advance(between(concat(found, shape), 0, time + 1), time))


def _selected(chunks: Iterator[pa.Table], names: list[str]) -> Generator[pa.Table, None, None]:
    for chunk in chunks:
        yield chunk.select(names)


def _as_of(state: State, text: str) -> int:
    if text != "latest" and not text.isdecimal():
        raise InvalidUsage(f"--as-of takes a time or `latest`, not {text!r}")
    time = _newest(state) if text == "latest" else int(text)
    check_as_of(state, time)
    if not state.upper.covers(time):
        raise InvalidUsage(
            f"shard {state.shard_id} is complete to {state.upper}, so not yet readable at {time}",
            hint="read at an earlier time, or wait",
        )
    return time


def _newest(state: State) -> int:
    """The last time that can be read; of a finished shard, the last at which anything happened."""
    if state.upper.time is not None:
        if state.upper <= max(state.since, Frontier.MIN):
            raise InvalidUsage(
                f"shard {state.shard_id} cannot be read yet: it is complete to {state.upper} "
                f"and readable from {state.since} on"
            )
        return state.upper.time - 1
    return max([state.since.time or 0, *(part.max_time for part in state.parts)])


def parse(text: str, schema: pa.Schema) -> tuple[str, str, Any]:
    """`price > 100`, `kind = 'bid'`, `id in (1, 2)`: one predicate on a column of `schema`."""
    found = _PREDICATE.fullmatch(text)
    if found is None:
        raise InvalidUsage(
            f"not a filter: {text!r}",
            hint='column, operator, value: "price > 100", "kind = \'bid\'", "id in (1, 2)"; '
            f"operators: {' '.join(OPERATORS)}",
        )
    name = found["quoted"] or found["name"]
    if name not in row_names(schema):
        raise InvalidUsage(
            f"no column {name!r} to filter by", hint=f"columns: {', '.join(row_names(schema))}"
        )
    operator = re.sub(r"\s+", " ", found["operator"].lower())
    kind = schema.field(name).type
    if operator in ("in", "not in"):
        return name, operator, [_value(item, kind, text) for item in _items(found["value"], text)]
    return name, operator, _value(found["value"], kind, text)


def _items(text: str, whole: str) -> list[str]:
    if not (text.startswith("(") and text.endswith(")")):
        raise InvalidUsage(f"not a filter: {whole!r}", hint="a list is (1, 2, 3)")
    items, at, inner = [], 0, text[1:-1]
    while at < len(inner):
        found = _ITEM.match(inner, at)
        if found is None:
            raise InvalidUsage(f"not a filter: {whole!r}", hint="a list is (1, 2, 3)")
        items.append(found[1])
        at = found.end()
    return items


def _value(text: str, kind: pa.DataType, whole: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] == "'":
        text = text[1:-1].replace("''", "'")
    elif len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    try:
        return pa.scalar(text).cast(kind).as_py()
    except (pa.ArrowException, ValueError) as error:
        raise InvalidUsage(f"{text!r} in the filter {whole!r} is not of type {kind}") from error


def write(
    found: Query, *, shard_id: str, format: str, limit: int | None, output: Path | None
) -> bool:
    """True if there were more rows than `limit`."""
    if format == "table" and limit is None:
        limit = TABLE_ROWS
    cut = _Limit(found.chunks, limit)
    if format == "table":
        if output is not None:
            raise InvalidUsage("a table goes to the terminal", hint="use --format csv with -o")
        _print_rows(cut, found.schema)
        return cut.more
    if output is None and format == "parquet":
        raise InvalidUsage("Parquet needs a file to go to", hint="give one with -o FILE")
    if output is None and format == "arrow" and sys.stdout.isatty():
        raise InvalidUsage("Arrow is not for terminals", hint="give a file with -o, or use a pipe")
    writers: dict[str, Callable[..., None]] = {"csv": _csv, "arrow": _arrow, "parquet": _parquet}
    with _sink(output) as sink:
        if format == "json":
            _json(sink, cut, found, shard_id)
        else:
            writers[format](sink, cut, found.schema)
    return cut.more


class _Limit:
    """The first `limit` rows of `chunks`; `more` tells whether there were others."""

    def __init__(self, chunks: Iterator[pa.Table], limit: int | None):
        self._chunks = chunks
        self._left = limit
        self.more = False

    def __iter__(self) -> Iterator[pa.Table]:
        for chunk in self._chunks:
            if self._left is None:
                yield chunk
                continue
            if chunk.num_rows > self._left:
                self.more = True
                if self._left:
                    yield chunk.slice(0, self._left)
                return
            self._left -= chunk.num_rows
            yield chunk


def _print_rows(chunks: Iterable[pa.Table], schema: pa.Schema) -> None:
    from rich.text import Text

    rows = [row for chunk in chunks for row in chunk.to_pylist()]
    # Who has no errors need not look at an empty column.
    names = [n for n in schema.names if n != ERR or any(row[ERR] is not None for row in rows)]
    right = {f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)}
    cells = [
        [Text(_cell(row[name]), style="red" if row[ERR] is not None else "") for name in names]
        for row in rows
    ]
    print_table([f"{name}>" if name in right else name for name in names], cells)


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _json(sink: BinaryIO, chunks: Iterable[pa.Table], found: Query, shard_id: str) -> None:
    head = {"shard": shard_id, "as_of": found.as_of, "columns": found.schema.names}
    sink.write(msgspec.json.encode(head)[:-1] + b',"rows":[')
    first = True
    for chunk in chunks:
        for start in range(0, chunk.num_rows, PIECE_ROWS):
            for row in chunk.slice(start, PIECE_ROWS).to_pylist():
                sink.write((b"\n" if first else b",\n") + msgspec.json.encode(row, enc_hook=str))
                first = False
    more = getattr(chunks, "more", False)
    sink.write(b'],"truncated":' + (b"true}\n" if more else b"false}\n"))


def _csv(sink: BinaryIO, chunks: Iterable[pa.Table], schema: pa.Schema) -> None:
    from pyarrow import csv

    try:
        with csv.CSVWriter(sink, schema) as writer:
            for chunk in chunks:
                writer.write_table(chunk)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise InvalidUsage(
            f"CSV cannot hold these columns: {error}", hint="use --format json, arrow or parquet"
        ) from error


def _arrow(sink: BinaryIO, chunks: Iterable[pa.Table], schema: pa.Schema) -> None:
    with pa.ipc.new_stream(sink, schema) as writer:
        for chunk in chunks:
            writer.write_table(chunk)


def _parquet(sink: BinaryIO, chunks: Iterable[pa.Table], schema: pa.Schema) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for chunk in chunks:
            writer.write_table(chunk)


@contextmanager
def _sink(output: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there only once it is whole."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    aside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with open(aside, "wb") as file:
            yield file
        os.replace(aside, output)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
