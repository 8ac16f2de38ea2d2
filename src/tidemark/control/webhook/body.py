"""A request as rows of its source. What cannot be is a SqlError that says what was wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tidemark.compute.jsonb import documents, written
from tidemark.control.webhook.spec import Webhook
from tidemark.errors import SqlError
from tidemark.types import arrow_schema

Headers = Mapping[str, bytes]
"""By their names in lower case."""


def headers_of(given: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers as they came; one that came more than once has its values in a list, as HTTP has it."""
    found: dict[str, bytes] = {}
    for name, value in given:
        key = name.decode("latin-1").lower()
        found[key] = found[key] + b", " + value if key in found else value
    return found


def rows_of(webhook: Webhook, headers: Headers, body: bytes) -> pa.Table:
    cells = _bodies(webhook, body)
    rest: list[Any] = []
    if webhook.headers is not None:
        kept = {name: text_of(value, f"header {name}") for name, value in headers.items()}
        rest.append(header_json({n: v for n, v in kept.items() if webhook.headers.takes(n)}))
    for each in webhook.included:
        value = headers.get(each.header)
        if value is not None and not each.as_bytes:
            rest.append(text_of(value, f"header {each.header}"))
        else:
            rest.append(value)
    schema = arrow_schema(webhook.columns)
    fields = list(schema)[1:]
    arrays = [
        pa.repeat(pa.scalar(v, f.type), len(cells)) for v, f in zip(rest, fields, strict=True)
    ]
    return pa.table([pa.array(cells, schema.field(0).type), *arrays], schema=schema)


def header_json(headers: Mapping[str, str]) -> str:
    """Headers as the canonical text of a jsonb."""
    return written({name: headers[name] for name in sorted(headers)})


def text_of(data: bytes, what: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _bad(f"the {what} is not UTF-8: {error.reason} at byte {error.start}") from None
    if "\0" in text:
        raise _bad(f"the {what} has a null character, which no text can have")
    return text


def _bodies(webhook: Webhook, body: bytes) -> list[Any]:
    match webhook.format:
        case "bytes":
            return [body]
        case "text":
            return [text_of(body, "body")]
    values = _documents(text_of(body, "body"))
    if webhook.format == "json array":
        nested = [value if isinstance(value, list) else [value] for value in values]
        values = [value for part in nested for value in part]
    try:
        return [written(value) for value in values]
    except (ValueError, RecursionError) as error:
        raise _no_json(error) from None


def _documents(text: str) -> list[Any]:
    try:
        found = list(documents(text))
    except (ValueError, RecursionError) as error:
        raise _no_json(error) from None
    if not found:
        raise _bad("the body is empty, not JSON")
    return found


def _no_json(error: Exception) -> SqlError:
    why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return _bad(f"the body is not JSON that can be stored: {why}")


def _bad(message: str) -> SqlError:
    return SqlError(message, sqlstate="22P02")
