"""How much memory this process has, and had at most."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

PAGE = os.sysconf("SC_PAGE_SIZE")


def memory(field: str) -> int:
    """Bytes, of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise SystemExit("benchmarks of memory need Linux: /proc/self/status")


def family() -> dict[int, int]:
    """Resident bytes of this process and of all that descend from it, by pid."""
    parents, resident = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, ValueError):
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(folder.name)] = int(fields[1])
                resident[int(folder.name)] = int(fields[21]) * PAGE
    found = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return {pid: resident[pid] for pid in found if pid in resident}


class Sampled:
    """The most that `field` rises above its value at the start, looked at every few ms."""

    def __init__(self, field: str):
        self._field = field
        self._start = self._most = memory(field)
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            self._most = max(self._most, memory(self._field))

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self._most - self._start
