"""SQL text cut at the right places, without parsing it: statements, and rows of literals.

Both work with one regular expression over the text, so that a script of many statements or an
INSERT of ten thousand rows costs milliseconds.
"""

from __future__ import annotations

import itertools
import re

from tidemark.compute.expr import Lit
from tidemark.compute.literals import UNKNOWN, number_literal
from tidemark.errors import DataError, SqlError, TidemarkError, Unsupported
from tidemark.types import BOOLEAN

_PIECES = r"""
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
    """
_SPARK_PIECES = r"""
      (?P<string>   '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<quoted>   `(?:[^`]|``)*` )
    | (?P<line>     --[^\n]* )
    | (?P<block>    /\* )
    | (?P<open>     ['"`] )
    | (?P<end>      ; )
    | (?P<word>     [A-Za-z_][A-Za-z_0-9]* )
    | (?P<other>    [^'"`;/$\-A-Za-z_]+ | . )
    """
_PIECE = {
    "postgres": re.compile(_PIECES, re.VERBOSE | re.DOTALL),
    "spark": re.compile(_SPARK_PIECES, re.VERBOSE | re.DOTALL),
}
"""By dialect: they quote differently."""

_SECRET = re.compile(r"\bcreate\s+secret\b", re.IGNORECASE)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def split(sql: str, dialect: str = "postgres") -> list[str]:
    """The statements of a script, without the semicolons; empty ones are left out."""
    try:
        return _split(sql, _PIECE[dialect])
    except SqlError:
        if _SECRET.search(sql):
            # The usual message quotes the script, and so perhaps the secret.
            raise SqlError("a quoted string or comment in this script cannot be read") from None
        raise


def _split(sql: str, pieces: re.Pattern[str]) -> list[str]:
    found: list[str] = []
    start = at = 0
    says_something = False
    while at < len(sql):
        piece = pieces.match(sql, at)
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
                quotes = "'" if pieces is _PIECE["postgres"] else "'\""
                kind = "string" if piece.group() in quotes else "identifier"
                raise SqlError(
                    f'unterminated quoted {kind} at or near "{sql[piece.start() :][:60]}"'
                )
            case "estring":
                _check_escapes(piece.group())
                says_something = True
            case "quoted" if len(piece.group()) == 2:
                raise SqlError(f'zero-length delimited identifier at or near "{piece.group()}"').at(
                    piece.start()
                )
            case _:
                says_something = says_something or not piece.group().isspace()
    if says_something:
        found.append(sql[start:].strip())
    return found


def first_outside(sql: str, stops: str) -> int | None:
    """Where the first of these characters stands that is in no string, name or comment; None also
    while one of those is still open. For clients, which must know when a statement has ended."""
    at = 0
    while at < len(sql):
        piece = _PIECE["postgres"].match(sql, at)
        assert piece is not None
        match piece.lastgroup:
            case "open":
                return None
            case "block":
                try:
                    at = _block_end(sql, at)
                except SqlError:
                    return None
                continue
            case "end" | "other":
                for offset, character in enumerate(piece.group()):
                    if character in stops:
                        return at + offset
        at = piece.end()
    return None


_PARAMETER = re.compile(r"\$[0-9]+")


def apart(sql: str, dialect: str = "postgres") -> str:
    """The same with a space after every $n: sqlglot takes `$1,$2` for the quote `$1,$ ...`."""
    ends = _parameter_ends(sql, _PIECE[dialect])
    return " ".join(sql[a:b] for a, b in itertools.pairwise([0, *ends, len(sql)]))


def locate(error: TidemarkError, sql: str, dialect: str = "postgres") -> None:
    """Say where in `sql` the error is, given where it is in its one statement, set `apart`.
    Clients show that line, so nothing is said of one that has a secret in it."""
    if _SECRET.search(sql):
        error.position = None
        return
    if error.position is not None:
        text = next(iter(split(sql, dialect)), sql)
        for end in _parameter_ends(text, _PIECE[dialect]):
            error.position -= end < error.position
        error.position += max(sql.find(text), 0)
    elif error.sqlstate in _ABOUT_NAMES and (named := _NAMED.search(error.message)):
        error.at(_only_place_of(named[1].split(".")[0], sql, _PIECE[dialect]))


_ABOUT_NAMES = ("42P01", "42703", "42704", "42809", "3F000", "3D000")
_NAMED = re.compile(r'"(.+?)"')


def _only_place_of(name: str, sql: str, pieces: re.Pattern[str]) -> int | None:
    """Where an identifier stands, if that is one place only."""
    found: list[int] = []
    at = 0
    while at < len(sql):
        piece = pieces.match(sql, at)
        assert piece is not None
        kind, text = piece.lastgroup, piece.group()
        if (kind == "word" and text.lower() == name) or (
            kind == "quoted" and text[1:-1].replace(2 * text[0], text[0]) == name
        ):
            found.append(at)
        at = _block_end(sql, at) if kind == "block" else piece.end()
    return found[0] if len(found) == 1 else None


def _parameter_ends(sql: str, pieces: re.Pattern[str]) -> list[int]:
    """Where each $n ends."""
    found: list[int] = []
    at = 0
    while at < len(sql) and _PARAMETER.search(sql, at):
        piece = _PARAMETER.match(sql, at) or pieces.match(sql, at)
        assert piece is not None
        block = piece.re is pieces and piece.lastgroup == "block"
        at = _block_end(sql, at) if block else piece.end()
        if piece.re is _PARAMETER:
            found.append(at)
    return found


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
_VALUES = re.compile(r"\bVALUES\b", re.IGNORECASE)
_OPEN = re.compile(r"\s*\(")
_COMMA = re.compile(r"\s*,")
_WORDS = {
    "null": Lit(None, UNKNOWN),
    "true": Lit("true", BOOLEAN),
    "false": Lit("false", BOOLEAN),
}


def literal_rows(sql: str) -> tuple[str, tuple[tuple[Lit, ...], ...]] | None:
    """The rows of `VALUES (1, 'a'), (2, NULL)` at the end, and what is before them; None if there
    is anything else."""
    values = _VALUES.search(sql, 0, 4000)
    head = sql[: values.start()] if values is not None else ""
    if values is None or "--" in head or "/*" in head:
        return None
    rows = _rows(sql, values.end())
    return None if rows is None else (head, rows)


def _rows(sql: str, at: int) -> tuple[tuple[Lit, ...], ...] | None:
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
            try:
                row.append(_literal(found))
            except DataError:
                return None  # Perhaps it is one where its column is known.
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
