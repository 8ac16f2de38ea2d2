"""Runs the scenarios beside this file: sinks of one shard, a stage at a time.

    desire on=a upper=8             sink `a` is told what should be there, up to a time
    x @5 +1                         a row, its time, its diff; `!boom @5 +1` is an error row
    ----

    mint on=a                       one stage: mint, write or append; `flush` does all there are
    ----
    mint [5, 8)

`start` makes a sink (`agreed`, `begin`; `read-only=yes`), `stranger` appends without asking anyone,
`shard` prints all that is there, `sink` what the sink holds and has corrected. Every sink is in a
process of its own, with its own idea of the shard's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from scenarios import check_scenario, scenarios_beside
from tidemark.clock import ManualClock
from tidemark.compute.sink import Done, Sink
from tidemark.frontier import Frontier
from tidemark.persist import Config, MemBlob, MemConsensus, PersistClient, UpperMismatch
from tidemark.persist.staging import Staged
from tidemark.persist.updates import DIFF, ERR, TIME, updates_schema

SHARD, STATE = "v", "v-state"
ROWS = pa.schema([("row", pa.string())])
SCENARIOS = scenarios_beside(__file__)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_scenario(path: Path):
    check_scenario(path, Shell().run)


class Shell:
    def __init__(self) -> None:
        self._blob, self._consensus = MemBlob(), MemConsensus()
        self._clients: dict[str, PersistClient] = {}
        self._sinks: dict[str, Sink] = {}
        self._read_only: set[str] = set()
        self._stages: dict[str, Iterator[Done]] = {}

    def run(self, command: str, rows: list[str]) -> list[str]:
        name, *words = command.split()
        options = dict(word.split("=", 1) for word in words)
        return list(getattr(self, f"do_{name.replace('-', '_')}")(rows, **options))

    def client(self, on: str) -> PersistClient:
        # Nothing is small enough to travel in the state: what is not appended must be cleaned up.
        if on not in self._clients:
            config = Config(heartbeat=False, audit=0, inline_bytes=1)
            self._clients[on] = PersistClient(
                self._blob, self._consensus, clock=ManualClock(1_000), config=config
            )
        return self._clients[on]

    def do_start(self, rows, on="a", agreed="0", begin="0", state="no", **options):
        if options.get("read-only"):
            self._read_only.add(on)
        shard, follows = (STATE, SHARD) if state == "yes" else (SHARD, None)
        sink = self._sinks[on] = Sink(
            self.client(on),
            shard,
            schema=ROWS,
            leads=state == "no",
            follows=follows,
            read_only=lambda: on in self._read_only,
        )
        self._stages.pop(on, None)
        sink.start(Frontier(int(agreed)), begin=Frontier(int(begin)))
        yield from self.do_sink(rows, on)

    def do_desire(self, rows, on="a", upper=""):
        self._sinks[on].desire(_updates(rows), _frontier(upper))
        return []

    def do_stage(self, rows, on="a", upper=""):
        """As Spark's tasks would have staged it, for `flush` to append."""
        sink = self._sinks[on]
        sink.adopt(sink.writer.stage(_updates(rows)), _frontier(upper))
        return []

    def do_mint(self, rows, on="a"):
        return self._step(on)

    def do_write(self, rows, on="a"):
        return self._step(on)

    def do_append(self, rows, on="a"):
        return self._step(on)

    def _step(self, on: str):
        stages = self._stages.setdefault(on, self._sinks[on].stages())
        done = next(stages, None)
        if done is None:
            del self._stages[on]
            yield "nothing"
        else:
            yield from _shown(done)

    def do_flush(self, rows, on="a"):
        for done in self._stages.pop(on, self._sinks[on].stages()):
            yield from _shown(done)

    def do_allow_writes(self, rows, on="a"):
        self._read_only.discard(on)
        return []

    def do_catch_up(self, rows, on="a", upper=""):
        yield "written" if self._sinks[on].catch_up(_frontier(upper)) else "not written yet"

    def do_look(self, rows, on="a"):
        """Somebody else in its process looks where the shard is."""
        yield f"upper {_edge(self.client(on).state(self._sinks[on].shard_id).upper)}"

    def do_forget(self, rows, since="", id=SHARD):
        """Let the shard's history go."""
        self.client("control").open_critical_since(id, "c").downgrade(_frontier(since))
        return []

    def do_stranger(self, rows, lower="", upper=""):
        writer = self.client("stranger").open_writer(SHARD, schema=ROWS)
        done = writer.compare_and_append(
            _updates(rows), lower=_frontier(lower), upper=_frontier(upper)
        )
        if isinstance(done, UpperMismatch):
            yield f"lost: the upper is {_edge(done.current)}"

    def do_sink(self, rows, on="a"):
        sink = self._sinks[on]
        yield f"desired {_edge(sink.desired)}, holds {sink.held}, corrected {sink.corrected}"

    def do_shard(self, rows, id=SHARD):
        client = PersistClient(self._blob, self._consensus, clock=ManualClock(1_000))
        reader = client.open_reader(id)
        yield f"upper {_edge(reader.upper)}"
        yield from _lines(reader.updates(Frontier.MIN, reader.upper))

    def do_blobs(self, rows):
        """Parts that are there, and how many of them the shards refer to."""
        client = PersistClient(self._blob, self._consensus, clock=ManualClock(1_000))
        used = {key for shard in self._consensus.keys() for key in client.state(shard).keys}  # noqa: SIM118
        there = {entry[0] for entry in self._blob.list("")}
        yield f"{len(there)} of which {len(there & used)} are used"


def _updates(rows: list[str]) -> pa.Table:
    names, times, diffs, errors = [], [], [], []
    for row in rows:
        name, time, diff = row.split()
        failed = name.startswith("!")
        names.append(None if failed else name)
        errors.append(name[1:] if failed else None)
        times.append(int(time[1:]))
        diffs.append(int(diff))
    schema = updates_schema(ROWS)
    columns = {"row": names, TIME: times, DIFF: diffs, ERR: errors}
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def _shown(done: Done) -> Iterator[str]:
    lower, upper = done.description
    rows = ""
    if isinstance(done.batch, pa.Table):
        rows = f": {', '.join(_lines(done.batch)) or 'nothing'}"
    if isinstance(done.batch, Staged):
        rows = f": {done.batch.rows} staged"
    yield f"{done.stage} [{_edge(lower)}, {_edge(upper)}){rows}"


def _lines(updates: pa.Table) -> list[str]:
    names = updates["row"].to_pylist()
    shown = [n or f"!{e}" for n, e in zip(names, updates[ERR].to_pylist(), strict=True)]
    columns = zip(updates[TIME].to_pylist(), shown, updates[DIFF].to_pylist(), strict=True)
    return [f"{row} @{time} {diff:+d}" for time, row, diff in sorted(columns)]


def _frontier(text: str) -> Frontier:
    return Frontier.EMPTY if text == "end" else Frontier(int(text))


def _edge(frontier: Frontier) -> str:
    return "end" if frontier.is_empty else str(frontier.time)
