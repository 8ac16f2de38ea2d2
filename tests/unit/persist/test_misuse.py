"""What a caller may get wrong must not cost the shard anything: each of these once did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import Corruption, Determinate, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import Appended, Config, PersistClient, Staged, UpperMismatch, as_updates
from tidemark.persist.compact import compact
from tidemark.persist.machine import Machine

SCHEMA = pa.schema([("k", pa.int64())])
F = Frontier


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, str]:
    return {"blob": f"file://{tmp_path}/b", "consensus": f"sqlite://{tmp_path}/c.db"}


@pytest.fixture
def client(stores):
    client = PersistClient.open(**stores)
    yield client
    client.close()


@pytest.fixture
def writer(client):
    return client.open_writer("s", schema=SCHEMA)


def rows(writer, time: int, count: int = 20_000) -> pa.Table:
    """Random, and so many that they go to Blob."""
    keys = np.random.default_rng(time).integers(0, 2**60, count)
    return as_updates(pa.table({"k": keys}), time=time, schema=writer.schema)


def count(stores, as_of: int) -> int:
    """What a process that knows nothing yet finds."""
    fresh = PersistClient.open(**stores)
    found = fresh.open_reader("s").snapshot(as_of).num_rows
    fresh.close()
    return found


class TestStaged:
    def test_appended_twice_it_is_there_once(self, client, writer, stores):
        staged = writer.stage(rows(writer, 0))
        other = PersistClient.open(**stores).open_writer("s", schema=SCHEMA)
        same = Staged.from_bytes(staged.to_bytes())
        for each, batch in ((writer, staged), (writer, staged), (other, same)):
            assert each.append(batch, lower=F(0), upper=F(10)) == Appended(F(10))
        assert count(stores, 9) == 20_000

    def test_what_was_appended_cannot_be_discarded(self, writer, stores):
        builder = writer.builder()
        builder.add(rows(writer, 0))
        staged = builder.finish()
        writer.compare_and_append(staged, lower=F(0), upper=F(1))
        writer.discard(staged)
        builder.discard()
        assert count(stores, 0) == 20_000

    def test_what_was_discarded_cannot_be_appended(self, client, writer):
        staged = writer.stage(rows(writer, 0))
        writer.discard(staged)
        with pytest.raises(InvalidUsage, match="is not there"):
            writer.compare_and_append(staged, lower=F(0), upper=F(1))
        assert writer.fetch_upper() == F(0)

    def test_after_a_mismatch_it_can_be_tried_again(self, writer, stores):
        staged = writer.stage(rows(writer, 1))
        assert writer.append(staged, lower=F(1), upper=F(2)) == UpperMismatch(F(0))
        writer.advance_upper(F(1))
        assert writer.append(staged, lower=F(1), upper=F(2)) == Appended(F(2))
        assert count(stores, 1) == 20_000

    def test_a_small_one_twice_is_refused_too(self, writer):
        staged = writer.stage(rows(writer, 0, count=1))
        with pytest.raises(InvalidUsage, match="twice"):
            writer.compare_and_append([staged, staged], lower=F(0), upper=F(1))

    def test_a_finished_builder_begins_anew(self, writer):
        builder = writer.builder()
        builder.add(rows(writer, 0, count=1))
        assert builder.finish().rows == 1
        builder.add(rows(writer, 0, count=2))
        assert builder.finish().rows == 2

    def test_bytes_that_are_not_one(self):
        for data in (b"", b"\xff", b"\x81\xa8shard_id\xa1\xff"):
            with pytest.raises(InvalidUsage, match="not a staged batch"):
                Staged.from_bytes(data)


class TestTokens:
    def test_a_caller_s_token_is_not_one_of_ours(self, writer, stores):
        first, second = rows(writer, 0, 1), rows(writer, 1, 1)
        writer.compare_and_append(first, lower=F(0), upper=F(1), token="0")
        assert writer.compare_and_append(second, lower=F(1), upper=F(2)) == Appended(F(2))
        assert count(stores, 1) == 2

    def test_one_token_is_for_one_append(self, writer):
        writer.compare_and_append(rows(writer, 0, 1), lower=F(0), upper=F(1), token="x")
        with pytest.raises(InvalidUsage, match="token was used"):
            writer.compare_and_append(rows(writer, 1, 1), lower=F(1), upper=F(2), token="x")


class TestWrongValues:
    """Refused with nothing committed: what cannot be read again must not be written."""

    @pytest.mark.parametrize("time", [2.5, -1, 2**63, "1", np.int64(1), True])
    def test_times(self, time):
        with pytest.raises(InvalidUsage, match="timestamp"):
            Frontier(time)

    @pytest.mark.parametrize(
        "misuse",
        [
            lambda c, w: w.compare_and_append(None, lower=F(1), upper=F(2), token=5),
            lambda c, w: w.compare_and_append(None, lower=1, upper=2),
            lambda c, w: w.compare_and_append("", lower=F(1), upper=F(2)),
            lambda c, w: w.compare_and_append({"k": [1]}, lower=F(1), upper=F(2)),
            lambda c, w: w.compare_and_append([rows(w, 1)], lower=F(1), upper=F(2)),
            lambda c, w: w.append(None, lower=F(1), upper=F(2)),
            lambda c, w: w.advance_upper(5),
            lambda c, w: w.stage(None),
            lambda c, w: c.open_critical_since("s", epoch="a"),
            lambda c, w: c.open_critical_since("s", 5),
            lambda c, w: c.open_critical_since("s").downgrade(5),
            lambda c, w: c.open_reader("s").lease(1.5),
            lambda c, w: c.open_reader("s").listen(0.5),
            lambda c, w: c.open_reader("s").snapshot("a"),
            lambda c, w: next(c.open_reader("s").stream(2**63 - 1)),
            lambda c, w: c.open_reader("s", columns="k"),
            lambda c, w: c.open_reader("nowhere").lease(),
            lambda c, w: c.open_writer("s2", schema=SCHEMA, key="k"),
            lambda c, w: c.open_writer("s2", schema=SCHEMA, key=("k", "k")),
            lambda c, w: c.open_writer("s2", schema=SCHEMA, key=("_time",)),
            lambda c, w: c.open_writer("s2", schema=pa.schema([("l", pa.list_(pa.int64()))])),
            lambda c, w: w.compare_and_append(
                as_updates(pa.table({"k": [1]}), time=1, diff=2**62, schema=w.schema),
                lower=F(1),
                upper=F(2),
            ),
        ],
    )
    def test_are_refused(self, client, writer, stores, misuse):
        writer.compare_and_append(rows(writer, 0, 3), lower=F(0), upper=F(1))
        before = client.state("s").seqno
        with pytest.raises(InvalidUsage):
            misuse(client, writer)
        assert client.state("s").seqno == before
        assert count(stores, 0) == 3
        assert client.consensus.keys() == ["s"]

    def test_a_null_where_there_must_be_none(self, client):
        schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
        writer = client.open_writer("n", schema=schema)
        table = pa.table([[None], [0], [1], [None]], schema=writer.schema)
        with pytest.raises(InvalidUsage, match="not nullable"):
            writer.compare_and_append(table, lower=F(0), upper=F(1))

    def test_a_schema_that_someone_else_has_just_made_is_known(self, client, writer, stores):
        wider = SCHEMA.append(pa.field("v", pa.string()))
        writer.compare_and_append(rows(writer, 0, 1), lower=F(0), upper=F(1))
        other = PersistClient.open(**stores).open_writer("s", schema=SCHEMA)
        assert other.evolve_schema(wider) is None
        late = client.open_writer("s", schema=wider)
        assert late.advance_upper(F(2)) == F(2)


class TestMerges:
    def fill(self, writer) -> None:
        for time in range(4):
            writer.compare_and_append(rows(writer, time), lower=F(time), upper=F(time + 1))

    def test_what_fails_after_the_commit_deletes_nothing(self, client, writer, stores, monkeypatch):
        self.fill(writer)
        commit = Machine._commit

        def interrupted(self, *args):
            commit(self, *args)
            raise KeyboardInterrupt

        monkeypatch.setattr(Machine, "_commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compact(client.machine("s"), client.blob, client.state("s").batches)
        monkeypatch.undo()
        assert len(client.state("s").batches) == 1
        assert count(stores, 3) == 80_000

    def test_a_part_of_another_shard_in_its_place_is_found(self, client, writer, stores):
        self.fill(writer)
        first, second = (b.parts[0].key for b in client.state("s").batches[:2])
        client.blob.set(first, client.blob.get(second))
        fresh = PersistClient.open(**stores, config=Config(row_group_bytes=1_000))
        for read in (
            lambda: fresh.open_reader("s").snapshot(3),
            lambda: list(fresh.open_reader("s").stream(3)),
            lambda: compact(fresh.machine("s"), fresh.blob, fresh.state("s").batches),
        ):
            with pytest.raises(Corruption, match=first):
                read()

    def test_upkeep_outlives_trouble(self, stores, monkeypatch):
        client = PersistClient.open(**stores, config=Config(maintain_every=0.01, inline_batches=2))
        trouble = iter([Determinate("away")] * 3)

        def due(*_, **__):
            raise next(trouble)

        monkeypatch.setattr(client._maintenance, "_due", due)
        client.start_maintenance()
        while next(trouble, None):
            SYSTEM_CLOCK.sleep(0.02)
        monkeypatch.undo()
        writer = client.open_writer("s", schema=SCHEMA)
        for at in range(5):
            writer.compare_and_append(rows(writer, at, 1), lower=F(at), upper=F(at + 1))
        merged = client.watch.wait_for(
            "s", lambda: len(client.state("s").batches) < 5 or None, timeout=60
        )
        assert merged
        client.close()

    def test_ctrl_c_while_the_command_compacts(self, stores, tmp_path: Path):
        """At a random moment of it, again and again."""
        rng = np.random.default_rng(3)
        total = 0
        for attempt in range(6):
            client = PersistClient.open(**stores)
            writer = client.open_writer("s", schema=SCHEMA)
            at = writer.fetch_upper().time
            for moment in range(at, at + 3):
                writer.compare_and_append(
                    rows(writer, moment), lower=F(moment), upper=F(moment + 1)
                )
            total += 60_000
            client.close()
            command = [Path(sys.executable).parent / "tidemark", "shard", "compact", "s", "--full"]
            where = ["--blob", stores["blob"], "--consensus", stores["consensus"]]
            before = set(os.listdir(tmp_path / "b" / "s"))
            process = subprocess.Popen(
                [*command, *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while process.poll() is None and set(os.listdir(tmp_path / "b" / "s")) == before:
                SYSTEM_CLOCK.sleep(0.0005)
            SYSTEM_CLOCK.sleep(float(rng.uniform(0, 0.01)))
            process.send_signal(signal.SIGINT)
            process.wait()
            assert count(stores, at + 2) == total, f"attempt {attempt}"


def test_upkeep_that_fails_after_an_append_is_not_the_appends_failure(tmp_path: Path, monkeypatch):
    """Whoever was told of a failure would append again."""
    config = Config(inline_batches=2)
    client = PersistClient.open(
        blob=f"file://{tmp_path}/blob", consensus=f"sqlite://{tmp_path}/c.db", config=config
    )
    writer = client.open_writer("s", schema=pa.schema([("k", pa.int64())]))
    for time in range(6):
        table = as_updates(pa.table({"k": [time]}), time=time, schema=writer.schema)
        writer.compare_and_append(table, lower=Frontier(time), upper=Frontier(time + 1))

    def full(*_: object) -> bool:
        raise Determinate("disk full")

    with monkeypatch.context() as broken:
        broken.setattr("tidemark.persist.client.compact", full)
        client.maintain_small("s")
    assert len(client.state("s").batches) == 6
    client.maintain_small("s")
    assert len(client.state("s").batches) == 1
    client.close()
