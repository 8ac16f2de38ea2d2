"""Statements: what each text means, where scripts are cut, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemark.compute.expr import Call, Cast, Col, Lit
from tidemark.compute.literals import UNKNOWN
from tidemark.compute.plan import Constant, Filter, Get, Plan, Project
from tidemark.control import statements as s
from tidemark.control.dml import plan_delete, plan_insert, plan_update
from tidemark.control.parse import parse, split
from tidemark.control.pgwire import CopyOptions
from tidemark.errors import DataError, SqlError
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    numeric,
)

SPLITS = {
    "": [],
    " ; -- nothing\n ; /* ; */ ": [],
    "SELECT 1": ["SELECT 1"],
    "SELECT 1; SELECT 2;": ["SELECT 1", "SELECT 2"],
    "SELECT ';'; SELECT \";\"": ["SELECT ';'", 'SELECT ";"'],
    "SELECT 'it''s; fine'; x": ["SELECT 'it''s; fine'", "x"],
    "SELECT E'a\\';b'; x": ["SELECT E'a\\';b'", "x"],
    "SELECT 'a\\'; x": ["SELECT 'a\\'", "x"],
    "SELECT $$;$$; SELECT $a$ $b$;$a$": ["SELECT $$;$$", "SELECT $a$ $b$;$a$"],
    "SELECT $1; SELECT a$b": ["SELECT $1", "SELECT a$b"],
    "SELECT 1 -- ; '\n; SELECT 2": ["SELECT 1 -- ; '", "SELECT 2"],
    "SELECT /* ; /* ' */ ; */ 1; x": ["SELECT /* ; /* ' */ ; */ 1", "x"],
    "SELECT 1 - 2 / 3; x": ["SELECT 1 - 2 / 3", "x"],
}


@pytest.mark.parametrize("sql", SPLITS)
def test_split(sql: str) -> None:
    assert split(sql) == SPLITS[sql]


def test_a_name_without_letters_is_refused_where_it_is() -> None:
    for sql in ('SELECT 1; SELECT 2 AS ""', "SELECT 1; SELECT 2 AS ``"):
        with pytest.raises(SqlError, match="zero-length delimited identifier at or near") as caught:
            split(sql, "spark" if "`" in sql else "postgres")
        assert caught.value.position == 23
    assert split("""SELECT '""', "a""" + '""b"') == ["""SELECT '""', "a""" + '""b"']


@pytest.mark.parametrize("sql", ["SELECT 'abc", 'SELECT "abc', "SELECT /* abc", "SELECT E'\\x41'"])
def test_split_refuses_what_does_not_end(sql: str) -> None:
    with pytest.raises(SqlError):
        split(sql)


