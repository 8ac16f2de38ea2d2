"""SQL text to statements.

Queries and expressions are parsed by sqlglot (`compute.sql.dialect`). The statements around them
are ours, and small: a cursor walks sqlglot's tokens, and hands the tokens of an inner query on to
sqlglot. `_STATEMENTS` is the list of what a statement may begin with.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tidemark.compute.sql.dialect import DIALECT, identifier, parse_tokens, tokenize
from tidemark.control import lexer, parse_kafka
from tidemark.control import statements as s
from tidemark.control.clauses import column_names, column_type, in_cluster, options
from tidemark.control.cursor import Cursor
from tidemark.control.lexer import split
from tidemark.errors import SqlError, Unsupported
from tidemark.types import Column

__all__ = ["parse", "split"]


def parse(sql: str) -> s.Statement:
    """The one statement in `sql` (a semicolon at its end is fine)."""
    statements = split(sql)
    if len(statements) != 1:
        raise SqlError(f"expected one statement, found {len(statements)}")
    return _parse(statements[0])


def _parse(sql: str) -> s.Statement:
    quick = _quick_insert(sql)
    if quick is not None:
        return quick
    sql = lexer.apart(sql)
    cursor = Cursor(sql, tokenize(sql))
    first = cursor.peek()
    word = first.text.upper().split()[0] if first else ""
    parser = _STATEMENTS.get(word)
    if word in _NO_STATEMENTS:
        raise Unsupported(f"{word} is not supported")
    if parser is None:
        raise cursor.error()
    statement = parser(cursor)
    cursor.end()
    return statement


# CREATE and DROP --------------------------------------------------------------------------------


def _create(cursor: Cursor) -> s.Statement:
    cursor.expect("CREATE")
    or_replace = cursor.take("OR REPLACE")
    if cursor.take("VIEW"):
        return _create_view(cursor, or_replace)
    if cursor.take("MATERIALIZED VIEW"):
        return _create_materialized_view(cursor, or_replace)
    if or_replace:
        raise Unsupported(
            "only views can be replaced", hint="DROP the object first, then CREATE it"
        )
    if cursor.take("TEMPORARY") or cursor.take("TEMP"):
        raise Unsupported("temporary objects are not supported", hint="create it without TEMPORARY")
    if cursor.take("TABLE"):
        return _create_table(cursor)
    if cursor.take("SOURCE"):
        return _create_source(cursor)
    if cursor.take("CONNECTION"):
        return parse_kafka.create_connection(cursor)
    if cursor.take("SECRET"):
        return parse_kafka.create_secret(cursor)
    if cursor.take("SINK"):
        return parse_kafka.create_sink(cursor)
    _refuse_kind(cursor, "CREATE")
    raise cursor.error()


def _refuse_kind(cursor: Cursor, verb: str) -> None:
    kind = cursor.peek()
    if kind is not None and kind.text.upper() in _NOT_YET:
        raise Unsupported(
            f"{verb} {kind.text.upper()} is not supported",
            hint=f"supported: {verb} TABLE, SOURCE, VIEW, MATERIALIZED VIEW, CONNECTION, SECRET, SINK",
        )


_NOT_YET = frozenset(
    "INDEX CLUSTER DATABASE SCHEMA ROLE USER TYPE FUNCTION SEQUENCE"
    " UNIQUE TRIGGER EXTENSION".split()
)


def _create_table(cursor: Cursor) -> s.CreateTable:
    if_not_exists = cursor.take("IF NOT EXISTS")
    name = cursor.name()
    if cursor.looking_at("AS"):
        raise Unsupported("CREATE TABLE AS is not supported", hint="CREATE TABLE, then INSERT")
    cursor.expect("(")
    columns: list[Column] = []
    while True:
        columns.append(_column(cursor))
        if cursor.take(")"):
            break
        cursor.expect(",")
    seen = [column.name for column in columns]
    for column in seen:
        if seen.count(column) > 1:
            raise SqlError(f'column "{column}" specified more than once', sqlstate="42701")
    if cursor.peek() is not None:
        raise Unsupported("options of CREATE TABLE are not supported", hint="leave them out")
    return s.CreateTable(name, tuple(columns), if_not_exists, cursor.sql)


_CONSTRAINTS = (
    "PRIMARY KEY",
    "FOREIGN KEY",
    "UNIQUE",
    "DEFAULT",
    "REFERENCES",
    "CHECK",
    "CONSTRAINT",
    "GENERATED",
    "COLLATE",
    "EXCLUDE",
    "LIKE",
)


def _refuse_constraint(cursor: Cursor) -> None:
    for words in _CONSTRAINTS:
        if cursor.looking_at(words):
            raise Unsupported(
                f"{words} is not supported in CREATE TABLE", hint="only NOT NULL is supported"
            )


def _column(cursor: Cursor) -> Column:
    _refuse_constraint(cursor)
    name = cursor.word()
    type_ = column_type(cursor, "NOT", "NULL", *_CONSTRAINTS)
    nullable = True
    while not (cursor.looking_at(",") or cursor.looking_at(")")):
        _refuse_constraint(cursor)
        if cursor.take("NOT NULL"):
            nullable = False
        elif not cursor.take("NULL"):
            raise cursor.error()
    return Column(name, type_, nullable)


def _create_source(cursor: Cursor) -> s.CreateSource | s.CreateKafkaSource:
    if_not_exists = cursor.take("IF NOT EXISTS")
    name = cursor.name()
    cluster = in_cluster(cursor)
    cursor.expect("FROM")
    if cursor.take("KAFKA CONNECTION"):
        return parse_kafka.create_source(cursor, name, cluster, if_not_exists)
    if not cursor.take("LOAD GENERATOR"):
        raise Unsupported(
            "only FROM KAFKA CONNECTION and FROM LOAD GENERATOR sources are supported",
            hint="e.g. CREATE SOURCE s FROM LOAD GENERATOR AUCTION",
        )
    generator = "key value" if cursor.take("KEY VALUE") else cursor.word()
    given = options(cursor) if cursor.looking_at("(") else ()
    all_tables = cursor.take("FOR ALL TABLES")
    if cursor.looking_at("FOR"):
        raise Unsupported("FOR TABLES (...) is not supported", hint="use FOR ALL TABLES")
    with_options = options(cursor) if cursor.take("WITH") else ()
    return s.CreateSource(
        name, generator, given, with_options, cluster, all_tables, if_not_exists, cursor.sql
    )


def _create_view(cursor: Cursor, or_replace: bool) -> s.CreateView:
    if_not_exists = not or_replace and cursor.take("IF NOT EXISTS")
    name = cursor.name()
    columns = column_names(cursor)
    cursor.expect("AS")
    return s.CreateView(name, columns, cursor.query(), if_not_exists, or_replace, cursor.sql)


def _create_materialized_view(cursor: Cursor, or_replace: bool) -> s.CreateMaterializedView:
    if_not_exists = not or_replace and cursor.take("IF NOT EXISTS")
    name = cursor.name()
    columns = column_names(cursor)
    cluster = in_cluster(cursor)
    if cursor.looking_at("WITH"):
        raise Unsupported(
            "options of CREATE MATERIALIZED VIEW are not supported", hint="leave WITH (...) out"
        )
    cursor.expect("AS")
    query = cursor.query()
    return s.CreateMaterializedView(
        name, columns, query, cluster, if_not_exists, or_replace, cursor.sql
    )


_KINDS: dict[str, s.ObjectKind] = {
    "TABLE": "table",
    "SOURCE": "source",
    "VIEW": "view",
    "MATERIALIZED VIEW": "materialized view",
    "CONNECTION": "connection",
    "SECRET": "secret",
    "SINK": "sink",
}


def _drop(cursor: Cursor) -> s.Drop:
    cursor.expect("DROP")
    _refuse_kind(cursor, "DROP")
    kind = _KINDS[cursor.one_of(*_KINDS)]
    if_exists = cursor.take("IF EXISTS")
    names = [cursor.name()]
    while cursor.take(","):
        names.append(cursor.name())
    cascade = cursor.take("CASCADE")
    if not cascade:
        cursor.take("RESTRICT")
    return s.Drop(kind, tuple(names), if_exists, cascade)


# SHOW, SET and transactions ---------------------------------------------------------------------

_LISTS = (
    "TABLES",
    "SOURCES",
    "VIEWS",
    "MATERIALIZED VIEWS",
    "CONNECTIONS",
    "SECRETS",
    "SINKS",
    "OBJECTS",
    "CLUSTERS",
    "DATABASES",
    "SCHEMAS",
)


def _show(cursor: Cursor) -> s.Statement:
    cursor.expect("SHOW")
    if cursor.take("CREATE"):
        return s.ShowCreate(_KINDS[cursor.one_of(*_KINDS)], cursor.name())
    if cursor.take("COLUMNS"):
        cursor.one_of("FROM", "IN")
        return s.ShowColumns(cursor.name())
    for words in _LISTS:
        if cursor.take(words):
            schema = cursor.name() if cursor.take("FROM") or cursor.take("IN") else None
            return s.ShowObjects(words.lower(), schema)
    if cursor.take("ALL"):
        return s.ShowVariable(None)
    return s.ShowVariable(_variable(cursor))


def _variable(cursor: Cursor) -> str:
    if cursor.take("TIME ZONE"):
        return "timezone"
    if cursor.take("TRANSACTION ISOLATION LEVEL"):
        return "transaction_isolation"
    return ".".join(cursor.name())


def _set(cursor: Cursor) -> s.Statement:
    cursor.expect("SET")
    local = cursor.take("LOCAL")
    if not local:
        cursor.take("SESSION")
    if cursor.take("CHARACTERISTICS AS TRANSACTION"):
        return s.SetVariable("transaction", _modes(cursor))
    if cursor.take("TRANSACTION"):
        return s.SetVariable("transaction", _modes(cursor), local=True)
    if cursor.take("TIME ZONE"):
        return s.SetVariable("timezone", _setting(cursor), local)
    if cursor.take("NAMES"):
        return s.SetVariable("client_encoding", _setting(cursor), local)
    name = _variable(cursor)
    cursor.one_of("=", "TO")
    return s.SetVariable(name, _setting(cursor), local)


def _setting(cursor: Cursor) -> str | None:
    if cursor.take("DEFAULT"):
        return None
    values: list[str] = []
    while True:
        sign = "-" if cursor.take("-") else ""
        token = cursor.next()
        values.append(sign + token.text)
        while not cursor.looking_at(",") and cursor.peek() is not None:
            values[-1] += f" {cursor.next().text}"
        if not cursor.take(","):
            return ", ".join(values)


def _rest(cursor: Cursor) -> str:
    if cursor.peek() is None:
        return ""
    text = cursor.text_until(len(cursor.tokens))
    cursor.at = len(cursor.tokens)
    return text


def _reset(cursor: Cursor) -> s.Statement:
    cursor.expect("RESET")
    return s.ResetVariable(None if cursor.take("ALL") else _variable(cursor))


def _begin(cursor: Cursor) -> s.Begin:
    if cursor.one_of("BEGIN", "START TRANSACTION") == "BEGIN" and not cursor.take("TRANSACTION"):
        cursor.take("WORK")
    return s.Begin(_modes(cursor))


def _modes(cursor: Cursor) -> str:
    words = " ".join(_rest(cursor).lower().replace(",", " ").split())
    if words and not words.startswith(
        ("isolation level ", "read only", "read write", "deferrable", "not deferrable")
    ):
        raise SqlError(f'syntax error at or near "{words.split()[0]}"')
    return words


def _commit(cursor: Cursor) -> s.Commit:
    cursor.one_of("COMMIT", "END")
    _ = cursor.take("TRANSACTION") or cursor.take("WORK")
    return s.Commit()


def _rollback(cursor: Cursor) -> s.Rollback:
    cursor.one_of("ROLLBACK", "ABORT")
    _ = cursor.take("TRANSACTION") or cursor.take("WORK")
    if cursor.looking_at("TO"):
        raise Unsupported("savepoints are not supported", hint="ROLLBACK the whole transaction")
    return s.Rollback()


def _discard(cursor: Cursor) -> s.Discard:
    cursor.expect("DISCARD")
    return s.Discard(cursor.one_of("ALL", "PLANS", "SEQUENCES", "TEMPORARY", "TEMP").lower())


def _deallocate(cursor: Cursor) -> s.Deallocate:
    cursor.expect("DEALLOCATE")
    cursor.take("PREPARE")
    return s.Deallocate(None if cursor.take("ALL") else cursor.word())


# Reading ----------------------------------------------------------------------------------------


def _select(cursor: Cursor) -> s.Select:
    query = cursor.query("AS OF")
    return s.Select(query, _as_of(cursor))


def _as_of(cursor: Cursor) -> s.AsOf | None:
    if not cursor.take("AS OF"):
        return None
    at_least = cursor.take("AT LEAST")
    return s.AsOf(cursor.integer(), at_least)


def _subscribe(cursor: Cursor) -> s.Subscribe:
    cursor.expect("SUBSCRIBE")
    cursor.take("TO")
    name, query = None, None
    if cursor.take("("):
        query = cursor.query()
        cursor.expect(")")
    else:
        name = cursor.name()
    known = {"snapshot": "true", "progress": "false"}
    if cursor.take("WITH"):
        for option, value in options(cursor):
            if option not in known or value.lower() not in ("true", "false", "on", "off"):
                raise Unsupported(
                    f"SUBSCRIBE option {option.upper()} = {value} is not supported",
                    hint="supported: SNAPSHOT and PROGRESS, each true or false",
                )
            known[option] = "true" if value.lower() in ("true", "on") else "false"
    as_of = _as_of(cursor)
    up_to = cursor.integer() if cursor.take("UP TO") else None
    for words in ("ENVELOPE", "WITHIN TIMESTAMP"):
        if cursor.looking_at(words):
            raise Unsupported(f"SUBSCRIBE ... {words} is not supported", hint="leave it out")
    snapshot, progress = known["snapshot"] == "true", known["progress"] == "true"
    return s.Subscribe(name, query, snapshot, progress, as_of, up_to)


def _copy(cursor: Cursor) -> s.CopyTo:
    cursor.expect("COPY")
    if cursor.take("("):
        statement = _subscribe(cursor) if cursor.looking_at("SUBSCRIBE") else _select(cursor)
        cursor.expect(")")
    else:
        statement = _select_all(cursor)
    if cursor.looking_at("FROM"):
        raise Unsupported("COPY ... FROM is not supported", hint="use INSERT")
    if cursor.looking_at("TO") and not cursor.looking_at("TO STDOUT"):
        raise Unsupported("COPY to a file or program is not supported", hint="use TO STDOUT")
    cursor.expect("TO STDOUT")
    if cursor.peek() is not None:
        raise Unsupported("options of COPY are not supported", hint="leave WITH (...) out")
    return s.CopyTo(statement)


def _select_all(cursor: Cursor) -> s.Select:
    """`COPY t` and `COPY t (a, b)`: a query of the relation's columns."""
    parts = cursor.name()
    columns = column_names(cursor)
    listed = ", ".join(_quoted(column) for column in columns) or "*"
    sql = f"SELECT {listed} FROM {'.'.join(_quoted(part) for part in parts)}"
    return s.Select(s.Query(parse_tokens(tokenize(sql), sql), sql))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _explain(cursor: Cursor) -> s.Explain:
    cursor.expect("EXPLAIN")
    stage: s.ExplainStage = "optimized plan"
    for words in ("OPTIMIZED PLAN", "DELTA PLAN", "PHYSICAL PLAN", "TIMESTAMP"):
        if cursor.take(words):
            stage = words.lower()  # pyright: ignore[reportAssignmentType]
            break
    else:
        if cursor.looking_at("ANALYZE") or cursor.looking_at("("):
            raise Unsupported("EXPLAIN options are not supported", hint="use EXPLAIN query")
    cursor.take("FOR")
    if cursor.take("MATERIALIZED VIEW"):
        return s.Explain(stage, None, "materialized view", cursor.name())
    if cursor.take("VIEW"):
        return s.Explain(stage, None, "view", cursor.name())
    return s.Explain(stage, cursor.query(), None, None)


