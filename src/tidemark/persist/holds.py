"""Holding history back: leases for readers, critical since handles for owners.

A *lease* is a reader's, in passing. It pins a time, and if it wants the parts that hold it, and
it ends by itself when its process has not renewed it for a while; one thread per process renews
all of them. A *critical* hold is durable and has a name and an epoch: it outlives processes, and
whoever carries a newer epoch takes it over and fences out the older holder.

Since follows the least of all holds, but only a critical one lets it advance (`set_hold`).
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from contextlib import suppress
from uuid import uuid4

import msgspec
import structlog
from msgspec.structs import replace

from tidemark.errors import AsOfBeforeSince, InvalidUsage, TidemarkError, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import commands
from tidemark.persist.commands import EpochMismatch
from tidemark.persist.config import Config
from tidemark.persist.machine import Machine
from tidemark.persist.state import Batch, Hold, State

log = structlog.get_logger("persist")


_NAMED = msgspec.msgpack.Decoder(tuple[str, Hold])


class Lease:
    """While it lives, since stays at or before its time, and the parts it listed stay in place."""

    def __init__(self, machine: Machine, hold_id: str, hold: Hold):
        self.shard_id = machine.shard_id
        self._machine = machine
        self._hold_id = hold_id
        self._hold = hold
        self._lost: Unavailable | None = None
        # The state at which it was taken: its parts are the ones that are kept.
        self._state = machine.cached

    @property
    def state(self) -> State:
        return self._state

    def batches(self) -> tuple[Batch, ...]:
        self.check()
        return self._state.batches

    def downgrade(self, since: Frontier) -> None:
        """Let go of what lies before `since`; the next renewal says so to the others."""
        self.check()
        self._hold = replace(self._hold, since=max(since, self._hold.since))

    def renew(self) -> None:
        """Give a sign of life; an error if the lease has ended, as its parts may be gone."""
        clock, lease_ms = self._machine.clock, self._machine.config.lease_ms

        def renewed(state: State) -> tuple[State, object]:
            known = state.holds.get(self._hold_id)
            now_ms = clock.now_ms()
            if known is None or (known.expires_ms or 0) < now_ms:
                return state, None
            hold = replace(self._hold, expires_ms=now_ms + lease_ms)
            return commands.set_hold(state, self._hold_id, hold, now_ms=now_ms)

        if self._machine.apply("renew_lease", renewed) is None:
            self._lost = Unavailable(
                f"a lease on shard {self.shard_id} has expired",
                hint="take a new lease and read again",
            )
            raise self._lost

    @property
    def name(self) -> bytes:
        """By which other processes may share it (`ReadHandle.adopt`)."""
        return msgspec.msgpack.encode((self._hold_id, self._hold))

    def detach(self) -> None:
        """Leave it, unreleased, to the others: it ends when none has renewed it for a while."""
        self._lost = Unavailable(f"the lease on shard {self.shard_id} was left to others")

    def check(self) -> None:
        """Raise if a renewal has found the lease expired."""
        if self._lost is not None:
            raise self._lost

    def release(self) -> None:
        """End it now; if that cannot be said to the others, it ends by itself later."""
        with suppress(TidemarkError):
            self._machine.apply(
                "release_hold", lambda state: commands.release_hold(state, self._hold_id)
            )
        self._lost = Unavailable(f"the lease on shard {self.shard_id} was released")

    @property
    def ended(self) -> bool:
        return self._lost is not None

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """All leases of this process, and their heartbeat."""

    def __init__(self, config: Config):
        self._config = config
        self._live: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None

    def take(self, machine: Machine, as_of: int | None, *, parts: bool, purpose: str) -> Lease:
        """A lease at `as_of` (or the shard's since), on its parts too if `parts`."""
        if as_of is not None:
            check_time(machine.shard_id, as_of)
        hold_id = f"lease-{uuid4().hex}"
        since = Frontier(max(as_of, 0)) if as_of is not None else Frontier.MIN
        hold = Hold(since, seqno=0 if parts else None, purpose=f"{purpose} {whoami()}")

        def taken(state: State) -> tuple[State, object]:
            check_as_of(state, max(as_of, 0) if as_of is not None else None)
            now_ms = machine.clock.now_ms()
            leased = replace(hold, expires_ms=now_ms + self._config.lease_ms)
            return commands.set_hold(state, hold_id, leased, now_ms=now_ms)

        machine.apply("lease", taken)
        return self._keep(Lease(machine, hold_id, hold))

    def _keep(self, lease: Lease) -> Lease:
        with self._lock:
            self._live.add(lease)
            if self._heart is None and self._config.heartbeat and not self._stop.is_set():
                self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
                self._heart.start()
        return lease

    def adopt(self, machine: Machine, given: bytes) -> Lease:
        """A lease of another process, renewed; an error if it has ended."""
        hold_id, hold = _NAMED.decode(given)
        machine.refresh()
        lease = Lease(machine, hold_id, hold)
        lease.renew()
        return self._keep(lease)

    def close(self) -> None:
        """Release what is still held: nobody will renew it."""
        self._stop.set()
        with self._lock:
            leases = [lease for lease in self._live if not lease.ended]
        for lease in leases:
            lease.release()

    def _beat(self) -> None:
        while not self._stop.wait(self._config.lease_ms / 4000):
            with self._lock:
                leases = [lease for lease in self._live if not lease.ended]
            for lease in leases:
                try:
                    lease.renew()
                except Unavailable as error:
                    # Not renewed is not lost: there are three more beats before it expires.
                    log.warning("lease not renewed", shard=lease.shard_id, error=str(error))
                except Exception:
                    log.exception("lease not renewed", shard=lease.shard_id)


class SinceHandle:
    """A durable, named claim on a shard's since, fenced by an epoch. Survives its process."""

    def __init__(self, machine: Machine, hold_id: str, epoch: int):
        self.shard_id = machine.shard_id
        self._machine = machine
        self._hold_id = hold_id
        self._epoch = epoch

    @property
    def since(self) -> Frontier | None:
        """Where the hold is; None if it was never set, or released."""
        hold = self._machine.refresh().holds.get(self._hold_id)
        return hold.since if hold is not None else None

    def downgrade(self, since: Frontier) -> Frontier | EpochMismatch:
        """Allow compaction up to `since`; returns where the hold now is."""
        commands.check_frontiers(self.shard_id, since)
        hold = Hold(since, self._epoch)
        clock = self._machine.clock
        return self._machine.apply(
            "hold",
            lambda state: commands.set_hold(state, self._hold_id, hold, now_ms=clock.now_ms()),
        )

    def release(self) -> None:
        self._machine.apply(
            "release_hold",
            lambda state: commands.release_hold(state, self._hold_id, epoch=self._epoch),
        )


def check_as_of(state: State, as_of: int | None) -> None:
    """Refuse a time at which the shard cannot be read (None: any will do)."""
    if not state.exists:
        raise InvalidUsage(
            f"there is no shard {state.shard_id}: nothing was ever written to it",
            hint="`tidemark shard list` shows the shards there are",
        )
    if state.is_tombstone:
        raise AsOfBeforeSince(f"shard {state.shard_id} was dropped", hint="nothing is left of it")
    if as_of is not None and not state.since <= Frontier(as_of):
        raise AsOfBeforeSince(
            f"shard {state.shard_id} can be read from time {state.since} on, not at {as_of}",
            hint="read at a later time, or hold its since back",
        )


def check_time(shard_id: str, time: int) -> None:
    if type(time) is not int or not -1 <= time < 2**63 - 1:
        raise InvalidUsage(f"shard {shard_id}: {time!r} is not a time that can be read at")


def whoami() -> str:
    return f"by {socket.gethostname()}:{os.getpid()}"
