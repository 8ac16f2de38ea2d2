"""Collections read from outside while a server writes them: the example, and what it stands on."""

from __future__ import annotations

import re
import runpy
import subprocess
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from serving import DEADLINE, Serving, eventually

import tidemark
from services import java_program
from tidemark.persist import PersistClient
from tidemark.persist.fsck import fsck
from tidemark.tools.location import locate, open_client

EXAMPLE = Path(__file__).parents[2] / "examples" / "joint_read.py"
NAMES = ("users", "auctions", "bids")
ROUNDS = 4
LINE = re.compile(
    r"at (\d+): (\d+) users, (\d+) auctions, (\d+) bids \(by now up to bid (\d+)\); "
    r"0 auctions without a seller, 0 bids without a buyer, 0 bids without an auction"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A live source whose auctions and bids are deleted soon after they were made."""
    running = Serving(tmp_path_factory.mktemp("joint") / "data")
    try:
        running.start()
        with running.connect() as connection:
            connection.execute(
                "CREATE SOURCE auction FROM LOAD GENERATOR AUCTION "
                "(TICK INTERVAL '100ms', HISTORY 60) FOR ALL TABLES"
            )
        eventually("bids", lambda: newest_bid(running) > 0)
        yield running
    finally:
        running.destroy()


@pytest.fixture
def region(server: Serving, spark: SparkSession) -> Iterator[tidemark.Region]:
    with tidemark.attach(spark, server.data) as opened:
        yield opened


def test_attaching_again_leaves_what_is_not_its_own(
    server: Serving, region: tidemark.Region, spark: SparkSession
):
    spark.range(3).createOrReplaceTempView("users")
    spark.sql("CREATE VIEW tidemark.mine AS SELECT 1 AS one")
    try:
        with tidemark.attach(spark, server.data):
            names = {row.tableName for row in spark.sql("SHOW TABLES IN tidemark").collect()}
            assert names >= {"mine", "users", "auctions", "bids"}
            assert spark.table("users").count() == 3
            assert spark.table("tidemark.users").count() > 3
    finally:
        spark.catalog.dropTempView("users")
        spark.sql("DROP VIEW tidemark.mine")


def newest_bid(server: Serving) -> int:
    with server.connect() as connection:
        row = connection.execute("SELECT coalesce(max(id), 0) FROM bids").fetchone()
        assert row is not None
        return row[0]


def contradictions() -> Callable[..., dict[str, int]]:
    return runpy.run_path(str(EXAMPLE))["contradictions"]


def test_the_example_in_a_fresh_environment(server: Serving, tmp_path: Path):
    """Its own Python environment and folder, no variables; `python3` on the path is another."""
    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    library = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "fresh")})
    installed = sysconfig.get_path("purelib")
    Path(library, "installed.pth").write_text(f"import site; site.addsitedir({installed!r})\n")
    java = java_program()
    assert java is not None
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [str(python), str(EXAMPLE), str(server.data), str(ROUNDS)],
        cwd=tmp_path / "elsewhere",
        env={
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
            "JAVA_HOME": str(java.parent.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == ROUNDS, done.stdout
    found = [[int(n) for n in match.groups()] for line in lines if (match := LINE.fullmatch(line))]
    assert len(found) == ROUNDS, done.stdout
    times, users, auctions, bids, newest = zip(*found, strict=True)
    assert list(times) == sorted(set(times)), "time goes on"
    assert list(newest) == sorted(newest)
    assert newest[-1] > newest[0], "data flows meanwhile"
    assert set(users) == {1_000}
    assert min(auctions) > 0
    assert min(bids) > 0


def test_what_is_read_at_two_times_contradicts_itself(
    region: tidemark.Region, server: Serving, spark: SparkSession
):
    """The example's check is one that can fail."""
    check = contradictions()
    with region.at(*NAMES) as before:
        seen = {name: before.frame(spark, name) for name in NAMES}
        assert not any(check(*seen.values()).values())
        known = newest_bid(server)
        # Each step makes an auction, and most of its bids go to the latest ones.
        eventually("a few steps", lambda: newest_bid(server) > known + 300)
        with region.at(*NAMES) as after:
            later = {name: after.frame(spark, name) for name in NAMES}
            assert not any(check(*later.values()).values())
            torn = check(seen["users"], seen["auctions"], later["bids"])
            assert torn["bids without an auction"] > 0
            torn = check(later["users"].where("id > 10"), later["auctions"], later["bids"])
            assert torn["auctions without a seller"] > 0
            assert torn["bids without a buyer"] > 0
            assert torn["bids without an auction"] == 0


def test_tables_follow_the_data(region: tidemark.Region, server: Serving, spark: SparkSession):
    # Temporary views, of whomever, are listed with every database.
    listed = spark.sql("SHOW TABLES IN tidemark").where("not isTemporary").collect()
    assert {row["tableName"] for row in listed} == set(NAMES)

    def newest() -> int:
        row = spark.sql("SELECT max(id) FROM tidemark.bids").first()
        assert row is not None
        return row[0]

    seen = newest()
    eventually("another bid", lambda: newest_bid(server) > seen)
    assert newest() > seen, "each query reads what is complete by then"
    joined = spark.sql(
        "SELECT count(*) FROM tidemark.users u JOIN tidemark.auctions a ON a.seller = u.id"
    ).first()
    assert joined is not None
    assert joined[0] > 0


def test_views_of_one_time(region: tidemark.Region, spark: SparkSession):
    with region.at(*NAMES) as at:
        at.views(spark)
        query = (
            "SELECT count(*), max(b.id), count_if(a.id IS NULL), count_if(u.id IS NULL) FROM bids b "
            "LEFT JOIN auctions a ON b.auction_id = a.id LEFT JOIN users u ON b.buyer = u.id"
        )
        first = spark.sql(query).first()
        assert first is not None
        assert first[0] > 0
        assert (first[2], first[3]) == (0, 0)
        assert spark.sql(query).first() == first, "time stands still"
        plain = {name: at.frame(spark, name).count() for name in NAMES}
        assert plain == {name: spark.table(name).count() for name in NAMES}
    assert not {row.name for row in spark.catalog.listTables()} & set(NAMES)


@pytest.mark.soak
def test_shards_of_others_outlive_the_server(
    region: tidemark.Region, server: Serving, spark: SparkSession
):
    """The server drops what it has forgotten of its own, and nothing else."""

    def write(shard: str) -> None:
        frame = spark.range(1_000).selectExpr("id", "id % 7 AS score")
        writing = frame.write.format("tidemark").option("data", str(server.data))
        writing.option("shard", shard).mode("append").save()

    for theirs in ("u1", "u999999", "u7-state", "catalog", "txns"):
        with pytest.raises(PySparkException, match="is the server's, or may become so"):
            write(theirs)
    for ours in ("scores", "u", "users-2026", "mine-u1"):
        write(ours)
    assert server.stop() == 0
    server.start()
    known = newest_bid(server)
    eventually("the source goes on", lambda: newest_bid(server) > known)
    client: PersistClient = open_client(locate(server.data, None, None))
    try:
        for ours in ("scores", "u", "users-2026", "mine-u1"):
            upper = client.state(ours).upper.time
            assert upper
            found = client.open_reader(ours).snapshot(upper - 1)
            assert sorted(found["id"].to_pylist()) == list(range(1_000))
            assert not fsck(client, ours).errors
        assert client.consensus.head("u999999") is None
    finally:
        client.close()
    write("scores")
    read = spark.read.format("tidemark").option("data", str(server.data)).option("shard", "scores")
    assert read.load().count() == 2_000
