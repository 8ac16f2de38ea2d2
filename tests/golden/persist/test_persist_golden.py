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

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import force_setattr

from scenarios import check_scenario, scenarios_beside
from tidemark.clock import ManualClock
from tidemark.errors import TidemarkError
from tidemark.frontier import Frontier
from tidemark.persist import (
    Config,
    EpochMismatch,
    Lease,
    MemBlob,
    MemConsensus,
    PersistClient,
    Staged,
    Updates,
    UpperMismatch,
    WriteHandle,
)
from tidemark.persist.codec import FORMAT, decode
from tidemark.persist.compact import compact, due
from tidemark.persist.consensus import Versioned
from tidemark.persist.filters import Predicate
from tidemark.persist.gc import collect
from tidemark.persist.names import part_name
from tidemark.persist.part import write_part
from tidemark.persist.state import Batch, State, check
from tidemark.persist.updates import DIFF, ERR, TIME
from unreliable import UnreliableBlob, UnreliableConsensus

SHARD = "s"
K, V, W = pa.field("k", pa.string()), pa.field("v", pa.int64()), pa.field("w", pa.string())
SHAPES = {
    "kv": pa.schema([K, V]),
    "k": pa.schema([K]),
    "kvw": pa.schema([K, V, W]),
    "kvx": pa.schema([K, V, pa.field("x", pa.int64())]),
    "kwv": pa.schema([K, W, V]),
    "kvw-not-null": pa.schema([K, V, W.with_nullable(False)]),
    "reserved": pa.schema([("_k", pa.int64())]),
}
SCENARIOS = scenarios_beside(__file__)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_scenario(path: Path):
    check_scenario(path, Shell().run)


class Process(NamedTuple):
    client: PersistClient
    consensus: UnreliableConsensus
    blob: UnreliableBlob


