"""The process behind baselines.Pipelines: a Spark Connect server, and pipelines run on it.

    python -m tidemark.bench.pipelines_process FOLDER MASTER

FOLDER has view.sql. Says {} when the server takes connections, then answers each line of standard
input with one of JSON: `refresh` runs the pipeline within this process, `run` by the command that
people use, `result` writes the view to a file. When standard input ends, so do the server and the
process. It is one of its own because Spark Connect and classic Spark do not go together in one, and
because its packages are nobody else's.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from tidemark.clock import SYSTEM_CLOCK
from tidemark.dev.process import free_port

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SERVER_SECONDS = 180.0
"""How long the server has to start."""

CORES = str(os.cpu_count() or 1)


def main(folder: Path, master: str) -> None:
    with _server(folder, master) as port:
        os.environ["SPARK_REMOTE"] = f"sc://127.0.0.1:{port}"
        spec = folder / "spark-pipeline.yml"
        # JSON is YAML.
        spec.write_text(
            json.dumps(
                {
                    "name": "bench",
                    "storage": (folder / "storage").as_uri(),
                    "libraries": [{"glob": {"include": "view.sql"}}],
                    "configuration": {"spark.sql.shuffle.partitions": CORES},
                }
            )
        )
        _say({})
        for line in sys.stdin:
            match line.strip():
                case "refresh":
                    _say({"seconds": _refresh(folder, spec)})
                case "run":
                    _say({"seconds": _run(folder, spec)})
                case _:
                    _say({"path": str(_result(folder))})


def _refresh(folder: Path, spec: Path) -> float:
    from pyspark.pipelines import cli

    with (folder / "pipelines.log").open("a") as log, redirect_stdout(log):
        start = SYSTEM_CLOCK.monotonic()
        cli.run(spec_path=spec, full_refresh=[], full_refresh_all=False, refresh=[], dry=False)
        return SYSTEM_CLOCK.monotonic() - start


def _run(folder: Path, spec: Path) -> float:
    """`spark-pipelines run` against the server, as a scheduler would."""
    home = Path(next(iter(pyspark.__path__)))
    command = [str(home / "bin" / "spark-pipelines"), "run", "--spec", str(spec)]
    environment = {**os.environ, "SPARK_HOME": str(home)}
    remote = environment.pop("SPARK_REMOTE")
    with (folder / "run.log").open("ab") as log:
        start = SYSTEM_CLOCK.monotonic()
        done = subprocess.run(
            [*command, "--remote", remote],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
        )
        took = SYSTEM_CLOCK.monotonic() - start
    if done.returncode:
        raise SystemExit(f"spark-pipelines failed:\n{(folder / 'run.log').read_text()[-4000:]}")
    return took


def _result(folder: Path) -> Path:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    try:
        view = spark.table("by_region").toArrow()
    finally:
        spark.stop()
    path = folder / "result.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, view.schema) as writer:
        writer.write_table(view)
    return path


@contextmanager
def _server(folder: Path, master: str) -> Iterator[int]:
    home = Path(next(iter(pyspark.__path__)))
    port = free_port()
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
        "spark.driver.memory": os.environ.get("TIDEMARK_DRIVER_MEMORY", "2g"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.codegen.cache.maxEntries": "5000",
    }
    command = [str(home / "bin" / "spark-submit"), "--class", SERVER, "--master", master]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log = folder / "server.log"
    with log.open("wb") as out:
        # The script becomes Java itself, so this is Java's process.
        server = subprocess.Popen(
            [*command, "spark-internal"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=folder,
            env={**os.environ, "SPARK_HOME": str(home)},
        )
    try:
        _wait(server, port, log)
        yield port
    finally:
        server.terminate()
        server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = SYSTEM_CLOCK.monotonic() + SERVER_SECONDS
    while SYSTEM_CLOCK.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            SYSTEM_CLOCK.sleep(0.1)
    raise SystemExit(f"the Spark Connect server did not start:\n{log.read_text()[-4000:]}")


def _say(what: dict[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(what) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
