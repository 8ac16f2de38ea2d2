"""A Spark standalone cluster for tests: a master and two workers, each a process of its own.

A Python process has one Spark context at most, and the one of the tests is local. So what runs on
the cluster is a driver program in a process of its own:

    def test_something(spark_cluster):
        said = run_driver(PROGRAM, "an argument", master=spark_cluster.master)

The program finds the master in `sys.argv[1]` and the arguments after it. All of it ends with the
tests: executors end with their worker, and whatever is started here with the process of the tests.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

from services import (
    dying_with_parent,
    java_program,
    missing,
    temporary_folder,
    until,
)
from tidemark.clock import SYSTEM_CLOCK
from tidemark.dev.process import free_port

SPARK_HOME = Path(pyspark.__file__).parent
SCALA = next(SPARK_HOME.glob("jars/spark-core_*.jar")).name.split("_")[1].split("-")[0]
WORKERS = 2
DRIVER_SECONDS = 480.0

SUBMIT = {
    # Work begins when both executors are there, and what the compiler saves pays off later.
    "spark.cores.max": str(WORKERS),
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


class SparkCluster:
    """One core and one gigabyte for each worker, which is one executor of one application."""

    def __init__(self, java: Path, folder: Path):
        self._java = java
        self._folder = folder
        self._port = free_port()
        self._web_port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        self._master = self._launch(
            *("master.Master", "--host", "127.0.0.1"),
            *("--port", str(self._port), "--webui-port", str(self._web_port)),
        )
        until(lambda: self._alive() is not None, self._master, self._log("master.Master"))
        self.workers = [self._launch_worker(number) for number in range(WORKERS)]
        for number, worker in enumerate(self.workers):
            until(lambda: self._alive() == WORKERS, worker, self._log(f"worker.Worker-{number}"))

    def start_worker(self, number: int) -> None:
        """Start a worker that was killed, and wait until the master has heard of it."""
        before = self._alive() or 0
        self.workers[number] = self._launch_worker(number)
        log = self._log(f"worker.Worker-{number}")
        until(lambda: (self._alive() or 0) > before, self.workers[number], log)

    def kill_worker(self, number: int) -> None:
        """Kill a worker; its executors notice, and end."""
        worker = self.workers[number]
        before = self._alive() or 0
        worker.kill()
        worker.wait(timeout=120)
        until(lambda: (self._alive() or 0) < before, self._master, self._log("master.Master"))

    def executors(self) -> list[int]:
        """The process ids of the executors, in the order of their workers."""
        shown = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="],
            capture_output=True,
            text=True,
            check=True,
        )
        rows = [line.split(maxsplit=2) for line in shown.stdout.splitlines()]
        return [
            int(pid)
            for worker in self.workers
            for pid, parent, *args in rows
            if int(parent) == worker.pid and "CoarseGrainedExecutorBackend" in "".join(args)
        ]

    def stop(self) -> None:
        for process in (*self.workers, self._master):
            process.kill()
            process.wait(timeout=120)

    def _launch_worker(self, number: int) -> subprocess.Popen[bytes]:
        return self._launch(
            *("worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"),
            *("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"w{number}")),
            self.master,
            name=f"worker.Worker-{number}",
        )

    def _launch(self, what: str, *arguments: str, name: str = "") -> subprocess.Popen[bytes]:
        quiet = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
        packages = ("java.lang", "java.nio", "sun.nio.ch")
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in packages]
        home = self._java.parent.parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": SCALA,
            **({"JAVA_HOME": str(home)} if (home / "lib").exists() else {}),
        }
        with open(self._log(name or what), "ab") as log:
            return subprocess.Popen(
                [
                    *(self._java, *quiet, *opens, "-cp", f"{SPARK_HOME}/jars/*"),
                    *(f"org.apache.spark.deploy.{what}", *arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=environment,
                preexec_fn=dying_with_parent(signal.SIGKILL),
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _alive(self) -> int | None:
        """How many workers the master counts, None while it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._web_port, timeout=5)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/json/")
                found = json.loads(connection.getresponse().read())
            except (OSError, http.client.HTTPException, ValueError):
                return None
        return sum(worker["state"] == "ALIVE" for worker in found["workers"])


class Driver:
    """A driver program that runs; `said` is what it has printed so far."""

    def __init__(self, program: str | Path, *arguments: str, master: str, env: Mapping[str, str]):
        source = ["-c", textwrap.dedent(program)] if isinstance(program, str) else [str(program)]
        submit = " ".join(f"--conf {name}={value}" for name, value in SUBMIT.items())
        self.process = subprocess.Popen(
            [sys.executable, *source, master, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "TIDEMARK_DRIVER_MEMORY": "1g",
                "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell",
                **env,
            },
            preexec_fn=dying_with_parent(signal.SIGKILL),
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until(
        self, what: str, look: Callable[[], object], *, timeout: float = DRIVER_SECONDS
    ) -> None:
        """Until `look` returns something true; an error if the program ends before."""
        deadline = SYSTEM_CLOCK.monotonic() + timeout
        while not look():
            waiting = self.process.poll() is None and SYSTEM_CLOCK.monotonic() < deadline
            assert waiting, f"not so: {what}; the driver said:\n{self.said}"
            SYSTEM_CLOCK.sleep(0.05)

    def finish(self, *, timeout: float = DRIVER_SECONDS) -> str:
        """What the program printed, once it has ended well."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the driver did not end in {timeout:.0f} s; it said:\n{self.said}"
            ) from None
        self._reader.join(timeout=120)
        assert code == 0, f"the driver ended with {code}; it said:\n{self.said}"
        return self.said

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=120)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line


@contextlib.contextmanager
def driver(
    program: str | Path, *arguments: object, master: str, env: Mapping[str, str] | None = None
) -> Iterator[Driver]:
    """A driver program while the block runs: source text, or the path of a file."""
    started = Driver(program, *map(str, arguments), master=master, env=env or {})
    try:
        yield started
    finally:
        started.kill()


def run_driver(
    program: str | Path,
    *arguments: object,
    master: str,
    env: Mapping[str, str] | None = None,
    timeout: float = DRIVER_SECONDS,
) -> str:
    """What a driver program prints; an error with all of that if it fails."""
    with driver(program, *arguments, master=master, env=env) as started:
        return started.finish(timeout=timeout)


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    java = java_program()
    if java is None:
        missing("a Spark cluster (run make setup, which finds a Java)")
    with temporary_folder() as folder:
        cluster = SparkCluster(java, folder)
        try:
            yield cluster
        finally:
            cluster.stop()
