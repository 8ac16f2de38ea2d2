"""A table of keys that are overwritten, deleted and written again, as in a compacted topic.

Step 0 writes all keys. From then on there is one *turn* after the other, BATCH SIZE of them in each
step, and turn t touches the key at place t mod KEYS of a seeded permutation:

    KEYS 5, BATCH SIZE 2, permutation 3 0 2 4 1

    step      0       1     2     3     4     5     6
    turn      –      0 1   2 3   4 5   6 7   8 9  10 11
    key      all     3 0   2 4   1 3   0 2   4 1   3 0
    version   0      1 1   1 1   1 2   2 2   2 2   3 3

So every run of KEYS turns touches each key once, which makes the past of a key plain arithmetic:
turn t takes its key from version t // KEYS to the next one, the key's turn before that was t − KEYS,
and no key is touched twice in a step (BATCH SIZE is at most KEYS). Whether a version is deleted and
which value it has is drawn from (seed, key, version). A turn then retracts the old version unless
that was deleted, and inserts the new one unless that is; from deleted to deleted is no update.

The permutation is place ↦ place × stride + shift modulo KEYS, with a stride that has no divisor in
common with KEYS. It looks shuffled; it is not meant to be unpredictable.

Invariants, at the end of every step:
    K1  every row has count 1, and keys are unique
    K2  `step` is the last step in which the key was touched
    K3  about DELETE PERCENT of the keys touched so far are absent; all others are there
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.storage.generators import columns as c
from tidemark.storage.generators.draws import Ints, below, coprime_stride, draw
from tidemark.storage.generators.options import Limit, refused
from tidemark.types import BIGINT, TEXT, Column

TABLE = c.TableSpec(
    (
        Column("key", BIGINT, nullable=False),
        Column("value", TEXT, nullable=False),
        Column("step", BIGINT, nullable=False),
    ),
    key=("key",),
)

MAX_BYTES = 10**9
"""How much step 0 may load: it is generated in memory."""

_SLICE_BYTES = 1 << 26
_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8
)


class _Stream(IntEnum):
    """What a hash is for: one independent sequence of draws each. Append only."""

    SHIFT = 0
    DELETED = 1
    VALUE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """The options; `generators.generator` checks them against LIMITS."""

    seed: int = 1
    keys: int = 1000
    value_size: int = 100
    batch_size: int = 10
    delete_percent: int = 10

    LIMITS: ClassVar[dict[str, Limit]] = {
        "seed": range(0, 2**63),
        "keys": range(1, 10**8 + 1),
        "value_size": range(1, 10**6 + 1),
        "batch_size": range(1, 10**6 + 1),
        "delete_percent": range(0, 101),
    }

    def __post_init__(self) -> None:
        if self.batch_size > self.keys:
            raise refused("batch_size", self.batch_size, f"it must be at most KEYS, {self.keys}")
        if self.keys * self.value_size > MAX_BYTES:
            most = MAX_BYTES // self.value_size
            hint = f"with values of {self.value_size} bytes it must be at most {most}"
            raise refused("keys", self.keys, hint)

    @property
    def tables(self) -> dict[str, c.TableSpec]:
        return {"key_value": TABLE}

    def updates(self, start: int, stop: int) -> dict[str, pa.Table]:
        c.check_steps(start, stop)
        loaded = np.arange(self.keys if start == 0 < stop else 0)
        turn = c.ids(start - 1, stop - 1, self.batch_size)
        key, version = self._key_of(turn), turn // self.keys
        step = self._step_of(turn)
        before = ~self._deleted(key, version)
        after = ~self._deleted(key, version + 1)

        offset = np.concatenate([0 * loaded, step[before], step[after]])
        order = c.by_offset(offset)
        key = np.concatenate([loaded, key[before], key[after]])[order]
        version = np.concatenate([0 * loaded, version[before], version[after] + 1])[order]
        # The turn that wrote the row: one before the first stands for the load at step 0.
        wrote = np.concatenate([0 * loaded - 1, turn[before] - self.keys, turn[after]])[order]
        counts = [len(loaded), np.count_nonzero(before), np.count_nonzero(after)]
        rows = [
            pa.array(key),
            self._values(key, version),
            pa.array(np.maximum(self._step_of(wrote), 0)),
        ]
        diff = np.repeat([+1, -1, +1], counts)[order]
        return {"key_value": c.updates(TABLE, rows, offset[order], diff)}

    def _key_of(self, turn: Ints) -> Ints:
        shift = below(draw(self.seed, _Stream.SHIFT), self.keys)
        return (turn % self.keys * coprime_stride(self.keys) + shift) % self.keys

    def _step_of(self, turn: Ints) -> Ints:
        return 1 + turn // self.batch_size

    def _deleted(self, key: Ints, version: Ints) -> npt.NDArray[np.bool_]:
        chance = below(draw(self.seed, _Stream.DELETED, key, version), 100)
        return (chance < self.delete_percent) & (version > 0)

    def _values(self, key: Ints, version: Ints) -> pa.ChunkedArray:
        """A draw is eight bytes, and a byte one of 64 characters."""
        word = np.arange(-(-self.value_size // 8))
        count = max(1, _SLICE_BYTES // (8 * len(word)))

        def values(at: slice) -> pa.Array:
            bits = draw(self.seed, _Stream.VALUE, key[at, None], version[at, None], word[None, :])
            chars = bits.astype("<u8").view(np.uint8)[:, : self.value_size]
            return c.fixed_width(_ALPHABET[chars & 63])

        slices = [slice(at, at + count) for at in range(0, len(key), count)]
        return pa.chunked_array(map(values, slices), type=pa.string())
