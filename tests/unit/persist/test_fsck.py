"""fsck against every kind of damage, and against shards that nothing is wrong with."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from tidemark.clock import ManualClock
from tidemark.errors import Corruption, Determinate
from tidemark.frontier import Frontier
from tidemark.persist import (
    Config,
    MemBlob,
    MemConsensus,
    PersistClient,
    WriteHandle,
    as_updates,
)
from tidemark.persist.codec import FORMAT, Diff, decode
from tidemark.persist.compact import compact
from tidemark.persist.consensus import Versioned
from tidemark.persist.fsck import Locations, Report, fsck, strays
from tidemark.persist.gc import collect
from tidemark.persist.part import read_chunks, read_part
from tidemark.persist.runs import schema_of
from tidemark.persist.state import ColumnStats, Lead, Part, Retired, State

ROWS = pa.schema([("k", pa.int64()), ("t", pa.string()), ("x", pa.float64())])
SMALL = Config(
    inline_bytes=0,
    part_bytes=6_000,
    row_group_bytes=1_500,
    small_batches=3,
    inline_batches=3,
    rollup_every=1_000_000,
    heartbeat=False,
)


def stored(seqno: int, command: str, body: State | Diff) -> Versioned:
    """A version as `codec.encode` writes it, whatever its body says."""
    data = msgspec.msgpack.encode(body)
    kind = "rollup" if isinstance(body, State) else "diff"
    checksum = zlib.crc32(data, zlib.crc32(f"{command} {kind} ".encode()))
    version = (FORMAT, command, kind, msgspec.Raw(data), checksum)
    return Versioned(seqno, msgspec.msgpack.encode(version))


class World:
    """One shard in memory, and the ways to damage it."""

    def __init__(self, config: Config = SMALL):
        self.clock = ManualClock(1_700_000_000_000)
        self.blob, self.consensus = MemBlob(), MemConsensus()
        self.client = PersistClient(self.blob, self.consensus, clock=self.clock, config=config)

    @property
    def state(self) -> State:
        return PersistClient(self.blob, self.consensus).state("s1")

    @property
    def log(self) -> list[Versioned]:
        return self.consensus._logs["s1"]

    def fsck(self) -> Report:
        return fsck(self.client, "s1", clock=self.clock)

    def rules(self) -> set[str]:
        return {finding.rule for finding in self.fsck().errors}

    def rewrite(self, seqno: int, change: Callable[[State | Diff], State | Diff]) -> None:
        """Put something else in a version's place."""
        old = self.log[seqno - self.log[0].seqno]
        version = decode("s1", old)
        body = change(version.body)
        self.log[seqno - self.log[0].seqno] = stored(seqno, version.command, body)

    def roll_up(self, change: Callable[[State], State] = lambda state: state) -> None:
        """The log as one whole state, changed."""
        state = self.state
        self.log[:] = [stored(state.seqno, "append", change(state))]

    def change_part(self, **changes: object) -> None:
        """The first part of the state, described differently."""

        def change(state: State) -> State:
            first, *others = state.batches
            part = replace(first.parts[0], **changes)
            batch = replace(first, parts=(part, *first.parts[1:]))
            return replace(state, batches=(batch, *others))

        self.roll_up(change)

    def part(self, at: int = 0) -> Part:
        return list(self.state.parts)[at]

    def rewrite_data(self, change: Callable[[pa.Table], pa.Table], **options: bool) -> None:
        """The first part's blob written anew; its recorded size follows."""
        part = self.part()
        assert part.key is not None
        table = change(pq.read_table(pa.BufferReader(self.blob.get(part.key))))
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=20, **options)
        data = sink.getvalue().to_pybytes()
        self.blob.set(part.key, data)
        self.change_part(size=len(data))


