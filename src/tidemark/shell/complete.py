r"""Completion: what could stand where the cursor is.

    SELECT …        keywords, relations, and columns of the relations that the statement names
    FROM …, \d …    relations
    SET …, SHOW …   settings
    t.…             columns of t, relations of schema t

Names are asked for once, and again after something was created, altered or dropped, or a setting
was: `search_path` says which of them stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from tidemark.client import Database
from tidemark.client.names import quoted
from tidemark.errors import TidemarkError
from tidemark.shell.commands import COMMANDS

KEYWORDS = """
    ALL ALTER AND ANY ARRAY AS ASC AVG BEGIN BETWEEN BY CASE CAST CLUSTER COALESCE COMMENT COMMIT
    CONNECTION COPY COUNT CREATE CROSS DATABASE DEFAULT DELETE DESC DISTINCT DROP ELSE END ENVELOPE EXCEPT
    EXISTS EXPLAIN FALSE FETCH FILTER FROM FULL GRANT GROUP HAVING ILIKE IN INDEX INNER INSERT
    INTERSECT INTERVAL INTO IS JOIN KEY LATERAL LEFT LIKE LIMIT MATERIALIZED MAX MIN MUTUALLY NOT
    NULL OF OFFSET ON OR ORDER OVER PARTITION PROGRESS RECURSIVE REFRESH REPLACE RESET RETAIN
    HISTORY RETURNING REVOKE RIGHT ROLE ROLLBACK SAVEPOINT SCHEMA SECRET SELECT SET SHOW SINK SNAPSHOT SOURCE
    STDIN STDOUT SUBSCRIBE SUM TABLE TABLES THEN TIMESTAMP TO TRUE UNION UP UPDATE UPSERT USING
    VALUES VERIFY VIEW WHEN WHERE WITH WITHIN
""".split()

_RELATION_FOLLOWS = re.compile(
    r"(?:\b(?:from|join|into|update|table|view|source|sink|subscribe|subscribe\s+to|verify|copy|on"
    r"|explain\s+materialized\s+view)\s+|\\d\S*\s+)[\w.\"$]*$",
    re.IGNORECASE,
)
_SETTING_FOLLOWS = re.compile(r"\b(?:set|show|reset)\s+(?:session\s+|local\s+)?\w*$", re.IGNORECASE)
_WORD = re.compile(r'[\w$"]*$')
_QUALIFIED = re.compile(r'([\w$]+|"[^"]+")\.[\w$"]*$')
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_NAMED = re.compile(r"[A-Za-z_][\w$]*")


class Names(msgspec.Struct):
    """What the database has: columns by relation, and settings."""

    columns: dict[str, list[str]] = {}
    by_schema: dict[str, list[str]] = {}
    settings: list[str] = []

    @classmethod
    def of(cls, db: Database) -> Names:
        """Nothing, rather than an error, if the server cannot say."""
        found = cls({}, {}, [])
        try:
            rows = db.sql(
                "SELECT n.nspname, c.relname, a.attname, pg_table_is_visible(c.oid)"
                " FROM pg_catalog.pg_class c"
                " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
                " JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid"
                " WHERE a.attnum > 0 AND c.relkind IN ('r', 'v', 'm') ORDER BY 1, 2, a.attnum"
            ).rows()
            found.settings = [str(row[0]) for row in db.sql("SHOW ALL").rows()]
        except TidemarkError:
            return found
        for schema, relation, column, visible in rows:
            names = found.by_schema.setdefault(schema, [])
            if relation not in names:
                names.append(relation)
            if visible and not schema.startswith(("pg_", "mz_", "information_schema")):
                found.columns.setdefault(relation, []).append(column)
        return found


class SqlCompleter(Completer):
    def __init__(self) -> None:
        self.names = Names({}, {}, [])

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.lstrip().startswith("\\") and " " not in before.lstrip():
            typed = before.lstrip()[1:]
            found = sorted(name for name in COMMANDS if name.startswith(typed))
            return [Completion("\\" + name, -len(typed) - 1) for name in found]
        match = _WORD.search(before)
        word = match.group() if match else ""
        return self._fitting(self._candidates(before, document.text, word), word)

    def _candidates(self, before: str, text: str, word: str) -> Iterable[tuple[str, str]]:
        """Names and what they are, the likeliest first."""
        relations = [(name, "relation") for name in self.names.columns]
        if _SETTING_FOLLOWS.search(before):
            return [(name, "setting") for name in self.names.settings]
        if qualified := _QUALIFIED.search(before):
            return self._members(qualified.group(1).strip('"'), text)
        if _RELATION_FOLLOWS.search(before):
            return relations + [(name, "schema") for name in self.names.by_schema]
        if not word:
            return []
        mentioned = {name.lower() for name in _NAMED.findall(text)}
        columns = [
            (column, name)
            for name, columns in self.names.columns.items()
            if name.lower() in mentioned
            for column in columns
        ]
        words = [(name if word.isupper() else name.lower(), "") for name in KEYWORDS]
        return columns + words + relations

    def _members(self, of: str, text: str) -> list[tuple[str, str]]:
        found = [(column, of) for column in self.names.columns.get(of, ())]
        found += [(name, of) for name in self.names.by_schema.get(of, ())]
        aliased = rf"([\w$]+)\s+(?:as\s+)?{re.escape(of)}\b"
        for name in re.findall(aliased, text, re.IGNORECASE):
            found += [(column, name) for column in self.names.columns.get(name.lower(), ())]
        return found

    @staticmethod
    def _fitting(candidates: Iterable[tuple[str, str]], word: str) -> list[Completion]:
        plain = word.strip('"').lower()
        seen: set[str] = set()
        found: list[Completion] = []
        for name, what in candidates:
            if name.lower().startswith(plain) and name not in seen and name != word:
                seen.add(name)
                is_plain = _PLAIN.fullmatch(name) is not None or name.isupper()
                found.append(Completion(name if is_plain else quoted(name), -len(word), name, what))
        return found
