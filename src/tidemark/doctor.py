"""`tidemark doctor`: what is installed, what is missing, and how to get it.

Every check looks at one thing and answers in one line. They run side by side, each with the same
few seconds, so one that hangs (a store that does not answer) delays no other. Nothing is left
behind but, where there is a Consensus, a dropped shard named `doctor`: to try a commit is to make
one.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from glob import glob
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

import msgspec

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import TidemarkError
from tidemark.settings import PREFIX, Resolved, misspelt, resolve
from tidemark.tools.location import Address, check_blob, check_consensus, locate
from tidemark.tools.output import console, counted, print_table, size

Status = Literal["ok", "warning", "missing"]

DEADLINE = 4.0
"""Seconds for all checks together."""

MIN_PYTHON = (3, 11)
PACKAGES = {
    "pyspark": "4.3",
    "pyarrow": "26",
    "numpy": "2",
    "pandas": "2",
    "python-dateutil": "2",
    "sqlglot": "30",
    "msgspec": "0",
    "obstore": "0",
    "psycopg": "3",
    "aiohttp": "3",
    "prometheus-client": "0",
    "structlog": "26",
    "typer": "0",
    "rich": "15",
}
"""How the versions begin that Tidemark is tested with (requirements/runtime.txt)."""

PORTS = {6875: "PostgreSQL clients", 6876: "HTTP"}
SLOW_COMMIT_MS, SLOW_WRITE_MS = 50, 500
LITTLE_DISK, LITTLE_MEMORY = 5 * 1024**3, 2 * 1024**3
SETUP = "run `make setup`"


class Check(msgspec.Struct, frozen=True):
    name: str
    status: Status
    detail: str
    fix: str = ""
    needed: bool = True


class Place(NamedTuple):
    """What was asked for: a data folder, stores, or neither; and what a server is told here."""

    data: Path | None
    where: Address | None
    told: Resolved | TidemarkError | None = None


def examine(
    data: Path | None, blob: str | None, consensus: str | None, config: Path | None = None
) -> list[Check]:
    try:
        told = resolve(file=config)
        if data is None and blob is None and consensus is None:
            data, blob, consensus = told.settings.data, told.settings.blob, told.settings.consensus
    except TidemarkError as error:
        told = error
    where = None
    if (blob and consensus) or (data is not None and data.is_dir()):
        where = locate(data, blob, consensus)
        # Not in the threads below: two that import the same modules can wait for each other.
        import tidemark.persist  # noqa: F401
    place = Place(data, where, told)
    results: list[list[Check]] = [[] for _ in CHECKS]

    def run(at: int, check: Callable[[Place], list[Check]]) -> None:
        name = check.__name__.lstrip("_")
        try:
            results[at] = check(place)
        except TidemarkError as error:
            results[at] = [Check(name, "missing", error.message, error.hint or "")]
        except Exception as error:  # A check that fails says so; the others go on.
            results[at] = [Check(name, "warning", f"could not be checked: {error!r}")]

    threads = [
        threading.Thread(target=run, args=(at, check), daemon=True)
        for at, check in enumerate(CHECKS)
    ]
    for thread in threads:
        thread.start()
    deadline = SYSTEM_CLOCK.monotonic() + DEADLINE
    for at, thread in enumerate(threads):
        thread.join(max(deadline - SYSTEM_CLOCK.monotonic(), 0.01))
        if thread.is_alive():
            name = CHECKS[at].__name__.lstrip("_")
            fix = "check the address and the network"
            results[at] = [Check(name, "missing", f"no answer within {DEADLINE:.0f} s", fix)]
    return [check for found in results for check in found]


def is_healthy(checks: list[Check]) -> bool:
    return not any(check.status == "missing" and check.needed for check in checks)


def print_checks(checks: list[Check]) -> None:
    from rich.text import Text

    styles = {"ok": "green", "warning": "yellow", "missing": "red"}
    print_table(
        ("check", "status", "found", "what to do"),
        [
            (
                check.name,
                Text(_status(check), style=styles[check.status] if check.needed else ""),
                check.detail,
                check.fix,
            )
            for check in checks
        ],
    )
    counts = {s: sum(c.status == s and c.needed for c in checks) for s in ("warning", "missing")}
    lacking = (
        "1 needed thing is" if counts["missing"] == 1 else f"{counts['missing']} needed things are"
    )
    verdict = "ready" if is_healthy(checks) else f"{lacking} missing"
    console().print(f"{verdict}; {counted(counts['warning'], 'warning')}")


def _status(check: Check) -> str:
    return "missing (optional)" if check.status == "missing" and not check.needed else check.status


# What it is told.


def _configuration(place: Place) -> list[Check]:
    if place.told is None:
        return []
    if isinstance(place.told, TidemarkError):
        return [Check("configuration", "missing", place.told.message, place.told.hint or "")]
    if lines := misspelt():
        fix = "correct its name, or unset it; `tidemark config show` has the names"
        return [Check("configuration", "warning", lines[0], fix)]
    origins = [given.origin for given in place.told.given.values()]
    variables = sum(origin.startswith(PREFIX) for origin in origins)
    count = f"{variables} variable{'' if variables == 1 else 's'}"
    file = f"{place.told.file} and {count}" if place.told.file else ""
    said = f"{count}, no file" if variables else "nothing is said, so all defaults"
    return [Check("configuration", "ok", file or said)]


# What is installed.


def _python(_: Place) -> list[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < MIN_PYTHON:
        return [Check("Python", "missing", version, "install Python 3.11 or later")]
    return [Check("Python", "ok", f"{version} in {sys.prefix}")]


def _packages(_: Place) -> list[Check]:
    checks, good = [], []
    for name, tested in PACKAGES.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            checks.append(Check(name, "missing", "not installed", SETUP))
            continue
        if f"{version}.".startswith(f"{tested}."):
            good.append(f"{name} {version}")
        else:
            detail = f"{version}; tested with {tested}"
            checks.append(Check(name, "warning", detail, f"{SETUP} for the tested version"))
    detail = f"{', '.join(good[:3])} and {max(len(good) - 3, 0)} others, as tested"
    return [Check("packages", "ok", detail), *checks]


def _java(_: Place) -> list[Check]:
    try:
        from tidemark.spark.session import find_java, java_version
    except ImportError as error:
        return [Check("Java", "warning", f"not looked for: {error}", SETUP)]
    found = Path(find_java())
    java = found if found.is_file() else found / "bin" / "java"
    version = java_version(java)
    if not version:
        return [Check("Java", "missing", f"{java} does not start", f"{SETUP}, or set JAVA_HOME")]
    return [Check("Java", "ok", f"{version}, {java}")]


def _spark_jars(place: Place) -> list[Check]:
    """Which only those need who keep their parts in S3, or read Kafka."""
    from tidemark.spark.session import kafka_jars, s3a_jars

    in_s3 = place.where is not None and place.where.blob.startswith("s3:")
    return [
        _jars("Spark on S3", s3a_jars(), "hadoop-aws", "s3a", needed=in_s3),
        _jars("Spark and Kafka", kafka_jars(), "spark-sql-kafka", "kafka", needed=False),
    ]


def _jars(name: str, jars: list[Path], main: str, target: str, *, needed: bool) -> Check:
    if jars:
        known = next((jar.stem for jar in jars if jar.name.startswith(main)), "jars")
        return Check(name, "ok", f"{known}, {jars[0].parent}")
    fix = f"run `make {target}`, or name a folder of jars with TIDEMARK_{target.upper()}_JARS"
    return Check(name, "missing", f"no jars of {main}", fix, needed=needed)


def _sqlite(_: Place) -> list[Check]:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < (3, 35):
        return [Check("SQLite", "warning", version, "use a Python with SQLite 3.35 or later")]
    return [Check("SQLite", "ok", version)]


def _optional(_: Place) -> list[Check]:
    """Programs that only tests and people at a prompt use."""
    checks = []
    for name, programs, fix in (
        ("psql", ("psql",), "install postgresql-client"),
        ("PostgreSQL server", ("initdb", "/usr/lib/postgresql/*/bin/initdb"), "install postgresql"),
        ("Maven", ("mvn",), "install maven"),
        (
            "Chromium",
            ("chromium", "chromium-browser", "google-chrome"),
            "install chromium; only tests of the console use it",
        ),
    ):
        found = next((path for each in programs if (path := _program(each))), None)
        status: Status = "ok" if found else "missing"
        detail = found or "not found"
        checks.append(Check(name, status, detail, "" if found else fix, needed=False))
    return checks


def _program(name: str) -> str | None:
    return next(iter(sorted(glob(name))), None) if "*" in name else shutil.which(name)


# The machine.


def _memory(_: Place) -> list[Check]:
    free = _available_memory()
    if free is None:
        return []
    if free < LITTLE_MEMORY:
        fix = "stop other programs; Spark wants 2 GiB"
        return [Check("memory", "warning", f"{size(free)} available", fix)]
    return [Check("memory", "ok", f"{size(free)} available")]


def _available_memory() -> int | None:
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _ports(place: Place) -> list[Check]:
    checks = []
    ports = PORTS
    if isinstance(place.told, Resolved):
        told = place.told.settings
        ports = {int(told.listen.rpartition(":")[2]): "PostgreSQL clients"}
        ports |= {} if told.no_http else {int(told.http.rpartition(":")[2]): "HTTP"}
    for port, purpose in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                checks.append(Check(f"port {port}", "ok", f"free, for {purpose}"))
                continue
            except OSError:
                pid = _listener(port)
        owner = f"process {pid} ({_command(pid)})" if pid else "another user's process"
        if pid and pid == _server(place.data):
            checks.append(Check(f"port {port}", "ok", f"used by the server of this data: {owner}"))
        else:
            fix = "stop it, or give the server another port with --listen"
            checks.append(Check(f"port {port}", "warning", f"used by {owner}", fix))
    return checks


def _listener(port: int) -> int | None:
    """The process that listens on `port`, if it is one that we may look at."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "0A":
                    inodes.add(f"socket:[{fields[9]}]")
    for descriptor in glob("/proc/[0-9]*/fd/*") if inodes else ():
        with suppress(OSError):
            if os.readlink(descriptor) in inodes:
                return int(descriptor.split("/")[2])
    return None


