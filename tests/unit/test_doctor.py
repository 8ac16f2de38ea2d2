"""doctor: each check in health and in sickness; it leaves nothing behind."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark import doctor
from tidemark.doctor import PACKAGES, Check, Place, examine, is_healthy
from tidemark.persist import PersistClient
from tidemark.persist.fsck import fsck

PROGRAM = str(Path(sys.prefix, "bin", "tidemark"))


def named(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks that look at the whole machine."""
    monkeypatch.setattr(doctor, "CHECKS", (doctor._folder, doctor._blob, doctor._consensus))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    stores(tmp_path).close()
    return tmp_path


def stores(folder: Path) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{folder / 'blob'}", consensus=f"sqlite://{folder / 'consensus.db'}"
    )


def test_the_real_program(data: Path):
    done = subprocess.run(
        [PROGRAM, "doctor", "--data", data, "--json"], capture_output=True, text=True, timeout=240
    )
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["healthy"] else 1)
    checks = {check["name"]: check for check in found["checks"]}
    for name in ("Python", "packages", "Java", "SQLite", "disk space", "durable commit", "clock"):
        assert name in checks
    assert checks["blob"]["status"] == checks["consensus"]["status"] == "ok"
    assert all(check["status"] == "ok" or check["fix"] for check in found["checks"])
    assert not any("\n" in check["detail"] for check in found["checks"])
    shown = subprocess.run([PROGRAM, "doctor"], capture_output=True, text=True, timeout=240).stdout
    assert "what to do" in shown


def test_the_versions_are_those_of_the_pins():
    pins = Path(__file__).parents[2] / "requirements" / "runtime.txt"
    found = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", pins.read_text(), re.MULTILINE))
    for name, tested in PACKAGES.items():
        assert f"{found[name]}.".startswith(f"{tested}."), name


@pytest.mark.usefixtures("quick")
def test_a_data_folder(data: Path):
    before = sorted(
        path.name for path in data.iterdir() if not path.name.endswith(("-wal", "-shm"))
    )
    checks = examine(data, None, None)
    assert is_healthy(checks)
    assert "committed in" in named(checks)["consensus"].detail
    after = sorted(path.name for path in data.iterdir() if not path.name.endswith(("-wal", "-shm")))
    assert after == before


@pytest.mark.usefixtures("quick")
def test_what_it_leaves_is_harmless(data: Path):
    for _ in range(3):
        assert is_healthy(examine(data, None, None))
    client = stores(data)
    assert list(client.blob.list()) == []
    assert client.state("doctor").is_tombstone
    assert client.state("doctor").seqno >= 2
    assert fsck(client, "doctor").is_clean
    assert client.sweep() == 0
    client.close()


@pytest.mark.usefixtures("quick")
def test_a_folder_that_is_not_there_yet(tmp_path: Path):
    checks = examine(tmp_path / "new", None, None)
    assert is_healthy(checks)
    assert "not there yet" in named(checks)["data folder"].detail
    assert list(tmp_path.iterdir()) == []
    checks = examine(tmp_path, None, None)
    assert "not there yet" in named(checks)["consensus"].detail
    assert is_healthy(checks)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_a_file_for_a_folder(tmp_path: Path):
    (tmp_path / "file").write_text("")
    checks = examine(tmp_path / "file", None, None)
    assert named(checks)["data folder"].status == "missing"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("blob", "consensus", "sick"),
    [
        ("file://BELOW/nope", "sqlite://BELOW/consensus.db", "blob"),
        ("file://BELOW/blob", "sqlite://BELOW/nope.db", "consensus"),
        ("file://BELOW/blob", "postgres://127.0.0.1:1/db", "consensus"),
        ("s3://bucket?endpoint=http://127.0.0.1:1", "sqlite://BELOW/consensus.db", "blob"),
        ("nonsense", "sqlite://BELOW/consensus.db", "blob"),
    ],
)
def test_a_store_that_cannot_be_reached(data: Path, blob: str, consensus: str, sick: str):
    places = (each.replace("BELOW", str(data)) for each in (blob, consensus))
    checks = named(examine(None, *places))
    assert checks[sick].status == "missing"
    assert checks[sick].fix or "nope" in checks[sick].detail
    assert not is_healthy(list(checks.values()))
    assert not (data / "nope").exists()
    assert not (data / "nope.db").exists()


