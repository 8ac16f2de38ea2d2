"""CREATE SECRET, CONNECTION, SOURCE ... FROM KAFKA and SINK: tokens into statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot.tokenizer_core import TokenType

from tidemark.control import statements as s
from tidemark.control.clauses import column_names, column_type, in_cluster, options
from tidemark.control.cursor import Cursor
from tidemark.errors import SqlError, Unsupported
from tidemark.storage.kafka.spec import Envelope, Include
from tidemark.types import TEXT, Column

_STRINGS = (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.BYTE_STRING)

KAFKA_OPTIONS = (
    "BROKER",
    "BROKERS",
    "SECURITY PROTOCOL",
    "SASL MECHANISMS",
    "SASL USERNAME",
    "SASL PASSWORD",
    "SSL CERTIFICATE AUTHORITY",
    "SSL CERTIFICATE",
    "SSL KEY",
)
REGISTRY_OPTIONS = ("URL", "USERNAME", "PASSWORD")
TOPIC_OPTIONS = ("TOPIC", "START OFFSET", "START TIMESTAMP")
MOST_COLUMNS = 1_600

INCLUDED = ("PARTITION", "OFFSET", "TIMESTAMP", "HEADERS")


def create_secret(cursor: Cursor) -> s.CreateSecret:
    with _discreet("CREATE SECRET"):
        if_not_exists = cursor.take("IF NOT EXISTS")
        name = cursor.name()
        cursor.expect("AS")
        before = cursor.at
        value = _string(cursor)
        cursor.end()
    shown = f"{cursor.sql[: cursor.tokens[before].start].rstrip()} '***'"
    return s.CreateSecret(name, value, if_not_exists, shown)


def alter_secret(cursor: Cursor) -> s.AlterSecret:
    with _discreet("ALTER SECRET"):
        name = cursor.name()
        cursor.expect("AS")
        value = _string(cursor)
        cursor.end()
    return s.AlterSecret(name, value)


@contextmanager
def _discreet(statement: str) -> Iterator[None]:
    """The usual message quotes the statement, and so perhaps the secret."""
    try:
        yield
    except SqlError:
        raise SqlError(
            f"syntax error in {statement}", hint=f"{statement} name AS 'the value'"
        ) from None


def create_connection(cursor: Cursor) -> s.CreateConnection:
    if_not_exists = cursor.take("IF NOT EXISTS")
    name = cursor.name()
    cursor.expect("TO")
    if cursor.take("KAFKA"):
        given = _connection_options(cursor, KAFKA_OPTIONS)
        return s.CreateConnection(name, "kafka", given, if_not_exists, cursor.sql)
    if cursor.take("CONFLUENT SCHEMA REGISTRY"):
        given = _connection_options(cursor, REGISTRY_OPTIONS)
        return s.CreateConnection(
            name, "confluent schema registry", given, if_not_exists, cursor.sql
        )
    raise Unsupported(
        "only connections TO KAFKA and TO CONFLUENT SCHEMA REGISTRY are supported",
        hint="e.g. CREATE CONNECTION k TO KAFKA (BROKER 'localhost:9092')",
    )


def alter_connection(cursor: Cursor) -> s.AlterConnection | None:
    """What follows ALTER, if it is about options of a connection; else the cursor stays."""
    start = cursor.at
    if not cursor.take("CONNECTION"):
        return None
    if_exists = cursor.take("IF EXISTS")
    name = cursor.name()
    options: list[tuple[str, str | s.SecretNamed]] = []
    reset: list[str] = []
    while (after := cursor.peek(1)) is not None and after.token_type == TokenType.L_PAREN:
        if cursor.one_of("SET", "RESET") == "SET":
            options += _connection_options(cursor, (*KAFKA_OPTIONS, *REGISTRY_OPTIONS))
        else:
            reset += _list(cursor, _reset_option)
        if not cursor.take(","):
            break
    if not (options or reset):
        cursor.at = start
        return None
    said = [*(option for option, _ in options), *reset]
    if twice := [option for option in said if said.count(option) > 1]:
        raise SqlError(f"{twice[0].upper()} is changed more than once")
    return s.AlterConnection(name, if_exists, tuple(options), tuple(reset))


def _reset_option(cursor: Cursor) -> str:
    return _option(cursor, (*KAFKA_OPTIONS, *REGISTRY_OPTIONS), {})


def _connection_options(
    cursor: Cursor, known: tuple[str, ...]
) -> tuple[tuple[str, str | s.SecretNamed], ...]:
    found: dict[str, str | s.SecretNamed] = {}
    cursor.expect("(")
    while True:
        name = _option(cursor, known, found)
        if cursor.take("SECRET"):
            found[name] = s.SecretNamed(cursor.name())
        elif name == "brokers":
            found[name] = ",".join(_list(cursor, _string))
        else:
            found[name] = _string(cursor)
        if cursor.take(")"):
            return tuple(found.items())
        cursor.expect(",")


def _option(cursor: Cursor, known: tuple[str, ...], found: dict) -> str:
    """One of the `known` names, in lower case, with the = that may follow."""
    # The longest first: SSL CERTIFICATE is how SSL CERTIFICATE AUTHORITY begins.
    for words in sorted(known, key=len, reverse=True):
        if cursor.take(words):
            cursor.take("=")
            name = words.lower()
            if name in found:
                raise SqlError(f"{words} is given more than once")
            return name
    token = cursor.peek()
    if token is None or token.token_type in _STRINGS:
        raise cursor.error()
    raise Unsupported(
        f"option {token.text.upper()} is not supported here", hint=f"known: {', '.join(known)}"
    )


def create_source(
    cursor: Cursor, name: s.Name, cluster: str | None, if_not_exists: bool
) -> s.CreateKafkaSource:
    connection = cursor.name()
    topic, offsets, timestamp = _topic(cursor)
    key, value, both = _formats(cursor)
    include, key_name = _include(cursor)
    envelope, inline = _envelope(cursor)
    progress = cursor.name() if cursor.take("EXPOSE PROGRESS AS") else None
    given = options(cursor) if cursor.take("WITH") else ()
    return s.CreateKafkaSource(
        name=name,
        connection=connection,
        topic=topic,
        start_offsets=offsets,
        start_timestamp=timestamp,
        key=key,
        value=value,
        both=both,
        include=include,
        key_name=key_name,
        envelope=envelope,
        inline_errors=inline,
        progress=progress,
        with_options=given,
        cluster=cluster,
        if_not_exists=if_not_exists,
        sql=cursor.sql,
    )


def create_sink(cursor: Cursor) -> s.CreateSink:
    if_not_exists = cursor.take("IF NOT EXISTS")
    name = cursor.name()
    cluster = in_cluster(cursor)
    cursor.expect("FROM")
    relation = cursor.name()
    cursor.expect("INTO KAFKA CONNECTION")
    connection = cursor.name()
    cursor.expect("(")
    _option(cursor, ("TOPIC",), {})
    topic = _string(cursor)
    cursor.expect(")")
    if not cursor.take("KEY"):
        raise SqlError("a Kafka sink needs a key", hint="add KEY (...) with columns of it")
    key = column_names(cursor)
    cursor.take("NOT ENFORCED")
    if not cursor.take("FORMAT JSON"):
        raise Unsupported("a Kafka sink writes JSON", hint="add FORMAT JSON")
    cursor.expect("ENVELOPE")
    envelope = "upsert" if cursor.one_of("UPSERT", "DEBEZIUM") == "UPSERT" else "debezium"
    return s.CreateSink(
        name, relation, connection, topic, key, envelope, cluster, if_not_exists, cursor.sql
    )


def _topic(cursor: Cursor) -> tuple[str, tuple[int, ...], int | None]:
    found: dict[str, object] = {}
    topic, offsets, timestamp = "", (), None
    cursor.expect("(")
    while True:
        name = _option(cursor, TOPIC_OPTIONS, found)
        match name:
            case "topic":
                topic = _string(cursor)
            case "start offset":
                offsets = tuple(_list(cursor, Cursor.integer))
            case _:
                sign = -1 if cursor.take("-") else 1
                timestamp = sign * cursor.integer()
        found[name] = True
        if cursor.take(")"):
            break
        cursor.expect(",")
    if not topic:
        raise SqlError("a Kafka source needs a topic", hint="add (TOPIC 'name')")
    if offsets and timestamp is not None:
        raise SqlError("START OFFSET and START TIMESTAMP exclude each other")
    return topic, offsets, timestamp


def _formats(cursor: Cursor) -> tuple[s.Format | None, s.Format, bool]:
    """The key's, the value's, and whether the value's stands for both."""
    if cursor.take("KEY FORMAT"):
        key = _format(cursor)
        cursor.expect("VALUE FORMAT")
        return key, _format(cursor), False
    if not cursor.take("FORMAT"):
        raise SqlError(
            "a Kafka source needs a format", hint="add FORMAT ..., or KEY FORMAT ... VALUE FORMAT"
        )
    value = _format(cursor)
    return None, value, value.registry is not None


