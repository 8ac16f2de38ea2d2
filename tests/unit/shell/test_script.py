"""Text into statements and commands; what Tab offers; a SUBSCRIBE that says PROGRESS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tidemark.client.subscription import with_progress
from tidemark.errors import InvalidUsage, SqlError
from tidemark.shell.complete import Names, SqlCompleter
from tidemark.shell.output import json_lines
from tidemark.shell.prompt import History
from tidemark.shell.script import Command, Reader, Statement, is_complete
from tidemark.types import DOUBLE, INTERVAL, JSONB, Column, array_of


def read(text: str) -> list[Statement | Command]:
    reader = Reader()
    items = [item for line in text.splitlines(keepends=True) for item in reader.feed(line)]
    return [*items, *reader.finish()]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("SELECT 1; SELECT\n2;", [Statement("SELECT 1"), Statement("SELECT\n2")]),
        ("SELECT 'a;\n''b\\'; -- c;\n/* d; */ SELECT 1", None),
        ("\\d t\nSELECT 1", [Command("d", "t"), Statement("SELECT 1")]),
        ("SELECT 1 \\watch 2\n", [Command("watch", "2", "SELECT 1")]),
        ("-- nothing\n;;", []),
        ("\\dt;\n\\d\tt ;\n/* only\n; */", [Command("dt", ""), Command("d", "t")]),
        ('SELECT "a;b" FROM t;', [Statement('SELECT "a;b" FROM t')]),
    ],
)
def test_statements_and_commands(text: str, items: list[Statement | Command] | None):
    if items is None:
        items = [Statement("SELECT 'a;\n''b\\'"), Statement("-- c;\n/* d; */ SELECT 1")]
    assert read(text) == items


def test_when_enter_runs_it():
    for text in ("", "  ", "SELECT 1;", "\\d", "SELECT 1 \\g", "SELECT 1; -- one", "SELECT 1;;"):
        assert is_complete(text), text
    for text in ("SELECT 1", "SELECT ';", "SELECT 1 /* ;", 'SELECT ";"', "SELECT 1 -- ;"):
        assert not is_complete(text), text
    # What would be left behind without a word.
    for text in ("DELETE FROM t; INSERT INTO t", "\\d t\nSELECT 1", "SELECT 1; /* "):
        assert not is_complete(text), text


def test_the_history_has_no_secrets(tmp_path: Path):
    history = History(str(tmp_path / "history"))
    for literal in ("'x'", "='x'", "E'x'", "e'x'", "U&'x'", "$$x$$", "= $a$x$a$"):
        history.store_string(f"ALTER ROLE r PASSWORD {literal}")
    history.store_string("CREATE SECRET s AS 'x'")
    history.store_string("SELECT password FROM u")
    kept = (tmp_path / "history").read_text().splitlines()
    assert [line for line in kept if line.startswith("+")] == ["+SELECT password FROM u"]


def test_words_of_a_command():
    assert Command("i", "'a b.sql' c").words == ["a b.sql", "c"]
    with pytest.raises(SqlError, match="not closed"):
        _ = Command("i", "'a b").words


def offered(text: str) -> list[str]:
    completer = SqlCompleter()
    completer.names = Names(
        {"orders": ["id", "Region"], "offers": ["id", "price"]},
        {"public": ["orders", "offers"], "mz_catalog": ["mz_objects"]},
        ["cluster", "database"],
    )
    found = completer.get_completions(Document(text), CompleteEvent())
    return [completion.text for completion in found]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("sel", ["select"]),
        ("SEL", ["SELECT"]),
        ("SELECT * FROM o", ["orders", "offers"]),
        ("SUBSCRIBE or", ["orders"]),
        ("SELECT pr FROM offers WHERE pr", ["price", "progress"]),
        ("SELECT * FROM orders WHERE reg", ['"Region"']),
        ("SELECT orders.", ["id", '"Region"']),
        ("SELECT x. FROM offers x WHERE x.", ["id", "price"]),
        ("SELECT * FROM mz_catalog.", ["mz_objects"]),
        ("SET c", ["cluster"]),
        ("\\wa", ["\\watch"]),
        ("\\d off", ["offers"]),
        ("SELECT ", []),
    ],
)
def test_completion(text: str, first: list[str]):
    assert offered(text)[: len(first)] == first
    assert offered(text) or not first


def test_lines_of_json_are_json_whatever_the_values():
    columns = [
        Column("i", INTERVAL),
        Column("l", array_of(INTERVAL)),
        Column("f", array_of(DOUBLE)),
        Column("j", JSONB),
    ]
    interval = "-1 days -02:03:04.5"
    rows = [(interval, [interval, None], ["NaN", "1", None], '{"a": [1e400]}'), (None,) * 4]
    found = [json.loads(line, parse_constant=pytest.fail) for line in json_lines(columns, rows)]
    first = {"i": interval, "l": [interval, None], "f": ["nan", 1.0, None], "j": {"a": ["inf"]}}
    assert found == [first, dict.fromkeys(first)]


def test_progress_is_asked_for():
    assert with_progress("SUBSCRIBE t") == "SUBSCRIBE t\nWITH (PROGRESS = true)"
    ended = "SUBSCRIBE (SELECT f(x) FROM t) AS OF 3 WITH (SNAPSHOT = false)"
    assert with_progress(ended) == f"{ended[:-1]}, PROGRESS = true)"
    with pytest.raises(InvalidUsage):
        with_progress("SUBSCRIBE t WITH (PROGRESS)")


def test_progress_is_asked_for_beside_comments():
    assert with_progress("SUBSCRIBE t -- now").endswith("-- now\nWITH (PROGRESS = true)")
    ended = "SUBSCRIBE t WITH (SNAPSHOT) -- now (1)\n /* and (2) */"
    assert with_progress(ended) == ended.replace("SNAPSHOT", "SNAPSHOT, PROGRESS = true")
