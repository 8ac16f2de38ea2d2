"""Names of relations, as users of the client write them, and where a statement begins."""

from __future__ import annotations

import re

from tidemark.errors import InvalidUsage

_PART = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+")'
_NAME = re.compile(rf"\s*{_PART}(?:\.{_PART}){{0,2}}\s*")
_BEFORE = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)


def uncommented(sql: str) -> str:
    """A statement from its first word on."""
    before = _BEFORE.match(sql)
    return sql[before.end() :] if before else sql


def is_relation(text: str) -> bool:
    """Whether it is a name, not a query: `orders`, `shop.orders`, `"Odd name"`."""
    return _NAME.fullmatch(text) is not None


def relation(text: str) -> str:
    if not is_relation(text):
        raise InvalidUsage(
            f"not a relation's name: {text!r}", hint='write it as in SQL: orders, shop."Orders"'
        )
    return text.strip()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
