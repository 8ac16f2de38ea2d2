"""`tidemark sql` in a terminal of its own, for tests that type and read."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from pathlib import Path

import pexpect

PASTING_OFF = "\x1b[?2004l"
"""What a terminal is sent when a line was entered."""

PROGRAM = [sys.executable, "-m", "tidemark.cli", "sql"]


class Terminal:
    """A session in a terminal of its own; what is printed is compared without its colours."""

    def __init__(self, port: int, home: Path, patience: float = 60):
        self.history = home / "history"
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "EDITOR": "sed -i s/cluster/database/",
            "TIDEMARK_SQL_HISTORY": str(self.history),
        }
        self.child = pexpect.spawn(
            PROGRAM[0],
            [*PROGRAM[1:], "-p", str(port)],
            env=environment,  # type: ignore[arg-type]
            encoding="utf-8",
            timeout=patience,
            dimensions=(40, 160),
        )

    def close(self) -> None:
        """End it, whatever it does; pexpect itself gives up if that takes a moment."""
        with contextlib.suppress(ProcessLookupError):
            self.child.kill(signal.SIGKILL)
        self.child.wait()
        self.child.close()

    def expect(self, pattern: str) -> str:
        """What was printed up to it, and itself."""
        self.child.expect(pattern)
        return plain(self.child.before + self.child.after)

    def prompt(self, mark: str = "") -> str:
        return self.expect(rf"tidemark={re.escape(mark)}>")

    def run(self, text: str, mark: str = "") -> str:
        """What it prints, up to the next prompt."""
        self.child.sendline(text)
        self.child.expect_exact(PASTING_OFF)  # The line was taken: what follows is its result.
        return self.prompt(mark)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r", "", text)
