"""`tidemark shard` as an operator types it: the real program on folders made by a client."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from docs_blocks import commands, tried_by, unlike
from tidemark.cli import app
from tidemark.control.catalog import Catalog, Item
from tidemark.control.server import Options
from tidemark.frontier import Frontier
from tidemark.persist import Config, FileBlob, PersistClient, WriteHandle, as_updates
from tidemark.tools.location import locate

PROGRAM = str(Path(sys.prefix, "bin", "tidemark"))
ROWS = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("kind", pa.string())])
CONFIG = Config(inline_bytes=1_500, inline_batches=3, small_batches=3)


def opened(folder: Path) -> PersistClient:
    where = {
        "blob": f"file://{folder / 'blob'}",
        "consensus": f"sqlite://{folder / 'consensus.db'}",
    }
    return PersistClient.open(**where, config=CONFIG)


def fill(client: PersistClient, shard: str, batches: int = 6, rows: int = 50) -> WriteHandle:
    writer = client.open_writer(shard, schema=ROWS, key=("id",))
    rng = random.Random(shard)
    for time in range(0, 10 * batches, 10):
        count = rng.randrange(1, rows)
        table = pa.table(
            {
                "id": pa.array([rng.randrange(1_000) for _ in range(count)], pa.int64()),
                "price": pa.array(
                    [Decimal(rng.randrange(100_000)).scaleb(-2) for _ in range(count)],
                    pa.decimal128(10, 2),
                ),
                "kind": [rng.choice(["bid", "ask"]) for _ in range(count)],
            }
        )
        updates = as_updates(table, time=time, schema=writer.schema)
        writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 10))
    return writer


def made(folder: Path) -> Path:
    """Five shards: a relation, two others, one finished and one dropped; and a catalog."""
    client = opened(folder)
    catalog = Catalog(client)
    catalog.add(Item("u1", "orders", "table", "CREATE TABLE orders (...)", shard="u1-orders"))
    for shard in ("u1-orders", "other", "other-2", "finished", "dropped"):
        fill(client, shard)
        client.open_critical_since(shard, "owner", epoch=3).downgrade(Frontier(20))
    client.open_writer("finished", schema=ROWS, key=("id",)).advance_upper(Frontier.EMPTY)
    client.finalize("dropped")
    client.close()
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests that only look."""
    return made(tmp_path_factory.mktemp("looked-at"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[Path, PersistClient]]:
    client = opened(tmp_path)
    yield tmp_path, client
    client.close()


def tidemark(*words: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """The program as a process of its own."""
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=240)
    assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def typed(*words: object) -> SimpleNamespace:
    """The same within this process: for what need not be a process of its own."""
    result = CliRunner().invoke(app, [*map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return SimpleNamespace(code=result.exit_code, stdout=result.stdout, stderr=result.stderr)


def document(*words: object) -> dict:
    return json.loads(tidemark(*words, "--json").stdout)


# list


def test_list(data: Path):
    shown = tidemark("shard", "list", "--data", data).stdout
    assert "orders" in shown
    assert "finished" in shown
    assert "dropped" not in shown
    assert shown.splitlines()[-1] == "5 shards"
    shards = {
        row["id"]: row for row in document("shard", "list", "--data", data, "--all")["shards"]
    }
    assert set(shards) == {"catalog", "u1-orders", "other", "other-2", "finished", "dropped"}
    orders = shards["u1-orders"]
    assert (orders["name"], orders["state"], orders["since"], orders["upper"]) == (
        "orders",
        "live",
        20,
        60,
    )
    assert (orders["batches"], orders["holds"], orders["readers"]) == (6, 1, 0)
    assert 0 < orders["inline_bytes"] < orders["bytes"]
    assert (shards["finished"]["state"], shards["finished"]["upper"]) == ("finished", None)
    assert shards["dropped"]["state"] == "dropped"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["other"], ["other", "other-2"]),
        (["*-2"], ["other-2"]),
        (["ord"], ["u1-orders"]),
        (["nothing*"], []),
        (["--sort", "id"], ["catalog", "finished", "other", "other-2", "u1-orders"]),
    ],
)
def test_list_chooses(data: Path, words: list[str], expected: list[str]):
    done = typed("shard", "list", *words, "--data", data, "--json")
    assert [row["id"] for row in json.loads(done.stdout)["shards"]] == expected


