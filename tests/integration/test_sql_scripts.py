"""Runs the scenarios in tests/golden/sql through psql: statements with what psql prints inline.

    -- a comment
    SELECT 1 + 1 AS two;            statements, and psql's own \\commands
    ----
     two                            what psql must print, standard error included;
    -----                           `REWRITE=1 pytest …` records it anew
       2
    (1 row)

Blocks are separated by an empty line, so neither statements nor outputs have one (psql's are left
out). A scenario is one psql session against the server that all of them share: it uses names of
its own, and drops what it made. What differs from run to run is masked: `<time>` for a timestamp
of this timeline, `<id>` for an object's id, `<functions>` for the list of them, `<status>` for how it
does (where it is printed by \\a). Where a value decides how wide psql prints a column, use \\a (unaligned).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from serving import Serving

from services import program

SCENARIOS = sorted((Path(__file__).parents[1] / "golden" / "sql").glob("*.sql"))
REWRITE = bool(os.environ.get("REWRITE"))
END = "@@end of block@@"
PATIENCE = 600
MASKS = {
    re.compile(r"\b1[7-9]\d{11}\b"): "<time>",  # milliseconds since 1970, from 2023 to 2033
    re.compile(r"\(u\d+\)"): "(<id>)",
    re.compile(r'(?<="id": ")u\d+'): "<id>",
    re.compile(r'(?<="can_respond_immediately": )(true|false)'): "<true or false>",
    re.compile(r"(?<=can respond immediately: )(true|false)"): "<true or false>",
    re.compile(r"(?<=Tidemark maintains: ).*"): "<functions>",
    re.compile(r"(?<=\|)(starting|running)(?=\|)"): "<status>",
}


class Block(NamedTuple):
    script: str
    expected: str


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_script(path: Path, server: Serving):
    blocks = list(parsed(path.read_text()))
    with server.history_kept():
        outputs = run(server, [block.script for block in blocks])
    if REWRITE:
        recorded = [f"{b.script}\n----\n{out}\n" for b, out in zip(blocks, outputs, strict=True)]
        path.write_text("\n".join(recorded))
        return
    for block, output in zip(blocks, outputs, strict=True):
        assert output == block.expected, block.script


def parsed(text: str) -> Iterator[Block]:
    for chunk in re.split(r"\n{2,}", text.strip("\n")):
        script, _, expected = f"{chunk}\n".partition("\n----\n")
        yield Block(script.strip("\n"), expected.strip("\n"))


def run(server: Serving, scripts: list[str]) -> list[str]:
    """The output of each script, all run in one psql session."""
    fed = "".join(f"{script}\n\\echo {END}\n" for script in scripts)
    target = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "tidemark", "tidemark"]
    done = subprocess.run(
        [program("psql"), "-X", *target],
        env=os.environ | {"PGCLIENTENCODING": "UTF8", "PGOPTIONS": ""},
        input=fed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    outputs = done.stdout.split(f"{END}\n")
    assert len(outputs) == len(scripts) + 1, f"psql stopped half-way: {done.stdout[-2000:]}"
    assert outputs.pop().strip() == ""
    return [masked(output) for output in outputs]


def masked(output: str) -> str:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    text = "\n".join(lines)
    for pattern, mask in MASKS.items():
        text = pattern.sub(mask, text)
    return text
