"""Clients of a benchmark, in a process of their own: look up one row by its key, again and again.

    python -m tidemark.bench.serve_clients DSN CLIENTS ROWS SEED

Says `ready` when all have connected and prepared the statement. Then each line of input is a number
of seconds to work for, answered by a line of JSON: how many look-ups, and how long they took.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time

import psycopg

LOOK_UP = "SELECT id, customer, amount, kind FROM orders WHERE id = %s"
KEPT = 2_000
"""Latencies that are reported of a client, taken evenly."""


def main() -> None:
    dsn, clients, rows, seed = sys.argv[1], *map(int, sys.argv[2:5])
    workers = [_Client(dsn, rows, seed * 1_000 + at) for at in range(clients)]
    for line in _said("ready"):
        seconds = float(line)
        threads = [threading.Thread(target=each.work, args=(seconds,)) for each in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = [ms for each in workers for ms in each.taken[:: max(1, len(each.taken) // KEPT)]]
        print(json.dumps({"count": sum(len(w.taken) for w in workers), "ms": taken}), flush=True)


def _said(word: str):
    print(word, flush=True)
    yield from sys.stdin


class _Client:
    def __init__(self, dsn: str, rows: int, seed: int):
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._rows = rows
        self._random = random.Random(seed)
        self.taken: list[float] = []
        for key in (0, 1 << 15, rows - 1):  # psycopg sends small numbers as smaller types.
            self._look_up(min(key, rows - 1))

    def work(self, seconds: float) -> None:
        self.taken = []
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            self._look_up(self._random.randrange(self._rows))
            self.taken.append(1000 * (time.perf_counter() - begun))

    def _look_up(self, key: int) -> None:
        found = self._connection.execute(LOOK_UP, [key], prepare=True).fetchall()
        assert [row[0] for row in found] == [key], (key, found)


if __name__ == "__main__":
    main()
