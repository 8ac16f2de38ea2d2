"""The Python client against a real wire: values, parameters, errors, inserts, subscriptions."""

from __future__ import annotations

import json
import math
import runpy
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pyarrow as pa
import pytest

import tidemark
from tidemark.client.names import quoted
from tidemark.client.problems import no_connection
from tidemark.errors import Cancelled, DataError, InvalidUsage, SqlError, Unavailable
from wire_harness import PATIENCE, spark_free_server

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with spark_free_server(tmp_path_factory.mktemp("wire")) as port:
        yield port


@pytest.fixture
def db(port: int) -> Iterator[tidemark.Database]:
    with tidemark.connect(port=port) as opened:
        yield opened
        for name in ("t", "v"):
            opened.execute(f"DROP TABLE IF EXISTS {name}")


OUTER_SPACE = [f"{c}x{c}" for c in " \t\n\r\v\f\x1c\x85\u00a0\u3000"]
EVERY_TYPE = {
    "k": ("int NOT NULL", pa.int32(), 1),
    "si": ("smallint", pa.int16(), -3),
    "bi": ("bigint", pa.int64(), 2**40),
    "n": ("numeric", pa.decimal128(38, 16), Decimal("-1.25")),
    "d": ("numeric(10,2)", pa.decimal128(10, 2), Decimal("3.10")),
    "f": ("double precision", pa.float64(), 0.1),
    "ok": ("boolean", pa.bool_(), True),
    "x": ("text", pa.string(), 'a,"b"\n\\.\t∅'),
    "b": ("bytea", pa.binary(), b"\0\xff"),
    "j": ("jsonb", pa.string(), {"a": [1, None, "é"]}),
    "da": ("date", pa.date32(), date(2024, 2, 29)),
    "ts": ("timestamp", pa.timestamp("us"), datetime(2024, 2, 29, 12, 0, 0, 5)),
    "tz": (
        "timestamptz",
        pa.timestamp("us", tz="UTC"),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ),
    "iv": ("interval", pa.duration("us"), -timedelta(days=1, hours=2, microseconds=5)),
    "li": ("int[]", pa.list_(pa.int32()), [1, None]),
    "lt": ("text[]", pa.list_(pa.string()), ["a b", 'c"d\\', "", None, "NULL", *OUTER_SPACE]),
    "ln": ("numeric[]", pa.list_(pa.decimal128(38, 16)), [Decimal("1.5")]),
    "lb": ("bytea[]", pa.list_(pa.binary()), [b"\x01", b""]),
}


@pytest.fixture
def every_type(db: tidemark.Database) -> tidemark.Database:
    columns = ", ".join(f"{name} {sql}" for name, (sql, _, _) in EVERY_TYPE.items())
    db.execute(f"CREATE TABLE t ({columns})")
    full = {name: value for name, (_, _, value) in EVERY_TYPE.items()}
    assert db.insert("t", [full, {"k": 2}]) == 2
    return db


def test_every_type_there_and_back(every_type: tidemark.Database, port: int):
    asked = [every_type.sql("SELECT * FROM t WHERE k = $1", [k]) for k in (1, 2)]
    assert asked[0].one() == tuple(value for _, _, value in EVERY_TYPE.values())
    assert asked[1].one() == (2, *[None] * (len(EVERY_TYPE) - 1))
    for result in asked:
        assert result.arrow().schema == pa.schema([(n, t) for n, (_, t, _) in EVERY_TYPE.items()])
    (row,) = asked[0].arrow().to_pylist()
    assert row["lt"] == EVERY_TYPE["lt"][2]
    assert row["tz"] == EVERY_TYPE["tz"][2]
    with psycopg.connect(f"host=127.0.0.1 port={port} user=tidemark dbname=tidemark") as plain:
        for result, k in zip(asked, (1, 2), strict=True):
            assert result.rows() == plain.execute("SELECT * FROM t WHERE k = %s", [k]).fetchall()
    # Arrow, Polars and pandas in: what was read can be written back.
    db = every_type
    for data in (asked[0].arrow(), asked[0], pl.from_arrow(asked[0].arrow())):
        db.execute("DELETE FROM t WHERE k = 1")
        assert db.insert("t", data) == 1
        assert db.sql("SELECT * FROM t WHERE k = 1").rows() == asked[0].rows()


