"""SQL text to statements.

Queries and expressions are parsed by sqlglot (`compute.sql.dialect`). The statements around them
are ours, and small: a cursor walks sqlglot's tokens, and hands the tokens of an inner query on to
sqlglot. `_STATEMENTS` is the list of what a statement may begin with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from sqlglot.tokenizer_core import TokenType

from tidemark.control import (
    alter,
    comments,
    indexes,
    lexer,
    parse_cluster,
    parse_copy,
    parse_cursor,
    parse_hierarchy,
    parse_kafka,
    parse_role,
    parse_table,
)
from tidemark.control import statements as s
from tidemark.control.clauses import as_of, column_names, expression, in_cluster, options
from tidemark.control.cursor import Cursor
from tidemark.control.lexer import split
from tidemark.control.parse_subscribe import parse_subscribe
from tidemark.control.parse_webhook import create_webhook
from tidemark.control.refresh import view_options
from tidemark.errors import SqlError, Unsupported

__all__ = ["parse", "split"]

MOST_PARSED = 1024 * 1024
"""Characters of a statement that becomes tokens and a tree, each some hundred times its size."""


def parse(sql: str, dialect: str = "postgres") -> s.Statement:
    """The one statement in `sql` (a semicolon at its end is fine), its queries in `dialect`."""
    statements = split(sql, dialect)
    if len(statements) != 1:
        raise SqlError(f"expected one statement, found {len(statements)}")
    return _parse(statements[0], dialect)


def _parse(sql: str, dialect: str) -> s.Statement:
    quick = parse_table.quick_insert(sql) if dialect == "postgres" or "\\" not in sql else None
    if quick is not None:
        return quick
    if len(sql) > MOST_PARSED:
        raise SqlError(
            f"a statement of {len(sql):,} characters is too large",
            hint=f"at most {MOST_PARSED:,}, but for INSERT of plain VALUES: give values as"
            " parameters, load them with COPY, or put them into a table and join that",
            sqlstate="54000",
        )
    sql = lexer.apart(sql, dialect)
    cursor = Cursor(sql, dialect)
    if dialect != "postgres" and not any(map(cursor.looking_at, _QUERYING)):
        cursor = Cursor(sql)
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
        return parse_table.create_table(cursor)
    if cursor.take("SOURCE"):
        return _create_source(cursor)
    if cursor.take("CONNECTION"):
        return parse_kafka.create_connection(cursor)
    if cursor.take("SECRET"):
        return parse_kafka.create_secret(cursor)
    if cursor.take("SINK"):
        return parse_kafka.create_sink(cursor)
    if cursor.take("CLUSTER"):
        return parse_cluster.create(cursor)
    if cursor.take("DATABASE"):
        return parse_hierarchy.create_database(cursor)
    if cursor.take("SCHEMA"):
        return parse_hierarchy.create_schema(cursor)
    if cursor.take("INDEX"):
        return indexes.parse_create(cursor, default=False)
    if cursor.take("DEFAULT INDEX"):
        return indexes.parse_create(cursor, default=True)
    if cursor.looking_at("ROLE") or cursor.looking_at("USER"):
        return parse_role.create(cursor)
    _refuse_kind(cursor, "CREATE")
    raise cursor.error()


def _alter(cursor: Cursor) -> s.Statement:
    cursor.expect("ALTER")
    if cursor.looking_at("ROLE") or cursor.looking_at("USER"):
        return parse_role.alter(cursor)
    if cursor.find("OWNER TO") < len(cursor.tokens):
        return parse_role.alter_owner(cursor)
    if cursor.take("CLUSTER"):
        return parse_cluster.alter(cursor)
    if cursor.take("SECRET"):
        return parse_kafka.alter_secret(cursor)
    if cursor.take("SYSTEM"):
        return _alter_system(cursor)
    if cursor.take("SCHEMA"):
        return parse_hierarchy.alter_schema(cursor)
    if (found := parse_kafka.alter_connection(cursor)) is not None:
        return found
    if (found := alter.parse(cursor, _KINDS) or parse_hierarchy.move(cursor, _KINDS)) is not None:
        return found
    kind = cursor.next().text.upper()
    cursor.at = len(cursor.tokens)
    raise Unsupported(
        f"this ALTER {kind} is not supported",
        hint="supported: ALTER CLUSTER, ALTER CLUSTER REPLICA, ALTER CONNECTION, ALTER SECRET, ALTER ROLE,"
        " ALTER SYSTEM,"
        " and ALTER ... RENAME TO, SET SCHEMA, SET CLUSTER, SET (RETAIN HISTORY FOR '<interval>')"
        " and OWNER TO",
    )


def _alter_system(cursor: Cursor) -> s.AlterSystem:
    if cursor.one_of("SET", "RESET") == "RESET":
        return s.AlterSystem(None if cursor.take("ALL") else _variable(cursor))
    name = _variable(cursor)
    cursor.one_of("=", "TO")
    if name == "search_path":
        return s.AlterSystem(name, parse_hierarchy.search_path(cursor))
    return s.AlterSystem(name, _setting(cursor))


def _refuse_kind(cursor: Cursor, verb: str) -> None:
    kind = cursor.peek()
    if kind is not None and kind.text.upper() in _NOT_YET:
        raise Unsupported(
            f"{verb} {kind.text.upper()} is not supported",
            hint=f"supported: {verb} TABLE, SOURCE, VIEW, MATERIALIZED VIEW, INDEX, CONNECTION,"
            " SECRET, SINK, CLUSTER, ROLE, DATABASE, SCHEMA",
        )


_NOT_YET = frozenset("TYPE FUNCTION SEQUENCE UNIQUE TRIGGER EXTENSION".split())


def _create_source(cursor: Cursor) -> s.Statement:
    if_not_exists = cursor.take("IF NOT EXISTS")
    name = cursor.name()
    cluster = in_cluster(cursor)
    cursor.expect("FROM")
    if cursor.take("KAFKA CONNECTION"):
        return parse_kafka.create_source(cursor, name, cluster, if_not_exists)
    if cursor.take("WEBHOOK"):
        return create_webhook(cursor, name, cluster, if_not_exists)
    if not cursor.take("LOAD GENERATOR"):
        raise Unsupported(
            "only FROM KAFKA CONNECTION, WEBHOOK and LOAD GENERATOR sources are supported",
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
    refresh, retain = view_options(cursor) if cursor.take("WITH") else ((), None)
    cursor.expect("AS")
    query = cursor.query()
    return s.CreateMaterializedView(
        name, columns, query, cluster, if_not_exists, or_replace, cursor.sql, refresh, retain
    )


_KINDS: dict[str, s.ObjectKind] = {
    "TABLE": "table",
    "SOURCE": "source",
    "VIEW": "view",
    "MATERIALIZED VIEW": "materialized view",
    "CONNECTION": "connection",
    "SECRET": "secret",
    "SINK": "sink",
    "INDEX": "index",
}


def _drop(cursor: Cursor) -> s.Statement:
    cursor.expect("DROP")
    if cursor.take("CLUSTER"):
        return parse_cluster.drop(cursor)
    if cursor.looking_at("ROLE") or cursor.looking_at("USER"):
        return parse_role.drop(cursor)
    if cursor.looking_at("OWNED"):
        return parse_role.drop_owned(cursor)
    if cursor.take("DATABASE"):
        return parse_hierarchy.drop_database(cursor)
    if cursor.take("SCHEMA"):
        return parse_hierarchy.drop_schemas(cursor)
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
    "SUBSOURCES",
    "OBJECTS",
    "CLUSTERS",
    "CLUSTER REPLICAS",
    "DATABASES",
    "SCHEMAS",
    "ROLES",
    "REGIONS",
    "ACCOUNT",
)


def _show(cursor: Cursor) -> s.Statement:
    shown = _shown(cursor)
    if isinstance(shown, s.ShowObjects | s.ShowIndexes | s.ShowColumns):
        if cursor.take("LIKE"):
            return s.ShowMatching(shown, like=cursor.text())
        if cursor.take("WHERE"):
            return s.ShowMatching(shown, where=expression(cursor))
    return shown


def _shown(cursor: Cursor) -> s.Statement:
    cursor.expect("SHOW")
    if cursor.take("CREATE CLUSTER"):
        return s.ShowCreateCluster(cursor.word())
    if cursor.take("CREATE"):
        return s.ShowCreate(_KINDS[cursor.one_of(*_KINDS)], cursor.name())
    if cursor.take("COLUMNS"):
        cursor.one_of("FROM", "IN")
        return s.ShowColumns(cursor.name())
    if cursor.take("INDEXES"):
        named = cursor.take("ON") or cursor.take("FROM") or cursor.take("IN")
        return s.ShowIndexes(cursor.name() if named else None)
    if cursor.take("PRIVILEGES"):
        return parse_role.show_privileges(cursor)
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
    if cursor.take("ROLE"):
        _ = cursor.take("=") or cursor.take("TO")
        return s.SetVariable("role", _role(cursor), local)
    if cursor.take("SCHEMA"):  # As the SQL standard says it.
        _ = cursor.take("=") or cursor.take("TO")
        return s.SetVariable("search_path", parse_hierarchy.search_path(cursor), local)
    name = _variable(cursor)
    cursor.one_of("=", "TO")
    if name == "search_path":
        return s.SetVariable(name, parse_hierarchy.search_path(cursor), local)
    return s.SetVariable(name, _setting(cursor), local)


def _role(cursor: Cursor) -> str | None:
    if cursor.take("DEFAULT"):
        return None
    token = cursor.peek()
    is_text = token is not None and token.token_type == TokenType.STRING
    return cursor.next().text if is_text else cursor.word()


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


def _rollback(cursor: Cursor) -> s.Rollback | s.RollbackTo:
    cursor.one_of("ROLLBACK", "ABORT")
    _ = cursor.take("TRANSACTION") or cursor.take("WORK")
    if cursor.take("TO"):
        cursor.take("SAVEPOINT")
        return s.RollbackTo(cursor.word())
    return s.Rollback()


def _savepoint(cursor: Cursor) -> s.Savepoint:
    cursor.expect("SAVEPOINT")
    return s.Savepoint(cursor.word())


def _release(cursor: Cursor) -> s.Release:
    cursor.expect("RELEASE")
    cursor.take("SAVEPOINT")
    return s.Release(cursor.word())


def _discard(cursor: Cursor) -> s.Discard:
    cursor.expect("DISCARD")
    return s.Discard(cursor.one_of("ALL", "PLANS", "SEQUENCES", "TEMPORARY", "TEMP").lower())


def _unlisten(cursor: Cursor) -> s.Unlisten:
    cursor.expect("UNLISTEN")
    if not cursor.take("*"):
        cursor.word()
    return s.Unlisten()


def _deallocate(cursor: Cursor) -> s.Deallocate:
    cursor.expect("DEALLOCATE")
    cursor.take("PREPARE")
    return s.Deallocate(None if cursor.take("ALL") else cursor.word())


# Reading ----------------------------------------------------------------------------------------


_BEFORE_AS_OF = ("WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "UNION", "JOIN")


def _select(cursor: Cursor) -> s.Select:
    query = cursor.query("AS OF")
    found = s.Select(query, as_of(cursor))
    if found.as_of is not None and any(map(cursor.looking_at, _BEFORE_AS_OF)):
        raise SqlError(cursor.error().message, hint="AS OF comes at the end of the query")
    return found


def _rows(cursor: Cursor) -> s.Select | s.Subscribe:
    """The query of a COPY or a cursor."""
    return parse_subscribe(cursor) if cursor.looking_at("SUBSCRIBE") else _select(cursor)


def _prepared(cursor: Cursor) -> s.Statement:
    """What PREPARE may prepare."""
    token = cursor.peek()
    word = token.text.upper() if token else ""
    if word not in _PREPARED:
        raise cursor.error()
    return _STATEMENTS[word](cursor)


_PREPARED = ("SELECT", "VALUES", "WITH", "TABLE", "(", "SUBSCRIBE", "INSERT", "UPDATE", "DELETE")


def _verify(cursor: Cursor) -> s.Verify:
    cursor.expect("VERIFY")
    cursor.take("MATERIALIZED VIEW")
    return s.Verify(cursor.name(), as_of(cursor))


def _explain(cursor: Cursor) -> s.Explain:
    cursor.expect("EXPLAIN")
    stage: s.ExplainStage = "plan"
    stages = get_args(s.ExplainStage)
    for known in stages:
        if cursor.take(known.upper()):
            stage = known
            break
    else:
        if cursor.looking_at("ANALYZE") or cursor.looking_at("("):
            raise Unsupported(
                "EXPLAIN options are not supported",
                hint=f"use EXPLAIN query, or one of: {', '.join(each.upper() for each in stages)}",
            )
    as_json = cursor.take("AS") and cursor.one_of("TEXT", "JSON") == "JSON"
    cursor.take("FOR")
    for kind in ("materialized view", "view", "index"):
        if cursor.take(kind.upper()):
            return s.Explain(stage, None, kind, cursor.name(), as_json)
    if cursor.looking_at("CREATE"):
        create = _create(cursor)
        if not isinstance(create, s.CreateView | s.CreateMaterializedView):
            raise Unsupported(
                "EXPLAIN explains queries and views", hint="EXPLAIN CREATE MATERIALIZED VIEW ..."
            )
        return s.Explain(stage, None, None, None, as_json, create)
    return s.Explain(stage, cursor.query(), None, None, as_json)


_QUERYING = (
    *_PREPARED,
    *("EXPLAIN", "COPY", "DECLARE", "PREPARE"),
    *("CREATE VIEW", "CREATE OR REPLACE VIEW"),
    *("CREATE MATERIALIZED VIEW", "CREATE OR REPLACE MATERIALIZED VIEW"),
)
"""What may have a query in it; in all else, text is quoted as we do."""

_NO_STATEMENTS = frozenset(
    "ANALYZE CALL CHECKPOINT CLUSTER DO LISTEN LOCK MERGE MOVE NOTIFY REFRESH"
    " REINDEX VACUUM".split()
)
"""What exists elsewhere, or one day here: not a syntax error."""

_STATEMENTS: dict[str, Callable[[Cursor], s.Statement]] = {
    "SELECT": _select,
    "VALUES": _select,
    "WITH": _select,
    "TABLE": _select,
    "(": _select,
    "SUBSCRIBE": parse_subscribe,
    "EXPLAIN": _explain,
    "VERIFY": _verify,
    "COPY": lambda cursor: parse_copy.copy(cursor, _rows),
    "DECLARE": lambda cursor: parse_cursor.declare(cursor, _rows),
    "FETCH": parse_cursor.fetch,
    "CLOSE": parse_cursor.close,
    "PREPARE": lambda cursor: parse_cursor.prepare(cursor, _prepared),
    "EXECUTE": parse_cursor.execute,
    "INSERT": parse_table.insert,
    "UPDATE": parse_table.update,
    "DELETE": parse_table.delete,
    "TRUNCATE": parse_table.truncate,
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": _alter,
    "COMMENT": lambda cursor: comments.parse(cursor, _KINDS),
    "SHOW": _show,
    "SET": _set,
    "RESET": _reset,
    "BEGIN": _begin,
    "START": _begin,
    "COMMIT": _commit,
    "END": _commit,
    "ROLLBACK": _rollback,
    "ABORT": _rollback,
    "SAVEPOINT": _savepoint,
    "RELEASE": _release,
    "DISCARD": _discard,
    "DEALLOCATE": _deallocate,
    "UNLISTEN": _unlisten,
    "GRANT": parse_role.grant,
    "REVOKE": parse_role.revoke,
    "REASSIGN": parse_role.reassign,
}
