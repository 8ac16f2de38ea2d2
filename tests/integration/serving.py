"""A real server for tests: `tidemark serve` in its own process, on a port of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import psycopg

from tidemark.compute.protocol import Address


class Serving:
    """Start, kill, restart; `connect` gives an autocommit psycopg connection."""

    def __init__(self, data: Path):
        self.data = data
        self.port = 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Serving:
        """Start the server; returns once it has printed its ready line."""
        log = open(self.data.with_suffix(".log"), "a")  # noqa: SIM115 (the process keeps it)
        command = [sys.executable, "-m", "tidemark.cli", "serve", "--data", str(self.data)]
        self.process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{self.port}", "--spark-master", "local[2]"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready:"), f"{line!r}; see {self.data.with_suffix('.log')}"
        self.port = int(line.split(" -p ")[1].split()[0])
        return self

    def connect(self, **options: object) -> psycopg.Connection:
        return psycopg.connect(
            f"host=127.0.0.1 port={self.port} user=tidemark dbname=tidemark",
            autocommit=True,
            **options,  # type: ignore[arg-type]
        )

    @property
    def clusterd_pid(self) -> int:
        path = self.data / "clusters" / "quickstart.json"
        return msgspec.json.decode(path.read_bytes(), type=Address).pid

    @property
    def jvm_pid(self) -> int:
        found = subprocess.run(
            ["pgrep", "-P", str(self.clusterd_pid)], capture_output=True, text=True, check=True
        )
        return int(found.stdout.split()[0])

    def kill_control(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, as an operator would; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=60)

    def destroy(self) -> None:
        """Leave nothing running, whatever state things are in."""
        if self.process is not None and self.process.poll() is None:
            self.kill_control()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(self.clusterd_pid, signal.SIGKILL)
