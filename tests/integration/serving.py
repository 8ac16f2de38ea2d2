"""A real server for tests: `tidemark serve` in its own process, on a port of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import msgspec
import psycopg

from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.protocol import Address
from tidemark.dev.process import free_port

T = TypeVar("T")

DEADLINE = 240.0
"""Seconds after which something that should happen is given up: generous, for busy machines."""

DEFAULT_REPLICA = "quickstart-r1"

_MARK = "TIDEMARK_TEST_SERVER"


def eventually(
    what: str, look: Callable[[], T], *, deadline: float = DEADLINE, every: float = 0.1
) -> T:
    """What `look` returns once that is true; an error that says `what` did not come about."""
    last = SYSTEM_CLOCK.monotonic() + deadline
    while not (found := look()):
        assert SYSTEM_CLOCK.monotonic() < last, f"{what}: not within {deadline:.0f} s"
        SYSTEM_CLOCK.sleep(every)
    return found


class Serving:
    """Start, kill, restart; `connect` gives an autocommit psycopg connection."""

    def __init__(self, data: Path, *options: str):
        self.data = data
        self.port = free_port()
        self.http_port = free_port()
        self.ready = ""
        self.process: subprocess.Popen[str] | None = None
        self._options = options
        # All that the server starts inherits the mark, so nothing that is left escapes.
        self._mark = uuid4().hex

    def start(self) -> Serving:
        """Start the server; returns once it has printed its ready line."""
        self.process = self.launch()
        assert self.process.stdout is not None
        overdue = threading.Timer(DEADLINE, self.process.kill)
        overdue.start()
        line = self.process.stdout.readline()
        overdue.cancel()
        assert line.startswith("ready:"), f"{line!r}; the log says: {self.log[-2000:]}"
        self.ready = line
        self.port = int(line.split(" -p ")[1].split()[0])
        if " | http" in line:
            self.http_port = int(line.rsplit(":", 1)[1])
        return self

    def launch(self) -> subprocess.Popen[str]:
        """The same command once more; `start` is what gives a server to work with."""
        command = [sys.executable, "-m", "tidemark.cli", "serve", "--data", str(self.data)]
        with open(self._log_path, "a") as log:
            return subprocess.Popen(
                [
                    *command,
                    "--listen",
                    f"127.0.0.1:{self.port}",
                    "--http",
                    f"127.0.0.1:{self.http_port}",
                    "--spark-master",
                    "local[2]",
                    *self._options,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environment,
            )

    @property
    def environment(self) -> dict[str, str]:
        key = self.data.with_name(f"{self.data.name}.key")
        return {**os.environ, _MARK: self._mark, "TIDEMARK_SECRETS_KEY": str(key)}

    def connect(self, **options: object) -> psycopg.Connection:
        return psycopg.connect(
            f"host=127.0.0.1 port={self.port} user=tidemark dbname=tidemark",
            autocommit=True,
            **options,  # type: ignore[arg-type]
        )

    @contextlib.contextmanager
    def history_kept(self) -> Iterator[psycopg.Connection]:
        """A transaction that holds its time: from there on all can be read AS OF, however late."""
        with self.connect() as holder:
            holder.execute("SET idle_in_transaction_session_timeout = 0")
            holder.execute("BEGIN")
            holder.execute("SELECT 1")
            yield holder

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def log(self) -> str:
        """What control has said so far, in all its lives."""
        return self._log_path.read_text()

    @property
    def statement_log(self) -> str:
        path = self.data / "log" / "statements.jsonl"
        return path.read_text() if path.exists() else ""

    @property
    def clusterd_log(self) -> str:
        path = self.data / "log" / f"clusterd-{DEFAULT_REPLICA}.log"
        return path.read_text() if path.exists() else ""

    @property
    def clusterd_pid(self) -> int:
        return self.replica_pid(DEFAULT_REPLICA)

    def replica_pid(self, name: str) -> int:
        """Of a replica by the name of its files: `quickstart-r1`."""
        path = self.data / "clusters" / f"{name}.json"
        return msgspec.json.decode(path.read_bytes(), type=Address).pid

    @property
    def jvm_pid(self) -> int:
        return self.replica_jvm_pid(DEFAULT_REPLICA)

    def replica_jvm_pid(self, name: str) -> int:
        parent = str(self.replica_pid(name))
        found = subprocess.run(["pgrep", "-P", parent], capture_output=True, text=True, check=True)
        return int(found.stdout.split()[0])

    @property
    def running(self) -> dict[int, str]:
        """Every process of this server that is alive, with its command."""
        found = {}
        mark = f"{_MARK}={self._mark}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            # It may end, or be someone else's.
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes()
                    found[int(folder.name)] = command.replace(b"\0", b" ").decode()[:200]
        return found

    def pids(self, program: str) -> list[int]:
        """The processes of this server whose command has `program` in it."""
        return sorted(pid for pid, command in self.running.items() if program in command)

    def kill_control(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_all(self) -> None:
        """Everything at once: control, clusterd, its JVM and what else there is."""
        for pid in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self) -> int:
        """SIGTERM, as an operator would; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=DEADLINE)

    def destroy(self) -> None:
        """Leave nothing running, whatever state things are in."""

        def gone() -> bool:
            self.kill_all()
            return not self.running

        eventually("an end of all processes", gone)
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def _log_path(self) -> Path:
        return self.data.with_suffix(".log")
