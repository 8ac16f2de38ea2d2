"""PostgreSQL's regular expressions as Java's, for the part in which both mean the same.

A pattern is a constant: it is translated when the statement is planned, and what is not known to
mean the same is refused. `.` matches a newline and `^ $` only the ends of the text, as they do in
PostgreSQL. Of alternatives PostgreSQL takes the longest match and Java the first; whether there
is a match at all is the same, so `|` and lazy quantifiers are refused only where the match is used.
"""

from __future__ import annotations

import re

from tidemark.compute.expr import Expr, Lit
from tidemark.errors import SqlError, Unsupported
from tidemark.types import TEXT

_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": " \\t\\n\\r\\f\\x0B", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_ESCAPES = {
    "m": "\\b(?=\\w)",
    "M": "\\b(?<=\\w)",
    "y": "\\b",
    "Y": "\\B",
    "A": "\\A",
    "Z": "\\z",
    "n": "\\n",
    "t": "\\t",
    "r": "\\r",
}
_SHORTHANDS = "dwsDWS"
_TOKEN = re.compile(
    r"\\(?P<escape>.)|(?P<set>\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\[\\])*\])|(?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??)"
    r"|(?P<open>\((?:\?[:=!])?)|(?P<plain>[^\[\]{}()\\*+?])|(?P<close>\))|(?P<other>.)",
    re.DOTALL,
)


def java_pattern(pattern: str, *, ignore_case: bool = False, match_used: bool = False) -> str:
    """The pattern for Java; raises for one that is no pattern or not known to mean the same."""
    out: list[str] = []
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup or "other", token[0]
        if kind == "escape":
            out.append(_escape(token["escape"], pattern))
        elif kind == "set":
            out.append(_set(text, pattern))
        elif kind == "plain":
            if text == "|" and match_used:
                raise _refused(pattern, "alternatives where the match is used")
            out.append({"^": "\\A", "$": "\\z", "#": "\\#"}.get(text, text))
        elif kind == "repeat" and match_used and len(text) > 1 and text.endswith("?"):
            raise _refused(pattern, "lazy quantifiers where the match is used")
        elif kind == "other":
            raise _refused(pattern, f'"{text}" there')
        else:
            out.append(text)
    made = "".join(out)
    try:
        re.compile(made.replace("\\z", "\\Z"))
    except (re.error, OverflowError):
        raise SqlError(f"invalid regular expression: {pattern}", sqlstate="2201B") from None
    return f"(?s{'i' if ignore_case else ''}){made}"


def similar_pattern(pattern: Expr) -> Lit:
    """The pattern of SIMILAR TO as that of `~`; it is a constant, and a backslash escapes."""
    if not isinstance(pattern, Lit):
        raise Unsupported("SIMILAR TO with a pattern that is not a constant is not supported")
    if pattern.value is None:
        return Lit(None, TEXT)
    parts: list[str] = re.findall(r"\\.|\[\^?\]?[^\]]*\]|.", pattern.value, re.DOTALL)
    plain = {"%": ".*", "_": ".", ".": "\\.", "^": "\\^", "$": "\\$"}
    translated = "".join(plain.get(part, part) for part in parts)
    return Lit(f"^(?:{translated})$", TEXT)


def matches_empty(java: str) -> bool:
    """Whether the pattern (of `java_pattern`) matches the empty text."""
    return re.search(java.replace("\\z", "\\Z"), "") is not None


def java_replacement(text: str, shift: int = 0) -> str:
    r"""PostgreSQL's `\1` and `\&` as Java's `$1` and `$0`; groups are numbered from `shift`."""
    out, characters = "", iter(text)
    for character in characters:
        if character == "\\":
            following = next(characters, "\\")
            if following.isdigit() and following != "0":
                out += f"${{g{int(following) + shift}}}"
            elif following == "&":
                out += f"${{g{shift}}}"
            else:
                out += "\\\\" if following == "\\" else f"\\\\{following}"
        else:
            out += "\\$" if character == "$" else character
    # A digit behind a group's number would belong to it.
    return re.sub(r"\$\{g(\d+)\}(\d?)", lambda m: f"${m[1]}" + (f"\\{m[2]}" if m[2] else ""), out)


def _escape(letter: str, pattern: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter in _SHORTHANDS or (letter.isdigit() and letter != "0"):
        return f"\\{letter}"
    if letter.isalnum():
        raise _refused(pattern, f"\\{letter}")
    return f"\\{letter}"


def _set(text: str, pattern: str) -> str:
    """A bracket expression: `[^[:alpha:]_-]`; in Java `[` and `&` inside are special too."""
    negated = text.startswith("[^")
    body = text[2:-1] if negated else text[1:-1]
    out = ""
    for part in re.finditer(r"\[:(\w+):\]|\\(.)|(.)", body, re.DOTALL):
        named, escaped, plain = part.groups()
        if named:
            if named not in _CLASSES:
                raise _refused(pattern, f"[:{named}:]")
            out += _CLASSES[named]
        elif escaped:
            out += _escape(escaped, pattern)
        else:
            out += f"\\{plain}" if plain in "[]&^~" else plain
    return f"[{'^' if negated else ''}{out}]"


def _refused(pattern: str, what: str) -> Unsupported:
    return Unsupported(
        f"the regular expression {pattern!r} is not supported: {what}",
        hint="use LIKE, starts_with, strpos or split_part",
    )
