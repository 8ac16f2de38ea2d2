"""A webhook's source, as the catalog keeps it: what it takes, and what it makes of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from tidemark.compute.expr import Expr
from tidemark.types import BYTEA, JSONB, TEXT, Column, SqlType

BodyFormat = Literal["json", "json array", "text", "bytes"]

BODY, HEADERS = "body", "headers"


class IncludedHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """A header in a column of its own, null where a request has none. Names are lower case."""

    header: str
    column: str
    as_bytes: bool = False


class HeaderFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which headers the column `headers` has: `only` those, if any are named, none `without`."""

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def takes(self, header: str) -> bool:
        return header not in self.without and (not self.only or header in self.only)


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a condition's column stands for; `secret` is the id of one in the catalog."""

    what: Literal["headers", "body", "secret", "now"]
    as_bytes: bool = False
    secret: str = ""


class Check(msgspec.Struct, frozen=True):
    """A condition over columns, which are what is `given`, in order."""

    given: tuple[Given, ...]
    condition: Expr


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True):
    format: BodyFormat
    headers: HeaderFilter | None = None
    included: tuple[IncludedHeader, ...] = ()
    check: Check | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """`body`, then `headers` if they are included, then those that have a column each."""
        headers = (Column(HEADERS, JSONB, nullable=False),) if self.headers is not None else ()
        own = (Column(each.column, BYTEA if each.as_bytes else TEXT) for each in self.included)
        return (Column(BODY, _TYPES[self.format], nullable=False), *headers, *own)


_TYPES: dict[BodyFormat, SqlType] = {
    "json": JSONB,
    "json array": JSONB,
    "text": TEXT,
    "bytes": BYTEA,
}
