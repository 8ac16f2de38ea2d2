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
    <!-- not run: why -->           a block that cannot be run says so
    ```sh
    <!-- tried by: tests/… -->      of a whole page, whose blocks a test of its own goes through

Languages: sql, python, sh and console (lines with `$ `); json, toml and ini are settings, which must
be readable. A block without a language is no code:
syntax, a picture, output that is not compared. In what is compared, `…` is any value, and a last
line `…` is any number of lines.
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
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


_TRIED = re.compile(r"^<!-- tried by: (\S+) -->$", re.MULTILINE)


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
            found.append(made._replace(tried_by=tried_by))
        end = match.end()
    return found


def all_blocks() -> Iterator[Block]:
    for page in PAGES:
        yield from blocks(page)


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
