"""Arrow tables and schemas as bytes and back: inside a shard's state, in the commit log, between
processes."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

# In this thread: what goes through here is small, and handing it to others would cost more.
_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def encode_table(table: pa.Table, *, compress: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    options = _COMPRESSED if compress else _PLAIN
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def decode_table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(data), options=_READ).read_all()


def encode_schema(schema: pa.Schema) -> bytes:
    return schema.serialize().to_pybytes()


@lru_cache(maxsize=1_000)
def decode_schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))
