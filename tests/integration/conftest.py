"""One server for the whole folder: starting Spark costs more than most tests here."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from serving import Serving


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    running = Serving(tmp_path_factory.mktemp("server") / "data")
    try:
        running.start()
        with running.connect() as connection:
            # Answered by the cluster, so from here on it is up.
            connection.execute("SELECT count(*) FROM generate_series(1, 1)")
        yield running
    finally:
        running.destroy()


@pytest.fixture
def connection(server: Serving) -> Iterator[psycopg.Connection]:
    with server.connect() as opened:
        yield opened
