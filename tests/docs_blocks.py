"""The code blocks of a page of Markdown, and what they should print.

    <!-- setup                      SQL that the reader need not see, in the page's source
    CREATE TABLE orders (id int);
    -->
    ```sql                          run, statement by statement, in the page's order
    SELECT count(*) FROM orders;
    ```
    ```text                         right behind it: what the last statement prints
     count
    -------
         0
    ```
    ```console
    $ tidemark shard list           run, too; the lines below are what it prints
    3 shards
    ```
    <!-- not run: why -->           a block that cannot be run says so
    ```sh
    <!-- tried by: tests/… -->      a test of its own takes the block from the page (`tried_by`);
    ```sh                           on a line alone: it does so with the whole page

Languages: sql, python, sh and console (lines with `$ `); json, toml and ini are settings,
which must be readable. A block without a language is no code: syntax, a picture, output that is not
compared. In what is compared, `…` is any value, and a last line `…` is any number of lines. What a
command prints may have more lines than are shown, and other numbers (`unlike`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
CODE = ("sql", "python", "sh", "console")
ANY = "…"

_FENCE = re.compile(
    r"^<!--\ssetup\n(?P<setup>.*?)^-->$"
    r"|(?:^<!--\snot\srun:\s(?P<why>[^\n]*?)\s-->\n\n?)?"
    r"(?:^<!--\stried\sby:\s(?P<test>\S+)\s-->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


_TRIED = re.compile(r"^<!-- tried by: (\S+) -->\n$", re.MULTILINE)

_SIZE = re.compile(r"(\d) (?:[KMG]i)?B\b")
_NUMBER = r"[0-9a-f]{32}|\d+(?:[.,:-]\d+)*"


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str
    not_run: str | None = None
    expected: str | None = None
    tried_by: str | None = None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_code(self) -> bool:
        return self.language in CODE and self.not_run is None and self.tried_by is None


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    end, text = 0, page.read_text()
    elsewhere = _TRIED.search(text)
    tried_by = elsewhere[1] if elsewhere else None
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if (setup := match["setup"]) is not None:
            found.append(Block(page, line, "sql", setup))
        elif match["language"] == "text":
            assert found, f"{page.name}:{line}: output of nothing"
            assert found[-1].language == "sql", f"{page.name}:{line}: output of what is not SQL"
            assert not text[end : match.start()].strip(), f"{page.name}:{line}: output of what?"
            found[-1] = found[-1]._replace(expected=match["text"])
        else:
            made = Block(page, line, match["language"], match["text"], match["why"])
            found.append(made._replace(tried_by=match["test"] or tried_by))
        end = match.end()
    return found


def all_blocks() -> Iterator[Block]:
    for page in PAGES:
        yield from blocks(page)


def tried_by(test: str) -> list[Block]:
    """The blocks that say so, for a test that does what they say."""
    found = [block for block in all_blocks() if block.tried_by == test]
    assert found, f"no block is tried by {test}"
    return found


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """Of a console block: each command, and the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:.*\\\n)*.*", part)
        assert command is not None
        found.append((command[0], part[command.end() :].splitlines()))
    assert found, f"{block.where}: no line with `$ `"
    return found


def unlike(printed: str, shown: list[str]) -> str | None:
    """The first line shown that is not printed, in this order.

    Numbers, sizes, ids and space are any; `…` and `...` are anything. What is printed as one line
    may be shown as several.
    """
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    if printed.count("\n") <= 1:
        shown = ["".join(line.strip() for line in shown)]
    for line in filter(str.strip, shown):
        pattern = re.compile(" ".join(_blurred(word) for word in _SIZE.sub(r"\1 B", line).split()))
        if not any(pattern.fullmatch(_SIZE.sub(r"\1 B", each)) for each in lines):
            return line
    return None


def _blurred(word: str) -> str:
    known = re.split(rf"({ANY}|\.\.\.|{_NUMBER})", word)
    values = (".*" if each in (ANY, "...") else f"(?:{_NUMBER})" for each in known[1::2])
    return "".join(
        re.escape(text) + value for text, value in zip(known[::2], (*values, ""), strict=True)
    )


def cells(output: str) -> list[list[str]]:
    """The lines of a table as psql prints it, or of COPY, without rules and row counts."""
    lines = [line for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not re.fullmatch(r"[-+ ]*-[-+ ]*|\(\d+ rows?\)", line)]
    return [[cell.strip() for cell in re.split(r"\||\t", line)] for line in lines]


def agrees(found: list[list[str]], expected: list[list[str]]) -> bool:
    if expected and expected[-1] == [ANY]:
        expected = expected[:-1]
        found = found[: len(expected)]
    return len(found) == len(expected) and all(
        len(one) == len(other)
        and all(ANY in b or a.strip() == b for a, b in zip(one, other, strict=True))
        for one, other in zip(found, expected, strict=True)
    )