def test_list_sorts_by_size(data: Path):
    done = typed("shard", "list", "--sort", "updates", "--data", data, "--json")
    updates = [row["updates"] for row in json.loads(done.stdout)["shards"]]
    assert updates == sorted(updates, reverse=True)


def test_list_goes_on_past_a_damaged_shard(own: tuple[Path, PersistClient]):
    folder, client = own
    fill(client, "good", 1)
    fill(client, "bad", 1)
    client.consensus._write(  # type: ignore[attr-defined]
        lambda connection: connection.execute("UPDATE consensus SET data = x'ff' WHERE key = 'bad'")
    )
    rows = {row["id"]: row for row in document("shard", "list", "--data", folder)["shards"]}
    assert rows["good"]["updates"] > 0
    assert rows["bad"]["state"] == "damaged"
    assert "cannot be read" in rows["bad"]["error"]
    assert "damaged" in typed("shard", "list", "--data", folder).stdout
    assert (
        "error: version 0 of shard bad" in typed("shard", "inspect", "bad", "--data", folder).stderr
    )
    assert typed("shard", "fsck", "bad", "--data", folder).code == 2
    history = json.loads(typed("shard", "history", "bad", "--data", folder, "--json").stdout)
    assert history["versions"][0]["kind"] == "damaged"


def test_locations_are_those_of_the_server(tmp_path: Path):
    options = Options(tmp_path)
    assert locate(tmp_path, None, None) == (options.blob_uri, options.consensus_uri)
    mixed = Options(tmp_path, blob="s3://bucket/x")
    assert locate(tmp_path, "s3://bucket/x", None) == (mixed.blob_uri, mixed.consensus_uri)


def test_by_uri(data: Path):
    where = [
        "--blob",
        f"file://{data / 'blob'}",
        "--consensus",
        f"sqlite://{data / 'consensus.db'}",
    ]
    assert "u1-orders" in typed("shard", "list", *where).stdout


def test_without_spark(data: Path):
    """Importing PySpark takes longer than all the rest."""
    command = [sys.executable, "-X", "importtime", "-m", "tidemark.cli"]
    for words in (["list"], ["snapshot", "orders", "--limit", "1"], ["fsck", "other"]):
        done = subprocess.run(
            [*command, "shard", *words, "--data", str(data)], capture_output=True, text=True
        )
        assert done.returncode in (0, 3), done.stderr
        heavy = ["pyspark", "obstore", "psycopg", *(["pandas.core"] if words == ["list"] else [])]
        assert [name for name in heavy if f" {name}\n" in done.stderr] == []


# inspect


def test_inspect(data: Path):
    shown = tidemark("shard", "inspect", "orders", "--parts", "--data", data).stdout
    for fact in ("u1-orders, the relation orders", "decimal128(10, 2)", "owner", "critical"):
        assert fact in shown
    assert "(inside the state)" in shown
    assert "'ask' to 'bid'" in shown
    found = document("shard", "inspect", "u1-orders", "--parts", "--data", data)
    assert found["key"] == ["id"]
    assert [field["name"] for field in found["schemas"][0]][:3] == ["id", "price", "kind"]
    assert (found["batch_list"][0]["lower"], found["batch_list"][0]["upper"]) == (0, 10)
    parts = [part for batch in found["batch_list"] for part in batch["part_list"]]
    stats = next(part["stats"] for part in parts if part["key"])
    assert Decimal(stats["price"]["least"]) <= Decimal(stats["price"]["most"]) < 1_000
    assert found["hold_list"][0] | {"since": 20, "epoch": 3} == found["hold_list"][0]
    assert found["log"]["versions"] == found["seqno"] + 1
    assert len(found["writers"]) == 1


