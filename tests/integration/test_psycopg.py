"""psycopg against the real server: parameters, prepared statements, transactions, COPY."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest
from psycopg import errors
from serving import Serving

VALUES = {
    "b": True,
    "s": 7,
    "i": -70_000,
    "l": 3_000_000_000,
    "n": Decimal("12.50"),
    "d": 0.1,
    "t": 'it\'s \\ "quoted"\n\tünïcode 😀 $1 %s --',
    "day": date(2024, 2, 29),
    "ts": datetime(2024, 2, 29, 23, 59, 59, 999_999),
    "tz": datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC),
    "iv": -timedelta(days=2, hours=3, microseconds=1),
}
NAMES = ", ".join(VALUES)
HOLES = ", ".join(["%s"] * len(VALUES))


@pytest.fixture(scope="module")
def values_table(server: Serving) -> Iterator[str]:
    """One row of VALUES and one of nulls, both inserted by parameters."""
    with server.connect() as c:
        c.execute(
            "CREATE TABLE py_values (b boolean, s smallint, i int, l bigint, n numeric(10, 2),"
            " d double precision, t text, day date, ts timestamp, tz timestamptz, iv interval)"
        )
        c.execute(f"INSERT INTO py_values VALUES ({HOLES})", list(VALUES.values()))
        c.execute(f"INSERT INTO py_values ({NAMES}) VALUES ({HOLES})", [None] * len(VALUES))
        yield "py_values"
        c.execute("DROP TABLE py_values")


@pytest.fixture
def table(connection: psycopg.Connection) -> Iterator[str]:
    connection.execute("CREATE TABLE py_t (k int NOT NULL, v text)")
    yield "py_t"
    connection.execute("DROP TABLE IF EXISTS py_t CASCADE")


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_values_come_back_as_they_went_in(
    connection: psycopg.Connection, values_table: str, binary: bool
):
    found = connection.execute(f"SELECT * FROM {values_table}", binary=binary).fetchall()
    assert sorted(found, key=str) == sorted(
        [tuple(VALUES.values()), (None,) * len(VALUES)], key=str
    )


def test_parameters_in_the_select_list(connection: psycopg.Connection):
    given = [*VALUES.values(), None, float("inf"), float("-inf"), 10**19, -1]
    sql = f"SELECT {', '.join(['%s'] * len(given))}"
    assert connection.execute(sql, given).fetchone() == tuple(given)
    assert connection.execute(sql, given, binary=True).fetchone() == tuple(given)


def test_parameters_in_where(connection: psycopg.Connection, values_table: str):
    condition = " AND ".join(f"{name} = %s" for name in VALUES)
    sql = f"SELECT count(*) FROM {values_table} WHERE {condition}"
    assert connection.execute(sql, list(VALUES.values())).fetchone() == (1,)
    packed = sql.replace(" = ", "=").replace(" AND ", "AND ")
    assert connection.execute(packed, list(VALUES.values())).fetchone() == (1,)


def test_a_parameter_takes_the_type_of_its_context(
    connection: psycopg.Connection, values_table: str
):
    asked = connection.execute(
        f"SELECT i + %s, t || %s, day + %s, coalesce(i, %s), %s::int, n * %s"
        f" FROM {values_table} WHERE i IN (%s,%s)",
        [1, "!", 1, 5, "42", Decimal("2"), -70_000, 3],
    ).fetchone()
    assert asked == (
        -69_999,
        VALUES["t"] + "!",
        date(2024, 3, 1),
        -70_000,
        42,
        Decimal("25.00"),
    )


def test_a_list_is_an_array(connection: psycopg.Connection, table: str):
    connection.execute("INSERT INTO py_t VALUES (1, 'one'), (2, 'two'), (3, NULL)")
    found = connection.execute("SELECT k FROM py_t WHERE k = ANY(%s) ORDER BY k", [[1, 3]])
    assert found.fetchall() == [(1,), (3,)]


@pytest.mark.parametrize(
    ("sql", "parameter", "error"),
    [
        ("INSERT INTO py_t (k) VALUES (%s)", "x", errors.InvalidTextRepresentation),
        ("INSERT INTO py_t (k) VALUES (%s)", 3_000_000_000, errors.NumericValueOutOfRange),
        ("INSERT INTO py_t (k) VALUES (%s)", None, errors.NotNullViolation),
        ("INSERT INTO py_t (k) VALUES (%s)", True, errors.DatatypeMismatch),
        ("INSERT INTO py_t (k) VALUES (%s)", date(2024, 1, 1), errors.DatatypeMismatch),
        ("SELECT k FROM py_t WHERE k = %s", "x", errors.InvalidTextRepresentation),
        ("SELECT k FROM py_t WHERE k = %s", date(2024, 1, 1), errors.UndefinedFunction),
        ("SELECT k / %s FROM py_t", 0, errors.DivisionByZero),
        ("SELECT %s::uuid", "{}", errors.UndefinedObject),
    ],
)
def test_wrong_parameters_are_clear_errors(
    connection: psycopg.Connection,
    table: str,
    sql: str,
    parameter: object,
    error: type[psycopg.Error],
):
    connection.execute("INSERT INTO py_t VALUES (1, 'one')")
    with pytest.raises(error):
        connection.execute(sql, [parameter])
    assert connection.execute("SELECT 'alive'").fetchone() == ("alive",)


def test_prepared_statements(connection: psycopg.Connection, table: str):
    for k in range(3):
        connection.execute("INSERT INTO py_t VALUES (%s,%s)", [k, str(k)], prepare=True)
    for k in range(3):
        found = connection.execute("SELECT v, %s FROM py_t WHERE k = %s", [k, k], prepare=True)
        assert found.fetchall() == [(str(k), k)]
    connection.execute("DEALLOCATE ALL")
    assert connection.execute("SELECT count(*) FROM py_t", prepare=True).fetchone() == (3,)


def test_executemany_and_pipelines(connection: psycopg.Connection, table: str):
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO py_t VALUES (%s, %s)", [(k, f"v{k}") for k in range(50)])
        assert cursor.rowcount == 50
    with connection.pipeline():
        first = connection.execute("UPDATE py_t SET v = 'even' WHERE k %% 2 = %s", [0])
        second = connection.execute("DELETE FROM py_t WHERE k >= %s", [40])
    assert (first.rowcount, second.rowcount) == (25, 10)
    asked = "SELECT count(*), max(k) FROM py_t WHERE v = 'even'"
    assert connection.execute(asked).fetchone() == (20, 38)


def test_default_transactions(server: Serving, connection: psycopg.Connection, table: str):
    def count() -> int:
        return connection.execute("SELECT count(*) FROM py_t").fetchone()[0]  # type: ignore[index]

    with server.connect() as other:
        other.autocommit = False
        other.execute("INSERT INTO py_t VALUES (1, 'a')")
        other.execute("INSERT INTO py_t VALUES (2, 'b')")
        assert count() == 0
        other.commit()
        assert count() == 2

        other.execute("INSERT INTO py_t VALUES (3, 'c')")
        assert other.execute("SELECT count(*) FROM py_t").fetchone() == (3,)
        other.rollback()
        other.execute("INSERT INTO py_t VALUES (3, 'c')")
        with pytest.raises(errors.UndefinedColumn):
            other.execute("SELECT nothing")
        other.commit()
        assert count() == 2

        # What a transaction reads stays as it was, and the next one sees what came since.
        assert other.execute("SELECT count(*) FROM py_t").fetchone() == (2,)
        connection.execute("INSERT INTO py_t VALUES (4, 'd')")
        assert other.execute("SELECT count(*) FROM py_t").fetchone() == (2,)
        other.commit()
        assert other.execute("SELECT count(*) FROM py_t").fetchone() == (3,)
        other.rollback()

        other.read_only = True
        with pytest.raises(errors.ReadOnlySqlTransaction):
            other.execute("INSERT INTO py_t VALUES (5, 'e')")
        other.rollback()


def test_a_failed_transaction_makes_nobody_wait(
    server: Serving, connection: psycopg.Connection, table: str
):
    connection.execute("INSERT INTO py_t VALUES (1, 'a')")
    with server.connect() as other:
        other.execute("BEGIN")
        other.execute("UPDATE py_t SET v = 'b'")
        with pytest.raises(errors.UndefinedColumn):
            other.execute("SELECT nothing")
        connection.execute("INSERT INTO py_t VALUES (2, 'c')")
        assert other.execute("COMMIT").statusmessage == "ROLLBACK"
    found = connection.execute("SELECT * FROM py_t ORDER BY k").fetchall()
    assert found == [(1, "a"), (2, "c")]


def test_read_then_write_loses_no_update(
    server: Serving, connection: psycopg.Connection, table: str
):
    """Nobody waits for an open transaction, and one that comes too late is told so."""
    connection.execute("INSERT INTO py_t VALUES (0, 'n')")
    with server.connect() as other:
        for change in ("UPDATE py_t SET k = k + 10", "INSERT INTO py_t SELECT k + 1, v FROM py_t"):
            other.execute("BEGIN")
            other.execute(change)  # type: ignore[arg-type]
            connection.execute("UPDATE py_t SET k = k + 1")
            with pytest.raises(errors.SerializationFailure, match='table "py_t" was written to'):
                other.execute("COMMIT")
        other.execute("BEGIN")
        assert other.execute("SELECT k FROM py_t").fetchone() == (2,)
        other.execute("UPDATE py_t SET k = k + 10")
        other.execute("COMMIT")
        # What it has not read may change; and what it reads after a savepoint counts, too.
        other.execute("BEGIN")
        other.execute("INSERT INTO py_t VALUES (100, 'blind')")
        connection.execute("UPDATE py_t SET k = k + 1")
        other.execute("SAVEPOINT s")
        other.execute("SELECT count(*) FROM py_t")
        other.execute("ROLLBACK TO s")
        connection.execute("UPDATE py_t SET k = k + 1")
        with pytest.raises(errors.SerializationFailure):
            other.execute("COMMIT")
    assert connection.execute("SELECT k FROM py_t").fetchall() == [(14,)]


def test_who_writes_after_reading_a_view_rests_on_its_tables(
    server: Serving, connection: psycopg.Connection, table: str
):
    connection.execute("CREATE MATERIALIZED VIEW py_n AS SELECT count(*) AS n FROM py_t")
    connection.execute("CREATE TABLE py_other (n bigint)")
    with server.connect() as other:
        for wrote, table in enumerate(("py_other", "py_t")):
            other.execute("BEGIN")
            assert other.execute("SELECT n FROM py_n").fetchone() == (0,)
            other.execute("INSERT INTO py_other VALUES (1)")
            values = "VALUES (5)" if table == "py_other" else "VALUES (5, 'x')"
            connection.execute(f"INSERT INTO {table} {values}")  # type: ignore[arg-type]
            if wrote:
                with pytest.raises(errors.SerializationFailure, match='table "py_t"'):
                    other.execute("COMMIT")
            else:
                other.execute("COMMIT")
    assert connection.execute("SELECT sum(n), count(*) FROM py_other").fetchone() == (6, 2)
    connection.execute("DROP TABLE py_other")
    connection.execute("DROP MATERIALIZED VIEW py_n")


def test_a_pipeline_is_one_transaction(connection: psycopg.Connection, table: str):
    def fail() -> None:
        with connection.pipeline():
            connection.execute("INSERT INTO py_t VALUES (%s, 'a')", [1])
            connection.execute("SELECT 1 / %s", [0])

    with pytest.raises(errors.DivisionByZero):
        fail()
    assert connection.execute("SELECT count(*) FROM py_t").fetchone() == (0,)
    with connection.pipeline() as pipeline:
        connection.execute("INSERT INTO py_t VALUES (%s, 'a')", [1])
        seen = connection.execute("SELECT count(*) FROM py_t WHERE k = %s", [1])
        pipeline.sync()
        connection.execute("INSERT INTO py_t VALUES (%s, 'b')", [2])
        assert seen.fetchone() == (1,)
    found = connection.execute("SELECT k FROM py_t ORDER BY k").fetchall()
    assert found == [(1,), (2,)]


def test_copy_out(connection: psycopg.Connection, values_table: str):
    sql = f"COPY (SELECT {NAMES} FROM {values_table} WHERE i = %s) TO STDOUT"
    with connection.cursor() as cursor, cursor.copy(sql, [-70_000]) as copy:
        types = "bool int2 int4 int8 numeric float8 text date timestamp timestamptz interval"
        copy.set_types(types.split())
        assert list(copy.rows()) == [tuple(VALUES.values())]


def test_copy_out_that_fails(connection: psycopg.Connection):
    with (
        pytest.raises(errors.DivisionByZero),
        connection.cursor() as cursor,
        cursor.copy("COPY (SELECT 1 / 0) TO STDOUT") as copy,
    ):
        list(copy.rows())
    with (
        pytest.raises(errors.UndefinedTable),
        connection.cursor() as cursor,
        cursor.copy("COPY py_nowhere FROM STDIN") as copy,
    ):
        copy.write_row((1, "x"))
    assert connection.execute("SELECT 'alive'").fetchone() == ("alive",)


def test_large_values_and_results(connection: psycopg.Connection, table: str):
    long = "x" * 1_000_000
    connection.execute("INSERT INTO py_t VALUES (%s, %s)", [-1, long])
    assert connection.execute("SELECT v FROM py_t").fetchone() == (long,)
    rows = ", ".join(f"({k}, 'row {k}')" for k in range(20_000))
    connection.execute(f"INSERT INTO py_t VALUES {rows}")
    found = connection.execute("SELECT k, v FROM py_t WHERE k >= 0").fetchall()
    assert sorted(found) == [(k, f"row {k}") for k in range(20_000)]


@pytest.mark.parametrize("database", ["postgres", "other"])
def test_a_wrong_database_is_refused(server: Serving, database: str):
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(f"host=127.0.0.1 port={server.port} user=tidemark dbname={database}")