def test_an_interval_that_arrow_cannot_hold_is_an_error(db: tidemark.Database):
    result = db.sql("SELECT interval '200000000 days' AS i")
    with pytest.raises(DataError, match="a value of type interval cannot be an Arrow value"):
        result.arrow()


def test_other_shapes(db: tidemark.Database):
    db.execute("CREATE TABLE t (k int, v text, f double precision, at timestamptz)")
    frame = pd.DataFrame(
        {"k": [1, 2], "v": ["", None], "at": pd.to_datetime(["2024-01-01T00:00:00.1Z", None])}
    )
    assert db.insert("public.t", frame) == 2
    assert db.insert('"t"', {"k": [3], "f": [math.inf]}) == 1
    result = db.sql("SELECT v, at FROM t WHERE k = 1")
    assert result.pandas()["at"][0] == frame["at"][0]
    assert result.polars().to_dicts() == result.dicts()
    assert db.sql("SELECT v FROM t WHERE k = 2").scalar() is None
    assert db.sql("SELECT f FROM t WHERE k = 3").scalar() == math.inf
    with pytest.raises(DataError, match="invalid input syntax") as failed:
        db.insert("t", {"k": [4, 5], "v": ["all", "or none"], "at": ["2024-01-01", "never"]})
    assert "line 2, column at" in (failed.value.context or "")
    assert len(db.sql("SELECT k FROM t WHERE k = 4")) == 0
    with pytest.raises(InvalidUsage, match="not a relation's name"):
        db.insert("t (k) FROM STDIN; --", {"k": [1]})
    with pytest.raises(InvalidUsage, match="int cannot be inserted"):
        db.insert("t", 3)
    empty = db.sql("SELECT k, v FROM t WHERE k = 99")
    assert (empty.rows(), empty.arrow().num_rows, empty.names) == ([], 0, ["k", "v"])
    assert empty.arrow().schema.types == [pa.int32(), pa.string()]


def test_a_dict_of_pandas_keeps_its_own_keys(db: tidemark.Database):
    db.execute("CREATE TABLE t (k int, j jsonb)")
    given = [{"vip": True}, None, {"since": 2020}]
    series = pd.Series(given)
    series[1] = math.nan
    for data in (
        pd.DataFrame({"k": [1, 2, 3], "j": given}),
        {"k": [1, 2, 3], "j": series},
        {"k": [1, 2, 3], "j": series.to_numpy()},
    ):
        assert db.insert("t", data) == 3
        for k, value in enumerate(given, 1):
            assert db.sql("SELECT j FROM t WHERE k = $1", [k]).scalar() == value
        db.execute("DELETE FROM t")


def test_a_list_is_json_where_the_column_is(db: tidemark.Database):
    db.execute("CREATE TABLE t (k int, j jsonb, a int[], l jsonb[])")
    lists = [[], [1, "x", None], [{"a": 1}, {"b": [2]}], {"c": ()}, None]
    arrays = [[], [1, None], None, [2, 3], [4]]
    dicts = [[], [{"a": 1}, None], [{"b": 2}, {"c": 3}], None, [{"d": None}]]
    columns = {"k": [0, 1, 2, 3, 4], "j": lists, "a": arrays, "l": dicts}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for data in (columns, rows, pd.DataFrame(columns)):
        with db.transaction():
            assert db.insert("public.t", data) == 5
        for k in range(5):
            kept = db.sql("SELECT j, a, l FROM t WHERE k = $1", [k]).one()
            assert kept == ({"c": []} if k == 3 else lists[k], arrays[k], dicts[k])
        db.execute("DELETE FROM t")
    db.insert('"t"', pa.table({"k": [1], "j": [[1, 2]], "a": [[1, 2]]}))
    assert db.sql("SELECT j, a FROM t WHERE k = 1").one() == ([1, 2], [1, 2])
    db.insert("t", pd.DataFrame({"k": [2], "j": [[np.int64(1), np.array([2.5])]]}))
    assert db.sql("SELECT j FROM t WHERE k = 2").scalar() == [1, [2.5]]
    with pytest.raises(SqlError, match='relation "nope" does not exist'):
        db.insert("nope", {"j": [[]]})


