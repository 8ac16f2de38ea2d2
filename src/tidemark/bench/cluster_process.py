"""Replicas for a benchmark: real `clusterd` processes, told what to run without a server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.protocol import Address, Configure, Statuses
from tidemark.persist import PersistClient

START_TIMEOUT = 180.0


class Store:
    """A folder with everything: blobs, consensus, caches and logs."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.blob = f"file://{folder}/blob"
        self.consensus = f"sqlite://{folder}/consensus.db"

    def open(self) -> PersistClient:
        return PersistClient.open(blob=self.blob, consensus=self.consensus)


class ReplicaProcess:
    def __init__(self, store: Store, name: str, *, spark_master: str):
        self._address = store.folder / "clusters" / f"{name}.json"
        self._address.unlink(missing_ok=True)
        arguments = ["--data", str(store.folder), "--name", name, "--blob", store.blob]
        arguments += ["--consensus", store.consensus, "--spark-master", spark_master]
        with open(store.folder / f"{name}.log", "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidemark.compute.clusterd", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._log = store.folder / f"{name}.log"
        self._connection: flight.FlightClient | None = None
        self._token = ""

    def wait_up(self) -> None:
        """Until its Spark session is up and it listens."""
        deadline = SYSTEM_CLOCK.monotonic() + START_TIMEOUT
        while not self._address.exists():
            if self._process.poll() is not None or SYSTEM_CLOCK.monotonic() > deadline:
                raise SystemExit(f"a replica did not start:\n{self._log.read_text()[-2000:]}")
            SYSTEM_CLOCK.sleep(0.02)
        address = msgspec.json.decode(self._address.read_bytes(), type=Address)
        self._connection = flight.connect(f"grpc://127.0.0.1:{address.port}")
        self._token = address.token
        threading.Thread(target=self._ping, name="ping", daemon=True).start()

    def _ping(self) -> None:
        """A replica that hears nothing for long stops."""
        while self._process.poll() is None:
            with contextlib.suppress(pa.ArrowException):
                self.statuses()
            SYSTEM_CLOCK.sleep(10.0)

    def configure(self, wanted: Configure) -> None:
        self._act("configure", wanted)

    def statuses(self) -> Statuses:
        return msgspec.json.decode(self._act("status", None), type=Statuses)

    def _act(self, kind: str, message: object) -> bytes:
        assert self._connection is not None
        options = flight.FlightCallOptions(
            timeout=120, headers=[(b"x-tidemark-token", self._token.encode())]
        )
        action = flight.Action(kind, msgspec.json.encode(message))
        return next(iter(self._connection.do_action(action, options))).body.to_pybytes()

    def cpu_seconds(self) -> float:
        """Of the driver, its JVM and their workers, so far."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self._process.pid:  # Its session.
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """SIGKILL: the driver, its JVM and all."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> ReplicaProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
