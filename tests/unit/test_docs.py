"""What the docs promise of themselves: all code is run or says why not, all statements are shown."""

from __future__ import annotations

import configparser
import json
import re
import runpy
import tomllib
from typing import get_args

from docs_blocks import CODE, ROOT, all_blocks
from tidemark.control import statements as s
from tidemark.control.parse import parse, split

MOST_NOT_RUN = 4
"""So that there are reasons to run a block, and not the other way around."""

READERS = {
    "json": json.loads,
    "toml": tomllib.loads,
    "ini": lambda text: configparser.ConfigParser(strict=False).read_string(text),
}

_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_every_block_is_run_or_says_why_not() -> None:
    marked = [f"{block.where}: {block.not_run}" for block in all_blocks() if block.not_run]
    assert len(marked) <= MOST_NOT_RUN, "\n".join(marked)
    for block in all_blocks():
        if block.tried_by is not None:
            # By its name, or `tried_by` has it taken from the page.
            test = (ROOT / block.tried_by).read_text()
            assert block.page.name in test or f'tried_by("{block.tried_by}")' in test, block.where
            continue
        if block.not_run is None and block.language in READERS:
            READERS[block.language](block.text)
        known = block.language in (*CODE, *READERS, "") or block.not_run is not None
        assert known, f"{block.where}: {block.language} can neither be run nor is it marked"
        if not block.language and block.not_run is None:
            code = re.search(r"^\$ |;\s*$", block.text, re.MULTILINE)
            assert code is None, f"{block.where}: is this code? then say in which language"


def test_every_statement_has_an_example() -> None:
    shown = {
        type(parse(sql))
        for block in all_blocks()
        if block.is_code and block.language == "sql" and block.page.parent.name == "sql"
        for sql in split(re.sub(r"(?ms)(FROM STDIN[^;]*;\n).*?^\\\.$", r"\1", block.text))
    }
    missing = {kind.__name__ for kind in _kinds(s.Statement)} - {kind.__name__ for kind in shown}
    assert not missing


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in _LINK.findall(page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_the_performance_page_is_what_was_recorded() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "performance.py"))["page"]()
    assert (ROOT / "docs" / "performance.md").read_text() == written, "run scripts/performance.py"


def _kinds(union: object) -> set[type]:
    """Unions of unions are flat already, but for names that stand for one."""
    return {kind for part in get_args(union) for kind in (get_args(part) or (part,))}
