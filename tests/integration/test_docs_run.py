"""README and docs as a reader would follow them: every code block is run (`docs_blocks`).

A page is one session on the server that this folder shares, in database `tidemark`; what it makes
is dropped when it ends. Addresses of the docs' examples become those of the test's servers, and
`demo.tidemark` is the server's data folder. What is shown behind a query or a command is compared
with what it gives. A query may take a while to give it (sources come to life); everything else must
work at once. Servers and streams that a block starts are stopped when they have come up.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from serving import DEADLINE, Serving, eventually

from docs_blocks import ANY, PAGES, ROOT, Block, agrees, blocks, cells, commands, unlike
from kafka_topics import send_change
from services import KafkaServer, program
from tidemark.control import statements as s
from tidemark.control.parse import parse, split

PATIENCE = DEADLINE
_COPY_IN = re.compile(r"^COPY[^;]*FROM STDIN[^;]*;\n(?P<rows>.*?)^\\\.$", re.M | re.S | re.I)
_RUN = [page for page in PAGES if any(block.is_code for block in blocks(page))]


class Reader:
    """Who follows a page, with a session, a terminal and a Python of their own."""

    def __init__(
        self, server: Serving, folder: Path, addresses: dict[str, str], python: dict[str, object]
    ):
        self.session = server.connect()
        self._server = server
        self._folder = folder
        self._addresses = addresses
        self._python = python

    def follow(self, block: Block) -> None:
        text = block.text
        for shown, real in self._addresses.items():
            text = text.replace(shown, real)
        match block.language:
            case "sql":
                self._sql(text, block.expected)
            case "python":
                # Spark began in another folder than this reader is in.
                for name in ("demo.tidemark", "bids-copy.checkpoint"):
                    text = text.replace(f'"{name}"', repr(str((self._folder / name).resolve())))
                with contextlib.chdir(self._folder):
                    exec(compile("\n" * block.line + text, str(block.page), "exec"), self._python)
                    self._end_streams()
            case "sh":
                self._shell(text)
            case "console":
                for command, shown in commands(block._replace(text=text)):
                    run = self._serve if " serve " in command else self._shell
                    printed = run(command)
                    missing = unlike(printed, shown)
                    assert missing is None, f"{command}\n{printed}\nwithout\n{missing}"

    def _end_streams(self) -> None:
        """Those that a block has started, once they have written something."""
        spark = self._python.get("spark")
        for query in spark.streams.active if isinstance(spark, SparkSession) else ():
            eventually("a batch", lambda query=query: query.lastProgress or not query.isActive)
            assert query.exception() is None, str(query.exception())
            query.stop()  # In the middle of whatever it does.

    def _serve(self, command: str) -> str:
        """Started on free ports, and stopped when it is ready."""
        free = "--listen 127.0.0.1:0 --http 127.0.0.1:0 --spark-master 'local[2]'"
        with subprocess.Popen(
            ["sh", "-euc", f"exec {command} {free}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as started:
            overdue = threading.Timer(PATIENCE, started.kill)
            overdue.start()
            assert started.stdout is not None
            printed = started.stdout.readline()
            started.terminate()
            assert started.wait() == 0, printed
            overdue.cancel()
        return printed

    @property
    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return self._server.environment | {"PATH": path}

    def _shell(self, script: str) -> str:
        done = subprocess.run(
            ["sh", "-euc", script],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return done.stdout

    def _sql(self, text: str, expected: str | None) -> None:
        rows_in = [match["rows"] for match in _COPY_IN.finditer(text)]
        statements = split(
            _COPY_IN.sub(lambda match: match[0].partition("\n")[0], text) if rows_in else text
        )
        assert statements, "no statement"
        for sql in statements[:-1]:
            self._run(sql, rows_in)
        last = statements[-1]
        if expected is None:
            self._run(last, rows_in)
        elif expected.startswith("ERROR:"):
            with pytest.raises(psycopg.Error) as caught:
                self._run(last, rows_in)
            _said(caught.value, expected)
        else:
            self._shows(last, cells(expected))

    def _run(self, sql: str, rows_in: list[str], *, lines: int = 1) -> list[list[str]]:
        """What it prints; of a subscription without an end, that many lines."""
        statement = parse(sql)
        if isinstance(statement, s.CopyFrom):
            with self.session.cursor().copy(sql.encode()) as copy:
                copy.write(rows_in.pop(0))
            return []
        inner = statement.statement if isinstance(statement, s.CopyTo) else statement
        if isinstance(inner, s.Subscribe) and inner.up_to is None:
            return self._watch(sql, isinstance(statement, s.CopyTo), lines)
        if isinstance(statement, s.CopyTo):
            with self.session.cursor().copy(sql.encode()) as copy:
                return cells(b"".join(copy).decode())
        return _printed(self.session.execute(sql.encode()))

    def _watch(self, sql: str, is_copy: bool, lines: int) -> list[list[str]]:
        """The connection is closed on it, as by Ctrl-C."""
        with contextlib.closing(self._server.connect()) as own:
            cursor = own.cursor()
            overdue = threading.Timer(PATIENCE, own.cancel)
            overdue.start()
            try:
                if not is_copy:
                    next(cursor.stream(sql.encode()))
                    return []
                found = ""
                # Leaving it cancels it, which is an error of its own.
                with (
                    contextlib.suppress(psycopg.OperationalError),
                    cursor.copy(sql.encode()) as copy,
                ):
                    while len(cells(found)) < lines and (piece := copy.read()):
                        found += bytes(piece).decode()
                return cells(found)[:lines]
            finally:
                overdue.cancel()

    def _shows(self, sql: str, expected: list[list[str]]) -> None:
        found: list[list[str]] = []
        lines = len(expected) - (expected[-1:] == [[ANY]])

        def look() -> bool:
            found[:] = self._run(sql, [], lines=lines)
            return agrees(found, expected)

        if not isinstance(parse(sql), s.Select):
            assert look(), f"{sql}\n{found}\ninstead of\n{expected}"
            return
        try:
            eventually(sql, look, deadline=PATIENCE)
        except AssertionError:
            raise AssertionError(f"{sql}\n{found}\ninstead of\n{expected}") from None


def _printed(cursor: psycopg.Cursor) -> list[list[str]]:
    result = cursor.pgresult
    if result is None or not cursor.description:
        return []
    values = [
        [
            "" if (value := result.get_value(row, column)) is None else value.decode()
            for column in range(result.nfields)
        ]
        for row in range(result.ntuples)
    ]
    return [[column.name for column in cursor.description], *values]


def _said(error: psycopg.Error, expected: str) -> None:
    said = {"ERROR": error.diag.message_primary or "", "HINT": error.diag.message_hint or ""}
    for line in filter(None, expected.splitlines()):
        kind, _, text = line.partition(":")
        pattern = ".*".join(map(re.escape, text.strip().split(ANY)))
        assert re.fullmatch(pattern, said[kind]), said


@pytest.fixture
def reader(server: Serving, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Reader]:
    page: Path = request.getfixturevalue("page")
    text = page.read_text()
    addresses = {
        "-p 6875": f"-p {server.port}",
        "tidemark.connect()": f'tidemark.connect("127.0.0.1:{server.port}")',
        "127.0.0.1:6875": f"127.0.0.1:{server.port}",
        "--data shop": "--data demo.tidemark",
        'open_region("shop.tidemark")': 'open_region("demo.tidemark")',
        "127.0.0.1:6876": f"127.0.0.1:{server.http_port}",
        "/mnt/backups": str(tmp_path / "backups"),
    }
    if "protoc" in text:
        program("protoc")
    if "localhost:9092" in text:
        kafka: KafkaServer = request.getfixturevalue("kafka")
        addresses["localhost:9092"] = kafka.bootstrap
        (tmp_path / "dev.tidemark").mkdir()
        (tmp_path / "dev.tidemark" / "kafka").symlink_to(kafka.broker.folder)
    for shown in ("http://localhost:8081", "https://registry:8081"):
        if shown in text:
            addresses[shown] = request.getfixturevalue("registry")
    if "'db.public.users'" in text:
        registry = addresses["https://registry:8081"]
        send_change(kafka, registry, "db.public.users", {"id": 1}, {"id": 1, "name": "ada"})
    (tmp_path / "demo.tidemark").symlink_to(server.data)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    before = _what_there_is(server)
    python: dict[str, object] = {"__name__": "docs"}
    if "```python" in text:
        python["spark"] = request.getfixturevalue("spark")
    made = Reader(server, tmp_path, addresses, python)
    try:
        yield made
    finally:
        made.session.close()
        if "```python" in text:
            # The session is shared with tests that look what there is.
            request.getfixturevalue("spark").sql("DROP DATABASE IF EXISTS tidemark CASCADE")
        _drop(server, _what_there_is(server) - before)


def _what_there_is(server: Serving) -> set[tuple[str, str]]:
    """Objects, schemas, databases, clusters and roles, each by its kind and its name."""
    with server.connect() as session:
        objects = session.execute(
            "SELECT o.type, d.name, s.name, o.name FROM mz_objects o"
            " JOIN mz_schemas s ON o.schema_id = s.id JOIN mz_databases d ON s.database_id = d.id"
            " WHERE o.id LIKE 'u%' AND o.type NOT IN ('subsource', 'progress')"
        ).fetchall()
        found = {
            (kind.replace("-", " "), ".".join(f'"{part}"' for part in name))
            for kind, *name in objects
        }
        for kind in ("schema", "database", "cluster", "role"):
            query = f"SELECT name FROM mz_{kind}s"
            found |= {(kind, f'"{name}"') for (name,) in session.execute(query.encode())}
    return found


def _drop(server: Serving, left: set[tuple[str, str]]) -> None:
    last = ("schema", "database", "cluster", "role")
    with server.connect() as session:
        session.execute("ALTER SYSTEM RESET ALL")
        for kind, name in sorted(
            left, key=lambda one: last.index(one[0]) if one[0] in last else -1
        ):
            if kind == "role":
                session.execute(f"DROP OWNED BY {name}".encode())
            cascade = "" if kind in ("database", "role") else " CASCADE"
            session.execute(f"DROP {kind} IF EXISTS {name}{cascade}".encode())


@pytest.mark.parametrize("page", _RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, reader: Reader) -> None:
    for block in blocks(page):
        if block.is_code:
            try:
                reader.follow(block)
            except Exception as error:
                error.add_note(f"in {block.where}")
                raise