def test_parameters_and_errors(db: tidemark.Database):
    db.execute("CREATE TABLE t (k int, v text)")
    assert db.execute("INSERT INTO t VALUES ($1, $2), (2, '100%')", [1, "o'ne"]) == 2
    assert db.sql("SELECT v FROM t WHERE k = %s", [1]).scalar() == "o'ne"
    assert db.sql("SELECT v FROM t WHERE k = %(k)s", {"k": 2}).scalar() == "100%"
    assert db.sql("SELECT k FROM t WHERE v = '100%'").scalar() == 2
    with pytest.raises(SqlError) as failed:
        db.sql("SELECT nope\nFROM t")
    error = failed.value
    assert (error.sqlstate, error.position) == ("42703", 8)
    assert error.message == 'column "nope" does not exist'
    with pytest.raises(DataError) as failed:
        db.sql("INSERT INTO t (k) VALUES ('x')")
    assert failed.value.sqlstate == "22P02"
    for endless in ("SUBSCRIBE t", "/* live */ SUBSCRIBE t", "SELECT 1; subscribe t"):
        with pytest.raises(InvalidUsage, match=r"db\.subscribe"):
            db.sql(endless)
    with pytest.raises(InvalidUsage, match=r"db\.insert"):
        db.sql("COPY t TO STDOUT")
    assert db.sql("SELECT 'copy' AS subscribe").scalar() == "copy"  # And the session goes on.
    with pytest.raises(SqlError, match="nope"):
        delete_and_fail(db)
    assert db.sql("SELECT v FROM t WHERE k = 1").scalar() == "o'ne"
    with pytest.raises(InvalidUsage, match="a list of one"):
        db.sql("SELECT v FROM t WHERE v = $1", "100%")
    with pytest.raises(SqlError, match="supplies 1 parameters"):
        db.sql("SELECT $1, $2", [1])
    assert db.sql("SELECT $1::jsonb", [{"a": [1, None]}]).scalar() == {"a": [1, None]}
    with pytest.raises(InvalidUsage, match="0 rows"):
        db.sql("SELECT v FROM t WHERE k = 9").one()


def delete_and_fail(db: tidemark.Database) -> None:
    with db.transaction():
        db.execute("DELETE FROM t")
        db.sql("SELECT nope FROM t")


LEVEL = "bounded staleness 5s"


def test_connecting(port: int):
    for dsn in (f"127.0.0.1:{port}", f"postgresql://tidemark@127.0.0.1:{port}", f"port={port}"):
        with tidemark.connect(dsn, settings={"transaction_isolation": LEVEL}) as db:
            assert db.sql("SHOW transaction_isolation").scalar() == LEVEL
    with tidemark.connect(f"127.0.0.1:{port}/tidemark") as db:
        told = db.connection.info.get_parameters()
        assert (told["dbname"], told["connect_timeout"]) == ("tidemark", "10")
        assert db.sql("SHOW application_name").scalar() == "tidemark-python"
    with pytest.raises(Unavailable, match='database "nope" does not exist'):
        tidemark.connect(f"127.0.0.1:{port}/nope")
    assert db.closed
    with pytest.raises(Unavailable, match="connection"):
        db.sql("SELECT 1")
    with pytest.raises(Unavailable, match=r"no server answers on 127\.0\.0\.1:1") as failed:
        tidemark.connect(port=1)
    assert "tidemark serve" in (failed.value.hint or "")
    with pytest.raises(Unavailable, match='database "nope" does not exist'):
        tidemark.connect(port=port, database="nope")
    with pytest.raises(InvalidUsage, match="a port is a number"):
        tidemark.connect("postgresql://tidemark@:x/tidemark")
    with pytest.raises(InvalidUsage, match="sslmod"):
        tidemark.connect(port=port, sslmod="require")


def test_what_the_dsn_says_counts_unless_it_is_given_by_name(port: int):
    dsn = (
        f"postgresql://127.0.0.1:{port}/tidemark?connect_timeout=60&application_name=etl"
        "&options=-c%20transaction_isolation%3Dserializable%20-c%20statement_timeout%3D7s"
    )
    asked = "SHOW transaction_isolation", "SHOW statement_timeout", "SHOW application_name"
    for settings, name, said in (
        (None, None, ["serializable", "7s", "etl"]),
        ({"transaction_isolation": LEVEL}, "mine", [LEVEL, "7s", "mine"]),
    ):
        with tidemark.connect(dsn, settings=settings, application_name=name) as db:
            assert db.connection.info.get_parameters()["connect_timeout"] == "60"
            assert [db.sql(each).scalar() for each in asked] == said


