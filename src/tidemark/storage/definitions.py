"""A durable map from ids to texts, in a shard of its own, written by one leader at a time.

The shard's time is a counter: every change is one append at its upper, so a second leader's first
append makes every later one of the first leader's fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from uuid import uuid4

import pyarrow as pa

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import AsOfBeforeSince, Fenced, Indeterminate, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import CRITICAL, DIFF, Appended, PersistClient, UpperMismatch, as_updates

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("definition", pa.string())])
LEADER = "leader"
REPEAT_AFTER = (0.1, 0.3, 1.0, 3.0, 5.0, 5.0, 5.0, 10.0)
"""Seconds before an append that may have happened is repeated."""


class Definitions:
    """The map of one leader; `epoch` counts the leaders there have been."""

    def __init__(self, client: PersistClient, shard_id: str):
        self._writer = client.open_writer(shard_id, schema=SCHEMA)
        self._hold = client.open_critical_since(shard_id, CRITICAL)
        self.epoch = self._lead(client)

    @property
    def rows(self) -> dict[str, str]:
        return {id_: text for id_, text in self._rows.items() if id_ != LEADER}

    def change(self, rows: Mapping[str, str | None]) -> None:
        """Put or (None) delete rows, durably, all or none."""
        old = {id_: self._rows[id_] for id_ in rows if id_ in self._rows}
        new = {id_: text for id_, text in rows.items() if text is not None}
        table = pa.table(
            {
                "id": pa.array([*old, *new], pa.string()),
                "definition": pa.array([*old.values(), *new.values()], pa.string()),
                DIFF: pa.array([-1] * len(old) + [1] * len(new), pa.int64()),
            }
        )
        assert self._upper.time is not None
        time = self._upper.time
        upper = Frontier(time + 1)
        append = partial(
            self._writer.compare_and_append,
            as_updates(table, time=time, schema=self._writer.schema),
            lower=self._upper,
            upper=upper,
            token=uuid4().hex,
        )
        outcome = _surely(append)
        if isinstance(outcome, UpperMismatch):
            raise Fenced(
                "another control process has taken over; nothing was changed",
                hint="stop this process, or the other one",
            )
        self._upper = upper
        self._rows = {id_: text for id_, text in {**self._rows, **rows}.items() if text is not None}
        with suppress(Unavailable):  # It is changed; what was before can be let go another time.
            self._hold.downgrade(Frontier(time))

    def _lead(self, client: PersistClient) -> int:
        """Taking the lead is a change like any other: it fences out who led before."""
        while True:
            self._rows, self._upper = _read(client, self._writer.shard_id)
            epoch = int(self._rows.get(LEADER, "0")) + 1
            try:
                self.change({LEADER: str(epoch)})
                return epoch
            except Fenced:
                # Who led before has just changed something: it has to be read, too.
                continue


def _surely(append: Callable[[], Appended | UpperMismatch]) -> Appended | UpperMismatch:
    """By its token it happens once, however often it is repeated."""
    try:
        return append()
    except Indeterminate as error:
        unsure = error
    for pause in REPEAT_AFTER:
        SYSTEM_CLOCK.sleep(pause)
        with suppress(Unavailable):
            return append()
    raise Fenced(
        f"it is not known whether a change of the catalog has happened: {unsure.message}",
        hint="this process cannot go on; the next one that starts reads what is so",
    ) from unsure


def read_definitions(client: PersistClient, shard_id: str) -> dict[str, str]:
    """What is there now, for someone who only reads."""
    found, _ = _read(client, shard_id)
    found.pop(LEADER, None)
    return found


def _read(client: PersistClient, shard_id: str) -> tuple[dict[str, str], Frontier]:
    """All rows, and the upper up to which that is all."""
    reader = client.open_reader(shard_id)
    while True:
        upper = reader.upper
        if not upper.time:
            return {}, upper
        try:
            rows = reader.snapshot(upper.time - 1)
        except AsOfBeforeSince:
            continue  # The leader has changed something, and forgotten what was before.
        found = zip(rows["id"].to_pylist(), rows["definition"].to_pylist(), strict=True)
        return dict(found), upper