def rows(rng: random.Random, count: int, time: int, span: int = 1) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([rng.randrange(50) for _ in range(count)], pa.int64()),
            "t": [
                rng.choice(["a", "ä" * 40, f"row {rng.randrange(9999)}", None])
                for _ in range(count)
            ],
            "x": pa.array([rng.choice([1.5, -0.0, None, 9e9]) for _ in range(count)], pa.float64()),
            "_time": pa.array([time + rng.randrange(span) for _ in range(count)], pa.int64()),
            "_diff": pa.array([rng.choice([1, 1, 2, -1]) for _ in range(count)], pa.int64()),
        }
    )


def append(writer: WriteHandle, table: pa.Table, upper: int) -> None:
    lower = writer.fetch_upper()
    updates = as_updates(table, schema=writer.schema)
    writer.compare_and_append(updates, lower=lower, upper=Frontier(upper))


@pytest.fixture
def world() -> World:
    """Two batches, several parts each, a hold and a writer."""
    world = World()
    writer = world.client.open_writer("s1", schema=ROWS, key=("k",))
    rng = random.Random(7)
    append(writer, rows(rng, 400, 0, 10), 10)
    append(writer, rows(rng, 100, 10, 5), 15)
    world.client.open_critical_since("s1", "owner", epoch=2).downgrade(Frontier(3))
    return world


def test_a_clean_shard_is_clean(world: World):
    report = world.fsck()
    assert report.findings == ()
    assert report.is_clean
    assert (report.rows, report.versions) == (490, 4), "equal updates of a run are one"
    assert report.parts == len(list(world.state.parts)) == 4
    assert fsck(Locations(world.blob, world.consensus), "s1", clock=world.clock) == report


@pytest.mark.parametrize("seed", range(12))
def test_shards_of_many_shapes_are_clean(seed: int):
    rng = random.Random(seed)
    config = Config(
        inline_bytes=rng.choice([0, 1_000, 8_192]),
        part_bytes=rng.choice([2_000, 50_000]),
        row_group_bytes=rng.choice([500, 5_000]),
        small_batches=rng.choice([1, 3]),
        inline_batches=rng.choice([1, 3]),
        rollup_every=rng.choice([1, 4, 7, 128]),
        heartbeat=False,
    )
    world = World(config)
    writer = world.client.open_writer("s1", schema=ROWS, key=rng.choice([(), ("k",), ("t", "k")]))
    reader, hold = world.client.open_reader("s1"), world.client.open_critical_since("s1")
    append(writer, rows(rng, 5, 0), 1)
    leases = []
    for step in range(40):
        upper = writer.fetch_upper().time or 0
        table = rows(rng, rng.randrange(1, 60), upper, 3)
        if "added" in writer.schema.names:
            table = table.append_column("added", pa.array(["x", None] * 30)[: len(table)])
        match rng.randrange(11):
            case 0 | 1 | 2 | 3:
                append(writer, table, upper + 3)
            case 4:
                writer.advance_upper(Frontier(upper + 5))
            case 5:
                hold.downgrade(Frontier(max(upper - rng.randrange(1, 9), 0)))
            case 6:
                leases.append(reader.lease())
            case 7 if leases:
                leases.pop().release()
            case 8:
                world.client.maintain("s1")
            case 9:
                world.clock.advance(rng.choice([1, 60_000, 90_000_000]))
                world.client.sweep("s1")
            case 10:
                writer.stage(as_updates(table, schema=writer.schema))  # Left behind.
                if step > 20:
                    writer.evolve_schema(ROWS.append(pa.field("added", pa.string())))
        if step % 5 == 0:
            report = world.fsck()
            assert report.errors == (), f"seed {seed}, step {step}"
            assert report.complete
    writer.advance_upper(Frontier.EMPTY)
    assert world.fsck().is_clean
    world.client.finalize("s1")
    assert world.fsck().is_clean


