"""Real clients look around: psql, psycopg, SQLAlchemy, asyncpg and JDBC."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.types import TypeInfo
from serving import Serving
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from services import java_program, missing, program


@pytest.fixture(scope="module")
def objects(server: Serving) -> Iterator[None]:
    """A table, a view and a materialized view with an index, whose names begin with jd_."""
    create = (
        "CREATE TABLE jd_items (id int NOT NULL, name text NOT NULL, price numeric(10,2), at date)",
        "CREATE VIEW jd_cheap AS SELECT id, name FROM jd_items WHERE price < 1",
        "CREATE MATERIALIZED VIEW jd_names AS SELECT name, count(*) AS n FROM jd_items GROUP BY 1",
        "CREATE INDEX jd_by_name ON jd_names (name)",
    )
    drop = ("MATERIALIZED VIEW jd_names", "VIEW jd_cheap", "TABLE jd_items")
    with server.connect() as connection:
        for statement in create:
            connection.execute(statement)
        yield
        connection.execute("DROP INDEX jd_by_name")
        for each in drop:
            connection.execute(f"DROP {each}")


@pytest.mark.usefixtures("objects")
def test_psql_lists_everything(server: Serving):
    """Without a pattern; which columns there are depends on psql's version."""

    def run(command: str) -> str:
        address = f"host=127.0.0.1 port={server.port} user=tidemark dbname=tidemark"
        done = subprocess.run(
            [program("psql"), "-X", "-A", "-v", "ON_ERROR_STOP=1", address, "-c", command],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert "ERROR" not in done.stderr, command
        return done.stdout

    assert "public|jd_items|table|tidemark" in run(r"\d")
    assert "public|jd_items|table|tidemark" in run(r"\dt")
    assert "public|jd_cheap|view|tidemark" in run(r"\dv")
    assert "public|jd_names|materialized view|tidemark" in run(r"\dm")
    assert "public|jd_by_name|index|tidemark|jd_names" in run(r"\di")
    assert "mz_objects" not in run(r"\d")
    assert "tidemark|tidemark|UTF8" in run(r"\l")
    assert "tidemark|Superuser" in run(r"\du")
    assert 'database "tidemark" as user "tidemark"' in run(r"\conninfo")
    # Tools and people send these as well; there is little to see, and no error.
    others = r"\d+ \dt+ \dv+ \dm+ \di+ \dn+ \l+ \du+ \df+ \dT+ \dg \db \dD \do \dC \dO \dP \dRp"
    others += r" \dy \dd \ddp \drds \dconfig \da \dc \dA \dL \dF \det \des \dew \dl \z"
    for command in others.split():
        run(command)


def test_psycopg_finds_types(connection: psycopg.Connection):
    found = TypeInfo.fetch(connection, "numeric")
    assert found is not None
    assert (found.oid, found.array_oid, found.regtype) == (1700, 1231, "numeric")
    assert TypeInfo.fetch(connection, "hstore") is None
    with connection.transaction(), connection.transaction():  # The inner one is a savepoint.
        assert TypeInfo.fetch(connection, "text") is not None


def test_psycopg_knows_its_backend(connection: psycopg.Connection):
    pid = connection.info.backend_pid
    assert connection.execute("SELECT pg_backend_pid()").fetchone() == (pid,)


@pytest.mark.usefixtures("objects")
def test_psycopg_reads_arrays_and_oids(connection: psycopg.Connection):
    row = connection.execute(
        "SELECT c.oid, array_agg(a.attname ORDER BY a.attnum), count(*) FROM pg_class c"
        " JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relname = %s GROUP BY c.oid",
        ("jd_items",),
    ).fetchone()
    assert row is not None
    oid, names, count = row
    assert (names, count) == (["id", "name", "price", "at"], 4)
    found = connection.execute("SELECT relname FROM pg_class WHERE oid = ANY(%s)", ([oid],))
    assert found.fetchall() == [("jd_items",)]


def test_a_long_query_of_the_catalog_can_be_stopped(server: Serving):
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(
                "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c,"
                " pg_attribute d WHERE a.attname || b.attname = c.attname || d.attname || '!'"
            )
        connection.execute("SET statement_timeout = 0")
        assert connection.execute("SELECT count(*) FROM pg_database").fetchone() == (1,)


@pytest.mark.usefixtures("objects")
def test_sqlalchemy_reflects(server: Serving):
    engine = sa.create_engine(f"postgresql+psycopg://tidemark@127.0.0.1:{server.port}/tidemark")
    inspector = sa.inspect(engine)
    assert "jd_items" in inspector.get_table_names()
    assert "jd_cheap" in inspector.get_view_names()
    assert "jd_names" in inspector.get_materialized_view_names()
    assert "public" in inspector.get_schema_names()
    columns = [
        (each["name"], str(each["type"]), each["nullable"])
        for each in inspector.get_columns("jd_items")
    ]
    assert columns == [
        ("id", "INTEGER", False),
        ("name", "TEXT", False),
        ("price", "NUMERIC(10, 2)", True),
        ("at", "DATE", True),
    ]
    assert inspector.get_pk_constraint("jd_items")["constrained_columns"] == []
    assert inspector.get_foreign_keys("jd_items") == []
    [index] = inspector.get_indexes("jd_names")
    assert (index["name"], index["column_names"], index["unique"]) == (
        "jd_by_name",
        ["name"],
        False,
    )
    assert "FROM jd_items" in inspector.get_view_definition("jd_cheap")
    assert not inspector.has_table("jd_nothing")
    metadata = sa.MetaData()
    metadata.reflect(engine, views=True, only=lambda name, _: name.startswith("jd_"))
    assert set(metadata.tables) == {"jd_items", "jd_cheap", "jd_names"}
    with engine.connect() as connection:
        items = metadata.tables["jd_items"]
        assert connection.execute(sa.select(items).where(items.c.id == 1)).fetchall() == []
    engine.dispose()


@pytest.mark.usefixtures("objects")
def test_asyncpg_in_binary(server: Serving):
    async def ask() -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=server.port, user="tidemark", database="tidemark"
        )
        try:
            row = await connection.fetchrow(
                "SELECT oid, relname, relnatts, relhasindex FROM pg_class WHERE relname = $1",
                "jd_items",
            )
            assert (row["relname"], row["relnatts"], row["relhasindex"]) == ("jd_items", 4, False)
            types = await connection.fetch(
                "SELECT oid, typname FROM pg_type WHERE oid = ANY($1::oid[]) ORDER BY oid", [23, 25]
            )
            assert [tuple(each) for each in types] == [(23, "int4"), (25, "text")]
            keys = await connection.fetch(
                "SELECT indkey FROM pg_index WHERE indrelid = 'jd_names'::regclass"
            )
            assert [list(each["indkey"]) for each in keys] == [[1]]
            noon = datetime(2024, 1, 1, 12)
            gap = await connection.fetchval("SELECT $1::timestamp - timestamp '2024-01-01'", noon)
            assert gap == timedelta(hours=12)
            later = await connection.fetchval("SELECT $1::interval * 2", gap)
            assert later == timedelta(days=1)
        finally:
            await connection.close()

    asyncio.run(ask())