def test_inspect_shows_leases(own: tuple[Path, PersistClient]):
    folder, client = own
    fill(client, "s1", 1)
    with client.open_reader("s1").lease():
        found = json.loads(typed("shard", "inspect", "s1", "--data", folder, "--json").stdout)
        (lease,) = found["hold_list"]
        assert lease["kind"] == "lease"
        assert f":{os.getpid()}" in lease["purpose"]
        assert 0 < lease["expires_in_ms"] <= CONFIG.lease_ms
        assert "14 m" in typed("shard", "inspect", "s1", "--data", folder).stdout


# snapshot


def contents(folder: Path, shard: str, as_of: int) -> pa.Table:
    client = opened(folder)
    found = client.open_reader(shard).snapshot(as_of).drop_columns(["_time"])
    client.close()
    return found


def ordered(table: pa.Table) -> list[dict]:
    return sorted(table.to_pylist(), key=repr)


@pytest.mark.parametrize("format_", ["json", "csv", "arrow", "parquet"])
def test_snapshot_in_every_format(data: Path, tmp_path: Path, format_: str):
    file = tmp_path / "out"
    words = ["shard", "snapshot", "orders", "--data", data, "--format", format_, "-o", file]
    assert tidemark(*words).stdout == ""
    expected = contents(data, "u1-orders", 59)
    if format_ == "json":
        found = json.loads(file.read_text())
        assert (found["as_of"], found["truncated"]) == (59, False)
        texts = [
            {k: str(v) if k == "price" else v for k, v in row.items()} for row in ordered(expected)
        ]
        assert sorted(found["rows"], key=repr) == sorted(texts, key=repr)
        return
    readers = {
        "csv": lambda: pyarrow.csv.read_csv(file).cast(expected.schema),
        "arrow": lambda: pa.ipc.open_stream(file.read_bytes()).read_all(),
        "parquet": lambda: pq.read_table(file),
    }
    assert ordered(readers[format_]()) == ordered(expected)
    assert list(tmp_path.iterdir()) == [file]


def test_snapshot_to_a_pipe(data: Path):
    done = subprocess.run(
        [PROGRAM, "shard", "snapshot", "other", "--data", data, "--format", "arrow"],
        capture_output=True,
    )
    found = pa.ipc.open_stream(done.stdout).read_all()
    assert ordered(found) == ordered(contents(data, "other", 59))


def test_snapshot_with_columns_and_filters(data: Path):
    words = ["--columns", "price", "--filter", "price > 500", "--filter", "kind in ('bid', 'x''y')"]
    found = document("shard", "snapshot", "orders", *words, "--data", data)
    rows = [row for row in contents(data, "u1-orders", 59).to_pylist() if row["kind"] == "bid"]
    expected = sorted(row["price"] for row in rows if row["price"] > 500)
    assert sorted(Decimal(row["price"]) for row in found["rows"]) == expected
    assert found["columns"] == ["price", "_diff", "_err"]


def test_snapshot_as_of(data: Path):
    found = json.loads(
        typed("shard", "snapshot", "orders", "--as-of", 25, "--json", "--data", data).stdout
    )
    assert found["as_of"] == 25
    assert len(found["rows"]) == contents(data, "u1-orders", 25).num_rows
    finished = json.loads(typed("shard", "snapshot", "finished", "--json", "--data", data).stdout)
    assert finished["as_of"] == 50


