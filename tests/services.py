"""Real servers for the tests, on loopback: PostgreSQL, S3, Kafka and a schema registry.

Each is started when the first test of a session asks for it and stopped at its end. Where one
cannot be had, the tests are skipped with the reason, and fail where CI is set.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest

from tidemark.dev import registry as registry_server
from tidemark.dev.kafka import Broker
from tidemark.dev.process import free_port
from tidemark.spark.session import kafka_jars

START_SECONDS = 240.0
AWS = {"AWS_ACCESS_KEY_ID": "tidemark", "AWS_SECRET_ACCESS_KEY": "tidemark-secret"}


class PostgresServer:
    """A cluster in a folder of its own; its default is synchronous_commit off, the worst case."""

    def __init__(self, programs: Path, folder: Path):
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        self._user = _unprivileged(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        subprocess.run(
            [
                *(programs / "initdb", "--no-sync", "--auth=trust", "--username=tidemark"),
                *("--encoding=UTF8", "--locale=C", "-D", self._data),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            **self._user,
        )
        self.start()

    def uri(self, schema: str = "") -> str:
        address = f"postgres://tidemark@127.0.0.1:{self.port}/postgres"
        return f"{address}?schema={schema}" if schema else address

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on",
            "synchronous_commit": "off",
            "shared_buffers": "16MB",
            "max_connections": "60",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-p", str(self.port), *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=dying_with_parent(signal.SIGQUIT),
                **self._user,
            )
        until(self._answers, self._process, self._folder / "log")

    def kill(self) -> None:
        """What `pg_ctl stop -m immediate` does: nobody gets to say goodbye."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=120)
            self._process = None

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.uri(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class S3Server:
    """S3Proxy on a folder, with one bucket; it checks signatures against `AWS`."""

    bucket = "tidemark-tests"

    def __init__(self, java: Path, jars: Path, folder: Path):
        self._java = java
        self._jars = jars
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        (folder / "data" / self.bucket).mkdir(parents=True)
        (folder / "s3proxy.conf").write_text(
            f"s3proxy.endpoint={self.endpoint}\n"
            "s3proxy.authorization=aws-v4\n"
            f"s3proxy.identity={AWS['AWS_ACCESS_KEY_ID']}\n"
            f"s3proxy.credential={AWS['AWS_SECRET_ACCESS_KEY']}\n"
            "jclouds.provider=filesystem-nio2\n"
            f"jclouds.filesystem.basedir={folder / 'data'}\n"
        )
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def uri(self, prefix: str = "", *, bucket: str = bucket) -> str:
        path = f"/{prefix}" if prefix else ""
        return f"s3://{bucket}{path}?endpoint={self.endpoint}&region=us-east-1"

    def start(self) -> None:
        quiet = Path(__file__).parent.parent / "scripts" / "s3-server" / "logback.xml"
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *(f"-Dlogback.configurationFile={quiet}", "-cp", f"{self._jars}/*"),
                    *("org.gaul.s3proxy.Main", "--properties", self._folder / "s3proxy.conf"),
                ],
                stdout=log,
                stderr=log,
                preexec_fn=dying_with_parent(signal.SIGKILL),
            )
        until(self._answers, self._process, self._folder / "log")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=120)
            self._process = None

    stop = kill

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except OSError:
            return False
        finally:
            connection.close()
        return True


class KafkaServer:
    """A broker in a folder; killed or stopped, it starts again at the same address."""

    def __init__(self, folder: Path, *, security: str = "none"):
        self.broker = Broker.at(folder, port=0, security=security)
        self.start()

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def client_settings(self) -> dict[str, str]:
        return self.broker.client_settings()

    def create_topic(self, name: str, *, partitions: int = 1, **config: str) -> None:
        """`config` with underscores for dots: cleanup_policy="compact"."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.broker.create_topic(name, partitions=partitions, config=settings)

    def start(self) -> None:
        self.broker.start(preexec_fn=dying_with_parent(signal.SIGKILL))

    def kill(self) -> None:
        self.broker.kill()

    def stop(self) -> None:
        self.broker.stop()


@pytest.fixture(scope="session")
def kafka_folder() -> Iterator[Path]:
    """For a broker of a test's own; only where Kafka can be had."""
    if not (Path(sys.prefix, "kafka").is_dir() and kafka_jars()):
        missing("Kafka (run make kafka)")
    with temporary_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def kafka(kafka_folder: Path) -> Iterator[KafkaServer]:
    server = KafkaServer(kafka_folder / "shared")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """The address of a schema registry."""
    if not Path(sys.prefix, "kafka-registry").is_dir():
        missing("a schema registry (run make kafka)")
    with temporary_folder() as folder:
        server = registry_server.start(folder, port=0, preexec_fn=dying_with_parent(signal.SIGKILL))
        yield server.url
        registry_server.stop(folder)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    programs = _postgres_programs()
    if programs is None:
        missing("consensus in PostgreSQL (install a PostgreSQL server)")
    with temporary_folder() as folder:
        server = PostgresServer(programs, folder)
        yield server
        server.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    java, jars = java_program(), Path(sys.prefix, "s3-server")
    if java is None or not jars.is_dir():
        missing("blobs in S3 (run scripts/test-deps.sh .venv)")
    with temporary_folder() as folder, pytest.MonkeyPatch.context() as environment:
        for name, value in AWS.items():
            environment.setenv(name, value)
        server = S3Server(java, jars, folder)
        yield server
        server.stop()


@pytest.fixture(scope="session")
def postgres_uri(postgres_server: PostgresServer) -> str:
    return postgres_server.uri()


@pytest.fixture(scope="session")
def s3_uri(s3_server: S3Server) -> str:
    return s3_server.uri()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, for filling it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tidemark-test", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        missing("a disk that is full, which takes root and the right to mount a small one")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def missing(what: str) -> NoReturn:
    """The component is not there: a failure where CI is set, else a skip that says so."""
    if os.environ.get("CI"):
        pytest.fail(f"NOT TESTED HERE: {what}; CI is set, so that is a failure")
    pytest.skip(f"NOT TESTED HERE: {what}")


def program(name: str) -> str:
    """Where a program of the machine is, which scripts/test-deps.sh installs."""
    return shutil.which(name) or missing(f"{name} (run scripts/test-deps.sh .venv)")


def _postgres_programs() -> Path | None:
    """The folder of initdb and postgres, the newest where there are several."""
    found = glob("/usr/lib/postgresql/*/bin/initdb")
    found.sort(key=lambda path: int(path.split("/")[4]) if path.split("/")[4].isdigit() else 0)
    if on_path := shutil.which("initdb"):
        found.append(os.path.realpath(on_path))
    whole = [Path(path).parent for path in found if Path(path).with_name("postgres").exists()]
    return whole[-1] if whole else None


def java_program() -> Path | None:
    with contextlib.suppress(OSError):
        return Path(Path(sys.prefix, "java-home").read_text().strip(), "bin", "java")
    found = shutil.which("java")
    return Path(found) if found else None


def _unprivileged(folder: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: give the folder to someone who is not."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
    missing("consensus in PostgreSQL (as root it needs a user `postgres` or `nobody`)")


def dying_with_parent(how: signal.Signals) -> Callable[[], None] | None:
    """A test run that is killed must not leave servers behind; only Linux offers that."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(1, int(how))


def until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"a test server did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.03)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tidemark-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
