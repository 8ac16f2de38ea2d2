"""Tables as text: CREATE TABLE, and what writes to one.

CREATE TABLE [IF NOT EXISTS] t (a int [NOT NULL] [DEFAULT value], ...) [WITH (RETAIN HISTORY FOR '1 day')]
CREATE TABLE [IF NOT EXISTS] t [(a, ...)] [WITH (...)] AS query [WITH [NO] DATA]
INSERT INTO t [(a, ...)] query | DEFAULT VALUES [RETURNING ...]
UPDATE t SET a = value | DEFAULT, ... [FROM ...] [WHERE ...] [RETURNING ...]
DELETE FROM t [USING ...] [WHERE ...] [RETURNING ...]          TRUNCATE [TABLE] t
"""

from __future__ import annotations

from sqlglot import exp

from tidemark.compute.sql.dialect import DIALECT, parse_tokens
from tidemark.control import lexer, returning
from tidemark.control import statements as s
from tidemark.control.checks import RETAIN
from tidemark.control.clauses import column_names, column_type, expression, options
from tidemark.control.cursor import Cursor
from tidemark.errors import SqlError, Unsupported
from tidemark.types import Column

_CONSTRAINTS = (
    "PRIMARY KEY",
    "FOREIGN KEY",
    "UNIQUE",
    "REFERENCES",
    "CHECK",
    "CONSTRAINT",
    "GENERATED",
    "COLLATE",
    "EXCLUDE",
    "LIKE",
)
_AFTER_TYPE = ("NOT NULL", "NULL", "DEFAULT", *_CONSTRAINTS)
_WITH_DATA = ("WITH DATA", "WITH NO DATA")


def create_table(cursor: Cursor) -> s.CreateTable | s.CreateTableAs:
    if_not_exists = cursor.take("IF NOT EXISTS")
    name = cursor.name()
    if not cursor.looking_at("(") or _names_only(cursor):
        return _create_table_as(cursor, name, if_not_exists)
    cursor.expect("(")
    columns: list[Column] = []
    defaults: dict[str, str] = {}
    while True:
        columns.append(_column(cursor, defaults))
        if cursor.take(")"):
            break
        cursor.expect(",")
    _check_once([column.name for column in columns])
    retain = _retained(cursor)
    return s.CreateTable(name, tuple(columns), if_not_exists, cursor.sql, retain, defaults)


def _names_only(cursor: Cursor) -> bool:
    """Whether `(a, b)` is what stands here, without types."""
    second = cursor.peek(2)
    return second is not None and second.text in (",", ")")


def _create_table_as(cursor: Cursor, name: s.Name, if_not_exists: bool) -> s.CreateTableAs:
    columns = column_names(cursor)
    _check_once(columns)
    retain = _retained(cursor)
    cursor.expect("AS")
    query = cursor.query(*_WITH_DATA)
    with_data = cursor.peek() is None or cursor.one_of(*_WITH_DATA) == "WITH DATA"
    return s.CreateTableAs(name, columns, query, if_not_exists, retain, with_data)


def _check_once(columns: tuple[str, ...] | list[str]) -> None:
    seen: set[str] = set()
    for column in columns:
        if column in seen:
            raise SqlError(f'column "{column}" specified more than once', sqlstate="42701")
        seen.add(column)


def _retained(cursor: Cursor) -> str | None:
    given = dict(options(cursor)) if cursor.take("WITH") else {}
    retain = given.pop(RETAIN, None)
    if given or not (cursor.peek() is None or cursor.looking_at("AS")):
        raise Unsupported(
            "options of CREATE TABLE other than RETAIN HISTORY are not supported",
            hint="supported: WITH (RETAIN HISTORY FOR '<interval>')",
        )
    return retain


def _column(cursor: Cursor, defaults: dict[str, str]) -> Column:
    """A column; what it is by default goes to `defaults`, as it is written."""
    _refuse_constraint(cursor)
    name = cursor.word()
    type_ = column_type(cursor, *_AFTER_TYPE)
    nullable = True
    while not (cursor.looking_at(",") or cursor.looking_at(")")):
        _refuse_constraint(cursor)
        if cursor.take("NOT NULL"):
            nullable = False
        elif cursor.take("DEFAULT"):
            start = cursor.at
            cursor.take("NULL")  # Which is a value here; elsewhere it ends one.
            end = cursor.find(",", *_AFTER_TYPE)
            if end == start:
                raise cursor.error()
            if name in defaults:
                raise SqlError(f'multiple default values specified for column "{name}"')
            cursor.at = start
            defaults[name] = cursor.text_until(end)
            cursor.at = end
        elif not cursor.take("NULL"):
            raise cursor.error()
    return Column(name, type_, nullable)