def test_values_of_every_kind_are_within_their_statistics():
    world = World()
    values = {
        "i": pa.array([-(2**63), 2**63 - 1], pa.int64()),
        "u": pa.array([0, 2**64 - 1], pa.uint64()),
        "b": pa.array([True, None]),
        "f": pa.array([float("nan"), 1.0], pa.float64()),
        "g": pa.array([float("-inf"), 1.0], pa.float64()),
        "h": pa.array([1.5, None], pa.float32()),
        "n": pa.array([Decimal("-1.50"), Decimal("99.25")], pa.decimal128(38, 2)),
        "d": pa.array([date(1, 1, 1), date(9999, 12, 31)]),
        "ts": pa.array([datetime(1969, 1, 1), None], pa.timestamp("us", "UTC")),
        "s": pa.array(["", "\U0010ffff" * 50]),
        "z": pa.array([b"\0", b"\xff"]),
        "none": pa.nulls(2, pa.string()),
    }
    table = pa.table(values)
    writer = world.client.open_writer("s1", schema=table.schema, key=("s", "n"))
    append(writer, as_updates(table, time=0), 1)
    failed = [{**dict.fromkeys(values), "_time": 1, "_diff": 1, "_err": "boom"}]
    append(writer, pa.Table.from_pylist(failed, schema=writer.schema), 2)
    report = world.fsck()
    assert report.findings == ()
    assert report.rows == 3


# The log.


def test_a_version_that_is_gone(world: World):
    del world.log[2]
    assert {"L1"} <= world.rules()
    assert not world.fsck().complete
    assert any(f.subject == "version 3" for f in world.fsck().errors)


def test_a_log_that_begins_with_a_change(world: World):
    del world.log[0]
    assert {"L1", "L2"} == world.rules()


def test_a_log_that_is_gone(world: World):
    world.log.clear()
    (finding,) = world.fsck().errors
    assert "has no log, but 4 blobs of it are stored" in finding.message


def test_a_shard_that_never_was():
    report = World().fsck()
    assert not report.complete
    assert "check the name" in report.errors[0].fix


@pytest.mark.parametrize("garbage", [b"", b"\xc1", b"\x93\x02", b"x" * 500, b"\xa2\xff\xfe"])
def test_garbage_in_the_log(world: World, garbage: bytes):
    world.log[1] = Versioned(1, garbage)
    report = world.fsck()
    assert [f.rule for f in report.errors if f.subject == "version 1"] == ["L1"]
    assert not report.complete


def test_a_whole_state_after_garbage_lets_the_rest_be_checked(world: World):
    state = world.state
    world.log[1] = Versioned(1, b"garbage")
    world.log[3] = stored(3, "hold", state)
    report = world.fsck()
    assert report.complete
    assert [f.subject for f in report.errors] == ["version 1"]
    assert report.parts == 4


@pytest.mark.parametrize(("format_", "said"), [(FORMAT + 1, "upgrade"), (1, "program that wrote")])
def test_a_version_of_another_format(world: World, format_: int, said: str):
    _, *rest = msgspec.msgpack.decode(world.log[-1].data)
    world.log[-1] = Versioned(3, msgspec.msgpack.encode((format_, *rest)))
    assert said in world.fsck().errors[0].fix


def test_a_version_in_another_ones_place(world: World):
    world.log[2] = Versioned(2, world.log[1].data)
    assert "says that it is version 1" in world.fsck().errors[0].message


def test_a_state_of_another_shard(world: World):
    world.roll_up(lambda state: replace(state, shard_id="s2"))
    assert any("is a state of shard s2" in f.message for f in world.fsck().errors)