# Writing ----------------------------------------------------------------------------------------


def _insert(cursor: Cursor) -> s.Insert:
    table, columns = _insert_head(cursor)
    if cursor.looking_at("DEFAULT VALUES") or cursor.find("ON CONFLICT") < len(cursor.tokens):
        raise Unsupported("DEFAULT VALUES and ON CONFLICT are not supported", hint="leave it out")
    if cursor.find("RETURNING") < len(cursor.tokens):
        raise Unsupported("RETURNING is not supported", hint="SELECT the rows afterwards")
    return s.Insert(table, columns, cursor.query())


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
    seen: set[str] = set()
    for column in columns:
        if column in seen:
            raise SqlError(f'column "{column}" specified more than once', sqlstate="42701")
        seen.add(column)
    return table, columns


def _quick_insert(sql: str) -> s.Insert | None:
    """INSERT ... VALUES of plain literals, without a token per literal."""
    if sql[:6].upper() != "INSERT":
        return None
    at = sql.upper().find("VALUES", 0, 4000)
    rows = lexer.literal_rows(sql, at + len("VALUES")) if at > 0 else None
    if rows is None:
        return None
    head = sql[:at]
    cursor = Cursor(head, tokenize(head))
    table, columns = _insert_head(cursor)
    cursor.end()
    return s.Insert(table, columns, None, rows)


