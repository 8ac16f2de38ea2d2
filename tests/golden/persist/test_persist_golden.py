"""Runs the scenarios beside this file: persist commands with their expected output inline.

    write lower=0 upper=3           a command and its options
    a 1 @0 +1                       its rows: k, v, time, diff; `!boom @0 +1` is an error row
    ----
    appended [3]                    what it must print; `REWRITE=1 pytest …` records it anew

Blocks are separated by an empty line; lines that begin with # are comments. Every command takes
`on=NAME`: another process (a client with its own idea of the state) on the same blob and
consensus, made on first use. `Shell` has one method per command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from unreliable import Unreliable

import tidemark.persist.machine as machine_module
import tidemark.persist.write as write_module
from tidemark.clock import ManualClock
from tidemark.errors import TidemarkError
from tidemark.frontier import Frontier
from tidemark.persist import Lease, MemBlob, MemConsensus, PersistClient, UpperMismatch, WriteHandle
from tidemark.persist import state as commands
from tidemark.persist.compact import Merge, collect, compact, due
from tidemark.persist.state import Batch, EpochMismatch
from tidemark.persist.updates import DIFF, ERR, TIME

SHARD = "s"
ROW = pa.schema([("k", pa.string()), ("v", pa.int64())])
SCENARIOS = sorted(
    path for path in Path(__file__).parent.iterdir() if path.is_file() and not path.suffix
)


class Block(NamedTuple):
    comments: list[str]
    command: str
    rows: list[str]
    expected: list[str]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_scenario(path: Path, monkeypatch: pytest.MonkeyPatch):
    shell = Shell(monkeypatch)
    blocks = list(parsed(path.read_text()))
    outputs = [shell.run(block.command, block.rows) for block in blocks]
    if os.environ.get("REWRITE"):
        path.write_text("\n".join(printed(b, out) for b, out in zip(blocks, outputs, strict=True)))
    for block, output in zip(blocks, outputs, strict=True):
        assert output == block.expected or os.environ.get("REWRITE"), block.command


def parsed(text: str) -> Iterator[Block]:
    for chunk in text.split("\n\n"):
        lines = chunk.strip("\n").split("\n")
        comments = [line for line in lines if line.startswith("#")]
        lines = [line for line in lines if not line.startswith("#")]
        if not lines or not lines[0]:
            continue
        cut = lines.index("----") if "----" in lines else len(lines)
        yield Block(comments, lines[0], lines[1:cut], lines[cut + 1 :])


def printed(block: Block, output: list[str]) -> str:
    return "\n".join([*block.comments, block.command, *block.rows, "----", *output]) + "\n"


class Shell:
    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self._patch = monkeypatch
        self._clock = ManualClock(1_000)
        self._blob = MemBlob()
        self._consensus = MemConsensus()
        self._clients: dict[str, tuple[PersistClient, Unreliable]] = {}
        self._writers: dict[tuple[str, str], WriteHandle] = {}
        self._leases: dict[str, tuple[Lease, tuple[Batch, ...]]] = {}
        self._merges: dict[str, Merge] = {}
        self._said: list[str] = []

    def run(self, line: str, rows: list[str]) -> list[str]:
        name, *words = line.split(" ")
        options: dict[str, str] = {}
        if "meanwhile:" in words:
            at = words.index("meanwhile:")
            options["meanwhile"], words = " ".join(words[at + 1 :]), words[:at]
        options |= dict(word.split("=", 1) for word in words)
        process = options.pop("on", "p1")
        try:
            output = getattr(self, name.replace("-", "_"))(process, rows, **options)
        except TidemarkError as error:
            output = [re.sub(r"[0-9a-f]{32}", "PART", f"{type(error).__name__}: {error}")]
        meanwhile, self._said = self._said, []
        return [*(f"(meanwhile: {line})" for line in meanwhile), *output]

    # Writing

    def write(self, on, rows, *, lower, upper, shape="kv", writer="w") -> list[str]:
        handle = self._writer(on, writer, shape)
        updates = tabled(rows, handle.schema)
        return told(handle.compare_and_append(updates, lower=at(lower), upper=at(upper)))

    def append(self, on, rows, *, lower, upper, writer="w") -> list[str]:
        handle = self._writer(on, writer)
        updates = tabled(rows, handle.schema)
        return told(handle.append(updates, lower=at(lower), upper=at(upper)))

    def advance(self, on, rows, *, upper, writer="w") -> list[str]:
        return [f"upper {self._writer(on, writer).advance_upper(at(upper))}"]

    def open_writer(self, on, rows, *, shape="kv", key="") -> list[str]:
        keys = tuple(key.split(",")) if key else ()
        self._writers[on, "w"] = self._client(on).open_writer(SHARD, schema=SHAPES[shape], key=keys)
        return []

    # Reading

    def snapshot(self, on, rows, *, as_of) -> list[str]:
        return listed(self._client(on).open_reader(SHARD).snapshot(int(as_of)))

    def updates(self, on, rows, *, lower, upper) -> list[str]:
        return listed(self._client(on).open_reader(SHARD).updates(at(lower), at(upper)))

    def listen(self, on, rows, *, as_of, steps) -> list[str]:
        out = []
        for step, found in zip(
            range(int(steps)),
            self._client(on).open_reader(SHARD).listen(int(as_of), timeout=0),
            strict=False,
        ):
            out += [f"step {step}: {found.lower} to {found.upper}", *listed(found.table)]
        return out

    # Holds

    def hold(self, on, rows, *, id, since, epoch="0") -> list[str]:
        handle = self._client(on).open_critical_since(SHARD, id, epoch=int(epoch))
        outcome = handle.downgrade(at(since))
        if isinstance(outcome, EpochMismatch):
            return [f"fenced by epoch {outcome.current}"]
        return [f"hold {outcome}, since {self._client(on).state(SHARD).since}"]

    def release(self, on, rows, *, id, epoch="0") -> list[str]:
        self._client(on).open_critical_since(SHARD, id, epoch=int(epoch)).release()
        state = self._client(on).state(SHARD)
        return [f"holds {sorted(state.holds)}, since {state.since}"]

    def lease(self, on, rows, *, id, as_of=None) -> list[str]:
        reader = self._client(on).open_reader(SHARD)
        lease = reader.lease(int(as_of) if as_of is not None else None)
        self._leases[id] = (lease, ())
        self._leases[id] = (lease, lease.batches())
        return [f"since {self._client(on).state(SHARD).since}"]

    def leased(self, on, rows, *, id) -> list[str]:
        """Whether the parts that the lease listed are still there."""
        parts = [part for batch in self._leases[id][1] for part in batch.parts]
        there = sum(
            part.inline is not None or self._blob.get(part.key) is not None for part in parts
        )
        return [f"{there} of {len(parts)} parts"]

    def renew(self, on, rows, *, id) -> list[str]:
        self._leases[id][0].renew()
        return ["renewed"]

    def end_lease(self, on, rows, *, id) -> list[str]:
        self._leases[id][0].release()
        return [f"{len(self._client(on).state(SHARD).holds)} holds"]

    def clock(self, on, rows, *, minutes) -> list[str]:
        self._clock.advance(int(minutes) * 60_000)
        return []

    # Upkeep

    def due(self, on, rows) -> list[str]:
        merge = due(self._client(on).state(SHARD))
        return [described(b) for b in merge.batches] if merge else ["nothing is due"]

    def plan_merge(self, on, rows, *, id, first="0", last=None) -> list[str]:
        """Decide on a merge now, to carry it out later (`compact merge=id`)."""
        stop = int(last) + 1 if last is not None else None
        self._merges[id] = Merge(self._client(on).state(SHARD).batches[int(first) : stop])
        return [described(b) for b in self._merges[id].batches]

    def compact(self, on, rows, *, merge=None) -> list[str]:
        client = self._client(on)
        machine, parts = client._machine(SHARD), client._parts
        if merge == "all":
            self._merges["all"] = Merge(machine.refresh().batches)
        done = compact(machine, client.blob, parts, self._merges[merge] if merge else None)
        return ["merged" if done else "not merged"]

    def collect(self, on, rows) -> list[str]:
        client = self._client(on)
        return [f"{collect(client._machine(SHARD), client.blob)} collected"]

    def maintain(self, on, rows) -> list[str]:
        self._client(on).maintain(SHARD)
        return []

    def finalize(self, on, rows) -> list[str]:
        self._client(on).finalize(SHARD)
        return []

    # Looking and meddling

    def state(self, on, rows) -> list[str]:
        state = commands.check(self._client(on).state(SHARD))
        out = [f"since {state.since} upper {state.upper}", *map(described, state.batches)]
        if state.retired:
            out.append(f"{len(state.retired)} retired")
        live = [p.key for b in state.batches for p in b.parts if p.key]
        missing = [key for key in live if self._blob.get(key) is None]
        known = {*live, *(retired.key for retired in state.retired)}
        leaked = [key for key, _ in self._blob.list() if key not in known]
        if missing or leaked:
            out.append(f"{len(missing)} missing, {len(leaked)} leaked")
        return out

    def versions(self, on, rows) -> list[str]:
        seqnos = [version.seqno for version in self._consensus.scan(SHARD)]
        return [f"{seqnos[0]} to {seqnos[-1]}"] if seqnos else ["none"]

    def set(self, on, rows, *, inline=None, truncate_every=None) -> list[str]:
        if inline is not None:
            budget = {"off": 0, "on": 128 * 1024}[inline]
            self._patch.setattr(write_module, "INLINE_BUDGET", budget)
        if truncate_every is not None:
            self._patch.setattr(machine_module, "TRUNCATE_EVERY", int(truncate_every))
        return []

    def fail(self, on, rows, *, how, times="1", meanwhile=None) -> list[str]:
        """The next commits of `on` fail; `meanwhile: COMMAND` runs while it is left unsure."""

        def do() -> None:
            assert meanwhile is not None
            line, *body = meanwhile.split(" | ")
            self._said = self.run(line, body)

        self._client(on)
        unreliable = self._clients[on][1]
        unreliable.fail(how, times=int(times), meanwhile=do if meanwhile else None)
        return []

    def lose_blob(self, on, rows, *, batch) -> list[str]:
        part = self._client(on).state(SHARD).batches[int(batch)].parts[0]
        assert part.key is not None
        self._blob.delete(part.key)
        return []

    def break_blob(self, on, rows, *, batch) -> list[str]:
        part = self._client(on).state(SHARD).batches[int(batch)].parts[0]
        assert part.key is not None
        self._blob.set(part.key, b"PAR1 this is not")
        return []

    def _client(self, on: str) -> PersistClient:
        if on not in self._clients:
            unreliable = Unreliable(self._consensus)
            client = PersistClient(self._blob, unreliable, clock=self._clock)
            self._clients[on] = (client, unreliable)
        return self._clients[on][0]

    def _writer(self, on: str, writer: str, shape: str = "kv") -> WriteHandle:
        if (on, writer) not in self._writers:
            handle = self._client(on).open_writer(SHARD, schema=SHAPES[shape])
            self._writers[on, writer] = handle
        return self._writers[on, writer]


SHAPES = {"kv": ROW, "k": pa.schema([ROW.field("k")]), "reserved": pa.schema([("_k", pa.int64())])}


def at(text: str) -> Frontier:
    return Frontier.EMPTY if text == "[]" else Frontier(int(text))


def tabled(lines: list[str], schema: pa.Schema) -> pa.Table:
    """Rows written as `a 1 @3 +1`, `!boom @3 +1`; `-` is null, also for time and diff."""
    rows = []
    for line in lines:
        *values, time, diff = line.split()
        row = dict.fromkeys(schema.names)
        if values[0].startswith("!"):
            row[ERR] = values[0][1:]
        else:
            row |= {
                name: valued(text, schema.field(name).type)
                for name, text in zip(schema.names, values, strict=False)
            }
        row[TIME] = None if time == "@-" else int(time[1:])
        row[DIFF] = None if diff == "-" else int(diff)
        rows.append(row)
    return pa.Table.from_pylist(rows, schema)


def valued(text: str, kind: pa.DataType) -> str | int | None:
    if text == "-":
        return None
    return text if kind == pa.string() else int(text)


def listed(table: pa.Table) -> list[str]:
    lines = []
    for row in table.to_pylist():
        time, diff, err = row.pop(TIME), row.pop(DIFF), row.pop(ERR)
        what = f"!{err}" if err else " ".join("-" if v is None else str(v) for v in row.values())
        lines.append((time, what, diff))
    return [f"{what} @{time} {diff:+}" for time, what, diff in sorted(lines)] or ["(nothing)"]


def told(outcome) -> list[str]:
    lost = isinstance(outcome, UpperMismatch)
    return [f"mismatch, upper is {outcome.current}" if lost else f"appended {outcome.upper}"]


def described(batch: Batch) -> str:
    parts = " ".join("inline" if part.inline is not None else "blob" for part in batch.parts)
    return f"{batch.lower} to {batch.upper}: {batch.rows} rows, diffs {batch.diffs}, {parts or 'empty'}"
