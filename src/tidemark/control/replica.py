"""A replica as control sees it: a process to keep alive, and connections to speak to it.

One that is already running (control was restarted) is adopted as it is; one that dies is started
again. Either way it is then told everything it should run.

    clusters/<name>.json   where it listens, its pid and its token
    clusters/<name>.lock   held as long as it lives
    log/clusterd-<name>.log
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
import structlog

from tidemark.clock import Clock
from tidemark.compute.lines import Lines
from tidemark.compute.protocol import (
    Address,
    CancelPeek,
    Configure,
    Failure,
    LookUp,
    Peek,
    Status,
    Statuses,
    Verified,
    Verify,
)
from tidemark.errors import TidemarkError, Unavailable
from tidemark.ipc import decode_table

log = structlog.get_logger("replica")

PING_EVERY = 1.0
START_TIMEOUT = 120.0
STOP_TIMEOUT = 30.0
SILENT_AFTER = 5.0
"""Seconds without a word after which another replica is asked first."""

MOST_PEEKS = 32
"""Queries that one replica is asked at a time; more wait their turn."""

T = TypeVar("T")

_TOKEN = b"x-tidemark-token"

_VERIFIED = msgspec.json.Decoder(Verified)
_STATUSES = msgspec.json.Decoder(Statuses, strict=False)
_ADDRESS = msgspec.json.Decoder(Address)
_FAILURE = msgspec.json.Decoder(Failure)


class Place(NamedTuple):
    """What all replicas of a server have in common; see `standby.py` for their generation."""

    data: Path
    blob: str
    consensus: str
    spark_master: str
    clock: Clock
    generation: int = 0


class Replica:
    """`name` is unique among all replicas of the server, and names its files."""

    def __init__(
        self,
        name: str,
        place: Place,
        *,
        spark_master: str | None = None,
        memory: str | None = None,
        changed: Callable[[], None] = lambda: None,
        heard: Callable[[Status], None] = lambda _: None,
    ):
        """`changed` is called when it comes and goes, `heard` for every status it reports."""
        self.name = name
        self.statuses: dict[str, Status] = {}
        self.jobs = 0
        self.spark_ui: str | None = None
        self.peeks = 0
        self.error: str | None = None
        self._suspect = False
        self._heard_at = 0.0
        self._data = place.data
        self._arguments = ["--data", str(place.data), "--name", name, "--blob", place.blob]
        self._arguments += ["--consensus", place.consensus]
        self._arguments += ["--spark-master", spark_master or place.spark_master]
        self._environment = {"TIDEMARK_DRIVER_MEMORY": memory} if memory else {}
        self._clock = place.clock
        self._changed = changed
        self._heard = heard
        self._wanted = Configure((), ())
        self._told: Configure | None = None
        self._telling = asyncio.Lock()
        self._address: Address | None = None
        self._connection: flight.FlightClient | None = None
        self._lines: Lines | None = None
        self._process: subprocess.Popen | None = None
        self._ready = False
        self._nudged = asyncio.Event()
        self._settled = asyncio.Event()
        self._task: asyncio.Task | None = None
        # Threads of its own: one that does not answer keeps no other waiting.
        self._threads = ThreadPoolExecutor(4, thread_name_prefix=f"replica-{name}")
        self._peekers = ThreadPoolExecutor(MOST_PEEKS, thread_name_prefix=f"peek-{name}")

    @property
    def pid(self) -> int | None:
        return self._address.pid if self._address else None

    @property
    def is_ready(self) -> bool:
        """It answers, and has been told what to run."""
        return self._ready

    @property
    def is_away(self) -> bool:
        """It was tried in vain; one that is only just starting is not away."""
        return self.error is not None and not self._ready

    @property
    def is_doubtful(self) -> bool:
        """It may not live any more: a query failed, or it has not said anything for a while."""
        return self._suspect or self._clock.monotonic() - self._heard_at > SILENT_AFTER

    @property
    def is_hydrated(self) -> bool:
        """All that it should maintain is as fresh as it gets."""
        return not self.unhydrated

    @property
    def unhydrated(self) -> list[str]:
        """Ids of what it should maintain and does not yet, but could."""
        fresh = {i for i, status in self.statuses.items() if status.hydrated and not status.error}
        later = self._later()
        views = [spec.id for spec in self._wanted.dataflows if spec.output not in later]
        indexes = [spec.id for spec in self._wanted.indexes if spec.shard not in later]
        return [id_ for id_ in (*views, *indexes) if id_ not in fresh]

    def _later(self) -> set[str]:
        """Shards of views whose first refresh is ahead, and of those that read them."""
        views = self._wanted.dataflows
        waiting = {id_ for id_, status in self.statuses.items() if status.awaits_refresh}
        found = {spec.output for spec in views if spec.id in waiting}
        while (
            more := {spec.output for spec in views if not found.isdisjoint(spec.inputs.values())}
            - found
        ):
            found |= more
        return found

    def start(self, wanted: Configure, after: asyncio.Future | None = None) -> None:
        """`after` is the end of one of the same name."""
        self._wanted = wanted
        # It outlives the session that asked for it, and has nothing to say in its name.
        self._task = asyncio.create_task(
            self._keep_alive(after), name=f"replica-{self.name}", context=Context()
        )

    async def configure(self, wanted: Configure) -> None:
        """From now on the replica should run exactly this; if it is away, it hears later."""
        self._wanted = wanted
        if self._ready:
            try:
                await self._tell()
            except Unavailable as error:
                self._lost(error.message)
                self._nudged.set()

    async def peek(self, peek: Peek) -> pa.Table:
        """Run a query. Cancelling cancels it there."""
        return await self._cancellably(peek.id, self._in(self._peekers, self._get, peek))

    async def verify(self, asked: Verify) -> Verified:
        """Compare a view with its query, in the same way."""
        call = self._act("verify", asked, timeout=None, threads=self._peekers)
        return _VERIFIED.decode(await self._cancellably(asked.id, call))

    async def settled(self) -> None:
        """After a query has failed: until it is known whether the replica lives."""
        if self._task is not None and not self._task.done():
            await self._settled.wait()

    async def look_up(self, asked: LookUp) -> pa.Table | None:
        """Look some keys up in an index; None if it takes a peek to know."""
        if self._lines is None:
            return None
        with self._peeking(), _translated(self.name):
            found = await self._lines.ask(asked)
        return None if found is None else decode_table(found)

    async def _cancellably(self, id_: str, running: Awaitable[T]) -> T:
        call = asyncio.ensure_future(running)
        with self._peeking():
            try:
                return await asyncio.shield(call)
            except asyncio.CancelledError:
                # Nobody is left to hear how it ends.
                call.add_done_callback(lambda task: task.cancelled() or task.exception())
                await asyncio.shield(self._cancel(id_))
                raise

    @contextlib.contextmanager
    def _peeking(self) -> Iterator[None]:
        self.peeks += 1
        try:
            yield
        except Unavailable:
            # Whether it lives is for the next ping to say, and soon.
            self._suspect = True
            self._settled.clear()
            self._nudged.set()
            raise
        finally:
            self.peeks -= 1

    async def stop(self, *, terminate: bool = True) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._settled.set()
        self._ready = False
        if self._lines is not None:
            self._lines.close()
        if terminate:
            await self._in(self._threads, self._terminate)
        for threads in (self._threads, self._peekers):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _keep_alive(self, after: asyncio.Future | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        failures = 0
        while True:
            doubtful = not self._settled.is_set()
            try:
                if not self._ready:
                    await self._connect()
                    self._told = None
                    await self._tell()
                    await self._hear()
                    failures, self.error, self._ready = 0, None, True
                    self._changed()
                    await self._tell()  # Something else may be wanted since it was told.
                else:
                    await self._hear()
                self._suspect, self._heard_at = False, self._clock.monotonic()
            except Unavailable as error:
                failures += 1
                self._lost(str(error))
                log.warning("replica is away", replica=self.name, error=error.message)
            except Exception as error:
                failures += 1
                self._lost(str(error))
                log.exception("could not reach the replica", replica=self.name)
            if doubtful:  # Since before it was asked.
                self._settled.set()
            pause = PING_EVERY if self._ready else min(failures * 0.2, 2.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):  # `wait_for` may lose the cancel that stops us.
                    await self._nudged.wait()
            self._nudged.clear()

    def _lost(self, error: str) -> None:
        self.error, self._ready = error, False
        self._changed()

    async def _tell(self) -> None:
        """What it should run now, until that is what it was told last."""
        async with self._telling:
            while self._told is not self._wanted:
                wanted = self._wanted
                await self._act("configure", wanted)
                self._told = wanted

    async def _hear(self) -> None:
        reply = await self._act("status", None)
        # A replica that was started by an earlier version may say things a bit differently.
        statuses = _STATUSES.decode(reply)
        self.statuses = {status.id: status for status in statuses.items}
        self.jobs, self.spark_ui = statuses.jobs, statuses.spark_ui
        for status in statuses.items:
            self._heard(status)

    def _last_words(self) -> str:
        """The last line of its log, without the name of the error."""
        with open(self._log_path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4_096))
            lines = file.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing was said")
        return said.removeprefix("tidemark.errors.")[:500]

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
                    f"clusterd stopped with code {self._process.returncode}: {self._last_words()}",
                    hint=f"more is in {self._log_path}",
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
        log.info("connected", replica=self.name, pid=self.pid)
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
                env=os.environ | self._environment,
            )
        log.info("started clusterd", replica=self.name, pid=self._process.pid)

    @property
    def _log_path(self) -> Path:
        return self._data / "log" / f"clusterd-{self.name}.log"

    @property
    def _address_path(self) -> Path:
        return self._data / "clusters" / f"{self.name}.json"

    def _open_address(self) -> bool:
        try:
            data = self._address_path.read_bytes()
            address = _ADDRESS.decode(data)
        except (FileNotFoundError, msgspec.DecodeError):
            return False
        if address != self._address:
            self._address = address
            self._connection = flight.connect(f"grpc://127.0.0.1:{address.port}")
            self._lines = Lines(address.lines, address.token) if address.lines else None
        return True

    async def _act(
        self,
        kind: str,
        message: object,
        *,
        timeout: float | None = 60,
        threads: ThreadPoolExecutor | None = None,
    ) -> bytes:
        def call() -> bytes:
            if self._connection is None:
                raise Unavailable(f"replica {self.name} is not connected")
            action = flight.Action(kind, msgspec.json.encode(message))
            with _translated(self.name):
                results = list(self._connection.do_action(action, self._options(timeout=timeout)))
                return results[0].body.to_pybytes()

        return await self._in(threads or self._threads, call)

    async def _in(self, threads: ThreadPoolExecutor, call: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, call, *given)

    def _get(self, peek: Peek) -> pa.Table:
        if self._connection is None:
            raise Unavailable(f"replica {self.name} is not connected")
        with _translated(self.name):
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
            if not self._is_locked():
                self._address_path.unlink(missing_ok=True)

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

    def __init__(self, replica: str):
        self._replica = replica

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        extra = getattr(error, "extra_info", None)
        if extra:
            raise _FAILURE.decode(extra).error from error
        if isinstance(error, pa.ArrowException | flight.FlightError | OSError):
            log.debug("no answer", replica=self._replica, error=str(error))
            raise Unavailable(
                f"replica {self._replica} is not answering",
                hint="it is being restarted; try again in a few seconds",
            ) from error
