"""Views and indexes as the SQL that PostgreSQL would give back for them."""

from __future__ import annotations

from tidemark.control import statements as s
from tidemark.control.catalog import Item
from tidemark.control.hierarchy import quoted
from tidemark.control.parse import parse


def view_query(item: Item) -> str | None:
    """The query of a view, as its creator wrote it."""
    if item.kind not in ("view", "materialized-view"):
        return None
    statement = parse(item.sql, item.dialect)
    assert isinstance(statement, s.CreateView | s.CreateMaterializedView)
    return f" {statement.query.sql.strip()};"


def index_statement(item: Item, on: Item) -> str:
    columns = ", ".join(map(quoted, item.key))
    where = f"{quoted(on.schema)}.{quoted(on.name)}"
    return f"CREATE INDEX {quoted(item.name)} ON {where} USING btree ({columns})"
