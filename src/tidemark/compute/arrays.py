"""Arrays of one dimension in PostgreSQL's text: `{1,NULL,"a b","say \\"hi\\""}`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidemark.errors import DataError, Unsupported

_ELEMENT = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^",{}\\]|\\.)*))\s*([,}])', re.DOTALL)
_PLAIN = re.compile(r'[^\s",{}\\]+')


def read_array(text: str) -> list[str | None]:
    """The texts of the elements; raises DataError for what is no array of one dimension."""
    bad = DataError(f'malformed array literal: "{text}"', sqlstate="22P02")
    body = text.strip()
    if not body.startswith("{") or not body.endswith("}"):
        raise bad
    if body[1:-1].strip() == "":
        return []
    if body[1:].lstrip().startswith("{"):
        raise Unsupported("arrays of more than one dimension are not supported")
    found: list[str | None] = []
    at = 1
    while True:
        element = _ELEMENT.match(body, at)
        if element is None:
            raise bad
        quoted, plain, end = element.groups()
        if quoted is None and plain.strip() == "":
            raise bad
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        elif plain.strip().upper() == "NULL":
            found.append(None)
        else:
            found.append(re.sub(r"\\(.)", r"\1", plain.strip(), flags=re.DOTALL))
        at = element.end()
        if end == "}":
            break
    if at != len(body):
        raise bad
    return found


def array_text(elements: Sequence[str | None]) -> str:
    return "{" + ",".join("NULL" if each is None else _quoted(each) for each in elements) + "}"


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.upper() != "NULL":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
