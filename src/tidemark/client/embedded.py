"""`tidemark.local(path)`: a database in a folder, and no server to start or to stop.

There is one, of course: reads are consistent because one process orders them. It is a child of
this process (`keeper.py`), on a free port of the loopback interface that only this machine
reaches, and it stops when the database is closed or this process ends, however it ends. Nothing
that was acknowledged is lost then, and the next `local(path)` goes on.

    DIR/local.json       where the server of this folder listens, and whose it is
    DIR/local.lock       held while one is started or stopped: whoever else comes waits for that
    DIR/log/serve.log    what it had to say

A second `local(path)`, from here or from another process, joins the server that runs; it stops
when the one that has started it closes.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tidemark.client.database import Database, connect
from tidemark.client.keeper import Listening, Word
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import InvalidUsage, Unavailable

ADDRESS, LOCK, LOG = "local.json", "local.lock", "serve.log"
STOP_SECONDS = 60
"""How long a server that was told to stop may take."""
LET_GO_EVERY = 0.5

TAKEN = "another tidemark server"
"""What a server says of a folder that is another's."""


class Kept(msgspec.Struct, frozen=True):
    """What the file says; `owner` is the process that will stop the server."""

    host: str
    port: int
    owner: int


def local(
    path: str | Path, *, spark_master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> Database:
    """The database in the folder `path`, made if it is not there; close it to stop its server.

    Starting takes some seconds, and views some more: Spark starts behind them. `spark_master` says
    where it runs; `settings` are the session's. A folder that a `tidemark serve` uses is
    `Unavailable`: `connect` to that server instead.
    """
    folder = Path(path).resolve()
    try:
        (folder / "log").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidUsage(f"{folder} cannot be a folder: {error.strerror}") from error
    with _alone(folder):
        kept = _kept(folder)
        if kept is not None and _lives(kept.owner):
            with suppress(Unavailable):
                return connect(host=kept.host, port=kept.port, settings=settings)
        child, address = _started(folder, spark_master, patient=kept is not None)
        try:
            mine = Kept(address.host, address.port, os.getpid())
            (folder / ADDRESS).write_bytes(msgspec.json.encode(mine))
            database = connect(host=address.host, port=address.port, settings=settings)
        except BaseException:
            _end(child, folder)
            raise
    stop = _once(child, folder)
    atexit.register(stop)
    database.on_close(stop)
    return database


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else starts or stops a server of this folder meanwhile."""
    with open(folder / LOCK, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kept(folder: Path) -> Kept | None:
    """Where the server of this folder is, or was last."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((folder / ADDRESS).read_bytes(), type=Kept)
    return None


def _lives(pid: int) -> bool:
    """A server whose owner is gone is about to stop: nobody should join it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(
    folder: Path, spark_master: str, *, patient: bool
) -> tuple[subprocess.Popen[bytes], Listening]:
    """A server; the one before, whose owner was killed, may take a moment to let go."""
    last = SYSTEM_CLOCK.monotonic() + STOP_SECONDS
    while True:
        child = _start(folder, spark_master)
        try:
            return child, _await_ready(child, folder)
        except BaseException as error:
            _stop(child)
            taken = isinstance(error, Unavailable) and TAKEN in error.message
            if not (taken and patient) or SYSTEM_CLOCK.monotonic() > last:
                raise
            SYSTEM_CLOCK.sleep(LET_GO_EVERY)


def _start(folder: Path, spark_master: str) -> subprocess.Popen[bytes]:
    with open(folder / "log" / LOG, "a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tidemark.client.keeper", str(folder), spark_master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for this process alone.
        )


def _await_ready(child: subprocess.Popen[bytes], folder: Path) -> Listening:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise Unavailable(
            f"the server of {folder} did not start", hint=f"see {folder / 'log' / LOG}"
        )
    word = msgspec.json.decode(line, type=Word)
    if isinstance(word, Listening):
        return word
    taken = TAKEN in word.message
    hint = "tidemark.connect(...) to it, or stop it first" if taken else word.hint
    raise Unavailable(word.message, hint=hint, sqlstate=word.sqlstate)


def _once(child: subprocess.Popen[bytes], folder: Path) -> Callable[[], None]:
    lock = threading.Lock()

    def stop() -> None:
        with lock:
            atexit.unregister(stop)
            if child.poll() is None and folder.is_dir():
                with _alone(folder):
                    _end(child, folder)
            else:
                _stop(child)

    return stop


def _end(child: subprocess.Popen[bytes], folder: Path) -> None:
    (folder / ADDRESS).unlink(missing_ok=True)
    _stop(child)


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