def _refuse_constraint(cursor: Cursor) -> None:
    for words in _CONSTRAINTS:
        if cursor.looking_at(words):
            raise Unsupported(
                f"{words} is not supported in CREATE TABLE",
                hint="only NOT NULL and DEFAULT are supported",
            )


def insert(cursor: Cursor) -> s.Insert:
    table, columns = _insert_head(cursor)
    if cursor.find("ON CONFLICT") < len(cursor.tokens):
        raise Unsupported("ON CONFLICT is not supported", hint="leave it out")
    if not columns and cursor.take("DEFAULT VALUES"):
        return s.Insert(table, (), None, ((),), returning.parse(cursor))
    query = cursor.query(returning.WORD)
    return s.Insert(table, columns, query, returning=returning.parse(cursor))


def _insert_head(cursor: Cursor) -> tuple[s.Name, tuple[str, ...]]:
    cursor.expect("INSERT INTO")
    table = cursor.name()
    # INSERT INTO t (SELECT ...) has a query in those parentheses, not columns.
    following = cursor.peek(1)
    opens_query = following is not None and following.text.upper() in (
        "SELECT",
        "VALUES",
        "WITH",
        "(",
    )
    columns = () if opens_query else column_names(cursor)
    _check_once(columns)
    return table, columns


def quick_insert(sql: str) -> s.Insert | None:
    """INSERT ... VALUES of plain literals, without a token per literal."""
    if sql[:6].upper() != "INSERT":
        return None
    found = lexer.literal_rows(sql)
    if found is None:
        return None
    head, rows = found
    try:
        cursor = Cursor(head)
        table, columns = _insert_head(cursor)
        cursor.end()
    except SqlError:
        return None  # There is more to it: `SELECT 1 UNION VALUES (2)`.
    return s.Insert(table, columns, None, rows)


def update(cursor: Cursor) -> s.Update:
    cursor.expect("UPDATE")
    table, alias = cursor.name(), None
    if not cursor.looking_at("SET"):
        cursor.take("AS")
        alias = cursor.word()
    cursor.expect("SET")
    assignments: list[tuple[str, exp.Expr]] = []
    while True:
        if cursor.looking_at("("):
            raise Unsupported("SET (a, b) = ... is not supported", hint="assign each column")
        column = cursor.word()
        cursor.expect("=")
        if cursor.take("DEFAULT"):
            value: exp.Expr = exp.Var(this="DEFAULT")  # As sqlglot has it in VALUES.
        else:
            value = expression(cursor, ",", "WHERE", "FROM", returning.WORD)
        assignments.append((column, value))
        if not cursor.take(","):
            break
    names = [name for name, _ in assignments]
    for name in names:
        if names.count(name) > 1:
            raise SqlError(f'multiple assignments to same column "{name}"')
    source, where = _source(cursor, "FROM"), _where(cursor)
    return s.Update(table, alias, tuple(assignments), where, source, returning.parse(cursor))


def delete(cursor: Cursor) -> s.Delete:
    cursor.expect("DELETE FROM")
    table, alias = cursor.name(), None
    if cursor.peek() is not None and not any(
        cursor.looking_at(word) for word in ("WHERE", "USING", returning.WORD)
    ):
        cursor.take("AS")
        alias = cursor.word()
    source, where = _source(cursor, "USING"), _where(cursor)
    return s.Delete(table, alias, where, source, returning.parse(cursor))


def truncate(cursor: Cursor) -> s.Truncate:
    cursor.expect("TRUNCATE")
    cursor.take("TABLE")
    table = cursor.name()
    if cursor.looking_at(","):
        raise Unsupported(
            "TRUNCATE of several tables is not supported", hint="BEGIN, TRUNCATE each, and COMMIT"
        )
    _ = cursor.take("CONTINUE IDENTITY") or cursor.take("RESTART IDENTITY")
    _ = cursor.take("RESTRICT") or cursor.take("CASCADE")  # Nothing refers to its rows.
    return s.Truncate(table)


def _source(cursor: Cursor, word: str) -> exp.Select | None:
    """What stands in the FROM of an UPDATE or the USING of a DELETE."""
    if not cursor.take(word):
        return None
    end = cursor.find("WHERE", returning.WORD)
    if end == cursor.at:
        raise cursor.error()
    select = DIALECT.tokenize("SELECT 1 FROM")
    tree = parse_tokens([*select, *cursor.tokens[cursor.at : end]], cursor.sql)
    if not isinstance(tree, exp.Select) or set(_given(tree)) - {"expressions", "from_", "joins"}:
        raise cursor.error()
    cursor.at = end
    return tree


def _given(tree: exp.Expr) -> list[str]:
    return [name for name, value in tree.args.items() if value]


def _where(cursor: Cursor) -> exp.Expr | None:
    return expression(cursor, returning.WORD) if cursor.take("WHERE") else None