def test_snapshot_says_that_there_is_more(data: Path):
    done = tidemark("shard", "snapshot", "orders", "--limit", 2, "--data", data, code=3)
    assert "there are more rows" in done.stderr
    assert len(done.stdout.split("─")[-1].split("\n")[1:-2]) == 2
    found = typed("shard", "snapshot", "orders", "--limit", 2, "--json", "--data", data)
    assert found.code == 3
    assert json.loads(found.stdout)["truncated"]
    assert typed("shard", "snapshot", "orders", "--limit", 10_000, "--data", data).code == 0
    client = opened(data)
    assert not [h for h in client.state("u1-orders").holds.values() if h.expires_ms is not None]
    client.close()


def test_snapshot_shows_error_rows(own: tuple[Path, PersistClient]):
    folder, client = own
    writer = client.open_writer("s1", schema=ROWS)
    row = {
        "id": None,
        "price": None,
        "kind": None,
        "_time": 0,
        "_diff": 1,
        "_err": "division by zero",
    }
    updates = pa.Table.from_pylist([row], schema=writer.schema)
    writer.compare_and_append(updates, lower=Frontier(0), upper=Frontier(1))
    assert "division by zero" in typed("shard", "snapshot", "s1", "--data", folder).stdout
    done = typed("shard", "snapshot", "s1", "--filter", "id = 7", "--json", "--data", folder)
    assert json.loads(done.stdout)["rows"][0]["_err"] == "division by zero"
    assert "1 row is in error; --errors shows only those" in done.stderr


def test_snapshot_of_errors_names_their_keys(own: tuple[Path, PersistClient]):
    folder, client = own
    writer = fill(client, "s1", 3)
    bad = {"price": None, "kind": None, "_err": "Failed to decode: 7f"}
    for at, id_, diff in ((3, 700, 1), (4, 701, 1), (5, 701, -1)):
        time = {"id": id_, "_time": 10 * at, "_diff": diff}
        updates = pa.Table.from_pylist([bad | time], schema=writer.schema)
        writer.append(updates, lower=Frontier(10 * at), upper=Frontier(10 * at + 10))
    words = ["shard", "snapshot", "s1", "--errors", "--data", folder]
    row = {"id": 700, "_diff": 1, "_err": "Failed to decode: 7f"}
    done = typed(*words, "--json")
    assert json.loads(done.stdout)["rows"] == [row]
    assert "in error" not in done.stderr
    earlier = json.loads(typed(*words, "--json", "--as-of", 49).stdout)["rows"]
    assert [each["id"] for each in earlier] == [700, 701]
    shown = typed(*words).stdout
    assert "700" in shown
    assert "price" not in shown
    few = typed("shard", "snapshot", "s1", "--limit", 1, "--data", folder)
    assert "1 row is in error; --errors shows only those" in few.stderr
    client.close()
    wrong = typed(*words, "--filter", "id = 700")
    assert "--errors takes no --filter" in wrong.stderr


# history


def test_history(data: Path):
    shown = tidemark("shard", "history", "orders", "--data", data).stdout
    assert "batch [0] to [10]" in shown
    assert "hold owner at [20]" in shown
    versions = document("shard", "history", "orders", "--data", data)["versions"]
    assert [version["seqno"] for version in versions] == list(range(len(versions)))
    assert [version["command"] for version in versions][:2] == ["register_schema", "append"]
    assert versions[0]["kind"] == "rollup"
    assert all(version["bytes"] > 0 for version in versions)


def test_history_follows(own: tuple[Path, PersistClient]):
    folder, client = own
    writer = fill(client, "s1", 1)
    command = [PROGRAM, "shard", "history", "s1", "--follow", "--json", "--data", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline())["command"] for _ in range(2)]
        assert first == ["register_schema", "append"]
        writer.advance_upper(Frontier(77))
        assert "upper [77]" in json.loads(process.stdout.readline())["changes"]
        process.terminate()


# compact, gc