PARSED: dict[str, s.Statement] = {
    'create table if not exists A.b (x int not null, "Y" numeric(10, 2) null, z timestamptz)': (
        s.CreateTable(
            ("a", "b"),
            (Column("x", INTEGER, False), Column("Y", numeric(10, 2)), Column("z", TIMESTAMPTZ)),
            True,
            "",
        )
    ),
    "CREATE TABLE t (a double precision, b timestamp without time zone NOT NULL)": s.CreateTable(
        ("t",), (Column("a", DOUBLE), Column("b", TIMESTAMP, False)), False, ""
    ),
    "CREATE SOURCE a IN CLUSTER c FROM LOAD GENERATOR AUCTION (TICK INTERVAL '100ms', SEED 42)"
    " FOR ALL TABLES WITH (SIZE = 'x')": s.CreateSource(
        ("a",),
        "auction",
        (("tick interval", "100ms"), ("seed", "42")),
        (("size", "x"),),
        "c",
        True,
        False,
        "",
    ),
    "CREATE SOURCE IF NOT EXISTS a FROM LOAD GENERATOR COUNTER": s.CreateSource(
        ("a",), "counter", (), (), None, False, True, ""
    ),
    "CREATE SOURCE a FROM LOAD GENERATOR KEY VALUE (KEYS 5, VALUE SIZE = 10)": s.CreateSource(
        ("a",), "key value", (("keys", "5"), ("value size", "10")), (), None, False, False, ""
    ),
    "CREATE SOURCE a FROM LOAD GENERATOR TPCH (SCALE FACTOR 0.01) FOR ALL TABLES": s.CreateSource(
        ("a",), "tpch", (("scale factor", "0.01"),), (), None, True, False, ""
    ),
    "DROP TABLE a, b.c": s.Drop("table", (("a",), ("b", "c")), False, False),
    "DROP MATERIALIZED VIEW IF EXISTS v CASCADE": s.Drop(
        "materialized view", (("v",),), True, True
    ),
    "SHOW TABLES": s.ShowObjects("tables"),
    "SHOW MATERIALIZED VIEWS FROM x": s.ShowObjects("materialized views", ("x",)),
    "SHOW COLUMNS FROM t": s.ShowColumns(("t",)),
    "SHOW CREATE MATERIALIZED VIEW v": s.ShowCreate("materialized view", ("v",)),
    "SHOW ALL": s.ShowVariable(None),
    "SHOW server_version": s.ShowVariable("server_version"),
    "SHOW transaction isolation level": s.ShowVariable("transaction_isolation"),
    "SHOW TIME ZONE": s.ShowVariable("timezone"),
    "SET cluster = quickstart": s.SetVariable("cluster", "quickstart"),
    "SET search_path TO a, b": s.SetVariable("search_path", "a, b"),
    "SET SESSION statement_timeout = '5s'": s.SetVariable("statement_timeout", "5s"),
    "SET LOCAL extra_float_digits = -3": s.SetVariable("extra_float_digits", "-3", True),
    "SET x TO DEFAULT": s.SetVariable("x", None),
    "SET TIME ZONE 'UTC'": s.SetVariable("timezone", "UTC"),
    "RESET ALL": s.ResetVariable(None),
    "RESET x": s.ResetVariable("x"),
    "BEGIN": s.Begin(),
    "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY": s.Begin(
        "isolation level serializable read only"
    ),
    "COMMIT WORK": s.Commit(),
    "END": s.Commit(),
    "ROLLBACK": s.Rollback(),
    "ABORT": s.Rollback(),
    "DISCARD ALL": s.Discard("all"),
    "DEALLOCATE ALL": s.Deallocate(None),
    'DEALLOCATE PREPARE "S1"': s.Deallocate("S1"),
    "CLOSE ALL": s.CloseCursor(None),
    'CLOSE "C"': s.CloseCursor("C"),
    "FETCH c": s.Fetch("c", 1, None),
    "FETCH NEXT FROM c": s.Fetch("c", 1, None),
    "FETCH 5 IN c": s.Fetch("c", 5, None),
    "FETCH FORWARD 5 FROM c": s.Fetch("c", 5, None),
    "FETCH ALL c WITH (TIMEOUT = '1.5s')": s.Fetch("c", None, 1.5),
    "FETCH FORWARD ALL FROM c WITH (timeout 2)": s.Fetch("c", None, 2.0),
    "EXECUTE p": s.ExecutePrepared("p", None),
    "EXECUTE p ()": s.ExecutePrepared("p", None),
    'COPY t ("A", b) FROM STDIN': s.CopyFrom(("t",), ("A", "b"), CopyOptions()),
    "copy t from stdin with (format csv, header true, null '-', delimiter E'\\t')": s.CopyFrom(
        ("t",), (), CopyOptions(format="csv", header="skip", null="-", delimiter="\t")
    ),
    "copy t from stdin with delimiter as ';' null as '' csv header quote '|' escape '\\'": (
        s.CopyFrom(
            ("t",),
            (),
            CopyOptions(
                format="csv", header="skip", null="", delimiter=";", quote="|", escape="\\"
            ),
        )
    ),
    "COPY t FROM STDIN (HEADER MATCH)": s.CopyFrom(("t",), (), CopyOptions(header="match")),
    "COPY t FROM STDIN BINARY": s.CopyFrom(("t",), (), CopyOptions(format="binary")),
    "SUBSCRIBE v": s.Subscribe(("v",), None, True, False, None, None),
    "SUBSCRIBE TO a.v WITH (SNAPSHOT = false, PROGRESS) AS OF AT LEAST 5 UP TO 9": s.Subscribe(
        ("a", "v"), None, False, True, s.AsOf(5, True), 9
    ),
    "COPY (SUBSCRIBE TO v AS OF 3) TO STDOUT": s.CopyTo(
        s.Subscribe(("v",), None, True, False, s.AsOf(3), None), CopyOptions()
    ),
    "EXPLAIN DELTA PLAN FOR MATERIALIZED VIEW v": s.Explain(
        "delta plan", None, "materialized view", ("v",)
    ),
    "EXPLAIN VIEW v": s.Explain("plan", None, "view", ("v",)),
    "INSERT INTO t (b, a) VALUES (1, 'it''s'), (-2.5, NULL), (1e3, TRUE);": s.Insert(
        ("t",),
        ("b", "a"),
        None,
        (
            (Lit("1", INTEGER), Lit("it's", UNKNOWN)),
            (Lit("-2.5", numeric(2, 1)), Lit(None, UNKNOWN)),
            (Lit("1000", numeric(4, 0)), Lit("true", BOOLEAN)),
        ),
    ),
}