def test_a_subscription_is_complete_and_can_be_resumed(db: tidemark.Database):
    db.execute("CREATE TABLE t (k int, v text)")
    db.execute("INSERT INTO t VALUES (1, 'one'), (2, NULL)")
    with db.subscribe("t") as subscription:
        first = next(subscription)
        assert sorted(row[1:3] for row in first.rows()) == [(1, 1), (1, 2)]
        assert first.arrow().schema.names == ["mz_timestamp", "mz_diff", "k", "v"]
        with db.transaction():
            db.execute("UPDATE t SET v = 'two' WHERE k = 2")
            db.execute("INSERT INTO t VALUES (3, 'three')")
        second = next(subscription)
    changes = [(-1, 2, None), (1, 2, "two"), (1, 3, "three")]
    assert sorted(second.rows(), key=str) == sorted(
        [(second.rows()[0][0], *change) for change in changes], key=str
    )
    assert not second.progressed
    resumed = db.subscribe("t", as_of=first.time, snapshot=False, up_to=second.time + 1)
    assert [sorted(batch.rows(), key=str) for batch in resumed] == [sorted(second.rows(), key=str)]
    with pytest.raises(SqlError, match='column "kv" does not exist'):
        next(db.subscribe("t", envelope="upsert", key="kv"))  # One name, not the columns k and v.
    with pytest.raises(InvalidUsage, match="PROGRESS"):
        next(db.subscription("SUBSCRIBE t"))
    keyed = next(db.subscribe("t", envelope="upsert", key="k"))
    assert sorted(row[1:] for row in keyed.rows()) == [
        ("upsert", 1, "one"),
        ("upsert", 2, "two"),
        ("upsert", 3, "three"),
    ]
    with pytest.raises(InvalidUsage, match="key"):
        db.subscribe("t", envelope="upsert")
    with db.subscribe("t", progress=True, snapshot=False) as passing:
        assert next(passing).progressed
    with pytest.raises(SqlError, match='relation "nope" does not exist'):
        next(db.subscribe("nope"))


def test_a_subscription_begins_with_the_settings_of_the_session(port: int):
    schema = quoted("Odd, \"one\" \\ of\t'two'\n")
    with tidemark.connect(port=port, settings={"statement_timeout": "7s"}) as db:
        db.execute(f"CREATE SCHEMA {schema}")
        db.execute(f"CREATE TABLE {schema}.best (k int)")
        with pytest.raises(SqlError, match='relation "best" does not exist'):
            next(db.subscribe("best"))
        db.execute(f"SET search_path = public, {schema}; SET application_name = 'of the session'")
        db.execute("RESET statement_timeout; INSERT INTO best VALUES (1)")
        with db.subscribe("best") as found:
            assert [row[2] for row in next(found).rows()] == [1]
            told = found._connection.info.parameter_status("application_name")
            assert told == "of the session"
        with db.transaction():
            db.execute("SET LOCAL dialect = 'spark'")
            query = "SELECT `k` FROM best"
            with pytest.raises(SqlError, match="no replicas"):  # It was understood.
                next(db.subscribe(query))
        with pytest.raises(SqlError, match="syntax error at or near"):
            next(db.subscribe(query))
        db.execute("CREATE DATABASE elsewhere; SET database = elsewhere")
        with db.subscribe("t") as found:
            assert found._connection.info.dbname == "elsewhere"
        db.execute("SET database = tidemark")
        db.execute(f"DROP DATABASE elsewhere CASCADE; DROP SCHEMA {schema} CASCADE")


def test_a_follower_keeps_the_time_also_while_nothing_changes(
    db: tidemark.Database, port: int, tmp_path: Path
):
    db.execute("CREATE TABLE t (k int) WITH (RETAIN HISTORY FOR '1 hour')")
    db.execute("INSERT INTO t VALUES (1)")
    follow = runpy.run_path(str(EXAMPLES / "follow.py"))["follow"]
    state = tmp_path / "state.json"
    assert follow(db, "t", state, 1).total() == 1
    first = json.loads(state.read_text())["time"]
    with tidemark.connect(port=port) as other:
        thread = threading.Thread(target=follow, args=(other, "t", state, 1), daemon=True)
        thread.start()
        for _ in range(20 * PATIENCE):
            if json.loads(state.read_text())["time"] > first:
                break
            thread.join(0.05)
        assert json.loads(state.read_text()) == {"time": ANY, "rows": {"[1]": 1}}
        assert json.loads(state.read_text())["time"] > first
        db.execute("INSERT INTO t VALUES (2)")
        thread.join(PATIENCE)
    assert json.loads(state.read_text())["rows"] == {"[1]": 1, "[2]": 1}