STEPS: dict[str, tuple[str, Callable]] = {
    "time of commits goes back": ("S2", lambda d: replace(d, at_ms=5)),
    "since beyond a hold": ("S5", lambda d: replace(d, since=Frontier(9))),
    "upper goes back": ("S2", lambda d: replace(d, upper=Frontier(1))),
    "upper without a batch": ("L3", lambda d: replace(d, upper=Frontier(99))),
    "a hold changes the floor": ("L3", lambda d: replace(d, floor=7)),
    "a hold changes the rendition": ("L3", lambda d: replace(d, rendition=7)),
    "a hold follows a log": ("L3", lambda d: replace(d, follows="txns")),
    "a hold leads followers": ("L3", lambda d: replace(d, lead=Lead(Frontier(0), Frontier(1)))),
    "a hold changes the key": ("L3", lambda d: replace(d, key=("t",))),
    "a hold retires a part": ("L3", lambda d: replace(d, retired=(Retired("s1/x", 1),))),
    "a hold drops a writer": ("L3", lambda d: replace(d, writers=dict.fromkeys(WRITERS))),
    "batches that are not there": (
        "L1",
        lambda d: msgspec.convert(
            {**msgspec.to_builtins(d), "batches": [7, 2, []]}, Diff, strict=False
        ),
    ),
}
WRITERS: dict[str, object] = {}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_may_not_be(world: World, name: str):
    rule, change = STEPS[name]
    WRITERS.clear()
    WRITERS.update(world.state.writers)
    world.rewrite(3, change)
    assert rule in world.rules()
    assert any(f.subject.startswith("version 3") for f in world.fsck().errors)


def test_a_merge_that_lost_an_update(world: World):
    for time in range(15, 20):
        append(
            world.client.open_writer("s1", schema=ROWS, key=("k",)),
            rows(random.Random(time), 5, time),
            time + 1,
        )
    world.client.maintain("s1")
    at = next(v.seqno for v in world.log if decode("s1", v).command == "compact")

    def lose(diff):
        batch = diff.batches.added[0]
        parts = (replace(batch.parts[0], diffs=batch.parts[0].diffs - 1), *batch.parts[1:])
        added = (replace(batch, parts=parts),)
        return replace(diff, batches=replace(diff.batches, added=added))

    world.rewrite(at, lose)
    found = {f.rule: f.message for f in world.fsck().errors}
    assert "compact changed the sum of diffs" in found["L3"]
    assert "sum up to" in found["P2"]


def test_a_rollup_in_the_middle_that_differs(world: World):
    """Version 2, an append, as a whole state in which an earlier batch has changed as well."""
    writer = world.client.open_writer("s1", schema=ROWS, key=("k",))
    state = world.state
    append(writer, rows(random.Random(1), 3, 15), 16)
    first = replace(state.batches[0], since=Frontier(1))
    changed = replace(world.state, batches=(first, *world.state.batches[1:]))
    at = next(v.seqno for v in world.log if v.seqno > 3 and decode("s1", v).command == "append")
    world.log[at] = stored(at, "append", changed)
    assert world.rules() == {"L3"}


# The state.

