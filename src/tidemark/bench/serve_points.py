"""Point look-ups over the wire: one client, and 32 of them, beside PostgreSQL with the same rows."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from rich.console import Console

from tidemark.bench.serve_process import ServerProcess, cpu_seconds, postgres, until

CLIENTS = 32
PROCESSES = 4
TURNS = 3
KINDS = ("bid", "ask", "fill", "void")
TABLE = (
    "CREATE TABLE orders (id bigint NOT NULL, customer bigint, amount double precision, kind text)"
)


def fill(connection: psycopg.Connection, rows: int) -> None:
    connection.execute(TABLE)
    with connection.cursor().copy("COPY orders FROM STDIN") as copy:
        for start in range(0, rows, 10_000):
            lines = (_line(i) for i in range(start, min(start + 10_000, rows)))
            copy.write("".join(lines))


def _line(i: int) -> str:
    return f"{i}\t{i * 7919 % 1000}\t{i * 31 % 10_007 / 4}\t{KINDS[i % 4]}\n"


def points(
    console: Console, server: ServerProcess, folder: Path, *, rows: int, seconds: float
) -> dict[str, float]:
    """The look-ups; `orders` is filled and indexed already."""
    with ExitStack() as stack:
        beside = stack.enter_context(postgres(folder / "postgres"))
        sides: dict[str, tuple[str, dict[str, Callable[[], list[int]]]]] = {
            "point": (
                server.dsn,
                {"control": lambda: server.control, "cluster": lambda: server.cluster},
            )
        }
        if beside is not None:
            with beside.connect() as connection:
                fill(connection, rows)
                connection.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
                connection.execute("VACUUM ANALYZE orders")
            sides["postgres"] = (beside.dsn, {"server": lambda: beside.processes})
        console.print(f"look-ups in {rows:,} rows ...")
        alone = {
            name: stack.enter_context(_clients(dsn, 1, rows, 1)) for name, (dsn, _) in sides.items()
        }
        ms: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(TURNS):
            for name, client in alone.items():
                _, found = client(seconds)
                ms[name] += found
        found = {f"{name}_p50_ms": statistics.median(taken) for name, taken in ms.items()}
        many = {
            name: stack.enter_context(_clients(dsn, CLIENTS, rows, 2))
            for name, (dsn, _) in sides.items()
        }
        rates: dict[str, list[float]] = {name: [] for name in sides}
        slow: dict[str, list[float]] = {name: [] for name in sides}
        used: dict[str, float] = {}
        for _ in range(TURNS):
            for name, clients in many.items():
                before = {each: cpu_seconds(pids()) for each, pids in sides[name][1].items()}
                count, taken = clients(seconds)
                rates[name].append(count / seconds)
                slow[name] += taken
                for each, pids in sides[name][1].items():
                    cost = 1e6 * (cpu_seconds(pids()) - before[each]) / count
                    used[f"{name}_{each}_cpu_us"] = cost
        for name in sides:
            found[f"{name}_qps"] = statistics.median(rates[name])
            found[f"{name}_32_p50_ms"] = statistics.median(slow[name])
    if beside is not None:
        found["point_vs_postgres"] = found["point_qps"] / found["postgres_qps"]
    else:
        console.print("point_vs_postgres is not measured: there is no PostgreSQL server here")
    return found | used


@contextmanager
def _clients(
    dsn: str, count: int, rows: int, seed: int
) -> Iterator[Callable[[float], tuple[int, list[float]]]]:
    """`count` clients in a few processes; what is given makes them all work for so long, and
    returns how many look-ups they did and how long those took."""
    per_process = max(1, count // PROCESSES)
    started = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tidemark.bench.serve_clients", dsn),
                *(str(per_process), str(rows), str(seed * 100 + at)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for at in range(count // per_process)
    ]

    def answers() -> list[str]:
        lines = []
        for process in started:
            assert process.stdout is not None
            lines.append(process.stdout.readline().strip())
        return lines

    def work(seconds: float) -> tuple[int, list[float]]:
        for process in started:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        found = [json.loads(line) for line in answers()]
        return sum(each["count"] for each in found), [ms for each in found for ms in each["ms"]]

    try:
        if answers() != ["ready"] * len(started):
            raise SystemExit("the clients of the benchmark did not start")
        yield work
    finally:
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def prepare(server: ServerProcess, rows: int) -> None:
    """The table, and its index when it answers."""
    with server.connect() as connection:
        fill(connection, rows)
        connection.execute("CREATE INDEX orders_by_id ON orders (id)")

        def hydrated() -> bool:
            found = connection.execute(
                "SELECT bool_and(h.hydrated) FROM mz_internal.mz_hydration_statuses h"
                " JOIN mz_catalog.mz_indexes i ON i.id = h.object_id"
            ).fetchone()
            return found is not None and bool(found[0])

        until(hydrated, "the index is there")
