"""Spark sessions: how they reach S3 and a master, and that they start without a word."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tidemark.errors import Unavailable
from tidemark.persist.location import open_blob
from tidemark.spark import session
from tidemark.spark.session import s3a_jars, s3a_settings, start_spark

POM = Path(__file__).parents[3] / "scripts" / "s3a" / "pom.xml"


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT_URL", "ENDPOINT_URL_S3", "REGION", "DEFAULT_REGION", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)


def of_bucket(blob: str) -> dict[str, str]:
    bucket = open_blob(blob).uri("k").split("/")[2]
    prefix = f"spark.hadoop.fs.s3a.bucket.{bucket}."
    settings = s3a_settings(blob)
    assert all(name.startswith(prefix) for name in settings)
    return {name.removeprefix(prefix): value for name, value in settings.items()}


def test_an_endpoint_in_the_address_means_paths():
    found = of_bucket("s3://b.c/p/q?endpoint=http://127.0.0.1:9000&region=eu-west-3")
    assert found["endpoint"] == "http://127.0.0.1:9000"
    assert found["endpoint.region"] == "eu-west-3"
    assert found["path.style.access"] == "true"


def test_an_endpoint_in_the_environment_is_used_as_persist_does(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert of_bucket("s3://b")["endpoint"] == "http://one"
    assert of_bucket("s3://b")["endpoint.region"] == "eu-west-1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://two")
    assert of_bucket("s3://b")["endpoint"] == "http://two"
    assert of_bucket("s3://b?endpoint=http://three")["endpoint"] == "http://three"


def test_without_an_endpoint_it_is_aws():
    found = of_bucket("s3://b/p")
    assert "endpoint" not in found
    assert "path.style.access" not in found
    assert found["endpoint.region"] == "us-east-1"


def test_a_profile_counts_unless_there_are_keys(monkeypatch: pytest.MonkeyPatch):
    provider = "spark.hadoop.fs.s3a.bucket.b.aws.credentials.provider"
    monkeypatch.setenv("AWS_PROFILE", "p")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    assert "Profile" in s3a_settings("s3://b")[provider]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    assert "Profile" not in s3a_settings("s3://b")[provider]


def test_s3_without_its_jars_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEMARK_S3A_JARS", str(tmp_path))
    assert s3a_jars() == []
    with pytest.raises(Unavailable) as caught:
        start_spark(blob="s3://b/p")
    assert "make s3a" in (caught.value.hint or "")
    (tmp_path / "a.jar").touch()
    assert s3a_jars() == [tmp_path / "a.jar"]


def test_the_jars_are_of_the_hadoop_that_pyspark_brings():
    bundled = next(Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")).stem
    wanted = re.search(r"<hadoop>(.*)</hadoop>", POM.read_text())
    assert wanted is not None
    assert bundled == f"hadoop-client-api-{wanted[1]}"


def test_the_driver_is_reached_where_it_reaches_the_master():
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        found = session._driver_address(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    assert found == {"spark.driver.host": "127.0.0.1"}
    assert session._driver_address("yarn") == {}


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "spark://127.0.0.1", "spark://"])
def test_a_master_that_is_not_there(master: str):
    with pytest.raises(Unavailable, match="no Spark master answers"):
        start_spark(master=master)


def test_a_session_starts_and_ends_without_a_word():
    program = (
        "from tidemark.spark.session import start_spark\n"
        "spark = start_spark(master='local[1]')\n"
        "print(spark.range(3).count())\n"
        "spark.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240
    )
    assert (done.stdout, done.stderr) == ("3\n", "")
