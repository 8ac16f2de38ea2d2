"""Pools of connections: what they say to a server when they get a connection back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg

from wire_harness import spark_free_server


def test_a_pool_of_asyncpg(tmp_path: Path):
    async def scenario(port: int) -> None:
        address = {"host": "127.0.0.1", "port": port, "user": "tidemark", "database": "tidemark"}
        async with asyncpg.create_pool(**address, min_size=1, max_size=1) as pool:
            await pool.execute("CREATE TABLE t (k int)")
            async with pool.acquire() as connection:
                await connection.execute("SET application_name = 'one'")
                pid = connection.get_server_pid()
                await connection.executemany("INSERT INTO t VALUES ($1)", [(1,), (2,)])
            async with pool.acquire() as connection:
                assert connection.get_server_pid() == pid, "it was good enough to be used again"
                assert await connection.fetchval("SHOW application_name") == ""
                assert await connection.fetch("SELECT k FROM t ORDER BY k") == [(1,), (2,)]

    with spark_free_server(tmp_path) as port:
        asyncio.run(scenario(port))