@pytest.mark.usefixtures("objects")
def test_jdbc_metadata(server: Serving):
    java, jars = java_program(), Path(sys.prefix, "jdbc")
    if java is None or not jars.is_dir():
        missing("clients by JDBC (run scripts/test-deps.sh .venv)")
    program = Path(__file__).parent / "jdbc" / "Catalog.java"
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/tidemark?user=tidemark"
    done = subprocess.run(
        # It says so when it connects, and gets in all the same.
        [
            java,
            "-Duser.timezone=Asia/Tokyo",
            "-cp",
            f"{jars}/*",
            program,
            url,
            "jd_items",
            "jd_names",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {
        "table: jd_items|TABLE",
        "table: jd_cheap|VIEW",
        "table: jd_names|MATERIALIZED VIEW",
        "column: id|4|int4|10|0|NO",
        "column: name|12|text|2147483647|0|NO",
        "column: price|2|numeric|10|2|YES",
        "column: at|91|date|13|0|YES",
        "schema: public",
        "schema: information_schema",
        "catalog: tidemark",
        "index: jd_by_name|1|name",
        "type: int4|4",
        "type: timestamptz|93",
        "function column: array_in|returnValue|anyarray",
        "default isolation: 8",
        "result: id|int4|false",
        "result: name|text|false",
    } <= set(lines), done.stdout
    assert not [line for line in lines if line.startswith(("key:", "imported:", "function:"))]


def test_sqlalchemy_maps_objects(server: Serving):
    """The ORM asks for what the server has filled in: RETURNING of several rows at once."""

    class Base(DeclarativeBase):
        pass

    class Note(Base):
        __tablename__ = "jd_notes"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        text: Mapped[str]
        stars: Mapped[int] = mapped_column(server_default="3")
        at: Mapped[datetime] = mapped_column(
            sa.DateTime(timezone=True), server_default=sa.func.now()
        )

    engine = sa.create_engine(
        f"postgresql+psycopg://tidemark@127.0.0.1:{server.port}/tidemark",
        poolclass=sa.pool.NullPool,
    )
    with server.connect() as connection:  # Not by the ORM, whose tables have primary keys.
        connection.execute(
            "CREATE TABLE jd_notes (id int NOT NULL, text text NOT NULL, stars int DEFAULT 3,"
            " at timestamptz DEFAULT now())"
        )
    with Session(engine) as session:
        notes = [Note(id=number, text=f"note {number}") for number in range(5)]
        notes[4].stars = 5
        session.add_all(notes)
        session.commit()
        assert [note.stars for note in notes] == [3, 3, 3, 3, 5]
        assert len({note.at for note in notes}) == 1
        notes[0].text = "changed"
        session.delete(notes[1])
        session.commit()
        found = session.scalars(sa.select(Note).order_by(Note.id)).all()
        assert [(each.id, each.text) for each in found] == [
            (0, "changed"),
            *((number, f"note {number}") for number in (2, 3, 4)),
        ]
        assert session.execute(
            sa.update(Note).where(Note.id > 2).values(stars=1).returning(Note.id)
        ).all() == [(3,), (4,)]
        session.rollback()
        found = sa.inspect(engine).get_columns("jd_notes")
        assert [each["default"] for each in found] == [None, None, "3", "now()"]
    with server.connect() as connection:
        connection.execute("DROP TABLE jd_notes")