@pytest.mark.usefixtures("quick")
def test_a_damaged_database(data: Path):
    (data / "consensus.db").write_bytes(b"garbage" * 1000)
    assert named(examine(data, None, None))["consensus"].status == "missing"


def test_a_check_that_hangs(monkeypatch: pytest.MonkeyPatch):
    import threading

    def _hangs(_: Place) -> list[Check]:
        threading.Event().wait(30)
        return []

    def _fails(_: Place) -> list[Check]:
        raise ValueError("boom")

    monkeypatch.setattr(doctor, "DEADLINE", 0.05)
    monkeypatch.setattr(doctor, "CHECKS", (_hangs, _fails, doctor._python))
    checks = named(examine(None, None, None))
    assert "no answer" in checks["hangs"].detail
    assert "boom" in checks["fails"].detail
    assert checks["Python"].status == "ok"


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import os

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(doctor, "PORTS", {taken.getsockname()[1]: "tests"})
        (check,) = doctor._ports(Place(None, None))
        assert check.status == "warning"
        if sys.platform == "linux":
            assert f"process {os.getpid()}" in check.detail
            (tmp_path / "control.lock").write_text(str(os.getpid()))
            (check,) = doctor._ports(Place(tmp_path, None))
            assert check.status == "ok"
    (check,) = doctor._ports(Place(None, None))
    assert check.status == "ok"


@pytest.mark.parametrize(
    ("patched", "value", "check", "status"),
    [
        ("LITTLE_MEMORY", 2**60, doctor._memory, "warning"),
        ("LITTLE_DISK", 2**60, doctor._folder, "warning"),
        ("SLOW_COMMIT_MS", -1, doctor._folder, "warning"),
        ("SLOW_WRITE_MS", -1, doctor._folder, "warning"),
        ("MIN_PYTHON", (99, 0), doctor._python, "missing"),
        ("PACKAGES", {"rich": "99"}, doctor._packages, "warning"),
        ("PACKAGES", {"no-such-package": "1"}, doctor._packages, "missing"),
        ("_program", lambda name: None, doctor._optional, "missing"),
    ],
)
def test_what_is_wrong_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    patched: str,
    value: object,
    check: Callable[[Place], list[Check]],
    status: str,
):
    monkeypatch.setattr(doctor, patched, value)
    wrong = [found for found in check(Place(tmp_path, None)) if found.status != "ok"]
    assert wrong
    assert all(found.status == status and found.fix for found in wrong)
    assert is_healthy(wrong) == (status == "warning" or not wrong[0].needed)


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(doctor, "CHECKS", (doctor._java,))
    (check,) = examine(None, None, None)
    assert (check.name, check.status) == ("java", "missing")
    assert "make setup" in check.fix


def test_the_configuration_that_a_server_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(doctor, "CHECKS", (doctor._configuration, doctor._ports, doctor._folder))
    file = tmp_path / "tidemark.toml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file.write_text(f'data = "new"\nlisten = "127.0.0.1:{port}"\nno-http = true\n')
        checks = named(examine(None, None, None, file))
    assert checks["configuration"].status == "ok"
    assert str(file) in checks["configuration"].detail
    assert str(tmp_path / "new") in checks["data folder"].detail
    assert checks[f"port {port}"].status == "warning"
    assert "port 6876" not in checks
    file.write_text("lisen = 1")
    found = examine(None, None, None, file)
    assert not is_healthy(found)
    assert named(found)["configuration"].fix == "is listen meant?"
    file.write_text("")
    monkeypatch.setenv("TIDEMARK_LISTN", "127.0.0.1:1")
    check = named(examine(None, None, None, file))["configuration"]
    assert check.status == "warning"
    assert "is TIDEMARK_LISTEN meant?" in check.detail
