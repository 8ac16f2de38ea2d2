"""SQL text cut at the right places, without parsing it: statements, and rows of literals.

Both work with one regular expression over the text, so that a script of many statements or an
INSERT of ten thousand rows costs milliseconds.
"""

from __future__ import annotations

import re

from tidemark.compute.expr import Lit
from tidemark.compute.literals import UNKNOWN, number_literal
from tidemark.errors import SqlError, Unsupported
from tidemark.types import BOOLEAN

_PIECE = re.compile(
    r"""
      (?P<estring>  [eE]'(?:[^'\\]|\\.|'')*' )
    | (?P<string>   '(?:[^']|'')*' )
    | (?P<quoted>   "(?:[^"]|"")*" )
    | (?P<dollar>   \$(?P<tag>[A-Za-z_][A-Za-z_0-9]*)?\$.*?\$(?P=tag)?\$ )
    | (?P<line>     --[^\n]* )
    | (?P<block>    /\* )
    | (?P<open>     ['"] )
    | (?P<end>      ; )
    | (?P<word>     [A-Za-z_][A-Za-z_0-9$]* )
    | (?P<other>    [^'";/$\-A-Za-z_]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_SECRET = re.compile(r"\bcreate\s+secret\b", re.IGNORECASE)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def split(sql: str) -> list[str]:
    """The statements of a script, without the semicolons; empty ones are left out."""
    try:
        return _split(sql)
    except SqlError:
        if _SECRET.search(sql):
            # The usual message quotes the script, and so perhaps the secret.
            raise SqlError("a quoted string or comment in this script cannot be read") from None
        raise


def _split(sql: str) -> list[str]:
    found: list[str] = []
    start = at = 0
    says_something = False
    while at < len(sql):
        piece = _PIECE.match(sql, at)
        assert piece is not None
        at = piece.end()
        match piece.lastgroup:
            case "end":
                if says_something:
                    found.append(sql[start : piece.start()].strip())
                start, says_something = at, False
            case "block":
                at = _block_end(sql, piece.start())
            case "line":
                pass
            case "open":
                kind = "string" if piece.group() == "'" else "identifier"
                raise SqlError(
                    f'unterminated quoted {kind} at or near "{sql[piece.start() :][:60]}"'
                )
            case "estring":
                _check_escapes(piece.group())
                says_something = True
            case _:
                says_something = says_something or not piece.group().isspace()
    if says_something:
        found.append(sql[start:].strip())
    return found


_PARAMETER = re.compile(r"\$[0-9]+")


def apart(sql: str) -> str:
    """The same with a space after every $n: sqlglot takes `$1,$2` for the quote `$1,$ ...`."""
    if not _PARAMETER.search(sql):
        return sql
    parts: list[str] = []
    at = 0
    while at < len(sql):
        piece = _PARAMETER.match(sql, at) or _PIECE.match(sql, at)
        assert piece is not None
        block = piece.re is _PIECE and piece.lastgroup == "block"
        end = _block_end(sql, at) if block else piece.end()
        parts += [sql[at:end], " " if piece.re is _PARAMETER else ""]
        at = end
    return "".join(parts)


def _block_end(sql: str, start: int) -> int:
    """Block comments nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(sql, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise SqlError(f'unterminated /* comment at or near "{sql[start:][:60]}"')


def _check_escapes(text: str) -> None:
    """sqlglot reads \\n and the like, but takes \\x41 for x41."""
    if re.search(r"(?<!\\)(?:\\\\)*\\[xuU0-7]", text):
        raise Unsupported(
            f"escapes by number in a string are not supported: {text[:60]}",
            hint="write the character itself",
        )


_LITERAL = re.compile(
    r"""\s*(?:
      (?P<string> '(?:[^']|'')*' )
    | (?P<number> -?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
    | (?P<word>   (?i:null|true|false) ) \b
    )\s*(?P<next>[,)])""",
    re.VERBOSE,
)
_OPEN = re.compile(r"\s*\(")
_COMMA = re.compile(r"\s*,")
_WORDS = {
    "null": Lit(None, UNKNOWN),
    "true": Lit("true", BOOLEAN),
    "false": Lit("false", BOOLEAN),
}


def literal_rows(sql: str, at: int) -> tuple[tuple[Lit, ...], ...] | None:
    """The rows of `(1, 'a'), (2, NULL)` from `at` to the end; None if there is anything else."""
    rows: list[tuple[Lit, ...]] = []
    while True:
        opened = _OPEN.match(sql, at)
        if opened is None:
            return None
        at = opened.end()
        row: list[Lit] = []
        more = True
        while more:
            found = _LITERAL.match(sql, at)
            if found is None:
                return None
            at = found.end()
            row.append(_literal(found))
            more = found.group("next") == ","
        rows.append(tuple(row))
        comma = _COMMA.match(sql, at)
        if comma is None:
            return None if sql[at:].strip() else tuple(rows)
        at = comma.end()


def _literal(found: re.Match[str]) -> Lit:
    string = found.group("string")
    if string is not None:
        return Lit(string[1:-1].replace("''", "'"), UNKNOWN)
    number = found.group("number")
    if number is not None:
        return number_literal(number)
    return _WORDS[found.group("word").lower()]
