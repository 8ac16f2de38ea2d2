"""A server that outlives its starter: the lock on its pid file says whether it lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidemark.errors import Unavailable

START_SECONDS = 90.0
STOP_SECONDS = 30.0
FIRST_PORT = 10_000
USUALLY_HANDED_OUT = 32_768
TRIES = 100
DRAWN_APART = random.SystemRandom()  # two processes with one seed must not want the same port

Process = subprocess.Popen[bytes]


def spawn(
    folder: Path,
    name: str,
    command: Sequence[str | Path],
    *,
    preexec_fn: Callable[[], object] | None = None,
) -> Process:
    """Start `command` with its output in `folder/name.log`; at most one per folder and name."""
    lock = os.open(folder / f"{name}.pid", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"the {name} of {folder} is running already") from None
        os.ftruncate(lock, 0)
        with open(folder / f"{name}.log", "ab") as log:
            # The lock is the open file's, so it is the child's once we have closed ours.
            process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                start_new_session=True,
                preexec_fn=preexec_fn,
            )
        os.write(lock, str(process.pid).encode())
        return process
    finally:
        os.close(lock)


def alive(folder: Path, name: str) -> int | None:
    """The id of the running server's process."""
    try:
        lock = os.open(folder / f"{name}.pid", os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            except BlockingIOError:
                if pid := os.pread(lock, 20, 0):
                    return int(pid)
            time.sleep(0.01)  # Its starter has not written the id yet.
    finally:
        os.close(lock)


def stop(folder: Path, name: str, *, how: signal.Signals = signal.SIGTERM) -> bool:
    """End the server and wait until it is gone; False if there was none."""
    if (pid := alive(folder, name)) is None:
        return False
    os.kill(pid, how)
    deadline = time.monotonic() + STOP_SECONDS
    while alive(folder, name) == pid:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.03)
    return True


def wait_until(ready: Callable[[], bool], process: Process, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            ending = log.read_text(errors="replace")[-1500:].strip()
            raise Unavailable(f"the server did not start:\n{ending}", hint=f"its log is {log}")
        time.sleep(0.05)


def free_port() -> int:
    """A port for a server that starts in a moment, and may start there again.

    Below those that the system hands out by itself: any outgoing connection could take one of them
    before the server does.
    """
    for port in DRAWN_APART.sample(range(FIRST_PORT, _first_handed_out()), TRIES):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise Unavailable("no free port was found", hint="name one with --port")


def _first_handed_out() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return USUALLY_HANDED_OUT
    # Where nearly all are handed out, none is safe, and these are as good as others.
    return first if first > FIRST_PORT + TRIES else USUALLY_HANDED_OUT


def require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise Unavailable(
                f"port {port} cannot be had: {error.strerror}",
                hint="choose another with --port; 0 takes any free one",
            ) from None
