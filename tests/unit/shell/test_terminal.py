"""`tidemark sql` as people use it: the real program in a real terminal, against a real wire."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

import tidemark
from terminal import PROGRAM, Terminal
from tidemark.control.pgwire.passwords import password_line, read_passwords
from tidemark.errors import Unavailable
from wire_harness import PATIENCE, spark_free_server


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with spark_free_server(tmp_path_factory.mktemp("wire")) as port:
        with tidemark.connect(port=port) as db:
            db.execute("CREATE TABLE fruits (name text NOT NULL, price numeric(10,2), n int)")
            db.insert("fruits", [{"name": "apple", "price": 1.5, "n": 3}, {"name": "pear, ripe"}])
            db.execute("CREATE VIEW cheap AS SELECT name FROM fruits WHERE price < 2")
        yield port


@pytest.fixture
def terminal(port: int, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(port, tmp_path)
    opened.prompt()
    yield opened
    opened.close()


def test_statements_errors_and_transactions(terminal: Terminal):
    assert " apple |  1.50\n(1 row)" in terminal.run("SELECT name, price FROM fruits WHERE n = 3;")
    shown = terminal.run("SELECT nope FROM fruits;")
    assert 'ERROR:  column "nope" does not exist' in shown
    assert "LINE 1: SELECT nope FROM fruits\n               ^" in shown
    assert "BEGIN" in terminal.run("BEGIN;", mark="*")
    terminal.run("SELECT * FROM nope;", mark="!")
    assert "ROLLBACK" in terminal.run("ROLLBACK;")
    terminal.child.send("SELECT 'two\r")
    terminal.child.send("lines' AS t;\r")
    assert "two" in terminal.expect(r"\(1 row\)")
    terminal.prompt()
    terminal.child.sendeof()
    terminal.child.expect(pexpect.EOF)
    assert "SELECT nope FROM fruits;" in terminal.history.read_text()
    assert terminal.history.stat().st_mode & 0o77 == 0


def test_what_there_is(terminal: Terminal):
    shown = terminal.run(r"\d")
    assert re.search(r"public \| cheap +\| view ", shown)
    assert re.search(r"public \| fruits +\| table ", shown)
    assert "fruits" not in terminal.run(r"\dv")
    assert "cheap" not in terminal.run(r"\dt fru*")
    shown = terminal.run(r"\d fruits")
    assert 'Table "public.fruits"' in shown
    assert re.search(r"name +\| text +\| not null", shown)
    assert re.search(r"price +\| numeric\(10,2\)", shown)
    assert "WHERE price < 2" in terminal.run(r"\d cheap")
    assert 'relation "nope" does not exist' in terminal.run(r"\d nope")
    terminal.run("CREATE CONNECTION broker TO KAFKA (BROKER 'localhost:1');")
    shown = terminal.run(r"\d broker")
    assert 'Connection "public.broker"\nDefinition:\n    CREATE CONNECTION broker TO KAFKA' in shown
    terminal.run("DROP CONNECTION broker;")
    assert "public" in terminal.run(r"\dn")
    assert "tidemark" in terminal.run(r"\l")
    assert "tidemark" in terminal.run(r"\du")
    assert r"\watch [SECONDS]" in terminal.run(r"\?")
    assert r"there is no \nope" in terminal.run(r"\nope")


def test_completion(terminal: Terminal):
    # What is completed is shown before anything else is typed, or it would be for nothing.
    for typed, completed in (("SELECT name FROM fru\t", "its"), (" WHERE pri\t", "ce")):
        terminal.child.send(typed)
        terminal.child.expect_exact(completed)
    terminal.child.send(" > 1;\r")
    assert "apple" in terminal.expect(r"\(1 row\)")
    terminal.prompt()
    terminal.child.send("SHOW clus\t")
    terminal.child.expect_exact("ter")
    terminal.child.send(";\r")
    assert "quickstart" in terminal.expect(r"\(1 row\)")


def test_watch_until_interrupted(terminal: Terminal):
    terminal.child.sendline(r"SELECT n FROM fruits WHERE n = 3 \watch 0.05")
    for _ in range(3):
        terminal.expect(r"\(every 0.05s\)")
        terminal.expect(r"\(1 row\)")
    terminal.child.sendintr()
    terminal.prompt()
    assert " 3" in terminal.run(r"\g")


def test_a_session_names_what_it_has_on_its_path(terminal: Terminal):
    terminal.run("CREATE SCHEMA mkt; CREATE TABLE mkt.salads (n int);")
    terminal.run("INSERT INTO mkt.salads VALUES (77);")
    terminal.run("SET search_path = mkt;")
    terminal.child.sendline("SUBSCRIBE salads;")
    terminal.expect("77")
    terminal.child.sendintr()
    terminal.prompt()
    terminal.child.send("SELECT * FROM sal\t")
    terminal.child.expect_exact("ads")
    terminal.child.send(";\r")
    terminal.expect("77")
    terminal.prompt()
    terminal.run("SET dialect = spark;")
    terminal.child.send("SELECT n FROM sal\t")
    terminal.child.expect_exact("ads")
    terminal.child.send(";\r")
    terminal.prompt()
    terminal.run("BEGIN;", mark="*")
    terminal.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;", mark="*")
    assert "strict" not in terminal.run("SHOW transaction_isolation;", mark="*")
    terminal.run("ROLLBACK;")
    terminal.run("DROP SCHEMA mkt CASCADE;")


def test_a_subscription_is_a_table_that_changes(terminal: Terminal, port: int):
    with tidemark.connect(port=port) as db:
        db.execute("CREATE TABLE moving (k int, v text)")
        db.execute("INSERT INTO moving VALUES (1, 'before')")
        terminal.child.sendline("SUBSCRIBE moving;")
        terminal.expect("before")
        db.execute("UPDATE moving SET v = 'after' WHERE k = 1")
        terminal.expect("after")
        shown = terminal.expect(r"1 row, as of \d{4}-\d\d-\d\d [0-9:.]+ UTC \([0-9]+\)")
        assert "before" not in shown
        terminal.child.sendintr()
        terminal.prompt()
        terminal.child.sendline("/* again */ SUBSCRIBE moving -- until I\n ;")
        terminal.expect("after")
        terminal.child.sendintr()
        terminal.prompt()
        assert "after" in terminal.run("SELECT v FROM moving WHERE k = 1;")


def test_settings_of_the_session(terminal: Terminal, tmp_path: Path):
    terminal.run(r"\x")
    assert re.search(
        r"-\[ RECORD 1 \]-*\nn \| 3", terminal.run("SELECT n FROM fruits WHERE n = 3;")
    )
    terminal.run(r"\x off")
    terminal.run(r"\timing on")
    assert re.search(r"Time: [0-9.]+ ms", terminal.run("SHOW cluster;"))
    terminal.run(rf"\o {tmp_path / 'out'}")
    terminal.run("SHOW cluster;")
    terminal.run(r"\o")
    assert "quickstart" in (tmp_path / "out").read_text()
    assert re.search(r" database\n-+\n tidemark\n", terminal.run(r"\e"))
    (tmp_path / "script.sql").write_text("\\echo 'from a' file\nSELECT nope;\n\\echo never\n")
    shown = terminal.run(rf"\i {tmp_path / 'script.sql'}")
    assert "from a file" in shown
    assert "LINE 1: SELECT nope" in shown
    assert "never" not in shown
    assert 'database "tidemark" as user "tidemark"' in terminal.run(r"\c")
    terminal.run(rf"\copy fruits to '{tmp_path / 'fruits.csv'}' csv header")
    lines = (tmp_path / "fruits.csv").read_text().splitlines()
    assert lines[0] == "name,price,n"
    assert sorted(lines[1:]) == ['"pear, ripe",,', "apple,1.50,3"]
    terminal.run("CREATE TABLE copied (name text, price numeric(10,2), n int);")
    loaded = terminal.run(rf"\copy copied from '{tmp_path / 'fruits.csv'}' csv header")
    assert "COPY 2" in loaded
    assert "apple,1.50,3" in terminal.run(r"\copy fruits to stdout csv")
    assert r"\watch [SECONDS]" in terminal.run("help")
    terminal.child.sendline("quit")
    terminal.child.expect(pexpect.EOF)


def test_a_server_that_goes_away(tmp_path: Path):
    with spark_free_server(tmp_path) as port:
        terminal = Terminal(port, tmp_path)
        terminal.prompt()
    try:
        terminal.child.sendline("SELECT 1;")
        terminal.expect(rf"no server answers on 127.0.0.1:{port}")
        terminal.expect("tidemark serve")
        terminal.expect("not connected")
    finally:
        terminal.close()


def test_a_password_is_asked_for(tmp_path: Path):
    file = tmp_path / "passwords"
    file.write_text(password_line("tidemark", "hunter2") + "\n")
    file.chmod(0o600)
    with spark_free_server(tmp_path, read_passwords(file)) as port:
        terminal = Terminal(port, tmp_path)
        try:
            terminal.expect("Password")
            terminal.child.sendline("hunter2")
            terminal.prompt()
            assert "quickstart" in terminal.run("SHOW cluster;")
        finally:
            terminal.close()
        done = run(port, "-c", "SHOW cluster")
        assert done.returncode == 2
        assert "password" in done.stderr
        with pytest.raises(Unavailable, match="password authentication failed"):
            tidemark.connect(port=port, password="wrong")


def run(port: int, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "-p", str(port), *arguments],
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


QUERY = "SELECT name, price, n FROM fruits WHERE n = 3"


def test_scripts(port: int, tmp_path: Path):
    done = run(port, "-c", QUERY, "--csv")
    assert (done.returncode, done.stdout) == (0, "name,price,n\napple,1.50,3\n")
    done = run(port, "-c", QUERY, "--json")
    assert json.loads(done.stdout) == {"name": "apple", "price": "1.50", "n": 3}
    script = tmp_path / "script.sql"
    script.write_text(
        "CREATE TABLE loaded (k int, v text); -- with its rows\n"
        'COPY loaded FROM STDIN (FORMAT csv);\n1,one\n2,"two;\n2"\n\\.\n'
        "SELECT k FROM loaded WHERE v = 'one';\nSELECT nope FROM loaded;\nDROP TABLE loaded;\n"
    )
    done = run(port, "-f", str(script), "-t")
    assert (done.returncode, done.stdout) == (1, "1\n")
    assert 'column "nope" does not exist' in done.stderr
    done = run(port, given="SELECT k FROM loaded WHERE v = 'one'; DROP TABLE loaded")
    assert done.returncode == 0
    assert "DROP TABLE" in done.stdout


def test_copy_takes_its_rows_from_stdin_where_no_script_has_them(
    port: int, terminal: Terminal, tmp_path: Path
):
    made = run(port, "-c", "CREATE TABLE piped (k int, v text)")
    assert made.returncode == 0, made.stderr
    asked = ("--json", "-c", "SELECT k, v FROM piped WHERE k = 2", "-c", "DELETE FROM piped")
    for copy in ("COPY piped FROM STDIN", r"\copy piped from stdin"):
        done = run(port, "-c", copy, *asked, given="1\tone\n2\ttwo\n")
        assert (done.returncode, done.stdout) == (0, '{"k": 2, "v": "two"}\n'), done.stderr
    # Each takes its own rows, up to what ends them; what is no text stays as it is.
    csv = ("-c", "COPY piped FROM STDIN (FORMAT csv)")
    done = run(port, *csv, *csv, *asked, given='1,one\n\\.\n2,"t\r\nwo"\n')
    assert json.loads(done.stdout) == {"k": 2, "v": "t\r\nwo"}
    made = run(port, "-c", 'CREATE TABLE "my t(a)" (k int, "to )" text)')
    assert made.returncode == 0, made.stderr
    for what in ('"my t(a)"', 'public."my t(a)" (k, "to )")', '"my t(a)"("to )",k)'):
        done = run(port, "-c", rf"\copy {what} from stdin csv", given="1,2\n")
        assert (done.returncode, done.stdout) == (0, "COPY 1\n"), done.stderr
    terminal.child.sendline("COPY piped FROM STDIN;")
    terminal.expect("Enter the rows")
    terminal.child.send("2\tkeyed\r\\.\r")
    assert "COPY 1" in terminal.prompt()
    (tmp_path / "rows.sql").write_text("COPY piped FROM STDIN;\n3\tfile\n\\.\n")
    assert "COPY 1" in terminal.run(rf"\i {tmp_path / 'rows.sql'}")
    terminal.run("DROP TABLE piped;")
    terminal.run('DROP TABLE "my t(a)";')


def test_a_subscription_in_a_script(port: int):
    with tidemark.connect(port=port) as db, db.subscribe("fruits") as batches:
        time = next(batches).time
    subscribe = f"SUBSCRIBE fruits AS OF {time} UP TO {time + 1};"
    done = run(port, "--csv", given=f"{subscribe}{subscribe}")
    assert done.returncode == 0, done.stderr
    rows = [f'{time},1,"pear, ripe",,', f"{time},1,apple,1.50,3"]
    once = ["mz_timestamp,mz_diff,name,price,n", *rows]
    assert sorted(done.stdout.splitlines()) == sorted(2 * once)


def test_no_server(port: int):
    done = run(1, "-c", "SELECT 1")
    assert done.returncode == 2
    assert "no server answers on 127.0.0.1:1" in done.stderr
    assert "tidemark serve --data DIR" in done.stderr
    done = run(port, "-d", "nope", "-c", "SELECT 1")
    assert done.returncode == 2
    assert 'database "nope" does not exist' in done.stderr
