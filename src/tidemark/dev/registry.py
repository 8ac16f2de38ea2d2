"""A schema registry on loopback: Apicurio Registry, under the REST interface of Confluent's.

It is a real registry, not a stand-in, so clients of Confluent's (its serializers, say) need only
the address. It comes with `make kafka` as an archive, is unpacked beside it at the first start, and
keeps its schemas in `folder`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidemark.dev import process
from tidemark.dev.kafka import java_program
from tidemark.errors import Unavailable

NAME = "registry"


@dataclass(frozen=True, slots=True)
class Registry:
    port: int
    process: process.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"


def start(
    folder: str | Path, *, port: int = 8081, preexec_fn: Callable[[], object] | None = None
) -> Registry:
    """Returns when it answers; port 0 is any free one."""
    folder = Path(folder).absolute()
    if process.alive(folder, NAME) is not None:
        raise Unavailable(
            f"a registry runs in {folder} already", hint="`tidemark dev registry down` stops it"
        )
    port = port or process.free_port()
    process.require_free(port)
    java, program = java_program(), _program()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.log.level": "WARN",
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "h2",
        "apicurio.datasource.url": f"jdbc:h2:file:{folder / 'schemas'}",
    }
    started = process.spawn(
        folder,
        NAME,
        [
            *(java, "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-D{name}={value}" for name, value in settings.items()),
            *("-jar", program),
        ],
        preexec_fn=preexec_fn,
    )
    registry = Registry(port, started)

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{registry.url}/subjects", timeout=5):
                return True
        except OSError:
            return False

    process.wait_until(answers, started, folder / f"{NAME}.log")
    return registry


def stop(folder: str | Path) -> bool:
    """False if none was running."""
    return process.stop(Path(folder).absolute(), NAME)


def _program() -> Path:
    archives = sorted(Path(sys.prefix, "kafka-registry").glob("*.tar.gz"))
    if not archives:
        raise Unavailable("the schema registry is not here", hint="run `make kafka`")
    archive = archives[-1]
    home = Path(sys.prefix, archive.name.removesuffix(".tar.gz"))
    if not home.is_dir():
        unpacked = Path(tempfile.mkdtemp(prefix="registry-", dir=sys.prefix))
        try:
            with tarfile.open(archive) as files:
                files.extractall(unpacked, filter="data")
            os.rename(unpacked, home)
        except OSError:
            shutil.rmtree(unpacked, ignore_errors=True)
            if not home.is_dir():  # Else someone was faster.
                raise
    return next(home.glob("*-runner.jar"))
