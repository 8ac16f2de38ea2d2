"""Golden scenarios: commands with what they must print inline, one scenario a file.

    command option=value
    rows of the command
    ----
    what it prints

Blocks are separated by an empty line; lines that begin with # are comments. `REWRITE=1` records
what is printed now.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    comments: list[str]
    command: str
    rows: list[str]
    expected: list[str]


def scenarios_beside(file: str) -> list[Path]:
    """The scenarios in the folder of `file`."""
    return sorted(p for p in Path(file).parent.iterdir() if p.is_file() and not p.suffix)


def check_scenario(path: Path, run: Callable[[str, list[str]], list[str]]) -> None:
    """Run every command of the scenario; each must print what is said there."""
    blocks = list(parsed(path.read_text()))
    outputs = [run(block.command, block.rows) for block in blocks]
    if os.environ.get("REWRITE"):
        path.write_text("\n".join(printed(b, out) for b, out in zip(blocks, outputs, strict=True)))
    for block, output in zip(blocks, outputs, strict=True):
        assert output == block.expected or os.environ.get("REWRITE"), block.command


def parsed(text: str) -> Iterator[Block]:
    for chunk in text.split("\n\n"):
        lines = chunk.strip("\n").split("\n")
        comments = [line for line in lines if line.startswith("#")]
        lines = [line for line in lines if not line.startswith("#")]
        if not lines or not lines[0]:
            continue
        cut = lines.index("----") if "----" in lines else len(lines)
        yield Block(comments, lines[0], lines[1:cut], lines[cut + 1 :])


def printed(block: Block, output: list[str]) -> str:
    return "\n".join([*block.comments, block.command, *block.rows, "----", *output]) + "\n"