def test_what_is_no_table_is_said_so(db: tidemark.Database):
    db.execute("CREATE TABLE t (k int, v text)")
    for given, what in (
        ([{"k": 1}, {"k": "x"}], "column k cannot be inserted"),
        ({"k": [1, 2], "v": ["x"]}, "cannot be inserted"),
        ({"k": 1, "v": "x"}, "column k: 1 is one value"),
        ({"k": [1], "v": "x"}, "column v: 'x' is one value"),
        (pd.DataFrame({"k": [1, "x"]}), "cannot be inserted"),
    ):
        with pytest.raises((DataError, InvalidUsage), match=what):
            db.insert("t", given)
    assert db.insert("t", {"k": pd.Series([1]), "v": pd.array(["x"]).to_numpy()}) == 1


def test_another_thread_ends_a_subscription(db: tidemark.Database):
    db.execute("CREATE TABLE t (k int)")
    db.execute("INSERT INTO t VALUES (1)")
    subscription = db.subscribe("t")
    seen: list[int] = []
    begun = threading.Event()

    def follow() -> None:
        for batch in subscription:
            seen.append(len(batch))
            begun.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    subscription.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen == [1]
    assert db.sql("SELECT k FROM t WHERE k = 1").scalar() == 1


def test_a_statement_is_cancelled(db: tidemark.Database):
    db.execute("CREATE TABLE t (k int)")
    failed: list[BaseException] = []
    copying = db.connection.cursor().copy(b"COPY (SUBSCRIBE t WITH (PROGRESS)) TO STDOUT")

    def follow() -> None:
        try:
            with tidemark.client.problems.as_ours(), copying as copy:
                for _ in copy:
                    begun.set()
        except Cancelled as error:
            failed.append(error)

    begun = threading.Event()
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    db.cancel()
    thread.join(PATIENCE)
    assert [type(error) for error in failed] == [Cancelled]


def test_how_it_looks(db: tidemark.Database):
    db.execute("CREATE TABLE t (k int, v text)")
    db.execute("INSERT INTO t VALUES (1, '<b>')")
    result = db.sql("SELECT k, v FROM t WHERE k = 1")
    assert repr(result) == " k |  v\n---+-----\n 1 | <b>\n(1 row)"
    assert "&lt;b&gt;" in result._repr_html_()
    assert "<b>" not in result._repr_html_()
    assert repr(db.sql("DELETE FROM t")) == "DELETE 1"


WRONG_PASSWORD = """connection failed: connection to server at "127.0.0.1", port 6875 failed: FATAL:  \
password authentication failed for user "alice"
connection to server at "127.0.0.1", port 6875 failed: FATAL:  this server takes encrypted \
connections only
HINT:  connect with sslmode=require, or stricter"""
NO_PASSWORD = """connection failed: connection to server at "127.0.0.1", port 6875 failed: \
fe_sendauth: no password supplied"""

NO_ROOT = """connection failed: connection to server at "127.0.0.1", port 6875 failed: root \
certificate file "root.crt" does not exist"""


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        (WRONG_PASSWORD, 'password authentication failed for user "alice"'),
        (NO_PASSWORD, "no password supplied"),
    ],
)
def test_a_wrong_password_is_not_taken_for_missing_encryption(said: str, understood: str):
    """libpq tries once more without TLS, and tells of that last."""
    found = no_connection(psycopg.OperationalError(said), "127.0.0.1", 6875)
    untrusted = no_connection(psycopg.OperationalError(NO_ROOT), "h", 1)
    assert "sslrootcert=FILE in the connection string" in (untrusted.hint or "")
    assert found.message == f"127.0.0.1:6875 refuses the connection: {understood}"
    assert found.hint == "check user, password, database and sslmode"
