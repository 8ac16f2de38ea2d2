"""Writes the .slt files of grids: every expression of a list over a table of interesting values.

    python tests/slt/grids.py && REWRITE=1 pytest tests/integration/test_slt.py -k postgres

The lists are in the folder `grids`: a file of theirs has the tables it needs, then a line for each
expression.

    @table g_text k integer, t text        a table, then its rows
    @row 1, 'abc'
    @from g_text                           what the expressions below are over
    upper(t)                               SELECT k, upper(t) FROM g_text
    = SELECT 1                             a whole query
    > SELECT 1 AS a ORDER BY a             a whole query whose order is part of the result
    ! division by zero | 1 / 0             an expression that must fail so
    @differs reverse(t) is ...             the next one runs on PostgreSQL only, and why
    @only 3.50 and 3.5 are two texts       the next one runs on Tidemark only, and why
    @once no view holds it                 the next one is no view, and why
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def written(text: str, name: str) -> str:
    """The .slt file for a list; results are recorded later."""
    tables: list[str] = []
    keys: dict[str, str] = {}
    rows: list[tuple[str, str]] = []
    queries: list[str] = []
    source, marks, table = "", [], ""
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        match word:
            case "" | "#":
                pass
            case "@table":
                table, _, columns = rest.partition(" ")
                keys[table] = columns.split()[0]
                tables.append(f"statement ok\nCREATE TABLE {table} ({columns})\n")
            case "@row":
                rows.append((table, rest))
            case "@from":
                source = rest
            case "@differs":
                marks = [f"# differs: {rest}", "skipif tidemark"]
            case "@only":
                marks = [f"# differs: {rest}", "onlyif tidemark"]
            case "@once":
                marks = [f"# {rest}", "skipif view"]
            case "=" | ">":
                head = "query T rowsort" if word == "=" else "query T nosort"
                queries.append("\n".join([*marks, head, rest, "----", ""]))
                marks = []
            case "!":
                message, _, expr = rest.partition(" | ")
                sql = f"SELECT {expr}" + (f" FROM {source}" if source else "")
                head = f"statement error {re.escape(message).replace(chr(92) + ' ', ' ')}"
                queries.append("\n".join([*marks, head, sql, ""]))
                marks = []
            case _:
                sql = f"SELECT k, {line} FROM {source}" if source else f"SELECT {line}"
                queries.append("\n".join([*marks, "query T rowsort", sql, "----", ""]))
                marks = []
    data = [f"statement ok\nINSERT INTO {table} VALUES ({row})\n" for table, row in _changed(rows)]
    head = f"# Written by tests/slt/grids.py from grids/{name}: change it there.\n"
    return "\n".join([head, *tables, *data, *_undone(rows, keys), *queries])


def _changed(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """All rows of a table in one statement."""
    by_table: dict[str, list[str]] = {}
    for table, row in rows:
        by_table.setdefault(table, []).append(row)
    return [(table, "),\n  (".join(listed)) for table, listed in by_table.items()]


def _undone(rows: list[tuple[str, str]], keys: dict[str, str]) -> list[str]:
    """Rows that go and come again: views see them leave."""
    found = []
    for table, row in dict(rows).items():
        key = row.split(",", 1)[0]
        found.append(f"statement ok\nDELETE FROM {table} WHERE {keys[table]} = {key}\n")
        found.append(f"statement ok\nINSERT INTO {table} VALUES ({row})\n")
    return found


if __name__ == "__main__":
    for path in sorted((HERE / "grids").glob("*.txt")):
        (HERE / f"{path.stem}.slt").write_text(written(path.read_text(), path.name))
