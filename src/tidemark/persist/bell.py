"""A doorbell between the processes of one machine that share a file.

Whoever listens binds a Unix datagram socket in a folder beside the file; whoever has committed
sends the keys to every socket there. That costs microseconds, nobody polls, and no process has
to be up for the others to work: a socket whose owner died is removed by the next one who rings.

    <file>.bells/<pid>-<random>

A full socket is skipped: its owner, who reads all there is at once, sees how much that was and
takes it for "anything may have changed".
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from tidemark.clock import SYSTEM_CLOCK
from tidemark.persist.consensus import Watchers

LONGEST_ADDRESS = 100
"""Bytes of a socket's path; the system's limit is 104 or 108, the end included."""

LONGEST_MESSAGE = 16_384
QUEUE = 10
"""Datagrams that wait at one socket on Linux, unless configured otherwise."""

SETTLED_MS = 50
"""A folder's time of change is this coarse, or finer."""

_bells: dict[Path, Bell] = {}
_bells_lock = threading.Lock()


def bell_of(file: Path) -> Bell:
    """The one bell of this process for `file`."""
    folder = _folder_of(file.resolve())
    with _bells_lock:
        bell = _bells.get(folder)
        if bell is None:
            bell = _bells[folder] = Bell(folder)
        return bell


class Bell:
    def __init__(self, folder: Path):
        self.folder = folder
        self.watchers = Watchers(first=self._listen, last=self._stop)
        """Of this process; they are called directly when this process rings."""
        self._stat_path = str(folder)  # A Path costs more to look at than the folder.
        self._own: str | None = None
        self._ears: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._others: tuple[str, ...] = ()
        self._changed_ns = -1
        self._lock = threading.Lock()

    def ring(self, keys: Iterable[str]) -> None:
        """Tell every other process, and this one's watchers. Never fails, never waits."""
        named = tuple(keys)
        with suppress(OSError), self._lock:
            others = self._look_around()
            if others:
                message = "\0".join(named).encode()
                self._send(message if len(message) <= LONGEST_MESSAGE else b"", others)
        self.watchers.wake(*named)

    def _send(self, message: bytes, names: Iterable[str]) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        with _short_path(self.folder) as folder:
            for name in names:
                try:
                    self._sender.sendto(message, f"{folder}/{name}")
                except OSError as error:
                    if error.errno == errno.ECONNREFUSED:  # Its owner is dead.
                        with suppress(OSError):
                            os.unlink(self.folder / name)

    def _look_around(self) -> tuple[str, ...]:
        """The others' sockets; the folder is read only if it has changed since."""
        try:
            changed_ns = os.stat(self._stat_path).st_mtime_ns
        except FileNotFoundError:
            return ()
        if changed_ns != self._changed_ns:
            self._others = tuple(n for n in os.listdir(self.folder) if n != self._own)
            # What changes within the same tick of the file system's clock looks unchanged.
            settled = SYSTEM_CLOCK.now_ms() - changed_ns // 1_000_000 > SETTLED_MS
            self._changed_ns = changed_ns if settled else -1
        return self._others

    def _listen(self) -> None:
        """Raises OSError where there are no such sockets, or no place for one."""
        if not hasattr(socket, "AF_UNIX"):
            raise OSError(errno.EAFNOSUPPORT, "no Unix sockets here")
        name = f"{os.getpid()}-{uuid4().hex[:12]}"
        ears = _bound(self.folder, name)
        with self._lock:
            self._own, self._ears, self._changed_ns = name, ears, -1
        threading.Thread(target=self._hear, args=(ears,), name="bell", daemon=True).start()

    def _stop(self) -> None:
        ears, name = self._ears, self._own
        if ears is None or name is None:
            return
        self._ears = None  # So the listener ends with what it hears next.
        with suppress(OSError), self._lock:
            self._send(b"", [name])
        with suppress(OSError):
            os.unlink(self.folder / name)
            os.rmdir(self.folder)  # Unless others are there.

    def _hear(self, ears: socket.socket) -> None:
        with ears:
            while True:
                messages = [ears.recv(LONGEST_MESSAGE)]
                with suppress(BlockingIOError):
                    while True:
                        messages.append(ears.recv(LONGEST_MESSAGE, socket.MSG_DONTWAIT))
                if self._ears is not ears:
                    return
                if b"" in messages or len(messages) >= QUEUE:
                    self.watchers.wake(None)
                    continue
                keys = dict.fromkeys(k for m in messages for k in m.decode().split("\0"))
                self.watchers.wake(*keys)


def _bound(folder: Path, name: str) -> socket.socket:
    for attempt in range(10):
        ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            folder.mkdir(exist_ok=True)
            with _short_path(folder) as short:
                ears.bind(f"{short}/{name}")
            return ears
        except FileNotFoundError:  # The last of the others has just removed the folder.
            ears.close()
            if attempt == 9:
                raise
        except OSError:
            ears.close()
            raise
    raise AssertionError("unreachable")


def _folder_of(file: Path) -> Path:
    """Beside the file, unless sockets there would have too long an address."""
    beside = file.with_name(file.name + ".bells")
    if _is_short(beside) or Path("/proc/self/fd").is_dir():
        return beside
    digest = hashlib.sha256(os.fsencode(file)).hexdigest()[:20]
    return Path(tempfile.gettempdir(), f"tidemark-{digest}.bells")


def _is_short(folder: Path) -> bool:
    return len(os.fsencode(folder)) + 32 < LONGEST_ADDRESS


@contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """The folder's path; a long one is reached by way of a descriptor."""
    if _is_short(folder):
        yield str(folder)
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
