"""Fresh processes for a benchmark: with memory, caches and clients of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_MAIN = "import json, sys; from {} import {} as f; print(json.dumps(f(*json.loads(sys.argv[1]))))"


class Fresh:
    """`function(*arguments)` in a new interpreter; arguments and result travel as JSON.

    The function may print a line when it is ready; its result is the last line.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        code = _MAIN.format(function.__module__, function.__name__)
        command = [sys.executable, "-c", code, json.dumps(arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit("a process of the benchmark ended early; its error is above")

    def result(self) -> Any:
        printed, _ = self._process.communicate()
        if self._process.returncode:
            raise SystemExit("a process of the benchmark failed; its error is above")
        return json.loads(printed.splitlines()[-1])

    def __enter__(self) -> Fresh:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