def _update(cursor: Cursor) -> s.Update:
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
        if cursor.looking_at("DEFAULT"):
            raise Unsupported("DEFAULT is not supported", hint="write the value")
        assignments.append((column, _expression(cursor, ",", "WHERE", "FROM", "RETURNING")))
        if not cursor.take(","):
            break
    names = [name for name, _ in assignments]
    for name in names:
        if names.count(name) > 1:
            raise SqlError(f'multiple assignments to same column "{name}"')
    return s.Update(table, alias, tuple(assignments), _where(cursor, "UPDATE ... FROM"))


def _delete(cursor: Cursor) -> s.Delete:
    cursor.expect("DELETE FROM")
    table, alias = cursor.name(), None
    if cursor.peek() is not None and not any(
        cursor.looking_at(word) for word in ("WHERE", "USING", "RETURNING")
    ):
        cursor.take("AS")
        alias = cursor.word()
    return s.Delete(table, alias, _where(cursor, "DELETE ... USING"))


def _where(cursor: Cursor, other: str) -> exp.Expr | None:
    if cursor.looking_at("FROM") or cursor.looking_at("USING"):
        raise Unsupported(f"{other} is not supported", hint="use a condition on the table alone")
    where = _expression(cursor, "RETURNING") if cursor.take("WHERE") else None
    if cursor.looking_at("RETURNING"):
        raise Unsupported("RETURNING is not supported", hint="SELECT the rows instead")
    return where


