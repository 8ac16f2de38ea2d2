"""What clients send: requests, and the first message of a websocket."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tidemark.errors import SqlError

T = TypeVar("T")

_SHAPE = (
    'send {"query": "SELECT 1; SELECT 2"}, '
    'or {"queries": [{"query": "SELECT $1", "params": ["text or null"]}]}'
)


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One statement; `params` are texts, as numbers in JSON lose digits on their way."""

    query: str
    params: tuple[str | None, ...] = ()


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either `query`, of several statements, or `queries` of one statement each."""

    query: str | None = None
    queries: tuple[Query, ...] | None = None


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who it is, and settings of the session; the password is for servers that ask for one."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    options: dict[str, str] = {}


def request_of(body: bytes | str) -> Request:
    found = _decoded(body, Request, _SHAPE)
    if (found.query is None) == (found.queries is None):
        raise SqlError("a request has either query or queries", hint=_SHAPE, sqlstate="08P01")
    texts = [found.query] if found.query is not None else []
    texts += [text for each in found.queries or () for text in (each.query, *each.params)]
    if any("\0" in text for text in texts if text is not None):
        # The wire cannot carry it, so nothing behind the session knows of it.
        raise SqlError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    return found


def hello_of(body: bytes | str) -> Hello:
    hint = 'the first message is {"user": "…", "options": {"cluster": "…"}}, or just {}'
    return _decoded(body, Hello, hint)


def options_of(text: str | None) -> dict[str, str]:
    """Settings as the parameter `options` of an address has them."""
    hint = 'e.g. ?options={"cluster":"quickstart","statement_timeout":"10s"}, URL-encoded'
    return _decoded(text, dict[str, str], hint) if text else {}


def _decoded(body: bytes | str, type_: type[T], hint: str) -> T:
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SqlError(f"malformed request: {error}", hint=hint, sqlstate="08P01") from None