def _command(pid: int) -> str:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()[:60]
    return "unknown"


def _server(data: Path | None) -> int | None:
    with suppress(OSError, ValueError):
        return int((data / "control.lock").read_text()) if data is not None else None
    return None


# The data.


def _folder(place: Place) -> list[Check]:
    """Room, and how long it takes until something is safe on the disk."""
    folder = place.data or Path()
    checks = []
    if not folder.is_dir():
        detail = f"{folder} is not there yet; `tidemark serve` makes it"
        if folder.exists():
            fix = "name a folder"
            return [Check("data folder", "missing", f"{folder} is not a folder", fix)]
        checks.append(Check("data folder", "ok", detail))
    while not folder.is_dir():
        folder = folder.resolve().parent
    free = shutil.disk_usage(folder).free
    few = free < LITTLE_DISK
    fix = f"free some space on the disk of {folder.resolve()}" if few else ""
    status: Status = "warning" if few else "ok"
    checks.append(Check("disk space", status, f"{size(free)} free", fix))
    if not os.access(folder, os.W_OK | os.X_OK):
        fix = "choose another folder, or change its owner"
        return [*checks, Check("data folder", "missing", f"{folder} cannot be written", fix)]
    aside = folder / f".doctor-{uuid4().hex}"
    try:
        aside.mkdir()
        return [*checks, *_disk_speed(aside), _clock(aside)]
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _disk_speed(folder: Path) -> list[Check]:
    with closing(sqlite3.connect(folder / "commit.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE t (n)")
        begun = SYSTEM_CLOCK.monotonic()
        connection.execute("INSERT INTO t VALUES (1)")
        commit_ms = (SYSTEM_CLOCK.monotonic() - begun) * 1000
    begun = SYSTEM_CLOCK.monotonic()
    with open(folder / "part", "wb") as file:
        file.write(os.urandom(1024**2))
        file.flush()
        os.fsync(file.fileno())
    write_ms = (SYSTEM_CLOCK.monotonic() - begun) * 1000
    fix = "every commit waits for the disk: use a local SSD"
    return [
        Check(name, "warning" if ms > slow else "ok", f"{ms:.1f} ms", fix if ms > slow else "")
        for name, ms, slow in (
            ("durable commit", commit_ms, SLOW_COMMIT_MS),
            ("durable write of 1 MiB", write_ms, SLOW_WRITE_MS),
        )
    ]


def _clock(folder: Path) -> Check:
    now = SYSTEM_CLOCK.now_ms()
    fix = "set the clock, with NTP for example: times of data come from it"
    if not 1_735_000_000_000 < now < 4_100_000_000_000:
        return Check("clock", "warning", f"says {now} ms since 1970", fix)
    apart = abs(now - folder.stat().st_mtime_ns // 1_000_000)
    if apart > 5_000:
        return Check("clock", "warning", f"{apart} ms apart from the file system's", fix)
    return Check("clock", "ok", "plausible, and the file system's agrees")


def _blob(place: Place) -> list[Check]:
    """A value put, got and deleted."""
    if place.where is None:
        return []
    if (new := _not_yet("blob", place, check_blob, place.where.blob)) is not None:
        return [new]
    from tidemark.persist.location import open_blob

    blob, key, value = open_blob(place.where.blob), f"doctor/{uuid4().hex}", os.urandom(64)
    begun = SYSTEM_CLOCK.monotonic()
    blob.set(key, value)
    found = blob.get(key)
    blob.delete(key)
    ms = (SYSTEM_CLOCK.monotonic() - begun) * 1000
    if found != value or blob.get(key) is not None:
        return [Check("blob", "missing", "does not give back what was put", "do not use it")]
    return [Check("blob", "ok", f"put, got and deleted a value in {ms:.1f} ms")]


def _consensus(place: Place) -> list[Check]:
    """A commit to a shard that was dropped for that purpose."""
    if place.where is None:
        return []
    if (new := _not_yet("consensus", place, check_consensus, place.where.consensus)) is not None:
        return [new]
    from tidemark.persist import commands
    from tidemark.persist.config import Config
    from tidemark.persist.location import open_consensus
    from tidemark.persist.machine import Machine

    with closing(open_consensus(place.where.consensus)) as consensus:
        machine = Machine("doctor", consensus, SYSTEM_CLOCK, Config())
        machine.apply("finalize", commands.finalize)
        begun, mark = SYSTEM_CLOCK.monotonic(), SYSTEM_CLOCK.now_ms()
        machine.apply("raise_floor", lambda state: commands.raise_floor(state, mark))
        ms = (SYSTEM_CLOCK.monotonic() - begun) * 1000
        shards = len(consensus.keys()) - 1
        ahead = machine.refresh().at_ms - SYSTEM_CLOCK.now_ms()
    if ahead > 60_000:
        detail = f"its last commit lies {ahead // 1000} s in the future"
        return [Check("consensus", "warning", detail, "compare the clocks of the machines")]
    return [Check("consensus", "ok", f"committed in {ms:.1f} ms; {counted(shards, 'shard')}")]


def _not_yet(name: str, place: Place, check: Callable[[str], None], uri: str) -> Check | None:
    """Below a data folder that is new there is nothing to be found, and nothing wrong with it."""
    try:
        check(uri)
    except TidemarkError as error:
        if place.data is not None and not (place.data / "consensus.db").exists():
            return Check(name, "ok", "not there yet; `tidemark serve` makes it")
        return Check(name, "missing", error.message, error.hint or "")
    return None


CHECKS: tuple[Callable[[Place], list[Check]], ...] = (
    _configuration,
    _python,
    _packages,
    _java,
    _spark_jars,
    _sqlite,
    _memory,
    _ports,
    _folder,
    _blob,
    _consensus,
    _optional,
)