def _format(cursor: Cursor) -> s.Format:
    match cursor.one_of("JSON", "TEXT", "BYTES", "CSV", "AVRO", "PROTOBUF"):
        case "JSON":
            return s.Format("json", columns=_columns(cursor) if cursor.looking_at("(") else ())
        case "TEXT":
            return s.Format("text")
        case "BYTES":
            return s.Format("bytes")
        case "CSV":
            return _csv(cursor)
        case "AVRO":
            return _avro(cursor)
        case _:
            return _protobuf(cursor)


def _columns(cursor: Cursor) -> tuple[Column, ...]:
    def column(cursor: Cursor) -> Column:
        return Column(cursor.word(), column_type(cursor))

    return tuple(_list(cursor, column))


def _csv(cursor: Cursor) -> s.Format:
    if cursor.looking_at("WITH HEADER"):
        raise Unsupported(
            "CSV WITH HEADER is not supported: every message is one record",
            hint="name the columns: CSV WITH (a, b), or say how many: CSV WITH 2 COLUMNS",
        )
    cursor.expect("WITH")
    if cursor.looking_at("("):
        names = column_names(cursor)
    else:
        count = cursor.integer()
        if not 0 < count <= MOST_COLUMNS:
            raise SqlError(f"a CSV format has 1 to {MOST_COLUMNS} columns, not {count}")
        cursor.one_of("COLUMNS", "COLUMN")
        names = tuple(f"column{i + 1}" for i in range(count))
    delimiter = _string(cursor) if cursor.take("DELIMITED BY") else ","
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise SqlError(f"DELIMITED BY takes one character, not {delimiter!r}", sqlstate="22023")
    return s.Format("csv", columns=tuple(Column(n, TEXT) for n in names), delimiter=delimiter)


