"""Servers for a benchmark: a real `tidemark serve`, and a real PostgreSQL beside it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from glob import glob
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from tidemark.bench.memory import PAGE
from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.protocol import Address
from tidemark.dev.process import free_port
from tidemark.persist import PersistClient

START_TIMEOUT = 240.0
REPLICA = "quickstart-r1"


class ServerProcess:
    """`tidemark serve` on a folder; it can be stopped and started again."""

    def __init__(self, folder: Path, *, spark_master: str):
        self.folder = folder / "data"
        self._log = folder / "serve.log"
        self._arguments = ["--spark-master", spark_master, "--listen", "127.0.0.1:0"]
        self._arguments += ["--http", "127.0.0.1:0", "--secrets-key", str(folder / "secrets.key")]
        self._process: subprocess.Popen[str] | None = None
        self._http = ""
        self.dsn = ""

    def start(self) -> tuple[float, float]:
        """Seconds until it listens, and until it says itself that queries are answered."""
        begun = SYSTEM_CLOCK.monotonic()
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tidemark.cli", "serve", "--data", str(self.folder)),
                    *self._arguments,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready:"):
            raise SystemExit(f"the server did not start:\n{self._log.read_text()[-2000:]}")
        listening = SYSTEM_CLOCK.monotonic() - begun
        port = line.split(" -p ")[1].split()[0]
        self.dsn = f"host=127.0.0.1 port={port} user=tidemark dbname=tidemark"
        self._http = line.rsplit(" | ", 1)[1].strip()
        until(self._is_ready, "ready")
        return listening, SYSTEM_CLOCK.monotonic() - begun

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._http}/api/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.dsn, autocommit=True)

    def open_shards(self) -> PersistClient:
        """The server's shards, for somebody who looks at them from outside."""
        blob, consensus = self.folder / "blob", self.folder / "consensus.db"
        return PersistClient.open(blob=f"file://{blob}", consensus=f"sqlite://{consensus}")

    @property
    def control(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid]

    @property
    def cluster(self) -> list[int]:
        """The driver of the default cluster's replica, its JVM and their workers."""
        path = self.folder / "clusters" / f"{REPLICA}.json"
        driver = msgspec.json.decode(path.read_bytes(), type=Address).pid
        return [pid for pid, fields in _stats() if int(fields[3]) == driver]

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=START_TIMEOUT)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[PostgresProcess | None]:
    """A PostgreSQL that keeps what it is told, in a folder of its own; None if there is none on
    this machine."""
    programs = _postgres_programs()
    if programs is None:
        yield None
        return
    folder.mkdir()
    server = PostgresProcess(programs, folder)
    try:
        yield server
    finally:
        server.stop()


class PostgresProcess:
    """PostgreSQL as it comes, but with room for what the benchmark reads."""

    def __init__(self, programs: Path, folder: Path):
        data = folder / "data"
        user = _unprivileged(folder)
        port = free_port()
        self.dsn = f"host=127.0.0.1 port={port} user=tidemark dbname=postgres"
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "256MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        initdb = [programs / "initdb", "--no-sync", "--auth=trust", "--username=tidemark"]
        initdb += ["--encoding=UTF8", "--locale=C", "-D", data]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)
        with open(folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [programs / "postgres", "-D", data, "-p", str(port), *options],
                stdout=log,
                stderr=log,
                cwd=folder,
                **user,
            )
        until(self._answers, "a PostgreSQL that answers")

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.dsn, autocommit=True)

    @property
    def processes(self) -> list[int]:
        mine = self._process.pid
        return [mine, *(pid for pid, fields in _stats() if int(fields[1]) == mine)]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=60)

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise SystemExit("PostgreSQL did not start")
        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def _postgres_programs() -> Path | None:
    """The folder of initdb and postgres."""
    found = [*glob("/usr/lib/postgresql/*/bin/initdb")]
    if on_path := shutil.which("initdb"):
        found.append(os.path.realpath(on_path))
    whole = [Path(path).parent for path in found if Path(path).with_name("postgres").exists()]
    return whole[-1] if whole else None


def _unprivileged(folder: Path) -> dict[str, Any]:
    """PostgreSQL does not run as root: the folder goes to someone who is not."""
    if os.getuid() != 0:
        return {}
    user = next(u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody"))
    for each in (folder, folder.parent):
        os.chown(each, user.pw_uid, user.pw_gid) if each == folder else each.chmod(0o755)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}


# What processes use.


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Processes and the fields of their `stat` from the state on."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            yield int(stat.parent.name), stat.read_text().rpartition(")")[2].split()


def cpu_seconds(pids: Iterable[int]) -> float:
    """That these have used so far, and children of theirs that have ended."""
    wanted = set(pids)
    ticks = sum(sum(map(int, fields[11:15])) for pid, fields in _stats() if pid in wanted)
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mib(pids: Iterable[int]) -> float:
    wanted = set(pids)
    return sum(int(fields[21]) * PAGE for pid, fields in _stats() if pid in wanted) / (1 << 20)


def until(ready: Callable[[], object], what: str, *, seconds: float = START_TIMEOUT) -> None:
    deadline = SYSTEM_CLOCK.monotonic() + seconds
    while not ready():
        if SYSTEM_CLOCK.monotonic() > deadline:
            raise SystemExit(f"the benchmark waited in vain: {what}")
        SYSTEM_CLOCK.sleep(0.01)