def test_compact_and_gc(own: tuple[Path, PersistClient]):
    folder, client = own
    fill(client, "s1", 50)
    client.open_critical_since("s1").downgrade(Frontier(490))
    before = contents(folder, "s1", 499)
    (row,) = document("shard", "compact", "s1", "--data", folder)["shards"]
    assert row["merges"] >= 1
    assert row["after"]["batches"] < row["before"]["batches"] == 50
    shown = tidemark("shard", "compact", "--all", "--full", "--data", folder).stdout
    assert "shard gc" in shown
    state = client.state("s1")
    assert len(state.batches) == 1
    assert state.retired
    assert ordered(contents(folder, "s1", 499)) == ordered(before)
    again = json.loads(typed("shard", "compact", "s1", "--full", "--json", "--data", folder).stdout)
    assert again["shards"][0]["merges"] == 0

    dry = json.loads(typed("shard", "gc", "s1", "--dry-run", "--json", "--data", folder).stdout)
    assert dry["shards"][0]["retired"]["parts"] == len(state.retired)
    assert client.state("s1").retired == state.retired
    shown = tidemark("shard", "gc", "s1", "--data", folder).stdout
    assert "deleted" in shown
    assert not client.state("s1").retired
    assert {key for key, _ in client.blob.list("s1/")} == client.state("s1").keys
    assert ordered(contents(folder, "s1", 499)) == ordered(before)


def test_gc_says_who_pins(own: tuple[Path, PersistClient]):
    folder, client = own
    fill(client, "s1", 9)
    with client.open_reader("s1").lease():
        typed("shard", "compact", "s1", "--full", "--data", folder)
        done = typed("shard", "gc", "s1", "--data", folder)
        assert "pinned by lease-" in done.stdout
        assert f":{os.getpid()}), at most 14 m" in done.stdout
        assert client.state("s1").retired


def test_gc_of_what_dead_writers_left(own: tuple[Path, PersistClient]):
    folder, client = own
    writer = fill(client, "s1", 9)
    big = pa.table(
        {"id": range(5_000), "price": pa.nulls(5_000, ROWS.field(1).type), "kind": ["x"] * 5_000}
    )
    staged = writer.stage(as_updates(big, time=90, schema=writer.schema))
    leftover = folder / "blob" / "s1" / f".x.parquet.{'0' * 32}"
    leftover.write_bytes(b"half")
    os.utime(leftover, (1, 1))
    young = json.loads(
        typed("shard", "gc", "--all", "--dry-run", "--json", "--data", folder).stdout
    )
    assert young["shards"][0]["staged"]["parts"] == len(staged.parts)
    assert young["leftovers"] == 1
    assert leftover.exists()
    done = typed("shard", "gc", "--all", "--older-than", "0s", "--json", "--data", folder)
    assert "warning" in done.stderr
    found = json.loads(done.stdout)
    assert found["shards"][0]["leaked"]["parts"] == len(staged.parts)
    assert found["leftovers"] == 1
    assert not leftover.exists()
    assert {key for key, _ in client.blob.list("s1/")} == client.state("s1").keys


def test_gc_beside_a_foreign_file(own: tuple[Path, PersistClient]):
    folder, client = own
    fill(client, "s1", 9)
    client.maintain("s1")
    client.blob.set("s1/README", b"hello")
    done = typed("shard", "gc", "--all", "--data", folder)
    assert done.code == 0
    assert "s1/README: not a part's name" in done.stdout
    assert client.blob.get("s1/README") == b"hello"


