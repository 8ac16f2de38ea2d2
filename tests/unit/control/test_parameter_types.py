"""The types of parameters that nobody has said: drivers that send binary values go by them."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import asyncpg
import pytest

from session_harness import Client, serving
from tidemark.types import type_named
from wire_harness import spark_free_server

TABLE = (
    "CREATE TABLE t (k int, s smallint, l bigint, n numeric(10, 2), f double precision, b boolean,"
    " v text, d date, ts timestamp, tz timestamptz, by bytea, a int[])"
)

TYPES = {
    "SELECT k FROM t WHERE k = $1": "integer",
    "SELECT k FROM t WHERE $1 < s OR l >= $2 OR f <> $3": "smallint bigint float8",
    "SELECT k FROM t WHERE n = $1 AND v = $2": "numeric text",
    "SELECT k FROM t WHERE b = $1 AND d > $2 AND ts > $3 AND tz > $4": "bool date timestamp timestamptz",
    "SELECT k FROM t WHERE by = $1 AND a = $2": "bytea int[]",
    "SELECT k FROM t WHERE k IN ($1, $2) AND l BETWEEN $3 AND $4": "int int bigint bigint",
    "SELECT k FROM t WHERE k = ANY($1) AND v = ANY($2)": "int[] text[]",
    "SELECT k FROM t ORDER BY k LIMIT $1 OFFSET $2": "bigint bigint",
    "SELECT coalesce($1, 5), $2::int + $3, CASE WHEN k = $4 THEN $5 ELSE v END FROM t": (
        "int int int int text"
    ),
    "SELECT k FROM t WHERE $1 IS NULL OR k = $1": "int",
    "SELECT k FROM t WHERE k = $1 AND v = $1": "int",
    "SELECT $1, $2 || 'x'": "text text",
    "SELECT k FROM t UNION SELECT $1": "int",
    "UPDATE t SET n = n + $1, d = $2 WHERE k = $3": "numeric date int",
    "DELETE FROM t WHERE l = $1": "bigint",
    "INSERT INTO t (k, n, v) VALUES ($1, $2 + 1.5, $3)": "int numeric text",
    "DELETE FROM nosuch WHERE l = $1": "text",
}


def test_parameters_are_what_they_are_taken_for(tmp_path: Path):
    async def scenario() -> None:
        async with serving(tmp_path) as coordinator:
            client = Client(coordinator)
            await client(TABLE)
            for sql, types in TYPES.items():
                prepared = await client.session.prepare(sql, ())
                oids = tuple(type_named(name).oid for name in types.split())
                assert prepared.param_oids == oids, sql
            # What the client says counts.
            prepared = await client.session.prepare("SELECT k FROM t WHERE k = $1", (25,))
            assert prepared.param_oids == (25,)
            # EXECUTE takes what it can make of an argument, as before.
            await client("INSERT INTO t (k) VALUES (1)")
            await client("PREPARE p AS SELECT k FROM t WHERE k = $1")
            assert await client("EXECUTE p (1)") == await client("EXECUTE p ('1')") == [(1,)]

    asyncio.run(scenario())


def test_asyncpg_may_leave_the_casts_out(tmp_path: Path):
    row = (1, 2, 2**40, Decimal("1.50"), 0.5, True, "a", date(2024, 1, 1))
    row += (datetime(2024, 1, 1, 2), datetime(2024, 1, 1, tzinfo=UTC), b"\x00", [1, None])
    columns = ("k", "s", "l", "n", "f", "b", "v", "d", "ts", "tz", "by", "a")

    async def scenario(port: int) -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=port, user="tidemark", database="tidemark"
        )
        await connection.execute(TABLE)
        marks = ", ".join(f"${at}" for at in range(1, len(row) + 1))
        await connection.execute(f"INSERT INTO t VALUES ({marks})", *row)
        for column, value in zip(columns, row, strict=True):
            if column == "a":
                continue  # Arrays are compared by Spark.
            sql = f"SELECT {column} FROM t WHERE {column} = $1"
            assert await connection.fetch(sql, value) == [(value,)], column
        assert await connection.fetch("SELECT k FROM t LIMIT $1", 0) == []
        assert await connection.execute("UPDATE t SET n = $1 WHERE k = $2", 7, 1) == "UPDATE 1"
        assert await connection.fetchval("SELECT n FROM t WHERE v = $1", "a") == Decimal("7.00")
        assert await connection.execute("DELETE FROM t WHERE tz < $1", row[9]) == "DELETE 0"
        moved = "SELECT timestamp '2024-03-31' + $1::interval"
        later = await connection.fetchval(moved, timedelta(days=2, seconds=-2))
        assert later == datetime(2024, 4, 1, 23, 59, 58)
        with pytest.raises(asyncpg.DataError, match="expected"):
            await connection.fetch("SELECT k FROM t WHERE v = $1", 1)
        await connection.close()

    with spark_free_server(tmp_path) as port:
        asyncio.run(scenario(port))
