"""Failpoints: named places at which a test has this process die, as if by kill -9.

    TIDEMARK_FAILPOINT=dataflow.acc-written:3      when that is reached for the third time

Without the variable nothing ever happens. tests/crash/test_views_crash.py has the list.
"""

from __future__ import annotations

import os
import signal
from itertools import count

_NAME, _, _WHICH = os.environ.get("TIDEMARK_FAILPOINT", "").partition(":")
_TIMES = count(1)


def reached(name: str) -> None:
    if name == _NAME and next(_TIMES) == int(_WHICH or 1):
        os.kill(os.getpid(), signal.SIGKILL)
