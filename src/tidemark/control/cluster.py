"""A cluster as control sees it: a process to keep alive, and a Flight connection to speak to it.

A replica that is already running (control was restarted) is adopted as it is; one that dies is
started again. Either way it is then told everything it should run.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
import structlog

from tidemark.clock import Clock
from tidemark.compute.clusterd import Failure
from tidemark.compute.protocol import (
    Address,
    CancelPeek,
    Configure,
    Peek,
    Status,
    Statuses,
)
from tidemark.errors import TidemarkError, Unavailable

log = structlog.get_logger("cluster")

PING_EVERY = 1.0
START_TIMEOUT = 120.0
STOP_TIMEOUT = 30.0
_TOKEN = b"x-tidemark-token"


class Cluster:
    def __init__(
        self,
        name: str,
        *,
        data: Path,
        blob: str,
        consensus: str,
        spark_master: str,
        clock: Clock,
        heard: Callable[[Status], None] = lambda _: None,
    ):
        """`heard` is told every status that the replica reports."""
        self.name = name
        self.statuses: dict[str, Status] = {}
        self._data = data
        self._arguments = ["--data", str(data), "--name", name, "--blob", blob]
        self._arguments += ["--consensus", consensus, "--spark-master", spark_master]
        self._clock = clock
        self._heard = heard
        self._wanted = Configure((), ())
        self._address: Address | None = None
        self._connection: flight.FlightClient | None = None
        self._process: subprocess.Popen | None = None
        self._ready = asyncio.Event()
        self._task: asyncio.Task | None = None

    @property
    def pid(self) -> int | None:
        return self._address.pid if self._address else None

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    def start(self, wanted: Configure) -> None:
        self._wanted = wanted
        self._task = asyncio.create_task(self._keep_alive(), name=f"cluster-{self.name}")

    async def configure(self, wanted: Configure) -> None:
        """From now on the replica should run exactly this; if it is away, it hears later."""
        self._wanted = wanted
        if self._ready.is_set():
            try:
                await self._act("configure", wanted)
            except Unavailable:
                self._ready.clear()

    async def wait_ready(self) -> None:
        await self._ready.wait()

    async def peek(self, peek: Peek) -> pa.Table:
        """Run a query; waits for a replica that is still starting. Cancelling cancels it there."""
        await self.wait_ready()
        call = asyncio.create_task(asyncio.to_thread(self._get, peek))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            # Nobody is left to hear how it ends.
            call.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._cancel(peek.id))
            raise

    async def stop(self, *, terminate: bool = True) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if terminate:
            await asyncio.to_thread(self._terminate)

    async def _keep_alive(self) -> None:
        failures = 0
        while True:
            try:
                if not self._ready.is_set():
                    await self._connect()
                    await self._act("configure", self._wanted)
                    self._ready.set()
                    failures = 0
                reply = await self._act("status", None)
                # A replica that was started by an earlier version may say things a bit differently.
                statuses = msgspec.json.decode(reply, type=Statuses, strict=False)
                self.statuses = {status.id: status for status in statuses.items}
                for status in statuses.items:
                    self._heard(status)
            except Unavailable as error:
                self._ready.clear()
                failures += 1
                log.warning("replica is away", cluster=self.name, error=error.message)
            except Exception:
                self._ready.clear()
                failures += 1
                log.exception("could not reach the replica", cluster=self.name)
            await asyncio.sleep(PING_EVERY if self._ready.is_set() else min(failures * 0.2, 2.0))

    async def _connect(self) -> None:
        """Adopt the replica that the address file names, or start one."""
        if await self._answers():
            return
        if self._process is None or self._process.poll() is not None:
            self._spawn()
        assert self._process is not None
        deadline = self._clock.monotonic() + START_TIMEOUT
        while self._clock.monotonic() < deadline:
            if self._process.poll() is not None:
                raise Unavailable(
                    f"clusterd stopped with code {self._process.returncode} while starting",
                    hint=f"see {self._log_path}",
                )
            if await self._answers():
                return
            await asyncio.sleep(0.1)
        raise Unavailable(f"clusterd did not come up within {START_TIMEOUT:.0f} s")

    async def _answers(self) -> bool:
        """True if there is a replica at the address: ours, or one that an earlier control left.

        The latter may have been starting when control died, and so come up only now. Then ours
        is still waiting for its lock, and is not needed.
        """
        if not self._open_address():
            return False
        try:
            await self._act("status", None)
        except Unavailable:
            return False
        if self._process is not None and self._process.pid != self.pid:
            self._process.kill()
            self._process.wait()
            self._process = None
        log.info("connected", cluster=self.name, pid=self.pid)
        return True

    def _spawn(self) -> None:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        output: BinaryIO
        with open(self._log_path, "ab") as output:
            # A group of its own: Ctrl-C is control's to handle, and control may die alone.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidemark.compute.clusterd", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        log.info("started clusterd", cluster=self.name, pid=self._process.pid)

    @property
    def _log_path(self) -> Path:
        return self._data / "log" / f"clusterd-{self.name}.log"

    def _open_address(self) -> bool:
        try:
            data = (self._data / "clusters" / f"{self.name}.json").read_bytes()
            address = msgspec.json.decode(data, type=Address)
        except (FileNotFoundError, msgspec.DecodeError):
            return False
        if address != self._address:
            self._address = address
            self._connection = flight.connect(f"grpc://127.0.0.1:{address.port}")
        return True

    async def _act(self, kind: str, message: object) -> bytes:
        def call() -> bytes:
            if self._connection is None:
                raise Unavailable(f"cluster {self.name} is not connected")
            action = flight.Action(kind, msgspec.json.encode(message))
            with _translated():
                results = list(self._connection.do_action(action, self._options(timeout=60)))
                return results[0].body.to_pybytes()

        return await asyncio.to_thread(call)

    def _get(self, peek: Peek) -> pa.Table:
        if self._connection is None:
            raise Unavailable(f"cluster {self.name} is not connected")
        with _translated():
            ticket = flight.Ticket(msgspec.json.encode(peek))
            return self._connection.do_get(ticket, self._options()).read_all()

    async def _cancel(self, peek_id: str) -> None:
        try:
            await self._act("cancel", CancelPeek(peek_id))
        except TidemarkError as error:
            log.warning("could not cancel", peek=peek_id, error=error.message)

    def _options(self, timeout: float | None = None) -> flight.FlightCallOptions:
        token = self._address.token if self._address else ""
        return flight.FlightCallOptions(timeout=timeout, headers=[(_TOKEN, token.encode())])

    def _terminate(self) -> None:
        """Stop the replica, whether it was started or adopted, and even while it starts."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._open_address() and self.pid is not None:
            for signum in (signal.SIGTERM, signal.SIGKILL):
                # Its lock, not its pid, says that it lives: pids are used again.
                with contextlib.suppress(ProcessLookupError):
                    if self._is_locked():
                        os.kill(self.pid, signum)
                deadline = self._clock.monotonic() + STOP_TIMEOUT
                while self._is_locked() and self._clock.monotonic() < deadline:
                    self._clock.sleep(0.05)

    def _is_locked(self) -> bool:
        path = self._data / "clusters" / f"{self.name}.lock"
        try:
            with open(path) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True


class _translated:
    """Flight's errors as ours: the replica's own come back as they were raised."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        extra = getattr(error, "extra_info", None)
        if extra:
            failure = msgspec.json.decode(extra, type=Failure)
            raise TidemarkError(
                failure.message, hint=failure.hint, sqlstate=failure.sqlstate
            ) from error
        if isinstance(error, pa.ArrowException | flight.FlightError | OSError):
            lines = str(error).splitlines() or ["no answer"]
            raise Unavailable(
                f"the cluster is not answering: {lines[0]}",
                hint="it is being restarted; try again in a few seconds",
            ) from error