@pytest.mark.parametrize("sql", PARSED)
def test_statements(sql: str) -> None:
    parsed = parse(sql)
    if isinstance(parsed, s.CreateTable | s.CreateSource):
        assert parsed.sql == sql
        parsed = replace(parsed, sql="")
    assert parsed == PARSED[sql]


SPARK = {
    "SELECT 'it''s', \"a;b\" AS `x y`, 'q\\'z' FROM t": "SELECT 'it''s', 'a;b' AS \"x y\", 'q''z' FROM t",
    "SELECT nvl(a, $1), r'\\d' FROM `T` WHERE b <=> $2": (
        "SELECT coalesce(a, $1), '\\d' FROM \"t\" WHERE b IS NOT DISTINCT FROM $2"
    ),
}
"""What a session of Spark's dialect says, and how it is said in PostgreSQL's."""


@pytest.mark.parametrize("sql", SPARK)
def test_sparks_dialect(sql: str) -> None:
    mine, theirs = parse(sql, "spark"), parse(SPARK[sql])
    assert isinstance(mine, s.Select)
    assert isinstance(theirs, s.Select)
    plain = [each.query.tree.sql(dialect="postgres") for each in (mine, theirs)]
    assert plain[0] == plain[1]


def test_sparks_dialect_is_that_of_queries_alone() -> None:
    view = parse("""CREATE VIEW "My" AS SELECT "a;b)" AS x FROM t""", "spark")
    assert isinstance(view, s.CreateView)
    assert (view.name, view.query.dialect) == (("My",), "spark")
    assert view.query.tree.expressions[0].this.name == "a;b)"
    assert parse("SET dialect = 'postgres'", "spark") == s.SetVariable("dialect", "postgres")
    selected = parse("SELECT a FROM t AS OF 7", "spark")
    assert isinstance(selected, s.Select)
    assert selected.as_of == s.AsOf(7)
    role = "CREATE ROLE r PASSWORD 'a\\\\b'"
    assert parse(role, "spark") == parse(role)
    assert split("""SELECT "a;b", `c;d`, 'e\\';f'; SELECT 2""", "spark") == [
        """SELECT "a;b", `c;d`, 'e\\';f'""",
        "SELECT 2",
    ]