def _avro(cursor: Cursor) -> s.Format:
    if cursor.take("USING CONFLUENT SCHEMA REGISTRY CONNECTION"):
        return s.Format("avro", registry=cursor.name())
    cursor.expect("USING SCHEMA")
    return s.Format("avro", schema=_string(cursor))


def _protobuf(cursor: Cursor) -> s.Format:
    if cursor.looking_at("USING CONFLUENT SCHEMA REGISTRY"):
        raise Unsupported(
            "Protobuf from a schema registry is not supported",
            hint="PROTOBUF MESSAGE 'package.Message' USING SCHEMA 'the descriptor set in base64'",
        )
    cursor.expect("MESSAGE")
    message = _string(cursor)
    cursor.expect("USING SCHEMA")
    return s.Format("protobuf", schema=_string(cursor), message=message)


def _include(cursor: Cursor) -> tuple[tuple[Include, ...], str | None]:
    """The columns of the message itself, and what the key's column shall be called."""
    found: list[Include] = []
    key_name = None
    if not cursor.take("INCLUDE"):
        return (), None
    while True:
        if cursor.take("HEADER"):
            header = _string(cursor)
            cursor.expect("AS")
            found.append(Include("header", cursor.word(), header, cursor.take("BYTES")))
        else:
            kind = cursor.one_of("KEY", *INCLUDED).lower()
            name = cursor.word() if cursor.take("AS") else None
            if kind == "key":
                key_name = name
            found.append(Include(kind, name or kind))  # pyright: ignore[reportArgumentType]
        if not cursor.take(","):
            return tuple(found), key_name


def _envelope(cursor: Cursor) -> tuple[Envelope, str | None]:
    """The envelope, and the column that takes the errors of values."""
    if not cursor.take("ENVELOPE"):
        return "none", None
    envelope: Envelope = cursor.one_of("NONE", "UPSERT", "DEBEZIUM").lower()  # pyright: ignore[reportAssignmentType]
    if envelope != "upsert" or not cursor.take("("):
        return envelope, None
    cursor.expect("VALUE DECODING ERRORS")
    cursor.take("=")
    wrapped = cursor.take("(")
    cursor.expect("INLINE")
    name = cursor.word() if cursor.take("AS") else "error"
    if wrapped:
        cursor.expect(")")
    cursor.expect(")")
    return envelope, name


def _list(cursor: Cursor, element) -> list:
    """`(a, b)`, or one alone."""
    if not cursor.take("("):
        return [element(cursor)]
    found = [element(cursor)]
    while cursor.take(","):
        found.append(element(cursor))
    cursor.expect(")")
    return found


def _string(cursor: Cursor) -> str:
    token = cursor.peek()
    if token is None or token.token_type not in _STRINGS:
        raise cursor.error()
    cursor.at += 1
    return token.text