def test_a_reader_that_has_seen_enough(data: Path):
    done = subprocess.run(
        f"{PROGRAM} shard snapshot orders --format csv --data {data} | head -1",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith('"id","price"')
    assert done.stderr == ""


# fsck


def test_fsck(data: Path):
    shown = tidemark("shard", "fsck", "--all", "--data", data).stdout
    assert "u1-orders: clean" in shown
    found = document("shard", "fsck", "orders", "--data", data)
    assert found["shards"][0]["clean"]
    assert found["shards"][0]["rows"] > 0


def test_fsck_shows_damage_as_the_docs_do(own: tuple[Path, PersistClient]):
    folder, client = own
    catalog = Catalog(client)
    for shard, name in (("u1", "orders"), ("u2", "bids")):
        catalog.add(Item(shard, name, "table", f"CREATE TABLE {name} (...)", shard=shard))
        fill(client, shard)
    part = next(part.key for part in client.state("u1").parts if part.key)
    path = client.blob.inner.path(part)
    path.write_bytes(path.read_bytes()[:-100])
    (block,) = tried_by("tests/integration/test_shard_cli.py")
    for command, shown in commands(block):
        words = command.replace("--data shop", f"--data {folder}").split()[1:]
        printed = tidemark(*words, code=1).stdout
        assert unlike(printed, shown) is None, printed


def test_fsck_finds(own: tuple[Path, PersistClient]):
    folder, client = own
    fill(client, "s1", 9)
    fill(client, "s2", 1)
    blob = client.blob.inner
    assert isinstance(blob, FileBlob)
    key = next(part.key for part in client.state("s1").parts if part.key)
    blob.path(key).write_bytes(b"garbage")
    blob.set("nobody/1700000000000-x.parquet", b"1")
    done = tidemark("shard", "fsck", "--all", "--data", folder, code=1)
    assert key in done.stdout
    assert "restore that blob from a backup" in done.stdout
    assert "s2: clean" in done.stdout
    assert "lie in no shard's folder: nobody/" in done.stdout
    done = typed("shard", "fsck", "s1", "--json", "--data", folder)
    assert done.code == 1
    (report,) = json.loads(done.stdout)["shards"]
    assert {finding["subject"] for finding in report["findings"]} == {key}


def test_beside_a_writer(tmp_path: Path):
    """All commands while another process appends, merges and collects."""
    script = f"""
import sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
from pathlib import Path
import test_shard_cli as t
client = t.opened(Path({str(tmp_path)!r}))
writer = t.fill(client, "s1", 2)
print("ready", flush=True)
while True:
    upper = writer.upper.time
    table = t.pa.table({{"id": range(60), "price": t.pa.nulls(60, t.ROWS.field(1).type), "kind": ["x"] * 60}})
    updates = t.as_updates(table, time=upper, schema=writer.schema)
    writer.compare_and_append(updates, lower=t.Frontier(upper), upper=t.Frontier(upper + 1))
    client.open_critical_since("s1").downgrade(t.Frontier(upper))
    client.maintain("s1")
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            first = document("shard", "list", "--data", tmp_path)["shards"][0]["upper"]
            for _ in range(3):
                report = document("shard", "fsck", "s1", "--data", tmp_path)["shards"][0]
                assert report["clean"], report
            found = document("shard", "snapshot", "s1", "--data", tmp_path)
            assert sum(row["_diff"] for row in found["rows"]) > 60
            tidemark("shard", "compact", "s1", "--full", "--data", tmp_path)
            tidemark("shard", "gc", "--all", "--data", tmp_path)
            tidemark("shard", "inspect", "s1", "--data", tmp_path)
            last = document("shard", "list", "--data", tmp_path)["shards"][0]["upper"]
            assert last > first
            assert process.poll() is None
        finally:
            process.kill()


# What can be typed wrong.

WRONG = [
    (["list"], "where are the shards?"),
    (["list", "--blob", "file:///tmp"], "where are the shards?"),
    (["list", "--sort", "colour", "--data", "DATA"], "cannot sort by 'colour'"),
    (["list", "--blob", "file:///tmp", "--consensus", "nope:///x"], "cannot open consensus"),
    (
        ["list", "--blob", "nope:///x", "--consensus", "sqlite://DATA/consensus.db"],
        "cannot open blob",
    ),
    (["list", "--blob", "mem://", "--consensus", "mem://x"], "memory of another process"),
    (
        ["list", "--blob", "file:///tmp", "--consensus", "postgres://127.0.0.1:1/x"],
        "cannot connect",
    ),
    (["inspect", "order", "--data", "DATA"], "the nearest are: orders"),
    (["inspect", "-", "--data", "DATA"], "there is no shard '-'"),
    (["history", "../../etc", "--data", "DATA"], "there is no shard"),
    (["snapshot", "orders", "--as-of", "yesterday", "--data", "DATA"], "takes a time or `latest`"),
    (["snapshot", "orders", "--as-of", "3", "--data", "DATA"], "can be read from time [20] on"),
    (["snapshot", "orders", "--as-of", "99", "--data", "DATA"], "complete to [60]"),
    (["snapshot", "dropped", "--data", "DATA"], "was dropped"),
    (["snapshot", "orders", "--columns", "colour", "--data", "DATA"], "no such columns: colour"),
    (["snapshot", "orders", "--filter", "price", "--data", "DATA"], "not a filter: 'price'"),
    (["snapshot", "orders", "--filter", "price ~ 1", "--data", "DATA"], "not a filter"),
    (["snapshot", "orders", "--filter", "colour = 1", "--data", "DATA"], "no column 'colour'"),
    (["snapshot", "orders", "--filter", "id = x", "--data", "DATA"], "is not of type int64"),
    (["snapshot", "orders", "--filter", "id in 3", "--data", "DATA"], "a list is (1, 2, 3)"),
    (["snapshot", "orders", "--format", "xml", "--data", "DATA"], "no format 'xml'"),
    (["snapshot", "orders", "--format", "parquet", "--data", "DATA"], "Parquet needs a file"),
    (["snapshot", "orders", "--json", "-o", "/nope/x", "--data", "DATA"], "No such file"),
    (["compact", "--data", "DATA"], "name a shard, or all of them with --all"),
    (["compact", "orders", "--all", "--data", "DATA"], "name a shard, or all of them with --all"),
    (["gc", "--all", "--older-than", "soon", "--data", "DATA"], "not a length of time: 'soon'"),
    (["fsck", "nope", "--data", "DATA"], "there is no shard 'nope'"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=lambda value: str(value)[:40])
def test_typed_wrong(data: Path, words: list[str], said: str):
    done = typed("shard", *(word.replace("DATA", str(data)) for word in words))
    assert done.code == (2 if words[0] == "fsck" else 1)
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize("command", ["list", "inspect", "compact", "fsck", "gc"])
def test_a_wrong_folder_stays_as_it_is(tmp_path: Path, command: str):
    words = ["x"] if command != "list" else []
    done = typed("shard", command, *words, "--data", tmp_path)
    assert done.code
    assert "there is no Tidemark data in" in done.stderr
    missing = typed("shard", command, *words, "--data", tmp_path / "missing")
    assert "does not exist" in missing.stderr
    (tmp_path / "consensus.db").write_bytes(b"")
    assert "is not a SQLite database" in typed("shard", command, *words, "--data", tmp_path).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["consensus.db"]


def test_a_database_of_someone_else(tmp_path: Path):
    import sqlite3

    with sqlite3.connect(tmp_path / "consensus.db") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    assert "there is no Tidemark data" in typed("shard", "list", "--data", tmp_path).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["consensus.db"]


def test_postgres_without_tables_stays_as_it_is(postgres_uri: str, tmp_path: Path):
    (tmp_path / "blob").mkdir()
    where = ["--blob", f"file://{tmp_path / 'blob'}"]
    where += ["--consensus", f"{postgres_uri}?schema=cli_test"]
    assert "there is no Tidemark data in" in typed("shard", "list", *where).stderr
    assert "there is no Tidemark data in" in typed("shard", "list", *where).stderr
    client = PersistClient.open(blob=where[1], consensus=where[3])
    fill(client, "s1", 2)
    client.close()
    assert "s1" in typed("shard", "list", *where).stdout
    assert typed("shard", "fsck", "--all", *where).code == 0