class SeenBlob(MemBlob):
    """Remembers which values were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def open(self, key: str) -> pa.NativeFile | None:
        self.seen.add(key)
        return super().open(key)


class Shell:
    def __init__(self) -> None:
        # One object for all processes, so that `set` reaches them.
        self._config = Config(heartbeat=False, audit=0)
        self._clock = ManualClock(1_000)
        self._blob = SeenBlob()
        self._consensus = MemConsensus()
        self._processes: dict[str, Process] = {}
        self._writers: dict[tuple[str, str], WriteHandle] = {}
        self._leases: dict[str, Lease] = {}
        self._merges: dict[str, tuple[Batch, ...]] = {}
        self._staged: dict[str, bytes] = {}
        self._followers: dict[str, Iterator[Updates]] = {}
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

    def write(self, on, rows, *, lower, upper, shape="kv", writer="w", token=None) -> list[str]:
        handle = self._writer(on, writer, shape)
        updates = tabled(rows, handle.schema)
        return told(
            handle.compare_and_append(updates, lower=at(lower), upper=at(upper), token=token)
        )

    def append(self, on, rows, *, lower, upper, writer="w") -> list[str]:
        handle = self._writer(on, writer)
        updates = tabled(rows, handle.schema)
        return told(handle.append(updates, lower=at(lower), upper=at(upper)))

    def advance(self, on, rows, *, upper, writer="w") -> list[str]:
        return [f"upper {self._writer(on, writer).advance_upper(at(upper))}"]

    def open_writer(self, on, rows, *, shape="kv", key="", writer="w", shard=SHARD) -> list[str]:
        keys = tuple(key.split(",")) if key else ()
        opened = self._client(on).open_writer(shard, schema=SHAPES[shape], key=keys)
        self._writers[on, writer] = opened
        return []

    def expire_writer(self, on, rows, *, writer="w") -> list[str]:
        self._writer(on, writer).expire()
        return [f"{len(self._client(on).state(SHARD).writers)} writers"]

    def evolve(self, on, rows, *, shape, writer="w") -> list[str]:
        lost = self._writer(on, writer).evolve_schema(SHAPES[shape])
        return [f"mismatch, the newest is schema {lost.current}" if lost else "evolved"]

    def stage(self, on, rows, *, id, writer="w") -> list[str]:
        """Store a batch; what is remembered of it is what another process would be sent."""
        handle = self._writer(on, writer)
        batch = handle.stage(tabled(rows, handle.schema))
        self._staged[id] = batch.to_bytes()
        return [f"staged {batch.rows} rows, {placed(batch.runs)}"]

    def build(self, on, rows, *, id) -> list[str]:
        """The same through a builder, a row at a time."""
        handle = self._writer(on, "w")
        builder = handle.builder()
        for row in rows:
            builder.add(tabled([row], handle.schema))
        batch = builder.finish()
        self._staged[id] = batch.to_bytes()
        return [f"staged {batch.rows} rows, {placed(batch.runs)}"]

    def stage_unordered(self, on, rows, *, id) -> list[str]:
        """A part as Spark's tasks write it: the rows as they came."""
        handle = self._writer(on, "w")
        key = part_name(SHARD, self._clock.now_ms())
        number = handle.register()
        updates = tabled(rows, handle.schema)
        part = write_part(self._blob, key, [updates], schema=number, first=None, row_group_rows=1)
        self._staged[id] = Staged(SHARD, ((part,),)).to_bytes()
        return []

    def write_staged(self, on, rows, *, ids, lower, upper, writer="w", token=None) -> list[str]:
        batches = [Staged.from_bytes(self._staged[id]) for id in ids.split(",")]
        handle = self._writer(on, writer)
        return told(
            handle.compare_and_append(batches, lower=at(lower), upper=at(upper), token=token)
        )

    def append_staged(self, on, rows, *, id, lower, upper) -> list[str]:
        batch = Staged.from_bytes(self._staged[id])
        return told(self._writer(on, "w").append(batch, lower=at(lower), upper=at(upper)))

    def discard(self, on, rows, *, id) -> list[str]:
        self._writer(on, "w").discard(Staged.from_bytes(self._staged[id]))
        return []

    # Reading

    def snapshot(self, on, rows, *, as_of, columns=None, where=None, shard=SHARD) -> list[str]:
        """`columns=k,v` and `where=v>3,k=a|v=0` (a disjunction of conjunctions) narrow it."""
        names = columns.split(",") if columns is not None else None
        reader = self._client(on).open_reader(shard, columns=names, filter=filtered(where))
        self._blob.seen.clear()
        out = listed(reader.snapshot(int(as_of), timeout=0))
        if where is None:
            return out
        stored = [part.key for part in self._client(on).state(SHARD).parts if part.key]
        return [*out, f"read {len(self._blob.seen)} of {len(stored)} blobs"]

    def stream(self, on, rows, *, as_of) -> list[str]:
        tables = list(self._client(on).open_reader(SHARD).stream(int(as_of)))
        return listed(pa.concat_tables(tables)) if tables else ["(nothing)"]

    def updates(self, on, rows, *, lower, upper) -> list[str]:
        return listed(self._client(on).open_reader(SHARD).updates(at(lower), at(upper)))

    def listen(self, on, rows, *, as_of, id="l") -> list[str]:
        self._followers[id] = self._client(on).open_reader(SHARD).listen(int(as_of), timeout=0)
        return []

    def subscribe(self, on, rows, *, as_of, id="l") -> list[str]:
        reader = self._client(on).open_reader(SHARD)
        self._followers[id] = reader.subscribe(int(as_of), timeout=0)
        return []

    def next(self, on, rows, *, id="l") -> list[str]:
        """The next step of a listener or subscriber; an empty one if nothing new has come."""
        found = next(self._followers[id], None)
        if found is None:
            return ["the end"]
        return [f"{found.lower} to {found.upper}", *listed(found.table)]

    def stop(self, on, rows, *, id="l") -> list[str]:
        self._followers.pop(id).close()
        return [f"{len(self._client(on).state(SHARD).holds)} holds"]

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
        names = sorted(id.split("-")[0] for id in state.holds)
        return [f"holds {names}, since {state.since}"]

    def lease(self, on, rows, *, id, as_of=None) -> list[str]:
        reader = self._client(on).open_reader(SHARD)
        self._leases[id] = reader.lease(int(as_of) if as_of is not None else None)
        return [f"since {self._client(on).state(SHARD).since}"]

    def leased(self, on, rows, *, id) -> list[str]:
        """Whether the parts that the lease listed are still there."""
        parts = list(self._leases[id].state.parts)
        there = sum(
            part.inline is not None or self._blob.get(part.key) is not None for part in parts
        )
        return [f"{there} of {len(parts)} parts"]

    def renew(self, on, rows, *, id=None) -> list[str]:
        """Renew a lease, or what the heartbeat does for a process: all of its leases."""
        live = [lease for lease in self._client(on)._leases._live if not lease.ended]
        for lease in [self._leases[id]] if id is not None else live:
            lease.renew()
        return ["renewed"]

    def end_lease(self, on, rows, *, id) -> list[str]:
        self._leases[id].release()
        return [f"{len(self._client(on).state(SHARD).holds)} holds"]

    def clock(self, on, rows, *, minutes="0", ms="0") -> list[str]:
        self._clock.advance(int(minutes) * 60_000 + int(ms))
        return []

    # Upkeep

    def due(self, on, rows) -> list[str]:
        merge = due(self._client(on).state(SHARD), self._config)
        return [described(batch) for batch in merge] or ["nothing is due"]

    def plan_merge(self, on, rows, *, id, first="0", last=None) -> list[str]:
        """Decide on a merge now, to carry it out later (`compact merge=id`)."""
        stop = int(last) + 1 if last is not None else None
        self._merges[id] = self._client(on).state(SHARD).batches[int(first) : stop]
        return [described(batch) for batch in self._merges[id]]

    def compact(self, on, rows, *, merge=None) -> list[str]:
        """Carry out a planned merge, a merge of `all` there is, or what is due."""
        client = self._client(on)
        if merge == "all":
            self._merges["all"] = client.state(SHARD).batches
        done = compact(client.machine(SHARD), client.blob, self._merges[merge] if merge else None)
        return ["merged" if done else "not merged"]

    def collect(self, on, rows) -> list[str]:
        client = self._client(on)
        return [f"{collect(client.machine(SHARD), client.blob)} collected"]

    def sweep(self, on, rows, *, minutes="0") -> list[str]:
        """Collect, and give up what was staged so long ago and not appended."""
        swept = self._client(on).sweep(SHARD, older_than_ms=int(minutes) * 60_000)
        return [f"{swept} swept, floor {self._client(on).state(SHARD).floor}"]

    def maintain(self, on, rows) -> list[str]:
        return [f"{self._client(on).maintain(SHARD)} merges"]

    def finalize(self, on, rows) -> list[str]:
        self._client(on).finalize(SHARD)
        return []

    # Looking

    def state(self, on, rows) -> list[str]:
        state = check(self._client(on).state(SHARD))
        out = [f"since {state.since} upper {state.upper}", *map(described, state.batches)]
        if state.retired:
            out.append(f"{len(state.retired)} retired")
        missing = [part.key for part in state.parts if part.key and not self._blob.get(part.key)]
        leaked = [key for key, _ in self._blob.list() if key not in state.keys]
        if missing or leaked:
            out.append(f"{len(missing)} missing, {len(leaked)} leaked")
        return out

    def schemas(self, on, rows) -> list[str]:
        """The shard's schemas, and which of them its parts have."""
        state = self._client(on).state(SHARD)
        found = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in state.schemas]
        lines = [f"{n}: {' '.join(schema.names[:-3])}" for n, schema in enumerate(found)]
        return [*lines, f"parts of {' '.join(str(part.schema) for part in state.parts)}"]

    def holds(self, on, rows) -> list[str]:
        state = self._client(on).state(SHARD)
        lines = [
            f"{id.split('-')[0]} {hold.since}"
            + (" pins parts" if hold.seqno is not None else "")
            + (f", expires {hold.expires_ms}" if hold.expires_ms is not None else "")
            for id, hold in state.holds.items()
        ]
        return sorted(lines) or ["none"]

    def writers(self, on, rows) -> list[str]:
        found = self._client(on).state(SHARD).writers.values()
        return sorted(f"{w.upper}, expires {w.expires_ms}" for w in found) or ["none"]

    def log(self, on, rows) -> list[str]:
        """The versions in Consensus: their numbers, commands and kinds."""
        out = []
        for version in self._consensus.scan(SHARD):
            found = decode(SHARD, version)
            kind = "rollup" if isinstance(found.body, State) else "diff"
            out.append(f"{found.seqno} {found.command} {kind}")
        return out

    def at(self, on, rows) -> list[str]:
        """When the last commit says that it was."""
        state = self._client(on).state(SHARD)
        return [f"version {state.seqno} at {state.at_ms}, the clock at {self._clock.now_ms()}"]

    # Meddling

    def set(self, on, rows, **settings) -> list[str]:
        for name, value in settings.items():
            kind = type(getattr(self._config, name))
            force_setattr(self._config, name, kind(value))
        return []

    def restart(self, on, rows) -> list[str]:
        """SIGKILL, and a new process in its place."""
        self._processes.pop(on, None)
        self._writers = {at: w for at, w in self._writers.items() if at[0] != on}
        return []

    def fail(
        self, on, rows, *, how, times="1", of="consensus", call=None, meanwhile=None
    ) -> list[str]:
        """The next commits (or calls) of `on` fail; `meanwhile: COMMAND | ROW ; COMMAND` is run
        before it learns of that."""

        def do() -> None:
            said = []
            for command in (meanwhile or "").split(" ; "):
                line, *body = command.split(" | ")
                said += self.run(line, body)
            self._said = said

        self._client(on)
        target = getattr(self._processes[on], of)
        target.fail(
            how,
            times=int(times),
            meanwhile=do if meanwhile else None,
            call=call or {"consensus": "compare_and_set", "blob": "set"}[of],
        )
        return []

    def lose_blob(self, on, rows, *, batch) -> list[str]:
        self._blob.delete(self._key(on, batch))
        return []

    def break_blob(self, on, rows, *, batch) -> list[str]:
        self._blob.set(self._key(on, batch), b"PAR1 this is not")
        return []

    def copy_blob(self, on, rows, *, batch, to) -> list[str]:
        """One part's contents in place of another's."""
        found = self._blob.get(self._key(on, batch))
        assert found is not None
        self._blob.set(self._key(on, to), found)
        return []

    def lose_version(self, on, rows, *, seqno) -> list[str]:
        log = self._consensus._logs[SHARD]
        log[:] = [version for version in log if version.seqno != int(seqno)]
        return []

    def break_version(self, on, rows, *, seqno, how) -> list[str]:
        """Something else in place of a version."""
        log = self._consensus._logs[SHARD]
        at = next(n for n, version in enumerate(log) if version.seqno == int(seqno))
        data = log[at].data
        other = {
            "garbage": lambda: b"\xc1 not msgpack",
            "empty": lambda: b"",
            "half": lambda: data[: len(data) // 2],
            "damaged": lambda: data.replace(b"inline", b"online"),
            "another": lambda: log[at - 1].data,
            "newer": lambda: formatted(data, FORMAT + 1),
            "older": lambda: formatted(data, FORMAT - 1),
        }
        log[at] = Versioned(int(seqno), other[how]())
        return []

    def _key(self, on: str, batch: str) -> str:
        key = self._client(on).state(SHARD).batches[int(batch)].parts[0].key
        assert key is not None
        return key

    def _client(self, on: str) -> PersistClient:
        if on not in self._processes:
            consensus, blob = UnreliableConsensus(self._consensus), UnreliableBlob(self._blob)
            client = PersistClient(blob, consensus, clock=self._clock, config=self._config)
            self._processes[on] = Process(client, consensus, blob)
        return self._processes[on].client

    def _writer(self, on: str, writer: str, shape: str = "kv") -> WriteHandle:
        if (on, writer) not in self._writers:
            handle = self._client(on).open_writer(SHARD, schema=SHAPES[shape])
            self._writers[on, writer] = handle
        return self._writers[on, writer]


def formatted(data: bytes, number: int) -> bytes:
    """A version as a program that knows another format would have written it."""
    return msgspec.msgpack.encode([number, *msgspec.msgpack.decode(data)[1:]])


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


def filtered(text: str | None) -> list[list[Predicate]] | None:
    if text is None:
        return None
    return [[predicate(one) for one in clause.split(",")] for clause in text.split("|")]


def predicate(text: str) -> Predicate:
    column, operator, value = re.split(r"([<>=!~]+)", text, maxsplit=1)
    return column, operator, int(value) if value.isdigit() else value


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
    size = f"{batch.rows} rows, diffs {batch.diffs}"
    return f"{batch.lower} to {batch.upper}: {size}, {placed(batch.runs)}"


def placed(runs) -> str:
    """Where the parts are, run by run."""
    kinds = [["inline" if part.inline is not None else "blob" for part in run] for run in runs]
    return " | ".join(" ".join(kind) for kind in kinds) or "empty"