def _expression(cursor: Cursor, *stops: str) -> exp.Expr:
    """A scalar expression up to one of the `stops`; parsed as the only item of a SELECT."""
    end = cursor.find(*stops)
    if end == cursor.at:
        raise cursor.error()
    select = DIALECT.tokenize("SELECT")
    tree = parse_tokens([*select, *cursor.tokens[cursor.at : end]], cursor.sql)
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or tree.args.get("from_"):
        raise cursor.error()
    expression = tree.expressions[0]
    if isinstance(expression, exp.Alias):
        raise SqlError(f'syntax error at or near "{identifier(expression.args["alias"])}"')
    cursor.at = end
    return expression


_NO_STATEMENTS = frozenset(
    "ALTER ANALYZE CALL CHECKPOINT CLOSE CLUSTER COMMENT DECLARE DO EXECUTE FETCH GRANT LISTEN LOCK"
    " MERGE MOVE NOTIFY PREPARE REFRESH REINDEX RELEASE REVOKE SAVEPOINT TRUNCATE UNLISTEN VACUUM"
    " VERIFY".split()
)
"""What exists elsewhere, or one day here: not a syntax error."""

_STATEMENTS: dict[str, Callable[[Cursor], s.Statement]] = {
    "SELECT": _select,
    "VALUES": _select,
    "WITH": _select,
    "TABLE": _select,
    "(": _select,
    "SUBSCRIBE": _subscribe,
    "EXPLAIN": _explain,
    "COPY": _copy,
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "CREATE": _create,
    "DROP": _drop,
    "SHOW": _show,
    "SET": _set,
    "RESET": _reset,
    "BEGIN": _begin,
    "START": _begin,
    "COMMIT": _commit,
    "END": _commit,
    "ROLLBACK": _rollback,
    "ABORT": _rollback,
    "DISCARD": _discard,
    "DEALLOCATE": _deallocate,
}