@pytest.mark.parametrize(
    ("sql", "place"),
    {
        "INSERT INTO t SELECT initcap(b) FROM t": "initcap",
        "EXPLAIN SELECT a b c FROM t": "c FROM",
        "SELECT `a`, b[0] FROM t": "b[0]",
    }.items(),
)
def test_errors_in_sparks_dialect_say_where(sql: str, place: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(sql, "spark")
    assert caught.value.position == sql.index(place) + 1


def test_queries_keep_their_text_without_what_is_ours() -> None:
    selected = parse("SELECT a FROM t AS OF AT LEAST 7")
    assert isinstance(selected, s.Select)
    assert (selected.query.sql, selected.as_of) == ("SELECT a FROM t", s.AsOf(7, True))

    view = parse("CREATE VIEW v (x, y) AS SELECT a, 'AS OF' FROM t -- why")
    assert isinstance(view, s.CreateView)
    assert (view.name, view.columns) == (("v",), ("x", "y"))
    assert view.query.sql == "SELECT a, 'AS OF' FROM t"

    materialized = parse("CREATE MATERIALIZED VIEW IF NOT EXISTS v IN CLUSTER c AS\nTABLE t")
    assert isinstance(materialized, s.CreateMaterializedView)
    assert (materialized.cluster, materialized.if_not_exists) == ("c", True)
    assert materialized.query.sql == "TABLE t"

    subscribed = parse("SUBSCRIBE (SELECT a FROM (SELECT 1 AS a) s) UP TO 4")
    assert isinstance(subscribed, s.Subscribe)
    assert subscribed.query is not None
    assert subscribed.query.sql == "SELECT a FROM (SELECT 1 AS a) s"

    copied = parse('COPY public."T" (a) TO STDOUT')
    assert isinstance(copied, s.CopyTo)
    assert isinstance(copied.statement, s.Select)
    assert copied.statement.query.sql == 'SELECT "a" FROM "public"."T"'

    explained = parse("EXPLAIN TIMESTAMP FOR SELECT 1")
    assert isinstance(explained, s.Explain)
    assert (explained.stage, explained.query and explained.query.sql) == ("timestamp", "SELECT 1")


REFUSED = {
    "SELEC 1": ("42601", 'syntax error at or near "SELEC"'),
    "SELECT 1 1": ("42601", 'syntax error at or near "1"'),
    "SELECT 1,": ("42601", "syntax error at end of input"),
    "SELECT a, FROM t": ("42601", 'syntax error at or near "FROM"'),
    "SELECT f(1, )": ("42601", 'syntax error at or near ")"'),
    "SELECT 1,, 2": ("42601", 'syntax error at or near ","'),
    "SELECT , 1": ("42601", 'syntax error at or near ","'),
    "SELECT 1 WHERE 1 IN (, 1)": ("42601", 'syntax error at or near ","'),
    "SELECT 1 GROUP BY": ("42601", "syntax error at end of input"),
    "SELECT 1 GROUP BY HAVING true": ("42601", 'syntax error at or near "HAVING"'),
    "SELECT rank() OVER (PARTITION BY ORDER BY 1)": ("42601", 'syntax error at or near "ORDER"'),
    "INSERT INTO t VALUES (1,, 2)": ("42601", 'syntax error at or near ","'),
    "SELECT 1 +": ("42601", "syntax error at end of input"),
    "SELECT (1": ("42601", "syntax error at end of input"),
    "SELECT * FROM": ("42601", "syntax error at end of input"),
    "SELECT a FROM t AS OF x": ("42601", 'syntax error at or near "x"'),
    "SELECT 1; SELECT 2": ("42601", "expected one statement, found 2"),
    "DROP t": ("42601", 'syntax error at or near "t"'),
    "CREATE VIEW v SELECT 1": ("42601", 'syntax error at or near "SELECT"'),
    "CREATE TABLE t (a int,)": ("42601", 'syntax error at or near ")"'),
    "CREATE TABLE t (a int, a int)": ("42701", 'column "a" specified more than once'),
    "CREATE TABLE t (a int PRIMARY KEY)": ("0A000", "PRIMARY KEY is not supported"),
    "CREATE TABLE t (a int, UNIQUE (a))": ("0A000", "UNIQUE is not supported"),
    "CREATE TABLE t (a real)": ("42704", 'type "real" is not supported'),
    "CREATE TABLE t (a varchar(5))": ("0A000", "type varchar(5) is not supported"),
    "CREATE TABLE t (a, b)": ("42601", "syntax error at end of input"),
    "CREATE TABLE t AS SELECT 1 WITH a": ("42601", 'syntax error at or near "WITH"'),
    "CREATE OR REPLACE TABLE t (a int)": ("0A000", "only views can be replaced"),
    "CREATE UNIQUE INDEX i ON t (a)": ("0A000", "CREATE UNIQUE is not supported"),
    "CREATE INDEX i ON t (lower(a))": ("0A000", "an index is by plain columns"),
    "CREATE INDEX i ON t ((a))": ("0A000", "an index is by plain columns"),
    "CREATE INDEX i ON t (a DESC)": ("0A000", "an index is by plain columns"),
    "CREATE INDEX i ON t (a) WHERE a > 1": ("0A000", "CREATE INDEX ... WHERE is not supported"),
    "CREATE INDEX IF NOT EXISTS ON t (a)": ("42601", "IF NOT EXISTS needs the name"),
    "CREATE SOURCE s FROM POSTGRES CONNECTION k": ("0A000", "only FROM KAFKA CONNECTION"),
    "INSERT INTO t VALUES (1) RETURNING a + 1": ("0A000", "RETURNING takes columns only"),
    "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING": ("0A000", "ON CONFLICT"),
    "UPDATE t SET a = 1 FROM": ("42601", "syntax error at end of input"),
    "UPDATE t SET a = 1 FROM u LIMIT 1": ("42601", 'syntax error at or near "u"'),
    "DELETE FROM t USING u RETURNING (a)": ("0A000", "RETURNING takes columns only"),
    "TRUNCATE t, u": ("0A000", "TRUNCATE of several tables"),
    "UPDATE t SET a = 1, a = 2": ("42601", 'multiple assignments to same column "a"'),
    "UPDATE t SET a = 1 b": ("42601", 'syntax error at or near "b"'),
    "COPY t FROM '/etc/passwd'": ("0A000", "COPY from a file or program"),
    "COPY t TO PROGRAM 'cat'": ("0A000", "COPY to a file or program"),
    "COPY t FROM STDIN WHERE a > 1": ("0A000", "COPY ... FROM ... WHERE is not supported"),
    "COPY t FROM STDIN (FORMAT json)": ("22023", 'COPY format "json" not recognized'),
    "COPY t FROM STDIN (FORMAT csv, FORMAT csv)": ("42601", "conflicting or redundant options"),
    "COPY t FROM STDIN (FREEZE)": ("0A000", 'COPY option "freeze" is not supported'),
    "COPY t FROM STDIN QUOTE '|'": ("0A000", "COPY quote requires CSV mode"),
    "COPY t FROM STDIN DELIMITER 'ab'": ("0A000", "must be a single one-byte character"),
    "COPY t FROM STDIN DELIMITER 'a'": ("22023", 'COPY delimiter cannot be "a"'),
    "COPY t FROM STDIN CSV QUOTE ','": ("22023", "must be different"),
    "COPY t FROM STDIN NULL E'\\t'": ("22023", "must not appear in the NULL specification"),
    "COPY t TO STDOUT (HEADER MATCH)": ("0A000", 'cannot use "match" with HEADER in COPY TO'),
    "COPY t FROM STDIN BINARY HEADER": ("42601", "a binary COPY takes no other options"),
    "COPY t FROM STDIN WITH": ("42601", "syntax error at end of input"),
    "COPY (SELECT 1) FROM STDIN": ("42601", 'syntax error at or near "FROM"'),
    "DECLARE c SCROLL CURSOR FOR SELECT 1": ("0A000", "scrollable cursors are not supported"),
    "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE t": ("0A000", "cannot be of a SUBSCRIBE"),
    "DECLARE c CURSOR FOR DELETE FROM t": ("42601", 'syntax error at or near "DELETE"'),
    "FETCH BACKWARD 1 FROM c": ("55000", "cursor can only scan forward"),
    "FETCH -1 FROM c": ("55000", "cursor can only scan forward"),
    "FETCH 0 c": ("0A000", "FETCH 0 is not supported"),
    "FETCH 1 c WITH (speed = 1)": ("0A000", "FETCH option SPEED is not supported"),
    "FETCH 1 c WITH (timeout = 'soon')": ("22023", 'invalid value for parameter "timeout"'),
    "PREPARE p AS CREATE TABLE t (a int)": ("42601", 'syntax error at or near "CREATE"'),
    "PREPARE p (nothing) AS SELECT 1": ("42704", 'type "nothing" is not supported'),
    "SUBSCRIBE v WITH (SIZE = 5)": ("0A000", "SUBSCRIBE option SIZE"),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_refusals(sql: str) -> None:
    sqlstate, message = REFUSED[sql]
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert caught.value.sqlstate == sqlstate
    assert message in caught.value.message


# INSERT, UPDATE and DELETE as queries ------------------------------------------------------------

T = Get("u1", (Column("a", INTEGER, False), Column("b", TEXT), Column("n", numeric(6, 2))))
U = Get("u2", (Column("x", BIGINT), Column("y", TEXT), Column("d", DOUBLE)))


class Catalog:
    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        return {"t": T, "u": U}[parts[-1]]


def insert(sql: str) -> Plan:
    statement = parse(sql)
    assert isinstance(statement, s.Insert)
    return plan_insert(statement, Catalog())


def test_insert_of_literals_is_a_constant_in_column_order() -> None:
    planned = insert("INSERT INTO t (n, a) VALUES (1.005, '7'), (2, 2.5), (NULL, 3)")
    cents = numeric(6, 2)
    assert planned == Constant(
        (
            (Lit("7", INTEGER), Lit(None, TEXT), Lit("1.01", cents)),
            (Lit("3", INTEGER), Lit(None, TEXT), Lit("2.00", cents)),
            (Lit("3", INTEGER), Lit(None, TEXT), Lit(None, cents)),
        ),
        T.columns,
    )


def test_numbers_that_only_double_precision_can_hold_are_inserted_there() -> None:
    class Doubles:
        def resolve(self, parts: tuple[str, ...]) -> Get:
            return Get("u3", (Column("f", DOUBLE), Column("n", NUMERIC)))

    statement = parse("INSERT INTO d VALUES (5e300, 1), (-1e-300, 2)")
    assert isinstance(statement, s.Insert)
    planned = plan_insert(statement, Doubles())
    assert isinstance(planned, Constant)
    assert [row[0] for row in planned.rows] == [Lit("5e+300", DOUBLE), Lit("-1e-300", DOUBLE)]
    statement = parse("INSERT INTO d VALUES (1, 5e300)")
    assert isinstance(statement, s.Insert)
    with pytest.raises(DataError, match="the number 5e300 does not fit into 38 digits"):
        plan_insert(statement, Doubles())


def test_values_in_a_name_a_comment_or_a_query_are_not_the_rows_of_an_insert() -> None:
    for sql, query in {
        "INSERT INTO t SELECT 1 UNION VALUES (2)": "SELECT 1 UNION VALUES (2)",
        "INSERT INTO t SELECT 1 -- VALUES (2)": "SELECT 1",
        "INSERT INTO t /* VALUES (1) */ VALUES (2)": "VALUES (2)",
        'INSERT INTO "a values (1" VALUES (1)': "VALUES (1)",
        'INSERT INTO "straße" VALUES (1)': None,
    }.items():
        parsed = parse(sql)
        assert isinstance(parsed, s.Insert)
        assert query is None or (parsed.query and parsed.query.sql.startswith(query))
        assert query or parsed.rows == ((Lit("1", INTEGER),),)
    for sql in ("INSERT INTO t_values (1)", "INSERT INTO t -- VALUES (1)"):
        with pytest.raises(SqlError, match="syntax error"):
            parse(sql)


def test_insert_of_a_query_casts_by_assignment() -> None:
    planned = insert("INSERT INTO t SELECT x, y FROM u")
    assert isinstance(planned, Project)
    assert planned.outputs == (
        Cast(Col(0, BIGINT), INTEGER),
        Col(1, TEXT),
        Lit(None, numeric(6, 2)),
    )
    assert planned.names == ("a", "b", "n")


def test_insert_of_expressions_is_computed() -> None:
    planned = insert("INSERT INTO t VALUES (1 + 1, 'x', 3)")
    assert isinstance(planned, Project)
    assert planned.columns[2].type == numeric(6, 2)


def test_parameters_take_the_types_of_their_columns() -> None:
    statement = parse("INSERT INTO t VALUES ($1, $2, $3), (4, 'y', NULL)")
    assert isinstance(statement, s.Insert)
    params = (Lit("7", UNKNOWN), Lit("x", UNKNOWN), Lit("1.5", UNKNOWN))
    planned = plan_insert(statement, Catalog(), params=params)
    cents = numeric(6, 2)
    assert planned == Constant(
        (
            (Lit("7", INTEGER), Lit("x", TEXT), Lit("1.50", cents)),
            (Lit("4", INTEGER), Lit("y", TEXT), Lit(None, cents)),
        ),
        T.columns,
    )


INSERT_ERRORS = {
    "INSERT INTO t VALUES (1, 'x', 2, 4)": (
        "42601",
        "INSERT has more expressions than target columns",
    ),
    "INSERT INTO t (a, b) VALUES (1)": ("42601", "INSERT has more target columns than expressions"),
    "INSERT INTO t (a) SELECT x, y FROM u": (
        "42601",
        "INSERT has more expressions than target columns",
    ),
    "INSERT INTO t (q) VALUES (1)": ("42703", 'column "q" does not exist'),
    "INSERT INTO t VALUES (1), (1, 'x')": ("42601", "VALUES lists must all be the same length"),
    "INSERT INTO t VALUES (true)": (
        "42804",
        'column "a" is of type integer but expression is of type boolean',
    ),
    "INSERT INTO t SELECT y FROM u": (
        "42804",
        'column "a" is of type integer but expression is of type text',
    ),
    "INSERT INTO t VALUES ('x')": ("22P02", 'invalid input syntax for type integer: "x"'),
    "INSERT INTO t VALUES (3000000000)": ("22003", "integer out of range"),
    "INSERT INTO t (n) VALUES (10000)": ("22003", "numeric field overflow"),
}


@pytest.mark.parametrize("sql", INSERT_ERRORS)
def test_insert_errors(sql: str) -> None:
    with pytest.raises((SqlError, DataError)) as caught:
        insert(sql)
    assert (caught.value.sqlstate, caught.value.message) == INSERT_ERRORS[sql]


def test_ten_thousand_rows_make_one_constant() -> None:
    rows = ", ".join(f"({n}, 'name {n}', {n % 100}.5)" for n in range(10_000))
    planned = insert(f"INSERT INTO t VALUES {rows}")
    assert isinstance(planned, Constant)
    assert len(planned.rows) == 10_000
    assert planned.rows[-1] == (
        Lit("9999", INTEGER),
        Lit("name 9999", TEXT),
        Lit("99.50", numeric(6, 2)),
    )


def test_update_gives_old_and_new_rows_side_by_side() -> None:
    statement = parse("UPDATE t AS x SET n = a, b = 'z' WHERE x.a > 1")
    assert isinstance(statement, s.Update)
    planned = plan_update(statement, Catalog())
    cents = numeric(6, 2)
    old = (Col(0, INTEGER), Col(1, TEXT), Col(2, cents))
    assert planned == Project(
        Filter(T, Call(">", (Col(0, INTEGER), Lit("1", INTEGER)), BOOLEAN)),
        (*old, Col(0, INTEGER), Lit("z", TEXT), Cast(Col(0, INTEGER), cents)),
        ("old_a", "old_b", "old_n", "new_a", "new_b", "new_n"),
    )


def test_update_checks_columns_and_types() -> None:
    for sql, sqlstate in {
        "UPDATE t SET q = 1": "42703",
        "UPDATE t SET a = b": "42804",
        "UPDATE t SET a = 1 WHERE a": "42804",
    }.items():
        statement = parse(sql)
        assert isinstance(statement, s.Update)
        with pytest.raises(SqlError) as caught:
            plan_update(statement, Catalog())
        assert caught.value.sqlstate == sqlstate


def test_delete_gives_the_old_rows() -> None:
    everything, some = parse("DELETE FROM t"), parse("DELETE FROM t WHERE b IS NULL")
    assert isinstance(everything, s.Delete)
    assert isinstance(some, s.Delete)
    assert plan_delete(everything, Catalog()) == T
    assert plan_delete(some, Catalog()) == Filter(T, Call("is null", (Col(1, TEXT),), BOOLEAN))


@pytest.mark.parametrize("is_", ["IS", "is not"])
def test_the_from_of_a_comparison_is_not_updates(is_: str) -> None:
    update = parse(f"UPDATE t SET a = b {is_} DISTINCT FROM c, d = 1 FROM u WHERE t.a = u.a")
    assert isinstance(update, s.Update)
    assert [name for name, _ in update.assignments] == ["a", "d"]
    assert update.source is not None
    assert update.where is not None


def test_commas_in_brackets_are_not_between_assignments() -> None:
    update = parse("UPDATE t SET a = ARRAY[1, 2], b = x[1]")
    assert isinstance(update, s.Update)
    assert [name for name, _ in update.assignments] == ["a", "b"]