BATCHES: dict[str, tuple[str, Callable[[State], State]]] = {
    "a gap": ("S1", lambda s: replace(s, batches=s.batches[1:])),
    "upper elsewhere": ("S1", lambda s: replace(s, upper=Frontier(77))),
    "a part twice": (
        "S4",
        lambda s: replace(s, retired=(Retired(next(iter(s.parts)).key or "", 1),)),
    ),
    "a batch's since": (
        "S5",
        lambda s: replace(s, batches=(replace(s.batches[0], since=Frontier(9)), *s.batches[1:])),
    ),
    "splits": (
        "P4",
        lambda s: replace(s, batches=(replace(s.batches[0], splits=(9,)), *s.batches[1:])),
    ),
    "no schema": ("S6", lambda s: replace(s, schemas=())),
    "a schema of nonsense": ("S6", lambda s: replace(s, schemas=(b"nonsense",))),
    "a schema that is not of updates": (
        "S6",
        lambda s: replace(s, schemas=(ROWS.serialize().to_pybytes(),)),
    ),
    "a schema that shrinks": (
        "S6",
        lambda s: replace(s, schemas=(*s.schemas, schema_of(s).remove(1).serialize().to_pybytes())),
    ),
    "leads further than it is": (
        "S7",
        lambda s: replace(s, lead=Lead(s.upper, Frontier((s.upper.time or 0) + 1))),
    ),
    "a key that is no column": ("S6", lambda s: replace(s, key=("nope",))),
    "retired in the future": ("H", lambda s: replace(s, retired=(Retired("s1/x", 99),))),
    "a writer beyond upper": (
        "H",
        lambda s: replace(
            s, writers={w: replace(v, upper=Frontier(99)) for w, v in s.writers.items()}
        ),
    ),
    "a critical hold that pins parts": (
        "H",
        lambda s: replace(s, holds={h: replace(v, seqno=1) for h, v in s.holds.items()}),
    ),
    "a negative epoch": (
        "H",
        lambda s: replace(s, holds={h: replace(v, epoch=-1) for h, v in s.holds.items()}),
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_state_that_may_not_be(world: World, name: str):
    rule, change = BATCHES[name]
    world.roll_up(change)
    assert rule in world.rules()


PARTS: dict[str, tuple[str, dict[str, object]]] = {
    "rows": ("P2", {"rows": 7}),
    "diffs": ("P2", {"diffs": 7}),
    "errors": ("P2", {"errors": 7}),
    "size": ("P1", {"size": 7}),
    "least time": ("P2", {"min_time": 1}),
    "greatest time": ("P2", {"max_time": 8}),
    "beyond its batch": ("S3", {"max_time": 12}),
    "times reversed": ("P2", {"min_time": 9, "max_time": 0}),
    "schema": ("S6", {"schema": 3}),
    "negative schema": ("P2", {"schema": -1}),
    "in two places": ("P2", {"inline": b""}),
    "nowhere": ("P2", {"key": None}),
    "another shard's": ("P2", {"key": "s2/1700000000000-x.parquet"}),
    "no rows": ("P2", {"rows": 0}),
    "too small a bound": ("P3", {"stats": {"k": ColumnStats(0, 3, 49)}}),
    "too large a bound": ("P3", {"stats": {"k": ColumnStats(0, 0, 40)}}),
    "bounds of another kind": ("P3", {"stats": {"k": ColumnStats(0, "a", "b")}}),
    "nulls": ("P3", {"stats": {"k": ColumnStats(3, 0, 49)}}),
    "statistics of no column": ("P3", {"stats": {"nope": ColumnStats(0)}}),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_described_wrongly(world: World, name: str):
    rule, changes = PARTS[name]
    world.change_part(**changes)
    assert rule in world.rules()


def test_a_wider_bound_is_fine(world: World):
    stats = {"k": ColumnStats(0, -5, 500), "x": replace(world.part().stats["x"], least=None)}
    world.change_part(stats=stats)
    assert world.fsck().is_clean


# Data.


def test_a_part_that_is_missing(world: World):
    key = world.part(1).key
    assert key is not None
    world.blob.delete(key)
    (finding,) = world.fsck().errors
    assert (finding.rule, finding.subject, finding.message) == ("P1", key, "is missing")
    assert "backup" in finding.fix


def test_a_part_that_compaction_replaces_meanwhile_is_not_missed(world: World):
    """It is gone when fsck comes to it, and so is the need for it."""
    elsewhere = PersistClient(world.blob, world.consensus, clock=world.clock, config=SMALL)

    def progress(done: int, total: int, what: str) -> None:
        machine = elsewhere.machine("s1")
        if done == 0:
            compact(machine, world.blob, machine.refresh().batches)
            collect(machine, world.blob)

    report = fsck(world.client, "s1", clock=world.clock, progress=progress)
    assert report.is_clean
    assert report.parts == 0


DATA: dict[str, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    "out of order": ("P4", lambda t: t.take(list(reversed(range(len(t)))))),
    "a row less": ("P2", lambda t: t.slice(1)),
    "a row twice": ("P2", lambda t: pa.concat_tables([t.slice(0, 1), t])),
    "no rows": ("P2", lambda t: t.slice(0, 0)),
    "another type": ("P1", lambda t: t.set_column(0, "k", t["k"].cast(pa.int32()))),
    "another name": ("P1", lambda t: t.rename_columns(["kk", *t.column_names[1:]])),
    "a column less": ("P1", lambda t: t.drop_columns(["t"])),
    "no time": ("P1", lambda t: t.set_column(3, "_time", pa.nulls(len(t), pa.int64()))),
    "times elsewhere": ("S3", lambda t: t.set_column(3, "_time", pa.array([77] * len(t)))),
    "errors": ("P2", lambda t: t.set_column(5, "_err", pa.array(["no"] * len(t)))),
    "other values": ("P3", lambda t: t.set_column(0, "k", pa.array([999] * len(t)))),
    "nulls": ("P3", lambda t: t.set_column(0, "k", pa.nulls(len(t), pa.int64()))),
}


@pytest.mark.parametrize("name", DATA)
def test_a_part_with_other_contents(world: World, name: str):
    rule, change = DATA[name]
    key = world.part().key
    world.rewrite_data(change)
    assert any(f.rule == rule and f.subject == key for f in world.fsck().errors)


def test_parts_of_a_run_in_the_wrong_order(world: World):
    def swap(state: State) -> State:
        first, *others = state.batches
        return replace(state, batches=(replace(first, parts=first.parts[::-1]), *others))

    assert len(world.state.batches[0].parts) == 3
    world.roll_up(swap)
    assert world.rules() == {"P4"}


def test_an_unordered_part_within_a_run(world: World):
    world.change_part(ordered=False)
    assert world.rules() == {"P4"}


@pytest.mark.parametrize("kept", [0, 3, 200, -1])
def test_a_part_cut_short(world: World, kept: int):
    key = world.part().key or ""
    world.blob.set(key, (world.blob.get(key) or b"")[:kept])
    assert world.rules() == {"P1"}


def test_something_else_in_a_parts_place(world: World):
    world.blob.set(world.part().key or "", b"\0" * world.part().size)
    assert world.rules() == {"P1"}


def test_a_damaged_part_inside_the_state():
    world = World(Config(heartbeat=False))
    writer = world.client.open_writer("s1", schema=ROWS)
    append(writer, rows(random.Random(1), 10, 0), 1)
    assert world.fsck().is_clean
    world.change_part(inline=b"nonsense", size=8)
    assert [f.subject for f in world.fsck().errors] == ["inline part of [0] to [1]"]
    world.change_part(inline=b"nonsense", size=9)
    assert world.rules() == {"P1", "P2"}


def test_flipped_bits_in_parts_are_reported_or_change_nothing():
    world = World()
    append(world.client.open_writer("s1", schema=ROWS), rows(random.Random(1), 400, 0, 10), 10)
    rng = random.Random(5)
    part, schema = world.part(), schema_of(world.state)
    key = part.key or ""
    good = world.blob.get(key) or b""
    before = read_part(world.blob, part, schema)
    for _ in range(300):
        at, bit = rng.randrange(len(good)), 1 << rng.randrange(8)
        world.blob.set(key, good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
        report = world.fsck()
        if not report.is_clean:
            # A last row that moved up is seen by the part that follows it.
            assert {f.subject for f in report.errors} <= {p.key for p in world.state.parts}
            continue
        after = [read_part(world.blob, part, schema), *read_chunks(world.blob, part, schema)]
        assert after[0] == before, f"byte {at}, bit {bit}"
        assert pa.concat_tables(after[1:]) == before, f"byte {at}, bit {bit}"


def test_flipped_bits_in_the_log_are_reported_or_change_nothing():
    world = World(Config(heartbeat=False, rollup_every=4))
    writer = world.client.open_writer("s1", schema=ROWS, key=("k",))
    for time in range(3):
        append(writer, rows(random.Random(time), 20, time), time + 1)
    world.client.open_critical_since("s1").downgrade(Frontier(1))
    world.client.open_reader("s1").lease()
    rng = random.Random(11)
    good, before = list(world.log), world.state
    for _ in range(600):
        at = rng.randrange(len(good))
        data = bytearray(good[at].data)
        for _ in range(rng.choice([1, 1, 4])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        world.log[:] = [*good[:at], Versioned(good[at].seqno, bytes(data)), *good[at + 1 :]]
        report = world.fsck()
        assert not any(f.rule == "fsck" for f in report.errors), report.errors
        assert not report.is_clean or world.state == before


# Stores.


class Away(MemBlob):
    def open(self, key: str):
        raise Determinate(f"nothing answers when {key} is asked for", hint="check the network")


class NoLog(MemConsensus):
    def __init__(self, error: Exception):
        super().__init__()
        self.error = error

    def scan(self, key: str, start: int = 0, limit: int | None = None):
        raise self.error


def test_a_blob_store_that_does_not_answer(world: World):
    away = Away()
    away._values = world.blob._values
    report = fsck(Locations(away, world.consensus), "s1", clock=world.clock)
    assert not report.complete
    assert "cannot be reached" in report.errors[-1].message
    assert "check the network" in report.errors[-1].fix


@pytest.mark.parametrize("error", [Determinate("no route"), Corruption("malformed"), OSError("x")])
def test_a_log_that_cannot_be_read(world: World, error: Exception):
    report = fsck(Locations(world.blob, NoLog(error)), "s1", clock=world.clock)
    assert not report.complete
    assert len(report.errors) == 1


# Notes.


def test_blobs_besides_the_parts(world: World):
    writer = world.client.open_writer("s1", schema=ROWS, key=("k",))
    young = writer.stage(as_updates(rows(random.Random(1), 5, 15), schema=writer.schema))
    world.blob.set("s1/README", b"hello")
    world.blob.set("s1/1600000000000-old.parquet", b"1234")
    world.roll_up(lambda state: replace(state, floor=1_650_000_000_000))
    report = world.fsck()
    assert report.is_clean
    said = {f.subject: f.message for f in report.findings}
    assert "did not write" in said["s1/README"]
    assert said["s1/1600000000000-old.parquet"] == "garbage: given up by the floor, 4 bytes in all"
    assert "perhaps in use" in said[young.parts[0].key or ""]


def test_retired_parts_and_expired_leases(world: World):
    lease = world.client.open_reader("s1").lease()
    writer = world.client.open_writer("s1", schema=ROWS, key=("k",))
    for time in range(15, 20):
        append(writer, rows(random.Random(time), 5, time), time + 1)
    world.client.maintain("s1")
    retired = [r.key for r in world.state.retired]
    world.blob.delete(retired[0])
    world.clock.advance(16 * 60_000)
    report = world.fsck()
    assert report.is_clean
    messages = [f.message for f in report.findings]
    assert any("deleted already" in m for m in messages)
    assert any("bytes in all" in m for m in messages)
    assert any("expired 60 s ago" in m and "read by" in m for m in messages)
    assert lease.shard_id == "s1"


def test_a_commit_in_the_future(world: World):
    world.clock.advance(-100_000_000)
    assert "in the future" in world.fsck().findings[0].message
    assert world.fsck().is_clean


def test_a_command_of_a_later_program(world: World):
    world.log[3] = stored(3, "teleport", decode("s1", world.log[3]).body)
    assert world.fsck().is_clean
    assert "'teleport'" in world.fsck().findings[0].message


def test_progress_is_told(world: World):
    told: list[tuple[int, int, str]] = []
    fsck(world.client, "s1", clock=world.clock, progress=lambda *step: told.append(step))
    size = sum(part.size for part in world.state.parts)
    assert told[0][:2] == (0, size)
    assert told[-1] == (size, size, "done")


def test_blobs_of_no_shard(world: World):
    assert list(strays(world.client)) == []
    world.blob.set("s9/1700000000000-x.parquet", b"1234")
    assert list(strays(world.client)) == [("s9/1700000000000-x.parquet", 4)]
